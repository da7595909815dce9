// SPDX-License-Identifier: BSD-2-Clause
//
// The parts of mpi_client. Each uses one side of MPI. Every rank knows which data it must get, and
// fails with a text if it gets others. When a part ends, none of its messages is on the way.
#ifndef WEFT_TESTS_CLIENTS_PARTS_H_
#define WEFT_TESTS_CLIENTS_PARTS_H_

namespace client {

class Session;

void run_p2p(Session &session);          // mpi_p2p.cc
void run_storm(Session &session);        // mpi_storm.cc
void run_flood(Session &session);        // mpi_flood.cc
void run_large(Session &session);        // mpi_large.cc
void run_collectives(Session &session);  // mpi_collectives.cc
void run_onesided(Session &session);     // mpi_onesided.cc
void run_comm(Session &session);         // mpi_comm.cc
void run_threads(Session &session);      // mpi_threads.cc, with MPI_THREAD_MULTIPLE
void run_perf(Session &session);         // mpi_perf.cc, for 2 ranks

}  // namespace client

#endif
