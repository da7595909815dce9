// SPDX-License-Identifier: BSD-2-Clause
//
// Latency of 8 bytes (half of a round trip) and bandwidth of 1 MiB (windows of 16) between ranks 0
// and 1; what arrives is checked at the end of each. Prints "latency_us_8 N" and "bandwidth_MBps_1M
// N".
#include <cstdio>
#include <vector>

#include "tests/clients/client.h"
#include "tests/clients/parts.h"

namespace {

double latency(const client::Session &session, int length, int rounds) {
  const int other = 1 - session.rank();
  std::vector<char> buffer(length);
  double began = 0;
  for (int i = -rounds / 10; i < rounds; ++i) {
    if (i == 0) began = MPI_Wtime();
    if (session.rank() == 0) {
      client::fill(buffer.data(), buffer.size(), i);
      MPI_Send(buffer.data(), length, MPI_BYTE, other, 1, MPI_COMM_WORLD);
      MPI_Recv(buffer.data(), length, MPI_BYTE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      client::expect(buffer.data(), buffer.size(), i, "the ball");
    } else {
      MPI_Recv(buffer.data(), length, MPI_BYTE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(buffer.data(), length, MPI_BYTE, other, 1, MPI_COMM_WORLD);
    }
  }
  return (MPI_Wtime() - began) / rounds / 2 * 1e6;
}

double bandwidth(const client::Session &session, int length, int rounds) {
  constexpr int kWindow = 16;
  const int other = 1 - session.rank();
  std::vector<client::Block> blocks(kWindow, client::Block(length));
  for (int i = 0; i < kWindow; ++i) {
    if (session.rank() == 0) blocks[i].fill(i);
  }
  MPI_Request requests[kWindow];
  double began = 0;
  for (int round = -2; round < rounds; ++round) {
    if (round == 0) began = MPI_Wtime();
    for (int i = 0; i < kWindow; ++i) {
      if (session.rank() == 0) {
        MPI_Isend(blocks[i].data(), length, MPI_BYTE, other, 2, MPI_COMM_WORLD, &requests[i]);
      } else {
        MPI_Irecv(blocks[i].data(), length, MPI_BYTE, other, 2, MPI_COMM_WORLD, &requests[i]);
      }
    }
    MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
    char done = 0;
    if (session.rank() == 0) {
      MPI_Recv(&done, 1, MPI_BYTE, other, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Send(&done, 1, MPI_BYTE, other, 3, MPI_COMM_WORLD);
    }
  }
  const double seconds = MPI_Wtime() - began;
  for (int i = 0; i < kWindow; ++i) blocks[i].expect(length, i, "a block of the stream");
  return static_cast<double>(length) * kWindow * rounds / seconds / 1e6;
}

}  // namespace

void client::run_perf(Session &session) {
  EXPECT(session.size() == 2, "mpi_perf is for 2 ranks, not %d", session.size());
  const double us = latency(session, 8, session.quick() ? 1000 : 20000);
  const double mbps = bandwidth(session, 1 << 20, session.quick() ? 10 : 100);
  if (session.rank() == 0) {
    std::printf("latency_us_8 %.3f\nbandwidth_MBps_1M %.1f\n", us, mbps);
    std::fflush(stdout);
  }
}
