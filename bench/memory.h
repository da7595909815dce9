// SPDX-License-Identifier: BSD-2-Clause
//
// Resident memory per idle connection: opens `count` FI_EP_MSG connections between two processes,
// each bound to one shared queue, with no receive posted and no byte sent.
//
// Example:
//     double bytes_per_endpoint(FabricNode &node, const std::string &address) {
//       need_files(1000);
//       node.resolve(address);  // the peer: listen(), then accept_connections(node, 1000)
//       return open_connections(node, 1000).result.per_endpoint;
//     }
//
// Only user-space memory is counted: socket buffers in the kernel belong to no process.
#ifndef WEFT_BENCH_MEMORY_H
#define WEFT_BENCH_MEMORY_H

#include <vector>

#include "bench.h"
#include "fabric_node.h"

namespace weft::bench {

struct MemoryResult {
  uint64_t before_bytes = 0;  // Resident with one connection open: all shared memory is there.
  uint64_t after_bytes = 0;
  double per_endpoint = 0;
  double connect_us = 0;  // Mean time to establish one connection.
};

// Resident memory of this process now.
uint64_t resident_bytes();
// Raises the limit of open files as far as allowed; throws if `count` connections do not fit.
void need_files(uint32_t count);

// Keeps the connections open while it exists, because the peer measures too.
struct ConnectionHolder {
  std::vector<Fid<fid_ep>> endpoints;
  MemoryResult result;
};
ConnectionHolder accept_connections(FabricNode &node, uint32_t count);
ConnectionHolder open_connections(FabricNode &node, uint32_t count);

}  // namespace weft::bench

#endif  // WEFT_BENCH_MEMORY_H
