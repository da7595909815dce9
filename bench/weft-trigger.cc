// SPDX-License-Identifier: BSD-2-Clause
//
// weft-trigger: what a send costs that a counter starts (FI_TRIGGER), beyond a direct one. Both
// endpoints are in one process, and one is told after the other, so that the rest of the machine
// disturbs both alike. It uses the public C API only: the library under test is the libfabric.so.1
// that the loader finds (LD_LIBRARY_PATH).

#include <absl/strings/str_format.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>
#include <stdio.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.h"
#include "party.h"
#include "timed_sizes.h"

namespace weft::bench {
namespace {

using nlohmann::json;

constexpr uint64_t kTag = 7;
constexpr size_t kWindow = 64;

struct Options : PartyOptions {
  std::string test = "trigger";
  std::string sizes = "8";
  double seconds = 0.2;
};

// A sender and a receiver that share a completion queue, and the counter that starts sends.
class Pair {
 public:
  Pair(const Options &options, size_t size)
      : party_(options, 2), size_(size), contexts_(kWindow), receives_(kWindow) {
    std::string bytes(256, '\0');
    size_t length = bytes.size();
    must("fi_getname", fi_getname(&party_.ep(1)->fid, bytes.data(), &length));
    bytes.resize(length);
    to_ = party_.insert(bytes);
    memory_ = party_.allocate(2 * size);
    fi_cntr_attr attr = {};
    fid_cntr *counter = nullptr;
    must("fi_cntr_open", fi_cntr_open(party_.domain(), &attr, &counter, nullptr));
    counter_.reset(counter);
  }
  ~Pair() { party_.close(); }

  // Microseconds of the calls for one message, the median of many windows. Each window is received
  // before the next.
  struct Times {
    double direct, triggered;
  };
  Times measure(double seconds) {
    std::vector<double> direct, triggered;
    const uint64_t end = now_ns() + static_cast<uint64_t>(seconds * 1e9);
    while (direct.size() < 20 || now_ns() < end) {
      direct.push_back(window([&] {
        for (size_t i = 0; i < kWindow; ++i)
          must("fi_tsend",
               fi_tsend(party_.ep(0), memory_, size_, party_.desc(), to_, kTag, &contexts_[i]));
      }));
      triggered.push_back(window([&] {
        for (size_t i = 0; i < kWindow; ++i) send_later(contexts_[i], value_ + i + 1);
        for (size_t i = 0; i < kWindow; ++i) must("fi_cntr_add", fi_cntr_add(counter_.get(), 1));
        value_ += kWindow;
      }));
    }
    return {median_of(direct), median_of(triggered)};
  }

 private:
  template <class Send>
  double window(Send send) {
    for (fi_context2 &context : receives_)
      must("fi_trecv", fi_trecv(party_.ep(1), memory_ + size_, size_, party_.desc(), FI_ADDR_UNSPEC,
                                kTag, 0, &context));
    const uint64_t start = now_ns();
    send();
    const double us = seconds_since(start) * 1e6 / kWindow;
    for (size_t left = 2 * kWindow; left != 0;) {
      fi_cq_tagged_entry entries[32];
      const ssize_t n = fi_cq_read(party_.cq(), entries, 32);
      if (n < 0 && n != -FI_EAGAIN) must("fi_cq_read", n);
      if (n > 0) left -= static_cast<size_t>(n);
    }
    return us;
  }
  void send_later(fi_triggered_context2 &context, uint64_t threshold) {
    context.event_type = FI_TRIGGER_THRESHOLD;
    context.trigger.threshold.cntr = counter_.get();
    context.trigger.threshold.threshold = threshold;
    const iovec iov = {memory_, size_};
    void *desc = party_.desc();
    fi_msg_tagged msg = {};
    msg.msg_iov = &iov;
    msg.desc = &desc;
    msg.iov_count = 1;
    msg.addr = to_;
    msg.tag = kTag;
    msg.context = &context;
    must("fi_tsendmsg", fi_tsendmsg(party_.ep(0), &msg, FI_TRIGGER | FI_COMPLETION));
  }

  Party party_;
  const size_t size_;
  fi_addr_t to_ = FI_ADDR_UNSPEC;
  char *memory_ = nullptr;
  Fid<fid_cntr> counter_;
  uint64_t value_ = 0;  // of the counter
  std::vector<fi_triggered_context2> contexts_;
  std::vector<fi_context2> receives_;
};

int run_main(int argc, char **argv) {
  Options options;
  options.caps |= FI_TRIGGER;
  CLI::App app(
      "What a send costs that a counter starts, beyond a direct one; the libfabric is the one "
      "that\n"
      "the loader finds (set LD_LIBRARY_PATH).\n");
  app.option_defaults()->always_capture_default();
  app.add_option("-t,--test", options.test, "trigger")->check(CLI::IsMember({"trigger"}));
  options.add_to(app);
  app.add_option("-S,--sizes", options.sizes, "Comma list: bytes of a message");
  app.add_option("--seconds", options.seconds, "Time per figure")->check(CLI::Range(0.001, 60.0));
  CLI11_PARSE(app, argc, argv);
  const Library library = loaded_library();
  json report = report_of("weft-trigger", options, library);
  FILE *out = options.json_file == "-" ? stderr : stdout;
  absl::FPrintF(out, "library: %s\n%s\n%9s %12s %12s %12s\n", library.path, options.provider,
                "bytes", "direct us", "triggered us", "more us");
  for (const size_t size : parse_sizes(options.sizes, 1)) {
    const Pair::Times times = Pair(options, size).measure(options.seconds);
    const double more = times.triggered - times.direct;
    absl::FPrintF(out, "%9d %12.3f %12.3f %12.3f\n", size, times.direct, times.triggered, more);
    report["results"].push_back({{"test", options.test},
                                 {"size", size},
                                 {"value", more},
                                 {"unit", "us"},
                                 {"better", "lower"}});
  }
  options.write(report);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char **argv) {
  return weft::bench::run_program("weft-trigger",
                                  [&] { return weft::bench::run_main(argc, argv); });
}
