// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/loader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "core/loader/discovery.h"
#include "core/loader/index.h"
#include "core/loader/manifest_writer.h"
#include "core/loader/side_effects.h"
#include "core/loader/test_folder.h"
#include "core/loader/verdict_cache.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

weft_core_services services() {
  weft_core_services services{};
  services.struct_size = sizeof services;
  services.info_alloc = []() -> fi_info * { return nullptr; };
  return services;
}

class LoaderTest : public testing::Test {
 protected:
  LoaderTest() {
    setenv("WEFT_TOY_LOG", log_.c_str(), 1);
    std::filesystem::create_directories(folder_.at("weft"));
  }
  ~LoaderTest() override { unsetenv("WEFT_TOY_LOG"); }

  LoaderOptions options() {
    LoaderOptions options;
    options.folders = {folder_.at("weft")};
    options.reader_library = CONFIG_READER;
    options.probe_program = PROBE_PROGRAM;
    options.quarantine_file = folder_.at("cache/quarantine");
    options.probe_budget = std::chrono::seconds(20);
    options.services = services();
    return options;
  }
  // What can neither read YAML nor probe: whatever works does so by the index.
  LoaderOptions index_only() {
    LoaderOptions strict = options();
    strict.reader_library = "/nonexistent/weft-config.so";
    strict.probe_program = "/nonexistent/weft-probe";
    strict.quarantine_file.clear();
    strict.unprobed_allow = false;
    return strict;
  }
  // One that takes longer than anybody waits.
  LoaderOptions with_a_slow_probe() {
    LoaderOptions slow = options();
    slow.probe_program =
        folder_.write("slow", "#!/bin/bash\nprintf 'at\\tinit\\n' >&3\nsleep 100\n");
    chmod(slow.probe_program.c_str(), 0755);
    slow.probe_budget = std::chrono::milliseconds(200);
    return slow;
  }
  void install(const std::string &plugin = TOY_PLUGIN) {
    folder_.copy(plugin, "weft/toy.so");
    manifest();
  }
  void manifest() {
    std::filesystem::create_directories(folder_.at("weft/plugins.d"));
    const std::string command = std::string(PROBE_PROGRAM) + " --manifest " +
                                folder_.at("weft/toy.so") + " --output " +
                                folder_.at("weft/plugins.d/toy.yaml");
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  RefreshReport refresh() {
    Result<RefreshReport> report = Loader::refresh(options(), folder_.at("weft"));
    EXPECT_TRUE(report) << report.error().text;
    return report ? *report : RefreshReport{};
  }
  std::string log() const { return TestFolder::read(log_); }

  TestFolder folder_;
  const std::string log_ = folder_.at("log");
};

// For tests in which a child process probes.
#define NEEDS_PROBE() \
  if (count_threads() != 1) GTEST_SKIP() << "this build starts threads of its own; no probing"

std::vector<std::string> names(const Loader &loader) {
  std::vector<std::string> names;
  for (const UnitInfo &unit : loader.units()) names.push_back(unit.name);
  return names;
}

void expect_toy(const Loader &loader, const std::string &folder) {
  EXPECT_THAT(names(loader), ElementsAre("absent", "toy", "toylayer", "hook1", "hook2"));
  const UnitInfo *toy = loader.find("toy");
  ASSERT_NE(toy, nullptr);
  EXPECT_EQ(toy->kind, uint32_t{WEFT_KIND_PROVIDER});
  EXPECT_EQ(toy->version, uint32_t{(1 << 16) | 3});
  EXPECT_EQ(toy->offers_ep, uint32_t{WEFT_EP_BIT(FI_EP_MSG) | WEFT_EP_BIT(FI_EP_RDM)});
  EXPECT_EQ(toy->summary, "a provider that provides nothing: \"toy\" \\ \xc3\xa9");
  EXPECT_EQ(toy->library, folder + "/toy.so");
  EXPECT_EQ(toy->plugin, "toybox");
  EXPECT_EQ(toy->vendor, "Toys & Co.");
  EXPECT_EQ(toy->support, "https://toys.example/help");
  EXPECT_THAT(toy->devices, ElementsAre("path:/nonexistent/toy*", "netdev:*"));
  ASSERT_EQ(toy->params.size(), 2u);
  EXPECT_EQ(toy->params[0].name, "eager_size");
  EXPECT_EQ(toy->params[0].type, uint32_t{WEFT_TYPE_SIZE});
  EXPECT_EQ(toy->params[0].default_value, "16K");
  EXPECT_TRUE(toy->params[0].has_default);
  EXPECT_EQ(toy->params[0].maximum, 1 << 20);
  EXPECT_EQ(toy->params[0].help, "bytes that go at once; \"more\" costs a round trip");
  EXPECT_FALSE(toy->params[1].has_default);
  EXPECT_EQ(loader.find("ofi_toy"), loader.find("toylayer"));
  EXPECT_NE(loader.find("ofi_toy"), nullptr);
}

// ---- the three ways to find a plugin
// -----------------------------------------------------------------------------

TEST_F(LoaderTest, FindsUnitsByManifestWithoutOpeningAnything) {
  install();
  // A library that would be refused: discovery does not look at it.
  folder_.write("weft/toy.so", "no library at all");
  LoaderOptions given = options();
  given.probe_program = "/nonexistent/weft-probe";
  Loader loader(given);
  expect_toy(loader, folder_.at("weft"));
  EXPECT_EQ(loader.find("toy")->manifest, folder_.at("weft/plugins.d/toy.yaml"));
  EXPECT_TRUE(loader.discovery().decisions().empty()) << loader.discovery().to_text();
}

TEST_F(LoaderTest, FindsUnitsByIndexAloneAndLoadsThemWithoutAProbe) {
  install();
  NEEDS_PROBE();
  EXPECT_EQ(refresh().plugins, 1u);
  std::filesystem::remove(log_);
  Loader loader(index_only());
  expect_toy(loader, folder_.at("weft"));
  EXPECT_TRUE(loader.discovery().decisions().empty()) << loader.discovery().to_text();
  DecisionRecord why;
  const LoadedUnit *toy = loader.load("toy", why);
  ASSERT_NE(toy, nullptr) << why.to_text();
  EXPECT_EQ(log(), "init\n");
}

TEST_F(LoaderTest, FindsUnitsByProbingWhereThereIsNeither) {
  NEEDS_PROBE();
  folder_.copy(TOY_PLUGIN, "weft/toy.so");
  Loader loader(options());
  expect_toy(loader, folder_.at("weft"));
  EXPECT_EQ(loader.find("toy")->manifest, "");
  EXPECT_EQ(log(), "init\nfini\n") << "of the child";
}

TEST_F(LoaderTest, OpensALibraryWithoutAManifestWhereItMayNotProbe) {
  folder_.copy(TOY_PLUGIN, "weft/toy.so");
  LoaderOptions given = options();
  given.probe_program.clear();
  Loader loader(given);
  expect_toy(loader, folder_.at("weft"));
  EXPECT_EQ(log(), "") << "nobody chose a unit, so init() was not called";
  DecisionRecord why;
  EXPECT_NE(loader.load("toy", why), nullptr) << why.to_text();
  EXPECT_EQ(log(), "init\n");
}

// ---- staleness
// ----------------------------------------------------------------------------------------------------

TEST_F(LoaderTest, AnIndexMovesWithItsFolder) {
  install();
  NEEDS_PROBE();
  refresh();
  std::filesystem::rename(folder_.at("weft"), folder_.at("moved"));
  LoaderOptions moved = index_only();
  moved.folders = {folder_.at("moved")};
  Loader loader(moved);
  expect_toy(loader, folder_.at("moved"));
  DecisionRecord why;
  EXPECT_NE(loader.load("toy", why), nullptr) << why.to_text();
}

TEST_F(LoaderTest, AManifestThatCameLaterIsFound) {
  install();
  NEEDS_PROBE();
  refresh();
  std::string other = TestFolder::read(folder_.at("weft/plugins.d/toy.yaml"));
  for (const char *name : {"toylayer", "absent", "hook1", "hook2", "ofi_toy", "toy", "toybox"}) {
    const std::string quoted = std::string("\"") + name + "\"";
    for (size_t at = 0; (at = other.find(quoted, at)) != std::string::npos; at += quoted.size())
      other.insert(at + 1, "x");
  }
  folder_.write("weft/plugins.d/same.yaml", other);  // but the library is the same
  {
    Loader loader(options());
    EXPECT_EQ(loader.units().size(), 5u);
    EXPECT_EQ(loader.find("toy"), nullptr) << "the first by name counts";
    ASSERT_NE(loader.discovery().last("toy.yaml"), nullptr);
    EXPECT_THAT(loader.discovery().last("toy.yaml")->reason, HasSubstr("same.yaml does already"));
  }
  std::filesystem::remove(folder_.at("weft/plugins.d/same.yaml"));
  other.replace(other.find("toy.so"), 6, "joy.so");
  folder_.write("weft/plugins.d/other.yaml", other);
  Loader loader(options());
  EXPECT_EQ(loader.units().size(), 10u) << loader.discovery().to_text();
  EXPECT_NE(loader.find("xtoy"), nullptr);
  // What did not change still comes from the index.
  Loader strict(index_only());
  EXPECT_EQ(strict.units().size(), 5u);
  EXPECT_THAT(strict.discovery().to_text(), HasSubstr("other.yaml"));
}

TEST_F(LoaderTest, AManifestThatWentIsGone) {
  install();
  NEEDS_PROBE();
  refresh();
  std::filesystem::remove(folder_.at("weft/plugins.d/toy.yaml"));
  std::filesystem::remove(folder_.at("weft/toy.so"));
  Loader loader(options());
  EXPECT_TRUE(loader.units().empty());
}

TEST_F(LoaderTest, AnotherLibraryUnderAnOldManifestIsRefusedWithTheRemedy) {
  install();
  NEEDS_PROBE();
  refresh();
  folder_.copy(TOY_PLUGIN_2, "weft/toy.so");
  Loader loader(options());
  DecisionRecord why;
  EXPECT_EQ(loader.load("toy", why), nullptr);
  ASSERT_EQ(why.decisions().size(), 1u);
  EXPECT_EQ(why.decisions()[0].stage, Stage::kNegotiate);
  EXPECT_THAT(why.decisions()[0].reason,
              HasSubstr("'eager_size' as parameter 0, the library has 'eager_limit'"));
  EXPECT_THAT(why.decisions()[0].remedy, HasSubstr("weft-probe --manifest"));
  // A unit of the same file that did not change is fine.
  EXPECT_NE(loader.load("toylayer", why), nullptr) << why.to_text();
}

TEST_F(LoaderTest, RefreshTakesTheLibrarysWordOverTheManifests) {
  install();
  NEEDS_PROBE();
  folder_.copy(TOY_PLUGIN_2, "weft/toy.so");
  refresh();
  Loader loader(index_only());
  DecisionRecord why;
  ASSERT_NE(loader.load("toy", why), nullptr) << why.to_text();
  EXPECT_EQ(loader.find("toy")->params[0].name, "eager_limit");
}

TEST_F(LoaderTest, ADamagedIndexIsSaidAndManifestsAreRead) {
  install();
  folder_.write("weft/plugins.idx", "weft-index\t1\t1.0\tx\n");
  Loader loader(options());
  expect_toy(loader, folder_.at("weft"));
  const Decision *trouble = loader.discovery().last("plugins.idx");
  ASSERT_NE(trouble, nullptr);
  EXPECT_THAT(trouble->reason, HasSubstr("line 1"));
  EXPECT_THAT(trouble->remedy, HasSubstr("weft plugin refresh"));
}

TEST_F(LoaderTest, AManifestThatCannotBeReadIsSaidWithItsPlace) {
  install();
  folder_.write("weft/plugins.d/toy.yaml", "manifest: 1\nname: [\n");
  LoaderOptions given = options();
  given.probe_program.clear();
  Loader loader(given);
  const Decision *trouble = loader.discovery().last("toy.yaml");
  ASSERT_NE(trouble, nullptr);
  EXPECT_EQ(trouble->stage, Stage::kManifest);
  EXPECT_THAT(trouble->reason, HasSubstr("line"));
  // The library is there and can speak for itself.
  EXPECT_NE(loader.find("toy"), nullptr);
}

TEST_F(LoaderTest, AManifestForAnotherArchitectureIsSaid) {
  install();
  std::string text = TestFolder::read(folder_.at("weft/plugins.d/toy.yaml"));
  const size_t at = text.find("arch: ") + 6;
  text.replace(at, text.find('\n', at) - at, "vax");
  folder_.write("weft/plugins.d/toy.yaml", text);
  std::filesystem::remove(folder_.at("weft/toy.so"));
  Loader loader(options());
  const Decision *trouble = loader.discovery().last("toy.yaml");
  ASSERT_NE(trouble, nullptr);
  EXPECT_EQ(trouble->stage, Stage::kArchitecture);
  EXPECT_THAT(trouble->reason, HasSubstr("built for vax"));
}

TEST_F(LoaderTest, RefreshNamesWhatItCouldNotTake) {
  install();
  folder_.write("weft/junk.so", "junk");
  const RefreshReport report = refresh();
  EXPECT_EQ(report.plugins, 1u);
  const Decision *trouble = report.troubles.last("junk.so");
  ASSERT_NE(trouble, nullptr);
  EXPECT_THAT(trouble->reason, HasSubstr("not an ELF file"));
  EXPECT_FALSE(Loader::refresh(options(), folder_.at("nowhere")));
}

TEST_F(LoaderTest, RefreshOfAFolderThatCannotBeWrittenSaysSo) {
  const bool root =
      geteuid() == 0;  // who can write everywhere, but can be somebody else for a while
  if (root) {
    ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
    ASSERT_EQ(chown(folder_.at("weft").c_str(), 12345, 12345), 0);
  }
  ASSERT_EQ(chmod(folder_.at("weft").c_str(), 0555), 0);
  if (root) {
    ASSERT_EQ(seteuid(12345), 0);
  }
  const Result<RefreshReport> report = Loader::refresh(options(), folder_.at("weft"));
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  chmod(folder_.at("weft").c_str(), 0755);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().text, HasSubstr("make the folder writable"));
}

