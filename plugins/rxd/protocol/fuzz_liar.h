// SPDX-License-Identifier: BSD-2-Clause
// A stranger for fuzz_world.h that sends what the fuzz input says, in both dialects, valid or not.
// It remembers tokens, numbers and cookies from the datagrams that it receives.
//
// Example (statements):
//    World world;
//    world.add(kTarget, {});
//    Liar liar(world, 10);
//    liar.ask();                      // an RTS; the target answers with a challenge
//    world.run_for(1'000'000);        // ns
//    const uint8_t bytes[] = {0, 3, 7};
//    Input input(bytes, sizeof bytes);
//    liar.connect(input);             // with the token of the challenge, else as the input says
//    liar.frames(input);
//
// Not for peers that keep to the protocol: those are nodes of the world.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_FUZZ_LIAR_H
#define WEFT_PLUGINS_RXD_PROTOCOL_FUZZ_LIAR_H

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "plugins/rxd/protocol/fuzz_world.h"
#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd::fuzz {

using weft::fuzz::Input;

inline constexpr uint16_t kTarget = 1;  // the endpoint that gets the datagrams

class Liar final : public Stranger {
 public:
  Liar(World &world, uint16_t number) : world_(world), number_(number) { world.add(number, *this); }

  bool answers = false;  // acknowledges data

  void hear(uint16_t, std::vector<uint8_t> bytes) override {
    if (const auto packet = wire::parse(bytes)) {
      hear(*packet);
      return;
    }
    const stock::Parsed parsed = stock::parse(bytes, FI_SOCKADDR_IP);
    if (parsed.reject != stock::Reject::kNone) return;
    const stock::Packet &p = parsed.packet;
    switch (p.type) {
      case stock::Type::kRts:
        question_ = p.index;
        break;
      case stock::Type::kCts:
        number_there_ = uint32_t(p.index);
        break;
      case stock::Type::kAck:
        break;
      default:
        if (p.id != 0) request_ = p.id;
        heard_ = std::max(heard_, p.sequence + 1);
        if (answers) acknowledge_stock(heard_, 128);
        break;
    }
  }

