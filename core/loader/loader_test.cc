// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "core/loader/test_loader.h"

namespace weft {
namespace {

using testing::HasSubstr;

TEST_F(LoaderTest, LoadsOnceAndCallsFiniAtTheEnd) {
  install();
  {
    Loader loader(without_probe());
    DecisionRecord why;
    const LoadedUnit *toy = loader.load("toy", why);
    ASSERT_NE(toy, nullptr) << why.to_text();
    EXPECT_EQ(loader.load("toy", why), toy);
    const LoadedUnit *layer = loader.load("ofi_toy", why);
    ASSERT_NE(layer, nullptr);
    EXPECT_STREQ(layer->unit->name, "toylayer");
    EXPECT_EQ(layer->plugin_state, toy->plugin_state);
    EXPECT_EQ(toy->info, loader.find("toy"));
    EXPECT_EQ(log(), "init\n");
    ASSERT_EQ(loader.plugins().size(), 1u);
    EXPECT_EQ(loader.plugins()[0].state, "loaded");
    ASSERT_EQ(why.decisions().size(), 3u);
    EXPECT_TRUE(why.decisions()[0].accepted);
    EXPECT_THAT(why.decisions()[0].reason, HasSubstr("toybox 1.0 of Toys & Co."));
  }
  EXPECT_EQ(log(), "init\nfini\n");
}

TEST_F(LoaderTest, RefusesALibraryThatDoesNotMatchItsManifest) {
  install();
  NEEDS_PROBE();
  refresh();
  folder_.copy(toy_plugin(2), "weft/toy.so");
  Loader loader(options());
  DecisionRecord why;
  EXPECT_EQ(loader.load("toy", why), nullptr);
  ASSERT_EQ(why.decisions().size(), 1u);
  EXPECT_EQ(why.decisions()[0].stage, Stage::kNegotiate);
  EXPECT_THAT(why.decisions()[0].reason,
              HasSubstr("'eager_size' as parameter 0, the library has 'eager_limit'"));
  EXPECT_THAT(why.decisions()[0].remedy.words, HasSubstr("weft-probe --manifest"));
  // A unit of the same file that did not change is fine.
  EXPECT_NE(loader.load("toylayer", why), nullptr) << why.to_text();
}

TEST_F(LoaderTest, AnAbsentDeviceRefusesOneUnitOnly) {
  install();
  Loader loader(without_probe());
  DecisionRecord why;
  EXPECT_EQ(loader.load("absent", why), nullptr);
  ASSERT_EQ(why.decisions().size(), 1u);
  EXPECT_EQ(why.decisions()[0].stage, Stage::kDevice);
  EXPECT_EQ(log(), "") << "the library was not opened for it";
  EXPECT_NE(loader.load("toy", why), nullptr) << why.to_text();
}

TEST_F(LoaderTest, EachHookGetsItsOwnSlot) {
  install();
  Loader loader(without_probe());
  DecisionRecord why;
  const LoadedUnit *first = loader.load("hook2", why), *second = loader.load("hook1", why);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first->hook_slot, second->hook_slot);
  EXPECT_EQ(loader.load("hook2", why)->hook_slot, first->hook_slot);
}

TEST_F(LoaderTest, ReportsAnUnknownName) {
  Loader loader(options());
  DecisionRecord why;
  EXPECT_EQ(loader.load("tpc", why), nullptr);
  ASSERT_EQ(why.decisions().size(), 1u);
  EXPECT_EQ(why.decisions()[0].stage, Stage::kManifest);
  EXPECT_THAT(why.decisions()[0].remedy.words, HasSubstr("weft plugin list"));
}

TEST_F(LoaderTest, ReportsAManifestWithoutItsLibrary) {
  install();
  std::filesystem::remove(folder_.at("weft/toy.so"));
  Loader loader(options());
  DecisionRecord why;
  EXPECT_EQ(loader.load("toy", why), nullptr);
  EXPECT_EQ(why.decisions()[0].stage, Stage::kTrust);
  EXPECT_THAT(why.decisions()[0].reason, HasSubstr("no such file"));
}

TEST_F(LoaderTest, ManyThreadsLoadAtOnce) {
  install();
  Loader loader(without_probe());
  std::vector<std::thread> threads;
  std::vector<const LoadedUnit *> loaded(8);
  for (size_t i = 0; i < loaded.size(); ++i)
    threads.emplace_back([&, i] {
      DecisionRecord why;
      loaded[i] = loader.load(i % 2 == 0 ? "toy" : "toylayer", why);
      (void)loader.plugins();
    });
  for (std::thread &thread : threads) thread.join();
  for (size_t i = 0; i < loaded.size(); ++i) {
    ASSERT_NE(loaded[i], nullptr);
    EXPECT_EQ(loaded[i], loaded[i % 2]);
  }
  EXPECT_EQ(log(), "init\n");
}

// Everybody can put a file into a sticky folder. Code of another user must not run from there,
// whether an index, a manifest or nothing describes it.
TEST_F(LoaderTest, RunsNoCodeOfAnotherUser) {
  NEEDS_PROBE();
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const auto expect_refused = [&](const char *what) {
    Loader loader(options());
    DecisionRecord why;
    for (const char *name : {"toy", "hook1"}) EXPECT_EQ(loader.load(name, why), nullptr) << what;
    EXPECT_EQ(log(), "") << what;
    EXPECT_THAT(loader.discovery().to_text() + why.to_text(), HasSubstr("belongs to user 12345"))
        << what;
  };
  const std::string library = folder_.at("weft/toy.so");
  const std::string manifests = folder_.at("weft/plugins.d");
  install();
  refresh();
  unlink(log_.c_str());
  ASSERT_EQ(chmod(folder_.at("weft").c_str(), 01777), 0);
  ASSERT_EQ(chown(library.c_str(), 12345, 12345), 0);
  expect_refused("a library that index and manifest describe");
  unlink(folder_.at("weft/plugins.idx").c_str());
  expect_refused("a library that a manifest describes");
  std::filesystem::remove_all(manifests);
  expect_refused("a library that nobody describes");
  const std::string elsewhere = folder_.copy(toy_plugin(), "elsewhere/toy.so");
  unlink(library.c_str());
  ASSERT_EQ(symlink(elsewhere.c_str(), library.c_str()), 0);
  ASSERT_EQ(lchown(library.c_str(), 12345, 12345), 0);
  expect_refused("a link of another user");
  ASSERT_EQ(lchown(library.c_str(), 0, 0), 0);
  ASSERT_EQ(chown(elsewhere.c_str(), 12345, 12345), 0);
  expect_refused("a link to a library of another user");
  ASSERT_EQ(chown(elsewhere.c_str(), 0, 0), 0);
  ASSERT_EQ(chown(folder_.at("weft").c_str(), 12345, 12345), 0);
  expect_refused("a folder of another user");
  ASSERT_EQ(chown(folder_.at("weft").c_str(), 0, 0), 0);
  Loader loader(options());
  DecisionRecord why;
  EXPECT_NE(loader.load("toy", why), nullptr) << "the same, if it is root's: " << why.to_text();
}

}  // namespace
}  // namespace weft
