// The other end of the tests against an RDMA device of Linux: libibverbs by remote control.
//
//   peer DEVICE PORT
//
// Every TCP connection is a process with one queue pair, one completion queue and one buffer of
// memory, and ends with it. The queue pair has the address that the connection came to. A command is
// a line of words, numbers in decimal or 0x…; the answer is a line that begins with "ok", or "error"
// and why. Numbers of verbs.h stand for themselves.
//
//   device                                   ok VENDOR_ID CAPABILITIES_EX ACTIVE_MTU
//   open TYPE BYTES ACCESS [SRQ_WR]          ok QPN GID ADDR LKEY RKEY; with SRQ_WR the queue pair takes
//                                            from a shared receive queue of so many requests
//   another TYPE                             ok QPN; a further queue pair, at the same shared queue:
//                                            what follows is about it
//   choose N                                 what follows is about the Nth queue pair, from 0
//   limit N                                  of the shared receive queue
//   srq                                      ok MAX_WR LIMIT
//   async MILLISECONDS                       ok EVENT_TYPE, or ok none
//   mr OFFSET BYTES ACCESS OTHER_PD          ok ADDR LKEY RKEY; another region in the same buffer
//   window TYPE OFFSET BYTES ACCESS          ok ADDR RKEY; bound to a region made for it
//   connect GID QPN RQ_PSN SQ_PSN MTU ACCESS RD_ATOMIC TIMEOUT RETRY RNR_RETRY MIN_RNR_TIMER
//   datagrams QKEY SQ_PSN                    UD, instead of "connect"
//   aim GID QPN QKEY                         UD: where "send" sends to
//   reply OFFSET                             UD: the same, to the sender of what "poll" has seen
//                                            last; its header is at OFFSET
//   attach GID, detach GID                   UD: to or from a multicast group, which this program joins
//                                            for it: kernel rxe leaves that to others
//   fill OFFSET BYTES SEED                   the pattern of this seed
//   check OFFSET BYTES SEED                  ok, or error with the place that differs
//   load OFFSET, store OFFSET VALUE          eight bytes as the host has them
//   recv ID {OFFSET BYTES LKEY}…
//   send ID OPCODE FLAGS IMM ADDR RKEY COMPARE_OR_ADD SWAP {OFFSET BYTES LKEY}…
//   flush ID ADDR RKEY BYTES TYPE LEVEL      signaled; compiled with -DPLACEMENT, which rdma-core has
//   atomic_write ID ADDR RKEY VALUE          since version 45. Likewise
//   poll MILLISECONDS                        ok ID STATUS OPCODE BYTES FLAGS IMM SOURCE_QP QPN, or
//                                            ok none; in place of IMM the key that was invalidated
//   arm SOLICITED_ONLY                       ask for an event
//   event MILLISECONDS                       ok 1 if there is one, ok 0 if not
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

enum { MAX_WORDS = 128, MAX_SGES = 32, QUEUE = 256, MAX_QPS = 4 };

static struct ibv_context *device;
static struct ibv_pd *pd, *other_pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
// The queue pair that commands are about, all there are, and the queue that they may share.
static struct ibv_qp *qp, *qps[MAX_QPS];
static int qp_count;
static struct ibv_srq *srq;
// UD: where requests go.
static struct ibv_ah *ah;
static uint32_t remote_qpn, remote_qkey;
static struct ibv_wc last;
static uint8_t *buffer;
static size_t buffer_size;
static int gid_index;
// The interface that has the address, and the socket that has joined a group there.
static unsigned interface_index;
static int membership = -1;
static int control;
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

#ifdef PLACEMENT
// What only the extended interface posts, where the device has it.
static uint64_t placement_operations(void)
{
	struct ibv_device_attr_ex attr = { 0 };
	uint64_t operations = 0;
	ibv_query_device_ex(device, NULL, &attr);
	if (attr.device_cap_flags_ex & IB_UVERBS_DEVICE_FLUSH_GLOBAL)
		operations |= IBV_QP_EX_WITH_FLUSH;
	if (attr.device_cap_flags_ex & IB_UVERBS_DEVICE_ATOMIC_WRITE)
		operations |= IBV_QP_EX_WITH_ATOMIC_WRITE;
	return operations;
}
#endif

