// SPDX-License-Identifier: BSD-2-Clause
// The bytes of messages and memory in the stateful fuzz target.
//
// Example:
//    inline void check(const Posted &op, uint32_t id) {
//      FUZZ_CHECK(bytes_are(op, 0, op.length, IsPattern{id}));  // message `id`, from its first byte
//    }
#ifndef WEFT_PLUGINS_TCP_FUZZ_BYTES_H
#define WEFT_PLUGINS_TCP_FUZZ_BYTES_H

#include <cstddef>
#include <cstdint>

#include "plugins/tcp/fuzz/application.h"

namespace weft::tcp::fuzz {

inline void *as_context(uintptr_t number) {
  return reinterpret_cast<void *>(number);
}

// Most of the time is spent here, so the branches are not instrumented.
#if defined(__clang__)
#define WEFT_FUZZ_PLAIN __attribute__((no_sanitize("coverage")))
#else
#define WEFT_FUZZ_PLAIN
#endif

// Bytes `from` to `to` of the parts are all `expected(i)`, i from 0 on.
template <class Expected>
WEFT_FUZZ_PLAIN inline bool bytes_are(const Posted &op, size_t from, size_t to, Expected expected) {
  size_t at = 0, i = 0;
  for (const Memory &part : op.parts) {
    for (size_t k = from > at ? from - at : 0; k < part.size && at + k < to; ++k)
      if (part.bytes[k] != expected(i++)) return false;
    at += part.size;
  }
  return true;
}

struct IsPattern {
  uint32_t id;
  WEFT_FUZZ_PLAIN uint8_t operator()(size_t i) const { return uint8_t(id * 37 + i * 7 + (i >> 8)); }
};
struct IsByte {
  uint8_t byte;
  WEFT_FUZZ_PLAIN uint8_t operator()(size_t) const { return byte; }
};

WEFT_FUZZ_PLAIN inline void fill(Memory &memory, uint32_t id, size_t from) {
  for (size_t i = 0; i < memory.size; ++i) memory.bytes[i] = IsPattern{id}(from + i);
}

}  // namespace weft::tcp::fuzz

#endif
