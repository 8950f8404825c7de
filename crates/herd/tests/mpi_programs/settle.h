/*
 * To be called before MPI_Finalize. Ranks of MPICH 4.0 with UCX flush connections there that may still be made: a rank
 * that has done so waits in a barrier that answers no message, and one that needs its answer waits for ever. So all
 * answer messages for a while here.
 */
#include <mpi.h>
#include <unistd.h>

static void settle(void) {
    int found;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int look = 0; look < 100; look++) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        usleep(2000);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}
