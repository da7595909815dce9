// SPDX-License-Identifier: BSD-2-Clause
// parse_header() over any bytes. The first byte of the input chooses the kind of endpoint (bits 0,
// 1) and the byte order (bit 2).
#include <algorithm>
#include <vector>

#include "frame.h"
#include "tests/fuzz/check.h"

using namespace weft::tcp;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const auto kind = static_cast<EndpointKind>(data[0] & 3);
  const auto order = static_cast<ByteOrder>(data[0] >> 2 & 1);
  const std::vector<uint8_t> bytes(data + 1, data + size);

  const auto prefix = parse_prefix(bytes);
  const auto header = parse_header(bytes, order, kind);
  if (!header) {
    FUZZ_CHECK(text(header.error()) != nullptr);
    if (!prefix) FUZZ_CHECK(header.error() == Reject::kHeaderSize);
    if (bytes.size() < kMinHeaderSize) FUZZ_CHECK(header.error() == Reject::kTruncated);
    return 0;
  }
  FUZZ_CHECK(prefix && *prefix == header->header_size && *prefix <= bytes.size());
  FUZZ_CHECK(header->size >= header->header_size);
  FUZZ_CHECK(header->payload_size == header->size - header->header_size);
  FUZZ_CHECK(header->rma_count <= kMaxRmaVectors);
  const bool rma = header->op == Op::kReadRequest || header->op == Op::kWrite;
  FUZZ_CHECK(rma == (header->rma_count != 0));
  if (header->op == Op::kWrite) FUZZ_CHECK(header->rma_length() == header->payload_size);

  // Encoding gives the same bytes, except for those without a meaning.
  std::vector<uint8_t> again(kMaxHeaderSize);
  again.resize(encode_header(*header, order, bytes[7], again.data()));
  FUZZ_CHECK(again.size() == header->header_size);
  std::vector<uint8_t> expected(bytes.begin(), bytes.begin() + header->header_size);
  expected[0] = kFrameVersion;
  if (!rma) expected[5] = 0;
  if (header->op == Op::kReadResponse) expected[2] = expected[3] = 0;
  FUZZ_CHECK(again == expected);
  return 0;
}
