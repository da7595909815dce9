// SPDX-License-Identifier: BSD-2-Clause
// stock::parse() of any bytes. A packet that it accepts must keep the promises of stock.h, and be
// the same after it is written and read again.
#include <cstring>
#include <vector>

#include "plugins/rxd/wire/stock.h"
#include "tests/fuzz/check.h"

using namespace weft::rxd;

namespace {

bool same(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::vector<uint8_t> bytes(data, data + size);  // a sanitizer sees accesses beyond its end
  const stock::Parsed parsed = stock::parse(bytes, FI_SOCKADDR_IP);
  FUZZ_CHECK(stock::text_of(parsed.reject) != nullptr);
  if (parsed.reject != stock::Reject::kNone) return 0;
  const stock::Packet &p = parsed.packet;
  FUZZ_CHECK(p.payload.size() + p.compare.size() + stock::header_size(p) <= size + 8);
  FUZZ_CHECK(p.count <= stock::kVectorLimit);
  uint64_t total = 0;
  for (size_t i = 0; i < p.count; ++i)
    FUZZ_CHECK(!__builtin_add_overflow(total, p.vectors[i].length, &total));
  if (p.count != 0) FUZZ_CHECK(total == p.size);
  if (p.type == stock::Type::kMessage || p.type == stock::Type::kTagged ||
      p.type == stock::Type::kWrite) {
    FUZZ_CHECK(p.payload.size() <= p.size);
    FUZZ_CHECK(p.packets == stock::packets_of(p.size, p.payload.size()));
  }

  uint8_t header[stock::kMaxHeader];
  const size_t n = stock::encode(p, header);
  FUZZ_CHECK(n == stock::header_size(p) && n <= stock::kMaxHeader);
  std::vector<uint8_t> again(header, header + n);
  again.insert(again.end(), p.payload.begin(), p.payload.end());
  again.insert(again.end(), p.compare.begin(), p.compare.end());
  const stock::Parsed second = stock::parse(again, FI_SOCKADDR_IP);
  FUZZ_CHECK(second.reject == stock::Reject::kNone);
  const stock::Packet &q = second.packet;
  FUZZ_CHECK(p.type == q.type && p.peer == q.peer && p.sequence == q.sequence);
  FUZZ_CHECK(p.is_inline == q.is_inline && p.has_data == q.has_data && p.count == q.count);
  FUZZ_CHECK(p.id == q.id && p.data == q.data && p.size == q.size && p.packets == q.packets);
  FUZZ_CHECK(p.type != stock::Type::kTagged || p.tag == q.tag);
  FUZZ_CHECK(p.datatype == q.datatype && p.operation == q.operation);
  FUZZ_CHECK(p.segment == q.segment && p.window == q.window && p.marked == q.marked);
  FUZZ_CHECK(p.index == q.index && p.rts_index == q.rts_index && p.name == q.name);
  FUZZ_CHECK(same(p.payload, q.payload) && same(p.compare, q.compare));
  return 0;
}
