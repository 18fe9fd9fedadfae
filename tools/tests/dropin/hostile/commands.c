/* Commands to /dev/infiniband/rdma_cm that librdmacm never writes. The error numbers are those of Linux' ucma.c. */

#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "ucma.h"

static int is_readable(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) == 1;
}

static void headers(int fd)
{
	char zeros[64] = { 0 };
	struct rdma_ucm_cmd_hdr long_one = { .cmd = 3, .in = 64 };
	void *volatile nothing = (void *)64;
	uint32_t id;

	expect("a short header", write(fd, zeros, 7) < 0 ? errno : 0, EINVAL);
	expect("a long structure", write(fd, &long_one, 8) < 0 ? errno : 0, EINVAL);
	expect("no memory", write(fd, nothing, 16) < 0 ? errno : 0, EFAULT);
	expect("command 13", command(fd, 13, zeros, 16, 0), ENOSYS);
	expect("command 25", command(fd, 25, zeros, 16, 0), EINVAL);
	expect("command ~0", command(fd, ~0u, zeros, 16, 0), EINVAL);
	expect("no port space", create(fd, 5, &id), EINVAL);
	expect("no room", command(fd, 0, zeros, 24, 0), ENOSPC);
	struct rdma_ucm_create_id nowhere = { .response = 64, .ps = RDMA_PS_TCP };
	expect("a bad response", command(fd, 0, &nowhere, sizeof nowhere, 4), EFAULT);
}

static void ids(int fd)
{
	uint32_t id, events, big[128] = { 0 };
	int other = channel(0);

	/* Command, length, offset of the id, room. */
	static const int unknown[][4] = {
		{ 1, 16, 8, 4 }, { 4, 8, 0, 0 }, { 5, 16, 8, 208 }, { 7, 8, 0, 0 }, { 9, 264, 0, 0 }, { 10, 4, 0, 0 },
		{ 11, 16, 8, 144 }, { 14, 24, 8, 0 }, { 15, 8, 0, 0 }, { 17, 16, 8, 4 }, { 19, 16, 8, 280 },
	};
	for (size_t n = 0; n < sizeof unknown / sizeof *unknown; n++) {
		char name[32];

		memset(big, 0, sizeof big);
		big[unknown[n][2] / 4] = 99999;
		snprintf(name, sizeof name, "unknown id, command %d", unknown[n][0]);
		expect(name, command(fd, unknown[n][0], big, unknown[n][1], unknown[n][3]), ENOENT);
	}
	expect("create", create(fd, RDMA_PS_TCP, &id), 0);
	expect("id of another channel", destroy(other, id, &events), EINVAL);
	struct rdma_ucm_connect connect = { .id = id };
	expect("connect without parameters", command(fd, 6, &connect, sizeof connect, 0), EINVAL);
	connect.conn_param.valid = 1;
	expect("connect when idle", command(fd, 6, &connect, sizeof connect, 0), EINVAL);
	expect("a short connect", command(fd, 6, &connect, 279, 0), EINVAL);
	struct rdma_ucm_accept accept = { .id = id };
	expect("accept when idle", command(fd, 8, &accept, sizeof accept, 0), EINVAL);
	struct rdma_ucm_reject reject = { .id = id, .reason = 8 };
	expect("a reason of the kernel", command(fd, 9, &reject, sizeof reject, 0), EINVAL);
	struct rdma_ucm_disconnect disconnect = { .id = id };
	expect("disconnect when idle", command(fd, 10, &disconnect, sizeof disconnect, 0), EINVAL);
	struct rdma_ucm_resolve_route route = { .id = id, .timeout_ms = 1000 };
	expect("route when idle", command(fd, 4, &route, sizeof route, 0), EINVAL);
	struct rdma_ucm_bind bind = { .id = id, .addr_size = 16 };
	expect("bind without a family", command(fd, 20, &bind, sizeof bind, 0), EINVAL);
	struct rdma_ucm_set_option option = { .id = id, .level = 9, .optval = (uintptr_t)&id, .optlen = 4 };
	expect("unknown option", command(fd, 14, &option, sizeof option, 0), ENOSYS);
	option.level = 0, option.optlen = 4;
	expect("TOS of four bytes", command(fd, 14, &option, sizeof option, 0), EINVAL);
	option.optval = 64;
	expect("option without memory", command(fd, 14, &option, sizeof option, 0), EFAULT);
	struct rdma_ucm_migrate_id migrate = { .response = (uintptr_t)big, .id = id, .fd = 0 };
	expect("migrate from no channel", command(other, 18, &migrate, sizeof migrate, 4), EINVAL);
	migrate.fd = 1000000;
	expect("migrate from nothing", command(other, 18, &migrate, sizeof migrate, 4), ENOENT);
	migrate.fd = fd;
	expect("migrate", command(other, 18, &migrate, sizeof migrate, 4), 0);
	expect("destroy where it was", destroy(fd, id, &events), EINVAL);
	expect("destroy", destroy(other, id, &events), 0);
	expect("destroy again", destroy(other, id, &events), ENOENT);
	close(other);
}

