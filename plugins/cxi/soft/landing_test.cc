// SPDX-License-Identifier: BSD-2-Clause
// Puts and replies whose bytes come in pieces, as a stream brings them.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "plugins/cxi/soft/test_nic.h"

namespace weft::cxi {
namespace {

struct Stream {
  Stream() : in(1000), out(1000) { std::iota(out.begin(), out.end(), uint8_t{1}); }

  Packet packet(uint32_t length, Op op = Op::kPut) const {
    return {.op = op,
            .vni = kVni,
            .source = 2,
            .to = b.at(0),
            .token = 77,
            .initiator = match_id(9, 2),
            .length = length};
  }
  uint64_t begin(const Packet &packet) {
    const Engine::Begun begun = host.engine.on_head(packet);
    EXPECT_FALSE(begun.reply.has_value());
    EXPECT_NE(begun.landing, 0u);
    return begun.landing;
  }
  void bring(uint64_t landing, size_t from, size_t count) {
    host.engine.on_bytes(landing, std::span(out).subspan(from, count));
  }

  Host host;
  Process b{host, 1, 6, kVni, 8};
  Portal &portal = b.open_portal(0, {.is_matching = true, .flow_control = true});
  std::vector<uint8_t> in, out;
};

TEST(Landing, BytesGoToTheirPlaceAsTheyCome) {
  Stream s;
  s.portal.append(List::kPriority, s.b.entry_for(receive(1), s.in));
  const uint64_t landing = s.begin(s.packet(1000));
  s.bring(landing, 0, 300);
  EXPECT_EQ(s.in[299], s.out[299]);
  EXPECT_EQ(s.in[300], 0);
  EXPECT_FALSE(s.b.next().has_value());
  s.bring(landing, 300, 700);
  const Reply reply = s.host.engine.on_end(landing, true);
  EXPECT_EQ(reply.token, 77u);
  EXPECT_EQ(reply.rc, Rc::kOk);
  EXPECT_EQ(reply.mlength, 1000u);
  EXPECT_EQ(s.in, s.out);
  const Event event = s.b.next().value();
  EXPECT_EQ(event.type, EventType::kPut);
  EXPECT_EQ(event.mlength, 1000u);
  EXPECT_TRUE(event.auto_unlinked);
}

TEST(Landing, TheEntryIsTakenWhenTheHeadHasCome) {
  Stream s;
  s.portal.append(List::kPriority, s.b.entry_for(receive(1), s.in));
  const uint64_t landing = s.begin(s.packet(500));
  EXPECT_EQ(s.host.engine.on_head(s.packet(500)).reply.value().rc, Rc::kPtDisabled)
      << "nobody else gets it";
  s.bring(landing, 0, 500);
  EXPECT_EQ(s.host.engine.on_end(landing, true).rc, Rc::kOk);
}

TEST(Landing, WhatIsTooLongIsCut) {
  Stream s;
  Entry entry = s.b.entry_for(receive(1), s.in);
  entry.length = 10;
  s.portal.append(List::kPriority, entry);
  const uint64_t landing = s.begin(s.packet(1000));
  s.bring(landing, 0, 6);
  s.bring(landing, 6, 900);
  s.bring(landing, 906, 94);
  EXPECT_EQ(s.host.engine.on_end(landing, true).mlength, 10u);
  EXPECT_EQ(s.in[9], s.out[9]);
  EXPECT_EQ(s.in[10], 0);
}

TEST(Landing, APlaceForTheEventIsKept) {
  Stream s;
  s.portal.append(List::kPriority, s.b.entry_for(overflow(1, 0), s.in));
  s.b.next();
  std::vector<uint64_t> landings;
  for (int i = 0; i < 7; ++i) landings.push_back(s.begin(s.packet(1)));
  EXPECT_EQ(s.host.engine.on_head(s.packet(1)).reply.value().rc, Rc::kPtDisabled);
  s.b.next();  // of the state
  for (const uint64_t landing : landings) {
    EXPECT_EQ(s.host.engine.on_end(landing, true).rc, Rc::kOk);
    EXPECT_EQ(s.b.next().value().type, EventType::kPut);
  }
}

TEST(Landing, APortalThatEndsGivesThePlacesBack) {
  Stream s;
  s.portal.append(List::kPriority, s.b.entry_for(overflow(1, 0), s.in));
  s.b.next();
  for (int i = 0; i < 7; ++i) s.begin(s.packet(1));
  s.b.portals.clear();
  Portal &again = s.b.open_portal(0, {.is_matching = true, .flow_control = true});
  again.append(List::kPriority, s.b.entry_for(receive(1), s.in));
  Packet packet = s.packet(1);
  packet.bytes = s.out.data();
  EXPECT_EQ(s.host.engine.on_packet(packet).rc, Rc::kOk);
}

TEST(Landing, ForOtherListsAllBytesComeFirst) {
  Stream s;
  std::vector<uint8_t> saved(1000);
  s.portal.append(List::kOverflow, s.b.entry_for(overflow(9, 8), saved));
  const Engine::Begun begun = s.host.engine.on_head(s.packet(100));
  EXPECT_FALSE(begun.reply.has_value());
  EXPECT_EQ(begun.landing, 0u);
  EXPECT_EQ(s.host.used(Resource::kListEntry), 1u) << "nothing has happened";
  Packet whole = s.packet(100);
  whole.bytes = s.out.data();
  EXPECT_EQ(s.host.engine.on_packet(whole).rc, Rc::kOk);
  EXPECT_EQ(s.host.engine.on_head(s.packet(8, Op::kAtomic)).landing, 0u);
}

TEST(Landing, AConnectionThatEndsFailsWhatItHasBegun) {
  Stream s;
  s.portal.append(List::kPriority, s.b.entry_for(receive(1), s.in));
  const uint64_t landing = s.begin(s.packet(1000));
  s.bring(landing, 0, 100);
  EXPECT_EQ(s.host.engine.on_end(landing, false).rc, Rc::kMstCancelled);
  const Event event = s.b.next().value();
  EXPECT_EQ(event.rc, Rc::kMstCancelled);
  EXPECT_EQ(event.mlength, 0u);
  EXPECT_TRUE(event.auto_unlinked);
  EXPECT_EQ(s.host.engine.on_end(landing, true).rc, Rc::kMstCancelled) << "it is over";
}

TEST(Landing, MemoryOrAPortalThatGoesIsNotTouched) {
  Stream s;
  const auto start = reinterpret_cast<uintptr_t>(s.in.data());
  const Memory memory = must(s.b.lni->map(start, 1000, Lni::kWrite));
  Entry entry = s.b.entry_for(receive(1), s.in);
  entry.memory = memory;
  s.portal.append(List::kPriority, entry);
  entry.memory = s.b.everything;
  s.portal.append(List::kPriority, entry);
  const uint64_t first = s.begin(s.packet(1000)), second = s.begin(s.packet(1000));
  s.bring(first, 0, 10);
  s.b.lni->unmap(memory);
  s.bring(first, 10, 990);
  EXPECT_EQ(s.host.engine.on_end(first, true).rc, Rc::kNoTranslation);
  EXPECT_EQ(s.in[10], 0);
  s.b.portals.clear();
  s.bring(second, 0, 1000);
  EXPECT_EQ(s.in[10], 0);
  EXPECT_EQ(s.host.engine.on_end(second, true).rc, Rc::kMstCancelled);
}

TEST(Landing, AReplyMayComeInPiecesToo) {
  Stream s;
  s.host.elsewhere = true;
  Transfer get = s.b.put_to({99, 1, 200}, s.in);
  get.op = Op::kGet;
  get.length = 500;
  s.b.send(get);
  const uint64_t token = s.host.sent.at(0).token;
  s.host.engine.on_reply_bytes(token, 0, std::span(s.out).subspan(0, 200));
  s.host.engine.on_reply_bytes(token + 1, 200, std::span(s.out).subspan(0, 200));
  EXPECT_EQ(s.in[200], 0);
  s.host.engine.on_reply_bytes(token, 200, std::span(s.out).subspan(200, 800));
  s.host.engine.on_reply({.token = token, .mlength = 500});
  EXPECT_EQ(s.b.ack().value().mlength, 500u);
  EXPECT_EQ(s.in[499], s.out[499]);
  EXPECT_EQ(s.in[500], 0) << "no more than was asked for";
  s.b.send(get);
  const Memory part = must(s.b.lni->map(get.local, 500, Lni::kWrite));
  get.memory = part;
  s.b.send(get);
  s.b.lni->unmap(part);
  const uint64_t second = s.host.sent.at(2).token;
  s.host.engine.on_reply_bytes(second, 0, std::span(s.out).subspan(0, 500));
  s.host.engine.on_reply({.token = second, .mlength = 500});
  EXPECT_EQ(s.b.ack().value().rc, Rc::kNoTranslation);
}

}  // namespace
}  // namespace weft::cxi
