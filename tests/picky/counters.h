// SPDX-License-Identifier: BSD-2-Clause
// Reads a counter of picky from the fabric of its own stack ("udp;picky"): they count for the whole
// process, so a test of a stack above it opens such a fabric beside.
#ifndef WEFT_TESTS_PICKY_COUNTERS_H
#define WEFT_TESTS_PICKY_COUNTERS_H

#include <rdma/fi_domain.h>
#include <weft/plugin.h>

#include <string_view>

#include "tests/conformance/common.h"

namespace weft::conformance {

inline uint64_t counter(fid_fabric *fabric, std::string_view name) {
  weft_counters_ops *ops = nullptr;
  must(fi_open_ops(&fabric->fid, WEFT_COUNTERS_OPS, 0, reinterpret_cast<void **>(&ops), nullptr));
  weft_counter all[8];
  const size_t n = ops->read(&fabric->fid, all, std::size(all));
  for (size_t i = 0; i < n; ++i)
    if (all[i].name == name) return all[i].value;
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

}  // namespace weft::conformance

#endif
