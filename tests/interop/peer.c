// The other end of the tests against kernel rxe: libibverbs by remote control.
//
//   peer DEVICE PORT
//
// Every TCP connection is a process with one queue pair, one completion queue and one buffer of
// memory, and ends with it. A command is a line of words, numbers in decimal or 0x…; the answer is
// a line that begins with "ok", or "error" and why. Numbers of verbs.h stand for themselves.
//
//   open TYPE GID_INDEX BYTES ACCESS         ok QPN GID ADDR LKEY RKEY
//   mr OFFSET BYTES ACCESS OTHER_PD          ok ADDR LKEY RKEY; another region in the same buffer
//   connect GID QPN RQ_PSN SQ_PSN MTU ACCESS RD_ATOMIC TIMEOUT RETRY RNR_RETRY MIN_RNR_TIMER
//   fill OFFSET BYTES SEED                   the pattern of this seed
//   check OFFSET BYTES SEED                  ok, or error with the place that differs
//   load OFFSET, store OFFSET VALUE          eight bytes as the host has them
//   recv ID {OFFSET BYTES LKEY}…
//   send ID OPCODE FLAGS IMM ADDR RKEY COMPARE_OR_ADD SWAP {OFFSET BYTES LKEY}…
//   poll MILLISECONDS                        ok ID STATUS OPCODE BYTES FLAGS IMM, or ok none
//   state                                    ok STATE
//   destroy                                  the queue pair
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MAX_WORDS = 128, MAX_SGES = 32, QUEUE = 256 };

static struct ibv_context *device;
static struct ibv_pd *pd, *other_pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static uint8_t *buffer;
static size_t buffer_size;
static int gid_index;
static FILE *out;

// The words of the command, and the next one to be read.
static char *words[MAX_WORDS];
static int count, next;

static uint64_t number(void)
{
	return next < count ? strtoull(words[next++], NULL, 0) : 0;
}

static const char *word(void)
{
	return next < count ? words[next++] : "";
}

static void answer(int error)
{
	if (error)
		fprintf(out, "error %s: %s\n", words[0], strerror(error));
	else
		fprintf(out, "ok\n");
}

// The byte at `at` of the pattern of a seed: cheap, and without a period that fits a packet.
static uint8_t pattern(uint32_t seed, uint32_t at)
{
	uint32_t x = (at + 1) * 2654435761u ^ seed * 40503u;
	return (uint8_t)(x >> 24 ^ x >> 11);
}

static bool within(size_t offset, size_t bytes)
{
	return offset <= buffer_size && bytes <= buffer_size - offset;
}

static int make_queue_pair(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = QUEUE, .max_recv_wr = QUEUE, .max_send_sge = MAX_SGES,
			 .max_recv_sge = MAX_SGES, .max_inline_data = 64 },
		.qp_type = type,
	};
	qp = ibv_create_qp(pd, &init);
	return qp ? 0 : errno;
}

