/* What is in use is not destroyed: EBUSY, for each pair of objects of which the kernel or libibverbs says so. And what
 * is destroyed, or was made of a context that is closed, is an error and no crash. */

#include <fcntl.h>

#include "verbs.h"

static char memory[4096];

static struct ibv_ah_attr way(struct ibv_context *context)
{
    return (struct ibv_ah_attr){
        .is_global = 1, .port_num = 1, .grh = {.dgid = gid_of(context), .hop_limit = 64}};
}

static void of_a_domain(struct ibv_context *context)
{
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = make_cq(context, 4);

    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    REFUSED(EBUSY, ibv_dealloc_pd(pd));
    CHECK(ibv_dereg_mr(mr) == 0);

    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    REFUSED(EBUSY, ibv_dealloc_pd(pd));
    CHECK(ibv_dealloc_mw(mw) == 0);

    struct ibv_ah_attr to = way(context);
    struct ibv_ah *ah = ibv_create_ah(pd, &to);
    REFUSED(EBUSY, ibv_dealloc_pd(pd));
    CHECK(ibv_destroy_ah(ah) == 0);

    struct ibv_qp *qp = make_qp(pd, cq, 1);
    REFUSED(EBUSY, ibv_dealloc_pd(pd));
    CHECK(ibv_destroy_qp(qp) == 0);

    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
    REFUSED(EBUSY, ibv_dealloc_pd(pd));
    CHECK(ibv_destroy_srq(srq) == 0);

    struct ibv_td_init_attr td_attr = {0};
    struct ibv_td *td = ibv_alloc_td(context, &td_attr);
    struct ibv_parent_domain_init_attr parent_attr = {.pd = pd, .td = td};
    struct ibv_pd *parent = ibv_alloc_parent_domain(context, &parent_attr);
    CHECK(parent);
    REFUSED(EBUSY, ibv_dealloc_td(td));
    REFUSED(EBUSY, ibv_dealloc_pd(pd));
    qp = make_qp(parent, cq, 1);
    REFUSED(EBUSY, ibv_dealloc_pd(parent));
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_dealloc_pd(parent) == 0);
    CHECK(ibv_dealloc_td(td) == 0);

    CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
}

static void of_queues(struct ibv_context *context)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *sends = ibv_create_cq(context, 4, NULL, channel, 0);
    struct ibv_cq *receives = make_cq(context, 4);
    REFUSED(EBUSY, ibv_destroy_comp_channel(channel));

    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
    struct ibv_qp_init_attr attr = qp_attr(sends, 1);
    attr.recv_cq = receives;
    attr.srq = srq;
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    REFUSED(EBUSY, ibv_destroy_cq(sends));
    REFUSED(EBUSY, ibv_destroy_cq(receives));
    REFUSED(EBUSY, ibv_destroy_srq(srq));
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_srq(srq) == 0);

    attr = qp_attr(sends, 1);
    attr.qp_type = IBV_QPT_UD;
    qp = ibv_create_qp(pd, &attr);
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};
    CHECK(ibv_modify_qp(qp, &init,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    /* 239.1.2.3 */
    union ibv_gid group = {.raw = {[10] = 0xff, 0xff, 239, 1, 2, 3}};
    CHECK(ibv_attach_mcast(qp, &group, 0) == 0);
    REFUSED(EBUSY, ibv_destroy_qp(qp));
    CHECK(ibv_detach_mcast(qp, &group, 0) == 0 && ibv_destroy_qp(qp) == 0);

    CHECK(ibv_destroy_cq(sends) == 0 && ibv_destroy_cq(receives) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_dealloc_pd(pd) == 0);
}

static void of_xrc(struct ibv_context *context)
{
    struct ibv_xrcd_init_attr open = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
    struct ibv_xrcd *domain = ibv_open_xrcd(context, &open);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = make_cq(context, 4);
    struct ibv_srq_init_attr_ex attr = {
        .attr = {.max_wr = 1, .max_sge = 1},
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ,
        .srq_type = IBV_SRQT_XRC,
        .pd = pd,
        .xrcd = domain,
        .cq = cq,
    };
    struct ibv_srq *srq = ibv_create_srq_ex(context, &attr);
    CHECK(srq);
    REFUSED(EBUSY, ibv_close_xrcd(domain));
    REFUSED(EBUSY, ibv_destroy_cq(cq));
    CHECK(ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);

    struct ibv_qp_init_attr_ex target = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = domain};
    struct ibv_qp *made = ibv_create_qp_ex(context, &target);
    REFUSED(EBUSY, ibv_close_xrcd(domain));
    struct ibv_qp_open_attr again = {
        .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
        .qp_num = made->qp_num,
        .xrcd = domain,
        .qp_type = IBV_QPT_XRC_RECV};
    struct ibv_qp *opened = ibv_open_qp(context, &again);
    CHECK(opened && ibv_destroy_qp(made) == 0);
    REFUSED(EBUSY, ibv_close_xrcd(domain));
    CHECK(ibv_destroy_qp(opened) == 0 && ibv_close_xrcd(domain) == 0);
}

