// SPDX-License-Identifier: BSD-2-Clause
// Two processes that claim the same address. An endpoint runs over a carrier whose events the test
// produces one by one, so that requests cross, claims are false, and links end at the worst moment.
// Ordinary connections are tested in connections_test.cc, random orders of events in core_fuzz.cc.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/ip/sock_addr.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "plugin-api/sdk/testing/test_allocations.h"
#include "plugin-api/sdk/testing/test_instance.h"
#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

struct Link {
  Connection *owner;
};
struct Request {
  bool accepted = false;
};
struct Buffer {};

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint16_t kPeer = 5001;  // its address is above ours
constexpr uint32_t kPeerProcess = 2, kImpostor = 66;

sdk::Address address_of(uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return sdk::SockAddr(in);
}

class Endpoint final : public Carrier, public Core::Upper, public sdk::ReceiverSink {
 public:
  explicit Endpoint(size_t max_strangers = SIZE_MAX, size_t max_connections = 0)
      : receiver_(*this, {.size = 64}) {
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    cq_ = *sdk::Cq::open(domain_.context, &attr, nullptr);
    receiver_.cq = cq_;
    Settings settings;
    settings.process = 1;
    settings.max_strangers = max_strangers;
    settings.max_connections = max_connections;
    core_ = std::make_unique<Core>(*this, *this, settings);
    core_->set_own_address(address_of(5000));
  }
  ~Endpoint() {
    core_->abandon();
    receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
      receiver_.forget(m);
      core_->discard(static_cast<RxMessage &>(m));
    });
    core_.reset();
    fi_close(cq_->base());
  }

  Core &core() { return *core_; }
  void send(uint16_t to, size_t length = 16) {
    TxOp *op = core_->take();
    ASSERT_NE(op, nullptr);
    bytes_.resize(std::max(bytes_.size(), length));
    op->length = length;
    op->iov[0] = {bytes_.data(), length};
    op->count = 1;
    op->tag = ++sends_;
    core_->prepare_message(*op, true, false, Tell::kNothing);
    const sdk::Address address = address_of(to);
    ASSERT_EQ(core_->start(*op, known ? uint32_t(to - kPeer) : kNoIndex, &address), 0);
  }
  // A process asks for a connection. Returns the accepted link, or null.
  Link *asked_by(uint16_t port, uint32_t process, uint8_t place = 0) {
    Request request;
    core_->on_request(request, address_of(1), address_of(5000),
                      encode(ConnectData{.port = port,
                                         .eager_limit = core_->settings().eager_limit,
                                         .receive_count = 64,
                                         .level = kLevel,
                                         .place = place,
                                         .process = process}));
    return request.accepted ? newest() : nullptr;
  }
  // An impostor's request crosses ours, and it gets message 1. Null: it was not accepted.
  Link *crossed() {
    send(kPeer);
    Link *const impostor = asked_by(kPeer, kImpostor);
    if (impostor == nullptr) return nullptr;
    connected(*impostor);
    sent();
    return impostor;
  }
  void connected(Link &link) { core_->on_connected(*link.owner, {}); }
  void accepts(Link &ours, uint32_t process, uint8_t last_place = 0) {
    core_->on_connected(
        *ours.owner,
        encode(AcceptData{
            .process = process, .receive_count = 64, .level = kLevel, .last_place = last_place}));
  }
  void refuses(Link &ours, uint8_t last_place) {
    core_->on_refused(*ours.owner, FI_ECONNREFUSED, encode(RejectReason::kAlready, last_place),
                      false);
  }
  void hangs_up(Link &link) { core_->on_refused(*link.owner, FI_ECONNRESET, {}, true); }
  // A message arrives.
  void hears(Link &link) {
    WireHeader header = header_of(PacketType::kEager, link.owner->slot());
    header.op = uint8_t(PacketOp::kTagged);
    uint8_t bytes[kHeaderSize];
    std::memcpy(bytes, &header, sizeof header);
    core_->on_packet(*link.owner, bytes, buffer_);
  }
  // The same in the short form of stock 1.17.
  void hears_short(Link &link) {
    core_->on_short_message(*link.owner, {}, false, 0, /*tag=*/1, buffer_);
  }
  // Which messages left by this link, or parts of them.
  std::vector<uint64_t> left_by(const Link &link) const {
    std::vector<uint64_t> tags;
    for (const auto &[by, tag] : packets_)
      if (by == &link) tags.push_back(tag);
    return tags;
  }
  void closes(Link &link) { core_->on_closed(*link.owner, FI_ECONNRESET); }
  // The carrier reports all sends as done.
  void sent() {
    for (Token *token : std::exchange(tokens_, {})) core_->on_sent(*token, 0);
  }
  void pass(uint64_t ns) {
    now_ += ns;
    for (int i = 0; i < 20 && deadline_ != 0 && deadline_ <= now_; ++i) core_->on_deadline();
    core_->poll();
  }
  Link *newest() { return &links_.back(); }
  Link &link(size_t i) { return links_[i]; }
  size_t links() const { return links_.size(); }

  bool known = true;          // requesters are in the address vector
  bool has_contexts = false;  // the address vector has kPeer alone, whose contexts may ask
  bool accepts_none = false;  // the carrier has no room
  int answer = 0;             // that the carrier returns from send(), after `room` packets
  size_t room = 0;
  std::vector<int> completed;  // error of each completed operation

  // ---- Carrier ----
  Link *connect(Connection &owner, const sdk::Address &, std::span<const uint8_t>, int &) override {
    return &links_.emplace_back(Link{&owner});
  }
  Link *accept(Connection &owner, Request &request, std::span<const uint8_t>, int &err) override {
    if (accepts_none) {
      err = FI_ENOMEM;
      return nullptr;
    }
    request.accepted = true;
    return &links_.emplace_back(Link{&owner});
  }
  void reject(Request &, std::span<const uint8_t>) override {}
  void close(Link &link, bool) override { link.owner = nullptr; }
  ssize_t send(Link &link, const iovec *iov, void *const *, size_t, uint32_t, uint64_t,
               Token *token) override {
    if (answer != 0 && room-- == 0) {
      room = 0;
      return answer;
    }
    WireHeader header;
    std::memcpy(&header, iov[0].iov_base, sizeof header);
    packets_.emplace_back(&link, header.tag);
    if (token != nullptr) tokens_.push_back(token);
    return 0;
  }
  ssize_t read(Link &, const iovec *, void *const *, size_t, const RmaVector *, size_t, uint64_t,
               Token *) override {
    return -FI_EAGAIN;
  }
  ssize_t write(Link &, const iovec *, void *const *, size_t, const RmaVector *, size_t, uint64_t,
                uint64_t, Token *) override {
    return -FI_EAGAIN;
  }
  void release(Buffer &) override {}
  bool buffers_low() const override { return false; }
  size_t buffers_left() const override { return 64; }
  bool hold(Link &, bool) override { return true; }
  Registration *expose(Link &, const iovec &, uint64_t, RmaVector &, int &err) override {
    err = FI_ENOMEM;
    return nullptr;
  }
  void conceal(Registration &) override {}
  ssize_t resolve(const RmaVector &, uint64_t, iovec *, size_t) override { return -FI_EACCES; }
  uint64_t now_ns() override { return now_; }
  void set_deadline(uint64_t at) override { deadline_ = at; }
  // ---- Core::Upper ----
  void on_done(TxOp &, int err) override { completed.push_back(err); }
  sdk::Receiver &receiver() override { return receiver_; }
  uint32_t index_of(const sdk::Address &address) override {
    if (has_contexts) return address.port() == kPeer ? 0 : kNoIndex;
    return known ? uint32_t(address.port() - kPeer) : kNoIndex;
  }
  uint32_t index_of_context(const sdk::Address &address, unsigned place) override {
    return has_contexts && address.port() - place == kPeer ? sdk::Av::kContext + place : kNoIndex;
  }
  void warn(const char *) override {}
  void on_remote_atomic(uint64_t, std::span<const RmaVector>) override {}
  // ---- ReceiverSink ----
  void deliver(sdk::Unexpected &, sdk::Receive &) override {}
  void discard(sdk::Unexpected &) override {}

 private:
  sdk::TestDomain domain_;
  sdk::Cq *cq_ = nullptr;
  sdk::Receiver receiver_;
  std::unique_ptr<Core> core_;
  std::deque<Link> links_;
  std::vector<Token *> tokens_;
  std::vector<std::pair<Link *, uint64_t>> packets_;
  uint64_t now_ = 1'000'000, deadline_ = 0, sends_ = 0;
  std::vector<char> bytes_ = std::vector<char>(1 << 16);
  Buffer buffer_;
};

