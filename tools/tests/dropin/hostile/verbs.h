/* What the programs here have in common: short ways through libibverbs, and to an end when something is wrong. */

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                                            \
    do {                                                                                       \
        if (!(what)) {                                                                         \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno);       \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

/* Marks the end of the messages on a refused call. */
static inline void mark(int line)
{
    if (getenv("MARK_REFUSALS"))
        fprintf(stderr, "refused in line %d\n", line);
}

/* A call that answers with the number of an error. */
#define REFUSED(number, call)                                                                  \
    do {                                                                                       \
        int answer_ = (call);                                                                  \
        if (answer_ != (number)) {                                                             \
            fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #call, answer_,   \
                    (number));                                                                 \
            exit(1);                                                                           \
        }                                                                                      \
        mark(__LINE__);                                                                        \
    } while (0)

/* A call that answers with null, or below zero, and leaves the number in errno. */
#define FAILS(number, call)                                                                    \
    do {                                                                                       \
        errno = 0;                                                                             \
        long answer_ = (long)(call);                                                           \
        if ((answer_ != 0 && answer_ != -1) || errno != (number)) {                            \
            fprintf(stderr, "%s:%d: %s is %ld with errno %d, not %d\n", __FILE__, __LINE__,    \
                    #call, answer_, errno, (number));                                          \
            exit(1);                                                                           \
        }                                                                                      \
        mark(__LINE__);                                                                        \
    } while (0)

static struct ibv_device *device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_device *first = list[0];
    ibv_free_device_list(list);
    return first;
}

static inline struct ibv_context *open_device(void)
{
    struct ibv_context *context = ibv_open_device(device());
    CHECK(context);
    return context;
}

static inline struct ibv_cq *make_cq(struct ibv_context *context, int depth)
{
    struct ibv_cq *cq = ibv_create_cq(context, depth, NULL, NULL, 0);
    CHECK(cq);
    return cq;
}

static inline struct ibv_qp_init_attr qp_attr(struct ibv_cq *cq, int depth)
{
    return (struct ibv_qp_init_attr){
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {depth, depth, 1, 1, 0},
        .qp_type = IBV_QPT_RC,
    };
}

static inline struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq, int depth)
{
    struct ibv_qp_init_attr attr = qp_attr(cq, depth);
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    CHECK(qp);
    return qp;
}

static inline union ibv_gid gid_of(struct ibv_context *context)
{
    union ibv_gid gid;
    CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
    return gid;
}

static inline int to_init(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
    };
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/* From RESET to RTS. */
static inline void connect_with_mtu(struct ibv_qp *qp, uint32_t to, union ibv_gid at,
                                    enum ibv_mtu mtu)
{
    CHECK(to_init(qp) == 0);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu,
        .dest_qp_num = to,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = at, .hop_limit = 64}},
    };
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                            IBV_QP_MIN_RNR_TIMER) == 0);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static inline void connect_qp(struct ibv_qp *qp, uint32_t to, union ibv_gid at)
{
    connect_with_mtu(qp, to, at, IBV_MTU_1024);
}

static inline int post_recv(struct ibv_qp *qp, uint64_t id, struct ibv_mr *mr, void *at,
                            uint32_t length)
{
    struct ibv_sge piece = {(uintptr_t)at, length, mr ? mr->lkey : 0};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &piece, .num_sge = 1}, *bad;
    return ibv_post_recv(qp, &wr, &bad);
}

static inline int post_send(struct ibv_qp *qp, uint64_t id, struct ibv_mr *mr, void *at,
                            uint32_t length)
{
    struct ibv_sge piece = {(uintptr_t)at, length, mr ? mr->lkey : 0};
    struct ibv_send_wr wr = {.wr_id = id,
                             .sg_list = &piece,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    return ibv_post_send(qp, &wr, &bad);
}

/* The next completion. */
static inline struct ibv_wc next(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    int found;
    while ((found = ibv_poll_cq(cq, 1, &wc)) == 0)
        ;
    CHECK(found == 1);
    return wc;
}

/* A message of two queue pairs of one context, and what came out of it. */
static inline void exchange(struct ibv_context *context)
{
    char memory[64] = "is it there?";
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    struct ibv_cq *cq = make_cq(context, 4);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    struct ibv_qp *from = make_qp(pd, cq, 1), *to = make_qp(pd, cq, 1);
    connect_qp(from, to->qp_num, gid_of(context));
    connect_qp(to, from->qp_num, gid_of(context));
    CHECK(post_recv(to, 1, mr, memory + 32, 32) == 0);
    CHECK(post_send(from, 2, mr, memory, 32) == 0);
    CHECK(next(cq).status == IBV_WC_SUCCESS);
    CHECK(next(cq).status == IBV_WC_SUCCESS);
    CHECK(strcmp(memory + 32, "is it there?") == 0);
    CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
}
