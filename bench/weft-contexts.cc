// SPDX-License-Identifier: BSD-2-Clause
//
// weft-contexts: what contexts of a scalable endpoint cost: one context beyond plain endpoints, and
// several threads with a context each beyond one thread. All are in one process, and one is
// measured after the other again and again, so that the rest of the machine disturbs all alike. It
// uses the public C API only: the library under test is the libfabric.so.1 that the loader finds
// (LD_LIBRARY_PATH).

#include <absl/strings/str_format.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench.h"
#include "party.h"

namespace weft::bench {
namespace {

using nlohmann::json;

constexpr uint64_t kTag = 7;
constexpr size_t kSize = 8, kWindow = 64;
constexpr int kContextBits = 4;  // of an fi_addr_t

struct Options : PartyOptions {
  std::string test = "scalable";
  uint32_t contexts = 2;
  double seconds = 0.2;
};

uint64_t thread_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// What one thread sends with and receives by: 64 messages, and then their completions.
struct Flow {
  fid_ep *tx = nullptr, *rx = nullptr;
  fid_cq *cq = nullptr;
  fi_addr_t dest = FI_ADDR_UNSPEC;
  std::vector<fi_context2> contexts = std::vector<fi_context2>(2 * kWindow);
  char out[kSize] = {}, in[kSize] = {};

  void window() {
    for (size_t i = 0; i < kWindow; ++i)
      must("fi_trecv",
           fi_trecv(rx, in, kSize, nullptr, FI_ADDR_UNSPEC, kTag, 0, &contexts[kWindow + i]));
    for (size_t i = 0; i < kWindow; ++i)
      must("fi_tsend", fi_tsend(tx, out, kSize, nullptr, dest, kTag, &contexts[i]));
    for (size_t left = 2 * kWindow; left != 0;) {
      fi_cq_tagged_entry entries[32];
      const ssize_t n = fi_cq_read(cq, entries, 32);
      if (n < 0 && n != -FI_EAGAIN) must("fi_cq_read", n);
      if (n > 0) left -= static_cast<size_t>(n);
    }
  }
};

// A scalable endpoint that sends to itself: context i to context i.
class Scalable {
 public:
  Scalable(const Options &options, uint32_t contexts) {
    Info hints(fi_allocinfo());
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED | FI_NAMED_RX_CTX;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = contexts;
    hints->fabric_attr->prov_name = strdup(options.provider.c_str());
    fi_info *found = nullptr;
    const int rc =
        fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", nullptr, FI_SOURCE, hints.get(), &found);
    if (rc != 0)
      fail("fi_getinfo: %s: no %d contexts of provider '%s'", fi_strerror(-rc), contexts,
           options.provider);
    info_.reset(found);
    open("fi_fabric", fabric_,
         [&](auto **out) { return fi_fabric(found->fabric_attr, out, nullptr); });
    open("fi_domain", domain_,
         [&](auto **out) { return fi_domain(fabric_.get(), found, out, nullptr); });
    fi_av_attr attr = {};
    attr.type = FI_AV_TABLE;
    attr.rx_ctx_bits = kContextBits;
    open("fi_av_open", av_,
         [&](auto **out) { return fi_av_open(domain_.get(), &attr, out, nullptr); });
    open("fi_scalable_ep", endpoint_,
         [&](auto **out) { return fi_scalable_ep(domain_.get(), found, out, nullptr); });
    must("fi_scalable_ep_bind", fi_scalable_ep_bind(endpoint_.get(), &av_->fid, 0));
    flows_.resize(contexts);
    for (size_t i = 0; i < flows_.size(); ++i) open_flow(static_cast<int>(i));
    must("fi_enable", fi_enable(endpoint_.get()));
    char name[256];
    size_t length = sizeof name;
    must("fi_getname", fi_getname(&endpoint_->fid, name, &length));
    fi_addr_t own = FI_ADDR_UNSPEC;
    if (fi_av_insert(av_.get(), name, 1, &own, 0, nullptr) != 1)
      fail("fi_av_insert refused the address");
    for (size_t i = 0; i < flows_.size(); ++i)
      flows_[i].dest = fi_rx_addr(own, static_cast<int>(i), kContextBits);
  }
  Flow &flow(size_t i) { return flows_[i]; }

