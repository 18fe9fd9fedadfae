/* Memory that goes away and comes back while it is written, read and sent: pages that nobody may touch for a while, and
 * a file that is cut short. Every request ends, and no signal ends the program. As "handler" it has handlers of such
 * signals itself, which must not be called; as "fault" it touches in the end what is not there, and is ended by that. */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include "verbs.h"

enum { LENGTH = 16 * 4096, ROUNDS = 150 };

static char *anonymous, *mapped;
static int file, ends;

static void *come_and_go(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&ends, __ATOMIC_ACQUIRE)) {
        CHECK(mprotect(anonymous, LENGTH, PROT_NONE) == 0 && ftruncate(file, 0) == 0);
        sched_yield();
        CHECK(mprotect(anonymous, LENGTH, PROT_READ | PROT_WRITE) == 0);
        CHECK(ftruncate(file, LENGTH) == 0);
        sched_yield();
    }
    return NULL;
}

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *still;

/* One request of each kind, over queue pairs of their own: whether it has ended well. */
static int one(enum ibv_wr_opcode opcode, struct ibv_mr *near, struct ibv_mr *far)
{
    struct ibv_cq *cq = make_cq(context, 4);
    struct ibv_qp *from = make_qp(pd, cq, 1), *to = make_qp(pd, cq, 1);
    connect_qp(from, to->qp_num, gid_of(context));
    connect_qp(to, from->qp_num, gid_of(context));
    int left = 1;
    if (opcode == IBV_WR_SEND) {
        CHECK(post_recv(to, 1, far, far->addr, LENGTH) == 0);
        left = 2;
    }
    struct ibv_sge piece = {(uintptr_t)near->addr, LENGTH, near->lkey};
    struct ibv_send_wr wr = {.sg_list = &piece,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)far->addr, far->rkey}},
                       *bad;
    CHECK(ibv_post_send(from, &wr, &bad) == 0);
    int good = 1;
    while (left > 0) {
        enum ibv_wc_status status = next(cq).status;
        CHECK(status == IBV_WC_SUCCESS || status == IBV_WC_LOC_PROT_ERR ||
              status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR ||
              status == IBV_WC_WR_FLUSH_ERR);
        left--;
        if (status != IBV_WC_SUCCESS) {
            /* Of the other request nothing may have come. */
            struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
            CHECK(ibv_modify_qp(from, &error, IBV_QP_STATE) == 0);
            CHECK(ibv_modify_qp(to, &error, IBV_QP_STATE) == 0);
            good = 0;
        }
    }
    CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0 && ibv_destroy_cq(cq) == 0);
    return good;
}

static void all_ways(struct ibv_mr *gone)
{
    one(IBV_WR_RDMA_WRITE, still, gone);
    one(IBV_WR_RDMA_WRITE, gone, still);
    one(IBV_WR_RDMA_READ, still, gone);
    one(IBV_WR_RDMA_READ, gone, still);
    one(IBV_WR_SEND, still, gone);
    one(IBV_WR_SEND, gone, still);
}

static struct ibv_mr *region(char *memory)
{
    struct ibv_mr *mr =
        ibv_reg_mr(pd, memory, LENGTH,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    CHECK(mr);
    return mr;
}

static void called(int signal)
{
    (void)signal;
    _exit(99);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    if (!strcmp(argv[1], "handler"))
        CHECK(signal(SIGSEGV, called) != SIG_ERR && signal(SIGBUS, called) != SIG_ERR);
    context = open_device();
    pd = ibv_alloc_pd(context);
    FILE *temporary = tmpfile();
    CHECK(temporary);
    file = fileno(temporary);
    CHECK(ftruncate(file, LENGTH) == 0);
    mapped = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    anonymous = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED && anonymous != MAP_FAILED);
    struct ibv_mr *pages = region(anonymous), *cut = region(mapped);
    still = region(calloc(1, LENGTH));

    pthread_t other;
    CHECK(pthread_create(&other, NULL, come_and_go, NULL) == 0);
    for (int n = 0; n < ROUNDS; n++) {
        all_ways(pages);
        all_ways(cut);
    }
    __atomic_store_n(&ends, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(other, NULL) == 0);

    /* It is there again, and is as good as before; and once it is not, nothing is. */
    CHECK(one(IBV_WR_RDMA_WRITE, still, pages) && one(IBV_WR_RDMA_WRITE, still, cut));
    CHECK(mprotect(anonymous, LENGTH, PROT_NONE) == 0 && ftruncate(file, 0) == 0);
    CHECK(!one(IBV_WR_RDMA_WRITE, still, pages) && !one(IBV_WR_RDMA_WRITE, still, cut));
    CHECK(!one(IBV_WR_RDMA_READ, still, pages) && !one(IBV_WR_SEND, cut, still));
    CHECK(ibv_dereg_mr(pages) == 0 && ibv_dereg_mr(cut) == 0);
    puts("every request has ended");
    fflush(stdout);
    if (!strcmp(argv[1], "fault"))
        *(volatile char *)anonymous = 1;
}
