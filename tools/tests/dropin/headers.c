/* A datagram to oneself from each address of the device. */

#include "hostile/verbs.h"

int main(void)
{
    char memory[64];
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = make_cq(context, 4);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp_init_attr init = qp_attr(cq, 1);
    init.qp_type = IBV_QPT_UD;
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(mr && qp);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);

    for (int index = 0; index < 2; index++) {
        struct ibv_ah_attr way = {
            .is_global = 1, .port_num = 1, .grh = {.sgid_index = index, .hop_limit = 1}};
        CHECK(ibv_query_gid(context, 1, index, &way.grh.dgid) == 0);
        struct ibv_ah *ah = ibv_create_ah(pd, &way);
        CHECK(ah && post_recv(qp, 1, mr, memory, 64) == 0);
        struct ibv_sge piece = {(uintptr_t)memory, 8, mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &piece,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_SEND,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.ud = {ah, qp->qp_num, 7}},
                           *bad;
        CHECK(ibv_post_send(qp, &wr, &bad) == 0);
        for (int ended = 0; ended < 2; ended++) {
            struct ibv_wc wc = next(cq);
            CHECK(wc.status == IBV_WC_SUCCESS);
            if (wc.opcode == IBV_WC_RECV)
                printf("service level %d\n", wc.sl);
        }
        CHECK(ibv_destroy_ah(ah) == 0);
    }
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}
