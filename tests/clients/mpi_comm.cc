// SPDX-License-Identifier: BSD-2-Clause
//
// Communicators: made in every way, used at the same time without each other's messages, and freed,
// many times.
#include <vector>

#include "tests/clients/client.h"
#include "tests/clients/parts.h"

namespace {

using client::seed;
using client::Session;

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

/// The members of a communicator reach each other: a sum, and a message around the ring.
void use(Session &session, MPI_Comm comm, const char *what) {
  const int n = size_of(comm);
  const int rank = rank_in(comm);
  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
  EXPECT(sum == n * (n - 1) / 2, "%s: the ranks sum up to %d", what, sum);
  client::Block out(5000);
  client::Block in(5000);
  out.fill(seed(rank, n));
  MPI_Sendrecv(out.data(), 5000, MPI_BYTE, (rank + 1) % n, 1, in.data(), 5000, MPI_BYTE,
               (rank + n - 1) % n, 1, comm, MPI_STATUS_IGNORE);
  in.expect(5000, seed((rank + n - 1) % n, n), what);
  if (n > 1) session.moved(5000);
}

/// The same tag at the same time on several communicators: each receive takes the message of its
/// own, in whatever order they arrive.
void apart(Session &session) {
  constexpr int kMany = 40;
  const int n = session.size();
  const int to = (session.rank() + 1) % n;
  const int from = (session.rank() + n - 1) % n;
  std::vector<MPI_Comm> comms(kMany);
  std::vector<MPI_Request> requests(kMany);
  for (int i = 0; i < kMany; ++i) {
    if (i % 2) {
      MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    } else {
      MPI_Request request;
      MPI_Comm_idup(MPI_COMM_WORLD, &comms[i], &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  }
  std::vector<int> out(kMany);
  for (int i = 0; i < kMany; ++i) {
    out[i] = i;
    MPI_Isend(&out[i], 1, MPI_INT, to, 4, comms[i], &requests[i]);
  }
  for (int i = kMany - 1; i >= 0; --i) {
    int got = -1;
    MPI_Status status;
    MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[i], &status);
    EXPECT(got == i && status.MPI_SOURCE == from && status.MPI_TAG == 4,
           "communicator %d has heard the message of %d", i, got);
  }
  MPI_Waitall(kMany, requests.data(), MPI_STATUSES_IGNORE);
  for (MPI_Comm &comm : comms) MPI_Comm_free(&comm);
}

void groups(Session &session) {
  const int n = session.size();
  const int rank = session.rank();
  MPI_Comm comm;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 3, -rank, &comm);
  use(session, comm, "MPI_Comm_split");
  MPI_Comm_free(&comm);
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, 0, &comm);
  EXPECT((comm == MPI_COMM_NULL) == (rank == 0), "MPI_UNDEFINED has a communicator");
  if (comm != MPI_COMM_NULL) {
    use(session, comm, "MPI_Comm_split without rank 0");
    MPI_Comm_free(&comm);
  }
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
  use(session, comm, "MPI_Comm_split_type");
  MPI_Comm_free(&comm);

  // All but the first, backwards.
  std::vector<int> members;
  for (int r = n - 1; r > 0; --r) members.push_back(r);
  MPI_Group all, some;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
  MPI_Comm_create(MPI_COMM_WORLD, some, &comm);
  EXPECT((comm == MPI_COMM_NULL) == (rank == 0), "MPI_Comm_create: wrong members");
  if (comm != MPI_COMM_NULL) {
    EXPECT(rank_in(comm) == n - 1 - rank, "MPI_Comm_create: rank %d of the reversed group",
           rank_in(comm));
    use(session, comm, "MPI_Comm_create");
    MPI_Comm_free(&comm);
  }
  if (rank > 0) {  // only its members call it
    MPI_Comm_create_group(MPI_COMM_WORLD, some, 17, &comm);
    use(session, comm, "MPI_Comm_create_group");
    MPI_Comm_free(&comm);
  }
  MPI_Group_free(&some);
  MPI_Group_free(&all);
}

/// Two halves with an intercommunicator between them, which then merge.
void across(Session &session) {
  const int n = session.size();
  if (n < 2) return;
  const int side = session.rank() % 2;
  MPI_Comm half, between, whole;
  MPI_Comm_split(MPI_COMM_WORLD, side, session.rank(), &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 5, &between);
  int remote = 0;
  MPI_Comm_remote_size(between, &remote);
  EXPECT(remote == (side ? (n + 1) / 2 : n / 2), "MPI_Intercomm_create: %d on the other side",
         remote);
  int sum = 0;
  const int mine = session.rank();
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, between);
  int want = 0;
  for (int r = 1 - side; r < n; r += 2) want += r;
  EXPECT(sum == want, "MPI_Allreduce across: %d, expected %d", sum, want);
  if (rank_in(half) < remote) {
    int theirs = -1;
    MPI_Sendrecv(&mine, 1, MPI_INT, rank_in(half), 6, &theirs, 1, MPI_INT, rank_in(half), 6,
                 between, MPI_STATUS_IGNORE);
    EXPECT(theirs == 2 * rank_in(half) + 1 - side, "across: heard rank %d", theirs);
  }
  MPI_Intercomm_merge(between, side, &whole);
  EXPECT(size_of(whole) == n, "MPI_Intercomm_merge: %d of %d", size_of(whole), n);
  use(session, whole, "MPI_Intercomm_merge");
  MPI_Comm_free(&whole);
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
}

void topologies(Session &session) {
  const int n = session.size();
  int dims[2] = {0, 0};
  const int periods[2] = {1, 0};
  MPI_Dims_create(n, 2, dims);
  MPI_Comm grid, row;
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid);
  use(session, grid, "MPI_Cart_create");
  const int keep[2] = {0, 1};
  MPI_Cart_sub(grid, keep, &row);
  EXPECT(size_of(row) == dims[1], "MPI_Cart_sub: %d in a row of %d", size_of(row), dims[1]);
  use(session, row, "MPI_Cart_sub");
  MPI_Comm_free(&row);
  MPI_Comm_free(&grid);
  const int neighbour = (session.rank() + 1) % n;
  const int before = (session.rank() + n - 1) % n;
  MPI_Comm graph;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, MPI_UNWEIGHTED, 1, &neighbour,
                                 MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
  const int mine = session.rank();
  int got = -1;
  MPI_Neighbor_alltoall(&mine, 1, MPI_INT, &got, 1, MPI_INT, graph);
  EXPECT(got == before, "a directed ring: heard %d, expected %d", got, before);
  MPI_Comm_free(&graph);
}

}  // namespace

void client::run_comm(Session &session) {
  use(session, MPI_COMM_WORLD, "MPI_COMM_WORLD");
  use(session, MPI_COMM_SELF, "MPI_COMM_SELF");
  for (int i = 0; i < (session.quick() ? 3 : 30); ++i) {
    groups(session);
    apart(session);
    across(session);
    topologies(session);
  }
}
