// SPDX-License-Identifier: BSD-2-Clause
// Whatever peers send, a group of an endpoint does no more than fail: packets of the fuzzer's, some
// with the numbers that the endpoint has given out, between its own calls.
#include <rdma/fi_atomic.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>

#include "plugins/cxi/collective/groups.h"

namespace {

using namespace weft::cxi;

class Fuzzed {
 public:
  explicit Fuzzed(std::span<const uint8_t> input) : input_(input) {}

  void run() {
    join();
    while (!input_.empty()) {
      const uint8_t what = byte();
      switch (what % 6) {
        case 0:
          join();
          break;
        case 1:
          groups_.leave(number(what));
          break;
        case 2:
          now_ += uint64_t{byte()} << 24;
          groups_.on_time(now_);
          break;
        case 3:
          start(number(what));
          break;
        default:
          packet(what);
      }
      groups_.take_output(output_);
      for (const GroupOutput::Sent &sent : output_.packets) {
        if (!GroupPacket::parse(sent.packet.bytes())) std::abort();
        if (byte() % 2 != 0)
          groups_.on_reached(sent.packet);
        else
          groups_.on_lost(now_, sent.packet);
      }
      for (const GroupOutput::Ended &one : output_.ended) {
        Partial result = one.result;
        uint8_t bytes[kMaxOperand];
        result.write(bytes);
      }
    }
  }

 private:
  uint8_t byte() {
    if (input_.empty()) return 0;
    const uint8_t first = input_.front();
    input_ = input_.subspan(1);
    return first;
  }
  uint64_t number(uint8_t what) const { return (uint64_t{1} << 32) + what / 6 % 8; }

  void join() {
    const uint8_t form = byte();
    GroupPlace place;
    place.peers.resize(1 + form % 9);
    for (size_t i = 0; i < place.peers.size(); ++i) place.peers[i] = form & 0x80 ? 5 : i;
    place.rank = form / 9 % uint32_t(place.peers.size());
    place.root = byte() % uint32_t(place.peers.size());
    place.membership = Groups::membership_of(place.peers, place.root, form & 0x80);
    memberships_[joins_++ % 8] = place.membership;
    groups_.join(now_, std::move(place));
  }
  void start(uint64_t id) {
    Group *const group = groups_.find(id);
    const double value = byte();
    if (group != nullptr)
      group->start(now_, Partial::of(byte() % 2 != 0 ? Opcode::kSum : Opcode::kRepsum, &value, 8),
                   0);
  }
  void packet(uint8_t what) {
    GroupPacket::Bytes bytes{};
    const size_t size = std::min<size_t>(input_.size(), bytes.size());
    std::copy_n(input_.begin(), size, bytes.begin());
    input_ = input_.subspan(size);
    bytes[0] = 1;
    auto packet = GroupPacket::parse(bytes);
    if (!packet) return;
    if (what & 0x40) packet->to = number(what);
    if (what & 0x20) packet->membership = memberships_[what % 8];
    groups_.on_packet(now_, byte() % 9, *packet);
  }

  std::span<const uint8_t> input_;
  Groups groups_{1, {.limit = uint64_t{1} << 34}};
  GroupOutput output_;
  uint64_t now_ = 1'000'000'000;
  uint64_t memberships_[8] = {};
  size_t joins_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Fuzzed({data, size}).run();
  return 0;
}
