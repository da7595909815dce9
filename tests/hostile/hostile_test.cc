// SPDX-License-Identifier: BSD-2-Clause
// Each hostile file beside a good one: the loader names stage, cause and remedy, this process
// lives, the good one loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <ostream>
#include <string_view>
#include <thread>

#include "core/loader/loader.h"
#include "core/loader/side_effects.h"
#include "core/loader/test_folder.h"
#include "tests/paths.h"

namespace weft {
namespace {

using testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::chrono::milliseconds kBudget{5000};  // a child under a sanitizer is slow to start
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr std::chrono::milliseconds kBudget{5000};
#else
constexpr std::chrono::milliseconds kBudget{1000};
#endif
#else
constexpr std::chrono::milliseconds kBudget{1000};
#endif

std::string plugin_file(const std::string &name) {
  return test::built("tests/hostile-plugins/" + name + ".so");
}

std::string probe_program() {
  return test::built("lib/weft/weft-probe");
}

LoaderOptions options_for(const TestFolder &folder) {
  LoaderOptions options;
  options.folders = {folder.at("plugins")};
  options.probe_program = probe_program();
  options.quarantine_file = folder.at("cache/quarantine");
  options.probe_budget = kBudget;
  return options;
}

const Decision *find_decision(const DecisionRecord &record, const std::string &candidate) {
  return record.last(candidate);
}

// Keeps a second thread alive, so that the loader must not fork.
class SecondThread {
 public:
  SecondThread()
      : thread_([this] {
          std::unique_lock lock(mutex_);
          ended_.wait(lock, [this] { return end_; });
        }) {}
  ~SecondThread() {
    {
      const std::lock_guard lock(mutex_);
      end_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

struct Case {
  const char *file;
  Stage stage;
  const char *cause;
  bool quarantined = false;
};
void PrintTo(const Case &c, std::ostream *out) {
  *out << c.file;
}

std::string case_name(const testing::TestParamInfo<Case> &info) {
  return info.param.file;
}

void expect_rejected(const Decision *decision, const Case &c) {
  ASSERT_NE(decision, nullptr);
  EXPECT_FALSE(decision->accepted);
  EXPECT_EQ(stage_name(decision->stage), stage_name(c.stage)) << decision->reason;
  EXPECT_THAT(decision->reason, HasSubstr(c.cause));
  EXPECT_FALSE(decision->remedy.empty());
  EXPECT_THAT(decision->rule.name, HasSubstr(std::string(c.file) + ".so"));
}

void expect_good_loads(Loader &loader) {
  DecisionRecord why;
  const LoadedUnit *good = loader.load("good", why);
  ASSERT_NE(good, nullptr) << why.to_text();
  EXPECT_STREQ(good->unit->name, "good");
  EXPECT_NE(good->plugin_state, nullptr);
  ASSERT_EQ(why.decisions().size(), 1u);
  EXPECT_TRUE(why.decisions()[0].accepted);
}

// ---- files that the probe finds out about ----

class Probed : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (count_threads() != 1) GTEST_SKIP() << "this build starts threads of its own; no probing";
    folder_.copy(plugin_file(GetParam().file), std::string("plugins/") + GetParam().file + ".so");
    folder_.copy(plugin_file("good"), "plugins/good.so");
  }
  // A loader that has probed the files. A file that hangs uses up its time: little at first, and
  // more until the probe comes to where it hangs.
  std::unique_ptr<Loader> probe() {
    LoaderOptions options = options_for(folder_);
    const bool hangs = std::string_view(GetParam().cause).starts_with("did not come back");
    if (hangs) options.probe_budget = kBudget / 16;
    for (;;) {
      auto loader = std::make_unique<Loader>(options);
      const Decision *decision =
          find_decision(loader->discovery(), std::string(GetParam().file) + ".so");
      const bool came = decision != nullptr && decision->stage == GetParam().stage &&
                        loader->find("good") != nullptr;
      if (came || options.probe_budget >= kBudget) return loader;
      std::filesystem::remove_all(folder_.at("cache"));
      options.probe_budget *= 2;
    }
  }
  TestFolder folder_;
};

TEST_P(Probed, IsRejectedWithStageCauseAndRemedyAndTheGoodOneLoads) {
  const SignalTable before = SignalTable::read();
  {
    const std::unique_ptr<Loader> probed = probe();
    Loader &loader = *probed;
    expect_rejected(find_decision(loader.discovery(), std::string(GetParam().file) + ".so"),
                    GetParam());
    DecisionRecord why;
    EXPECT_EQ(loader.load("hostile", why), nullptr);
    if (loader.find("hostile") !=
        nullptr)  // its descriptor could be read: a load gives the same reason
      expect_rejected(find_decision(why, "hostile"), GetParam());
    expect_good_loads(loader);
    for (const PluginStatus &status : loader.plugins())
      if (status.library.ends_with(std::string(GetParam().file) + ".so")) {
        EXPECT_EQ(status.state, GetParam().quarantined ? "quarantined" : "rejected");
        EXPECT_THAT(status.reason, HasSubstr(GetParam().cause));
      }
  }
  EXPECT_EQ(SignalTable::read().difference(before), "");
}

TEST_P(Probed, IsRememberedSoThatNothingIsSpawnedAgain) {
  probe();
  LoaderOptions options = options_for(folder_);
  options.probe_program.clear();
  options.unprobed_allow = false;  // whatever loads now does so by what was remembered
  Loader loader(options);
  expect_rejected(find_decision(loader.discovery(), std::string(GetParam().file) + ".so"),
                  GetParam());
  expect_good_loads(loader);
}

INSTANTIATE_TEST_SUITE_P(
    Hostile, Probed,
    testing::Values(
        Case{"wrong_magic", Stage::kNegotiate, "magic 0xdeadbeef"},
        Case{"short_struct", Stage::kNegotiate, "struct_size 40"},
        Case{"major_new", Stage::kNegotiate, "built for plugin ABI 2.0; this core has 1.0"},
        Case{"minor_new", Stage::kNegotiate, "needs a core with ABI 1.7 or newer"},
        Case{"unknown_cap", Stage::kNegotiate, "0x10000000000"},
        Case{"unit_unknown_cap", Stage::kNegotiate,
             "unit 'hostile' sets capability bits 0x200000000"},
        Case{"required_cap", Stage::kNegotiate, "requires core capabilities 0x20"},
        Case{"no_symbol", Stage::kSymbol, "no symbol weft_plugin_query"},
        Case{"symbol_elsewhere", Stage::kSymbol, "good.so"},
        Case{"huge_count", Stage::kNegotiate, "unit_count is 1000000"},
        Case{"unterminated_name", Stage::kNegotiate, "has no end within 64 bytes"},
        Case{"duplicate_units", Stage::kNegotiate, "a name that another unit of the same file has"},
        Case{"null_unit", Stage::kNegotiate, "units[0] is NULL"},
        Case{"unit_kind", Stage::kNegotiate, "kind 7"},
        Case{"no_table", Stage::kNegotiate, "provider=0"},
        Case{"layer_of_none", Stage::kNegotiate, "takes 0 to 0 inner providers"},
        Case{"declines", Stage::kNegotiate, "only for Thursdays"},
        Case{"init_aborts", Stage::kInit, "was killed by signal 6", true},
        Case{"init_hangs", Stage::kInit, "did not come back within", true},
        Case{"init_exits", Stage::kInit, "ended the process with status 0", true},
        Case{"init_throws", Stage::kInit, "the frob engine exploded", true},
        Case{"init_positive", Stage::kInit, "init() returned 5", true},
        Case{"ctor_aborts", Stage::kDlopen, "was killed by signal 6", true},
        Case{"ctor_hangs", Stage::kDlopen, "did not come back within", true},
        Case{"ctor_signal", Stage::kDlopen, "SIGSEGV", true},
        Case{"signal_handler", Stage::kInit, "changed the handling of SIGTERM", true},
        Case{"bad_pointer", Stage::kNegotiate, "when it was probed", true},
        Case{"query_crashes", Stage::kNegotiate, "when it was probed", true},
        Case{"leaves_thread", Stage::kInit, "left behind 1 threads", true},
        Case{"leaves_file", Stage::kInit, "left behind 1 open files", true},
        Case{"leaves_process", Stage::kInit, "did not come back within", true},
        Case{"create_crashes", Stage::kGetinfo, "in the stage getinfo of its unit hostile", true},
        Case{"getinfo_hangs", Stage::kGetinfo, "did not come back within", true},
        Case{"getinfo_crashes", Stage::kGetinfo, "in the stage getinfo of its unit hostile", true},
        Case{"getinfo_exits", Stage::kGetinfo, "ended the process with status 0", true},
        Case{"getinfo_throws", Stage::kGetinfo, "the frob engine stalled", true},
        Case{"getinfo_signal", Stage::kGetinfo, "changed the handling of SIGTERM", true},
        Case{"getinfo_lies", Stage::kGetinfo, "in the stage getinfo of its unit hostile", true},
        Case{"layer_hangs", Stage::kGetinfo, "did not come back within", true}),
    case_name);

// ---- files that need no probe to be refused ----

class Bytes : public testing::Test {
 protected:
  // Expects that the file is refused before any of its code runs: there is no probe here, and
  // unprobed code may run.
  void expect(const char *file, Stage stage, const char *cause) {
    folder_.copy(plugin_file("good"), "plugins/good.so");
    LoaderOptions options = options_for(folder_);
    options.probe_program.clear();
    Loader loader(options);
    expect_rejected(find_decision(loader.discovery(), std::string(file) + ".so"),
                    Case{file, stage, cause});
    expect_good_loads(loader);
  }
  TestFolder folder_;
  std::string good_ = TestFolder::read(plugin_file("good"));
};

TEST_F(Bytes, TruncatedEverywhere) {
  ASSERT_GT(good_.size(), 4096u);
  folder_.copy(plugin_file("good"), "plugins/good.so");
  LoaderOptions options = options_for(folder_);
  options.probe_program.clear();
  for (size_t size = 1; size < good_.size(); size += size < 256 ? 13 : good_.size() / 40) {
    folder_.write("plugins/truncated.so", good_.substr(0, size));
    Loader loader(options);
    const Decision *decision = find_decision(loader.discovery(), "truncated.so");
    ASSERT_NE(decision, nullptr) << size;
    EXPECT_EQ(decision->stage, Stage::kArchitecture) << size;
    EXPECT_THAT(decision->reason, testing::AnyOf(HasSubstr("truncated"), HasSubstr("not an ELF")));
    EXPECT_FALSE(decision->remedy.empty());
  }
  expect("truncated", Stage::kArchitecture, "the file has");
}

TEST_F(Bytes, WrongMachine) {
  good_[18] = 40;  // EM_ARM
  good_[19] = 0;
  folder_.write("plugins/wrong_machine.so", good_);
  expect("wrong_machine", Stage::kArchitecture, "built for arm (machine 40), this is");
}

TEST_F(Bytes, WrongClass) {
  good_[4] = 1;
  folder_.write("plugins/wrong_class.so", good_);
  expect("wrong_class", Stage::kArchitecture, "ELF class is 1");
}

TEST_F(Bytes, NotElf) {
  folder_.write("plugins/text.so", "INPUT(-lc) /* a linker script is no plugin */\n");
  expect("text", Stage::kArchitecture, "not an ELF file");
}

TEST_F(Bytes, Empty) {
  folder_.write("plugins/empty.so", "");
  expect("empty", Stage::kArchitecture, "the file is empty");
}

TEST_F(Bytes, Folder) {
  std::filesystem::create_directories(folder_.at("plugins/folder.so"));
  expect("folder", Stage::kTrust, "it is a folder");
}

TEST_F(Bytes, Pipe) {
  std::filesystem::create_directories(folder_.at("plugins"));
  ASSERT_EQ(mkfifo(folder_.at("plugins/pipe.so").c_str(), 0644), 0);
  expect("pipe", Stage::kTrust, "it is a pipe");
}

TEST_F(Bytes, WritableByAll) {
  folder_.write("plugins/writable.so", good_);
  ASSERT_EQ(chmod(folder_.at("plugins/writable.so").c_str(), 0666), 0);
  expect("writable", Stage::kTrust, "everybody can write to the file");
}

TEST_F(Bytes, NeededLibraryMissing) {
  // symbol_elsewhere.so needs good.so by its path: break that path.
  std::string bytes = TestFolder::read(plugin_file("symbol_elsewhere"));
  const size_t at = bytes.find(plugin_file("good"));
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 5, "/gone");
  folder_.write("plugins/needs.so", bytes);
  expect("needs", Stage::kDlopen, "cannot open shared object file");
}

// ---- names ----

class Names : public testing::Test {
 protected:
  TestFolder folder_;
};

TEST_F(Names, OurOwnFolderKeepsItsNamesBehindAnotherFolder) {
  folder_.copy(plugin_file("name_taken"), "theirs/name_taken.so");
  folder_.copy(plugin_file("name_taken"), "plugins/tcp.so");  // a good plugin except for its name
  folder_.copy(plugin_file("good"), "plugins/good.so");
  LoaderOptions options = options_for(folder_);
  options.folders = {folder_.at("theirs"), folder_.at("plugins")};
  Loader loader(options);
  ASSERT_NE(loader.find("tcp"), nullptr);
  EXPECT_EQ(loader.find("tcp")->library, folder_.at("plugins/tcp.so"));
  expect_rejected(find_decision(loader.discovery(), "name_taken.so"),
                  Case{"name_taken", Stage::kNegotiate, "taken by unit 'tcp' of"});
  DecisionRecord why;
  EXPECT_NE(loader.load("tcp", why), nullptr) << why.to_text();
  expect_good_loads(loader);
}

TEST_F(Names, OfOtherFoldersTheFirstHasTheName) {
  folder_.copy(plugin_file("good"), "first/a.so");
  folder_.copy(plugin_file("good"), "second/b.so");
  std::filesystem::create_directories(folder_.at("plugins"));
  LoaderOptions options = options_for(folder_);
  options.folders = {folder_.at("first"), folder_.at("second"), folder_.at("plugins")};
  Loader loader(options);
  ASSERT_NE(loader.find("good"), nullptr);
  EXPECT_EQ(loader.find("good")->library, folder_.at("first/a.so"));
  EXPECT_NE(find_decision(loader.discovery(), "b.so"), nullptr);
}

// ---- a process with threads ----

class Threaded : public testing::Test {
 protected:
  void put(const std::string &name) {
    folder_.copy(plugin_file(name), "plugins/" + name + ".so");
    folder_.copy(plugin_file("good"), "plugins/good.so");
  }
  // A probe program that leaves a trace if it runs.
  LoaderOptions options() {
    LoaderOptions options = options_for(folder_);
    options.probe_program =
        folder_.write("probe", "#!/bin/sh\n: > \"$(dirname \"$0\")/was-run\"\n");
    chmod(options.probe_program.c_str(), 0755);
    options.probe_budget = std::chrono::milliseconds(300);
    return options;
  }
  bool probe_ran() const { return std::filesystem::exists(folder_.at("was-run")); }

