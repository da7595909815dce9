// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/addresses/av.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_av.h"
#include "weft/sdk/objects/domain.h"
#include "weft/sdk/objects/ops.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- opening ----

TEST(AvOpen, ChoosesATypeAndSaysWhich) {
  TestDomain domain;
  for (const fi_av_type type : {FI_AV_UNSPEC, FI_AV_TABLE, FI_AV_MAP}) {
    fi_av_attr attr{};
    attr.type = type;
    fid_av *av = nullptr;
    int mark = 0;
    ASSERT_EQ(open_av(domain.context, FI_SOCKADDR_IN, &attr, &av, &mark), 0);
    EXPECT_EQ(attr.type, type == FI_AV_UNSPEC ? FI_AV_TABLE : type);
    EXPECT_EQ(av->fid.fclass, size_t(FI_CLASS_AV));
    EXPECT_EQ(av->fid.context, &mark);
    EXPECT_EQ(domain.context.children.load(), 1u);
    EXPECT_EQ(fi_close(&av->fid), 0);
  }
  fid_av *av = nullptr;
  ASSERT_EQ(open_av(domain.context, FI_SOCKADDR_IN, nullptr, &av, nullptr), 0);
  EXPECT_EQ(fi_close(&av->fid), 0);
}

TEST(AvOpen, RefusesWhatItDoesNotKnow) {
  TestDomain domain;
  fi_av_attr attr{};
  put(attr.type, 77);
  EXPECT_EQ(try_open(domain, attr), -FI_EINVAL);
  attr = {};
  attr.flags = FI_PEEK;
  EXPECT_EQ(try_open(domain, attr), -FI_EBADFLAGS);
  attr = {};
  attr.rx_ctx_bits = -1;
  EXPECT_EQ(try_open(domain, attr), -FI_EINVAL);
  attr.rx_ctx_bits = 33;
  EXPECT_EQ(try_open(domain, attr), -FI_EINVAL);
  attr = {};
  attr.flags = FI_READ;
  EXPECT_EQ(try_open(domain, attr), -FI_EINVAL) << "read-only, and no name";
  EXPECT_EQ(try_open(domain, {}, FI_ADDR_PSMX), -FI_EINVAL);
  EXPECT_THAT(domain.instance.log(),
              ElementsAre(HasSubstr("type 77"), HasSubstr("flags"), HasSubstr("rx_ctx_bits is -1"),
                          HasSubstr("rx_ctx_bits is 33"), HasSubstr("FI_READ"),
                          HasSubstr("nobody can read")));
  EXPECT_EQ(open_av(domain.context, FI_SOCKADDR_IN, &attr, nullptr, nullptr), -FI_EINVAL);
  domain.instance.refuse = true;
  EXPECT_EQ(try_open(domain, {}), -FI_EOTHER);
}

TEST(AvOpen, SymmetricAndExpectedCountsAreHints) {
  TestDomain domain;
  fi_av_attr attr{};
  attr.flags = FI_SYMMETRIC;
  attr.count = SIZE_MAX;
  attr.ep_per_node = SIZE_MAX;
  EXPECT_EQ(try_open(domain, attr), 0);
}

TEST(AvClose, IsBusyWhileEndpointsUseIt) {
  Vector v;
  User user;
  {
    Guard guard(v.domain.engine.lock());
    v.av->add_user(user);
  }
  EXPECT_EQ(fi_close(&v.c->fid), -FI_EBUSY);
  {
    Guard guard(v.domain.engine.lock());
    v.av->remove_user(user);
  }
  v.av->users = 1;
  EXPECT_EQ(fi_close(&v.c->fid), -FI_EBUSY);
  v.av->users = 0;
}

// ---- the rest of the ops ----

TEST(AvRemove, IndicesAreUsedAgainLowestFirst) {
  Vector v;
  for (uint32_t i = 0; i < 300; ++i) EXPECT_EQ(v.insert(v4(i + 1)), i);
  fi_addr_t gone[] = {200, 5, 130};
  EXPECT_EQ(fi_av_remove(v.c, gone, 3, 0), 0);
  EXPECT_EQ(v.lookup(5), "none");
  EXPECT_EQ(v.index_of(5), Av::kNone);
  EXPECT_EQ(v.lookup(6), "10.0.0.7:7471") << "the others stay where they are";
  EXPECT_EQ(v.av->count(), 297u);
  EXPECT_EQ(v.insert(v4(1001)), 5u);
  EXPECT_EQ(v.insert(v4(1002)), 130u);
  EXPECT_EQ(v.insert(v4(1003)), 200u);
  EXPECT_EQ(v.insert(v4(1004)), 300u);
  for (fi_addr_t i = 0; i <= 300; ++i) EXPECT_EQ(v.remove(i), 0);
  EXPECT_EQ(v.av->count(), 0u);
  EXPECT_EQ(v.insert(v4(1)), 0u) << "the same address again";
}