 private:
  template <class T, class Call>
  static T *open(const char *what, Fid<T> &to, Call call) {
    T *made = nullptr;
    must(what, call(&made));
    to.reset(made);
    return made;
  }
  void open_flow(int index) {
    Flow &flow = flows_[static_cast<size_t>(index)];
    fi_cq_attr attr = {};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.size = 4 * kWindow;
    flow.cq = open("fi_cq_open", queues_.emplace_back(),
                   [&](auto **out) { return fi_cq_open(domain_.get(), &attr, out, nullptr); });
    flow.tx = open("fi_tx_context", contexts_.emplace_back(), [&](auto **out) {
      return fi_tx_context(endpoint_.get(), index, nullptr, out, nullptr);
    });
    must("fi_ep_bind", fi_ep_bind(flow.tx, &flow.cq->fid, FI_TRANSMIT));
    must("fi_enable", fi_enable(flow.tx));
    flow.rx = open("fi_rx_context", contexts_.emplace_back(), [&](auto **out) {
      return fi_rx_context(endpoint_.get(), index, nullptr, out, nullptr);
    });
    must("fi_ep_bind", fi_ep_bind(flow.rx, &flow.cq->fid, FI_RECV));
    must("fi_enable", fi_enable(flow.rx));
  }

  Info info_;
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  Fid<fid_av> av_;
  std::vector<Fid<fid_cq>> queues_;
  Fid<fid_ep> endpoint_;
  std::vector<Fid<fid_ep>> contexts_;
  std::vector<Flow> flows_;
};

// How many times the time of two plain endpoints a window takes on a context.
double measure_scalable(const Options &options) {
  Party party(options, 2);
  std::string name(256, '\0');
  size_t length = name.size();
  must("fi_getname", fi_getname(&party.ep(1)->fid, name.data(), &length));
  name.resize(length);
  Flow plain;
  plain.tx = party.ep(0);
  plain.rx = party.ep(1);
  plain.cq = party.cq();
  plain.dest = party.insert(name);
  Scalable scalable(options, 1);
  std::vector<double> without, with;
  const uint64_t end = now_ns() + static_cast<uint64_t>(options.seconds * 1e9);
  while (with.size() < 20 || now_ns() < end) {
    for (auto [flow, times] : {std::pair(&plain, &without), std::pair(&scalable.flow(0), &with)}) {
      const uint64_t start = now_ns();
      flow->window();
      times->push_back(seconds_since(start));
    }
  }
  return median_of(with) / median_of(without);
}

// Seconds of processor time per message, the mean of `threads` threads.
double processor_time(Scalable &scalable, size_t threads, double seconds) {
  std::vector<double> used(threads);
  std::vector<std::exception_ptr> failures(threads);
  std::vector<std::thread> running;
  for (size_t i = 0; i < threads; ++i)
    running.emplace_back([&, i] {
      try {
        Flow &flow = scalable.flow(i);
        flow.window();
        const uint64_t start = now_ns(), before = thread_ns();
        size_t windows = 0;
        for (; windows == 0 || seconds_since(start) < seconds; ++windows) flow.window();
        used[i] = static_cast<double>(thread_ns() - before) / 1e9 /
                  static_cast<double>(windows * kWindow);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
  for (std::thread &thread : running) thread.join();
  for (const std::exception_ptr &failure : failures)
    if (failure) std::rethrow_exception(failure);
  double sum = 0;
  for (const double one : used) sum += one;
  return sum / static_cast<double>(threads);
}

// How many times the processor time of one thread a message takes.
double measure_contexts(const Options &options) {
  constexpr size_t kTurns = 15;
  const double turn = options.seconds / (2 * kTurns);
  Scalable scalable(options, options.contexts);
  std::vector<double> one, all;
  for (size_t i = 0; i < kTurns; ++i) {
    one.push_back(processor_time(scalable, 1, turn));
    all.push_back(processor_time(scalable, options.contexts, turn));
  }
  return median_of(all) / median_of(one);
}

int run_main(int argc, char **argv) {
  Options options;
  options.provider = "tcp";
  CLI::App app(
      "What contexts of scalable endpoints cost; the libfabric is the one that the loader finds "
      "(set\nLD_LIBRARY_PATH).\n");
  app.option_defaults()->always_capture_default();
  app.add_option(
         "-t,--test", options.test,
         "scalable: time of one context, times that of plain endpoints; contexts: processor "
         "time of threads with a context each, times that of one thread")
      ->check(CLI::IsMember({"scalable", "contexts"}));
  options.add_to(app);
  app.add_option("-c,--contexts", options.contexts, "Contexts, and threads")
      ->check(CLI::Range(1, 1 << kContextBits));
  app.add_option("--seconds", options.seconds, "Time per figure")->check(CLI::Range(0.001, 60.0));
  CLI11_PARSE(app, argc, argv);
  const Library library = loaded_library();
  json report = report_of("weft-contexts", options, library);
  const double times =
      options.test == "scalable" ? measure_scalable(options) : measure_contexts(options);
  FILE *out = options.json_file == "-" ? stderr : stdout;
  absl::FPrintF(out, "library: %s\n%s: %.3f times\n", library.path, options.test, times);
  report["results"].push_back({{"test", options.test},
                               {"size", kSize},
                               {"value", times},
                               {"unit", "times"},
                               {"better", "lower"}});
  options.write(report);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char **argv) {
  return weft::bench::run_program("weft-contexts",
                                  [&] { return weft::bench::run_main(argc, argv); });
}
