// SPDX-License-Identifier: BSD-2-Clause
//
// weft-unexpected: how long a message takes to its receive while many others wait for theirs, as a
// multiple of the time with none. Both endpoints are in one process. It uses the public C API only:
// the library under test is the libfabric.so.1 that the loader finds (LD_LIBRARY_PATH).

#include <absl/strings/numbers.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.h"
#include "party.h"

namespace weft::bench {
namespace {

using nlohmann::json;

constexpr uint64_t kMatchTag = 2, kFirstTag = 1000;
constexpr size_t kSize = 8;

struct Options : PartyOptions {
  std::string test = "unexpected";
  std::string sizes = "100000";
  double seconds = 0.2;
};

// A sender and a receiver that share a completion queue.
class Pair {
 public:
  explicit Pair(const Options &options) : party_(options, 2), options_(options) {
    std::string bytes(256, '\0');
    size_t length = bytes.size();
    must("fi_getname", fi_getname(&party_.ep(1)->fid, bytes.data(), &length));
    bytes.resize(length);
    to_ = party_.insert(bytes);
    memory_ = party_.allocate(2 * 64);
  }

  void send_unexpected(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) send(kFirstTag + i);
    while (sent_ != posted_) progress();
  }
  // Microseconds per message that finds its receive posted, the median of several runs.
  double match_time() {
    std::vector<double> runs;
    const uint64_t end = now_ns() + static_cast<uint64_t>(options_.seconds * 1e9);
    while (runs.size() < 5 || now_ns() < end) {
      constexpr int kRound = 500;
      const uint64_t start = now_ns();
      for (int i = 0; i < kRound; ++i) {
        const uint64_t before = received_;
        retry([&] {
          return fi_trecv(party_.ep(1), memory_ + 64, kSize, party_.desc(), FI_ADDR_UNSPEC,
                          kMatchTag, 0, &contexts_[1]);
        });
        send(kMatchTag);
        while (received_ == before || sent_ != posted_) progress();
      }
      runs.push_back(seconds_since(start) * 1e6 / kRound);
    }
    std::nth_element(runs.begin(), runs.begin() + static_cast<ptrdiff_t>(runs.size() / 2),
                     runs.end());
    return runs[runs.size() / 2];
  }
  void close() { party_.close(); }

 private:
  template <class Call>
  void retry(Call call) {
    for (;;) {
      const ssize_t rc = call();
      if (rc == 0) return;
      if (rc != -FI_EAGAIN) must("a call", rc);
      progress();
    }
  }
  void send(uint64_t tag) {
    retry([&] {
      return fi_tsend(party_.ep(0), memory_, kSize, party_.desc(), to_, tag, &contexts_[0]);
    });
    ++posted_;
    if (posted_ % 64 == 0) progress();
  }
  void progress() {
    fi_cq_tagged_entry entries[32];
    const ssize_t n = fi_cq_read(party_.cq(), entries, 32);
    if (n < 0 && n != -FI_EAGAIN) must("fi_cq_read", n);
    for (ssize_t i = 0; i < n; ++i) ++((entries[i].flags & FI_RECV) != 0 ? received_ : sent_);
  }

  Party party_;
  const Options &options_;
  fi_addr_t to_ = FI_ADDR_UNSPEC;
  char *memory_ = nullptr;
  fi_context2 contexts_[2] = {};
  uint64_t posted_ = 0, sent_ = 0, received_ = 0;
};

int run_main(int argc, char **argv) {
  Options options;
  CLI::App app(
      "How much longer a message takes to its receive while many others wait for theirs; the "
      "libfabric\n"
      "is the one that the loader finds (set LD_LIBRARY_PATH).\n");
  app.option_defaults()->always_capture_default();
  app.add_option("-t,--test", options.test, "unexpected")->check(CLI::IsMember({"unexpected"}));
  options.add_to(app);
  app.add_option("-S,--sizes", options.sizes, "Comma list: how many messages wait");
  app.add_option("--seconds", options.seconds, "Time per figure")->check(CLI::Range(0.001, 60.0));
  CLI11_PARSE(app, argc, argv);
  const Library library = loaded_library();
  json report = report_of("weft-unexpected", options, library);
  FILE *out = options.json_file == "-" ? stderr : stdout;
  absl::FPrintF(out, "library: %s\n%s\n%9s %12s %12s %8s\n", library.path, options.provider,
                "waiting", "us", "us with none", "times");
  for (const absl::string_view part : absl::StrSplit(options.sizes, ',')) {
    uint64_t count = 0;
    if (!absl::SimpleAtoi(part, &count) || count > 10'000'000)
      fail("--sizes: '%s' is not a number of messages up to 10000000", part);
    Pair pair(options);
    const double none = pair.match_time();
    pair.send_unexpected(count);
    const double many = pair.match_time();
    absl::FPrintF(out, "%9d %12.3f %12.3f %8.2f\n", count, many, none, many / none);
    report["results"].push_back({{"test", options.test},
                                 {"size", count},
                                 {"value", many / none},
                                 {"unit", "times"},
                                 {"better", "lower"}});
    pair.close();
  }
  options.write(report);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char **argv) {
  return weft::bench::run_program("weft-unexpected",
                                  [&] { return weft::bench::run_main(argc, argv); });
}