TEST(AvRemove, RemovesTheKnownEntriesAndFailsForTheOthers) {
  Vector v;
  v.insert(v4(1));
  v.insert(v4(2));
  fi_addr_t gone[] = {0, 7, FI_ADDR_UNSPEC, 1};
  EXPECT_EQ(fi_av_remove(v.c, gone, 4, 0), -FI_EINVAL);
  EXPECT_EQ(v.av->count(), 0u);
  EXPECT_EQ(v.remove(0), -FI_EINVAL) << "it is removed already";
  EXPECT_EQ(fi_av_remove(v.c, nullptr, 1, 0), -FI_EINVAL);
  EXPECT_EQ(fi_av_remove(v.c, nullptr, 0, 0), 0);
  EXPECT_EQ(fi_av_remove(v.c, gone, 1, FI_MORE), -FI_EBADFLAGS);
}

TEST(AvUsers, AreToldWhileTheEntryIsThere) {
  Vector v;
  struct Curious final : AvUser {
    explicit Curious(Av &its) : av(its) {}
    void on_av_removed(uint32_t index) override { last = av.address(index)->to_string(); }
    Av &av;
    std::string last;
  } curious(*v.av);
  User user, indifferent;
  {
    Guard guard(v.domain.engine.lock());
    v.av->add_user(user, true);
    v.av->add_user(indifferent);
    v.av->add_user(curious);
  }
  v.insert(v4(1));
  v.insert(v4(2));
  v.remove(1);
  EXPECT_THAT(user.removed, ElementsAre(1));
  EXPECT_THAT(indifferent.removed, ElementsAre(1));
  EXPECT_EQ(curious.last, "10.0.0.2:7471");
  EXPECT_THAT(user.inserted, ElementsAre(std::pair(0u, std::string("10.0.0.1:7471")),
                                         std::pair(1u, std::string("10.0.0.2:7471"))));
  EXPECT_THAT(indifferent.inserted, IsEmpty());
  Guard guard(v.domain.engine.lock());
  v.av->remove_user(indifferent);
  v.av->remove_user(user);
  v.av->remove_user(curious);
}

