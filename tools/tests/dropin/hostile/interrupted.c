/* Signals that interrupt the waits for events, as they interrupt a read of the kernel's descriptors. */

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#include "verbs.h"

enum { LIMIT_MS = 10000, SIGNALS = 20 };

static volatile sig_atomic_t handled;
static volatile int ended, started;
static int result, number;

static void count(int signal)
{
    (void)signal;
    handled++;
}

static void handle(int signal, int flags)
{
    struct sigaction action = {.sa_handler = count, .sa_flags = flags};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static void no_handler(int signal)
{
    struct sigaction action = {.sa_handler = SIG_IGN};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp, *peer;
static struct ibv_mr *mr;
static char room[64];
static pid_t waiter;

static void bring_completion(void)
{
    char byte = 0;
    struct ibv_mr *its = ibv_reg_mr(qp->pd, &byte, 1, IBV_ACCESS_LOCAL_WRITE);
    CHECK(its && post_send(qp, 1, its, &byte, 0) == 0);
    CHECK(ibv_dereg_mr(its) == 0);
}

/* Waits for completions that come soon, often enough to pay for a wait in vain. So the next wait polls before it sleeps. */
static void wait_shortly(void)
{
    struct ibv_cq *found;
    void *its;
    for (int round = 0; round < 12; round++) {
        CHECK(post_recv(peer, 2, mr, room, sizeof room) == 0);
        CHECK(ibv_req_notify_cq(cq, 0) == 0);
        bring_completion();
        CHECK(ibv_get_cq_event(channel, &found, &its) == 0);
        ibv_ack_cq_events(found, 1);
        for (int i = 0; i < 2; i++)
            CHECK(next(cq).status == IBV_WC_SUCCESS);
    }
    CHECK(ibv_req_notify_cq(cq, 0) == 0);
}

static void *wait_for_completion(void *none)
{
    struct ibv_cq *found;
    void *its;
    wait_shortly();
    waiter = syscall(SYS_gettid);
    started = 1;
    result = ibv_get_cq_event(channel, &found, &its);
    number = errno;
    if (result == 0)
        ibv_ack_cq_events(found, 1);
    ended = 1;
    return none;
}

static void *wait_for_event(void *none)
{
    struct ibv_async_event event;
    wait_shortly();
    waiter = syscall(SYS_gettid);
    started = 1;
    result = ibv_get_async_event(context, &event);
    number = errno;
    if (result == 0)
        ibv_ack_async_event(&event);
    ended = 1;
    return none;
}

/* Waits until it sleeps: state S of the kernel's table. */
static void until_asleep(void)
{
    for (int waited = 0; waited < LIMIT_MS; waited++, rest()) {
        char path[64], state = '?';
        if (!started)
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", waiter);
        FILE *file = fopen(path, "r");
        CHECK(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
        fclose(file);
        if (state == 'S' || ended)
            return;
    }
    fprintf(stderr, "the thread does not sleep after %d ms\n", LIMIT_MS);
    exit(1);
}

static void until_ended(const char *what)
{
    for (int waited = 0; waited < LIMIT_MS; waited++, rest())
        if (ended)
            return;
    fprintf(stderr, "%s has not ended after %d ms\n", what, LIMIT_MS);
    exit(1);
}

static void bring_event(void)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
}

/* A signal without SA_RESTART ends the call of a thread that waits, and one with it does not. With `others` the
 * program has a handler of the other kind too. */
static void try(void *(*wait)(void *), void (*bring)(void), const char *what, int others)
{
    pthread_t thread;
    if (others)
        handle(SIGUSR2, SA_RESTART);
    handle(SIGUSR1, 0);
    for (int round = 0; round < SIGNALS; round++) {
        ended = started = 0;
        CHECK(pthread_create(&thread, NULL, wait, NULL) == 0);
        until_asleep();
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        until_ended(what);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(result == -1 && number == EINTR);
    }
    handle(SIGUSR1, SA_RESTART);
    if (others)
        handle(SIGUSR2, 0);
    ended = started = 0;
    CHECK(pthread_create(&thread, NULL, wait, NULL) == 0);
    for (int round = 0; round < SIGNALS; round++) {
        until_asleep();
        CHECK(!ended);
        int before = handled;
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        for (int waited = 0; handled == before; waited++, rest())
            CHECK(waited < LIMIT_MS);
    }
    until_asleep();
    CHECK(!ended);
    bring();
    until_ended(what);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(result == 0);
    no_handler(SIGUSR1);
    no_handler(SIGUSR2);
}

int main(void)
{
    context = open_device();
    channel = ibv_create_comp_channel(context);
    CHECK(channel);
    cq = ibv_create_cq(context, 16, NULL, channel, 0);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(cq && pd);
    peer = make_qp(pd, cq, 4);
    mr = ibv_reg_mr(pd, room, sizeof room, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    for (int others = 0; others < 2; others++) {
        qp = make_qp(pd, cq, 4);
        CHECK(ibv_modify_qp(peer, &(struct ibv_qp_attr){.qp_state = IBV_QPS_RESET}, IBV_QP_STATE) == 0);
        connect_qp(qp, peer->qp_num, gid_of(context));
        connect_qp(peer, qp->qp_num, gid_of(context));
        CHECK(post_recv(peer, 2, mr, room, sizeof room) == 0);
        CHECK(ibv_req_notify_cq(cq, 0) == 0);
        try(wait_for_completion, bring_completion, "ibv_get_cq_event", others);
        for (int i = 0; i < 2; i++)
            CHECK(next(cq).status == IBV_WC_SUCCESS);
        try(wait_for_event, bring_event, "ibv_get_async_event", others);
        CHECK(ibv_destroy_qp(qp) == 0);
    }
    puts("every signal has done what it should");
}
