// SPDX-License-Identifier: BSD-2-Clause
//
// weft-api: what parts of the API besides plain messages cost, in one process that sends tagged
// messages of 8 bytes to itself: triggered sends, scalable endpoints, threads on contexts of their
// own. The libfabric is the one that the loader finds (LD_LIBRARY_PATH). Where fi_getinfo does not
// report a part, the report says so ("skipped") instead of figures.

#include <absl/strings/str_format.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench.h"
#include "fabric_node.h"
#include "party.h"

namespace weft::bench {
namespace {

using nlohmann::json;

constexpr int kContextBits = 2;  // of receive contexts in an fi_addr_t
constexpr uint32_t kWindow = 64;

struct Options : PartyOptions {
  std::string test = "direct";
  uint32_t contexts = 1;
  double seconds = 0.2;
};

// What fi_getinfo does not report.
struct Skipped {
  std::string why;
};

uint64_t ThreadNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// Where one thread sends and receives: an endpoint, or two contexts of a scalable one.
struct Lane {
  fid_ep *tx = nullptr, *rx = nullptr;
  fi_addr_t dest = FI_ADDR_UNSPEC;
  Fid<fid_cq> cq;
  std::vector<Fid<fid_ep>> owned;
  fi_context2 sends[kWindow] = {}, receives[kWindow] = {};
  char out[8] = {}, in[8] = {};
  uint32_t pending = 0;
  double cpu_us = 0;  // per message

  void Progress() {
    fi_cq_tagged_entry entries[16];
    const ssize_t n = fi_cq_read(cq.get(), entries, 16);
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry error = {};
      fi_cq_readerr(cq.get(), &error, 0);
      Fail("an operation failed: %s", fi_strerror(error.err));
    }
    if (n > 0) pending -= static_cast<uint32_t>(n);
  }
  template <class Post>
  void Retry(const char *call, Post post) {
    ssize_t rc;
    while ((rc = post()) == -FI_EAGAIN) Progress();
    Must(call, rc);
    ++pending;
  }
  void Receive(uint32_t i) {
    Retry("fi_trecv",
          [&] { return fi_trecv(rx, in, sizeof in, nullptr, FI_ADDR_UNSPEC, 1, 0, &receives[i]); });
  }
  void Send(uint32_t i) {
    Retry("fi_tsend", [&] { return fi_tsend(tx, out, sizeof out, nullptr, dest, 1, &sends[i]); });
  }
  void Wait() {
    while (pending != 0) Progress();
  }
  void Window() {
    for (uint32_t i = 0; i < kWindow; ++i) Receive(i);
    for (uint32_t i = 0; i < kWindow; ++i) Send(i);
    Wait();
  }
};

class Bench {
 public:
  explicit Bench(const Options &options) : options_(options) {
    scalable_ = options.test == "scalable" || options.test == "contexts";
    triggered_ = options.test == "triggered";
    Info hints(fi_allocinfo());
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED | (triggered_ ? FI_TRIGGER : 0) | (scalable_ ? FI_NAMED_RX_CTX : 0);
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->fabric_attr->prov_name = strdup(options.provider.c_str());
    if (scalable_) hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = options.contexts;
    fi_info *found = nullptr;
    const int rc =
        fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", nullptr, FI_SOURCE, hints.get(), &found);
    if (rc == -FI_ENODATA && (scalable_ || triggered_))
      throw Skipped{absl::StrFormat("fi_getinfo reports no %s over %s",
                                    triggered_ ? "FI_TRIGGER" : "FI_NAMED_RX_CTX",
                                    options.provider)};
    Must("fi_getinfo", rc);
    info_.reset(found);
    if (scalable_ && found->domain_attr->max_ep_tx_ctx < std::max(2u, options.contexts))
      throw Skipped{absl::StrFormat("%s has max_ep_tx_ctx %d", options.provider,
                                    found->domain_attr->max_ep_tx_ctx)};
    fid_fabric *fabric = nullptr;
    Must("fi_fabric", fi_fabric(found->fabric_attr, &fabric, nullptr));
    fabric_.reset(fabric);
    fid_domain *domain = nullptr;
    Must("fi_domain", fi_domain(fabric, found, &domain, nullptr));
    domain_.reset(domain);
    fi_av_attr attr = {};
    attr.type = FI_AV_TABLE;
    attr.rx_ctx_bits = scalable_ ? kContextBits : 0;
    fid_av *av = nullptr;
    Must("fi_av_open", fi_av_open(domain, &attr, &av, nullptr));
    av_.reset(av);
    lanes_.resize(options.contexts);
    for (Lane &lane : lanes_) OpenQueue(lane);
    if (scalable_)
      OpenScalable();
    else
      OpenPlain();
    if (triggered_) {
      fi_cntr_attr counter = {};
      fid_cntr *cntr = nullptr;
      Must("fi_cntr_open", fi_cntr_open(domain, &counter, &cntr, nullptr));
      trigger_.reset(cntr);
    }
  }

