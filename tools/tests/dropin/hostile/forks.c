/* Many children: forked before anything is opened, each with a device of its own; and forked while threads of their
 * parent are in the middle of every call, to whom its objects are no use and its messages no business. */

#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "verbs.h"

enum { PAIRS = 8, MESSAGES = 20, STORM = 60 };

struct name {
    uint32_t qpn;
    union ibv_gid gid;
};

static void tell(int to, const void *what, size_t length)
{
    CHECK(write(to, what, length) == (ssize_t)length);
}

static void hear(int from, void *what, size_t length)
{
    CHECK(recv(from, what, length, MSG_WAITALL) == (ssize_t)length);
}

/* One of two that send each other the same messages. */
static void talk(int other, uint64_t pair)
{
    uint64_t out[MESSAGES], in[MESSAGES] = {0};
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = make_cq(context, 2 * MESSAGES);
    struct ibv_mr *from = ibv_reg_mr(pd, out, sizeof out, 0);
    struct ibv_mr *to = ibv_reg_mr(pd, in, sizeof in, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp *qp = make_qp(pd, cq, MESSAGES);
    struct name own = {qp->qp_num, gid_of(context)}, peer;
    tell(other, &own, sizeof own);
    hear(other, &peer, sizeof peer);
    connect_qp(qp, peer.qpn, peer.gid);
    for (uint64_t n = 0; n < MESSAGES; n++) {
        out[n] = pair << 32 | n;
        CHECK(post_recv(qp, n, to, &in[n], 8) == 0);
    }
    /* Both have said what they are to receive. */
    tell(other, &own, 1);
    hear(other, &peer, 1);
    for (uint64_t n = 0; n < MESSAGES; n++)
        CHECK(post_send(qp, n, from, &out[n], 8) == 0);
    for (int n = 0; n < 2 * MESSAGES; n++)
        CHECK(next(cq).status == IBV_WC_SUCCESS);
    CHECK(memcmp(in, out, sizeof in) == 0);
}

/* It ends as processes end: with all that it has open. */
static pid_t child(int other, uint64_t pair, int at_once)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(60);
        talk(other, pair);
        if (at_once)
            _exit(0);
        exit(0);
    }
    return pid;
}

static void wait_for(int children)
{
    for (; children > 0; children--) {
        int status;
        CHECK(wait(&status) > 0);
        if (status != 0) {
            fprintf(stderr, "a child has ended with status %#x\n", status);
            exit(1);
        }
    }
}

static void before(void)
{
    /* To look for devices is not to open one. */
    device();
    for (uint64_t pair = 0; pair < PAIRS; pair++) {
        int ends[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        child(ends[0], pair, 0);
        child(ends[1], pair, 1);
        close(ends[0]);
        close(ends[1]);
    }
    wait_for(2 * PAIRS);
}

static char memory[64];
static int ends;

static void *exchange_in(void *context)
{
    while (!__atomic_load_n(&ends, __ATOMIC_ACQUIRE))
        exchange(context);
    return NULL;
}

static void *open_and_close(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&ends, __ATOMIC_ACQUIRE)) {
        struct ibv_context *context = open_device();
        struct ibv_cq *cq = make_cq(context, 1);
        CHECK(ibv_destroy_cq(cq) == 0 && ibv_close_device(context) == 0);
    }
    return NULL;
}

static void after(void)
{
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0);
    struct ibv_qp *qp = make_qp(pd, cq, 2);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    struct ibv_ah_attr way = {
        .is_global = 1, .port_num = 1, .grh = {.dgid = gid_of(context), .hop_limit = 1}};
    struct ibv_ah *ah = ibv_create_ah(pd, &way);
    connect_qp(qp, qp->qp_num, gid_of(context));
    CHECK(post_recv(qp, 1, mr, memory, 32) == 0);

    pthread_t threads[4];
    for (int n = 0; n < 2; n++) {
        CHECK(pthread_create(&threads[n], NULL, exchange_in, context) == 0);
        CHECK(pthread_create(&threads[2 + n], NULL, open_and_close, NULL) == 0);
    }
    for (int n = 0; n < STORM; n++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid > 0) {
            if (n % 4 == 3)
                wait_for(4);
            continue;
        }
        alarm(60);
        struct ibv_wc wc;
        struct ibv_device_attr device_attr;
        struct ibv_port_attr port;
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
        struct ibv_qp_init_attr init = qp_attr(cq, 1);
        struct ibv_async_event event;
        struct ibv_cq *which;
        void *word;
        REFUSED(EIO, ibv_query_device(context, &device_attr));
        REFUSED(EIO, ibv_query_port(context, 1, &port));
        FAILS(EIO, ibv_alloc_pd(context));
        FAILS(EIO, ibv_reg_mr(pd, memory, sizeof memory, 0));
        FAILS(EIO, ibv_create_ah(pd, &way));
        FAILS(EIO, ibv_create_cq(context, 1, NULL, NULL, 0));
        FAILS(EIO, ibv_create_comp_channel(context));
        FAILS(EIO, ibv_create_qp(pd, &init));
        FAILS(EIO, ibv_get_async_event(context, &event));
        FAILS(EIO, ibv_get_cq_event(channel, &which, &word));
        FAILS(EIO, ibv_poll_cq(cq, 1, &wc));
        REFUSED(EIO, ibv_req_notify_cq(cq, 0));
        REFUSED(EIO, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
        REFUSED(EIO, ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
        REFUSED(EIO, post_send(qp, 2, mr, memory + 32, 32));
        REFUSED(EIO, post_recv(qp, 2, mr, memory, 32));
        exchange(open_device());
        /* Who tidies up before it ends. */
        REFUSED(EIO, ibv_destroy_ah(ah));
        REFUSED(EIO, ibv_dealloc_mw(mw));
        REFUSED(EIO, ibv_destroy_qp(qp));
        REFUSED(EIO, ibv_dereg_mr(mr));
        REFUSED(EIO, ibv_destroy_cq(cq));
        REFUSED(EIO, ibv_destroy_comp_channel(channel));
        REFUSED(EIO, ibv_dealloc_pd(pd));
        REFUSED(EIO, ibv_close_device(context));
        if (n % 2)
            _exit(0);
        exit(0);
    }
    __atomic_store_n(&ends, 1, __ATOMIC_RELEASE);
    for (int n = 0; n < 4; n++)
        CHECK(pthread_join(threads[n], NULL) == 0);

    strcpy(memory + 32, "as if nothing had happened");
    CHECK(post_send(qp, 2, mr, memory + 32, 32) == 0);
    CHECK(next(cq).status == IBV_WC_SUCCESS && next(cq).status == IBV_WC_SUCCESS);
    CHECK(strcmp(memory, "as if nothing had happened") == 0);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_ah(ah) == 0 && ibv_dealloc_mw(mw) == 0);
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

int main(int count, char **args)
{
    CHECK(count == 2);
    if (strcmp(args[1], "before") == 0)
        before();
    else
        after();
    puts("all have ended well");
}