  TestFolder folder_;
  SecondThread second_;
};

TEST_F(Threaded, NeverForksAndLoadsWhatPolicyAllows) {
  put("good");
  Loader loader(options());
  expect_good_loads(loader);
  EXPECT_FALSE(probe_ran());
}

TEST_F(Threaded, NeverForksAndRefusesWhatPolicyDenies) {
  put("good");
  LoaderOptions denied = options();
  denied.unprobed_allow = false;
  Loader loader(denied);
  const Decision *decision = find_decision(loader.discovery(), "good.so");
  ASSERT_NE(decision, nullptr);
  EXPECT_EQ(decision->stage, Stage::kTrust);
  EXPECT_THAT(decision->reason, HasSubstr("threads and must not fork"));
  EXPECT_THAT(decision->remedy.words, HasSubstr("weft plugin check"));
  EXPECT_FALSE(probe_ran());
}

TEST_F(Threaded, ObeysTheQuarantineList) {
  put("good");
  {
    Loader loader(options());
    ASSERT_TRUE(loader.quarantine(folder_.at("plugins/good.so"), "it kicked the dog"));
  }
  Loader loader(options());
  const Decision *decision = find_decision(loader.discovery(), "good.so");
  ASSERT_NE(decision, nullptr);
  EXPECT_THAT(decision->reason, HasSubstr("quarantined: it kicked the dog"));
  EXPECT_EQ(loader.find("good"), nullptr);
  ASSERT_TRUE(loader.unquarantine(folder_.at("plugins/good.so")));
  Loader again(options());
  expect_good_loads(again);
}

struct InitCase {
  const char *file;
  Stage stage;
  const char *cause;
};
class ThreadedInit : public Threaded, public testing::WithParamInterface<InitCase> {};

TEST_P(ThreadedInit, IsRejectedInProcessAndRememberedWhereItMisbehaved) {
  const InitCase c = GetParam();
  put(c.file);
  const SignalTable before = SignalTable::read();
  Loader loader(options());
  DecisionRecord why;
  EXPECT_EQ(loader.load("hostile", why), nullptr);
  // Either it was refused when its descriptor was read, or by load().
  const Decision *decision = find_decision(loader.discovery(), std::string(c.file) + ".so");
  if (decision == nullptr) decision = find_decision(why, "hostile");
  expect_rejected(decision, Case{c.file, c.stage, c.cause});
  EXPECT_EQ(SignalTable::read().difference(before), "") << "the handler was put back";
  expect_good_loads(loader);
  EXPECT_FALSE(probe_ran());
  // A failure is remembered and reported again.
  DecisionRecord again;
  EXPECT_EQ(loader.load("hostile", again), nullptr);
  EXPECT_EQ(again.decisions().size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Hostile, ThreadedInit,
    testing::Values(InitCase{"init_fails", Stage::kInit, "no frob engine found"},
                    InitCase{"init_hangs", Stage::kInit, "init() did not return within 300 ms"},
                    InitCase{"init_throws", Stage::kInit, "the frob engine exploded"},
                    InitCase{"init_positive", Stage::kInit, "init() returned 5"},
                    InitCase{"signal_handler", Stage::kInit, "changed the handling of SIGTERM"},
                    InitCase{"ctor_signal", Stage::kDlopen, "SIGSEGV"},
                    InitCase{"wrong_magic", Stage::kNegotiate, "magic 0xdeadbeef"},
                    InitCase{"huge_count", Stage::kNegotiate, "unit_count is 1000000"}),
    [](const auto &info) { return std::string(info.param.file); });

TEST_F(Threaded, AChoiceThatIsMetRunsNothingUnknown) {
  // The good one is known by an index. Opening the other one in this process would be the end of
  // it.
  folder_.copy(plugin_file("good"), "plugins/good.so");
  ASSERT_EQ(std::system((probe_program() + " --refresh " + folder_.at("plugins")).c_str()), 0);
  folder_.copy(plugin_file("ctor_aborts"), "theirs/ctor_aborts.so");
  LoaderOptions chosen = options();
  chosen.folders = {folder_.at("theirs"), folder_.at("plugins")};
  chosen.chosen = {"good"};
  Loader loader(chosen);
  expect_good_loads(loader);
  const Decision *decision = find_decision(loader.discovery(), "ctor_aborts.so");
  ASSERT_NE(decision, nullptr);
  EXPECT_EQ(decision->stage, Stage::kPolicy);
  EXPECT_THAT(decision->remedy.words, HasSubstr("weft plugin check"));
  EXPECT_FALSE(probe_ran());
}

TEST_F(Threaded, AChoiceThatIsNotMetLooksFurther) {
  put("good");
  LoaderOptions chosen = options();
  for (const char *choice : {"good", "other;good"}) {
    chosen.chosen = {choice};
    Loader loader(chosen);
    expect_good_loads(loader);
  }
}

TEST_F(Threaded, ASignalHandlerOfTheApplicationDoesNotQuarantine) {
  put("good");
  // Ours, installed while plugins load, as another thread of the application might.
  const auto old = signal(SIGUSR1, [](int) {});
  Loader loader(options());
  expect_good_loads(loader);
  signal(SIGUSR1, old);
}

// ---- a known file that fails, and one that changed ----

TEST(Known, AFailureOfInitIsReportedAndDoesNotQuarantine) {
  TestFolder folder;
  folder.copy(plugin_file("init_fails"), "plugins/init_fails.so");
  folder.copy(plugin_file("good"), "plugins/good.so");
  Loader loader(options_for(folder));
  ASSERT_NE(loader.find("hostile"), nullptr);
  DecisionRecord why;
  EXPECT_EQ(loader.load("hostile", why), nullptr);
  expect_rejected(find_decision(why, "hostile"),
                  Case{"init_fails", Stage::kInit, "failed with -19: no frob engine found"});
  for (const PluginStatus &status : loader.plugins()) EXPECT_NE(status.state, "quarantined");
  expect_good_loads(loader);
}

TEST(Known, AFileThatChangedIsProbedAgain) {
  if (count_threads() != 1) GTEST_SKIP() << "this build starts threads of its own; no probing";
  TestFolder folder;
  folder.copy(plugin_file("init_aborts"), "plugins/x.so");
  {
    Loader loader(options_for(folder));
    EXPECT_EQ(loader.find("good"), nullptr);
  }
  folder.copy(plugin_file("good"), "plugins/x.so");
  {
    Loader loader(options_for(folder));
    expect_good_loads(loader);
  }
  std::filesystem::remove(folder.at("plugins/x.so"));
  folder.copy(plugin_file("init_aborts"), "plugins/x.so");
  Loader loader(options_for(folder));
  const Decision *decision = find_decision(loader.discovery(), "x.so");
  ASSERT_NE(decision, nullptr);
  EXPECT_THAT(decision->reason, HasSubstr("was killed by signal 6"));
}

TEST(Known, AnIndexOfAnotherFileIsIgnored) {
  if (count_threads() != 1) GTEST_SKIP() << "this build starts threads of its own; no probing";
  TestFolder folder;
  folder.copy(plugin_file("good"), "plugins/x.so");
  const LoaderOptions options = options_for(folder);
  Result<RefreshReport> report = Loader::refresh(options, folder.at("plugins"));
  ASSERT_TRUE(report) << report.error().text;
  EXPECT_EQ(report->plugins, 1u);
  folder.copy(plugin_file("init_aborts"), "plugins/x.so");
  Loader loader(options);
  DecisionRecord why;
  EXPECT_EQ(loader.load("good", why), nullptr);
  expect_rejected(find_decision(why, "good"), Case{"x", Stage::kInit, "was killed by signal 6"});
}

TEST(Known, AProbeProgramThatHangsDoesNotQuarantine) {
  if (count_threads() != 1) GTEST_SKIP() << "this build starts threads of its own; no probing";
  TestFolder folder;
  folder.copy(plugin_file("good"), "plugins/good.so");
  LoaderOptions options = options_for(folder);
  options.probe_program = "/nonexistent/weft-probe";
  {
    Loader loader(options);
    expect_good_loads(loader);
  }
  options.probe_program = "/bin/false";
  options.unprobed_allow = false;
  Loader loader(options);
  const Decision *decision = find_decision(loader.discovery(), "good.so");
  ASSERT_NE(decision, nullptr);
  EXPECT_EQ(decision->stage, Stage::kTrust);
  EXPECT_THAT(decision->reason, HasSubstr("weft-probe"));
}

}  // namespace
}  // namespace weft
