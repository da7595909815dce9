// SPDX-License-Identifier: BSD-2-Clause
#include "core/probe/child.h"

#include <absl/strings/str_cat.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string_view>

#include "core/loader/descriptor.h"
#include "core/loader/file_trust.h"
#include "core/loader/index.h"
#include "core/loader/initialize.h"
#include "core/loader/open_library.h"
#include "core/loader/probe.h"
#include "core/loader/side_effects.h"
#include "core/probe/ask.h"
#include "core/probe/services.h"

namespace weft {
namespace {

// Number of threads, once no more than `wanted` are left or 200 ms have passed: a thread that was
// joined leaves /proc a moment later.
size_t settled_threads(size_t wanted) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  size_t count = count_threads();
  while (count > wanted && std::chrono::steady_clock::now() < deadline) {
    poll(nullptr, 0, 1);
    count = count_threads();
  }
  return count;
}

class Watch {
 public:
  // What is there now is allowed from now on, beyond what was there before `earlier`.
  struct Count {
    size_t threads = count_threads(), files = count_open_files();
  };
  void allow(const Count &earlier) {
    const Count now;
    if (now.threads > earlier.threads) threads_ += now.threads - earlier.threads;
    if (now.files > earlier.files) files_ += now.files - earlier.files;
  }

  // What the plugin has changed since this object was made; empty: nothing.
  std::string signals() const { return SignalTable::read().difference(signals_); }
  std::string leftovers() const {
    const size_t threads = settled_threads(threads_), files = count_open_files();
    std::string text;
    if (threads > threads_) text = absl::StrCat(threads - threads_, " threads");
    if (files > files_)
      absl::StrAppend(&text, text.empty() ? "" : " and ", files - files_, " open files");
    return text;
  }

 private:
  SignalTable signals_ = SignalTable::read();
  size_t threads_ = count_threads(), files_ = count_open_files();
};

tl::unexpected<Rejection> misbehaved(Stage stage, const std::string &what, bool passing = false) {
  return tl::unexpected<Rejection>(
      Rejection{stage, absl::StrCat("when it was probed, ", what), kAskVendor, true, passing});
}

// The same rules as in the process that asks. This program lies in the folder "weft" beside
// libfabric.so.1.
TrustRules own_trust_rules() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return trust_rules(false, self.parent_path().parent_path());
}

class Child {
 public:
  Child(const std::string &library, int report_fd) : library_(library), fd_(report_fd) {}

  PluginRecord run() {
    Checked<PluginRecord> record = try_out();
    PluginRecord result;
    if (record) {
      result = *std::move(record);
      result.verdict = Verdict::kOk;
    } else {
      result = std::move(known_);
      result.rejection = record.error();
      result.verdict = result.rejection.misbehaved ? Verdict::kQuarantined : Verdict::kRejected;
      // The report only says that the failure may pass. The verdict cache counts the failures and
      // sets the time of the next try.
      if (result.rejection.passing) result.failures = 1, result.retry_at = 1;
    }
    result.library = library_;
    return result;
  }

  void write_all(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t n = write(fd_, text.data(), text.size());
      if (n <= 0) return;  // the parent sees an incomplete report
      text.remove_prefix(static_cast<size_t>(n));
    }
  }

 private:
  void mark(Stage stage, const std::string &unit = {}) const {
    const std::string name(stage_name(stage));
    write_all(absl::StrCat(std::string(kProbeMark), name, unit.empty() ? "" : "\t", unit, "\n"));
  }

  Checked<PluginRecord> try_out() {
    mark(Stage::kTrust);
    Checked<FileStamp> file = check_file(library_, own_trust_rules());
    if (!file) return tl::unexpected<Rejection>(file.error());
    Watch watch;
    mark(Stage::kDlopen);
    Checked<OpenPlugin> plugin = open_plugin(library_);
    if (!plugin) return tl::unexpected<Rejection>(plugin.error());
    if (std::string done = watch.signals(); !done.empty())
      return misbehaved(Stage::kDlopen, absl::StrCat("its constructors ", done));
    if (std::string left = watch.leftovers(); !left.empty())
      return misbehaved(Stage::kDlopen, absl::StrCat("its constructors left behind ", left));

    mark(Stage::kNegotiate);
    const weft_offer offer = make_offer(&probe_services());
    const Answer answer = ask(*plugin, offer);
    if (answer.threw) return misbehaved(Stage::kNegotiate, "an exception left " WEFT_QUERY_SYMBOL);
    if (std::string done = watch.signals(); !done.empty())
      return misbehaved(Stage::kNegotiate, absl::StrCat(WEFT_QUERY_SYMBOL " ", done));
    if (std::string left = watch.leftovers(); !left.empty())
      return misbehaved(Stage::kNegotiate, absl::StrCat(WEFT_QUERY_SYMBOL " left behind ", left));
    Checked<PluginRecord> record = check_descriptor(answer.desc, answer.why);
    if (!record) return record;
    record->library_stamp = *file;
    known_ = *record;

    mark(Stage::kInit);
    void *state = nullptr;
    const Checked<void> init = initialize(*answer.desc, offer, state);
    if (std::string done = watch.signals(); !done.empty())
      return misbehaved(Stage::kInit, absl::StrCat("init ", done));
    if (!init) {
      if (init.error().misbehaved)
        return misbehaved(Stage::kInit, init.error().cause, init.error().passing);
      // Init may fail: the device may be absent. The process that wants the plugin learns of it.
      return record;
    }
    const Watch::Count before_asking;
    const Checked<void> asked =
        ask_units(*answer.desc, state, *record,
                  [&](const std::string &unit) { mark(Stage::kGetinfo, unit); });
    if (std::string done = watch.signals(); !done.empty())
      return misbehaved(Stage::kGetinfo, absl::StrCat("getinfo ", done));
    if (!asked) return misbehaved(Stage::kGetinfo, asked.error().cause);
    watch.allow(before_asking);  // a provider may keep what it found
    mark(Stage::kInit);
    if (answer.desc->fini != nullptr) {
      if (Checked<void> fini = finish(*answer.desc, state); !fini)
        return misbehaved(Stage::kInit, fini.error().cause);
    }
    if (std::string left = watch.leftovers(); !left.empty())
      return misbehaved(Stage::kInit, absl::StrCat("init and fini left behind ", left));
    return record;
  }

  const std::string library_;
  const int fd_;
  PluginRecord known_;
};

}  // namespace

int probe_here(const std::string &library, int report_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);  // a plugin may crash here; the parent explains it
  signal(SIGPIPE, SIG_IGN);
  Child child(library, report_fd);
  Index index;
  index.plugins.push_back(child.run());
  child.write_all(write_index(index, ""));
  return 0;
}

}  // namespace weft
