/* Arguments that make no sense are errors with the number that libibverbs or the kernel has for them, leave nothing
 * behind, and crash nothing. */

#include <limits.h>
#include <sys/mman.h>

#include "verbs.h"

static char memory[4096];

static void of_devices(struct ibv_context *context)
{
    FAILS(EINVAL, ibv_open_device(NULL));
    ibv_free_device_list(NULL);
    REFUSED(EINVAL, ibv_close_device(NULL));
    struct ibv_port_attr port;
    union ibv_gid gid;
    uint16_t pkey;
    REFUSED(EINVAL, ibv_query_port(context, 0, &port));
    REFUSED(EINVAL, ibv_query_port(context, 2, &port));
    FAILS(EINVAL, ibv_query_gid(context, 2, 0, &gid));
    FAILS(EINVAL, ibv_query_gid(context, 1, 99, &gid));
    FAILS(EINVAL, ibv_query_gid(context, 1, -1, &gid));
    FAILS(EINVAL, ibv_query_pkey(context, 1, 99, &pkey));
    FAILS(EINVAL, ibv_query_pkey(context, 1, -1, &pkey));
    REFUSED(EINVAL, ibv_query_device(NULL, NULL));
    struct ibv_gid_entry entry;
    REFUSED(EINVAL, ibv_query_gid_ex(context, 1, 99, &entry, 0));
    REFUSED(EINVAL, ibv_query_gid_ex(context, 1, 0, &entry, 1));
}

static void of_memory(struct ibv_context *context, struct ibv_pd *pd)
{
    FAILS(EINVAL, ibv_alloc_pd(NULL));
    REFUSED(EINVAL, ibv_dealloc_pd(NULL));
    FAILS(EFAULT, ibv_reg_mr(pd, NULL, 4096, IBV_ACCESS_LOCAL_WRITE));
    FAILS(EFAULT, ibv_reg_mr(pd, (void *)0x1000, 4096, 0));
    FAILS(EINVAL, ibv_reg_mr(pd, (void *)-4096L, 8192, 0));
    FAILS(EINVAL, ibv_reg_mr(NULL, memory, 64, 0));
    /* Who may write from far may write from near. */
    FAILS(EINVAL, ibv_reg_mr(pd, memory, 64, IBV_ACCESS_REMOTE_WRITE));
    FAILS(EINVAL, ibv_reg_mr(pd, memory, 64, IBV_ACCESS_REMOTE_ATOMIC));
    FAILS(EINVAL, ibv_reg_mr(pd, memory, 64, 1 << 12));
    REFUSED(EINVAL, ibv_dereg_mr(NULL));

    /* A hole in the middle, and what may only be read. */
    char *pages = mmap(NULL, 3 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAILS(EFAULT, ibv_reg_mr(pd, pages, 4096, IBV_ACCESS_LOCAL_WRITE));
    struct ibv_mr *mr = ibv_reg_mr(pd, pages, 4096, IBV_ACCESS_REMOTE_READ);
    CHECK(mr && ibv_dereg_mr(mr) == 0);
    CHECK(munmap(pages + 4096, 4096) == 0);
    FAILS(EFAULT, ibv_reg_mr(pd, pages, 3 * 4096, 0));
    CHECK(munmap(pages, 4096) == 0 && munmap(pages + 2 * 4096, 4096) == 0);

    mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
    CHECK(ibv_rereg_mr(mr, 1 << 10, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
    CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 64, 0) ==
          IBV_REREG_MR_ERR_INPUT);
    CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0) != 0);
    CHECK(ibv_dereg_mr(mr) == 0);

    FAILS(EINVAL, ibv_alloc_mw(pd, 7));
    struct ibv_alloc_dm_attr none = {.length = 0}, much = {.length = SIZE_MAX / 2};
    FAILS(EINVAL, ibv_alloc_dm(context, &none));
    FAILS(ENOMEM, ibv_alloc_dm(context, &much));
    struct ibv_alloc_dm_attr some = {.length = 64};
    struct ibv_dm *dm = ibv_alloc_dm(context, &some);
    FAILS(EINVAL, ibv_reg_dm_mr(pd, dm, 32, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED));
    REFUSED(EINVAL, ibv_memcpy_to_dm(dm, 32, memory, 64));
    REFUSED(EINVAL, ibv_memcpy_from_dm(memory, dm, 32, 64));
    CHECK(ibv_free_dm(dm) == 0);
}

