// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/rdm_harness.h"

#include <cstdlib>

namespace weft::conformance::rdm {

namespace {

// Without connections only a timeout shows that there is no peer, and tests have less time than
// programs. Nor does a peer in the same thread answer an endpoint that is about to close. Set
// before the first fi_getinfo; what the environment of the test sets stays.
[[maybe_unused]] const int impatience = setenv("FI_OFI_RXD_PEER_TIMEOUT_MS", "3000", 0) +
                                        setenv("FI_OFI_RXD_CLOSE_LINGER_MS", "200", 0);

[[maybe_unused]] const auto *const kStackIsThere = require_stack(Options());

}  // namespace

// Not in the header, so that every use of the options links what is above.
Options::Options() {
  type = FI_EP_RDM;
  caps = FI_MSG | FI_TAGGED;
  tx_cq = rx_cq = cq_attr();
}

void Net::exchange(size_t from, size_t to, size_t bytes, uint64_t tag) {
  std::vector<uint8_t> out = pattern(bytes, unsigned(tag)), in(bytes);
  must(fi_trecv((*this)[to].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, tag, 0, &in));
  post([&] {
    return fi_tsend((*this)[from].ep, out.data(), out.size(), nullptr, at(from, to), tag, &out);
  });
  check_exchange(from, to, out, in);
}

std::vector<size_t> edges() {
  std::vector<size_t> all{0, 1, 8};
  for (size_t edge : {64, 128, 4096, 16384, 131072}) {
    all.push_back(edge - 1);
    all.push_back(edge);
    all.push_back(edge + 1);
  }
  // Headers share the buffers of the eager protocol with the payload.
  for (size_t edge : {16320, 16384 - 56, 1 << 20}) all.push_back(edge);
  return all;
}

}  // namespace weft::conformance::rdm
