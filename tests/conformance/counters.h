// SPDX-License-Identifier: BSD-2-Clause
// The counters of the provider under a fabric, as `weft stats` reads them.
//
// Example:
//    inline bool has_lost_a_connection(fid_fabric *fabric) {
//      return read_counters(fabric).at("connections_lost") != 0;
//    }
//
// Not for counters of the application (fi_cntr.3).
#ifndef WEFT_TESTS_CONFORMANCE_COUNTERS_H
#define WEFT_TESTS_CONFORMANCE_COUNTERS_H

#include <map>
#include <string>
#include <vector>

#include "tests/conformance/common.h"

namespace weft::conformance {

inline std::map<std::string, uint64_t> read_counters(fid_fabric *fabric) {
  struct Counter {  // weft_counter of weft/plugin.h, and weft_counters_ops
    const char *name;
    uint64_t value;
  };
  struct CountersOps {
    size_t size;
    size_t (*read)(struct fid *fid, Counter *counters, size_t count);
  };
  CountersOps *ops = nullptr;
  must(fi_open_ops(&fabric->fid, "weft_counters_1", 0, reinterpret_cast<void **>(&ops), nullptr));
  std::vector<Counter> counters(64);
  counters.resize(ops->read(&fabric->fid, counters.data(), counters.size()));
  std::map<std::string, uint64_t> values;
  for (const Counter &counter : counters) values[counter.name] = counter.value;
  return values;
}

}  // namespace weft::conformance

#endif