static void of_queues(struct ibv_context *context, struct ibv_pd *pd)
{
    FAILS(EINVAL, ibv_create_cq(context, 0, NULL, NULL, 0));
    FAILS(EINVAL, ibv_create_cq(context, -1, NULL, NULL, 0));
    FAILS(EINVAL, ibv_create_cq(context, INT_MAX, NULL, NULL, 0));
    FAILS(EINVAL, ibv_create_cq(context, 1, NULL, NULL, 1));
    FAILS(EINVAL, ibv_create_cq(context, 1, NULL, NULL, -1));
    struct ibv_cq *cq = make_cq(context, 4);
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(cq, 0, &wc) == 0);
    FAILS(EINVAL, ibv_poll_cq(cq, -1, &wc));
    REFUSED(EINVAL, ibv_resize_cq(cq, 0));
    REFUSED(EINVAL, ibv_resize_cq(cq, INT_MAX));

    struct ibv_srq_init_attr no_queue = {.attr = {.max_wr = 0, .max_sge = 1}};
    FAILS(EINVAL, ibv_create_srq(pd, &no_queue));
    struct ibv_srq_init_attr long_queue = {.attr = {.max_wr = UINT_MAX, .max_sge = 1}};
    FAILS(EINVAL, ibv_create_srq(pd, &long_queue));
    FAILS(EINVAL, ibv_create_srq(pd, NULL));
    struct ibv_srq_init_attr fair = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &fair);
    struct ibv_srq_attr limit = {.srq_limit = 1000};
    REFUSED(EINVAL, ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
    REFUSED(EINVAL, ibv_modify_srq(srq, &limit, 1 << 9));
    uint32_t number;
    CHECK(ibv_get_srq_num(srq, &number) != 0);
    CHECK(ibv_destroy_srq(srq) == 0);

    struct ibv_qp_init_attr attr = qp_attr(cq, 1);
    FAILS(EINVAL, ibv_create_qp(NULL, &attr));
    FAILS(EINVAL, ibv_create_qp(pd, NULL));
    attr.cap.max_send_wr = UINT_MAX;
    FAILS(EINVAL, ibv_create_qp(pd, &attr));
    attr = qp_attr(cq, 1);
    attr.cap.max_recv_sge = 1000;
    FAILS(EINVAL, ibv_create_qp(pd, &attr));
    attr = qp_attr(cq, 1);
    attr.cap.max_inline_data = UINT_MAX;
    FAILS(EINVAL, ibv_create_qp(pd, &attr));
    attr = qp_attr(cq, 1);
    attr.send_cq = NULL;
    FAILS(EINVAL, ibv_create_qp(pd, &attr));
    attr = qp_attr(cq, 1);
    attr.recv_cq = NULL;
    FAILS(EINVAL, ibv_create_qp(pd, &attr));
    attr = qp_attr(cq, 1);
    attr.qp_type = IBV_QPT_RAW_PACKET;
    FAILS(EOPNOTSUPP, ibv_create_qp(pd, &attr));
    attr.qp_type = 77;
    FAILS(EOPNOTSUPP, ibv_create_qp(pd, &attr));
    REFUSED(EINVAL, ibv_destroy_cq(NULL));
    REFUSED(EINVAL, ibv_destroy_qp(NULL));
    REFUSED(EINVAL, ibv_destroy_srq(NULL));
    CHECK(ibv_destroy_cq(cq) == 0);
}

/* The address at which a request is named that was refused. */
static struct ibv_send_wr *refused(struct ibv_qp *qp, int number, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad = NULL;
    REFUSED(number, ibv_post_send(qp, wr, &bad));
    return bad;
}

