/* Forks in the middle of ibv_open_device: by another thread while the library registers its hooks for forks, and by a
 * signal handler, for which each allocation of the library stands. No lock of the parent may stop the child. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

#include "verbs.h"

enum { LIMIT_S = 60 };

static void wait_for(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (status != 0) {
        fprintf(stderr, "a child has ended with status %#x\n", status);
        _exit(1);
    }
}

/* A child opens a device of its own. */
static void open_and_exit(void)
{
    exchange(open_device());
    exit(0);
}

/* Whether registrations of hooks are interrupted. */
static int is_opening;

static void *fork_in_thread(void *unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        alarm(LIMIT_S);
        is_opening = 0;
        open_and_exit();
    }
    wait_for(child);
    return NULL;
}

static int registrations;

/* What pthread_atfork calls. It stands before that of libc. */
int __register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *object);
int __register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *object)
{
    static int (*of_libc)(void (*)(void), void (*)(void), void (*)(void), void *);
    if (!of_libc)
        *(void **)&of_libc = dlsym(RTLD_NEXT, "__register_atfork");
    if (is_opening) {
        pthread_t thread;
        registrations++;
        CHECK(pthread_create(&thread, NULL, fork_in_thread, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    return of_libc(before, parent, child, object);
}

static void registration(void)
{
    is_opening = 1;
    struct ibv_context *context = open_device();
    is_opening = 0;
    CHECK(registrations > 0);
    exchange(context);
}

void *__libc_malloc(size_t size);

static int allocations;
static __thread int forks;

/* It stands before that of libc: as if a signal had arrived here, whose handler forks. */
void *malloc(size_t size)
{
    if (forks) {
        forks = 0;
        allocations++;
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        wait_for(child);
        forks = 1;
    }
    return __libc_malloc(size);
}

static void handler(void)
{
    for (int times = 0; times < 2; times++) {
        forks = 1;
        struct ibv_context *context = open_device();
        exchange(context);
        CHECK(ibv_close_device(context) == 0);
        forks = 0;
    }
    CHECK(allocations > 0);
}

int main(int count, char **args)
{
    CHECK(count == 2);
    alarm(5 * LIMIT_S);
    if (strcmp(args[1], "registration") == 0)
        registration();
    else
        handler();
    puts("all have ended well");
}
