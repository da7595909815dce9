// SPDX-License-Identifier: BSD-2-Clause
#include <gtest/gtest.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/peer/place.h>

#include <map>
#include <vector>

namespace weft::sdk {
namespace {

using Claim = PlaceOwner::Claim;
constexpr uint64_t kNow = 5'000'000'000;

TEST(PlaceOwner, ItsAnswerDecides) {
  PlaceOwner owner;
  EXPECT_EQ(owner.judge(3, kNow, false), Claim::kAsk);
  EXPECT_EQ(owner.judge(3, kNow, false), Claim::kWait);
  owner.told(3, kNow + 1);
  EXPECT_EQ(owner.judge(3, kNow + 2, false), Claim::kTrue);
  EXPECT_EQ(owner.judge(4, kNow + 2, false), Claim::kFalse);
}

TEST(PlaceOwner, WhoDoesNotAnswerHasNoContexts) {
  PlaceOwner owner;
  EXPECT_EQ(owner.judge(1, kNow, false), Claim::kAsk);
  constexpr uint64_t kGap = PlaceOwner::kLongestGapNs;
  for (uint64_t t = kGap; t < PlaceOwner::kPatienceNs; t += kGap) {
    EXPECT_EQ(owner.judge(1, kNow + t, false), Claim::kWait);
    EXPECT_TRUE(owner.waits(kNow + t));
  }
  EXPECT_EQ(owner.judge(1, kNow + PlaceOwner::kPatienceNs - 1, false), Claim::kWait);
  EXPECT_EQ(owner.judge(1, kNow + PlaceOwner::kPatienceNs, false), Claim::kFalse);
  EXPECT_FALSE(owner.waits(kNow + PlaceOwner::kPatienceNs));
  EXPECT_EQ(owner.judge(1, kNow + PlaceOwner::kLastsNs - 1, false), Claim::kFalse);
  EXPECT_EQ(owner.judge(1, kNow + PlaceOwner::kLastsNs, false), Claim::kAsk);
}

// A claim that comes late says nothing of the owner: neither side may have run meanwhile.
TEST(PlaceOwner, APauseOfOursIsNoSilenceOfTheOwner) {
  PlaceOwner owner;
  EXPECT_EQ(owner.judge(1, kNow, false), Claim::kAsk);
  for (uint64_t i = 1; i < 5; ++i)
    EXPECT_EQ(owner.judge(1, kNow + i * 2'000'000'000, false), Claim::kWait);
  EXPECT_TRUE(owner.waits(kNow + 8'000'000'000));
}

TEST(PlaceOwner, AnAnswerLastsWithItsConnectionOrForAWhile) {
  PlaceOwner owner;
  owner.judge(1, kNow, false);
  owner.told(1, kNow);
  const uint64_t late = kNow + PlaceOwner::kLastsNs;
  EXPECT_EQ(owner.judge(1, late - 1, false), Claim::kTrue);
  EXPECT_EQ(owner.judge(1, late, true), Claim::kTrue);
  EXPECT_EQ(owner.judge(1, late, false), Claim::kAsk);
  EXPECT_EQ(owner.judge(1, late, true), Claim::kWait) << "the earlier answer is forgotten";
}

// An endpoint that has one scalable endpoint in its address vector: entry 7, at port 9000.
struct Endpoint final : PlaceOwners::Peers {
  static constexpr uint32_t kEntry = 7;
  static uint32_t context(unsigned place) { return Av::kContext + kEntry * Av::kContexts + place; }
  uint32_t index_of_context(const Address &address, unsigned place) override {
    return address.port() == 9000 + place ? context(place) : Av::kNone;
  }
  bool is_connected(uint32_t) override { return connected; }
  void ask_for_places(uint32_t entry, const Address &first) override {
    EXPECT_EQ(entry, kEntry);
    EXPECT_EQ(first.port(), 9000);
    ++asked;
  }
  void name_context(const Address &address, unsigned place, uint32_t index) override {
    EXPECT_EQ(address.port(), 9000 + place);
    EXPECT_EQ(index, context(place));
    named.push_back(place);
  }
  void drop_context(const Address &address, unsigned place) override {
    EXPECT_EQ(address.port(), 9000 + place);
    dropped.push_back(place);
  }
  bool connected = false;
  int asked = 0;
  std::vector<unsigned> named, dropped;
};

Address at_port(uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  return Address(*SockAddr::from(&in, sizeof in));
}

TEST(PlaceOwners, OnlyAnEndpointOfTheVectorIsAsked) {
  Endpoint endpoint;
  PlaceOwners owners(endpoint);
  EXPECT_EQ(owners.judge(at_port(9001), 0, kNow), Claim::kFalse);
  EXPECT_EQ(owners.judge(at_port(9001), 2, kNow), Claim::kFalse);
  EXPECT_EQ(owners.judge(at_port(3), 5, kNow), Claim::kFalse);
  EXPECT_EQ(endpoint.asked, 0);
  EXPECT_FALSE(owners.waits(Endpoint::kEntry, kNow));
  owners.told(Endpoint::kEntry, at_port(9000), 3, kNow);
  EXPECT_TRUE(endpoint.named.empty()) << "nobody has asked";
}

TEST(PlaceOwners, OneQuestionAnswersForAllContexts) {
  Endpoint endpoint;
  PlaceOwners owners(endpoint);
  EXPECT_EQ(owners.judge(at_port(9001), 1, kNow), Claim::kAsk);
  EXPECT_EQ(owners.judge(at_port(9003), 3, kNow), Claim::kWait);
  EXPECT_EQ(endpoint.asked, 2) << "again, if the question's connection has ended";
  EXPECT_TRUE(owners.waits(Endpoint::kEntry, kNow + PlaceOwner::kLastsNs - 1));
  EXPECT_FALSE(owners.waits(Endpoint::kEntry, kNow + PlaceOwner::kLastsNs));
  owners.told(Endpoint::kEntry, at_port(9000), 2, kNow + 1);
  EXPECT_EQ(endpoint.named, (std::vector<unsigned>{1, 2}));
  EXPECT_FALSE(owners.waits(Endpoint::kEntry, kNow + 2));
  EXPECT_EQ(owners.judge(at_port(9002), 2, kNow + 2), Claim::kTrue);
  EXPECT_EQ(owners.judge(at_port(9003), 3, kNow + 2), Claim::kFalse);
  endpoint.connected = true;
  EXPECT_EQ(owners.judge(at_port(9002), 2, kNow + 2 * PlaceOwner::kLastsNs), Claim::kTrue);
  owners.forget(Endpoint::kEntry);
  EXPECT_EQ(owners.judge(at_port(9002), 2, kNow + 2), Claim::kAsk);
}

// Those of an earlier process that had the port: their connections end.
TEST(PlaceOwners, ContextsThatTheEndpointHasNotAreDropped) {
  Endpoint endpoint;
  PlaceOwners owners(endpoint);
  EXPECT_EQ(owners.judge(at_port(9005), 5, kNow), Claim::kAsk);
  owners.told(Endpoint::kEntry, at_port(9000), 31, kNow);
  EXPECT_EQ(endpoint.named.size(), 31u);
  EXPECT_TRUE(endpoint.dropped.empty());
  owners.told(Endpoint::kEntry, at_port(9000), 29, kNow + 1);
  EXPECT_EQ(endpoint.dropped, (std::vector<unsigned>{30, 31}));
}

TEST(PlaceOwners, AContextSaysNothingOfTheOthers) {
  Endpoint endpoint;
  PlaceOwners owners(endpoint);
  EXPECT_EQ(owners.judge(at_port(9005), 5, kNow), Claim::kAsk);
  owners.told(Endpoint::kEntry, at_port(9001), 31, kNow);
  EXPECT_TRUE(endpoint.named.empty());
  EXPECT_EQ(owners.judge(at_port(9005), 5, kNow), Claim::kWait);
}

// Its process may be another one than that which has answered, or would have.
TEST(PlaceOwners, AnEndpointThatConnectsItselfIsAsked) {
  for (const bool answered : {true, false}) {
    Endpoint endpoint;
    PlaceOwners owners(endpoint);
    owners.begun(Endpoint::kEntry, at_port(9000), kNow);
    EXPECT_EQ(endpoint.asked, 0) << "nobody has said that it is a context";
    EXPECT_EQ(owners.judge(at_port(9005), 5, kNow), Claim::kAsk);
    if (answered) owners.told(Endpoint::kEntry, at_port(9000), 31, kNow);
    endpoint.connected = true;
    owners.begun(Endpoint::kEntry, at_port(9000), kNow + 1);
    EXPECT_EQ(endpoint.asked, 2);
    EXPECT_EQ(owners.judge(at_port(9005), 5, kNow + 2), Claim::kWait);
    owners.told(Endpoint::kEntry, at_port(9000), 1, kNow + 3);
    EXPECT_EQ(owners.judge(at_port(9005), 5, kNow + 4), Claim::kFalse);
    owners.ended(Endpoint::kEntry);
    EXPECT_EQ(owners.judge(at_port(9005), 5, kNow + 5), Claim::kAsk);
  }
}

TEST(PlaceOwners, APortBeyondTheLastIsNoContext) {
  Endpoint endpoint;
  PlaceOwners owners(endpoint);
  EXPECT_EQ(owners.judge(at_port(9001), 1, kNow), Claim::kAsk);
  owners.told(Endpoint::kEntry, at_port(65534), 31, kNow);  // 65535 + 1 is port 0
  EXPECT_TRUE(endpoint.named.empty());
}

}  // namespace
}  // namespace weft::sdk
