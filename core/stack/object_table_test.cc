// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/object_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/stack/toys.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using toys::Fault;
using toys::Profile;
using toys::Trace;

// One provider element with its objects, made by hand.
class ObjectTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    toys::current_table() = &table_;
    toys::logged().clear();
    Trace::reset();
    Profile::reset();
    Fault::reset();
    instance_.magic = WEFT_INSTANCE_MAGIC;
    instance_.struct_size = sizeof instance_;
    instance_.core = &services_;
    instance_.unit = &unit_;
    instance_.plugin_state = &plugin_;
  }

  std::shared_ptr<Hook> hook(const LoadedUnit &unit) {
    InstanceSpec spec;
    spec.unit = unit;
    spec.stack = "tcp";
    spec.core = &services_;
    return Hook::create(std::move(spec)).value();
  }
  void open_fabric() {
    struct fi_fabric_attr attr {};
    ASSERT_EQ(toys::open_fabric(&instance_, nullptr, 0, &attr, &fabric_, nullptr, nullptr), 0);
    ASSERT_EQ(fi_domain(fabric_, nullptr, &domain_, nullptr), 0);
  }
  struct fid_ep *open_ep() {
    struct fid_ep *ep = nullptr;
    EXPECT_EQ(fi_endpoint(domain_, nullptr, &ep, nullptr), 0);
    return ep;
  }
  void close_all(std::initializer_list<struct fid_ep *> eps) {
    for (struct fid_ep *ep : eps) EXPECT_EQ(fi_close(&ep->fid), 0);
    if (domain_ != nullptr) {
      EXPECT_EQ(fi_close(&domain_->fid), 0);
    }
    if (fabric_ != nullptr) {
      EXPECT_EQ(fi_close(&fabric_->fid), 0);
    }
    EXPECT_THAT(table_.list(), IsEmpty());
  }
  static ssize_t send(struct fid_ep *ep) {
    return fi_send(ep, nullptr, 0, nullptr, FI_ADDR_UNSPEC, nullptr);
  }
  std::vector<std::string> hooks_on(struct fid_ep *ep) {
    for (const ObjectTable::Live &one : table_.list()) {
      if (one.fid == &ep->fid) return one.hooks;
    }
    return {"not listed"};
  }

  weft_core_services services_ = toys::services();
  toys::Plugin plugin_;
  weft_unit unit_ = toys::provider();
  weft_instance instance_{};
  ObjectTable table_;
  struct fid_fabric *fabric_ = nullptr;
  struct fid_domain *domain_ = nullptr;
};

TEST_F(ObjectTableTest, ListsObjectsWithParents) {
  open_fabric();
  struct fid_ep *ep = open_ep();
  const std::vector<ObjectTable::Live> live = table_.list();
  ASSERT_EQ(live.size(), 3u);
  EXPECT_EQ(live[0].fid, &fabric_->fid);
  EXPECT_EQ(live[0].parent, nullptr);
  EXPECT_EQ(live[1].parent, &fabric_->fid);
  EXPECT_EQ(live[2].parent, &domain_->fid);
  EXPECT_EQ(live[2].element, "tcp");
  EXPECT_LT(live[0].id, live[1].id);
  EXPECT_EQ(table_.element_of(&ep->fid), &instance_);
  EXPECT_EQ(table_.element_of(reinterpret_cast<struct fid *>(&services_)), nullptr);
  close_all({ep});
}

TEST_F(ObjectTableTest, AnObjectWithoutHooksKeepsItsTables) {
  open_fabric();
  struct fid_ep *ep = open_ep();
  EXPECT_EQ(ep->msg, toys::msg_ops());
  EXPECT_EQ((reinterpret_cast<weft_fid_header *>(&ep->fid) - 1)->links_core, nullptr);
  close_all({ep});
}

