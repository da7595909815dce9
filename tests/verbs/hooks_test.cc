// SPDX-License-Identifier: BSD-2-Clause
// Hooks above and below rxm over queue pairs: by a file, by the environment, and attached to live
// objects. Each test has a process of its own, because stacks are composed once.
#include <gmock/gmock.h>
#include <unistd.h>
#include <weft/plugin.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/verbs/rxm_exchange.h"
#include "tools/weft/control.h"

namespace weft::conformance {
namespace {

using cli::Control;

// A file for this process and the fresh one that it starts, and a runtime folder of its own.
class Place {
 public:
  explicit Place(const std::string &elements) {
    const char *const given = std::getenv("WEFT_TEST_PLACE");
    if (given != nullptr) {
      folder_ = given;
      return;
    }
    char name[] = "/tmp/weft-verbs-hooks-XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
    mine_ = true;
    std::ofstream(folder_ / "weft.yaml")
        << "version: 1\nstacks:\n  tested: " << elements << "\nuse: [tested]\n";
  }
  ~Place() {
    if (mine_) std::filesystem::remove_all(folder_);
  }
  bool in_fresh_process(const char *hook = "FI_HOOK=") const {
    const std::string place = "WEFT_TEST_PLACE=" + folder_.string(),
                      config = "FI_CONFIG=" + (folder_ / "weft.yaml").string(),
                      runtime = "WEFT_RUNTIME_DIR=" + folder_.string();
    return conformance::in_fresh_process(
        {place.c_str(), config.c_str(), runtime.c_str(), hook, "FI_CONTROL=allow"});
  }
  // Trace files of this process.
  size_t traces() const {
    size_t count = 0;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(folder_))
      count += entry.path().filename().string().find("trace") != std::string::npos;
    return count;
  }

 private:
  std::filesystem::path folder_;
  bool mine_ = false;
};

// Every form of message, an access and an atomic, in both directions.
void use(Peer &a, Peer &b, fi_addr_t to_b, fi_addr_t to_a) {
  for (const size_t size : {0, 64, 1000, 20'000, 300'000}) {
    exchange(a, b, to_b, size, size);
    exchange(b, a, to_a, size, size + 1);
  }
}

std::string text_of(const Result<std::vector<uint64_t>> &result) {
  return result ? "" : result.error().text;
}

// The hook fault needs a rule: this one is never met.
std::vector<std::pair<std::string, std::string>> params_of(std::string_view hook) {
  if (hook != "fault") return {};
  return {{"rules", "send:nth=1000000000:drop"}};
}

constexpr const char *kBoth = "[{hook: trace}, {layer: rxm}, {hook: profile}, {provider: verbs}]";
constexpr const char *kNone = "[{layer: rxm}, {provider: verbs}]";

TEST(HooksOverVerbs, AFilePutsThemAboveAndBelowRxm) {
  const Place place(kBoth);
  if (!place.in_fresh_process()) return;
  Peer a, b;
  use(a, b, a.insert(b), b.insert(a));
  const Result<Control> control = Control::connect(getpid());
  ASSERT_TRUE(control.has_value()) << control.error().text;
  const auto objects = control->objects();
  ASSERT_TRUE(objects.has_value());
  // On the objects of the application, and on those that rxm has of verbs.
  size_t traced = 0, profiled = 0;
  for (const auto &object : *objects) {
    const std::string text = object.dump();
    traced += text.find("trace") != std::string::npos;
    profiled += text.find("profile") != std::string::npos;
  }
  EXPECT_GT(traced, 0u);
  EXPECT_GT(profiled, 0u);
  EXPECT_GT(place.traces(), 0u);
}

TEST(HooksOverVerbs, TheEnvironmentPutsThemAboveAll) {
  const Place place(kNone);
  if (!place.in_fresh_process("FI_HOOK=trace;profile;fault")) return;
  Peer a, b;
  use(a, b, a.insert(b), b.insert(a));
  EXPECT_GT(place.traces(), 0u);
}

void come_and_go(const char *stack, const std::vector<const char *> &hooks) {
  const Place place(stack);
  if (!place.in_fresh_process()) return;
  Peer a, b;
  const fi_addr_t to_b = a.insert(b), to_a = b.insert(a);
  const Result<Control> control = Control::connect(getpid());
  ASSERT_TRUE(control.has_value()) << control.error().text;
  for (int round = 0; round < 3; ++round) {
    use(a, b, to_b, to_a);
    for (const char *element : {"verbs", "rxm"}) {
      const cli::HookPlace where{.element = element, .object = {}};
      for (const char *hook : hooks) {
        EXPECT_EQ(text_of(control->attach(hook, params_of(hook), where)), "")
            << hook << " on " << element;
        use(a, b, to_b, to_a);
        // A new connection is under the hook from its beginning.
        Peer c;
        exchange(c, b, c.insert(b), 1000, 1);
      }
      for (const char *hook : hooks) {
        EXPECT_EQ(text_of(control->detach(hook, where)), "") << hook << " on " << element;
        use(a, b, to_b, to_a);
      }
    }
  }
}

TEST(HooksOverVerbs, TheyComeAndGoWhileTheStackIsUsed) {
  come_and_go(kNone, {"trace", "profile", "fault"});
}

TEST(HooksOverVerbs, TheyComeAndGoBesideThoseOfTheFile) {
  come_and_go(kBoth, {"fault"});
}

// A fault that drops what verbs is asked to post: rxm sees errors, not silence.
TEST(HooksOverVerbs, AFaultBelowRxmIsAnErrorAboveIt) {
  const Place place(kNone);
  if (!place.in_fresh_process()) return;
  Peer a, b;
  const fi_addr_t to_b = a.insert(b);
  exchange(a, b, to_b, 1000, 1);
  const Result<Control> control = Control::connect(getpid());
  ASSERT_TRUE(control.has_value()) << control.error().text;
  const cli::HookPlace where{.element = "verbs", .object = {}};
  ASSERT_EQ(text_of(control->attach("fault", {{"rules", "send:fail=ENOTCONN"}}, where)), "");
  const Bytes out = content(1000, 1);
  const ssize_t rc = fi_tsend(a.ep, out.data(), out.size(), nullptr, to_b, 2, mark(2));
  if (rc == 0) {
    EXPECT_NE(wait(a, mark(2), {&a, &b}).err, 0);
  }
  ASSERT_EQ(text_of(control->detach("fault", where)), "");
  // The connection may be found broken first; then the next message makes another.
  int err;
  const Deadline deadline;
  do {
    must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to_b, 3, mark(3)));
    err = wait(a, mark(3), {&a, &b}).err;
  } while (err != 0 && !deadline.passed());
  ASSERT_EQ(err, 0) << fi_strerror(err);
  exchange(a, b, to_b, 1000, 4);
}

}  // namespace
}  // namespace weft::conformance
