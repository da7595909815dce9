// SPDX-License-Identifier: BSD-2-Clause
//
// MPI_THREAD_MULTIPLE: threads that send, receive, probe and do collectives at once, on shared and
// on own communicators.
#include <thread>
#include <vector>

#include "tests/clients/client.h"
#include "tests/clients/parts.h"

namespace {

using client::Block;
using client::Random;
using client::seed;
using client::Session;

constexpr int kThreads = 4;

template <typename Work>
void in_threads(int many, const Work &work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < many; ++t) threads.emplace_back([&work, t] { work(t); });
  for (std::thread &thread : threads) thread.join();
}

std::size_t length(int from, int thread, int i) {
  return Random(seed(from, thread, i)).length(50000);
}

/// Each thread has its tag and exchanges with the thread of that number in the neighbours.
void by_tag(Session &session, int rounds) {
  const int n = session.size();
  const int to = (session.rank() + 1) % n;
  const int from = (session.rank() + n - 1) % n;
  in_threads(kThreads, [&](int t) {
    for (int i = 0; i < rounds; ++i) {
      Block out(length(session.rank(), t, i));
      Block in(length(from, t, i));
      out.fill(seed(session.rank(), t, i));
      MPI_Sendrecv(out.data(), static_cast<int>(out.size()), MPI_BYTE, to, t, in.data(),
                   static_cast<int>(in.size()), MPI_BYTE, i % 2 ? from : MPI_ANY_SOURCE, t,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      in.expect(in.size(), seed(from, t, i), "a message between threads");
    }
  });
  for (int t = 0; t < kThreads; ++t) {
    for (int i = 0; i < rounds; ++i) session.moved(length(from, t, i));
  }
}

/// Half of the threads send to every rank. The others take what arrives, by MPI_Mprobe, until each
/// has had its share.
void matched_probes(Session &session, int rounds) {
  const int n = session.size();
  in_threads(kThreads, [&](int t) {
    const int half = kThreads / 2;
    if (t < half) {
      for (int i = 0; i < rounds; ++i) {
        for (int to = 0; to < n; ++to) {
          Block out(length(session.rank(), t, i));
          out.fill(seed(session.rank(), t, i));
          MPI_Send(out.data(), static_cast<int>(out.size()), MPI_BYTE, to, 100 + t * rounds + i,
                   MPI_COMM_WORLD);
        }
      }
      return;
    }
    for (int k = 0; k < rounds * n; ++k) {
      MPI_Message message;
      MPI_Status status;
      MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
      int count = 0;
      MPI_Get_count(&status, MPI_BYTE, &count);
      const int sender = (status.MPI_TAG - 100) / rounds;
      const int i = (status.MPI_TAG - 100) % rounds;
      const std::size_t want = length(status.MPI_SOURCE, sender, i);
      EXPECT(sender >= 0 && sender < half && count == static_cast<int>(want),
             "MPI_Mprobe in threads: %d bytes with tag %d", count, status.MPI_TAG);
      Block in(want);
      MPI_Mrecv(in.data(), count, MPI_BYTE, &message, MPI_STATUS_IGNORE);
      in.expect(want, seed(status.MPI_SOURCE, sender, i), "a message taken by any thread");
    }
  });
  int there = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
  EXPECT(!there, "a message is left over");
}

/// A communicator for each thread: collectives of one, messages of another, all at once.
void own_communicators(Session &session, int rounds) {
  std::vector<MPI_Comm> comms(kThreads);
  for (MPI_Comm &comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  const int n = session.size();
  in_threads(kThreads, [&](int t) {
    std::vector<int> out(500), sum(500), all(500 * static_cast<std::size_t>(n));
    for (int i = 0; i < rounds; ++i) {
      for (int k = 0; k < 500; ++k) out[k] = session.rank() + k * (t + 1) + i;
      if ((i + t) % 2) {
        MPI_Allreduce(out.data(), sum.data(), 500, MPI_INT, MPI_SUM, comms[t]);
        for (int k = 0; k < 500; ++k) {
          EXPECT(sum[k] == n * (n - 1) / 2 + n * (k * (t + 1) + i),
                 "MPI_Allreduce in thread %d: wrong sum", t);
        }
      } else {
        MPI_Allgather(out.data(), 500, MPI_INT, all.data(), 500, MPI_INT, comms[t]);
        for (int k = 0; k < 500 * n; ++k) {
          EXPECT(all[k] == k / 500 + k % 500 * (t + 1) + i,
                 "MPI_Allgather in thread %d: wrong element", t);
        }
      }
    }
  });
  for (MPI_Comm &comm : comms) MPI_Comm_free(&comm);
}

/// One thread waits in MPI_Recv while the others do all their work; its message comes last.
void blocked(Session &session, int rounds) {
  const int n = session.size();
  const int to = (session.rank() + 1) % n;
  const int from = (session.rank() + n - 1) % n;
  std::thread waiting([&] {
    int got = 0;
    MPI_Recv(&got, 1, MPI_INT, from, 999, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT(got == from, "the thread that waited has got %d", got);
  });
  by_tag(session, rounds);
  const int mine = session.rank();
  MPI_Send(&mine, 1, MPI_INT, to, 999, MPI_COMM_WORLD);
  waiting.join();
}

}  // namespace

void client::run_threads(Session &session) {
  const int rounds = session.quick() ? 8 : 300;
  by_tag(session, rounds);
  matched_probes(session, rounds);
  own_communicators(session, rounds);
  blocked(session, rounds);
}