static void open_command(void)
{
	enum ibv_qp_type type = number();
	union ibv_gid gid;
	gid_index = number();
	buffer_size = number();
	int access = number();
	buffer = mmap(NULL, buffer_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pd = ibv_alloc_pd(device);
	other_pd = ibv_alloc_pd(device);
	channel = ibv_create_comp_channel(device);
	cq = ibv_create_cq(device, 2 * QUEUE, NULL, channel, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, buffer_size, access);
	if (buffer == MAP_FAILED || !mr || !cq || make_queue_pair(type) ||
	    ibv_query_gid(device, 1, gid_index, &gid)) {
		answer(errno ? errno : EINVAL);
		return;
	}
	char text[INET6_ADDRSTRLEN];
	inet_ntop(AF_INET6, gid.raw, text, sizeof text);
	fprintf(out, "ok %u %s %" PRIu64 " %u %u\n", qp->qp_num, text, (uint64_t)(uintptr_t)buffer,
		mr->lkey, mr->rkey);
}

static void mr_command(void)
{
	size_t offset = number(), bytes = number();
	int access = number();
	bool other = number();
	if (!within(offset, bytes)) {
		answer(ERANGE);
		return;
	}
	struct ibv_mr *mr = ibv_reg_mr(other ? other_pd : pd, buffer + offset, bytes, access);
	if (mr)
		fprintf(out, "ok %" PRIu64 " %u %u\n", (uint64_t)(uintptr_t)mr->addr, mr->lkey, mr->rkey);
	else
		answer(errno);
}

static void connect_command(void)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .sgid_index = gid_index, .hop_limit = 64 } },
	};
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS };
	bool rc = qp->qp_type == IBV_QPT_RC;
	inet_pton(AF_INET6, word(), rtr.ah_attr.grh.dgid.raw);
	rtr.dest_qp_num = number();
	rtr.rq_psn = number();
	rts.sq_psn = number();
	rtr.path_mtu = number();
	init.qp_access_flags = number();
	rtr.max_dest_rd_atomic = rts.max_rd_atomic = number();
	rts.timeout = number();
	rts.retry_cnt = number();
	rts.rnr_retry = number();
	rtr.min_rnr_timer = number();
	int error = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						     IBV_QP_ACCESS_FLAGS);
	if (!error)
		error = ibv_modify_qp(qp, &rtr,
				      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					      IBV_QP_RQ_PSN |
					      (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	if (!error)
		error = ibv_modify_qp(qp, &rts,
				      IBV_QP_STATE | IBV_QP_SQ_PSN |
					      (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
							    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC :
						    0));
	answer(error);
}

static void fill_command(void)
{
	size_t offset = number(), bytes = number();
	uint32_t seed = number();
	if (!within(offset, bytes)) {
		answer(ERANGE);
		return;
	}
	for (size_t at = 0; at < bytes; at++)
		buffer[offset + at] = pattern(seed, at);
	answer(0);
}

static void check_command(void)
{
	size_t offset = number(), bytes = number();
	uint32_t seed = number();
	if (!within(offset, bytes)) {
		answer(ERANGE);
		return;
	}
	for (size_t at = 0; at < bytes; at++) {
		uint8_t found = buffer[offset + at], expected = pattern(seed, at);
		if (found != expected) {
			fprintf(out, "error byte %zu of %zu is 0x%02x, expected 0x%02x\n", at, bytes, found,
				expected);
			return;
		}
	}
	answer(0);
}

static void load_command(void)
{
	uint64_t value;
	size_t offset = number();
	if (!within(offset, sizeof value)) {
		answer(ERANGE);
		return;
	}
	memcpy(&value, buffer + offset, sizeof value);
	fprintf(out, "ok %" PRIu64 "\n", value);
}

static void store_command(void)
{
	size_t offset = number();
	uint64_t value = number();
	if (!within(offset, sizeof value)) {
		answer(ERANGE);
		return;
	}
	memcpy(buffer + offset, &value, sizeof value);
	answer(0);
}

// Offsets are not checked: what rxe says to a piece outside its region is for a test to see.
static int sges(struct ibv_sge *list)
{
	int n = 0;
	while (next < count && n < MAX_SGES) {
		list[n].addr = (uintptr_t)buffer + number();
		list[n].length = number();
		list[n].lkey = number();
		n++;
	}
	return n;
}

static void recv_command(void)
{
	struct ibv_sge list[MAX_SGES];
	struct ibv_recv_wr wr = { .wr_id = number(), .sg_list = list }, *bad;
	wr.num_sge = sges(list);
	answer(ibv_post_recv(qp, &wr, &bad));
}

static void send_command(void)
{
	struct ibv_sge list[MAX_SGES];
	struct ibv_send_wr wr = { .sg_list = list }, *bad;
	wr.wr_id = number();
	wr.opcode = number();
	wr.send_flags = number();
	wr.imm_data = htonl(number());
	uint64_t addr = number();
	uint32_t rkey = number();
	uint64_t compare_add = number(), swap = number();
	if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = compare_add;
		wr.wr.atomic.swap = swap;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	wr.num_sge = sges(list);
	answer(ibv_post_send(qp, &wr, &bad));
}

static int64_t milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void poll_command(void)
{
	int64_t until = milliseconds() + (int64_t)number();
	struct ibv_wc wc;
	for (;;) {
		// Armed before it is looked at, so that nothing comes unnoticed in between.
		ibv_req_notify_cq(cq, 0);
		int n = ibv_poll_cq(cq, 1, &wc);
		if (n < 0) {
			answer(EIO);
			return;
		}
		if (n > 0)
			break;
		struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
		int64_t left = until - milliseconds();
		if (left <= 0) {
			fprintf(out, "ok none\n");
			return;
		}
		if (poll(&fd, 1, (int)left) > 0) {
			struct ibv_cq *announced;
			void *context;
			ibv_get_cq_event(channel, &announced, &context);
			ibv_ack_cq_events(announced, 1);
		}
	}
	bool imm = wc.wc_flags & IBV_WC_WITH_IMM;
	fprintf(out, "ok %" PRIu64 " %u %u %u %u %u\n", wc.wr_id, wc.status, wc.opcode, wc.byte_len,
		wc.wc_flags, imm ? ntohl(wc.imm_data) : 0);
}

static void state_command(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int error = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
	if (error)
		answer(error);
	else
		fprintf(out, "ok %u\n", attr.qp_state);
}

static void destroy_command(void)
{
	answer(ibv_destroy_qp(qp));
	qp = NULL;
}

static const struct {
	const char *name;
	void (*run)(void);
	bool needs_qp;
} commands[] = {
	{ "open", open_command, false },   { "mr", mr_command, true },
	{ "connect", connect_command, true }, { "fill", fill_command, true },
	{ "check", check_command, true },  { "load", load_command, true },
	{ "store", store_command, true },  { "recv", recv_command, true },
	{ "send", send_command, true },    { "poll", poll_command, false },
	{ "state", state_command, true },  { "destroy", destroy_command, true },
};

static void obey(char *line)
{
	char *rest = line;
	for (count = 0, next = 1; count < MAX_WORDS; count++)
		if (!(words[count] = strtok_r(rest, " \r\n", &rest)))
			break;
	for (size_t i = 0; count > 0 && i < sizeof commands / sizeof *commands; i++) {
		if (strcmp(words[0], commands[i].name) != 0)
			continue;
		if ((commands[i].needs_qp && !qp) || (i > 0 && !cq))
			fprintf(out, "error %s: no queue pair\n", words[0]);
		else
			commands[i].run();
		return;
	}
	fprintf(out, "error no such command\n");
}

static void serve(const char *name, int connection)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	for (int i = 0; list && list[i]; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			device = ibv_open_device(list[i]);
	out = fdopen(dup(connection), "w");
	FILE *in = fdopen(connection, "r");
	char *line = NULL;
	size_t size = 0;
	while (getline(&line, &size, in) > 0) {
		if (device)
			obey(line);
		else
			fprintf(out, "error no device %s\n", name);
		fflush(out);
	}
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: peer DEVICE PORT\n");
		return 2;
	}
	int on = 1, listener = socket(AF_INET6, SOCK_STREAM, 0);
	struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_port = htons(atoi(argv[2])) };
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 16)) {
		perror("peer: listen");
		return 1;
	}
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int connection = accept(listener, NULL, NULL);
		if (connection < 0)
			continue;
		setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		if (fork() == 0) {
			close(listener);
			serve(argv[1], connection);
			_exit(0);
		}
		close(connection);
	}
}
