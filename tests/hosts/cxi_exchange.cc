// SPDX-License-Identifier: BSD-2-Clause
// A process on a NIC of cxi, for tests with several hosts. One serves: it sends the messages of
// another one back, and has memory to write to and read. That one asks: messages of many sizes,
// remote writes and reads, atomics, every byte checked.
//
//   cxi_exchange serve --node 10.0.0.1 --pid 5 --peer 10.0.0.2 --peer-pid 6
//   cxi_exchange ask --node 10.0.0.2 --pid 6 --peer 10.0.0.1 --peer-pid 5
//
// "ask" exits 0 when all was right. With --until-error it writes and reads until an operation
// fails, and prints the error and how long that took; it exits 0 if it was FI_EHOSTUNREACH. Both
// print "ready" and their process; "serve" goes on until it is killed or its input ends.
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <unistd.h>

#include <chrono>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kSizes[] = {0,     1,     64,    192,   193,    1000,     4096,
                             16384, 18432, 18434, 65536, 300000, 1u << 20, 5'000'001};
constexpr size_t kMost = 5'000'001, kRegion = size_t{1} << 20;
constexpr uint64_t kOptimizedKey = 7, kStandardKey = 200, kAtomicKey = 300;
constexpr auto kLimit = std::chrono::seconds(60);

struct Settings {
  std::string node, peer;
  int pid = 5, peer_pid = 5, rounds = 2;
  bool until_error = false;
};

[[noreturn]] void die(const char *what, long rc) {
  std::fprintf(stderr, "%s: %s\n", what, fi_strerror(int(rc < 0 ? -rc : rc)));
  std::exit(1);
}
void must(const char *what, long rc) {
  if (rc < 0) die(what, rc);
}

void say_ready() {
  std::printf("ready %d\n", int(getpid()));
  std::fflush(stdout);
}

