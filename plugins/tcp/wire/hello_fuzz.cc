// SPDX-License-Identifier: BSD-2-Clause
// The private data of FI_EP_RDM endpoints.
// Input: a byte for the length of the hello, then the hello.
#include <algorithm>
#include <vector>

#include "rdm_message.h"
#include "tests/fuzz/check.h"

using namespace weft::tcp;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const size_t length = std::min<size_t>(data[0], size - 1);
  const std::vector<uint8_t> bytes(data + 1, data + 1 + length);
  const auto hello = parse_hello(bytes);
  if (hello) {
    const auto again = encode_hello(*hello);
    FUZZ_CHECK(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
    FUZZ_CHECK(kind_of_answer(answer_to(hello->version)) ==
               (hello->version == 0 ? EndpointKind::kRdm0 : EndpointKind::kRdm1));
  } else {
    FUZZ_CHECK(text(hello.error()) != nullptr);
  }
  return 0;
}