TEST_F(ObjectTableTest, RefusesPointersThatAreNoObjects) {
  struct {
    weft_fid_header header{};
    struct fid fid {};
  } fake;
  weft_error why{};
  EXPECT_EQ(table_.opened(&fake.fid, nullptr, &why), -FI_EINVAL);
  EXPECT_THAT(why.text, HasSubstr("weft_fid_header"));
  EXPECT_EQ(table_.opened(nullptr, nullptr, &why), -FI_EINVAL);
  fake.header.magic = WEFT_FID_MAGIC;
  fake.header.struct_size = sizeof fake.header;
  struct {
    weft_fid_header header{};
    struct fid fid {};
  } no_parent;
  EXPECT_EQ(table_.opened(&fake.fid, &no_parent.fid, &why), -FI_EINVAL);
  EXPECT_THAT(why.text, HasSubstr("parent"));
  table_.closing(&fake.fid);  // never opened: nothing happens
  EXPECT_THAT(table_.list(), IsEmpty());
}

TEST_F(ObjectTableTest, HooksOfTheElementAreCalledInOrder) {
  table_.add_element(&instance_, {hook(Trace::loaded()), hook(Profile::loaded())});
  open_fabric();
  struct fid_ep *ep = open_ep();
  EXPECT_THAT(hooks_on(ep), ElementsAre("trace", "profile"));
  EXPECT_EQ(send(ep), 1001);
  EXPECT_EQ(Trace::sends, 1u);
  EXPECT_EQ(Profile::sends, 1u);
  // The outermost hook is called first, and calls the table of the other one.
  EXPECT_EQ(ep->msg->send, &Trace::send);
  EXPECT_EQ(Trace::link_of(&ep->fid)->next.msg->send, &Profile::send);
  EXPECT_EQ(Profile::link_of(&ep->fid)->next.msg->send, &toys::toy_send);
  // Hooks can also call the ops that the plugin left out.
  EXPECT_EQ(fi_recv(ep, nullptr, 0, nullptr, 0, nullptr), -FI_ENOSYS);
  EXPECT_EQ(Profile::link_of(&ep->fid)->next.msg->recv(ep, nullptr, 0, nullptr, 0, nullptr),
            -FI_ENOSYS);
  EXPECT_NE(Profile::link_of(&ep->fid)->next.tagged, nullptr);
  EXPECT_EQ(Profile::link_of(&ep->fid)->next.cq, nullptr);  // an endpoint has no such table
  close_all({ep});
  EXPECT_EQ(Trace::released, 1u);
  table_.remove_element(&instance_);
  EXPECT_THAT(Trace::events, ElementsAre("create", "destroy"));
}

TEST_F(ObjectTableTest, AttachesToALiveObjectAndDetaches) {
  open_fabric();
  struct fid_ep *ep = open_ep();
  struct fid_ep *other = open_ep();
  ASSERT_TRUE(table_.attach(&ep->fid, hook(Trace::loaded())).has_value());
  EXPECT_EQ(send(ep), 1001);
  EXPECT_EQ(send(other), 1001);
  EXPECT_EQ(Trace::sends, 1u);
  EXPECT_EQ(other->msg, toys::msg_ops());
  weft_hook_link *link = Trace::link_of(&ep->fid);
  ASSERT_TRUE(table_.detach(&ep->fid, "trace").has_value());
  EXPECT_EQ(ep->msg, toys::msg_ops()) << "detaching restores the old table";
  EXPECT_EQ(Trace::link_of(&ep->fid), link) << "a thread may still be in the hook";
  EXPECT_EQ(link->next.msg->send(ep, nullptr, 0, nullptr, 0, nullptr), 1002);
  EXPECT_EQ(Trace::released, 0u);
  EXPECT_EQ(send(ep), 1003);
  EXPECT_EQ(Trace::sends, 1u);
  close_all({ep, other});
  EXPECT_EQ(Trace::attached, 1u);
  EXPECT_EQ(Trace::released, 1u);
  EXPECT_THAT(Trace::events, ElementsAre("create", "destroy"));
}