static void events(int fd)
{
	struct rdma_ucm_event_resp answer = { 0 };
	struct rdma_ucm_get_event nowhere = { .response = 64 };
	uint32_t id, reported;

	expect("no event", event(fd, &answer), EAGAIN);
	expect("no room for an event", command(fd, 12, &nowhere, sizeof nowhere, 8), ENOSPC);
	create(fd, RDMA_PS_TCP, &id);
	expect("resolve", resolve(fd, id, "127.0.0.1"), 0);
	expect("readable", is_readable(fd), 1);
	expect("an event to nowhere", command(fd, 12, &nowhere, sizeof nowhere, 336), EFAULT);
	expect("an event", event(fd, &answer), 0);
	expect("its number", answer.event, 0);
	expect("its uid", answer.uid, 7);
	expect("not readable", is_readable(fd), 0);
	expect("resolve again", resolve(fd, id, "127.0.0.1"), EINVAL);
	destroy(fd, id, &reported);
	expect("reported", reported, 1);
	create(fd, RDMA_PS_TCP, &id);
	resolve(fd, id, "127.0.0.1");
	destroy(fd, id, &reported);
	expect("reported of a withdrawn event", reported, 0);
	expect("not readable after it is withdrawn", is_readable(fd), 0);
}

static void many(int fd)
{
	static uint32_t ids[10000];
	uint32_t events;

	for (int n = 0; n < 10000; n++)
		if (create(fd, RDMA_PS_TCP, &ids[n]))
			expect("ten thousand ids", n, 10000);
	destroy(fd, ids[5000], &events);
	destroy(fd, ids[50], &events);
	create(fd, RDMA_PS_UDP, &ids[50]);
	create(fd, RDMA_PS_UDP, &ids[5000]);
	expect("the lowest free number", ids[50] < ids[5000], 1);
	for (int n = 0; n < 10000; n++)
		destroy(fd, ids[n], &events);
}

/* Small numbers in every field, so each address is a bad one. */
static void garbage(int fd)
{
	uint32_t state = 1, words[80], id;

	create(fd, RDMA_PS_TCP, &id);
	for (int n = 0; n < 200000; n++) {
		for (size_t w = 0; w < 80; w++) {
			state = state * 1664525 + 1013904223;
			words[w] = (state >> 16) % 40;
		}
		/* LISTEN and binds would open devices at any address. */
		uint32_t cmd = words[0] % 27;
		uint16_t in = words[1] * 8, out = words[2] * 10;
		if (cmd == 12 || command(fd, cmd, words + 3, in > 300 ? 300 : in, out) >= 0)
			continue;
		expect("garbage", n, -1);
	}
	uint32_t events;
	for (id = 0; id < 40; id++)
		destroy(fd, id, &events);
}

static void children(int fd)
{
	uint32_t id, events;

	create(fd, RDMA_PS_TCP, &id);
	pid_t child = fork();
	if (child == 0) {
		int own, wrong = destroy(fd, id, &events) == 0;

		wrong |= close(fd) != 0;
		own = channel(0);
		wrong |= create(own, RDMA_PS_TCP, &id) != 0;
		_exit(wrong);
	}
	int status;
	waitpid(child, &status, 0);
	expect("a child", status, 0);
	expect("the id of the parent", destroy(fd, id, &events), 0);
	int fds[2];
	expect("pipe", pipe(fds), 0);
	int gone = channel(0);
	create(gone, RDMA_PS_TCP, &id);
	expect("dup2", dup2(fds[1], gone), gone);
	expect("a pipe at its number", write(gone, "12345678", 8), 8);
	expect("its id", destroy(fd, id, &events), ENOENT);
	gone = channel(0);
	expect("closed", close(gone), 0);
	expect("closed again", close(gone) < 0 ? errno : 0, EBADF);
	/* A child that shares the memory of its parent ends nothing of it. */
	create(fd, RDMA_PS_TCP, &id);
	child = vfork();
	if (child == 0) {
		close(fd);
		_exit(0);
	}
	waitpid(child, &status, 0);
	expect("the id after vfork", destroy(fd, id, &events), 0);
}

static void *in_thread(void *argument)
{
	int fd = *(int *)argument;
	struct rdma_ucm_event_resp answer;
	uint32_t id, events;

	for (int n = 0; n < 500; n++) {
		create(fd, RDMA_PS_TCP, &id);
		resolve(fd, id, "127.0.0.1");
		event(fd, &answer);
		destroy(fd, id, &events);
	}
	return NULL;
}

int main(void)
{
	struct stat stat;
	pthread_t threads[4];
	int fd = channel(O_NONBLOCK);

	expect("fstat", fstat(fd, &stat), 0);
	expect("a character device", S_ISCHR(stat.st_mode), 1);
	expect("access", access("/dev/infiniband/rdma_cm", R_OK | W_OK), 0);
	headers(fd);
	ids(fd);
	events(fd);
	many(fd);
	children(fd);
	garbage(fd);
	for (int n = 0; n < 4; n++)
		pthread_create(&threads[n], NULL, in_thread, &fd);
	for (int n = 0; n < 4; n++)
		pthread_join(threads[n], NULL);
	expect("no event is left", is_readable(fd), 0);
	close(fd);
	if (!failures)
		puts("all is refused");
	return failures != 0;
}