TEST_F(LoaderTest, FoldersThatOthersCanWriteToAreLeftOut) {
  install();
  chmod(folder_.at("weft").c_str(), 0777);
  {
    Loader loader(options());
    EXPECT_TRUE(loader.units().empty());
    const Decision *trouble = loader.discovery().last("weft");
    ASSERT_NE(trouble, nullptr);
    EXPECT_EQ(trouble->stage, Stage::kTrust);
  }
  chmod(folder_.at("weft").c_str(), 0755);
  chmod(folder_.at("weft/plugins.d").c_str(), 0777);
  Loader loader(options());
  EXPECT_TRUE(loader.units().empty());
}

TEST_F(LoaderTest, AFolderThatIsNotThereIsSaid) {
  LoaderOptions given = options();
  given.folders.insert(given.folders.begin(), folder_.at("nowhere"));
  Loader loader(given);
  const Decision *trouble = loader.discovery().last("nowhere");
  ASSERT_NE(trouble, nullptr);
  EXPECT_FALSE(trouble->remedy.empty());
}

// ---- loading
// ------------------------------------------------------------------------------------------------------

TEST_F(LoaderTest, LoadsOnceAndShutsDownInTheEnd) {
  install();
  {
    LoaderOptions given = options();
    given.probe_program.clear();
    Loader loader(given);
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

TEST_F(LoaderTest, AnAbsentDeviceStopsAUnitButNotItsFile) {
  install();
  LoaderOptions given = options();
  given.probe_program.clear();
  Loader loader(given);
  DecisionRecord why;
  EXPECT_EQ(loader.load("absent", why), nullptr);
  ASSERT_EQ(why.decisions().size(), 1u);
  EXPECT_EQ(why.decisions()[0].stage, Stage::kDevice);
  EXPECT_EQ(log(), "") << "the library was not opened for it";
  EXPECT_NE(loader.load("toy", why), nullptr) << why.to_text();
}

TEST_F(LoaderTest, HooksGetSlotsOfTheirOwn) {
  install();
  LoaderOptions given = options();
  given.probe_program.clear();
  Loader loader(given);
  DecisionRecord why;
  const LoadedUnit *first = loader.load("hook2", why), *second = loader.load("hook1", why);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first->hook_slot, second->hook_slot);
  EXPECT_EQ(loader.load("hook2", why)->hook_slot, first->hook_slot);
}

TEST_F(LoaderTest, AnUnknownNameIsSaid) {
  Loader loader(options());
  DecisionRecord why;
  EXPECT_EQ(loader.load("tpc", why), nullptr);
  ASSERT_EQ(why.decisions().size(), 1u);
  EXPECT_EQ(why.decisions()[0].stage, Stage::kManifest);
  EXPECT_THAT(why.decisions()[0].remedy, HasSubstr("weft plugin list"));
}

TEST_F(LoaderTest, AManifestWithoutItsLibraryIsSaid) {
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
  LoaderOptions given = options();
  given.probe_program.clear();
  Loader loader(given);
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

// ---- what tools ask
// -----------------------------------------------------------------------------------------------

TEST_F(LoaderTest, CheckProbesAndEndsAQuarantine) {
  NEEDS_PROBE();
  install();
  Loader loader(options());
  const std::string library = folder_.at("weft/toy.so");
  ASSERT_TRUE(loader.quarantine(library, "for a test"));
  ASSERT_EQ(loader.plugins().size(), 1u);
  EXPECT_EQ(loader.plugins()[0].state, "quarantined");
  EXPECT_EQ(loader.plugins()[0].reason, "for a test");
  const PluginStatus status = loader.check(library);
  EXPECT_EQ(status.state, "probed") << status.reason;
  EXPECT_THAT(status.units, ElementsAre("toy", "toylayer", "absent", "hook1", "hook2"));
  EXPECT_EQ(loader.plugins()[0].state, "probed");
  EXPECT_EQ(loader.check(folder_.at("none.so")).state, "rejected");
  EXPECT_FALSE(loader.quarantine(folder_.at("none.so"), "x"));
  EXPECT_FALSE(loader.unquarantine(folder_.at("none.so")));
}

TEST_F(LoaderTest, AQuarantinedPluginIsNotLoadedThoughItsIndexIsGood) {
  NEEDS_PROBE();
  install();
  refresh();
  {
    Loader loader(options());
    ASSERT_TRUE(loader.quarantine(folder_.at("weft/toy.so"), "it bites"));
  }
  std::filesystem::remove(log_);
  Loader loader(options());
  DecisionRecord why;
  EXPECT_EQ(loader.load("toy", why), nullptr);
  EXPECT_THAT(why.decisions()[0].reason, HasSubstr("quarantined: it bites"));
  EXPECT_EQ(log(), "");
}

// A slow machine is no reason to be without a plugin for ever, nor for trying in this process what
// failed in another.
TEST_F(LoaderTest, AQuarantineThatMayPassEnds) {
  NEEDS_PROBE();
  install();
  const LoaderOptions impatient = with_a_slow_probe();
  const auto loads = [](const LoaderOptions &with) {
    Loader loader(with);
    DecisionRecord why;
    const bool loaded = loader.load("toy", why) != nullptr;
    if (!loaded) {
      EXPECT_THAT(why.to_text(), testing::HasSubstr("quarantined: "));
    }
    return loaded;
  };
  EXPECT_FALSE(loads(impatient));
  EXPECT_FALSE(loads(options())) << "not at once";
  // As if the minute were over.
  PluginRecord record = VerdictCache(options().quarantine_file, {}).all().at(0);
  EXPECT_EQ(record.failures, 1u);
  Index index;
  record.retry_at = 1;
  index.plugins = {record};
  ASSERT_TRUE(write_atomically(options().quarantine_file, write_index(index, "")));
  LoaderOptions no_probe = options();
  no_probe.probe_program.clear();
  no_probe.unprobed_allow = true;
  EXPECT_FALSE(loads(no_probe));
  EXPECT_FALSE(loads(impatient)) << "slow again";
  record = VerdictCache(options().quarantine_file, {}).all().at(0);
  EXPECT_EQ(record.failures, 2u);
  EXPECT_FALSE(loads(options())) << "not at once";
  record.retry_at = 1;
  index.plugins = {record};
  ASSERT_TRUE(write_atomically(options().quarantine_file, write_index(index, "")));
  EXPECT_TRUE(loads(options()));
  EXPECT_EQ(VerdictCache(options().quarantine_file, {}).all().at(0).verdict, Verdict::kOk);
}

TEST_F(LoaderTest, AnIndexHasNoQuarantineThatMayPass) {
  NEEDS_PROBE();
  install();
  const LoaderOptions impatient = with_a_slow_probe();
  ASSERT_TRUE(Loader::refresh(impatient, folder_.at("weft")));
  Loader loader(options());
  DecisionRecord why;
  EXPECT_NE(loader.load("toy", why), nullptr) << why.to_text();
}

// Anybody can put a file into a sticky folder: no code of another user runs, in whatever form it
// comes.
TEST_F(LoaderTest, CodeOfAnotherUserIsNotRun) {
  NEEDS_PROBE();
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const auto units_with = [&](const char *what) {
    Loader loader(options());
    DecisionRecord why;
    for (const char *name : {"toy", "hook1"}) EXPECT_EQ(loader.load(name, why), nullptr) << what;
    EXPECT_EQ(log(), "") << what;
    EXPECT_THAT(loader.discovery().to_text() + why.to_text(),
                testing::HasSubstr("belongs to user 12345"))
        << what;
  };
  const std::string library = folder_.at("weft/toy.so");
  const std::string manifests = folder_.at("weft/plugins.d");
  install();
  refresh();
  unlink(log_.c_str());
  ASSERT_EQ(chmod(folder_.at("weft").c_str(), 01777), 0);
  ASSERT_EQ(chown(library.c_str(), 12345, 12345), 0);
  units_with("a library that index and manifest describe");
  unlink(folder_.at("weft/plugins.idx").c_str());
  units_with("a library that a manifest describes");
  std::filesystem::remove_all(manifests);
  units_with("a library that nobody describes");
  const std::string elsewhere = folder_.copy(TOY_PLUGIN, "elsewhere/toy.so");
  unlink(library.c_str());
  ASSERT_EQ(symlink(elsewhere.c_str(), library.c_str()), 0);
  ASSERT_EQ(lchown(library.c_str(), 12345, 12345), 0);
  units_with("a link of another user");
  ASSERT_EQ(lchown(library.c_str(), 0, 0), 0);
  ASSERT_EQ(chown(elsewhere.c_str(), 12345, 12345), 0);
  units_with("a link to a library of another user");
  ASSERT_EQ(chown(elsewhere.c_str(), 0, 0), 0);
  ASSERT_EQ(chown(folder_.at("weft").c_str(), 12345, 12345), 0);
  units_with("a folder of another user");
  ASSERT_EQ(chown(folder_.at("weft").c_str(), 0, 0), 0);
  Loader loader(options());
  DecisionRecord why;
  EXPECT_NE(loader.load("toy", why), nullptr) << "the same, if it is root's: " << why.to_text();
}

}  // namespace
}  // namespace weft