TEST_F(ObjectTableTest, ChildrenInheritTheHooksOfTheirParents) {
  open_fabric();
  struct fid_ep *before = open_ep();
  ASSERT_TRUE(table_.attach(&fabric_->fid, hook(Trace::loaded())).has_value());
  struct fid_ep *after = open_ep();
  send(before);
  send(after);
  EXPECT_EQ(Trace::sends, 2u);
  ASSERT_TRUE(table_.detach(&fabric_->fid, "trace").has_value());
  struct fid_ep *later = open_ep();
  send(before);
  send(after);
  send(later);
  EXPECT_EQ(Trace::sends, 2u);
  close_all({before, after, later});
}

TEST_F(ObjectTableTest, TheSameHookTwiceIsRefused) {
  open_fabric();
  struct fid_ep *ep = open_ep();
  ASSERT_TRUE(table_.attach(&ep->fid, hook(Trace::loaded())).has_value());
  const Result<void> again = table_.attach(&ep->fid, hook(Trace::loaded()));
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, FI_EBUSY);
  EXPECT_THAT(again.error().text, HasSubstr("already"));
  // On its parent it is allowed: this object keeps its hook, the others get the new one.
  struct fid_ep *other = open_ep();
  ASSERT_TRUE(table_.attach(&domain_->fid, hook(Trace::loaded())).has_value());
  send(ep);
  send(other);
  EXPECT_EQ(Trace::sends, 2u);
  EXPECT_THAT(hooks_on(ep), ElementsAre("trace"));
  close_all({ep, other});
}

TEST_F(ObjectTableTest, AHookOfTheStackCannotBeDetached) {
  table_.add_element(&instance_, {hook(Trace::loaded())});
  open_fabric();
  struct fid_ep *ep = open_ep();
  EXPECT_FALSE(table_.attach(&ep->fid, hook(Trace::loaded())).has_value());
  const Result<void> gone = table_.detach(&ep->fid, "trace");
  ASSERT_FALSE(gone.has_value());
  EXPECT_THAT(gone.error().text, HasSubstr("configuration"));
  EXPECT_THAT(table_.detach(&ep->fid, "profile").error().text, HasSubstr("not on this object"));
  // A live hook is outside of those of the stack.
  ASSERT_TRUE(table_.attach(&ep->fid, hook(Profile::loaded())).has_value());
  EXPECT_THAT(hooks_on(ep), ElementsAre("profile", "trace"));
  EXPECT_EQ(ep->msg->send, &Profile::send);
  close_all({ep});
}

TEST_F(ObjectTableTest, HooksCanBeAttachedAndDetachedInAnyOrder) {
  open_fabric();
  struct fid_ep *ep = open_ep();
  const auto trace = hook(Trace::loaded()), profile = hook(Profile::loaded()),
             fault = hook(Fault::loaded());
  ASSERT_TRUE(table_.attach(&ep->fid, trace).has_value());
  ASSERT_TRUE(table_.attach(&domain_->fid, profile).has_value());
  ASSERT_TRUE(table_.attach(&ep->fid, fault).has_value());
  EXPECT_THAT(hooks_on(ep), ElementsAre("fault", "profile", "trace"));
  ASSERT_TRUE(table_.detach(&domain_->fid, "profile").has_value());
  EXPECT_THAT(hooks_on(ep), ElementsAre("fault", "trace"));
  EXPECT_EQ(Fault::link_of(&ep->fid)->next.msg->send, &Trace::send);
  EXPECT_EQ(send(ep), 1001);
  EXPECT_EQ(Fault::sends, 1u);
  EXPECT_EQ(Profile::sends, 0u);
  EXPECT_EQ(Trace::sends, 1u);
  ASSERT_TRUE(table_.detach(&ep->fid, "trace").has_value());
  ASSERT_TRUE(table_.attach(&ep->fid, profile).has_value());
  EXPECT_THAT(hooks_on(ep), ElementsAre("profile", "fault"));
  EXPECT_EQ(send(ep), 1002);
  EXPECT_EQ(Profile::sends, 1u);
  ASSERT_TRUE(table_.detach(&ep->fid, "fault").has_value());
  ASSERT_TRUE(table_.detach(&ep->fid, "profile").has_value());
  EXPECT_EQ(ep->msg, toys::msg_ops());
  EXPECT_EQ(Profile::attached, 1u) << "a hook that comes back has its old state";
  close_all({ep});
  EXPECT_EQ(Profile::released, 1u);
}

