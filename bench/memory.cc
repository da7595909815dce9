// SPDX-License-Identifier: BSD-2-Clause
#include "memory.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include <fstream>
#include <string>

namespace weft::bench {

// The kernel's counter of a process may be behind by some pages per CPU; smaps_rollup walks the
// page tables.
uint64_t resident_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string word;
  while (rollup >> word) {
    uint64_t kilobytes = 0;
    if (word == "Rss:" && rollup >> kilobytes) return kilobytes * 1024;
  }
  fail("cannot read Rss from /proc/self/smaps_rollup");
}

namespace {

template <class Open>
ConnectionHolder hold(uint32_t count, Open open) {
  ConnectionHolder held;
  MemoryResult &result = held.result;
  std::vector<Fid<fid_ep>> &endpoints = held.endpoints;
  endpoints.reserve(count + 1);
  // The first connection allocates what all share: the domain, pools, memory of libc.
  endpoints.push_back(open());
  result.before_bytes = resident_bytes();
  const uint64_t start = now_ns();
  for (uint32_t i = 0; i < count; ++i) endpoints.push_back(open());
  result.connect_us = static_cast<double>(now_ns() - start) / 1e3 / count;
  result.after_bytes = resident_bytes();
  result.per_endpoint =
      (static_cast<double>(result.after_bytes) - static_cast<double>(result.before_bytes)) / count;
  return held;
}

}  // namespace

void need_files(uint32_t count) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) fail("getrlimit: %s", strerror(errno));
  const rlim_t need = count + 64;
  if (limit.rlim_cur >= need) return;
  if (limit.rlim_max < need) {
    fail(
        "%u connections need %d open files, the hard limit is %d (ulimit -Hn, or fewer "
        "with --endpoints)",
        count, need, limit.rlim_max);
  }
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) fail("setrlimit: %s", strerror(errno));
}

ConnectionHolder accept_connections(FabricNode &node, uint32_t count) {
  return hold(count, [&] { return node.accept(); });
}

ConnectionHolder open_connections(FabricNode &node, uint32_t count) {
  return hold(count, [&] { return node.connect(); });
}

}  // namespace weft::bench