  // us per message.
  double Run() {
    if (options_.test == "triggered") return Timed(1, [&] { Triggered(); });
    if (options_.test == "direct") return Timed(1, [&] { Direct(); });
    if (options_.test != "contexts") return Timed(kWindow, [&] { lanes_[0].Window(); });
    std::vector<std::thread> threads;
    for (Lane &lane : lanes_) threads.emplace_back([&] { RunLane(lane); });
    for (std::thread &thread : threads) thread.join();
    if (!failure_.empty()) Fail("%s", failure_);
    double sum = 0;
    for (const Lane &lane : lanes_) sum += lane.cpu_us;
    return sum / static_cast<double>(lanes_.size());
  }

 private:
  void OpenQueue(Lane &lane) {
    fi_cq_attr attr = {};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.size = 1024;
    fid_cq *cq = nullptr;
    Must("fi_cq_open", fi_cq_open(domain_.get(), &attr, &cq, nullptr));
    lane.cq.reset(cq);
  }
  fi_addr_t Own(fid_ep *ep) {
    char name[256];
    size_t length = sizeof name;
    Must("fi_getname", fi_getname(&ep->fid, name, &length));
    fi_addr_t address = FI_ADDR_UNSPEC;
    if (fi_av_insert(av_.get(), name, 1, &address, 0, nullptr) != 1) Fail("fi_av_insert failed");
    return address;
  }
  void OpenPlain() {
    Lane &lane = lanes_[0];
    fid_ep *ep = nullptr;
    Must("fi_endpoint", fi_endpoint(domain_.get(), info_.get(), &ep, nullptr));
    lane.owned.emplace_back(ep);
    Must("fi_ep_bind", fi_ep_bind(ep, &av_->fid, 0));
    Must("fi_ep_bind", fi_ep_bind(ep, &lane.cq->fid, FI_TRANSMIT | FI_RECV));
    Must("fi_enable", fi_enable(ep));
    lane.tx = lane.rx = ep;
    lane.dest = Own(ep);
  }
  void OpenScalable() {
    fid_ep *sep = nullptr;
    Must("fi_scalable_ep", fi_scalable_ep(domain_.get(), info_.get(), &sep, nullptr));
    scalable_ep_.reset(sep);
    Must("fi_scalable_ep_bind", fi_scalable_ep_bind(sep, &av_->fid, 0));
    for (size_t i = 0; i < lanes_.size(); ++i) {
      Lane &lane = lanes_[i];
      Must("fi_tx_context",
           fi_tx_context(sep, static_cast<int>(i), info_->tx_attr, &lane.tx, nullptr));
      lane.owned.emplace_back(lane.tx);
      Must("fi_rx_context",
           fi_rx_context(sep, static_cast<int>(i), info_->rx_attr, &lane.rx, nullptr));
      lane.owned.emplace_back(lane.rx);
      Must("fi_ep_bind", fi_ep_bind(lane.tx, &lane.cq->fid, FI_TRANSMIT));
      Must("fi_ep_bind", fi_ep_bind(lane.rx, &lane.cq->fid, FI_RECV));
      Must("fi_enable", fi_enable(lane.tx));
      Must("fi_enable", fi_enable(lane.rx));
    }
    Must("fi_enable", fi_enable(sep));
    const fi_addr_t own = Own(sep);
    for (size_t i = 0; i < lanes_.size(); ++i)
      lanes_[i].dest = fi_rx_addr(own, static_cast<int>(i), kContextBits);
  }
  void Direct() {
    Lane &lane = lanes_[0];
    lane.Receive(0);
    lane.Send(0);
    lane.Wait();
  }
  // All that it takes: posting the send, raising its counter, and what a direct one takes.
  void Triggered() {
    Lane &lane = lanes_[0];
    lane.Receive(0);
    fi_triggered_context2 context = {};
    context.event_type = FI_TRIGGER_THRESHOLD;
    context.trigger.threshold.cntr = trigger_.get();
    context.trigger.threshold.threshold = ++fired_;
    iovec iov = {lane.out, sizeof lane.out};
    fi_msg_tagged msg = {};
    msg.msg_iov = &iov;
    msg.iov_count = 1;
    msg.addr = lane.dest;
    msg.tag = 1;
    msg.context = &context;
    lane.Retry("fi_tsendmsg",
               [&] { return fi_tsendmsg(lane.tx, &msg, FI_TRIGGER | FI_COMPLETION); });
    Must("fi_cntr_add", fi_cntr_add(trigger_.get(), 1));
    lane.Wait();
  }
  template <class Step>
  double Timed(uint32_t messages, Step step) {
    const auto length = static_cast<uint64_t>(options_.seconds * 1e9);
    for (const uint64_t end = NowNs() + length / 4; NowNs() < end;) step();
    const uint64_t start = NowNs();
    uint64_t steps = 0, now = start;
    while (now - start < length) {
      for (int i = 0; i < 16; ++i) step();
      steps += 16;
      now = NowNs();
    }
    return static_cast<double>(now - start) / 1e3 / static_cast<double>(steps * messages);
  }
  // The processor time of one thread's messages.
  void RunLane(Lane &lane) {
    try {
      lane.Window();
      const auto length = static_cast<uint64_t>(options_.seconds * 1e9);
      const uint64_t start = NowNs(), used = ThreadNs();
      uint64_t windows = 0;
      for (; NowNs() - start < length; ++windows) lane.Window();
      lane.cpu_us =
          static_cast<double>(ThreadNs() - used) / 1e3 / static_cast<double>(windows * kWindow);
    } catch (const std::exception &failure) {
      const std::lock_guard guard(mutex_);
      failure_ = failure.what();
    }
  }