  // ---- weft's dialect ----
  void ask() {
    uint8_t rts[stock::kMaxHeader];
    const size_t size = stock::encode(
        {.type = stock::Type::kRts, .marked = true, .index = 9, .name = address_of(number_)}, rts);
    say({rts, rts + size});
  }
  // With the token of the last challenge.
  void connect(Input &input) {
    const uint8_t how = input.byte();
    uint8_t name[wire::kNameSize] = {};
    const sdk::Address own = address_of((how & 8) != 0 ? input.byte() : number_);
    std::memcpy(name, own.data(), own.size());
    ours_ = {.instance = uint64_t(how & 3) + 1,
             .connection = uint32_t(how >> 4 & 3) + 1,
             .cookie = uint32_t(input.byte()) + 1,
             .datagram = (how & 4) != 0 ? input.number(2) : 9000,
             .flags = (how & 64) != 0 ? kPartVerify : 0,
             .limit = 64,
             .messages = (how & 128) != 0 ? input.byte() : 64u,
             .credit = 64};
    // It is a context of an honest peer, it says, which has none.
    constexpr uint16_t kHonest = 2;
    if ((ours_.cookie & 1) != 0)
      ours_.flags |= uint32_t(number_ - kHonest) << kPartPlaceShift & kPartPlace;
    uint8_t bytes[wire::kConnectSize];
    wire::Writer w(bytes);
    w.connect({}, 9, wire::Token(token_), name, ours_);
    say({bytes, bytes + w.size()});
    sequence_ = next_id_ = 0;
    received_ = 0;
  }
  // Answers an RTS of the target as a weft endpoint, then its connect.
  void challenge(Input &input) {
    uint8_t token[wire::kTokenSize] = {input.byte()};
    uint8_t bytes[wire::kChallengeSize];
    wire::Writer w(bytes);
    w.challenge({}, question_ + input.byte(), wire::Token(token));
    say({bytes, bytes + w.size()});
  }
  void accept(Input &input) {
    ours_.instance = input.byte();
    ours_.connection = input.byte() + 1u;
    ours_.cookie = input.byte() + 1u;
    uint8_t bytes[wire::kAcceptSize];
    wire::Writer w(bytes);
    w.accept({.to = theirs_.connection, .cookie = theirs_.cookie}, 0, ours_);
    say({bytes, bytes + w.size()});
    sequence_ = next_id_ = 0;
    received_ = 0;
  }
  void packet(wire::PacketKind kind, uint16_t flags, uint32_t sequence,
              std::span<const uint8_t> content) {
    std::vector<uint8_t> bytes(wire::kHeaderSize);
    wire::Writer w(bytes);
    w.header({.kind = kind,
              .flags = flags,
              .to = theirs_.connection,
              .cookie = theirs_.cookie + ours_.cookie,
              .sequence = sequence,
              .time = uint32_t(world_.now / 1000)});
    bytes.insert(bytes.end(), content.begin(), content.end());
    say(std::move(bytes));
  }
  void frames(Input &input) {
    uint8_t room[9000];
    wire::Writer w(room);
    const uint8_t how = input.byte();
    bool starts = (how & 1) != 0;
    for (int i = (how >> 1 & 3) + 1; i > 0; --i) starts |= frame(input, w);
    const uint32_t sequence = (how & 128) != 0 ? input.byte() : sequence_++;
    packet(wire::PacketKind::kData, starts ? wire::kFlagOrdered : 0, sequence, w.written());
  }
  void acknowledge(Input &input) {
    wire::Acknowledgement ack;
    const uint8_t how = input.byte();
    ack.next = (how & 1) != 0 ? input.byte() : received_;
    ack.echo = (how & 2) != 0 ? input.number(4) : 0;
    ack.limit = received_ + input.byte();
    ack.messages = 64 + input.byte();
    ack.credit = 64 + input.byte();
    ack.words = how >> 2 & 3;
    for (uint32_t i = 0; i < ack.words; ++i) ack.bitmap[i] = input.number(4);
    send(ack, wire::PacketKind((how & 128) != 0 ? 9 : 5));
  }
  // ---- stock's ----
  void stock_rts(Input &input) {
    const uint8_t how = input.byte();
    say({.type = stock::Type::kRts,
         .marked = (how & 1) != 0,
         .index = (how & 2) != 0 ? input.number(4) : number_,
         .name = address_of((how & 4) != 0 ? input.byte() : number_)},
        {});
    if ((how & 8) != 0) spoken_ = 0;
  }
  void stock_cts(Input &input) {
    const uint8_t how = input.byte();
    say({.type = stock::Type::kCts,
         .peer = number_,
         .index = (how & 1) != 0 ? uint64_t{input.number(4)} << (how & 32) : number_,
         .rts_index = question_ + ((how & 2) != 0 ? input.byte() : 0)},
        {});
  }
  void acknowledge_stock(uint64_t next, uint16_t window) {
    say({.type = stock::Type::kAck, .peer = number_there_, .sequence = next, .window = window}, {});
  }
  void stock_packet(Input &input) {
    const uint8_t what = input.byte(), how = input.byte();
    stock::Packet p{.type = stock::Type(what % 14), .peer = number_there_};
    p.sequence = (how & 1) != 0 ? input.byte() : spoken_++;
    if ((how & 2) != 0) p.peer = input.byte();
    if (p.type == stock::Type::kAck) {
      p.window = input.byte();
      if ((how & 4) != 0) p.sequence = heard_;
      return say(p, {});
    }
    p.is_inline = (how & 8) != 0;
    p.tag = input.byte();
    p.id = (how & 16) != 0 ? request_ : input.byte();
    p.segment = input.byte();
    size_t payload = input.byte() * 8u;
    if ((what & 128) != 0) payload = stock::kSegment;
    p.size = (how & 32) != 0 ? input.number(3) : payload;
    p.packets =
        (how & 64) != 0 ? input.byte() : stock::packets_of(p.size, std::min(payload, p.size));
    p.has_data = (how & 128) != 0;
    p.data = p.tag;
    if (p.type >= stock::Type::kRead && p.type <= stock::Type::kCompare) {
      p.count = uint8_t(input.byte() % 4 + 1);
      uint64_t left = p.size;
      for (size_t i = 0; i < p.count; ++i) {
        const uint64_t n = i + 1 == p.count ? left : left / 2;
        p.vectors[i] = {input.byte() * 8u, n, 7u + input.byte() % 4u};
        left -= n;
      }
      p.datatype = input.byte() % 20u;
      p.operation = input.byte() % 20u;
    }
    say(p, std::vector<uint8_t>(payload, uint8_t(0xA5)));
  }
  void say(std::vector<uint8_t> bytes) { world_.carry(number_, kTarget, std::move(bytes)); }

