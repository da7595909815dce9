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
uint64_t ResidentBytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string word;
  while (rollup >> word) {
    uint64_t kilobytes = 0;
    if (word == "Rss:" && rollup >> kilobytes) return kilobytes * 1024;
  }
  Fail("cannot read Rss from /proc/self/smaps_rollup");
}

namespace {

template <class Open>
ConnectionHolder Hold(uint32_t count, Open open) {
  ConnectionHolder held;
  MemoryResult &result = held.result;
  std::vector<Fid<fid_ep>> &endpoints = held.endpoints;
  endpoints.reserve(count + 1);
  // The first connection allocates what all share: the domain, pools, memory of libc.
  endpoints.push_back(open());
  result.before_bytes = ResidentBytes();
  const uint64_t start = NowNs();
  for (uint32_t i = 0; i < count; ++i) endpoints.push_back(open());
  result.connect_us = static_cast<double>(NowNs() - start) / 1e3 / count;
  result.after_bytes = ResidentBytes();
  result.per_endpoint =
      (static_cast<double>(result.after_bytes) - static_cast<double>(result.before_bytes)) / count;
  return held;
}

}  // namespace

void NeedFiles(uint32_t count) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) Fail("getrlimit: %s", strerror(errno));
  const rlim_t need = count + 64;
  if (limit.rlim_cur >= need) return;
  if (limit.rlim_max < need) {
    Fail(
        "%u connections need %d open files, the hard limit is %d (ulimit -Hn, or fewer "
        "with --endpoints)",
        count, need, limit.rlim_max);
  }
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) Fail("setrlimit: %s", strerror(errno));
}

ConnectionHolder AcceptConnections(FabricNode &node, uint32_t count) {
  return Hold(count, [&] { return node.Accept(); });
}

ConnectionHolder OpenConnections(FabricNode &node, uint32_t count) {
  return Hold(count, [&] { return node.Connect(); });
}

}  // namespace weft::bench