class Process {
 public:
  explicit Process(const Settings &s) {
    fi_info *const hints = fi_allocinfo();
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SOURCE;
    hints->fabric_attr->prov_name = strdup("cxi");
    hints->domain_attr->mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED;
    const auto ask = [&](const std::string &node, int pid, uint64_t flags) {
      fi_info *found = nullptr;
      const std::string service = std::to_string(pid);
      must("fi_getinfo",
           fi_getinfo(FI_VERSION(1, 21), node.c_str(), service.c_str(), flags, hints, &found));
      return found;
    };
    fi_info *const own = ask(s.node, s.pid, FI_SOURCE);
    must("fi_fabric", fi_fabric(own->fabric_attr, &fabric_, nullptr));
    must("fi_domain", fi_domain(fabric_, own, &domain_, nullptr));
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    cq_attr.wait_obj = FI_WAIT_FD;
    must("fi_cq_open", fi_cq_open(domain_, &cq_attr, &cq_, nullptr));
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    must("fi_av_open", fi_av_open(domain_, &av_attr, &av_, nullptr));
    must("fi_endpoint", fi_endpoint(domain_, own, &ep_, nullptr));
    must("fi_ep_bind", fi_ep_bind(ep_, &av_->fid, 0));
    must("fi_ep_bind", fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_RECV));
    must("fi_enable", fi_enable(ep_));
    expose(optimized_, kOptimizedKey);
    expose(standard_, kStandardKey);
    expose(words_, kAtomicKey);
    fi_freeinfo(own);
    if (!s.peer.empty()) {
      fi_info *const peer = ask(s.peer, s.peer_pid, 0);
      if (fi_av_insert(av_, peer->dest_addr, 1, &peer_, 0, nullptr) != 1) die("fi_av_insert", 1);
      fi_freeinfo(peer);
    }
    fi_freeinfo(hints);
  }
  ~Process() {
    fi_close(&ep_->fid);
    for (fid_mr *const mr : regions_) fi_close(&mr->fid);
    fi_close(&av_->fid);
    fi_close(&cq_->fid);
    fi_close(&domain_->fid);
    fi_close(&fabric_->fid);
  }
  Process(const Process &) = delete;

  void serve();
  // How many of them went wrong.
  size_t ask_all(unsigned seed);
  size_t access(size_t size, uint64_t key, unsigned seed);
  int last_error() const { return error_; }

 private:
  struct Done {
    fi_cq_tagged_entry entry;
    fi_addr_t source;
  };

  void expose(std::vector<uint8_t> &memory, uint64_t key) {
    fid_mr *mr = nullptr;
    must("fi_mr_reg", fi_mr_reg(domain_, memory.data(), memory.size(),
                                FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key, 0, &mr, nullptr));
    must("fi_mr_bind", fi_mr_bind(mr, &ep_->fid, 0));
    must("fi_mr_enable", fi_mr_enable(mr));
    regions_.push_back(mr);
  }
  // False: there is none yet. An operation that has failed: error_, and true.
  bool take(Done &done, int timeout_ms) {
    const ssize_t n = fi_cq_sreadfrom(cq_, &done.entry, 1, &done.source, nullptr, timeout_ms);
    if (n == -FI_EAGAIN) return false;
    if (n != -FI_EAVAIL) must("fi_cq_sread", n);
    if (n != -FI_EAVAIL) return true;
    fi_cq_err_entry failed{};
    must("fi_cq_readerr", fi_cq_readerr(cq_, &failed, 0));
    error_ = failed.err;
    done.entry.op_context = failed.op_context;
    return true;
  }
  // Until `count` operations are done; false: one has failed.
  bool wait(int count) {
    const auto end = Clock::now() + kLimit;
    while (count > 0 && error_ == 0) {
      Done done;
      if (take(done, 100)) --count;
      if (Clock::now() > end) die("an operation", -FI_ETIMEDOUT);
    }
    return error_ == 0;
  }
  size_t exchange(size_t size, unsigned seed);
  size_t add(unsigned seed);

  fid_fabric *fabric_ = nullptr;
  fid_domain *domain_ = nullptr;
  fid_cq *cq_ = nullptr;
  fid_av *av_ = nullptr;
  fid_ep *ep_ = nullptr;
  std::vector<fid_mr *> regions_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::vector<uint8_t> optimized_ = std::vector<uint8_t>(kRegion),
                       standard_ = std::vector<uint8_t>(kRegion), words_ = std::vector<uint8_t>(64);
  int error_ = 0;
};

std::vector<uint8_t> content(size_t size, unsigned seed) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = uint8_t(seed * 37 + i * 7 + (i >> 8) * 3);
  return bytes;
}

void Process::serve() {
  std::vector<uint8_t> bytes(kMost);
  const auto post = [&] {
    must("fi_trecv", fi_trecv(ep_, bytes.data(), bytes.size(), nullptr, FI_ADDR_UNSPEC, 0,
                              ~uint64_t{0}, nullptr));
  };
  post();
  say_ready();
  while (true) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, 0) > 0) return;
    Done done;
    if (!take(done, 100)) continue;
    if (std::exchange(error_, 0) != 0 || (done.entry.flags & FI_SEND)) {
      post();  // who has asked may be gone
    } else if (done.entry.flags & FI_RECV) {
      must("fi_tsend",
           fi_tsend(ep_, bytes.data(), done.entry.len, nullptr, peer_, done.entry.tag, nullptr));
    }
  }
}

size_t Process::exchange(size_t size, unsigned seed) {
  const std::vector<uint8_t> out = content(size, seed);
  std::vector<uint8_t> in(size);
  must("fi_trecv", fi_trecv(ep_, in.data(), size, nullptr, FI_ADDR_UNSPEC, seed, 0, nullptr));
  must("fi_tsend", fi_tsend(ep_, out.data(), size, nullptr, peer_, seed, nullptr));
  return wait(2) && in != out ? 1 : 0;
}