static int make_queue_pair(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = QUEUE, .max_recv_wr = QUEUE, .max_send_sge = MAX_SGES,
			 .max_recv_sge = MAX_SGES, .max_inline_data = 64 },
		.qp_type = type,
		.srq = srq,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
#ifdef PLACEMENT
	if (type == IBV_QPT_RC && placement_operations()) {
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = placement_operations();
	}
#endif
	if (qp_count == MAX_QPS)
		return ENOMEM;
	qp = ibv_create_qp_ex(device, &init);
	if (!qp)
		return errno;
	qps[qp_count++] = qp;
	return 0;
}

static int make_shared_queue(uint32_t max_wr)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = max_wr, .max_sge = 8 } };
	srq = ibv_create_srq(pd, &init);
	return srq ? 0 : errno;
}

static void device_command(void)
{
	struct ibv_device_attr_ex attr = { 0 };
	struct ibv_port_attr port;
	int error = ibv_query_device_ex(device, NULL, &attr);
	if (!error)
		error = ibv_query_port(device, 1, &port);
	if (error)
		answer(error);
	else
		fprintf(out, "ok %u %" PRIu64 " %u\n", attr.orig_attr.vendor_id,
			attr.device_cap_flags_ex, port.active_mtu);
}

// The RoCE v2 GID that is the address of this end of the control connection.
static int find_gid(union ibv_gid *gid)
{
	struct sockaddr_in6 here;
	socklen_t size = sizeof here;
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	if (getsockname(control, (struct sockaddr *)&here, &size))
		return errno;
	int error = ibv_query_port(device, 1, &port);
	for (int i = 0; !error && i < port.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(device, 1, i, &entry, 0) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    memcmp(entry.gid.raw, &here.sin6_addr, sizeof entry.gid.raw) != 0)
			continue;
		*gid = entry.gid;
		gid_index = i;
		interface_index = entry.ndev_ifindex;
		return 0;
	}
	return error ? error : EADDRNOTAVAIL;
}

static void open_command(void)
{
	enum ibv_qp_type type = number();
	union ibv_gid gid;
	buffer_size = number();
	int access = number();
	uint32_t srq_wr = number();
	int error = find_gid(&gid);
	if (error) {
		answer(error);
		return;
	}
	buffer = mmap(NULL, buffer_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pd = ibv_alloc_pd(device);
	other_pd = ibv_alloc_pd(device);
	channel = ibv_create_comp_channel(device);
	cq = ibv_create_cq(device, 2 * QUEUE, NULL, channel, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, buffer_size, access);
	if (buffer == MAP_FAILED || !mr || !cq || (srq_wr && make_shared_queue(srq_wr)) ||
	    make_queue_pair(type)) {
		answer(errno ? errno : EINVAL);
		return;
	}
	char text[INET6_ADDRSTRLEN];
	inet_ntop(AF_INET6, gid.raw, text, sizeof text);
	fprintf(out, "ok %u %s %" PRIu64 " %u %u\n", qp->qp_num, text, (uint64_t)(uintptr_t)buffer,
		mr->lkey, mr->rkey);
}

static void another_command(void)
{
	int error = make_queue_pair(number());
	if (error)
		answer(error);
	else
		fprintf(out, "ok %u\n", qp->qp_num);
}

static void choose_command(void)
{
	size_t which = number();
	bool exists = which < (size_t)qp_count;
	if (exists)
		qp = qps[which];
	answer(exists ? 0 : ERANGE);
}

static void limit_command(void)
{
	struct ibv_srq_attr attr = { .srq_limit = number() };
	answer(srq ? ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) : EINVAL);
}

static void srq_command(void)
{
	struct ibv_srq_attr attr;
	int error = srq ? ibv_query_srq(srq, &attr) : EINVAL;
	if (error)
		answer(error);
	else
		fprintf(out, "ok %u %u\n", attr.max_wr, attr.srq_limit);
}

