/* Habits of programs around the device: how they start, how they treat descriptors, threads and limits. Each ends with
 * a message between two queue pairs. */

#define _GNU_SOURCE
#include <linux/netlink.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "verbs.h"

extern char **environ;

enum { THREADS = 500, FILES = 100 };

static char *self;

static void wait_for(pid_t pid)
{
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Daemons close every descriptor that they may have inherited. */
static void close_all(void)
{
    close_range(3, ~0U, 0);
    exchange(open_device());
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    CHECK(clock_gettime(clock, &now) == 0);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* The program closes every descriptor while its device is open, and its own files get the numbers. The device ends as an
 * adapter that has failed: requests are flushed, and an event reports it. */
static void close_device(void)
{
    char memory[8];
    struct ibv_context *context = open_device();
    exchange(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    struct ibv_cq *cq = make_cq(context, 4);
    struct ibv_qp *qp = make_qp(pd, cq, 1);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr && to_init(qp) == 0 && post_recv(qp, 7, mr, memory, sizeof memory) == 0);
    close_range(3, ~0U, 0);
    int files[FILES][2];
    for (int n = 0; n < FILES; n++)
        CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, files[n]) == 0);
    /* The device checks its descriptors every millisecond. */
    poll(NULL, 0, 5);
    struct ibv_wc wc = next(cq);
    CHECK(wc.wr_id == 7 && wc.status == IBV_WC_WR_FLUSH_ERR);
    struct ibv_async_event event;
    do {
        /* The interface of a TAP goes first. */
        CHECK(ibv_get_async_event(context, &event) == 0);
        ibv_ack_async_event(&event);
    } while (event.event_type != IBV_EVENT_DEVICE_FATAL);
    /* As with adapters, an empty queue stays empty. */
    CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
    REFUSED(EIO, post_recv(qp, 8, mr, memory, sizeof memory));
    FAILS(EIO, ibv_create_cq(context, 4, NULL, NULL, 0));
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(context) == 0);
    /* The program's files are still open. */
    for (int n = 0; n < FILES; n++)
        for (int side = 0; side < 2; side++)
            CHECK(write(files[n][side], "mine", 4) == 4);
    exchange(open_device());
}

/* Returns the number of a descriptor for changes of interfaces, or 0. */
static int watch(void)
{
    for (int fd = 3; fd < 256; fd++) {
        int domain = 0, protocol = 0;
        socklen_t length = sizeof(int);
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_NETLINK &&
            getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
            protocol == NETLINK_ROUTE)
            return fd;
    }
    return 0;
}

/* The program closes the descriptor that reports changes of interfaces. The device opens it again. */
static void close_watch(void)
{
    struct ibv_context *context = open_device();
    exchange(context);
    CHECK(watch());
    close(watch());
    CHECK(!watch());
    double until = seconds(CLOCK_MONOTONIC) + 20;
    while (!watch()) {
        exchange(context);
        CHECK(seconds(CLOCK_MONOTONIC) < until);
    }
    /* No thread spins. */
    double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    poll(NULL, 0, 300);
    CHECK(seconds(CLOCK_PROCESS_CPUTIME_ID) - before < 0.1);
}

/* The program starts others while its device is open. */
static void start_others(void)
{
    struct ibv_context *context = open_device();
    char *arguments[] = {self, "plain", NULL};
    pid_t pid = vfork();
    if (pid == 0) {
        execve(self, arguments, environ);
        _exit(1);
    }
    wait_for(pid);
    pid = vfork();
    if (pid == 0) {
        execve("/nonexistent", arguments, environ);
        _exit(0);
    }
    wait_for(pid);
    CHECK(posix_spawn(&pid, self, NULL, NULL, arguments, environ) == 0);
    wait_for(pid);
    exchange(context);
}

/* The child is the daemon. The device stays with the parent, so the child opens its own. */
static void go_to_background(void)
{
    struct ibv_context *context = open_device();
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(setsid() > 0);
        FAILS(EIO, ibv_alloc_pd(context));
        exchange(open_device());
        exit(0);
    }
    wait_for(pid);
}

static struct ibv_context *shared;

static void *exchange_once(void *unused)
{
    exchange(shared);
    return unused;
}

static void many_threads(void)
{
    static pthread_t threads[THREADS];
    pthread_attr_t attr;
    shared = open_device();
    CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, 256 * 1024) == 0);
    for (int n = 0; n < THREADS; n++)
        CHECK(pthread_create(&threads[n], &attr, exchange_once, NULL) == 0);
    for (int n = 0; n < THREADS; n++)
        CHECK(pthread_join(threads[n], NULL) == 0);
}

static void limit(int resource, rlim_t to)
{
    struct rlimit both = {to, to};
    CHECK(setrlimit(resource, &both) == 0);
    exchange(open_device());
}

int main(int count, char **arguments)
{
    self = arguments[0];
    const char *habit = count > 1 ? arguments[1] : "plain";
    if (!strcmp(habit, "close"))
        close_all();
    else if (!strcmp(habit, "close device"))
        close_device();
    else if (!strcmp(habit, "close watch"))
        close_watch();
    else if (!strcmp(habit, "start"))
        start_others();
    else if (!strcmp(habit, "daemon"))
        go_to_background();
    else if (!strcmp(habit, "threads"))
        many_threads();
    else if (!strcmp(habit, "descriptors"))
        limit(RLIMIT_NOFILE, 64);
    else if (!strcmp(habit, "locked"))
        limit(RLIMIT_MEMLOCK, 64 * 1024);
    else if (!strcmp(habit, "address space"))
        limit(RLIMIT_AS, 512 * 1024 * 1024);
    else
        exchange(open_device());
    puts("the message has arrived");
}
