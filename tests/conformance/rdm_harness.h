// SPDX-License-Identifier: BSD-2-Clause
// What the conformance tests of FI_EP_RDM share: the applications of unconnected.h with what is
// usual for this kind. Where fi_getinfo does not offer the stack, every test of the program is
// skipped, unless WEFT_TEST_REQUIRED is set: then it fails.
//
// Example:
//     TEST(RdmExample, ATaggedMessageArrives) {
//       RDM_NEEDS(FI_TAGGED);
//       Net net(2);                  // two applications, default options
//       net.exchange(0, 1, 100, 7);  // 100 bytes with the tag 7
//     }
//     TEST(RdmExample, ASendThatNobodyReceives) {
//       std::vector<uint8_t> out(100);  // before the Net: it may be read until fi_close
//       Net net(2);
//       must(fi_tsend(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), 7, &out));
//     }
#ifndef WEFT_TESTS_CONFORMANCE_RDM_HARNESS_H
#define WEFT_TESTS_CONFORMANCE_RDM_HARNESS_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_tagged.h>

#include "tests/conformance/process.h"
#include "tests/conformance/unconnected.h"

namespace weft::conformance::rdm {

using conformance::Completion, conformance::poll;
using unconnected::Node;

struct Options : conformance::Options {
  Options();  // FI_MSG and FI_TAGGED
  static fi_cq_attr cq_attr(enum fi_cq_format format = FI_CQ_FORMAT_TAGGED,
                            enum fi_wait_obj wait = FI_WAIT_NONE) {
    return conformance::Options::cq_attr(format, wait);
  }
};

inline Info find_info(const Options &options = {}, uint64_t flags = 0, uint32_t api = kApi) {
  return conformance::find_info(options, flags, api);
}
inline Info ask(const std::function<void(fi_info &)> &change = {}, const Options &options = {},
                const char *node = test_node(), const char *service = nullptr, uint64_t flags = 0) {
  return unconnected::ask(options, change, node, service, flags);
}

#define RDM_NEEDS(caps) \
  UNCONNECTED_NEEDS(::weft::conformance::rdm::Options(), caps, ::weft::conformance::caps_text(caps))

class Net : public unconnected::Net {
 public:
  explicit Net(size_t nodes = 2, const Options &options = {},
               const std::function<void(Node &)> &before_enable = {})
      : unconnected::Net(nodes, options, before_enable) {}
  // One message of `bytes` from one to another, with its tag, checked at both ends.
  void exchange(size_t from, size_t to, size_t bytes = 100, uint64_t tag = 1);
};

// The sizes around which the protocols of the stacks change.
std::vector<size_t> edges();

}  // namespace weft::conformance::rdm

#endif
