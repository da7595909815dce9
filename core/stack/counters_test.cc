// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "core/stack/toys.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A fabric of a plugin that counts, in one of several right and wrong ways.
struct CountingFabric {
  weft_fid_header header{};
  fid_fabric fabric{};
  fi_ops ops{};
  weft_counters_ops counters{};
  std::map<std::string, weft_counters_ops *> answers;  // by the name of the ops
  std::vector<weft_counter> values;
  size_t claims = 0;  // more counters than there are
  std::vector<const char *> texts;

  static CountingFabric &of(struct fid *fid) {
    return *static_cast<CountingFabric *>(fid->context);
  }
  explicit CountingFabric(const weft_instance &instance) {
    header.magic = WEFT_FID_MAGIC;
    header.struct_size = sizeof header;
    header.instance = &instance;
    fabric.fid.fclass = FI_CLASS_FABRIC;
    fabric.fid.context = this;
    fabric.fid.ops = &ops;
    ops.size = sizeof ops;
    ops.ops_open = [](struct fid *fid, const char *name, uint64_t, void **out, void *) -> int {
      const auto &all = of(fid).answers;
      const auto found = all.find(name);
      if (found == all.end()) return -FI_ENOSYS;
      *out = found->second;
      return 0;
    };
    counters.size = sizeof counters;
    counters.read = [](struct fid *fid, weft_counter *out, size_t count) -> size_t {
      const CountingFabric &self = of(fid);
      for (size_t i = 0; i < self.values.size() && i < count; ++i) out[i] = self.values[i];
      return self.values.size() + self.claims;
    };
    counters.describe = [](struct fid *fid, size_t index) -> const char * {
      const CountingFabric &self = of(fid);
      return index < self.texts.size() ? self.texts[index] : nullptr;
    };
    answers[WEFT_COUNTERS_OPS] = &counters;
  }
  ~CountingFabric() { close(); }
  void close() {
    if (table != nullptr) std::exchange(table, nullptr)->closing(&fabric.fid);
  }
  ObjectTable *table = nullptr;  // while open
};

class CountersTest : public ::testing::Test {
 protected:
  CountersTest() {
    toys::current_table() = &table_;
    instance_.magic = WEFT_INSTANCE_MAGIC;
    instance_.struct_size = sizeof instance_;
    instance_.core = &services_;
    instance_.unit = &unit_;
    instance_.stack = "tcp;ofi_rxm";
  }
  void open(CountingFabric &fabric) {
    weft_error why{};
    ASSERT_EQ(table_.opened(&fabric.fabric.fid, nullptr, &why), 0);
    fabric.table = &table_;
  }
  std::shared_ptr<Hook> hook(const LoadedUnit &unit) {
    InstanceSpec spec;
    spec.unit = unit;
    spec.stack = "tcp";
    spec.core = &services_;
    return Hook::create(std::move(spec)).value();
  }

  weft_core_services services_ = toys::services();
  weft_unit unit_ = toys::provider();
  weft_instance instance_{};
  ObjectTable table_;
};

TEST_F(CountersTest, OfAllFabricsByElementAndStack) {
  CountingFabric first(instance_), silent(instance_), second(instance_);
  first.values = {{"lost", 3}, {"found", UINT64_MAX}};
  first.texts = {"things that were lost"};
  silent.answers.clear();
  second.values = {{"lost", 0}};
  for (CountingFabric *one : {&first, &silent, &second}) open(*one);
  table_.own_fabric(&first.fabric.fid, "10.0.0.0/8", std::make_shared<int>(1));
  const std::vector<FabricCounters> all = read_counters(table_);
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].element, "tcp");
  EXPECT_EQ(all[0].hook, "");
  EXPECT_EQ(all[0].stack, "tcp;ofi_rxm");
  EXPECT_EQ(all[0].name, "10.0.0.0/8");
  EXPECT_EQ(all[0].id, table_.list()[0].id);
  ASSERT_THAT(all[0].counters, SizeIs(2));
  EXPECT_EQ(all[0].counters[0].name, "lost");
  EXPECT_EQ(all[0].counters[0].value, 3u);
  EXPECT_EQ(all[0].counters[0].what, "things that were lost");
  EXPECT_EQ(all[0].counters[1].value, UINT64_MAX);
  EXPECT_EQ(all[0].counters[1].what, "") << "the plugin says nothing of it";
  EXPECT_EQ(all[1].name, "");
  EXPECT_NE(all[1].id, all[0].id);
  first.close();
  EXPECT_THAT(read_counters(table_), SizeIs(1));
}

// Plugins that are older, lie or crash the careless.
TEST_F(CountersTest, OfWrongPluginsAreLeftOutOrCut) {
  const std::string long_name(1000, 'x');
  CountingFabric no_ops(instance_), short_ops(instance_), no_open(instance_), null_ops(instance_),
      short_counters(instance_), no_read(instance_), old(instance_), liar(instance_),
      nameless(instance_), endless(instance_);
  no_ops.fabric.fid.ops = nullptr;
  short_ops.ops.size = offsetof(fi_ops, ops_open);
  no_open.ops.ops_open = nullptr;
  null_ops.answers[WEFT_COUNTERS_OPS] = nullptr;
  short_counters.counters.size = sizeof(size_t);
  no_read.counters.read = nullptr;
  for (CountingFabric *one : {&no_ops, &short_ops, &no_open, &null_ops, &short_counters, &no_read})
    one->values = {{"unseen", 1}};
  old.counters.size = offsetof(weft_counters_ops, describe);  // before there was describe()
  old.values = {{"old", 1}};
  old.texts = {"this is not read"};
  liar.values = {{"one", 1}};
  liar.claims = SIZE_MAX - 1;  // and fewer are there
  nameless.values = {{nullptr, 7}, {long_name.c_str(), 8}};
  endless.values.assign(kMostCounters + 10, {"many", 1});
  for (CountingFabric *one : {&no_ops, &short_ops, &no_open, &null_ops, &short_counters, &no_read,
                              &old, &liar, &nameless, &endless})
    open(*one);
  const std::vector<FabricCounters> all = read_counters(table_);
  ASSERT_THAT(all, SizeIs(4));
  EXPECT_EQ(all[0].counters[0].name, "old");
  EXPECT_EQ(all[0].counters[0].what, "");
  ASSERT_THAT(all[1].counters, SizeIs(1)) << "of the rest there are no names";
  ASSERT_THAT(all[2].counters, SizeIs(1));
  EXPECT_EQ(all[2].counters[0].name, long_name.substr(0, kMostText));
  EXPECT_THAT(all[3].counters, SizeIs(kMostCounters));
}

