// SPDX-License-Identifier: BSD-2-Clause
// Hooks that another process attaches to a running program, over its control socket. Here the other
// process is the test itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/plugin.h>
#include <weft/runtime_dir.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/harness.h"
#include "tests/paths.h"
#include "tests/stacks/count.h"
#include "tools/weft/control.h"

namespace weft::conformance {
namespace {

using cli::Control;
using testing::HasSubstr;

const std::string kExamples =
    "FI_PROVIDER_PATH=" + test::built("examples") + ":" + test::built("picky");

std::string socket_path(pid_t pid) {
  const Result<std::string> folder = runtime_directory();
  return (folder ? *folder : "") + "/" + std::to_string(pid) + ".sock";
}

// A runtime folder of its own: others hold the files of killed processes, and process numbers are
// used again.
class OwnFolder : public ::testing::Environment {
 public:
  void SetUp() override {
    if (is_fresh_process()) return;  // has its parent's
    char name[] = "/tmp/weft-control-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    setenv("WEFT_RUNTIME_DIR", name, 1);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

 private:
  std::filesystem::path folder_;
};
[[maybe_unused]] const auto *const kOwnFolder = ::testing::AddGlobalTestEnvironment(new OwnFolder);

std::string text_of(const Result<std::vector<uint64_t>> &result) {
  return result ? "" : result.error().text;
}

TEST(ControlSocket, AttachesAndDetachesInALiveProcess) {
  if (!in_fresh_process({kExamples.c_str(), "FI_PROVIDER=tcp", "FI_CONTROL=allow"})) return;
  EXPECT_FALSE(Control::connect(getpid()).has_value()) << "before a fabric is open";
  Pair pair;
  const Result<Control> control = Control::connect(getpid());
  ASSERT_TRUE(control.has_value()) << control.error().text;
  EXPECT_THAT(control->program(), HasSubstr("stacks_control_test"));
  exchange(pair, 2);
  EXPECT_EQ(counted(pair.a.ep), std::nullopt);

  EXPECT_EQ(text_of(control->attach("count", {})), "");
  exchange(pair, 3);
  EXPECT_EQ(counted(pair.a.ep), 3u);
  EXPECT_EQ(counted(pair.b.ep), 0u);
  EXPECT_THAT(text_of(control->attach("count", {})), HasSubstr("on this object already"));
  EXPECT_EQ(text_of(control->detach("count")), "");
  EXPECT_EQ(counted(pair.a.ep), std::nullopt);
  EXPECT_THAT(text_of(control->detach("count")), HasSubstr("not on this object"));

  // One object alone.
  const auto objects = control->objects();
  ASSERT_TRUE(objects.has_value());
  uint64_t id = 0;
  for (const auto &object : *objects) {
    char address[32];
    std::snprintf(address, sizeof address, "%p", static_cast<void *>(&pair.b.ep->fid));
    if (object["fid"] == address) id = object["id"];
  }
  ASSERT_NE(id, 0u);
  EXPECT_EQ(text_of(control->attach("count", {}, {.element = {}, .object = id})), "");
  EXPECT_EQ(counted(pair.a.ep), std::nullopt);
  EXPECT_EQ(counted(pair.b.ep), 0u);
  EXPECT_EQ(text_of(control->detach("count", {.element = {}, .object = id})), "");
  exchange(pair, 2);
}

TEST(ControlSocket, AnswersWithTheReasonOfAnError) {
  if (!in_fresh_process({kExamples.c_str(), "FI_PROVIDER=tcp", "FI_CONTROL=allow"})) return;
  Pair pair;
  const Result<Control> control = Control::connect(getpid());
  ASSERT_TRUE(control.has_value()) << control.error().text;
  EXPECT_THAT(text_of(control->attach("cuont", {})), HasSubstr("no hook \"cuont\""));
  EXPECT_THAT(text_of(control->attach("count", {{"nosuch", "1"}})), HasSubstr("nosuch"));
  EXPECT_THAT(text_of(control->attach("count", {}, {.element = "verbs", .object = {}})),
              HasSubstr("no fabric of an element \"verbs\" is open: there are tcp"));
  EXPECT_THAT(text_of(control->attach("count", {}, {.element = {}, .object = 1u << 30})),
              HasSubstr("no object 1073741824 is open"));
  const Result<Control> nobody = Control::connect(0x3ffffffe);
  ASSERT_FALSE(nobody.has_value());
  EXPECT_THAT(nobody.error().text, HasSubstr("there is no process"));
}

TEST(ControlSocket, IsOffIfThePolicyDeniesIt) {
  if (!in_fresh_process({kExamples.c_str(), "FI_PROVIDER=tcp", "FI_CONTROL=deny"})) return;
  Pair pair;
  const Result<Control> control = Control::connect(getpid());
  ASSERT_FALSE(control.has_value());
  EXPECT_THAT(control.error().text, HasSubstr("does not listen"));
  EXPECT_FALSE(std::filesystem::exists(socket_path(getpid())));
}

TEST(ControlSocket, AForkedChildHasItsOwnSocketAndRemovesIt) {
  if (!in_fresh_process({kExamples.c_str(), "FI_PROVIDER=tcp", "FI_CONTROL=allow"})) return;
  Side mine;
  mine.open(get_info("127.0.0.1", nullptr, FI_SOURCE, make_hints().get()).get());
  const pid_t child = fork();
  if (child == 0) {
    int status = 1;
    {
      Side own;
      own.open(get_info("127.0.0.1", nullptr, FI_SOURCE, make_hints().get()).get());
      status = Control::connect(getpid()).has_value() ? 0 : 2;
    }
    exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  EXPECT_FALSE(std::filesystem::exists(socket_path(child))) << "left behind at exit";
  EXPECT_TRUE(Control::connect(getpid()).has_value());
}

// A request is answered by a thread that a child of fork() does not have. Whatever that thread was
// doing at the fork, the child can close its objects, and use the library.
TEST(ControlSocket, AChildForkedDuringRequestsHasNothingHalfDone) {
  if (is_sanitized())
    GTEST_SKIP() << "nobody holds the locks of the sanitizers' allocators at fork()";
  if (!in_fresh_process({kExamples.c_str(), "FI_PROVIDER=tcp", "FI_CONTROL=allow"})) return;
  constexpr int kForks = 150;
  const auto source = get_info("127.0.0.1", nullptr, FI_SOURCE, make_hints().get());
  std::optional<Side> mine(std::in_place);
  mine->open(source.get());
  std::atomic<bool> stop{false};
  std::atomic<int> requests{0};
  std::vector<std::thread> askers;
  for (int i = 0; i < 2; ++i)
    askers.emplace_back([&, i] {
      const Result<Control> control = Control::connect(getpid());
      while (!stop && control) {
        if (i == 0) {
          if (control->counters()) ++requests;
        } else {
          if (control->attach("count", {})) ++requests;
          (void)control->detach("count");
        }
      }
    });
  for (int i = 0; i < kForks; ++i) {
    const int before = requests;
    while (requests == before) std::this_thread::yield();
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // ends a child that waits for ever
      mine.reset();
      _exit(get_info("127.0.0.1", nullptr, FI_SOURCE, make_hints().get()) != nullptr ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status)) << "fork " << i << ": signal " << WTERMSIG(status);
    ASSERT_EQ(WEXITSTATUS(status), 0) << "fork " << i;
  }
  stop = true;
  for (std::thread &asker : askers) asker.join();
  EXPECT_GT(requests, kForks);
}

// A fabric and a domain for the first offer of any stack.
struct Opened {
  explicit Opened(fi_info *info) {
    must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
    must(fi_domain(fabric, info, domain.out(), nullptr));
  }
  Handle<fid_fabric> fabric;
  Handle<fid_domain> domain;
};

Info any_info(enum fi_ep_type type) {
  const Info hints = make_hints(Options{.type = type, .caps = FI_MSG, .mr_mode = FI_MR_LOCAL});
  hints->mode = ~uint64_t(0);
  fi_info *info = nullptr;
  must(fi_getinfo(kApi, test_node(), nullptr, FI_SOURCE, hints.get(), &info));
  return Info(info);
}

// Other processes read counters at any time, such as `weft top` and the exporter.
class Monitor {
 public:
  Monitor() : thread_([this] { run(); }) {}
  ~Monitor() {
    stop_ = true;
    thread_.join();
    EXPECT_GT(reads, 0u);
  }
  std::atomic<uint64_t> reads = 0;

