// SPDX-License-Identifier: BSD-2-Clause
//
// More receives at once than any queue is long: all are posted before the first message leaves, and
// more messages wait for receives than a completion queue has entries.
#include <cstdint>
#include <vector>

#include "tests/clients/client.h"
#include "tests/clients/parts.h"

namespace {

using client::seed;
using client::Session;

constexpr int kTags = 7;

/// `many` messages from each rank to the next one, in order for each tag.
void flood(Session &session, int many, bool receives_first) {
  const int n = session.size();
  const int from = (session.rank() + n - 1) % n;
  const int to = (session.rank() + 1) % n;
  std::vector<std::uint64_t> in(many), out(many);
  std::vector<MPI_Request> receives(many), sends(many);
  const auto receive_all = [&] {
    for (int i = 0; i < many; ++i)
      MPI_Irecv(&in[i], 1, MPI_UINT64_T, from, i % kTags, MPI_COMM_WORLD, &receives[i]);
  };
  if (receives_first) receive_all();
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < many; ++i) {
    out[i] = seed(session.rank(), to, i);
    MPI_Isend(&out[i], 1, MPI_UINT64_T, to, i % kTags, MPI_COMM_WORLD, &sends[i]);
  }
  if (!receives_first) {
    MPI_Barrier(MPI_COMM_WORLD);
    receive_all();
  }
  MPI_Waitall(many, receives.data(), MPI_STATUSES_IGNORE);
  MPI_Waitall(many, sends.data(), MPI_STATUSES_IGNORE);
  for (int i = 0; i < many; ++i)
    EXPECT(in[i] == seed(from, session.rank(), i), "message %d of %d is another one", i, many);
  session.moved(many * sizeof(std::uint64_t));
}

}  // namespace

void client::run_flood(Session &session) {
  flood(session, 50000, true);
  flood(session, 10000, false);
}
