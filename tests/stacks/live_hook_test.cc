// SPDX-License-Identifier: BSD-2-Clause
// Stacks and hooks around a real provider: a file puts the example layer and the example hook at
// each place of a stack, and the hook is attached to a connection that carries traffic.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/diagnosis.h>
#include <weft/plugin.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "tests/conformance/harness.h"
#include "tests/paths.h"
#include "tests/stacks/count.h"

namespace weft::conformance {
namespace {

const std::string kExamples = "FI_PROVIDER_PATH=" + test::built("examples");

class Diagnosis {
 public:
  Diagnosis() {
    must(fi_open(fi_version(), WEFT_DIAGNOSIS, nullptr, 0, 0, &fid_, nullptr));
    must(fi_open_ops(fid_, WEFT_DIAGNOSIS_OPS, 0, reinterpret_cast<void **>(&ops_), nullptr));
  }
  ~Diagnosis() { fi_close(fid_); }
  std::string attach(struct fid *root, const char *hook) {
    return text(ops_->attach_hook, root, hook);
  }
  std::string detach(struct fid *root, const char *hook) {
    return text(ops_->detach_hook, root, hook);
  }

 private:
  template <class Call>
  std::string text(Call call, struct fid *root, const char *hook) {
    char *why = nullptr;
    const int rc = call(fid_, root, hook, &why);
    std::string reason = rc == 0 ? "" : why != nullptr ? why : fi_strerror(-rc);
    free(why);
    return reason;
  }
  struct fid *fid_ = nullptr;
  weft_diagnosis_ops *ops_ = nullptr;
};

// A configuration file for this process and the fresh ones that it starts.
std::string write_config(const char *name, const char *text) {
  const char *folder = getenv("TMPDIR");
  std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/weft-stacks-" + name +
                     "-" + std::to_string(getpid()) + ".yaml";
  std::ofstream(path) << text;
  return path;
}

void with_stack(const char *name, const char *elements) {
  const char *given = getenv("FI_CONFIG");
  const std::string path =
      given != nullptr ? given
                       : write_config(name, (std::string("version: 1\nstacks:\n  tested: ") +
                                             elements + "\nuse: [tested]\n")
                                                .c_str());
  const std::string config = "FI_CONFIG=" + path;
  if (!in_fresh_process({kExamples.c_str(), config.c_str(), "WEFT_TEST_STACK=tcp;pass"})) {
    unlink(path.c_str());
    return;
  }
  Pair pair;
  EXPECT_STREQ(pair.a.info->fabric_attr->prov_name, "tcp;pass");
  EXPECT_EQ(pair.a.info->tx_attr->inject_size, 64u);
  exchange(pair, 10);
  EXPECT_EQ(counted(pair.a.ep), 10u);
  EXPECT_EQ(counted(pair.b.ep), 0u);
}

TEST(Stack, HookAboveALayerOverTcp) {
  with_stack("above", "[{hook: count}, {layer: pass, params: {inject_size: 64}}, {provider: tcp}]");
}

TEST(Stack, HookBetweenLayerAndTcp) {
  with_stack("between",
             "[{layer: pass, params: {inject_size: 64}}, {hook: count}, {provider: tcp}]");
}

TEST(Stack, HookByEnvironment) {
  if (!in_fresh_process({kExamples.c_str(), "FI_PROVIDER=tcp", "FI_HOOK=count"})) return;
  Pair pair;
  exchange(pair, 3);
  EXPECT_EQ(counted(pair.a.ep), 3u);
}

TEST(LiveHook, IsAttachedInPlaceAndDetachedAgain) {
  if (!in_fresh_process({kExamples.c_str(), "FI_PROVIDER=tcp"})) return;
  Pair pair;
  Diagnosis weft;
  exchange(pair, 2);
  EXPECT_FALSE(counted(pair.a.ep));
  fid_ep *const before = pair.a.ep;
  fi_ops_msg *const plain = pair.a.ep->msg;

  ASSERT_EQ(weft.attach(pair.a.fabric.fid(), "count"), "");
  EXPECT_NE(pair.a.ep->msg, plain);
  exchange(pair, 5);
  EXPECT_EQ(counted(pair.a.ep), 5u);
  EXPECT_NE(weft.attach(pair.a.fabric.fid(), "count"), "") << "the same hook twice on one object";
  EXPECT_NE(weft.attach(pair.a.fabric.fid(), "nosuch"), "");

  ASSERT_EQ(weft.detach(pair.a.fabric.fid(), "count"), "");
  EXPECT_EQ(pair.a.ep->msg, plain)
      << "the table of an endpoint without hooks is the provider's own";
  exchange(pair, 5);
  EXPECT_FALSE(counted(pair.a.ep));
  EXPECT_EQ(pair.a.ep, before);
  EXPECT_NE(weft.detach(pair.a.fabric.fid(), "count"), "") << "it is not there";
}

TEST(LiveHook, IsAttachedAndDetachedUnderTraffic) {
  if (!in_fresh_process({kExamples.c_str(), "FI_PROVIDER=tcp"})) return;
  Pair pair;
  Diagnosis weft;
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::string failure;
  std::thread changer([&] {
    while (!stop) {
      failure += weft.attach(pair.a.domain.fid(), "count");
      failure += weft.detach(pair.a.domain.fid(), "count");
      ++rounds;
    }
  });
  exchange(pair, 2000);
  EXPECT_TRUE(until([&] { return rounds > 100; }, {&pair.a, &pair.b}));
  stop = true;
  changer.join();
  EXPECT_EQ(failure, "");
  EXPECT_FALSE(counted(pair.a.ep));
  exchange(pair, 10);
}

}  // namespace
}  // namespace weft::conformance