// Queued operations go by our own request when the peer accepts it.
void expect_sent_by(Endpoint &e, Link &ours) {
  EXPECT_TRUE(e.completed.empty());
  e.accepts(ours, kPeerProcess);
  e.sent();
  EXPECT_EQ(e.completed, std::vector{0});
}

TEST(Rivals, AnImpostorThatCrossesAndHangsUpFailsNothing) {
  Endpoint e;
  e.send(kPeer);
  Link *impostor = e.asked_by(kPeer, kImpostor);
  ASSERT_NE(impostor, nullptr);
  e.hangs_up(*impostor);
  expect_sent_by(e, e.link(0));
}

TEST(Rivals, NoRoomForACrossingRequestFailsNothing) {
  Endpoint e;
  e.send(kPeer);
  e.accepts_none = true;
  EXPECT_EQ(e.asked_by(kPeer, kImpostor), nullptr);
  expect_sent_by(e, e.link(0));
}

TEST(Rivals, NothingIsLeftWhenAllConnectionsHaveEnded) {
  Endpoint e;
  Link *impostor = e.crossed();
  ASSERT_NE(impostor, nullptr);
  e.accepts(e.link(0), kPeerProcess);
  e.pass(kSecond);
  EXPECT_EQ(impostor->owner, nullptr) << "the peer's connection replaces it";
  EXPECT_EQ(e.core().counters().crossed.value(), 1u);
  EXPECT_EQ(e.core().counters().replaced.value(), 1u);
  e.closes(e.link(0));
  e.pass(kSecond);
  EXPECT_EQ(e.core().objects(), 0u);
}

