/* A thousand contexts, one after the other and at once; ten thousand queue pairs, each with a message; and what becomes
 * of a process that has no descriptors left. */

#include <sys/resource.h>

#include "verbs.h"

enum { CONTEXTS = 1000, PAIRS = 10000, BATCH = 500 };

static struct ibv_context *contexts[CONTEXTS];

static void limit(rlim_t descriptors)
{
    struct rlimit now;
    CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0);
    now.rlim_cur = descriptors;
    CHECK(setrlimit(RLIMIT_NOFILE, &now) == 0);
}

static void one_after_the_other(void)
{
    for (int n = 0; n < CONTEXTS; n++) {
        struct ibv_context *context = open_device();
        struct ibv_pd *pd = ibv_alloc_pd(context);
        CHECK(pd && ibv_dealloc_pd(pd) == 0);
        CHECK(ibv_close_device(context) == 0);
    }
}

/* With as many descriptors as a process has by default. */
static void at_once(void)
{
    limit(1024);
    for (int n = 0; n < CONTEXTS; n++)
        contexts[n] = open_device();
    exchange(contexts[0]);
    exchange(contexts[CONTEXTS - 1]);
    for (int n = 0; n < CONTEXTS; n++)
        CHECK(ibv_close_device(contexts[n]) == 0);
}

static void without_descriptors(void)
{
    limit(64);
    int n = 0;
    errno = 0;
    while ((contexts[n] = ibv_open_device(device())) != NULL)
        CHECK(++n < 64);
    CHECK(errno == EMFILE && n > 16);
    FAILS(EMFILE, ibv_open_device(device()));
    FAILS(EMFILE, ibv_create_comp_channel(contexts[0]));
    exchange(contexts[0]);
    while (n > 0)
        CHECK(ibv_close_device(contexts[--n]) == 0);
    struct ibv_context *context = open_device();
    exchange(context);
    CHECK(ibv_close_device(context) == 0);
    limit(1024);
}

/* Each is connected to its neighbour, and sends it its number. */
static void queue_pairs(void)
{
    static struct ibv_qp *qps[PAIRS];
    static uint64_t sent[PAIRS], received[PAIRS];
    static char seen[PAIRS];
    struct ibv_context *context = open_device();
    union ibv_gid gid = gid_of(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = make_cq(context, 2 * PAIRS);
    struct ibv_mr *from = ibv_reg_mr(pd, sent, sizeof sent, 0);
    struct ibv_mr *to = ibv_reg_mr(pd, received, sizeof received, IBV_ACCESS_LOCAL_WRITE);
    for (int n = 0; n < PAIRS; n++)
        qps[n] = make_qp(pd, cq, 1);
    for (int n = 0; n < PAIRS; n++) {
        sent[n] = 0x1234500000 + n;
        connect_qp(qps[n], qps[n ^ 1]->qp_num, gid);
        CHECK(post_recv(qps[n], n, to, &received[n], 8) == 0);
    }
    /* In batches, for what is lost on its way takes a second to come again. */
    for (int first = 0; first < PAIRS; first += BATCH) {
        for (int n = first; n < first + BATCH; n++)
            CHECK(post_send(qps[n], PAIRS + n, from, &sent[n], 8) == 0);
        for (int n = 0; n < 2 * BATCH; n++) {
            struct ibv_wc wc = next(cq);
            CHECK(wc.status == IBV_WC_SUCCESS);
            if (wc.opcode == IBV_WC_RECV) {
                CHECK(wc.wr_id < PAIRS && wc.qp_num == qps[wc.wr_id]->qp_num);
                CHECK(received[wc.wr_id] == 0x1234500000 + (wc.wr_id ^ 1) && !seen[wc.wr_id]++);
            }
        }
    }
    for (int n = 0; n < PAIRS; n++)
        CHECK(seen[n] && ibv_destroy_qp(qps[n]) == 0);
    CHECK(ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

int main(int count, char **args)
{
    CHECK(count == 2);
    if (strcmp(args[1], "contexts") == 0) {
        one_after_the_other();
        at_once();
        without_descriptors();
    } else {
        queue_pairs();
    }
    puts("all were there");
}