// A hook that counts, and answers to its own name.
struct CountingHook {
  static inline uint32_t slot = 5;
  static int ops_open(struct fid *fid, const char *name, uint64_t flags, void **out,
                      void *context) {
    static constexpr weft_counters_ops kOps{
        .size = sizeof kOps,
        .read = [](struct fid *, weft_counter *counters, size_t count) -> size_t {
          if (count > 0) counters[0] = {"fired", 42};
          return 1;
        },
        .describe = [](struct fid *, size_t) -> const char * { return "how often"; }};
    if (std::strcmp(name, WEFT_HOOK_COUNTERS_OPS "fault") == 0) {
      *out = const_cast<weft_counters_ops *>(&kOps);
      return 0;
    }
    const weft_fid_header *header = reinterpret_cast<const weft_fid_header *>(fid) - 1;
    return header->links_core[slot]->next.fid->ops_open(fid, name, flags, out, context);
  }
  static LoadedUnit loaded() {
    static struct fi_ops fid = [] {
      struct fi_ops table {};
      table.size = sizeof table;
      table.ops_open = ops_open;
      return table;
    }();
    static const weft_op_tables overlay = [] {
      weft_op_tables tables{};
      tables.struct_size = sizeof tables;
      tables.fid = &fid;
      return tables;
    }();
    static const weft_hook_unit tables = {
        sizeof tables,
        0,
        &overlay,
        [](const weft_instance *instance, void **, weft_error *) -> int32_t {
          slot = instance->hook_slot;
          return 0;
        },
        [](void *) {},
        nullptr,
        nullptr};
    static const weft_unit unit = [] {
      weft_unit one = toys::unit(WEFT_KIND_HOOK, "fault", nullptr);
      one.hook = &tables;
      return one;
    }();
    return {&unit, nullptr, slot, nullptr};
  }
};

TEST_F(CountersTest, OfAHookAreToldOnceBesideThoseOfTheFabrics) {
  CountingFabric first(instance_), second(instance_);
  for (CountingFabric *one : {&first, &second}) {
    one->values = {{"any", 1}};
    open(*one);
  }
  EXPECT_THAT(read_counters(table_), SizeIs(2));
  const std::shared_ptr<Hook> fault = hook(CountingHook::loaded());
  ASSERT_TRUE(table_.attach(&first.fabric.fid, fault));
  ASSERT_TRUE(table_.attach(&second.fabric.fid, fault));
  const std::vector<FabricCounters> all = read_counters(table_);
  ASSERT_THAT(all, SizeIs(3)) << "the hook counts for its whole stack";
  EXPECT_EQ(all[0].hook, "");
  EXPECT_EQ(all[1].hook, "fault");
  EXPECT_EQ(all[1].element, "tcp");
  EXPECT_EQ(all[1].counters[0].name, "fired");
  EXPECT_EQ(all[1].counters[0].value, 42u);
  EXPECT_EQ(all[1].counters[0].what, "how often");
  EXPECT_EQ(all[2].hook, "");
  // Another hook of that name, with other settings, counts for itself.
  ASSERT_TRUE(table_.detach(&second.fabric.fid, "fault"));
  ASSERT_TRUE(table_.attach(&second.fabric.fid, hook(CountingHook::loaded())));
  EXPECT_THAT(read_counters(table_), SizeIs(4));
  for (CountingFabric *one : {&first, &second}) one->close();
}

// The application closes fabrics while another process asks.
TEST_F(CountersTest, AreReadWhileFabricsComeAndGo) {
  std::atomic<bool> stop{false};
  std::atomic<int> opened{0};
  std::thread application([&] {
    while (!stop) {
      CountingFabric fabric(instance_);
      fabric.values = {{"lives", 1}};
      open(fabric);
      ++opened;
      fabric.close();  // waits for who reads
      std::memset(static_cast<void *>(&fabric.counters), 0xdd, sizeof fabric.counters);
    }
  });
  size_t seen = 0;
  while (seen < 20 || opened < 100) {
    for (const FabricCounters &one : read_counters(table_)) {
      ++seen;
      ASSERT_THAT(one.counters, SizeIs(1));
      EXPECT_EQ(one.counters[0].name, "lives");
    }
  }
  stop = true;
  application.join();
  EXPECT_THAT(read_counters(table_), IsEmpty());
}

TEST_F(CountersTest, AVisitThatThrowsLeavesNothingHeld) {
  CountingFabric first(instance_), second(instance_);
  open(first);
  open(second);
  EXPECT_THROW(table_.visit_fabrics([](const ObjectTable::Visited &) { throw std::bad_alloc(); }),
               std::bad_alloc);
  first.close();  // would wait for ever
  second.close();
  EXPECT_THAT(table_.list(), IsEmpty());
}

}  // namespace
}  // namespace weft