TEST(Rivals, AStrangerThatRestartsOftenHasOneConnection) {
  Endpoint e;
  e.known = false;
  Link *now = e.asked_by(7000, 1000);
  ASSERT_NE(now, nullptr);
  e.connected(*now);
  for (uint32_t i = 1; i <= 50; ++i) {
    EXPECT_EQ(e.asked_by(7000, 1000 + i), nullptr);
    e.pass(10 * kSecond);
    ASSERT_NE(e.newest(), now) << "the process at the address is asked";
    now = e.newest();
    e.accepts(*now, 1000 + i);
    e.core().poll();
    EXPECT_EQ(e.core().objects(), 1u);
    EXPECT_EQ(e.core().counters().contested.value(), i);
    EXPECT_EQ(e.core().counters().put_off.value(), i);
    EXPECT_EQ(e.core().counters().replaced.value(), i);
  }
}

TEST(Rivals, AnOperationOnADeadLinkGoesByTheLinkThatReplacesIt) {
  Endpoint e;
  Link *impostor = e.crossed();
  ASSERT_NE(impostor, nullptr);
  e.answer = -FI_ENOTCONN;
  e.send(kPeer);
  e.answer = 0;
  e.accepts(e.link(0), kPeerProcess);
  e.sent();
  EXPECT_EQ(e.completed, (std::vector{0, 0}));
  EXPECT_EQ(e.links(), 2u) << "there is no third link";
}

TEST(Rivals, OperationsThatWaitForTheNextConnectionDoNotFail) {
  Endpoint e(SIZE_MAX, 1);
  e.send(kPeer);
  Link *accepted = e.asked_by(kPeer, kPeerProcess);
  ASSERT_NE(accepted, nullptr);
  e.connected(*accepted);
  e.sent();
  e.send(kPeer + 1);  // the connection with the peer is asked to part
  e.send(kPeer);
  e.accepts(e.link(0), kPeerProcess);
  e.pass(kSecond);
  e.sent();
  EXPECT_EQ(e.completed, (std::vector{0, 0}));
}

