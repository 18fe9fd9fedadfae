/* An RDMA WRITE from one queue pair to another of the same device, and a look at what has arrived. */

#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 64 * 1024 };

static void check(int is_good, const char *call)
{
	if (!is_good) {
		perror(call);
		exit(1);
	}
}

/* Moves a queue pair to RTS, connected with a queue pair of the device with this GID. */
static void connect_qp(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	check(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	      "ibv_modify_qp to INIT");

	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = *gid, .hop_limit = 64 },
		},
	};
	check(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER),
	      "ibv_modify_qp to RTR");

	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	check(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
	      "ibv_modify_qp to RTS");
}

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	check(devices && devices[0], "ibv_get_device_list");
	struct ibv_context *context = ibv_open_device(devices[0]);
	check(context != NULL, "ibv_open_device");
	printf("device %s\n", ibv_get_device_name(devices[0]));
	union ibv_gid gid;
	check(!ibv_query_gid(context, 1, 0, &gid), "ibv_query_gid");

	struct ibv_pd *pd = ibv_alloc_pd(context);
	check(pd != NULL, "ibv_alloc_pd");
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	check(cq != NULL, "ibv_create_cq");
	char *source = malloc(BYTES), *target = calloc(1, BYTES);
	check(source && target, "malloc");
	for (int i = 0; i < BYTES; i++)
		source[i] = (char)(i * 7 + i / 256);
	struct ibv_mr *from = ibv_reg_mr(pd, source, BYTES, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *to = ibv_reg_mr(pd, target, BYTES,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	check(from && to, "ibv_reg_mr");

	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *sender = ibv_create_qp(pd, &init), *receiver = ibv_create_qp(pd, &init);
	check(sender && receiver, "ibv_create_qp");
	connect_qp(sender, receiver->qp_num, &gid);
	connect_qp(receiver, sender->qp_num, &gid);

	struct ibv_sge sge = { .addr = (uintptr_t)source, .length = BYTES, .lkey = from->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)target, .rkey = to->rkey },
	}, *bad;
	check(!ibv_post_send(sender, &wr, &bad), "ibv_post_send");
	struct ibv_wc wc;
	int found;
	while ((found = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	check(found == 1, "ibv_poll_cq");
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc.status));
		return 1;
	}
	if (memcmp(source, target, BYTES) != 0) {
		fprintf(stderr, "the data differ\n");
		return 1;
	}
	printf("%d bytes have arrived\n", BYTES);

	ibv_destroy_qp(sender);
	ibv_destroy_qp(receiver);
	ibv_dereg_mr(from);
	ibv_dereg_mr(to);
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	ibv_free_device_list(devices);
	free(source);
	free(target);
	return 0;
}
