// SPDX-License-Identifier: BSD-2-Clause
// Settings: the checked parameters of a trace hook, in the form that calls need.
//
// Example:
//    weft::Result<bool> records_sends(Settings &settings, const std::vector<std::string> &ops) {
//      WEFT_TRY(settings.ops, read_ops(ops));
//      return settings.mask(FI_CLASS_EP).has(Op::send);
//    }
//
// Not for values that change during the recording (store.h).
#ifndef WEFT_PLUGINS_HOOK_TRACE_SETTINGS_H
#define WEFT_PLUGINS_HOOK_TRACE_SETTINGS_H

#include <weft/result.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/trace.h"
#include "plugins/hook-trace/store.h"

namespace weft::trace {

// Bits by operation.
struct OpMask {
  uint64_t words[2] = {};
  bool has(Op op) const { return (words[size_t(op) / 64] >> (size_t(op) % 64) & 1) != 0; }
  void add(Op op) { words[size_t(op) / 64] |= uint64_t{1} << (size_t(op) % 64); }
};
static_assert(kOpCount <= 128);

struct Settings {
  StoreOptions store;
  OpMask ops;
  uint64_t classes = ~uint64_t{0};  // bits by FI_CLASS_...
  uint64_t min_size = 0;
  std::vector<uint32_t> peers;  // empty: all
  uint32_t sample = 1;

  OpMask mask(size_t fclass) const { return (classes >> (fclass & 63) & 1) != 0 ? ops : OpMask{}; }
  bool filters_data() const { return min_size > 0 || !peers.empty(); }
};

// Words of `ops`: groups ("msg") and names of operations ("tsend").
Result<OpMask> read_ops(const std::vector<std::string> &words);
// "ep", "cq", ... as bits.
Result<uint64_t> read_classes(const std::vector<std::string> &words);
Result<std::vector<uint32_t>> read_peers(const std::vector<std::string> &words);

}  // namespace weft::trace

#endif
