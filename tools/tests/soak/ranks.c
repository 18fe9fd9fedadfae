/* Two ranks exchange messages for so many milliseconds: "ranks MILLISECONDS". One that is started as
 * "ranks MILLISECONDS MICROSECONDS" dies by SIGKILL so many microseconds after MPI_Init. */

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LENGTH = 100000 };

static void die_after(long microseconds)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec time = {.it_value = {microseconds / 1000000, microseconds % 1000000 * 1000 + 1}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &time, NULL))
        MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int count, char **arguments)
{
    static char out[LENGTH], in[LENGTH];
    int rank, more = 1;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (count > 2)
        die_after(atol(arguments[2]));
    double end = MPI_Wtime() + atof(arguments[1]) / 1000;
    for (int round = 0; more; round++) {
        memset(out, round, LENGTH);
        MPI_Sendrecv(out, LENGTH, MPI_CHAR, 1 - rank, 0, in, LENGTH, MPI_CHAR, 1 - rank, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (memcmp(out, in, LENGTH)) {
            fprintf(stderr, "message %d is wrong\n", round);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        more = MPI_Wtime() < end;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
