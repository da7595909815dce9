// SPDX-License-Identifier: BSD-2-Clause
// Every rank tells the next one who it is, and all add up their numbers. It is the shortest program
// that notices a rank which hears itself. Each rank prints "right" or "wrong: ..."; the exit status
// is that of MPI, so that a wrong answer is never taken for a refusal.
#define OMPI_SKIP_MPICXX 1  // the C interface alone
#include <mpi.h>

#include <cstdio>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int left = (rank + size - 1) % size, right = (rank + 1) % size;
  int wrong = 0;
  for (int round = 0; round < 20; ++round) {
    const int own = 100 * round + rank, expected = 100 * round + left;
    int heard = -1, sum = -1;
    MPI_Sendrecv(&own, 1, MPI_INT, right, round, &heard, 1, MPI_INT, left, round, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    const int right_sum = size * 100 * round + size * (size - 1) / 2;
    if (heard == expected && sum == right_sum) continue;
    if (++wrong == 1)
      std::printf("rank %d wrong: received %d, should be %d; sum %d, should be %d\n", rank, heard,
                  expected, sum, right_sum);
  }
  if (wrong == 0) std::printf("rank %d of %d right\n", rank, size);
  std::fflush(stdout);
  MPI_Finalize();
  return 0;
}