 private:
  void run() {
    const Result<Control> control = Control::connect(getpid());
    ASSERT_TRUE(control.has_value()) << control.error().text;
    for (; !stop_; ++reads) {
      const auto counters = control->counters();
      ASSERT_TRUE(counters.has_value()) << counters.error().text;
      EXPECT_FALSE(counters->empty());
    }
  }
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void come_and_go(enum fi_ep_type type) {
  const Info info = any_info(type);
  const Opened first(info.get());
  const Monitor monitor;
  const Deadline deadline;
  for (int i = 0; i < 300 || monitor.reads < 300; ++i) {
    const Opened opened(info.get());
    ASSERT_FALSE(deadline.passed()) << monitor.reads << " reads";
  }
}

// A class of mistakes: an object that closes, or is counted, under a lock that the other needs.
TEST(CountersOfLiveStacks, AreReadWhileFabricsComeAndGo) {
  if (in_fresh_process({kExamples.c_str(), "FI_PROVIDER=tcp;ofi_rxm", "WEFT_TEST_STACK=tcp;ofi_rxm",
                        "FI_HOOK=fault"}))
    come_and_go(FI_EP_RDM);
}
TEST(CountersOfLiveStacks, AreReadWhileFabricsOfDatagramsComeAndGo) {
  if (in_fresh_process({kExamples.c_str(), "FI_PROVIDER=udp;ofi_rxd", "WEFT_TEST_STACK=udp;ofi_rxd",
                        "FI_HOOK=fault"}))
    come_and_go(FI_EP_RDM);
}
TEST(CountersOfLiveStacks, AreReadWhileFabricsOfPickyComeAndGo) {
  if (in_fresh_process({kExamples.c_str(), "FI_PROVIDER=udp;picky", "WEFT_TEST_STACK=udp;picky",
                        "FI_HOOK=fault"}))
    come_and_go(FI_EP_DGRAM);
}

}  // namespace
}  // namespace weft::conformance
