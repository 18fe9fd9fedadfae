/* A device that fails: the program closes its sockets. Ids with the device learn of that by an event. */

#include <sys/socket.h>

#include "ucma.h"

/* Numbers of the process's descriptors are below. */
#define MAX_FD 1024

/* A peer without a device. Messages to the own address need no socket. */
#define PEER "127.9.9.9"

/* RDMA_CM_EVENT_DEVICE_REMOVAL of librdmacm's header. */
#define DEVICE_REMOVAL 11

/* Replaces every UDP socket of the process by another file, which keeps its number in use. */
static int close_sockets(void)
{
	int other = open("/dev/null", O_RDONLY), closed = 0;

	for (int fd = 3; fd < MAX_FD; fd++) {
		struct sockaddr_storage address;
		socklen_t len = sizeof address, type_len = sizeof(int);
		int type = 0;

		if (getsockname(fd, (struct sockaddr *)&address, &len) || address.ss_family != AF_INET)
			continue;
		if (!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) && type == SOCK_DGRAM)
			closed += dup2(other, fd) == fd;
	}
	return closed;
}

int main(void)
{
	enum { IDLE, ANY, BOUND, LISTENER, RESOLVED, CONNECTING, IDS };
	struct rdma_ucm_event_resp answer;
	uint32_t ids[IDS], removals[IDS] = { 0 }, reported;
	int fd = channel(0);

	for (int n = 0; n < IDS; n++)
		expect("create", create(fd, RDMA_PS_TCP, &ids[n]), 0);
	expect("bind to every address", bind_ip(fd, ids[ANY], "0.0.0.0"), 0);
	expect("bind", bind_ip(fd, ids[BOUND], "127.0.0.1"), 0);
	expect("bind a listener", bind_ip(fd, ids[LISTENER], "0.0.0.0"), 0);
	expect("listen", listen_at(fd, ids[LISTENER]), 0);
	for (int n = RESOLVED; n <= CONNECTING; n++) {
		expect("resolve", resolve(fd, ids[n], PEER), 0);
		expect("the event of an address", event(fd, &answer), 0);
		expect("its number", answer.event, 0);
	}
	struct rdma_ucm_resolve_route route = { .id = ids[CONNECTING], .timeout_ms = 1000 };
	expect("resolve a route", command(fd, RDMA_USER_CM_CMD_RESOLVE_ROUTE, &route, sizeof route, 0), 0);
	expect("the event of a route", event(fd, &answer), 0);

	expect("sockets", close_sockets() > 0, 1);
	struct rdma_ucm_connect connect = { .id = ids[CONNECTING], .conn_param = { .valid = 1, .qp_num = 17 } };
	/* The device notices while it sends, or later. */
	command(fd, RDMA_USER_CM_CMD_CONNECT, &connect, sizeof connect, 0);
	for (int n = BOUND; n < IDS; n++) {
		expect("an event", event(fd, &answer), 0);
		expect("of a removal", answer.event, DEVICE_REMOVAL);
		for (int of = 0; of < IDS; of++)
			removals[of] += answer.id == ids[of];
	}
	for (int n = 0; n < IDS; n++)
		expect("removals of an id", removals[n], n >= BOUND);
	expect("fcntl", fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	expect("no further event", event(fd, &answer), EAGAIN);

	expect("listen without the device", listen_at(fd, ids[BOUND]), ENODEV);
	expect("bind without the device", bind_ip(fd, ids[IDLE], "127.0.0.1"), ENODEV);
	expect("resolve without the device", resolve(fd, ids[ANY], "127.0.0.1"), ENODEV);
	route.id = ids[RESOLVED];
	expect("route without the device", command(fd, RDMA_USER_CM_CMD_RESOLVE_ROUTE, &route, sizeof route, 0), ENODEV);
	expect("destroy", destroy(fd, ids[BOUND], &reported), 0);
	expect("its events", reported, 1);
	close(fd);
	if (!failures)
		puts("every id has learned of it");
	return failures != 0;
}