size_t Process::access(size_t size, uint64_t key, unsigned seed) {
  const std::vector<uint8_t> out = content(size, seed);
  std::vector<uint8_t> in(size);
  const uint64_t at = seed % 100;
  must("fi_write", fi_write(ep_, out.data(), size, nullptr, peer_, at, key, nullptr));
  if (!wait(1)) return 0;
  must("fi_read", fi_read(ep_, in.data(), size, nullptr, peer_, at, key, nullptr));
  return wait(1) && in != out ? 1 : 0;
}

size_t Process::add(unsigned seed) {
  const uint64_t one = seed;
  uint64_t before = 0, after = 0;
  must("fi_fetch_atomic", fi_fetch_atomic(ep_, &one, 1, nullptr, &before, nullptr, peer_, 8,
                                          kAtomicKey, FI_UINT64, FI_SUM, nullptr));
  if (!wait(1)) return 0;
  must("fi_atomic",
       fi_atomic(ep_, &one, 1, nullptr, peer_, 8, kAtomicKey, FI_UINT64, FI_SUM, nullptr));
  if (!wait(1)) return 0;
  must("fi_compare_atomic",
       fi_compare_atomic(ep_, &one, 1, nullptr, &one, nullptr, &after, nullptr, peer_, 8,
                         kAtomicKey, FI_UINT64, FI_CSWAP_LT, nullptr));
  return wait(1) && after < before + 2 * one ? 1 : 0;
}

size_t Process::ask_all(unsigned seed) {
  size_t wrong = 0;
  for (const size_t size : kSizes) {
    wrong += exchange(size, ++seed);
    for (const uint64_t key : {kOptimizedKey, kStandardKey})
      if (size + 100 <= kRegion && error_ == 0) wrong += access(size, key, ++seed);
    if (error_ != 0) return wrong;
  }
  return wrong + add(seed);
}

int ask(const Settings &s) {
  Process process(s);
  size_t wrong = 0;
  for (int round = 0; round < s.rounds && process.last_error() == 0; ++round)
    wrong += process.ask_all(unsigned(round) * 1000);
  std::printf("%zu wrong%s%s\n", wrong, process.last_error() != 0 ? ", " : "",
              process.last_error() != 0 ? fi_strerror(process.last_error()) : "");
  return wrong == 0 && process.last_error() == 0 ? 0 : 1;
}

int ask_until_error(const Settings &s) {
  Process process(s);
  auto begin = Clock::now();
  size_t wrong = 0;
  for (unsigned seed = 1; process.last_error() == 0 && wrong == 0; ++seed) {
    begin = Clock::now();
    wrong = process.access(1 + seed % 100'000, kStandardKey, seed);
    if (seed > 1 || process.last_error() != 0) continue;
    say_ready();
  }
  std::printf("%zu wrong, %s after %.1f s\n", wrong, fi_strerror(process.last_error()),
              std::chrono::duration<double>(Clock::now() - begin).count());
  return wrong == 0 && process.last_error() == FI_EHOSTUNREACH ? 0 : 1;
}

}  // namespace

int main(int argc, char **argv) {
  Settings s;
  CLI::App app("a process on a NIC of cxi, for tests with several hosts");
  app.require_subcommand(1);
  CLI::App *const serve = app.add_subcommand("serve", "send messages back");
  CLI::App *const asks = app.add_subcommand("ask", "ask one that serves");
  for (CLI::App *const one : {serve, asks}) {
    one->add_option("--node", s.node, "the own NIC")->required();
    one->add_option("--pid", s.pid, "the own PID");
    one->add_option("--peer", s.peer, "the NIC of the other one")->required();
    one->add_option("--peer-pid", s.peer_pid, "its PID");
  }
  asks->add_option("--rounds", s.rounds, "how often all is done");
  asks->add_flag("--until-error", s.until_error, "until an operation fails");
  CLI11_PARSE(app, argc, argv);
  if (*serve) {
    Process(s).serve();
    return 0;
  }
  return s.until_error ? ask_until_error(s) : ask(s);
}
