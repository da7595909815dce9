// SPDX-License-Identifier: BSD-2-Clause
// What a peer may send that is no peer's to send. fuzz/cxi_fuzz.cc looks for more of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "plugins/cxi/fuzz/node.h"

namespace weft::cxi {
namespace {

using fuzz::Completion;
using fuzz::kHonest;
using fuzz::kTarget;
using fuzz::Liar;
using fuzz::Network;
using fuzz::Node;
using fuzz::small_settings;
using fuzz::succeed;

struct Scene {
  explicit Scene(bool is_plain = false, const Settings &settings = small_settings(),
                 const fuzz::NodeOptions &options = {}) {
    network.is_plain = is_plain;
    target.emplace(network, kTarget, settings, options);
    liar.emplace(network, Nid{4});
  }
  Packet packet(Op op, Index index) const {
    return liar->packet(op, {.nid = kTarget, .pid = target->name().pid, .index = index});
  }
  // A long message that has the number 5, of which nothing comes along.
  Packet long_message(uint32_t length) const {
    Packet message = packet(Op::kRendezvousPut, kReceiveIndex);
    message.length = length;
    message.rendezvous_id = 5;
    return message;
  }
  // All that the NIC has asked is answered in this way.
  void answer_with(uint8_t byte) {
    liar->hear();
    while (!liar->asked.empty()) answer(liar->asked.front().length, byte);
  }
  // The oldest.
  void answer(uint32_t length, uint8_t byte) {
    liar->hear();
    ASSERT_FALSE(liar->asked.empty());
    liar->answer(0, Rc::kOk, length, std::vector<uint8_t>(length, byte));
  }
  std::vector<Completion> completions() {
    std::vector<Completion> all;
    while (const auto one = target->poll()) all.push_back(*one);
    return all;
  }

  Network network{400};
  std::optional<Node> target;
  std::optional<Liar> liar;
};

class CxiHostilePortals : public testing::TestWithParam<bool> {};

// The NIC reads the rest of such a message, and tells the owner of the portal that it has come.
TEST_P(CxiHostilePortals, ALongMessageIsForThePortalOfMessagesAlone) {
  Scene scene(/*is_plain=*/GetParam());
  std::vector<uint8_t> memory(100);
  fid_mr *const region = scene.target->open_region(memory.data(), memory.size(), FI_REMOTE_WRITE);
  for (const Index index : {kCollectiveIndex, kWriteIndex, kDoneIndex, kReadIndex, kRendezvousIndex,
                            Index(kOptimizedWriteIndex + kFirstProviderId)}) {
    for (const uint64_t bits : {uint64_t{0}, kControl, fi_mr_key(region) & ~kProviderKey}) {
      for (Pid pid = 0; pid < 64; ++pid) {
        Packet message = scene.packet(Op::kRendezvousPut, index);
        message.initiator = match_id(pid, scene.liar->nid());
        message.match_bits = bits;
        message.rendezvous_id = uint8_t(pid);
        scene.liar->say(message, {});
      }
      scene.answer_with(1);
      EXPECT_TRUE(scene.completions().empty());
    }
  }
  succeed(fi_close(&region->fid));
}
INSTANTIATE_TEST_SUITE_P(, CxiHostilePortals, testing::Bool(),
                         [](const auto &one) { return one.param ? "Hardware" : "Software"; });

}  // namespace
}  // namespace weft::cxi
