// SPDX-License-Identifier: BSD-2-Clause
// For the fuzz targets: a check that stays in every build.
//
// Example:
//    #include "plugins/tcp/wire/connect_message.h"
//    inline void feed(weft::tcp::ConnectReader &reader, std::span<const uint8_t> input) {
//      FUZZ_CHECK(reader.on_bytes(input) <= input.size());
//    }
#ifndef WEFT_PLUGINS_TCP_WIRE_FUZZ_H
#define WEFT_PLUGINS_TCP_WIRE_FUZZ_H

#include <cstdio>
#include <cstdlib>

#define FUZZ_CHECK(condition)                                                             \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

#endif  // WEFT_PLUGINS_TCP_WIRE_FUZZ_H