static void async_command(void)
{
	struct pollfd fd = { .fd = device->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	if (poll(&fd, 1, (int)number()) <= 0) {
		fprintf(out, "ok none\n");
		return;
	}
	if (ibv_get_async_event(device, &event)) {
		answer(errno);
		return;
	}
	ibv_ack_async_event(&event);
	fprintf(out, "ok %d\n", event.event_type);
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

// Takes the completion of a request that this program has posted itself.
static int finished(void)
{
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	return n < 0 || wc.status != IBV_WC_SUCCESS ? EIO : 0;
}

static int bind_window(struct ibv_mw *mw, const struct ibv_mw_bind_info *info)
{
	if (mw->type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED, .bind_info = *info };
		return ibv_bind_mw(qp, mw, &bind);
	}
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = *info },
	}, *bad;
	int error = ibv_post_send(qp, &wr, &bad);
	// Of this type the program keeps account.
	if (!error)
		mw->rkey = wr.bind_mw.rkey;
	return error;
}

static void window_command(void)
{
	enum ibv_mw_type type = number();
	size_t offset = number(), bytes = number();
	struct ibv_mw_bind_info info = { .addr = (uintptr_t)buffer + offset, .length = bytes };
	info.mw_access_flags = number();
	if (!within(offset, bytes)) {
		answer(ERANGE);
		return;
	}
	info.mr = ibv_reg_mr(pd, buffer, buffer_size,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
				     IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(pd, type);
	if (!mw || !info.mr) {
		answer(errno);
		return;
	}
	int error = bind_window(mw, &info);
	if (!error)
		error = finished();
	if (error)
		answer(error);
	else
		fprintf(out, "ok %" PRIu64 " %u\n", info.addr, mw->rkey);
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

static void datagrams_command(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	attr.qkey = number();
	attr.sq_psn = number();
	int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						     IBV_QP_QKEY);
	attr.qp_state = IBV_QPS_RTR;
	if (!error)
		error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTS;
	if (!error)
		error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	answer(error);
}

static void aim_command(void)
{
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1,
				  .grh = { .sgid_index = gid_index, .hop_limit = 64 } };
	inet_pton(AF_INET6, word(), to.grh.dgid.raw);
	remote_qpn = number();
	remote_qkey = number();
	ah = ibv_create_ah(pd, &to);
	answer(ah ? 0 : errno);
}

static void reply_command(void)
{
	size_t offset = number();
	if (!within(offset, sizeof(struct ibv_grh))) {
		answer(ERANGE);
		return;
	}
	ah = ibv_create_ah_from_wc(pd, &last, (struct ibv_grh *)(buffer + offset), 1);
	remote_qpn = last.src_qp;
	answer(ah ? 0 : errno);
}

// Joins a group as programs do that receive datagrams without a device.
static int join_group(const union ibv_gid *group)
{
	struct in6_addr address;
	memcpy(&address, group->raw, sizeof address);
	bool v4 = IN6_IS_ADDR_V4MAPPED(&address);
	struct ipv6_mreq v6_request = { .ipv6mr_multiaddr = address, .ipv6mr_interface = interface_index };
	struct ip_mreqn v4_request = { .imr_ifindex = (int)interface_index };
	memcpy(&v4_request.imr_multiaddr, group->raw + 12, 4);
	membership = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0);
	int failed = v4 ? setsockopt(membership, IPPROTO_IP, IP_ADD_MEMBERSHIP, &v4_request,
				     sizeof v4_request) :
			  setsockopt(membership, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &v6_request,
				     sizeof v6_request);
	return failed ? errno : 0;
}

static void attach_command(void)
{
	union ibv_gid group;
	inet_pton(AF_INET6, word(), group.raw);
	int error = join_group(&group);
	answer(error ? error : ibv_attach_mcast(qp, &group, 0));
}

static void detach_command(void)
{
	union ibv_gid group;
	inet_pton(AF_INET6, word(), group.raw);
	close(membership);
	answer(ibv_detach_mcast(qp, &group, 0));
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
	answer(srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad));
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
	if (qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = remote_qpn;
		wr.wr.ud.remote_qkey = remote_qkey;
	} else if (wr.opcode == IBV_WR_SEND_WITH_INV || wr.opcode == IBV_WR_LOCAL_INV) {
		wr.invalidate_rkey = rkey;
	} else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
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

