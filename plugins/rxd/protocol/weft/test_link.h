// SPDX-License-Identifier: BSD-2-Clause
// For tests of the parts of a conversation by themselves: a Link to a peer that is there, without
// the conversation around it.
//
// Example (statements):
//    Linked linked;
//    linked.link.violated("what nobody may send");  // as a part does
//    bool over = linked.is_over();
//
// Not for what two conversations do together (simulation.h).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_TEST_LINK_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_TEST_LINK_H

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plugins/rxd/protocol/test_wire.h"
#include "plugins/rxd/protocol/weft/link.h"

namespace weft::rxd {

class Linked {
 public:
  explicit Linked(uint32_t datagram = 1472) : Linked(lossless::quick(), datagram) {}
  explicit Linked(const Settings &settings, uint32_t datagram = 1472)
      : wire_(256),
        far_(wire_, 0, lossless::quick()),
        near(wire_, 1, settings),
        link(near.core(), meet(), pools, datagram, /*limit=*/kWindow, /*has_key=*/false) {}

  // Takes an operation with that many bytes, up to 64 KiB.
  TxOp &take(TxOp::Kind kind, size_t length) {
    TxOp &op = *near.core().take();
    op.kind = kind;
    op.iov[0] = {bytes_.data(), length};
    op.count = 1;
    op.length = length;
    op.vectors[0] = {0, length, 0};
    op.vector_count = uint8_t(kind != TxOp::Kind::kMessage);
    return op;
  }
  bool is_over() const { return link.peer.losing; }
  // The datagrams that were sent, the last one is 0.
  std::span<const uint8_t> sent(size_t before = 0) const {
    const lossless::Datagram &d = wire_.ring[(wire_.tail - 1 - before) % wire_.ring.size()];
    return {d.bytes.data(), d.size};
  }

 private:
  // A message that nobody receives is the reason why the peer is known.
  Peer &meet() {
    EXPECT_EQ(far_.send(1, bytes_.data(), 1, /*tagged=*/false), 0);
    wire_.pass(kMillisecond);
    Peer *peer = nullptr;
    near.receiver().visit_unexpected(sdk::Matcher::kAnySource, [&peer](sdk::Unexpected &m) {
      peer = static_cast<Incoming &>(m).peer;
    });
    return *peer;
  }
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(65536, 0x5a);
  lossless::Wire wire_;
  lossless::End far_;

 public:
  lossless::End near;
  Pools pools;
  Link link;
};

// The frames that a part writes, and their kinds.
struct Frames {
  std::array<uint8_t, 65536> bytes{};
  wire::Writer writer{bytes};
  std::vector<wire::FrameKind> kinds(bool ordered = false) const {
    std::vector<wire::FrameKind> out;
    wire::FrameReader frames(writer.written(), ordered);
    while (frames.next()) out.push_back(frames.kind());
    EXPECT_EQ(frames.reject(), wire::Reject::kNone);
    return out;
  }
};

}  // namespace weft::rxd

#endif
