/* Opens devices, sends a message on each, and closes them again: no device leaves memory behind, not even reachable
 * memory, which LeakSanitizer ignores. The runtime of AddressSanitizer counts the bytes. The library keeps the places of
 * a thousand destroyed objects of each type, to recognize uses of them; so many devices come first. */

#include "../tests/dropin/hostile/verbs.h"

/* Of sanitizer/allocator_interface.h, which gcc does not install. */
size_t __sanitizer_get_current_allocated_bytes(void);

enum { FIRST = 1100, MORE = 100 };

static void open_and_close(int devices)
{
    while (devices-- > 0) {
        struct ibv_context *context = open_device();
        exchange(context);
        CHECK(ibv_close_device(context) == 0);
    }
}

int main(void)
{
    open_and_close(FIRST);
    size_t before = __sanitizer_get_current_allocated_bytes();
    open_and_close(MORE);
    size_t after = __sanitizer_get_current_allocated_bytes();
    printf("%zu bytes after %d devices, %zu after %d\n", before, FIRST, after, FIRST + MORE);
    CHECK(after == before);
}