 private:
  void hear(const wire::Packet &packet) {
    if (const auto *challenge = std::get_if<wire::Challenge>(&packet.content)) {
      std::copy(challenge->token.begin(), challenge->token.end(), token_.begin());
    } else if (const auto *connect = std::get_if<wire::Connect>(&packet.content)) {
      theirs_ = connect->part;
    } else if (const auto *accept = std::get_if<wire::Accept>(&packet.content)) {
      theirs_ = accept->part;
    } else if (packet.header.kind == wire::PacketKind::kData) {
      received_ = std::max(received_, packet.header.sequence + 1);
      wire::FrameReader reader(packet);
      while (reader.next()) theirs_id_ = std::max(theirs_id_, reader.id());
      if (!answers) return;
      wire::Acknowledgement ack;
      ack.next = received_;
      ack.limit = received_ + 64;
      ack.messages = 1000;
      ack.credit = 1000;
      ack.words = 0;
      send(ack, wire::PacketKind::kAcknowledge);
    }
  }
  void send(const wire::Acknowledgement &ack, wire::PacketKind kind) {
    uint8_t bytes[wire::kAcknowledgementSize + 8 * wire::kMaxWords];
    wire::Writer w(bytes);
    w.acknowledgement(ack);
    packet(kind, wire::kFlagAcknowledgement, 0, w.written());
  }
  // True: it starts an operation.
  bool frame(Input &input, wire::Writer &w) {
    const uint8_t what = input.byte(), how = input.byte();
    const size_t n = std::min<size_t>((how & 64) != 0 ? input.byte() * 16u : input.byte(), 4000);
    // Ids of an operation of ours, and of the target's.
    const uint32_t ours = (how & 128) != 0 ? input.byte() : next_id_;
    const uint32_t last = ours - (input.byte() % 4u), theirs = theirs_id_ - (input.byte() % 4u);
    RmaVector vectors[wire::kVectorLimit];
    const size_t count = how % 4u + 1;
    uint64_t total = 0;
    if (what % 9 >= 4 && what % 9 <= 6)
      for (size_t i = 0; i < count; ++i) {
        vectors[i] = {input.byte() * 8u, input.number(2) % 5000, 7u + input.byte() % 4u};
        total += vectors[i].length;
      }
    const std::span<const RmaVector> where(vectors, count);
    const auto payload = [&](size_t size) {
      const std::vector<uint8_t> bytes(std::min(size, w.room()), uint8_t(0xA5));
      w.payload(bytes);
    };
    switch (what % 9) {
      case 0: {
        const bool announced = (how & 8) != 0;
        if (w.room() < 40 + n) return false;
        w.message({.tagged = (how & 1) != 0,
                   .has_data = (how & 2) != 0,
                   .wants_done = (how & 4) != 0,
                   .announced = announced,
                   .id = ours,
                   .tag = uint64_t(how >> 4 & 3),
                   .total = announced ? n + input.number(3) : n},
                  n);
        payload(n);
        break;
      }
      case 1:
        if (w.room() < 40 + n) return false;
        w.data({.answers = (how & 1) != 0,
                .id = (how & 1) != 0 ? theirs : last,
                .offset = input.number(how % 3u + 1)},
               n);
        payload(n);
        return false;
      case 2:
        w.pull({.id = theirs, .limit = input.number(3)});
        return false;
      case 3:
        w.done({.status = uint16_t(how & 3), .id = theirs});
        return false;
      case 4:
        w.read(ours, where);
        break;
      case 5:
        if (w.room() < 140 + n) return false;
        w.write({.has_data = (how & 16) != 0, .id = ours, .total = total}, where, n);
        payload(n);
        break;
      case 6: {
        if (w.room() < 140 + n) return false;
        w.atomic({.kind = uint8_t(how >> 4 & 3),
                  .datatype = input.byte(),
                  .operation = input.byte(),
                  .id = ours},
                 where, n);
        payload(n);
        break;
      }
      case 7:
        if (w.room() < 40 + n) return false;
        w.result({.status = uint16_t(how & 3), .id = theirs}, n);
        payload(n);
        return false;
      default:
        w.ping();
        return false;
    }
    next_id_ = ours + 1;
    return true;
  }
  void say(const stock::Packet &packet, const std::vector<uint8_t> &payload) {
    std::vector<uint8_t> bytes(stock::kMaxHeader);
    bytes.resize(stock::encode(packet, std::span<uint8_t, stock::kMaxHeader>(bytes)));
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    say(std::move(bytes));
  }

  World &world_;
  const uint16_t number_;
  std::array<uint8_t, wire::kTokenSize> token_{};
  wire::Part ours_, theirs_;
  uint32_t sequence_ = 0, next_id_ = 0, theirs_id_ = 0, received_ = 0;
  uint64_t question_ = 0;
  uint32_t number_there_ = 1, request_ = 0;
  uint64_t heard_ = 0, spoken_ = 0;  // numbers of stock's packets
};

}  // namespace weft::rxd::fuzz

#endif