TEST_F(ObjectTableTest, AFailingHookIsLoggedAndTheObjectGoesOn) {
  table_.add_element(&instance_, {hook(Trace::loaded())});
  Trace::attach_rc = -FI_ENOMEM;
  open_fabric();
  struct fid_ep *ep = open_ep();
  EXPECT_EQ(ep->msg, toys::msg_ops());
  ASSERT_EQ(toys::logged().size(), 1u);
  EXPECT_THAT(toys::logged()[0], HasSubstr("the toy hook refuses"));
  Profile::attach_rc = -FI_EIO;
  const Result<void> live = table_.attach(&ep->fid, hook(Profile::loaded()));
  ASSERT_FALSE(live.has_value());
  EXPECT_THAT(live.error().text, HasSubstr("the toy hook refuses"));
  Profile::attach_rc = 0;
  EXPECT_TRUE(table_.attach(&ep->fid, hook(Profile::loaded())).has_value());
  Profile::attach_rc = 1;  // the hook does not want it: no failure
  struct fid_ep *other = open_ep();
  EXPECT_TRUE(table_.attach(&other->fid, hook(Profile::loaded())).has_value());
  EXPECT_EQ(other->msg, toys::msg_ops());
  close_all({ep, other});
}

TEST_F(ObjectTableTest, AHookMayOverlayClose) {
  Trace::watch_close = true;
  table_.add_element(&instance_, {hook(Trace::loaded())});
  open_fabric();
  struct fid_ep *ep = open_ep();
  close_all({ep});
  EXPECT_EQ(Trace::closes, 1u);
  EXPECT_EQ(Trace::released, 1u);
}

TEST_F(ObjectTableTest, APluginMayReplaceItsTable) {
  struct fi_ops_msg faster = *toys::msg_ops();
  faster.send = [](struct fid_ep *, const void *, size_t, void *, fi_addr_t, void *) -> ssize_t {
    return 42;
  };
  open_fabric();
  struct fid_ep *ep = open_ep();
  ASSERT_TRUE(table_.attach(&ep->fid, hook(Trace::loaded())).has_value());
  ep->msg = &faster;  // as after fi_setopt
  EXPECT_EQ(send(ep), 42);
  ASSERT_TRUE(table_.attach(&ep->fid, hook(Profile::loaded())).has_value());
  EXPECT_EQ(send(ep), 42);
  EXPECT_EQ(Profile::sends, 1u);
  EXPECT_EQ(Trace::sends, 1u);
  ASSERT_TRUE(table_.detach(&ep->fid, "trace").has_value());
  ASSERT_TRUE(table_.detach(&ep->fid, "profile").has_value());
  EXPECT_EQ(ep->msg, &faster);
  close_all({ep});
}

TEST_F(ObjectTableTest, AParentMayCloseFirst) {
  open_fabric();
  struct fid_ep *ep = open_ep();
  ASSERT_TRUE(table_.attach(&ep->fid, hook(Trace::loaded())).has_value());
  EXPECT_EQ(fi_close(&domain_->fid), 0);
  domain_ = nullptr;
  EXPECT_EQ(table_.list().back().parent, nullptr);
  ASSERT_TRUE(table_.detach(&ep->fid, "trace").has_value());
  close_all({ep});
}

TEST_F(ObjectTableTest, AClosedFabricReleasesItsOwnerLater) {
  auto owner = std::make_shared<int>(1);
  const void *const mine = owner.get();
  const std::weak_ptr<int> watch = owner;
  open_fabric();
  EXPECT_EQ(table_.owner_of(&domain_->fid), nullptr);
  table_.own_fabric(&fabric_->fid, "net0", std::move(owner));
  EXPECT_EQ(table_.find_fabric(mine, "net0"), &fabric_->fid);
  EXPECT_EQ(table_.find_fabric(mine, "net1"), nullptr);
  EXPECT_EQ(table_.find_fabric(&watch, "net0"), nullptr);
  EXPECT_TRUE(table_.is_fabric(&fabric_->fid, mine, "net0"));
  EXPECT_FALSE(table_.is_fabric(&fabric_->fid, mine, "net1"));
  EXPECT_FALSE(table_.is_fabric(&domain_->fid, mine, "net0"));
  EXPECT_EQ(table_.owner_of(&domain_->fid), mine);
  close_all({});
  EXPECT_FALSE(watch.expired()) << "the plugin's fi_close was still running";
  table_.reap();
  EXPECT_TRUE(watch.expired());
}