  const Options &options_;
  bool scalable_ = false, triggered_ = false;
  Info info_;
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  Fid<fid_av> av_;
  Fid<fid_ep> scalable_ep_;
  Fid<fid_cntr> trigger_;
  uint64_t fired_ = 0;
  std::vector<Lane> lanes_;
  std::mutex mutex_;
  std::string failure_;
};

int Main(int argc, char **argv) {
  Options options;
  options.provider = "tcp";
  CLI::App app(
      "What parts of the API besides plain messages cost, in a process that sends to itself; the "
      "libfabric\nis the one that the loader finds (set LD_LIBRARY_PATH).\n");
  app.option_defaults()->always_capture_default();
  app.add_option("-t,--test", options.test,
                 "direct, triggered: one send at a time; plain, scalable: windows on one context; "
                 "contexts: windows, a thread for each context, processor time")
      ->check(CLI::IsMember({"direct", "triggered", "plain", "scalable", "contexts"}));
  options.AddTo(app);
  app.add_option("-c,--contexts", options.contexts, "Contexts, and threads")
      ->check(CLI::Range(1, 1 << kContextBits));
  app.add_option("--seconds", options.seconds, "Time")->check(CLI::Range(0.001, 60.0));
  CLI11_PARSE(app, argc, argv);
  const Library library = LoadedLibrary();
  json report = {{"program", "weft-api"},
                 {"format", 1},
                 {"provider", options.provider},
                 {"library", {{"path", library.path}, {"version", library.version}}},
                 {"results", json::array()}};
  FILE *out = options.json_file == "-" ? stderr : stdout;
  try {
    const double us = Bench(options).Run();
    absl::FPrintF(out, "%s: %.3f us per message\n", options.test, us);
    report["results"].push_back(
        {{"test", options.test}, {"size", 8}, {"value", us}, {"unit", "us"}, {"better", "lower"}});
  } catch (const Skipped &skipped) {
    absl::FPrintF(out, "%s: skipped: %s\n", options.test, skipped.why);
    report["skipped"] = skipped.why;
  }
  options.Write(report);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char **argv) {
  try {
    return weft::bench::Main(argc, argv);
  } catch (const std::exception &failure) {
    absl::FPrintF(stderr, "weft-api: %s\n", failure.what());
    return 1;
  }
}