TEST(AvLookup, CutsWhatDoesNotFitAndTellsTheLength) {
  Vector v;
  v.insert(v4(1));
  sockaddr_in whole{};
  size_t length = 4;
  EXPECT_EQ(fi_av_lookup(v.c, 0, &whole, &length), 0);
  EXPECT_EQ(length, sizeof whole);
  EXPECT_EQ(whole.sin_port, v4(1).sin_port);
  EXPECT_EQ(whole.sin_addr.s_addr, 0u);
  length = 100;
  EXPECT_EQ(fi_av_lookup(v.c, 0, &whole, &length), 0);
  EXPECT_EQ(length, sizeof whole);
  EXPECT_EQ(SockAddr(whole), SockAddr(v4(1)));
  length = 0;
  EXPECT_EQ(fi_av_lookup(v.c, 0, nullptr, &length), 0);
  EXPECT_EQ(length, sizeof whole);
  EXPECT_EQ(fi_av_lookup(v.c, 1, &whole, &length), -FI_EINVAL);
  EXPECT_EQ(fi_av_lookup(v.c, FI_ADDR_NOTAVAIL, &whole, &length), -FI_EINVAL);
  EXPECT_EQ(fi_av_lookup(v.c, 0, &whole, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_lookup(v.c, 0, nullptr, &length), -FI_EINVAL);
}

TEST(AvStraddr, PrintsAnyAddressOfTheFormat) {
  Vector v;
  const sockaddr_in stranger = v4(77);
  const std::string text = "fi_sockaddr_in://10.0.0.77:7471";
  char buffer[64];
  size_t length = sizeof buffer;
  EXPECT_STREQ(fi_av_straddr(v.c, &stranger, buffer, &length), text.c_str());
  EXPECT_EQ(length, text.size() + 1);
  length = 12;
  EXPECT_STREQ(fi_av_straddr(v.c, &stranger, buffer, &length), "fi_sockaddr");
  EXPECT_EQ(length, text.size() + 1);
  length = 0;
  EXPECT_EQ(fi_av_straddr(v.c, &stranger, buffer, &length), buffer);
  EXPECT_STREQ(buffer, "fi_sockaddr") << "nothing written";
  length = sizeof buffer;
  EXPECT_STREQ(fi_av_straddr(v.c, nullptr, buffer, &length), "not an address");
  EXPECT_EQ(fi_av_straddr(v.c, &stranger, buffer, nullptr), buffer);
}

TEST(AvUserId, TakesThePlaceOfTheAddress) {
  Vector v;
  const sockaddr_in peers[] = {v4(1), v4(2), v4(3)};
  fi_addr_t out[] = {1000, 2000, 3000};
  ASSERT_EQ(fi_av_insert(v.c, peers, 1, out, 0, nullptr), 1);
  EXPECT_EQ(v.reported(0), 0u);
  ASSERT_EQ(fi_av_insert(v.c, peers + 1, 2, out + 1, FI_AV_USER_ID, nullptr), 2);
  EXPECT_THAT(out, ElementsAre(0, 1, 2));
  EXPECT_EQ(v.reported(0), 0u);
  EXPECT_EQ(v.reported(1), 2000u);
  EXPECT_EQ(v.reported(2), 3000u);
  EXPECT_EQ(v.reported(3), kNotAvailable);
  EXPECT_EQ(v.reported(Av::kNone), kNotAvailable);
  EXPECT_EQ(fi_av_set_user_id(v.c, 1, 17, 0), -FI_EINVAL) << "the vector was not opened for it";
  v.remove(1);
  v.insert(v4(9));
  EXPECT_EQ(v.reported(1), 1u) << "it went with the entry";
  EXPECT_EQ(v.reported(2), 3000u);
}

TEST(AvUserId, EveryWayToInsertTakesThem) {
  Vector v(FI_SOCKADDR);
  fi_addr_t one = 500;
  ASSERT_EQ(fi_av_insertsvc(v.c, "127.0.0.1", "7000", &one, FI_AV_USER_ID, nullptr), 1);
  EXPECT_EQ(one, 0u);
  fi_addr_t four[] = {601, 602, 603, 604};
  ASSERT_EQ(fi_av_insertsym(v.c, "10.0.0.1", 2, "7000", 2, four, FI_AV_USER_ID, nullptr), 4);
  EXPECT_THAT(four, ElementsAre(1, 2, 3, 4));
  // Narrow entries become wide ones and keep their identifiers.
  fi_addr_t wide = 700;
  const sockaddr_in6 six = v6(1, 3);
  ASSERT_EQ(fi_av_insert(v.c, &six, 1, &wide, FI_AV_USER_ID, nullptr), 1);
  std::vector<fi_addr_t> said;
  for (uint32_t i = 0; i < 6; ++i) said.push_back(v.reported(i));
  EXPECT_THAT(said, ElementsAre(500, 601, 602, 603, 604, 700));
  // One of three is not a valid peer: it gets neither an entry nor an identifier.
  const sockaddr_in some[] = {v4(1), v4(2, 0), v4(3)};
  fi_addr_t out[] = {801, 802, 803};
  int errors[] = {-1, -1, -1};
  ASSERT_EQ(fi_av_insert(v.c, some, 3, out, FI_SYNC_ERR | FI_AV_USER_ID, errors), 2);
  EXPECT_THAT(out, ElementsAre(6, kNotAvailable, 7));
  EXPECT_THAT(errors, ElementsAre(0, FI_EADDRNOTAVAIL, 0));
  EXPECT_EQ(v.reported(6), 801u);
  EXPECT_EQ(v.reported(7), 803u);
}

TEST(AvUserId, WithoutOneAnEntryIsReportedAsNotAvailable) {
  fi_av_attr attr{};
  attr.flags = FI_AV_USER_ID;
  Vector v(FI_SOCKADDR_IN, attr);
  for (uint32_t i = 0; i < 200; ++i) ASSERT_EQ(v.insert(v4(i + 1)), i);
  EXPECT_EQ(v.reported(0), kNotAvailable);
  EXPECT_EQ(fi_av_set_user_id(v.c, 0, 17, 0), 0);
  EXPECT_EQ(v.reported(0), 17u);
  EXPECT_EQ(v.reported(1), kNotAvailable);
  EXPECT_EQ(v.reported(150), kNotAvailable);
  EXPECT_EQ(fi_av_set_user_id(v.c, 200, 17, 0), -FI_EINVAL) << "no such entry";
  EXPECT_EQ(fi_av_set_user_id(v.c, 0, 17, FI_AUTH_KEY), -FI_EBADFLAGS);
  v.remove(0);
  v.insert(v4(1));
  EXPECT_EQ(v.reported(0), kNotAvailable) << "it went with the entry";
  // fi_av.3: such a vector gets its ids by fi_av_set_user_id, not by insertions.
  const sockaddr_in one = v4(300);
  fi_addr_t out = 5;
  EXPECT_EQ(fi_av_insert(v.c, &one, 1, &out, FI_AV_USER_ID, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insertsvc(v.c, "127.0.0.1", "1", &out, FI_AV_USER_ID, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insertsym(v.c, "127.0.0.1", 1, "1", 1, &out, FI_AV_USER_ID, nullptr), -FI_EINVAL);
  EXPECT_EQ(out, 5u);
}

TEST(AvUserId, AreRefusedByADomainThatWasOpenedWithoutThem) {
  Vector v;
  v.domain.context.user_ids = false;
  const sockaddr_in one = v4(1);
  fi_addr_t out = 5;
  EXPECT_EQ(fi_av_insert(v.c, &one, 1, &out, FI_AV_USER_ID, nullptr), -FI_EBADFLAGS);
  EXPECT_EQ(fi_av_insertsvc(v.c, "127.0.0.1", "1", &out, FI_AV_USER_ID, nullptr), -FI_EBADFLAGS);
  EXPECT_EQ(fi_av_insertsym(v.c, "127.0.0.1", 1, "1", 1, &out, FI_AV_USER_ID, nullptr),
            -FI_EBADFLAGS);
  EXPECT_EQ(out, 5u);
  EXPECT_EQ(v.av->count(), 0u);
  fi_av_attr attr{};
  attr.flags = FI_AV_USER_ID;
  EXPECT_EQ(try_open(v.domain, attr), -FI_EBADFLAGS);
  EXPECT_THAT(v.domain.instance.log(), ElementsAre(HasSubstr("fi_domain was called without it")));
  v.domain.context.user_ids = true;
  EXPECT_EQ(try_open(v.domain, attr), 0);
}

// An endpoint that hears of a new entry may complete a receive at once. Its completion reports the
// identifier.
TEST(AvUserId, IsSetBeforeUsersAreToldOfTheEntry) {
  Vector v;
  struct Asks final : AvUser {
    explicit Asks(Av &av) : av_(av) {}
    void on_av_removed(uint32_t) override {}
    void on_av_inserted(uint32_t index, const Address &) override {
      said.push_back(av_.reported(index));
    }
    Av &av_;
    std::vector<fi_addr_t> said;
  } user(*v.av);
  {
    Guard guard(v.domain.engine.lock());
    v.av->add_user(user, true);
  }
  const sockaddr_in peers[] = {v4(1), v4(2)};
  fi_addr_t out[] = {1000, 2000};
  ASSERT_EQ(fi_av_insert(v.c, peers, 2, out, FI_AV_USER_ID, nullptr), 2);
  EXPECT_THAT(user.said, ElementsAre(1000, 2000));
  Guard guard(v.domain.engine.lock());
  v.av->remove_user(user);
}

// Each process has its own identifiers: the file of a shared vector holds none.
TEST(AvUserId, IsNotSharedWithOtherProcesses) {
  const std::string name = "ids-" + std::to_string(getpid());
  fi_av_attr attr{};
  attr.name = name.c_str();
  Vector mine(FI_SOCKADDR_IN, attr), theirs(FI_SOCKADDR_IN, attr);
  const sockaddr_in peers[] = {v4(1), v4(2)};
  fi_addr_t out[] = {1000, 2000};
  ASSERT_EQ(fi_av_insert(mine.c, peers, 2, out, FI_AV_USER_ID, nullptr), 2);
  EXPECT_EQ(theirs.index_of(1), 1u);
  EXPECT_EQ(theirs.reported(1), 1u);
  ASSERT_EQ(theirs.remove(1), 0);
  ASSERT_EQ(theirs.insert(v4(3)), 1u);
  EXPECT_EQ(mine.lookup(1), "10.0.0.3:7471");
  EXPECT_EQ(mine.reported(0), 1000u);
  EXPECT_EQ(mine.reported(1), 1u) << "it is another peer";
}

TEST(AvRxCtxBits, AreCutOff) {
  fi_av_attr attr{};
  attr.rx_ctx_bits = 4;
  Vector v(FI_SOCKADDR_IN, attr);
  v.insert(v4(1));
  const fi_addr_t second = v.insert(v4(2));
  EXPECT_EQ(v.index_of(fi_rx_addr(second, 3, 4)), 1u);
  EXPECT_EQ(v.lookup(fi_rx_addr(second, 15, 4)), "10.0.0.2:7471");
  EXPECT_EQ(v.index_of(FI_ADDR_NOTAVAIL), Av::kNone);
  EXPECT_EQ(v.remove(fi_rx_addr(second, 1, 4)), 0);
  Vector none;
  none.insert(v4(1));
  EXPECT_EQ(none.index_of(fi_rx_addr(0, 1, 4)), Av::kNone) << "no bits were reserved";
}

TEST(AvFind, ReturnsTheLowestIndexOfAnAddressInsertedTwice) {
  Vector v;
  EXPECT_EQ(v.find(v4(1)), Av::kNone);
  for (int i = 0; i < 3; ++i) {
    v.insert(v4(1));
    v.insert(v4(2));
  }
  EXPECT_EQ(v.find(v4(1)), 0u);
  EXPECT_EQ(v.find(v4(2)), 1u);
  v.remove(2);
  EXPECT_EQ(v.find(v4(1)), 0u);
  v.remove(0);
  EXPECT_EQ(v.find(v4(1)), 4u);
  EXPECT_EQ(v.insert(v4(1)), 0u);
  EXPECT_EQ(v.find(v4(1)), 0u);
  v.remove(0);
  v.remove(4);
  EXPECT_EQ(v.find(v4(1)), Av::kNone);
  EXPECT_EQ(v.find(v4(2)), 1u);
  EXPECT_EQ(v.find(v4(2, 1)), Av::kNone) << "another port";
}

TEST(AvPeer, IsTheSameForAnAddressInsertedTwice) {
  for (const bool asked_before : {false, true}) {
    Vector v;
    const SockAddr first = *SockAddr::from_ip("10.0.0.1", 7),
                   second = *SockAddr::from_ip("10.0.0.2", 7);
    const auto peer_of = [&](fi_addr_t address) {
      Guard guard(v.domain.engine.lock());
      return v.av->peer_of(address);
    };
    v.insert(first);
    if (asked_before) {
      EXPECT_EQ(peer_of(0), 0u);
    }
    v.insert(second);
    v.insert(first);
    EXPECT_EQ(peer_of(0), 0u);
    EXPECT_EQ(peer_of(1), 1u);
    EXPECT_EQ(peer_of(2), 0u) << "the first entry of this address";
    EXPECT_EQ(peer_of(3), Av::kNone);
    EXPECT_EQ(v.remove(0), 0);
    EXPECT_EQ(peer_of(0), Av::kNone);
    EXPECT_EQ(peer_of(2), 2u);
  }
}

TEST(AvScopes, BelongToTheAddress) {
  Vector v(FI_SOCKADDR_IN6);
  v.insert(v6(1, 7));
  v.insert(v6(1, 8));
  v.insert(v6(1));
  EXPECT_EQ(v.find(SockAddr(v6(1, 8))), 1u);
  EXPECT_EQ(v.find(SockAddr(v6(1))), 2u);
  EXPECT_EQ(v.find(SockAddr(v6(1, 9))), Av::kNone);
  // These are more scopes than a chunk can number.
  for (uint32_t scope = 10; scope < 1000; ++scope) {
    EXPECT_EQ(v.insert(v6(2, scope)), 3u);
    Guard guard(v.domain.engine.lock());
    EXPECT_EQ(v.av->address(3), SockAddr(v6(2, scope)));
    EXPECT_EQ(v.av->address(0), SockAddr(v6(1, 7)));
    EXPECT_EQ(v.av->address(1), SockAddr(v6(1, 8)));
    fi_addr_t gone = 3;
    v.domain.engine.lock().unlock();
    EXPECT_EQ(fi_av_remove(v.c, &gone, 1, 0), 0);
    v.domain.engine.lock().lock();
  }
  for (uint32_t i = 3; i < 128; ++i) EXPECT_EQ(v.insert(v6(3, 5000 + i)), i);
  Guard guard(v.domain.engine.lock());
  for (uint32_t i = 3; i < 128; ++i) EXPECT_EQ(v.av->address(i), SockAddr(v6(3, 5000 + i)));
}

// ---- against a model ----

class AvModel : public testing::TestWithParam<int> {};

TEST_P(AvModel, DoesTheSameAsAMap) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  fi_av_attr attr{};
  const bool only_ids = GetParam() % 3 == 1;
  attr.flags = only_ids ? FI_AV_USER_ID : 0;
  Vector v(FI_SOCKADDR, attr);
  std::map<uint32_t, SockAddr> model;
  std::map<uint32_t, fi_addr_t> ids;
  const uint32_t variety = GetParam() % 2 == 0 ? 40 : 4000;  // few: many duplicates
  const uint32_t crowd = GetParam() % 3 == 0 ? 3000 : 300;
  const auto some_address = [&]() -> SockAddr {
    const uint32_t n = 1 + random() % variety;
    if (GetParam() % 4 == 1 || random() % 3 != 0) return SockAddr(v4(n));
    return SockAddr(v6(n, random() % 4 == 0 ? 1 + random() % 300 : 0));
  };
  for (int step = 0; step < 6000; ++step) {
    // The vector grows to `crowd` entries, shrinks to none, and so on.
    const bool growing = (step / int(2 * crowd)) % 2 == 0;
    const uint32_t what = random() % 100;
    if (what < (growing ? 70u : 20u)) {
      const SockAddr address = some_address();
      uint32_t lowest = 0;
      for (const auto &[index, there] : model) {
        if (index != lowest) break;
        ++lowest;
      }
      if (only_ids || random() % 2 == 0) {
        ASSERT_EQ(v.insert(address), lowest);
      } else {
        fi_addr_t out = ids[lowest] = uint64_t(random()) << 32 | random();
        ASSERT_EQ(fi_av_insert(v.c, address.c(), 1, &out, FI_AV_USER_ID, nullptr), 1);
        ASSERT_EQ(out, lowest);
      }
      model[lowest] = address;
    } else if (what < 90) {
      fi_addr_t index = random() % (crowd * 2);
      if (random() % 4 != 0 && !model.empty()) {
        const auto it = model.lower_bound(uint32_t(index) % (model.rbegin()->first + 1));
        index = it->first;
      }
      ASSERT_EQ(fi_av_remove(v.c, &index, 1, 0), model.contains(uint32_t(index)) ? 0 : -FI_EINVAL);
      model.erase(uint32_t(index));
      ids.erase(uint32_t(index));
    } else if (only_ids && what < 95) {
      const uint32_t index = random() % (crowd * 2);
      const bool there = model.contains(index);
      ASSERT_EQ(fi_av_set_user_id(v.c, index, step, 0), there ? 0 : -FI_EINVAL);
      if (there) ids[index] = fi_addr_t(step);
    } else if (step > 500) {  // the reverse index begins in the middle
      const SockAddr address = some_address();
      const auto it =
          std::ranges::find_if(model, [&](const auto &entry) { return entry.second == address; });
      ASSERT_EQ(v.find(address), it == model.end() ? Av::kNone : it->first);
    }
    ASSERT_EQ(v.av->count(), model.size());
    if (step % 500 != 0) continue;
    Guard guard(v.domain.engine.lock());
    for (uint32_t index = 0; index < v.av->capacity() + 10; ++index) {
      const auto it = model.find(index);
      ASSERT_EQ(v.av->index_of(index), it == model.end() ? Av::kNone : index);
      ASSERT_EQ(v.av->address(index),
                it == model.end() ? std::nullopt : std::optional<SockAddr>(it->second));
      if (it == model.end()) continue;
      const auto id = ids.find(index);
      ASSERT_EQ(v.av->reported(index), id != ids.end() ? id->second
                                       : only_ids      ? kNotAvailable
                                                       : index);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, AvModel, testing::Range(0, 12));

}  // namespace
}  // namespace weft::sdk