#ifdef PLACEMENT
static void flush_command(void)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	ex->wr_id = number();
	ex->wr_flags = IBV_SEND_SIGNALED;
	uint64_t addr = number();
	uint32_t rkey = number();
	size_t bytes = number();
	uint8_t type = number(), level = number();
	ibv_wr_flush(ex, rkey, addr, bytes, type, level);
	answer(ibv_wr_complete(ex));
}

static void atomic_write_command(void)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	ex->wr_id = number();
	ex->wr_flags = IBV_SEND_SIGNALED;
	uint64_t addr = number();
	uint32_t rkey = number();
	uint64_t value = number();
	ibv_wr_atomic_write(ex, rkey, addr, &value);
	answer(ibv_wr_complete(ex));
}
#endif

static int64_t milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Waits for an event until then. Whether there was one.
static bool wait_for_event(int64_t until)
{
	int64_t left = until - milliseconds();
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	if (poll(&fd, 1, left > 0 ? (int)left : 0) <= 0)
		return false;
	struct ibv_cq *announced;
	void *context;
	ibv_get_cq_event(channel, &announced, &context);
	ibv_ack_cq_events(announced, 1);
	return true;
}

static void poll_command(void)
{
	int64_t until = milliseconds() + (int64_t)number();
	int n;
	while ((n = ibv_poll_cq(cq, 1, &last)) == 0) {
		// Armed, and looked at again, so that nothing comes unnoticed in between.
		ibv_req_notify_cq(cq, 0);
		if ((n = ibv_poll_cq(cq, 1, &last)) != 0)
			break;
		if (!wait_for_event(until) && milliseconds() >= until) {
			fprintf(out, "ok none\n");
			return;
		}
	}
	if (n < 0) {
		answer(EIO);
		return;
	}
	bool imm = last.wc_flags & IBV_WC_WITH_IMM;
	fprintf(out, "ok %" PRIu64 " %u %u %u %u %u %u %u\n", last.wr_id, last.status, last.opcode,
		last.byte_len, last.wc_flags, imm ? ntohl(last.imm_data) : last.invalidated_rkey,
		last.src_qp, last.qp_num);
}

static void arm_command(void)
{
	answer(ibv_req_notify_cq(cq, (int)number()));
}

static void event_command(void)
{
	fprintf(out, "ok %d\n", wait_for_event(milliseconds() + (int64_t)number()));
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

// What a command needs before it can be obeyed.
enum need { NOTHING, OPENED, QUEUE_PAIR };

static const struct {
	const char *name;
	void (*run)(void);
	enum need need;
} commands[] = {
	{ "device", device_command, NOTHING },
	{ "open", open_command, NOTHING },
	{ "another", another_command, OPENED },
	{ "choose", choose_command, OPENED },
	{ "limit", limit_command, OPENED },
	{ "srq", srq_command, OPENED },
	{ "async", async_command, NOTHING },
	{ "mr", mr_command, OPENED },
	{ "window", window_command, QUEUE_PAIR },
	{ "connect", connect_command, QUEUE_PAIR },
	{ "datagrams", datagrams_command, QUEUE_PAIR },
	{ "aim", aim_command, QUEUE_PAIR },
	{ "reply", reply_command, QUEUE_PAIR },
	{ "attach", attach_command, QUEUE_PAIR },
	{ "detach", detach_command, QUEUE_PAIR },
	{ "fill", fill_command, OPENED },
	{ "check", check_command, OPENED },
	{ "load", load_command, OPENED },
	{ "store", store_command, OPENED },
	{ "recv", recv_command, QUEUE_PAIR },
	{ "send", send_command, QUEUE_PAIR },
#ifdef PLACEMENT
	{ "flush", flush_command, QUEUE_PAIR },
	{ "atomic_write", atomic_write_command, QUEUE_PAIR },
#endif
	{ "poll", poll_command, OPENED },
	{ "arm", arm_command, OPENED },
	{ "event", event_command, OPENED },
	{ "state", state_command, QUEUE_PAIR },
	{ "destroy", destroy_command, QUEUE_PAIR },
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
		enum need need = commands[i].need;
		if ((need == QUEUE_PAIR && !qp) || (need == OPENED && !cq))
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
	control = connection;
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
		fprintf(stderr, "usage: peer DEVICE PORT, as in: peer rxe0 4790\n");
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
