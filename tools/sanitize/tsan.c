/* Tells ThreadSanitizer about synchronization that it does not see: the toolchain's standard library is not
 * instrumented, and the runtime has no model of fences. tools/sanitize.sh links this file with `--wrap`: a function
 * `__wrap_f` here takes the place of `f`, which is `__real_f` here. The script defines the mangled names of std.
 *
 * The fast paths of std's locks are inlined into our code and instrumented. The slow paths are not, so each of them is
 * followed by the acquire that it makes, or preceded by the release.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void __tsan_acquire(void *at);
void __tsan_release(void *at);

/* As the runtime numbers them. */
enum { RELAXED, CONSUME, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST };

/* ---- locks ---- */

#define JOIN(a, b) a##b
#define REAL(name) JOIN(__real_, name)
#define WRAP(name) JOIN(__wrap_, name)

/* `fn lock_contended(&self)` of a mutex, and those of a read-write lock. */
#define CONTENDED(name)                                                                        \
    void REAL(name)(void *lock);                                                               \
    void WRAP(name)(void *lock)                                                                \
    {                                                                                          \
        REAL(name)(lock);                                                                      \
        __tsan_acquire(lock);                                                                  \
    }

CONTENDED(MUTEX_LOCK_CONTENDED)
CONTENDED(RWLOCK_READ_CONTENDED)
CONTENDED(RWLOCK_WRITE_CONTENDED)

/* `fn wait(&self, mutex: &Mutex)` */
void REAL(CONDVAR_WAIT)(void *condvar, void *mutex);
void WRAP(CONDVAR_WAIT)(void *condvar, void *mutex)
{
    __tsan_release(mutex);
    REAL(CONDVAR_WAIT)(condvar, mutex);
    __tsan_acquire(mutex);
}

/* `fn wait_timeout(&self, mutex: &Mutex, timeout: Duration) -> bool` */
bool REAL(CONDVAR_WAIT_TIMEOUT)(void *condvar, void *mutex, uint64_t secs, uint32_t nanos);
bool WRAP(CONDVAR_WAIT_TIMEOUT)(void *condvar, void *mutex, uint64_t secs, uint32_t nanos)
{
    __tsan_release(mutex);
    bool woken = REAL(CONDVAR_WAIT_TIMEOUT)(condvar, mutex, secs, nanos);
    __tsan_acquire(mutex);
    return woken;
}

/* `fn call(&self, ignore_poisoning: bool, f: &mut dyn FnMut(&OnceState))`: the closure is two words. */
void REAL(ONCE_CALL)(void *once, bool ignore_poisoning, void *closure, void *vtable);
void WRAP(ONCE_CALL)(void *once, bool ignore_poisoning, void *closure, void *vtable)
{
    REAL(ONCE_CALL)(once, ignore_poisoning, closure, vtable);
    __tsan_acquire(once);
    __tsan_release(once);
}

/* ---- threads ---- */

/* `fn decrement_num_running_threads(&self, panic: bool)` of `ScopeData`, for which the end of a scope waits. It has
 * three words, in an order that the compiler chooses. */
void REAL(SCOPE_DECREMENT)(char *scope, bool panic);
void WRAP(SCOPE_DECREMENT)(char *scope, bool panic)
{
    for (size_t word = 0; word < 3; word++)
        __tsan_release(scope + 8 * word);
    REAL(SCOPE_DECREMENT)(scope, panic);
}

/* ---- reference counts ---- */

/* The last owner of an `Arc` has an acquire fence behind its release decrement. Both in one are the same to it. */
uint64_t __real___tsan_atomic64_fetch_sub(volatile uint64_t *at, uint64_t less, int order);
uint64_t __wrap___tsan_atomic64_fetch_sub(volatile uint64_t *at, uint64_t less, int order)
{
    return __real___tsan_atomic64_fetch_sub(at, less, order == RELEASE ? ACQ_REL : order);
}
