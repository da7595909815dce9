// SPDX-License-Identifier: BSD-2-Clause
//
// weft-collectives: the collective operations of fi_collective.3 among processes of this host,
// which yield their core while they have nothing to do. The libfabric is the one that the loader
// finds (LD_LIBRARY_PATH). `bench/compare` runs it beside Open MPI's (weft-mpi-collectives, suite
// api); the report has weft-bench's form.

#include <absl/strings/str_format.h>
#include <rdma/fi_collective.h>
#include <sched.h>
#include <stdio.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench.h"
#include "collective_work.h"
#include "control.h"
#include "fabric_node.h"
#include "party.h"
#include "timed_sizes.h"

namespace weft::bench {
namespace {

using nlohmann::json;

struct Options : PartyOptions {
  std::string test = "allreduce";
  std::string sizes = "8,1024,65536";
  uint32_t ranks = 4;
  double seconds = 0.2;
  bool no_yield = false;
};

// One rank: an endpoint in a group of all ranks.
class Rank {
 public:
  Rank(const Options &options, uint32_t me, size_t largest)
      : options_(options), party_(options, 1), work_(me, options.ranks, largest) {}
  std::string name() { return party_.name(); }
  void join(const json &addresses) {
    fi_av_set_attr attr = {};
    attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
    fid_av_set *set = nullptr;
    must("fi_av_set", fi_av_set(party_.av(), &attr, &set, nullptr));
    set_.reset(set);
    for (const json &address : addresses) {
      const auto bytes = address.get<std::vector<uint8_t>>();
      members_.push_back(party_.insert(std::string(bytes.begin(), bytes.end())));
      must("fi_av_set_insert", fi_av_set_insert(set, members_.back()));
    }
    fid_mc *group = nullptr;
    must("fi_join_collective",
         fi_join_collective(party_.ep(0), FI_ADDR_NOTAVAIL, set, 0, &group, nullptr));
    group_.reset(group);
    set_deadline();
    uint32_t event = 0;
    fi_eq_entry entry = {};
    while (fi_eq_read(party_.eq(), &event, &entry, sizeof entry, 0) == -FI_EAGAIN) idle();
    if (event != FI_JOIN_COMPLETE) fail("the group was not joined");
    address_ = fi_mc_addr(group);
  }
  // Of the size that check_call() had last.
  void run(const std::string &test, uint64_t iterations) {
    const Collective what = collective_named(test);
    set_deadline();
    for (uint64_t i = 0; i < iterations; ++i) {
      for (;;) {
        const ssize_t rc = post(what, i);
        if (rc == 0) break;
        if (rc != -FI_EAGAIN) must("the operation", rc);
        progress();
      }
      while (progress() == 0) idle();
    }
  }
  void check_call(const std::string &test, size_t bytes) {
    work_.prepare(collective_named(test), bytes);
    run(test, 1);
    work_.check_call();
  }
  bool progress() {
    fi_cq_tagged_entry entry;
    const ssize_t n = fi_cq_read(party_.cq(), &entry, 1);
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry error = {};
      fi_cq_readerr(party_.cq(), &error, 0);
      fail("an operation failed: %s", fi_strerror(error.err));
    }
    return n == 1;
  }
  void close() {
    group_.reset();
    set_.reset();
    party_.close();
  }

 private:
  ssize_t post(Collective what, uint64_t iteration) {
    fid_ep *const ep = party_.ep(0);
    switch (what) {
      case Collective::kBarrier:
        return fi_barrier(ep, address_, &context_);
      case Collective::kBroadcast:
      case Collective::kBroadcastOneRoot:
        return fi_broadcast(ep, work_.result(), work_.count(), nullptr, address_,
                            members_[work_.root(iteration)], FI_DOUBLE, 0, &context_);
      case Collective::kAllreduce:
        return fi_allreduce(ep, work_.operand(), work_.count(), nullptr, work_.result(), nullptr,
                            address_, FI_DOUBLE, FI_SUM, 0, &context_);
      default:
        return fi_alltoall(ep, work_.operand(), work_.count(), nullptr, work_.result(), nullptr,
                           address_, FI_DOUBLE, 0, &context_);
    }
  }
  void set_deadline() { deadline_ = now_ns() + static_cast<uint64_t>(options_.timeout * 1e9); }
  void idle() {
    if (!options_.no_yield) sched_yield();
    if (++idle_ % 4096 == 0 && now_ns() > deadline_) fail("a rank waits in vain");
  }

