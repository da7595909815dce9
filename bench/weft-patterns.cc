// SPDX-License-Identifier: BSD-2-Clause
//
// weft-patterns: the messages of MPI's collective operations, without MPI. Some processes, often
// more than there are cores, exchange tagged messages and yield their core while they have nothing
// to do. The libfabric is the one that the loader finds (LD_LIBRARY_PATH). `bench/compare` runs it
// beside stock (--suite ranks); the report has weft-bench's form.

#include <absl/strings/str_format.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.h"
#include "control.h"
#include "fabric_node.h"
#include "party.h"
#include "timed_sizes.h"

namespace weft::bench {
namespace {

using nlohmann::json;

struct Options : PartyOptions {
  std::string test = "alltoall";
  std::string sizes = "8,1024,65536";
  uint32_t ranks = 4;
  double seconds = 0.2;
  bool no_yield = false;
};

// One rank: an endpoint that knows all others.
class Rank {
 public:
  Rank(const Options &options, uint32_t me, size_t largest)
      : options_(options), party_(options, 1), me_(me), ranks_(options.ranks) {
    // A buffer for the messages to each rank, and one for the messages from each.
    stride_ = (largest + 63) / 64 * 64;
    memory_ = party_.allocate(2 * stride_ * ranks_);
    operations_.resize(2 * ranks_);
  }
  std::string name() { return party_.name(); }
  void meet(const json &addresses) {
    for (const json &address : addresses) {
      const auto bytes = address.get<std::vector<uint8_t>>();
      peers_.push_back(party_.insert(std::string(bytes.begin(), bytes.end())));
    }
  }
  int progress() {
    fi_cq_tagged_entry entries[16];
    const ssize_t n = fi_cq_read(party_.cq(), entries, 16);
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry error = {};
      fi_cq_readerr(party_.cq(), &error, 0);
      fail("rank %u: an operation failed: %s", me_, fi_strerror(error.err));
    }
    for (ssize_t i = 0; i < n; ++i) --pending_;
    return static_cast<int>(std::max<ssize_t>(n, 0));
  }
  // Waits as MPI does where there are more processes than cores.
  void wait_all() {
    for (uint32_t polls = 0; pending_ > 0; ++polls) {
      if (progress() == 0) {
        if (!options_.no_yield) sched_yield();
        if (polls % 4096 == 4095 && now_ns() > deadline_) fail("rank %u waits in vain", me_);
      }
    }
  }
  void run(const std::string &test, size_t size, uint64_t iterations) {
    deadline_ = now_ns() + static_cast<uint64_t>(options_.timeout * 1e9);
    for (uint64_t i = 0; i < iterations; ++i) {
      if (test == "alltoall") {
        for (uint32_t k = 1; k < ranks_; ++k) receive((me_ + ranks_ - k) % ranks_, size, i);
        for (uint32_t k = 1; k < ranks_; ++k) send((me_ + k) % ranks_, size, i);
        wait_all();
      } else if (test == "pairwise") {
        for (uint32_t k = 1; k < ranks_; ++k) {
          receive((me_ + ranks_ - k) % ranks_, size, i);
          send((me_ + k) % ranks_, size, i);
          wait_all();
        }
      } else if (test == "allreduce") {
        // Recursive doubling; the ranks beyond the largest power of two take no part.
        uint32_t power = 1;
        while (2 * power <= ranks_) power *= 2;
        for (uint32_t mask = 1; mask < power && me_ < power; mask *= 2) {
          const uint32_t peer = me_ ^ mask;
          receive(peer, size, i);
          send(peer, size, i);
          wait_all();
          add(peer, size);
        }
      } else {  // ring: the vector goes around once, in as many segments as there are ranks
        const size_t segment = std::max<size_t>(1, size / ranks_);
        const uint32_t next = (me_ + 1) % ranks_, last = (me_ + ranks_ - 1) % ranks_;
        for (uint32_t step = 0; step + 1 < ranks_; ++step) {
          receive(last, segment, i);
          send(next, segment, i);
          wait_all();
          add(last, segment);
        }
      }
    }
  }
  void close() { party_.close(); }
  void set_deadline(double seconds) { deadline_ = now_ns() + static_cast<uint64_t>(seconds * 1e9); }