TEST_F(ObjectTableTest, OpenObjectsOutliveTheTable) {
  struct fid_ep *ep = nullptr;
  {
    ObjectTable table;
    toys::current_table() = &table;
    open_fabric();
    ep = open_ep();
    ASSERT_TRUE(table.attach(&fabric_->fid, hook(Trace::loaded())).has_value());
  }
  toys::current_table() = &table_;
  EXPECT_EQ(ep->msg, toys::msg_ops());
  EXPECT_EQ(send(ep), 1001);
  close_all({ep});
}

// Under TSan this shows that a published table can be called at any time.
TEST_F(ObjectTableTest, AttachesAndDetachesUnderTraffic) {
  open_fabric();
  struct fid_ep *ep = open_ep();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> sent{0};
  std::vector<std::thread> senders;
  for (int i = 0; i < 2; ++i) {
    senders.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        // fi_send(), with an atomic load in place of its ordinary one, so that TSan sees the order.
        struct fi_ops_msg *msg = __atomic_load_n(&ep->msg, __ATOMIC_ACQUIRE);
        if (msg->send(ep, nullptr, 0, nullptr, 0, nullptr) < 1000) std::abort();
        sent.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  const auto trace = hook(Trace::loaded()), profile = hook(Profile::loaded());
  int rounds = 0;
  while (rounds < 300 || Trace::sends == 0 || Profile::sends == 0) {
    ASSERT_TRUE(table_.attach(&ep->fid, trace).has_value());
    ASSERT_TRUE(table_.attach(&domain_->fid, profile).has_value());
    ASSERT_TRUE(table_.detach(&ep->fid, "trace").has_value());
    struct fid_ep *other = open_ep();  // opening and closing go on meanwhile
    EXPECT_EQ(send(other), 1001);
    ASSERT_TRUE(table_.detach(&domain_->fid, "profile").has_value());
    EXPECT_EQ(fi_close(&other->fid), 0);
    ++rounds;
  }
  stop = true;
  for (std::thread &sender : senders) sender.join();
  EXPECT_EQ(ep->msg, toys::msg_ops());
  EXPECT_EQ(send(ep), static_cast<ssize_t>(1000 + sent + 1)) << "no call was lost";
  close_all({ep});
}

TEST_F(ObjectTableTest, ObjectsOpenAndCloseWhileHooksComeAndGo) {
  open_fabric();
  std::atomic<bool> stop{false};
  std::vector<std::thread> openers;
  for (int i = 0; i < 3; ++i) {
    openers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        struct fid_ep *ep = open_ep();
        struct fi_ops_msg *msg = __atomic_load_n(&ep->msg, __ATOMIC_ACQUIRE);
        if (msg->send(ep, nullptr, 0, nullptr, 0, nullptr) != 1001) std::abort();
        struct fi_ops *ops = __atomic_load_n(&ep->fid.ops, __ATOMIC_ACQUIRE);
        if (ops->close(&ep->fid) != 0) std::abort();
      }
    });
  }
  const auto trace = hook(Trace::loaded());
  for (int i = 0; i < 300 || Trace::sends == 0; ++i) {
    ASSERT_TRUE(table_.attach(&fabric_->fid, trace).has_value());
    (void)table_.list();
    ASSERT_TRUE(table_.detach(&fabric_->fid, "trace").has_value());
  }
  stop = true;
  for (std::thread &opener : openers) opener.join();
  EXPECT_EQ(Trace::attached, Trace::released);
  close_all({});
}

}  // namespace
}  // namespace weft