  const Options &options_;
  Party party_;
  CollectiveWork work_;
  std::vector<fi_addr_t> members_;
  Fid<fid_av_set> set_;
  Fid<fid_mc> group_;
  fi_addr_t address_ = FI_ADDR_UNSPEC;
  fi_context2 context_ = {};
  uint64_t deadline_ = 0, idle_ = 0;
};

void run_rank(const Options &options, Control &control, uint32_t me, size_t largest) {
  take_cpu(me);
  Rank rank(options, me, largest);
  const std::string name = rank.name();
  const Library library = loaded_library();
  control.send({{"address", std::vector<uint8_t>(name.begin(), name.end())},
                {"library", {{"path", library.path}, {"version", library.version}}}});
  rank.join(control.receive(options.timeout).at("addresses"));
  for (;;) {
    // Progress while it waits for an order: other ranks may still wait for its messages.
    const json order = until(options, control, [&] {
      rank.progress();
      sched_yield();
    });
    if (order.at("do") == "end") break;
    const uint64_t start = now_ns();
    if (order.at("do") == "check")
      rank.check_call(options.test, order.at("size"));
    else
      rank.run(options.test, order.at("iterations"));
    control.send({{"seconds", seconds_since(start)}});
  }
  rank.close();
}

int run_main(int argc, char **argv) {
  Options options;
  options.provider = "tcp;off_coll";
  options.caps = FI_TAGGED | FI_COLLECTIVE;
  CLI::App app(
      "The collective operations of fi_collective.3 among processes of this host; the libfabric is "
      "the\none that the loader finds (set LD_LIBRARY_PATH).\n");
  app.option_defaults()->always_capture_default();
  app.add_option("-t,--test", options.test, "The operation")
      ->check(CLI::IsMember(collective_names()));
  options.add_to(app);
  app.add_option("-r,--ranks", options.ranks, "Processes")->check(CLI::Range(2, 64));
  app.add_option("-S,--sizes", options.sizes,
                 "Comma list of bytes: of an operation, for alltoall of one slice");
  app.add_option("--seconds", options.seconds, "Time per size")->check(CLI::Range(0.001, 60.0));
  app.add_flag("--no-yield", options.no_yield, "Ranks keep their core while they wait");
  CLI11_PARSE(app, argc, argv);
  signal(SIGPIPE, SIG_IGN);
  const std::vector<size_t> sizes = parse_sizes(options.sizes, 0);
  const size_t largest = *std::max_element(sizes.begin(), sizes.end());

  std::vector<Child> ranks;
  for (uint32_t me = 0; me < options.ranks; ++me)
    ranks.emplace_back(
        [&options, me, largest](Control &control) { run_rank(options, control, me, largest); });
  json addresses = json::array();
  json library;
  for (Child &rank : ranks) {
    const json opened = rank.control->receive(options.timeout);
    addresses.push_back(opened.at("address"));
    library = opened.at("library");
  }
  for (Child &rank : ranks) rank.control->send({{"addresses", addresses}});

  FILE *out = options.json_file == "-" ? stderr : stdout;
  absl::FPrintF(out, "library: %s\n%s, %u ranks, %s\n", library.value("path", "?"),
                options.provider, options.ranks, options.test);
  const auto all_do = [&](const json &order) {
    for (Child &rank : ranks) rank.control->send(order);
    double seconds = 0;
    for (Child &rank : ranks)
      seconds =
          std::max(seconds, rank.control->receive(options.timeout).at("seconds").get<double>());
    return seconds;
  };
  json report = {
      {"program", "weft-collectives"}, {"format", 1},        {"provider", options.provider},
      {"ranks", options.ranks},        {"library", library}, {"peer_library", library}};
  std::optional<size_t> checked;
  report["results"] =
      timed_sizes({.test = options.test, .sizes = sizes, .seconds = options.seconds, .out = out},
                  [&](size_t size, uint64_t iterations) {
                    if (checked != size) all_do({{"do", "check"}, {"size", size}});
                    checked = size;
                    return all_do({{"do", "run"}, {"iterations", iterations}});
                  });
  for (Child &rank : ranks) rank.control->send({{"do", "end"}});
  for (Child &rank : ranks) rank.join(options.timeout);
  options.write(report);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char **argv) {
  return weft::bench::run_program("weft-collectives",
                                  [&] { return weft::bench::run_main(argc, argv); });
}
