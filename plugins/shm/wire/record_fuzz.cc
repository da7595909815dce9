// SPDX-License-Identifier: BSD-2-Clause
// parse() of any head and content, and of any packet of a handshake. What it accepts keeps the
// promises of record.h.
#include <vector>

#include "plugins/shm/wire/hello.h"
#include "plugins/shm/wire/record.h"
#include "tests/fuzz/check.h"

using namespace weft::shm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::vector<uint8_t> bytes(data, data + size);  // a sanitizer sees accesses beyond its end
  if (const auto hello = parse_hello(bytes)) FUZZ_CHECK(hello->geometry.valid());
  (void)parse_answer(bytes);
  if (size < 2) return 0;
  const std::vector<uint8_t> content(data + 2, data + size);
  constexpr Geometry kGeometry{.lines = 64, .bytes = 1 << 16};
  const auto record = parse({.type = data[0], .flags = data[1], .size = uint16_t(content.size())},
                            content, kGeometry);
  if (!record) {
    FUZZ_CHECK(text_of(record.error()) != nullptr);
    return 0;
  }
  FUZZ_CHECK(record->length <= kMostLength);
  FUZZ_CHECK(record->bytes() <= kGeometry.most_payload());
  FUZZ_CHECK(record->vector_count <= kMostVectors && record->region_count <= kMostVectors);
  if (record->inline_payload != nullptr && record->length != 0) {
    FUZZ_CHECK(record->inline_payload >= content.data());
    FUZZ_CHECK(record->inline_payload + record->length == content.data() + content.size());
  }
  uint64_t sum = 0;
  for (size_t i = 0; i < record->region_count; ++i) sum += record->regions[i].length;
  if (record->type == Type::kWrite || record->type == Type::kRead)
    FUZZ_CHECK(sum == record->length);
  return 0;
}
