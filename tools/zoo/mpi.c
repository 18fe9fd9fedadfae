/* Each rank sends all others a block by MPI_Alltoall and by MPI_Put, and checks every integer that arrives. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 16384 };

/* The integer at a place in the array of a rank. */
static int value(int rank, int place)
{
    return rank * 1000003 + place;
}

int main(int count, char **arguments)
{
    int rank, ranks, provided, wrong = 0;
    MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int *out = malloc(sizeof(int) * ranks * COUNT), *in = calloc(ranks * COUNT, sizeof(int));
    for (int place = 0; place < ranks * COUNT; place++)
        out[place] = value(rank, place);
    MPI_Alltoall(out, COUNT, MPI_INT, in, COUNT, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++)
        for (int place = 0; place < COUNT; place++)
            wrong += in[from * COUNT + place] != value(from, rank * COUNT + place);

    MPI_Win window;
    int *exposed;
    MPI_Win_allocate(sizeof(int) * ranks * COUNT, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                     &exposed, &window);
    MPI_Win_lock_all(0, window);
    for (int to = 0; to < ranks; to++)
        MPI_Put(out, COUNT, MPI_INT, to, rank * COUNT, COUNT, MPI_INT, window);
    MPI_Win_flush_all(window);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++)
        for (int place = 0; place < COUNT; place++)
            wrong += exposed[from * COUNT + place] != value(from, place);
    MPI_Win_free(&window);
    MPI_Finalize();
    if (wrong) {
        printf("rank %d: %d integers are wrong\n", rank, wrong);
        return 1;
    }
    if (rank == 0)
        puts("all data is right");
    return 0;
}
