/* Objects that other objects use, and whose events are not acknowledged, are refused at once: EBUSY. Waiting for the
 * acknowledgement would not help. */

#include "verbs.h"

int main(void)
{
    alarm(20);
    struct ibv_context *context = open_device();
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0), *sends = make_cq(context, 4);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
    CHECK(channel && cq && pd && srq);
    struct ibv_qp_init_attr init = qp_attr(cq, 1);
    init.send_cq = sends;
    init.srq = srq;
    struct ibv_qp *from = make_qp(pd, sends, 1), *to = ibv_create_qp(pd, &init);
    CHECK(to);
    connect_qp(from, to->qp_num, gid_of(context));
    connect_qp(to, from->qp_num, gid_of(context));

    struct ibv_recv_wr receive = {.wr_id = 1}, *bad;
    struct ibv_srq_attr limit = {.srq_limit = 1};
    CHECK(ibv_post_srq_recv(srq, &receive, &bad) == 0);
    CHECK(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0 && ibv_req_notify_cq(cq, 0) == 0);
    CHECK(post_send(from, 2, NULL, NULL, 0) == 0);

    struct ibv_cq *announced;
    void *word;
    struct ibv_async_event reached, drained;
    CHECK(ibv_get_cq_event(channel, &announced, &word) == 0 && announced == cq);
    CHECK(ibv_get_async_event(context, &reached) == 0);
    CHECK(reached.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && reached.element.srq == srq);
    REFUSED(EBUSY, ibv_destroy_cq(cq));
    REFUSED(EBUSY, ibv_destroy_srq(srq));
    CHECK(next(sends).status == IBV_WC_SUCCESS && next(cq).status == IBV_WC_SUCCESS);
    CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
    ibv_ack_cq_events(cq, 1);
    ibv_ack_async_event(&reached);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_srq(srq) == 0);

    init = qp_attr(sends, 1);
    init.qp_type = IBV_QPT_UD;
    struct ibv_qp *member = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};
    CHECK(ibv_modify_qp(member, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK(ibv_modify_qp(member, &attr, IBV_QP_STATE) == 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(member, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    /* 239.1.2.3 */
    union ibv_gid group = {.raw = {[10] = 0xff, 0xff, 239, 1, 2, 3}};
    CHECK(ibv_attach_mcast(member, &group, 0) == 0);
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    CHECK(ibv_modify_qp(member, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
    CHECK(ibv_get_async_event(context, &drained) == 0);
    CHECK(drained.event_type == IBV_EVENT_SQ_DRAINED && drained.element.qp == member);
    REFUSED(EBUSY, ibv_destroy_qp(member));
    ibv_ack_async_event(&drained);
    CHECK(ibv_detach_mcast(member, &group, 0) == 0 && ibv_destroy_qp(member) == 0);

    CHECK(ibv_destroy_cq(sends) == 0 && ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    puts("all is refused");
}
