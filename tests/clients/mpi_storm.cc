// SPDX-License-Identifier: BSD-2-Clause
//
// Thousands of operations outstanding at once, of random lengths, completed in every way there is;
// cancelled receives.
#include <algorithm>
#include <utility>
#include <vector>

#include "tests/clients/client.h"
#include "tests/clients/parts.h"

namespace {

using client::Block;
using client::Random;
using client::seed;
using client::Session;

enum Way { kWaitall, kWaitany, kWaitsome, kTestany, kTestsome, kTestall, kTest, kWays };

/// Completes all requests in one way, and calls seen(i, status) once for each.
template <typename Seen>
void complete(Way way, std::vector<MPI_Request> &requests, const Seen &seen) {
  const int n = static_cast<int>(requests.size());
  std::vector<MPI_Status> statuses(n);
  std::vector<int> indices(n);
  MPI_Status status;
  int flag = 0;
  int index = 0;
  int count = 0;
  if (way == kWaitall || way == kTestall) {
    if (way == kWaitall) MPI_Waitall(n, requests.data(), statuses.data());
    while (way == kTestall && !flag) MPI_Testall(n, requests.data(), &flag, statuses.data());
    for (int i = 0; i < n; ++i) seen(i, statuses[i]);
    return;
  }
  for (int done = 0; done < n;) {
    switch (way) {
      case kWaitany:
        MPI_Waitany(n, requests.data(), &index, &status);
        EXPECT(index != MPI_UNDEFINED, "MPI_Waitany ends with %d of %d outstanding", n - done, n);
        seen(index, status);
        ++done;
        break;
      case kTestany:
        MPI_Testany(n, requests.data(), &index, &flag, &status);
        if (!flag) break;
        EXPECT(index != MPI_UNDEFINED, "MPI_Testany ends with %d of %d outstanding", n - done, n);
        seen(index, status);
        ++done;
        break;
      case kTest:
        for (int i = 0; i < n; ++i) {
          if (requests[i] == MPI_REQUEST_NULL) continue;
          MPI_Test(&requests[i], &flag, &status);
          if (flag) seen(i, status), ++done;
        }
        break;
      default:
        if (way == kWaitsome) {
          MPI_Waitsome(n, requests.data(), &count, indices.data(), statuses.data());
        } else {
          MPI_Testsome(n, requests.data(), &count, indices.data(), statuses.data());
        }
        EXPECT(count != MPI_UNDEFINED, "MPI_Waitsome ends with %d of %d outstanding", n - done, n);
        for (int i = 0; i < count; ++i) seen(indices[i], statuses[i]);
        done += count;
    }
  }
  for (const MPI_Request request : requests) {
    EXPECT(request == MPI_REQUEST_NULL, "a completed request is still there");
  }
}

/// Each rank exchanges `each` messages with every other, all at once; receives before, behind or
/// between the sends.
void storm(Session &session, int round, int each) {
  const int n = session.size();
  const int rank = session.rank();
  const std::size_t max = session.quick() ? 30000 : 100000;
  Random random(seed(session.seed(), rank, round));
  const auto length = [&](int from, int to, int i) {
    return Random(seed(session.seed(), round, from, to, i)).length(i % 50 == 0 ? max * 4 : max);
  };
  struct Operation {
    bool send;
    int peer, i;
    Block block;
  };
  std::vector<Operation> operations;
  for (int peer = 0; peer < n; ++peer) {
    for (int i = 0; i < each; ++i) {
      operations.push_back({true, peer, i, Block(length(rank, peer, i))});
      operations.push_back({false, peer, i, Block(length(peer, rank, i))});
    }
  }
  for (std::size_t i = operations.size(); i > 1; --i) {
    std::swap(operations[i - 1], operations[random.below(i)]);
  }
  if (round % 3 != 2) {
    std::stable_partition(operations.begin(), operations.end(), [&](const Operation &operation) {
      return operation.send == (round % 3 == 0);
    });
  }
  std::vector<MPI_Request> requests(operations.size());
  for (std::size_t k = 0; k < operations.size(); ++k) {
    Operation &operation = operations[k];
    const int bytes = static_cast<int>(operation.block.size());
    if (operation.send) {
      operation.block.fill(seed(round, rank, operation.peer, operation.i));
      MPI_Isend(operation.block.data(), bytes, MPI_BYTE, operation.peer, operation.i,
                MPI_COMM_WORLD, &requests[k]);
    } else {
      MPI_Irecv(operation.block.data(), bytes, MPI_BYTE, operation.peer, operation.i,
                MPI_COMM_WORLD, &requests[k]);
    }
  }
  std::vector<bool> complete_once(operations.size());
  complete(static_cast<Way>(round % kWays), requests, [&](int k, const MPI_Status &status) {
    Operation &operation = operations[k];
    EXPECT(!complete_once[k], "an operation has completed twice");
    complete_once[k] = true;
    if (operation.send) return;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    EXPECT(count == static_cast<int>(operation.block.size()) &&
               status.MPI_SOURCE == operation.peer && status.MPI_TAG == operation.i,
           "round %d: %d bytes from %d with tag %d, expected %zu from %d with tag %d", round, count,
           status.MPI_SOURCE, status.MPI_TAG, operation.block.size(), operation.peer, operation.i);
    operation.block.expect(operation.block.size(), seed(round, operation.peer, rank, operation.i),
                           "a message of the storm");
    if (operation.peer != rank) session.moved(operation.block.size());
  });
}

/// A receive without a message can be cancelled. A cancel that races with the message either fails,
/// or leaves the message for the next receive.
void cancel(Session &session) {
  const int n = session.size();
  const int to = (session.rank() + 1) % n;
  const int from = (session.rank() + n - 1) % n;
  constexpr int kMany = 300;
  std::vector<MPI_Request> requests(kMany);
  Block nowhere(100);
  for (int i = 0; i < kMany; ++i) {
    MPI_Irecv(nowhere.data(), 100, MPI_BYTE, i % 3 ? from : MPI_ANY_SOURCE, 20000 + i,
              MPI_COMM_WORLD, &requests[i]);
  }
  for (int i = kMany - 1; i >= 0; --i) {
    MPI_Status status;
    int cancelled = 0;
    MPI_Cancel(&requests[i]);
    MPI_Wait(&requests[i], &status);
    MPI_Test_cancelled(&status, &cancelled);
    EXPECT(cancelled, "receive %d, for which there is no message, was not cancelled", i);
  }
  nowhere.expect_guard(0, "a cancelled receive");
  MPI_Barrier(MPI_COMM_WORLD);
  int late = 0;
  for (int i = 0; i < kMany; ++i) {
    const int length = i % 7 == 0 ? 40000 : i;
    Block out(length);
    Block in(length);
    out.fill(seed(session.rank(), i, 3));
    MPI_Request request;
    MPI_Request sent;
    MPI_Status status;
    MPI_Irecv(in.data(), length, MPI_BYTE, from, i, MPI_COMM_WORLD, &request);
    MPI_Isend(out.data(), length, MPI_BYTE, to, i, MPI_COMM_WORLD, &sent);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    int cancelled = 0;
    MPI_Test_cancelled(&status, &cancelled);
    if (cancelled) {
      in.expect_guard(0, "a receive that was cancelled as its message came");
      MPI_Recv(in.data(), length, MPI_BYTE, from, i, MPI_COMM_WORLD, &status);
    } else {
      ++late;
    }
    in.expect(length, seed(from, i, 3), "a message whose first receive was cancelled");
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
  }
  int there = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
  EXPECT(!there, "a message is left over after %d of %d cancels were too late", late, kMany);
}

}  // namespace

void client::run_storm(Session &session) {
  const int total =
      session.quick() ? 800 : 1900;  // sends of each rank, and as many receives: stock takes 2048
  for (int round = 0; round < (session.quick() ? 1 : 2) * static_cast<int>(kWays); ++round) {
    // The ways that look at every request each time are for fewer of them.
    const bool slow =
        round % kWays == kWaitany || round % kWays == kTestany || round % kWays == kTest;
    storm(session, round, std::max(1, total / (slow ? 2 : 1) / session.size()));
  }
  cancel(session);
}
