/* A program with handlers of SIGSEGV and SIGBUS. Each must be entered as without softroce, by the program's own faults
 * only, while a missing page of registered memory ends requests with an error. As "by-libc" it calls `sigaction` of libc
 * past all libraries that are loaded before it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "verbs.h"

enum { PAGE = 4096 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static char *missing;
static sigjmp_buf recovered;
static volatile int calls;
static int (*set)(int, const struct sigaction *, struct sigaction *) = sigaction;

/* A request that reads registered pages which the program has forbidden, or a file has lost. */
static void request_fails(void)
{
    FILE *temporary = tmpfile();
    CHECK(temporary && ftruncate(fileno(temporary), PAGE) == 0);
    char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(temporary), 0);
    CHECK(page != MAP_FAILED);
    struct ibv_mr *mr = ibv_reg_mr(pd, page, PAGE, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    for (int cut = 0; cut < 2; cut++) {
        if (cut)
            CHECK(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0 &&
                  ftruncate(fileno(temporary), 0) == 0);
        else
            CHECK(mprotect(page, PAGE, PROT_NONE) == 0);
        struct ibv_cq *cq = make_cq(context, 4);
        struct ibv_qp *from = make_qp(pd, cq, 1), *to = make_qp(pd, cq, 1);
        connect_qp(from, to->qp_num, gid_of(context));
        connect_qp(to, from->qp_num, gid_of(context));
        CHECK(post_send(from, 1, mr, page, PAGE) == 0);
        CHECK(next(cq).status == IBV_WC_LOC_PROT_ERR);
        CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0 && ibv_destroy_cq(cq) == 0);
    }
    CHECK(ibv_dereg_mr(mr) == 0 && munmap(page, PAGE) == 0 && fclose(temporary) == 0);
}

static void fault(void)
{
    memset(missing, 1, 64);
}

static int blocks(int signal)
{
    sigset_t blocked;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0);
    return sigismember(&blocked, signal);
}

/* What the handler expects. */
static int expects_blocked, expects_usr1, expects_stack;
static char stack[64 * 1024];

static void recover(int number, siginfo_t *info, void *frame)
{
    char *here = __builtin_frame_address(0);
    CHECK(number == SIGSEGV && info->si_addr == missing && info->si_code == SEGV_ACCERR && frame);
    CHECK(blocks(SIGSEGV) == expects_blocked && blocks(SIGUSR1) == expects_usr1);
    CHECK((here >= stack && here < stack + sizeof stack) == expects_stack);
    calls++;
    siglongjmp(recovered, 1);
}

static void recover_plain(int number)
{
    CHECK(number == SIGSEGV);
    calls++;
    siglongjmp(recovered, 1);
}

static void returns(int number)
{
    CHECK(number == SIGSEGV || number == SIGBUS);
    CHECK(mprotect(missing, PAGE, PROT_READ | PROT_WRITE) == 0);
    calls++;
}

static void recovers(void)
{
    int before = calls;
    if (!sigsetjmp(recovered, 1))
        fault();
    CHECK(calls == before + 1 && !blocks(SIGSEGV) && !blocks(SIGUSR1));
}

/* The kernel shows the handler that it enters: softroce's, as long as memory is registered with one. */
static void is_behind(void *handler)
{
#ifdef __x86_64__
    struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        unsigned long mask;
    } kernel;
    CHECK(syscall(SYS_rt_sigaction, SIGSEGV, NULL, &kernel, 8) == 0 && kernel.handler != handler);
#else
    (void)handler;
#endif
}

static void with_flags(int flags)
{
    struct sigaction action = {.sa_sigaction = recover, .sa_flags = SA_SIGINFO | flags}, read;
    sigaddset(&action.sa_mask, SIGUSR1);
    CHECK(set(SIGSEGV, &action, NULL) == 0);
    expects_blocked = !(flags & SA_NODEFER), expects_usr1 = 1, expects_stack = !!(flags & SA_ONSTACK);
    recovers();
    request_fails();
    if (!(flags & SA_RESETHAND))
        is_behind((void *)recover);
    /* By the functions of libc, which the program calls. */
    CHECK(sigaction(SIGSEGV, NULL, &read) == 0);
    int once = !!(flags & SA_RESETHAND);
    CHECK(once ? read.sa_handler == SIG_DFL : read.sa_sigaction == recover);
    const int shown = SA_SIGINFO | SA_NODEFER | SA_RESETHAND | SA_ONSTACK | SA_RESTART;
    CHECK((read.sa_flags & shown) == action.sa_flags);
    CHECK(sigismember(&read.sa_mask, SIGUSR1) == 1 && sigismember(&read.sa_mask, SIGUSR2) == 0);
    if (!once)
        recovers();
}

/* How a child ends in which `what` runs. */
static int child(void (*what)(void))
{
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        what();
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void raise_it(void)
{
    raise(SIGSEGV);
}

static int dies(void (*what)(void))
{
    int status = child(what);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void by_other_functions(void)
{
    CHECK(signal(SIGSEGV, recover_plain) == SIG_DFL);
    recovers();
    CHECK(signal(SIGSEGV, returns) == recover_plain && ssignal(SIGSEGV, SIG_DFL) == returns);
    CHECK(dies(fault) && dies(raise_it));
    CHECK(sigset(SIGSEGV, recover_plain) == SIG_DFL);
    recovers();
    request_fails();
    is_behind((void *)recover_plain);
    CHECK(sigset(SIGSEGV, SIG_HOLD) == recover_plain && blocks(SIGSEGV));
    CHECK(sigset(SIGSEGV, SIG_IGN) == SIG_HOLD && !blocks(SIGSEGV));
    /* A sanitizer has a handler of it already. */
    CHECK(signal(SIGBUS, returns) != SIG_ERR && signal(SIGBUS, SIG_DFL) == returns);
    raise_it();
    CHECK(dies(fault));
    CHECK(sysv_signal(SIGSEGV, returns) == SIG_IGN);
    /* Once: then the default action again. */
    int before = calls;
    fault();
    CHECK(calls == before + 1);
    CHECK(mprotect(missing, PAGE, PROT_NONE) == 0);
    CHECK(dies(fault) && signal(SIGSEGV, SIG_DFL) == SIG_DFL);
    request_fails();
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    missing = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(missing != MAP_FAILED);
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    CHECK(sigaltstack(&other, NULL) == 0);
    if (!strcmp(argv[1], "by-libc")) {
        void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        CHECK(libc);
        *(void **)&set = dlsym(libc, "sigaction");
        CHECK(set);
    }
    context = open_device();
    pd = ibv_alloc_pd(context);
    CHECK(pd);
    if (!strcmp(argv[1], "by-libc")) {
        /* Before the first registration, which finds it. */
        with_flags(SA_ONSTACK);
        puts("every handler was entered as it should be");
        return 0;
    }
    with_flags(0);
    with_flags(SA_NODEFER);
    with_flags(SA_ONSTACK);
    with_flags(SA_RESETHAND | SA_RESTART);
    CHECK(dies(fault));
    CHECK(signal(SIGSEGV, SIG_DFL) == SIG_DFL);
    by_other_functions();
    puts("every handler was entered as it should be");
}