// The peer's first process accepted and died; its second one asked before we saw either event.
TEST(Rivals, AProcessThatAcceptedAndDiedReplacesNoConnection) {
  Endpoint e;
  e.send(kPeer);
  Link *second = e.asked_by(kPeer, kPeerProcess + 1);
  ASSERT_NE(second, nullptr);
  e.connected(*second);
  e.sent();
  e.accepts(e.link(0), kPeerProcess);
  e.closes(e.link(0));
  e.pass(kSecond);
  EXPECT_NE(second->owner, nullptr);
  e.send(kPeer);
  e.sent();
  EXPECT_EQ(e.completed, (std::vector{0, 0}));
  EXPECT_EQ(e.links(), 2u);
}

using Tags = std::vector<uint64_t>;

// An impostor's request crosses ours. It has got message 1, and our request is accepted.
Link *doubt(Endpoint &e) {
  Link *impostor = e.crossed();
  if (impostor == nullptr) return nullptr;
  e.accepts(e.link(0), kPeerProcess);
  e.send(kPeer);
  e.send(kPeer);
  e.core().poll();
  EXPECT_EQ(e.left_by(*impostor), Tags{1});
  EXPECT_EQ(e.left_by(e.link(0)), Tags{});
  return impostor;
}

TEST(Rivals, InDoubtOperationsWaitForTheOwner) {
  Endpoint e;
  ASSERT_NE(doubt(e), nullptr);
  e.pass(kSecond);
  e.send(kPeer);
  e.sent();
  EXPECT_EQ(e.left_by(e.link(0)), (Tags{2, 3, 4}));
  EXPECT_EQ(e.completed, (std::vector{0, 0, 0, 0}));
}

TEST(Rivals, InDoubtOperationsWaitThoughTheImpostorHangsUp) {
  Endpoint e;
  Link *impostor = doubt(e);
  ASSERT_NE(impostor, nullptr);
  e.closes(*impostor);
  e.pass(0);
  e.sent();
  EXPECT_EQ(e.left_by(e.link(0)), (Tags{2, 3}));
  EXPECT_EQ(e.completed, (std::vector{0, 0, 0}));
}

TEST(Rivals, OperationsGoOnWhenTheRequesterIsTheOwner) {
  Endpoint e;
  Link *second = doubt(e);
  ASSERT_NE(second, nullptr);
  e.closes(e.link(0));
  e.core().poll();
  e.send(kPeer);
  e.sent();
  EXPECT_EQ(e.left_by(*second), (Tags{1, 2, 3, 4}));
  EXPECT_EQ(e.completed, (std::vector{0, 0, 0, 0}));
}

TEST(Rivals, AnAnswerToTheOwnerWaitsThoughItsMessageOvertookTheNews) {
  for (const bool accepted : {true, false}) {
    Endpoint e;
    Link *impostor = e.crossed();
    ASSERT_NE(impostor, nullptr);
    e.hears(e.link(0));
    e.send(kPeer);
    e.core().poll();
    EXPECT_EQ(e.left_by(*impostor), Tags{1});
    if (accepted) {
      e.accepts(e.link(0), kPeerProcess);
      e.pass(kSecond);
    } else {
      e.closes(e.link(0));
      e.core().poll();
    }
    e.sent();
    EXPECT_EQ(e.left_by(accepted ? e.link(0) : *impostor).back(), 2u);
    EXPECT_EQ(e.completed, (std::vector{0, 0}));
  }
}

// While the owner of a connected address is asked, too.
TEST(Rivals, AnAnswerToANewProcessWaitsForItsConnection) {
  Endpoint e;
  Link *old = e.asked_by(kPeer, kPeerProcess);
  ASSERT_NE(old, nullptr);
  e.connected(*old);
  EXPECT_EQ(e.asked_by(kPeer, kPeerProcess + 1), nullptr);
  e.pass(kSecond);
  Link *rival = e.newest();
  ASSERT_NE(rival, old);
  e.send(kPeer);
  e.hears(*rival);
  e.send(kPeer);
  EXPECT_EQ(e.left_by(*old), Tags{1});
  e.accepts(*rival, kPeerProcess + 1);
  e.sent();
  EXPECT_EQ(e.left_by(*rival), Tags{2});
  EXPECT_EQ(e.completed, (std::vector{0, 0}));
}

