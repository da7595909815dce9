// SPDX-License-Identifier: BSD-2-Clause
// Runs parse() on any bytes. Accepted packets must have the properties that packet.h states.
#include <vector>

#include "plugins/rxm/wire/packet.h"
#include "tests/fuzz/check.h"

using namespace weft::rxm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // A heap copy, so that a sanitizer sees reads past the end.
  const std::vector<uint8_t> bytes(data, data + size);
  const Parsed parsed = parse(bytes);
  FUZZ_CHECK(text_of(parsed.reject) != nullptr);
  if (parsed.reject != Reject::kNone) return 0;
  const Packet &p = parsed.packet;
  FUZZ_CHECK(p.payload.size() + p.compare.size() <= size);
  uint64_t sum = 0;
  for (uint8_t byte : p.payload) sum += byte;
  for (uint8_t byte : p.compare) sum += byte;
  FUZZ_CHECK(p.count <= kMaxVectors);
  uint64_t total = 0;
  for (size_t i = 0; i < p.count; ++i)
    FUZZ_CHECK(!__builtin_add_overflow(total, p.vectors[i].length, &total));
  switch (p.type) {
    case PacketType::kEager:
      FUZZ_CHECK(p.payload.size() == p.size);
      break;
    case PacketType::kSegment:
      FUZZ_CHECK(p.payload.size() <= p.size);
      break;
    case PacketType::kRendezvous:
      FUZZ_CHECK((p.count != 0 || p.size == 0) && total == p.size);
      break;
    case PacketType::kAtomic: {
      const size_t element = element_size(p.datatype);
      FUZZ_CHECK(element != 0 && total * element == p.size);
      FUZZ_CHECK(p.payload.empty() || p.payload.size() == p.size);
      FUZZ_CHECK(p.compare.empty() || p.compare.size() == p.size);
      break;
    }
    default:
      break;
  }
  return sum == UINT64_MAX ? 1 : 0;
}