 private:
  char *out(uint32_t peer) { return memory_ + stride_ * peer; }
  char *in(uint32_t peer) { return memory_ + stride_ * (ranks_ + peer); }
  static uint64_t tag_of(uint32_t from, uint64_t i) {
    return uint64_t(from) << 32 | (i & 0xffffffff);
  }
  template <class Post>
  void retry(const char *call, Post post) {
    for (;;) {
      const ssize_t rc = post();
      if (rc == 0) break;
      if (rc != -FI_EAGAIN) must(call, rc);
      progress();
    }
    ++pending_;
  }
  void receive(uint32_t from, size_t size, uint64_t i) {
    retry("fi_trecv", [&] {
      return fi_trecv(party_.ep(0), in(from), size, party_.desc(), peers_[from], tag_of(from, i), 0,
                      &operations_[from]);
    });
  }
  void send(uint32_t to, size_t size, uint64_t i) {
    retry("fi_tsend", [&] {
      return fi_tsend(party_.ep(0), out(to), size, party_.desc(), peers_[to], tag_of(me_, i),
                      &operations_[ranks_ + to]);
    });
  }
  // The operation of a reduction: adds the received vector to the one that is sent next.
  void add(uint32_t from, size_t size) {
    for (size_t at = 0; at + 8 <= size; at += 8) {
      uint64_t a = 0, b = 0;
      memcpy(&a, in(from) + at, 8);
      memcpy(&b, out(me_) + at, 8);
      a += b;
      memcpy(out(me_) + at, &a, 8);
    }
  }

  const Options &options_;
  Party party_;
  const uint32_t me_, ranks_;
  std::vector<fi_addr_t> peers_;
  std::vector<fi_context2> operations_;
  size_t stride_ = 0;
  char *memory_ = nullptr;
  int pending_ = 0;
  uint64_t deadline_ = 0;
};

void run_rank(const Options &options, Control &control, uint32_t me, size_t largest) {
  Rank rank(options, me, largest);
  const std::string name = rank.name();
  const Library library = loaded_library();
  control.send({{"address", std::vector<uint8_t>(name.begin(), name.end())},
                {"library", {{"path", library.path}, {"version", library.version}}}});
  rank.meet(control.receive(options.timeout).at("addresses"));
  for (;;) {
    // Progress while it waits for an order: other ranks may still wait for its messages.
    const json order = until(options, control, [&] {
      if (rank.progress() == 0) sched_yield();
    });
    const std::string what = order.at("do");
    if (what == "end") break;
    const uint64_t start = now_ns();
    rank.run(what, order.at("size"), order.at("iterations"));
    control.send({{"seconds", seconds_since(start)}});
  }
  rank.close();
}

int run_main(int argc, char **argv) {
  Options options;
  CLI::App app(
      "Patterns of MPI's collective operations without MPI, among processes of this host; the "
      "libfabric\n"
      "is the one that the loader finds (set LD_LIBRARY_PATH).\n");
  app.option_defaults()->always_capture_default();
  app.add_option("-t,--test", options.test,
                 "alltoall: to all at once; pairwise: one after the other; allreduce: recursive "
                 "doubling; ring: in segments")
      ->check(CLI::IsMember({"alltoall", "pairwise", "allreduce", "ring"}));
  options.add_to(app);
  app.add_option("-r,--ranks", options.ranks, "Processes")->check(CLI::Range(2, 64));
  app.add_option("-S,--sizes", options.sizes,
                 "Comma list of bytes (per pair; of the whole vector for allreduce and ring)");
  app.add_option("--seconds", options.seconds, "Time per size")->check(CLI::Range(0.001, 60.0));
  app.add_flag("--no-yield", options.no_yield, "Ranks keep their core while they wait");
  CLI11_PARSE(app, argc, argv);
  signal(SIGPIPE, SIG_IGN);
  const std::vector<size_t> sizes = parse_sizes(options.sizes, 1);
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

  json report = {{"program", "weft-patterns"}, {"format", 1},        {"provider", options.provider},
                 {"ranks", options.ranks},     {"library", library}, {"peer_library", library}};
  FILE *out = options.json_file == "-" ? stderr : stdout;
  absl::FPrintF(out, "library: %s\n%s, %u ranks, %s\n", library.value("path", "?"),
                options.provider, options.ranks, options.test);
  report["results"] = timed_sizes(
      {.test = options.test, .sizes = sizes, .seconds = options.seconds, .out = out},
      [&](size_t size, uint64_t iterations) {
        for (Child &rank : ranks)
          rank.control->send({{"do", options.test}, {"size", size}, {"iterations", iterations}});
        double seconds = 0;
        for (Child &rank : ranks)
          seconds =
              std::max(seconds, rank.control->receive(options.timeout).at("seconds").get<double>());
        return seconds;
      });
  for (Child &rank : ranks) rank.control->send({{"do", "end"}});
  for (Child &rank : ranks) rank.join(options.timeout);
  options.write(report);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char **argv) {
  return weft::bench::run_program("weft-patterns",
                                  [&] { return weft::bench::run_main(argc, argv); });
}