TEST(Rivals, AMessageOfWhichTheImpostorHasAPartFails) {
  Endpoint e;
  Link *impostor = e.crossed();
  ASSERT_NE(impostor, nullptr);
  e.answer = -FI_EAGAIN;
  e.room = 1;
  e.send(kPeer, 40'000);
  e.send(kPeer);
  e.accepts(e.link(0), kPeerProcess);
  e.answer = 0;
  e.pass(kSecond);
  e.sent();
  EXPECT_EQ(e.left_by(*impostor), (Tags{1, 2}));
  EXPECT_EQ(e.left_by(e.link(0)), Tags{3});
  std::sort(e.completed.begin(), e.completed.end());
  EXPECT_EQ(e.completed, (std::vector{0, 0, FI_ECONNRESET}));
}

TEST(Rivals, AnImpostorThatGoesWhileThePeerIsAskedLeavesItsPlace) {
  Endpoint e;
  e.send(kPeer);
  Link *impostor = e.asked_by(kPeer, kImpostor);
  ASSERT_NE(impostor, nullptr);
  e.connected(*impostor);
  e.accepts(e.link(0), kPeerProcess);
  e.closes(*impostor);
  e.send(kPeer);
  e.pass(0);
  e.sent();
  ASSERT_FALSE(e.completed.empty());
  EXPECT_EQ(e.completed.back(), 0);
  EXPECT_EQ(e.links(), 2u) << "there is no third link";
  e.closes(e.link(0));
  e.pass(kSecond);
  EXPECT_EQ(e.core().objects(), 0u);
}

TEST(Rivals, AnImpostorThatSaysThatItIsAContextTakesNoName) {
  Endpoint e;
  Link *impostor = e.asked_by(kPeer, kImpostor, 3);
  ASSERT_NE(impostor, nullptr);
  e.connected(*impostor);
  EXPECT_EQ(impostor->owner->index(), kNoIndex);
  EXPECT_EQ(e.asked_by(kPeer, kPeerProcess), nullptr);
  e.pass(kSecond);
  Link *owner = e.newest();
  e.accepts(*owner, kPeerProcess);
  EXPECT_EQ(impostor->owner, nullptr);
  EXPECT_EQ(owner->owner->index(), 0u);
}

// A process of the peer's host may say that it is a context of the peer. It has the peer's name if
// the peer says how many contexts it has, and may ask again until then.
TEST(Places, APlaceCountsIfTheEndpointHasIt) {
  constexpr uint8_t kPlace = 3;
  enum Answer { kAccepts, kRefuses, kNothing };
  for (const Answer answer : {kAccepts, kRefuses, kNothing})
    for (const uint8_t last : {uint8_t(kPlace - 1), kPlace}) {
      SCOPED_TRACE(testing::Message() << answer << ", last " << int(last));
      Endpoint e;
      e.has_contexts = true;
      EXPECT_EQ(e.asked_by(kPeer + kPlace, kImpostor, kPlace), nullptr);
      ASSERT_EQ(e.links(), 1u) << "the peer is asked";
      EXPECT_EQ(e.asked_by(kPeer + kPlace, kImpostor, kPlace), nullptr);
      EXPECT_EQ(e.links(), 1u) << "once";
      if (answer == kAccepts) e.accepts(e.link(0), kPeerProcess, last);
      if (answer == kRefuses) e.refuses(e.link(0), last);
      Link *link = e.asked_by(kPeer + kPlace, kImpostor, kPlace);
      for (int i = 0; i < 20 && link == nullptr; ++i) {  // it comes again and again
        e.pass(sdk::PlaceOwner::kLongestGapNs);
        link = e.asked_by(kPeer + kPlace, kImpostor, kPlace);
      }
      ASSERT_NE(link, nullptr);
      const bool named = answer != kNothing && last == kPlace;
      EXPECT_EQ(link->owner->index(), named ? sdk::Av::kContext + kPlace : kNoIndex);
      if (answer != kNothing) continue;
      e.accepts(e.link(0), kPeerProcess, last);  // late
      if (last == kPlace)
        EXPECT_EQ(link->owner->index(), sdk::Av::kContext + kPlace);
      else
        EXPECT_EQ(link->owner, nullptr) << "the endpoint has no such context";
    }
}

// A peer that is too busy hangs up without an answer. An attempt is repeated by itself, a probe
// when the context asks again.
TEST(Places, AQuestionWithoutAnAnswerIsAskedAgain) {
  for (const bool is_connected : {false, true}) {
    SCOPED_TRACE(is_connected);
    Endpoint e;
    e.has_contexts = true;
    if (is_connected) {
      Link *const first = e.asked_by(kPeer, kPeerProcess);
      ASSERT_NE(first, nullptr);
      e.connected(*first);
    }
    EXPECT_EQ(e.asked_by(kPeer + 1, kPeerProcess, 1), nullptr);
    const size_t links = e.links();
    e.hangs_up(*e.newest());
    e.pass(kSecond / 100);
    EXPECT_EQ(e.asked_by(kPeer + 1, kPeerProcess, 1), nullptr);
    ASSERT_EQ(e.links(), links + 1);
    e.accepts(*e.newest(), kPeerProcess, 1);
    Link *const context = e.asked_by(kPeer + 1, kPeerProcess, 1);
    ASSERT_NE(context, nullptr);
    EXPECT_EQ(context->owner->index(), sdk::Av::kContext + 1);
  }
}

// The peer is connected already, by a request of its own: a probe asks it.
TEST(Places, APeerThatIsConnectedIsAskedBeside) {
  Endpoint e;
  e.has_contexts = true;
  Link *const first = e.asked_by(kPeer, kPeerProcess);
  ASSERT_NE(first, nullptr);
  e.connected(*first);
  EXPECT_EQ(e.asked_by(kPeer + 1, kPeerProcess, 1), nullptr);
  e.pass(kSecond / 100);
  ASSERT_EQ(e.links(), 2u);
  e.refuses(e.link(1), 1);
  Link *const context = e.asked_by(kPeer + 1, kPeerProcess, 1);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(context->owner->index(), sdk::Av::kContext + 1);
  EXPECT_NE(first->owner, nullptr);
}

// Stock 1.17 sends tagged messages in a form of its own, and may send nothing else.
TEST(Strangers, WhoSpeaksInShortMessagesIsNotSilent) {
  Endpoint e(/*max_strangers=*/1);
  e.known = false;
  Link *const first = e.asked_by(kPeer, kPeerProcess);
  ASSERT_NE(first, nullptr);
  e.connected(*first);
  e.hears_short(*first);
  e.pass(2 * kSecond);
  EXPECT_EQ(e.asked_by(kPeer + 1, kImpostor), nullptr);
  EXPECT_NE(first->owner, nullptr);
}

TEST(Rivals, ProbesDoNotRaiseTheLimitOnStrangers) {
  Endpoint e(2);
  e.known = false;
  for (const uint16_t port : {7000, 7001}) {
    Link *link = e.asked_by(port, 10);
    ASSERT_NE(link, nullptr);
    e.connected(*link);
  }
  for (const uint16_t port : {7000, 7001}) EXPECT_EQ(e.asked_by(port, 11), nullptr);
  e.pass(10 * kSecond);
  EXPECT_EQ(e.links(), 4u) << "the processes at both addresses are asked";
  for (uint16_t port = 7002; port < 7010; ++port) {
    e.asked_by(port, 10);
    EXPECT_LE(e.core().strangers(), 2u);
  }
}

TEST(Counters, OfRequestsThatAreRefused) {
  Endpoint e(1);
  e.known = false;
  const Counters &counters = e.core().counters();
  Request nonsense;
  e.core().on_request(nonsense, address_of(1), address_of(5000), {});
  EXPECT_EQ(counters.refused.value(), 1u);
  Request other;
  e.core().on_request(other, address_of(1), address_of(5000),
                      encode(ConnectData{.port = 7000, .eager_limit = 1, .level = kLevel}));
  EXPECT_EQ(counters.refused.value(), 2u);
  ASSERT_NE(e.asked_by(7000, 10), nullptr);  // and it stays silent
  EXPECT_EQ(e.asked_by(7001, 10), nullptr);
  EXPECT_EQ(counters.put_off.value(), 1u) << "another stranger is there, and came just now";
  EXPECT_EQ(counters.strangers_closed.value(), 0u);
  e.pass(2 * kSecond);
  EXPECT_NE(e.asked_by(7001, 10), nullptr);
  EXPECT_EQ(counters.strangers_closed.value(), 1u);
}

}  // namespace
}  // namespace weft::rxm