static void of_requests(struct ibv_context *context, struct ibv_pd *pd)
{
    struct ibv_cq *cq = make_cq(context, 8);
    struct ibv_qp *qp = make_qp(pd, cq, 2);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge piece = {(uintptr_t)memory, 8, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND};

    /* In RESET nothing is taken; in INIT only what is to be received. */
    CHECK(refused(qp, EINVAL, &wr) == &wr);
    REFUSED(EINVAL, post_recv(qp, 1, mr, memory, 8));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
    REFUSED(EINVAL, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    REFUSED(EINVAL, ibv_modify_qp(qp, NULL, IBV_QP_STATE));
    attr.qp_state = 77;
    REFUSED(EINVAL, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 2};
    REFUSED(EINVAL, ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                                 IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = 9};
    REFUSED(EINVAL, ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                                 IBV_QP_ACCESS_FLAGS));
    CHECK(to_init(qp) == 0);
    CHECK(refused(qp, EINVAL, &wr) == &wr);
    CHECK(post_recv(qp, 1, mr, memory, 8) == 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET};
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    struct ibv_qp *peer = make_qp(pd, cq, 1);
    connect_qp(qp, peer->qp_num, gid_of(context));
    connect_qp(peer, qp->qp_num, gid_of(context));

    wr.opcode = 77;
    CHECK(refused(qp, EINVAL, &wr) == &wr);
    wr.opcode = IBV_WR_SEND;
    wr.num_sge = 99;
    CHECK(refused(qp, EINVAL, &wr) == &wr);
    wr.num_sge = -1;
    CHECK(refused(qp, EINVAL, &wr) == &wr);
    wr.num_sge = 1;
    wr.sg_list = NULL;
    CHECK(refused(qp, EINVAL, &wr) == &wr);
    wr.sg_list = &piece;
    wr.send_flags = IBV_SEND_INLINE;
    piece.length = 100000;
    CHECK(refused(qp, EINVAL, &wr) == &wr);
    piece.length = 8;
    wr.send_flags = 0;
    /* The third of three, where there is room for two; the list before it was taken. */
    struct ibv_send_wr third = wr, second = wr;
    third.wr_id = 3;
    wr.send_flags = second.send_flags = IBV_SEND_SIGNALED;
    second.next = &third;
    wr.next = &second;
    wr.opcode = second.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma.rkey = second.wr.rdma.rkey = mr->rkey;
    CHECK(refused(qp, ENOMEM, &wr) == &third);
    /* To what nobody may write. */
    CHECK(next(cq).status == IBV_WC_REM_ACCESS_ERR && next(cq).status == IBV_WC_WR_FLUSH_ERR);
    /* In ERROR everything is taken, and flushed. */
    CHECK(post_send(qp, 4, mr, memory, 8) == 0);
    struct ibv_wc wc = next(cq);
    CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 4);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(peer) == 0);

    /* Keys that there are not, and memory that is not the region's, are found out when the request runs. */
    struct ibv_sge wrong[] = {{(uintptr_t)memory, 8, mr->lkey ^ 0x5500},
                              {(uintptr_t)memory + 4090, 8, mr->lkey},
                              {0, 8, mr->lkey},
                              {~0ULL - 3, 8, mr->lkey}};
    for (int n = 0; n < 4; n++) {
        qp = make_qp(pd, cq, 1);
        connect_qp(qp, qp->qp_num, gid_of(context));
        wr = (struct ibv_send_wr){.sg_list = &wrong[n], .num_sge = 1, .opcode = IBV_WR_SEND};
        struct ibv_send_wr *bad;
        CHECK(ibv_post_send(qp, &wr, &bad) == 0);
        CHECK(next(cq).status == IBV_WC_LOC_PROT_ERR);
        CHECK(ibv_destroy_qp(qp) == 0);
    }
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0);
}

static void of_addresses(struct ibv_context *context, struct ibv_pd *pd)
{
    struct ibv_ah_attr fair = {
        .is_global = 1, .port_num = 1, .grh = {.dgid = gid_of(context), .hop_limit = 1}};
    struct ibv_ah_attr attr = fair;
    attr.port_num = 0;
    FAILS(EINVAL, ibv_create_ah(pd, &attr));
    attr = fair;
    attr.is_global = 0;
    FAILS(EINVAL, ibv_create_ah(pd, &attr));
    attr = fair;
    attr.grh.sgid_index = 99;
    FAILS(EINVAL, ibv_create_ah(pd, &attr));
    FAILS(EINVAL, ibv_create_ah(NULL, &fair));
    FAILS(EINVAL, ibv_create_ah(pd, NULL));
    REFUSED(EINVAL, ibv_destroy_ah(NULL));

    struct ibv_cq *cq = make_cq(context, 4);
    struct ibv_qp *rc = make_qp(pd, cq, 1);
    struct ibv_qp_init_attr init = qp_attr(cq, 1);
    init.qp_type = IBV_QPT_UD;
    struct ibv_qp *ud = ibv_create_qp(pd, &init);
    union ibv_gid group = {.raw = {[10] = 0xff, 0xff, 239, 9, 8, 7}}, host = gid_of(context);
    REFUSED(EINVAL, ibv_attach_mcast(rc, &group, 0));
    REFUSED(EINVAL, ibv_attach_mcast(ud, &host, 0));
    REFUSED(EINVAL, ibv_detach_mcast(ud, &group, 0));
    REFUSED(EINVAL, ibv_attach_mcast(ud, NULL, 0));

    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};
    CHECK(ibv_modify_qp(ud, &rts,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    rts.qp_state = IBV_QPS_RTR;
    CHECK(ibv_modify_qp(ud, &rts, IBV_QP_STATE) == 0);
    rts.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(ud, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    /* A datagram to nowhere, and operations that it cannot be. */
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    CHECK(refused(ud, EINVAL, &wr) == &wr);
    wr.wr.ud.ah = ibv_create_ah(pd, &fair);
    wr.opcode = IBV_WR_RDMA_READ;
    CHECK(refused(ud, EINVAL, &wr) == &wr);
    CHECK(ibv_destroy_ah(wr.wr.ud.ah) == 0);
    CHECK(ibv_destroy_qp(ud) == 0 && ibv_destroy_qp(rc) == 0 && ibv_destroy_cq(cq) == 0);
}

int main(void)
{
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    of_devices(context);
    of_memory(context, pd);
    of_queues(context, pd);
    of_requests(context, pd);
    of_addresses(context, pd);
    exchange(context);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    puts("all is refused");
}