static void of_memory(struct ibv_context *context)
{
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_alloc_dm_attr dm_attr = {.length = 4096};
    struct ibv_dm *dm = ibv_alloc_dm(context, &dm_attr);
    struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
    CHECK(mr);
    REFUSED(EBUSY, ibv_free_dm(dm));
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_free_dm(dm) == 0);

    struct ibv_cq *cq = make_cq(context, 4);
    struct ibv_qp *qp = make_qp(pd, cq, 1);
    connect_qp(qp, qp->qp_num, gid_of(context));
    mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED,
                               .bind_info = {mr, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_READ}};
    CHECK(ibv_bind_mw(qp, mw, &bind) == 0 && next(cq).status == IBV_WC_SUCCESS);
    REFUSED(EBUSY, ibv_dereg_mr(mr));
    CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
}

/* Everything there is, used and destroyed once more. */
static void after_the_end(struct ibv_context *context)
{
    struct ibv_pd *pd = ibv_alloc_pd(context), *gone_pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = make_cq(context, 4), *gone_cq = make_cq(context, 4);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_qp *qp = make_qp(pd, cq, 1);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    struct ibv_ah_attr to = way(context);
    struct ibv_ah *ah = ibv_create_ah(pd, &to);
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0 && ibv_dealloc_mw(mw) == 0);
    CHECK(ibv_destroy_ah(ah) == 0 && ibv_destroy_srq(srq) == 0);
    CHECK(ibv_dealloc_pd(gone_pd) == 0 && ibv_destroy_cq(gone_cq) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0);

    REFUSED(EINVAL, ibv_destroy_qp(qp));
    REFUSED(EINVAL, ibv_dereg_mr(mr));
    REFUSED(EINVAL, ibv_dealloc_mw(mw));
    REFUSED(EINVAL, ibv_destroy_ah(ah));
    REFUSED(EINVAL, ibv_destroy_srq(srq));
    REFUSED(EINVAL, ibv_dealloc_pd(gone_pd));
    REFUSED(EINVAL, ibv_destroy_cq(gone_cq));
    REFUSED(EINVAL, ibv_destroy_comp_channel(channel));

    struct ibv_wc wc;
    struct ibv_recv_wr recv = {0}, *bad;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_qp_init_attr init;
    struct ibv_cq *which;
    void *word;
    REFUSED(EINVAL, post_send(qp, 1, mr, memory, 8));
    REFUSED(EINVAL, post_recv(qp, 1, mr, memory, 8));
    REFUSED(EINVAL, ibv_post_srq_recv(srq, &recv, &bad));
    REFUSED(EINVAL, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    REFUSED(EINVAL, ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    REFUSED(EINVAL, ibv_req_notify_cq(gone_cq, 0));
    FAILS(EINVAL, ibv_poll_cq(gone_cq, 1, &wc));
    FAILS(EINVAL, ibv_get_cq_event(channel, &which, &word));
    FAILS(EINVAL, ibv_create_cq(context, 1, NULL, channel, 0));
    FAILS(EINVAL, ibv_reg_mr(gone_pd, memory, 64, 0));
    FAILS(EINVAL, ibv_create_ah(gone_pd, &to));
    init = qp_attr(gone_cq, 1);
    FAILS(EINVAL, ibv_create_qp(pd, &init));
    init = qp_attr(cq, 1);
    init.srq = srq;
    FAILS(EINVAL, ibv_create_qp(pd, &init));
    FAILS(EINVAL, ibv_create_qp(gone_pd, &init));
    ibv_ack_cq_events(gone_cq, 1);

    /* What is destroyed now and then is not mistaken for what is made in between. */
    for (int n = 0; n < 100; n++) {
        struct ibv_pd *other = ibv_alloc_pd(context);
        REFUSED(EINVAL, ibv_dealloc_pd(gone_pd));
        CHECK(ibv_dealloc_pd(other) == 0);
    }
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
}

/* A context that is closed with all that was made of it, which is still there to be destroyed. */
static void after_close(void)
{
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0);
    struct ibv_qp *qp = make_qp(pd, cq, 2);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    connect_qp(qp, qp->qp_num, gid_of(context));
    CHECK(ibv_close_device(context) == 0);

    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    struct ibv_async_event event;
    union ibv_gid gid;
    REFUSED(EINVAL, ibv_close_device(context));
    REFUSED(EINVAL, ibv_query_device(context, &attr));
    REFUSED(EINVAL, ibv_query_port(context, 1, &port));
    FAILS(EINVAL, ibv_query_gid(context, 1, 0, &gid));
    FAILS(EINVAL, ibv_get_async_event(context, &event));
    FAILS(EINVAL, ibv_alloc_pd(context));
    FAILS(EINVAL, ibv_create_cq(context, 1, NULL, NULL, 0));
    FAILS(EINVAL, ibv_create_comp_channel(context));
    struct ibv_qp_init_attr init = qp_attr(cq, 1);
    FAILS(EINVAL, ibv_create_qp(pd, &init));

    /* Its queues go on. */
    CHECK(ibv_req_notify_cq(cq, 0) == 0);
    CHECK(post_recv(qp, 1, mr, memory + 64, 64) == 0 && post_send(qp, 2, mr, memory, 64) == 0);
    struct ibv_cq *which;
    void *word;
    CHECK(ibv_get_cq_event(channel, &which, &word) == 0 && which == cq);
    ibv_ack_cq_events(cq, 1);
    CHECK(next(cq).status == IBV_WC_SUCCESS && next(cq).status == IBV_WC_SUCCESS);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
}

int main(void)
{
    struct ibv_context *context = open_device();
    of_a_domain(context);
    of_queues(context);
    of_xrc(context);
    of_memory(context);
    after_the_end(context);
    after_close();
    exchange(context);
    CHECK(ibv_close_device(context) == 0);
    puts("all is refused");
}
