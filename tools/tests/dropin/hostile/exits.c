/* Processes that end by _exit in the handler of a signal, whatever it has interrupted, and in children of a fork. */

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "verbs.h"

enum { STATUS = 42, ROUNDS = 150, LIMIT_MS = 10000, BLOCKS = 64 };

static void end(int signal)
{
    (void)signal;
    _exit(STATUS);
}

static void handle(int signal, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

/* The child must have ended in time, with the status that it gave. */
static void has_ended(pid_t child, const char *what)
{
    CHECK(child > 0);
    for (int waited = 0; waited < LIMIT_MS; waited++) {
        int status;
        pid_t ended = waitpid(child, &status, WNOHANG);
        CHECK(ended >= 0);
        if (ended == child) {
            if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS)
                return;
            fprintf(stderr, "%s: ended with %#x\n", what, status);
            exit(1);
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    kill(child, SIGKILL);
    fprintf(stderr, "%s: not ended after %d ms\n", what, LIMIT_MS);
    exit(1);
}

/* Two connected queue pairs, and memory for their messages. */
struct ends {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *from, *to;
    struct ibv_mr *mr;
    char memory[4096];
};

static void open_ends(struct ends *ends)
{
    ends->context = open_device();
    ends->pd = ibv_alloc_pd(ends->context);
    CHECK(ends->pd);
    ends->cq = make_cq(ends->context, 64);
    ends->mr = ibv_reg_mr(ends->pd, ends->memory, sizeof ends->memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(ends->mr);
    ends->from = make_qp(ends->pd, ends->cq, 16);
    ends->to = make_qp(ends->pd, ends->cq, 16);
    connect_qp(ends->from, ends->to->qp_num, gid_of(ends->context));
    connect_qp(ends->to, ends->from->qp_num, gid_of(ends->context));
}

/* A message, and around it what programs do besides: memory from the heap, registered and not. */
static void turn(struct ends *ends)
{
    void *blocks[BLOCKS];
    CHECK(post_recv(ends->to, 1, ends->mr, ends->memory + 2048, 2048) == 0);
    CHECK(post_send(ends->from, 2, ends->mr, ends->memory, 2048) == 0);
    for (int i = 0; i < BLOCKS; i++)
        CHECK((blocks[i] = malloc(16 << i % 8)));
    struct ibv_mr *mr = ibv_reg_mr(ends->pd, blocks[7], 16 << 7, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr && ibv_dereg_mr(mr) == 0);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    for (int i = 0; i < 2; i++)
        CHECK(next(ends->cq).status == IBV_WC_SUCCESS);
}

static void in_handlers(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        if (child == 0) {
            static struct ends ends;
            open_ends(&ends);
            handle(SIGALRM, end);
            struct itimerval soon = {.it_value.tv_usec = 200 + round * 37 % 3000};
            CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
            for (;;)
                turn(&ends);
        }
        has_ended(child, "in a handler");
    }
}

static volatile int stopped;

static void *work(void *ends)
{
    while (!stopped)
        turn(ends);
    return NULL;
}

/* A child by the kernel's call, of which no library learns. */
static pid_t bare_fork(void)
{
    return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static void in_children(void)
{
    static struct ends ends_;
    pthread_t worker;
    open_ends(&ends_);
    CHECK(pthread_create(&worker, NULL, work, &ends_) == 0);
    handle(SIGUSR1, end);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        if (child == 0)
            _exit(STATUS);
        has_ended(child, "in a child");
        if ((child = fork()) == 0) {
            raise(SIGUSR1);
            abort();
        }
        has_ended(child, "in a handler of a child");
        if ((child = bare_fork()) == 0)
            _exit(STATUS);
        has_ended(child, "in a child of the kernel's");
        if ((child = vfork()) == 0)
            _exit(STATUS);
        has_ended(child, "in a child of vfork");
    }
    stopped = 1;
    CHECK(pthread_join(worker, NULL) == 0);
    /* What is the parent's still works. */
    turn(&ends_);
}

/* What a process tells the other of its end. */
struct address {
    uint32_t qp_num;
    union ibv_gid gid;
};

static struct ibv_qp *one_end(struct ends *ends, struct address *address)
{
    ends->context = open_device();
    ends->pd = ibv_alloc_pd(ends->context);
    CHECK(ends->pd);
    ends->cq = make_cq(ends->context, 64);
    ends->mr = ibv_reg_mr(ends->pd, ends->memory, sizeof ends->memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(ends->mr);
    ends->from = make_qp(ends->pd, ends->cq, 16);
    *address = (struct address){ends->from->qp_num, gid_of(ends->context)};
    return ends->from;
}

/* A process polls, posts several requests one by one, and ends without another call. All of them must arrive. */
static void after_posts(void)
{
    enum { POSTS = 8 };
    for (int round = 0; round < ROUNDS / 5; round++) {
        int up[2], down[2];
        CHECK(pipe(up) == 0 && pipe(down) == 0);
        struct ends *ends = calloc(1, sizeof *ends);
        struct address mine, theirs;
        pid_t child = fork();
        struct ibv_qp *qp = one_end(ends, &mine);
        CHECK(write(child ? down[1] : up[1], &mine, sizeof mine) == sizeof mine);
        CHECK(read(child ? up[0] : down[0], &theirs, sizeof theirs) == sizeof theirs);
        connect_qp(qp, theirs.qp_num, theirs.gid);
        char byte = 0;
        if (child == 0) {
            CHECK(read(down[0], &byte, 1) == 1);
            struct ibv_wc wc;
            CHECK(ibv_poll_cq(ends->cq, 1, &wc) == 0);
            for (int i = 0; i < POSTS; i++)
                CHECK(post_send(qp, i, ends->mr, ends->memory, 64) == 0);
            _exit(STATUS);
        }
        for (int i = 0; i < POSTS; i++)
            CHECK(post_recv(qp, i, ends->mr, ends->memory + 64 * i, 64) == 0);
        CHECK(write(down[1], &byte, 1) == 1);
        has_ended(child, "after posts");
        for (int i = 0; i < POSTS; i++)
            CHECK(next(ends->cq).status == IBV_WC_SUCCESS);
        CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(ends->cq) == 0 && ibv_dereg_mr(ends->mr) == 0);
        CHECK(ibv_dealloc_pd(ends->pd) == 0 && ibv_close_device(ends->context) == 0);
        for (int i = 0; i < 2; i++)
            CHECK(close(up[i]) == 0 && close(down[i]) == 0);
        free(ends);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    if (strcmp(argv[1], "handler") == 0)
        in_handlers();
    else if (strcmp(argv[1], "posted") == 0)
        after_posts();
    else
        in_children();
    puts("all have ended at once");
}
