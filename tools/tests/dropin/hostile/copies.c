/* A program with a bug of its own: while a thread sends, it copies bytes to a page that is not mapped for writing. As
 * "memcpy" by the C library, as "movsb" by an instruction, with the value in r8 that once exempted softroce's copies.
 * The signal must end it, as it would without softroce. */

#include <pthread.h>
#include <sys/mman.h>

#include "verbs.h"

enum { LENGTH = 4096, MESSAGES = 1000 };

static int exchanged;

static void *exchange_forever(void *context)
{
    for (;;) {
        exchange(context);
        __atomic_fetch_add(&exchanged, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void copy(const char *how, char *to, const char *from)
{
    if (!strcmp(how, "memcpy")) {
        memcpy(to, from, LENGTH);
        return;
    }
#ifdef __x86_64__
    register unsigned long marker __asm__("r8") = 0x9d0b61f357c2e84a;
    unsigned long length = LENGTH;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length) : "r"(marker) : "memory");
#else
    memcpy(to, from, LENGTH);
#endif
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    struct ibv_context *context = open_device();
    char *missing = mmap(NULL, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *from = calloc(1, LENGTH);
    CHECK(missing != MAP_FAILED && from);
    /* This thread sends too, so its registers have seen the copies of softroce. */
    exchange(context);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, exchange_forever, context) == 0);
    while (__atomic_load_n(&exchanged, __ATOMIC_ACQUIRE) < MESSAGES)
        ;
    copy(argv[1], missing, from);
    puts("the program goes on");
}
