// SPDX-License-Identifier: BSD-2-Clause
// ConnectReader over any bytes in any pieces. Input: a byte for the role (bit 0) and the pieces
// (the rest), then the stream.
#include <algorithm>
#include <array>
#include <vector>

#include "connect_message.h"
#include "tests/fuzz/check.h"

using namespace weft::tcp;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const auto role = static_cast<ConnectRole>(data[0] & 1);
  const size_t piece = 1 + (data[0] >> 1);
  const std::vector<uint8_t> stream(data + 1, data + size);

  ConnectReader reader(role);
  size_t used = 0;
  for (size_t at = 0; at < stream.size(); at += piece) {
    const std::vector<uint8_t> bytes(
        stream.begin() + static_cast<ptrdiff_t>(at),
        stream.begin() + static_cast<ptrdiff_t>(std::min(at + piece, stream.size())));
    const size_t before = reader.space().size();
    const size_t n = reader.on_bytes(bytes);
    FUZZ_CHECK(n <= bytes.size());
    FUZZ_CHECK(n == bytes.size() || reader.done() || reader.rejected());
    FUZZ_CHECK(n >= std::min(before, bytes.size()));
    used += n;
  }
  FUZZ_CHECK(used <= kMaxConnectSize);
  FUZZ_CHECK(!(reader.done() && reader.rejected()));

  const auto header = parse_connect_header(stream, role);
  if (!header) {
    FUZZ_CHECK(!reader.done());
    FUZZ_CHECK(text(header.error()) != nullptr);
    if (header.error() == ConnectRefusal::kTruncated) {
      FUZZ_CHECK(stream.size() < kConnectHeaderSize && used == stream.size() && !reader.rejected());
    } else {
      FUZZ_CHECK(reader.rejected() == header.error());
      FUZZ_CHECK(used == kConnectHeaderSize && reader.space().empty());
    }
    return 0;
  }
  const size_t whole = kConnectHeaderSize + header->private_size;
  FUZZ_CHECK(reader.done() == (stream.size() >= whole));
  FUZZ_CHECK(used == std::min(stream.size(), whole));
  if (!reader.done()) {
    FUZZ_CHECK(reader.space().size() == whole - used);
    return 0;
  }
  FUZZ_CHECK(reader.header() == *header);
  FUZZ_CHECK(reader.private_bytes().size() == header->private_size);
  FUZZ_CHECK(std::equal(reader.private_bytes().begin(), reader.private_bytes().end(),
                        stream.begin() + kConnectHeaderSize));

  std::array<uint8_t, kMaxConnectSize> again;
  const size_t n =
      encode_connect(header->type, reader.private_bytes(), again, header->order, header->features);
  FUZZ_CHECK(n == whole);
  const auto second = parse_connect_header({again.data(), n}, role);
  FUZZ_CHECK(second && *second == *header);
  return 0;
}
