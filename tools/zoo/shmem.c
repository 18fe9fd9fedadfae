/* Each processing element puts a block to the next one, and checks the block from the one before. */

#include <shmem.h>
#include <stdio.h>

enum { COUNT = 8192 };

int main(void)
{
    static int source[COUNT];
    shmem_init();
    int me = shmem_my_pe(), all = shmem_n_pes(), wrong = 0;
    int from = (me + all - 1) % all;
    int *block = shmem_malloc(sizeof source);
    for (int place = 0; place < COUNT; place++)
        source[place] = me * 77777 + place;
    shmem_barrier_all();
    shmem_int_put(block, source, COUNT, (me + 1) % all);
    shmem_barrier_all();
    for (int place = 0; place < COUNT; place++)
        wrong += block[place] != from * 77777 + place;
    if (me == 0 && !wrong)
        puts("all data is right");
    if (wrong)
        printf("element %d: %d integers are wrong\n", me, wrong);
    fflush(stdout);
    shmem_barrier_all();
    shmem_finalize();
    return wrong != 0;
}
