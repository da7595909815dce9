// SPDX-License-Identifier: BSD-2-Clause
// Views of an address vector, and the contexts of its entries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "plugin-api/sdk/testing/test_av.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// A view in a lane of the vector's domain.
struct View {
  explicit View(Vector &of) {
    lane.context.origin = &of.domain.context;
    auto made = Av::open_view(lane.context, *of.av);
    if (!made) std::abort();
    av = *made;
  }
  ~View() { av->close_view(); }
  template <class Call>
  auto with(Call call) {
    Guard guard(lane.engine.lock());
    return call(*av);
  }
  uint32_t peer_of(fi_addr_t address) {
    return with([&](Av &view) { return view.peer_of(address); });
  }
  std::string address(uint32_t index) {
    const auto found = with([&](Av &view) { return view.address(index); });
    return found ? found->to_string() : "none";
  }
  uint32_t find(const sockaddr_in &peer) {
    return with([&](Av &view) { return view.find(Address(SockAddr(peer))); });
  }

  TestDomain lane;
  Av *av = nullptr;
};

fi_av_attr with_contexts(int bits = 8) {
  fi_av_attr attr{};
  attr.rx_ctx_bits = bits;
  return attr;
}

TEST(AvView, HasWhatItIsAskedFor) {
  Vector v;
  for (uint32_t i = 0; i < 1000; ++i) v.insert(v4(i));
  View view(v);
  EXPECT_EQ(view.av->count(), 0u);
  EXPECT_EQ(view.peer_of(700), 700u);
  EXPECT_EQ(view.address(700), "10.0.2.188:7471");
  EXPECT_EQ(view.find(v4(3)), 3u);
  EXPECT_EQ(view.av->count(), 2u);
  EXPECT_EQ(view.peer_of(1000), Av::kNone);
  EXPECT_EQ(view.find(v4(1000)), Av::kNone);
  EXPECT_EQ(fi_close(&v.c->fid), -FI_EBUSY);
}

TEST(AvView, SeesInsertionsAndRemovals) {
  Vector v;
  v.insert(v4(1));
  View view(v);
  User user;
  view.with([&](Av &av) {
    av.add_user(user, true);
    return 0;
  });
  EXPECT_EQ(view.peer_of(0), 0u);
  v.insert(v4(2));
  EXPECT_THAT(user.inserted, ElementsAre(Pair(0u, "10.0.0.1:7471"), Pair(1u, "10.0.0.2:7471")));
  EXPECT_EQ(view.peer_of(1), 1u);
  EXPECT_EQ(v.remove(0), 0);
  EXPECT_THAT(user.removed, ElementsAre(0u));
  EXPECT_EQ(view.peer_of(0), Av::kNone);
  EXPECT_EQ(v.insert(v4(3)), 0u);
  EXPECT_EQ(view.address(0), "10.0.0.3:7471");
  view.with([&](Av &av) {
    av.remove_user(user);
    return 0;
  });
}

TEST(AvView, KnowsAddressesThatAreThereTwice) {
  Vector v;
  v.insert(v4(1));
  v.insert(v4(2));
  View view(v);
  EXPECT_EQ(view.peer_of(1), 1u);
  EXPECT_EQ(v.insert(v4(1)), 2u);
  EXPECT_EQ(view.peer_of(2), 0u);
}

TEST(AvView, TellsUserIds) {
  const Name name;
  fi_av_attr own{};
  own.flags = FI_AV_USER_ID;
  // Of a vector of this process, and of one that processes share.
  for (const fi_av_attr &attr : {own, named(name.text, FI_AV_USER_ID)}) {
    Vector v(FI_SOCKADDR_IN, attr);
    v.insert(v4(1));
    EXPECT_EQ(fi_av_set_user_id(v.c, 0, 77, 0), 0);
    View view(v);
    const auto reported = [&] {
      view.peer_of(0);
      return view.with([](Av &av) { return av.reported(0); });
    };
    EXPECT_EQ(reported(), 77u);
    EXPECT_EQ(fi_av_set_user_id(v.c, 0, 78, 0), 0);
    EXPECT_EQ(reported(), 78u);
  }
}

TEST(AvContexts, HaveIndicesOfTheirOwn) {
  Vector v(FI_SOCKADDR_IN, with_contexts());
  v.insert(v4(1));
  v.insert(v4(2));
  Guard guard(v.domain.engine.lock());
  const uint32_t first = v.av->peer_of(1), third = v.av->peer_of(fi_rx_addr(1, 3, 8));
  EXPECT_EQ(first, 1u);
  EXPECT_EQ(third, v.av->context_at(1, 3));
  EXPECT_EQ(Av::entry_of(third), 1u);
  EXPECT_EQ(Av::entry_of(first), 1u);
  EXPECT_EQ(Av::entry_of(Av::kNone), Av::kNone);
  EXPECT_EQ(v.av->address(third)->to_string(), "10.0.0.2:7474");
  EXPECT_EQ(v.av->reported(third), 1u);
  EXPECT_EQ(v.av->peer_of(fi_rx_addr(1, 32, 8)), Av::kNone) << "no endpoint has so many";
  EXPECT_EQ(v.av->peer_of(fi_rx_addr(2, 3, 8)), Av::kNone) << "not inserted";
  EXPECT_EQ(v.av->find_context(SockAddr(v4(2, 7474)), 3), third);
  EXPECT_EQ(v.av->find_context(SockAddr(v4(2, 7474)), 4), Av::kNone);
  EXPECT_EQ(v.av->find_context(SockAddr(v4(2, 2)), 3), Av::kNone) << "no such port";
}

TEST(AvContexts, GoWithTheirEntry) {
  Vector v(FI_SOCKADDR_IN, with_contexts());
  v.insert(v4(1));
  User user;
  uint32_t context;
  {
    Guard guard(v.domain.engine.lock());
    v.av->add_user(user);
    context = v.av->peer_of(fi_rx_addr(0, 1, 8));
  }
  EXPECT_EQ(v.remove(0), 0);
  ASSERT_EQ(user.removed.size(), size_t(Av::kContexts));
  EXPECT_EQ(user.removed[0], 0u);
  EXPECT_EQ(user.removed[1], context);
  Guard guard(v.domain.engine.lock());
  EXPECT_FALSE(v.av->address(context));
  v.av->remove_user(user);
}

TEST(AvContexts, OfAPortThatIsTooHighAreNone) {
  Vector v(FI_SOCKADDR_IN, with_contexts());
  v.insert(v4(1, 65534));
  Guard guard(v.domain.engine.lock());
  EXPECT_TRUE(v.av->address(v.av->peer_of(fi_rx_addr(0, 1, 8))));
  EXPECT_FALSE(v.av->address(v.av->peer_of(fi_rx_addr(0, 2, 8))));
}

}  // namespace
}  // namespace weft::sdk
