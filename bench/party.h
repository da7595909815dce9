// SPDX-License-Identifier: BSD-2-Clause
//
// For the benchmarks of many processes: a child process with a control connection, and the objects
// of one process, FI_EP_RDM and tagged, over the public C API.
//
// Example:
//     nlohmann::json closing_times(const PartyOptions &options) {
//       Child child([&](Control &control) {
//         Party party(options, 1000);
//         control.send(party.close());
//       });
//       return child.control->receive(options.timeout);
//     }
//
// Make every Child before the first call of libfabric. For two processes there is FabricTransport.
#ifndef WEFT_BENCH_PARTY_H
#define WEFT_BENCH_PARTY_H

#include <rdma/fi_tagged.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.h"
#include "control.h"
#include "fabric_node.h"

namespace weft::bench {

struct PartyOptions {
  std::string provider = "tcp;ofi_rxm";
  uint64_t caps = FI_TAGGED;  // with FI_COLLECTIVE an endpoint has an event queue
  int mr_mode = 0;            // beside what all of them support
  size_t queue = 2048;        // entries of the completion queue
  double timeout = 60;
  uint64_t memory_mib = 2048;
  std::string json_file;

  // The options that all of these programs have.
  void add_to(CLI::App &app) {
    app.add_option("-p,--provider", provider, "Provider: tcp, tcp;ofi_rxm, udp;ofi_rxd, ...");
    app.add_option("--timeout", timeout, "Seconds that any one step may take")
        ->check(CLI::Range(0.1, 3600.0));
    app.add_option("--memory", memory_mib,
                   "MiB of resident memory that a process may have; beyond it the run ends");
    app.add_option("--json", json_file, "Write the figures to this file as JSON (- : stdout)");
  }
  void write(const nlohmann::json &report) const {
    if (json_file.empty()) return;
    const std::string text = report.dump(2) + "\n";
    if (json_file == "-") {
      fputs(text.c_str(), stdout);
      return;
    }
    std::ofstream file(json_file);
    file << text;
    file.close();
    if (!file) fail("cannot write the results to %s", json_file);
  }
};

// A report without results, of a program that uses one library at both ends.
inline nlohmann::json report_of(const char *program, const PartyOptions &options,
                                const Library &library) {
  const nlohmann::json loaded = {{"path", library.path}, {"version", library.version}};
  return {{"program", program},           {"format", 1},
          {"provider", options.provider}, {"library", loaded},
          {"peer_library", loaded},       {"results", nlohmann::json::array()}};
}

inline double seconds_since(uint64_t since) {
  return static_cast<double>(now_ns() - since) / 1e9;
}

// Ends the process before it uses up the machine's memory: an endpoint may cost a lot.
inline void check_memory(const PartyOptions &options) {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  const uint64_t mib = (resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE))) >> 20;
  if (mib > options.memory_mib)
    fail("a process has %d MiB of resident memory (--memory %d)", mib, options.memory_mib);
}

// The objects of one process: a domain, an address vector, a completion queue, endpoints.
class Party {
 public:
  Party(const PartyOptions &options, uint32_t endpoints) : options_(options) {
    Info hints(fi_allocinfo());
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = options.caps;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY |
                                  FI_MR_ENDPOINT | options.mr_mode;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->fabric_attr->prov_name = strdup(options.provider.c_str());
    fi_info *found = nullptr;
    const int rc =
        fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", nullptr, FI_SOURCE, hints.get(), &found);
    if (rc != 0)
      fail("fi_getinfo: %s: no FI_EP_RDM of provider '%s'", fi_strerror(-rc), options.provider);
    info_.reset(found);
    fid_fabric *fabric = nullptr;
    must("fi_fabric", fi_fabric(found->fabric_attr, &fabric, nullptr));
    fabric_.reset(fabric);
    fid_domain *domain = nullptr;
    must("fi_domain", fi_domain(fabric, found, &domain, nullptr));
    domain_.reset(domain);
    fi_cq_attr cq_attr = {};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    cq_attr.wait_obj = FI_WAIT_NONE;
    cq_attr.size = options.queue;
    fid_cq *cq = nullptr;
    must("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, nullptr));
    cq_.reset(cq);
    fi_av_attr av_attr = {};
    av_attr.type = FI_AV_TABLE;
    fid_av *av = nullptr;
    must("fi_av_open", fi_av_open(domain, &av_attr, &av, nullptr));
    av_.reset(av);
    if ((options.caps & FI_COLLECTIVE) != 0) {
      fi_eq_attr eq_attr = {};
      eq_attr.wait_obj = FI_WAIT_NONE;
      fid_eq *eq = nullptr;
      must("fi_eq_open", fi_eq_open(fabric, &eq_attr, &eq, nullptr));
      eq_.reset(eq);
    }
    for (uint32_t i = 0; i < endpoints; ++i) {
      fid_ep *ep = nullptr;
      must("fi_endpoint", fi_endpoint(domain, found, &ep, nullptr));
      endpoints_.emplace_back(ep);
      must("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
      must("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
      if (eq_) must("fi_ep_bind", fi_ep_bind(ep, &eq_->fid, 0));
      must("fi_enable", fi_enable(ep));
      check_memory(options);
    }
  }
  fid_ep *ep(size_t i) { return endpoints_[i].get(); }
  fid_cq *cq() { return cq_.get(); }
  fid_eq *eq() { return eq_.get(); }
  fid_av *av() { return av_.get(); }
  fid_domain *domain() { return domain_.get(); }
  const fi_info *info() const { return info_.get(); }
  std::string name() {
    std::string bytes(256, '\0');
    size_t length = bytes.size();
    must("fi_getname", fi_getname(&ep(0)->fid, bytes.data(), &length));
    bytes.resize(length);
    return bytes;
  }
  fi_addr_t insert(const std::string &address) {
    fi_addr_t to = FI_ADDR_UNSPEC;
    if (fi_av_insert(av_.get(), address.data(), 1, &to, 0, nullptr) != 1)
      fail("fi_av_insert refused the address");
    return to;
  }
  // Memory, registered if the provider requires that.
  char *allocate(size_t bytes) {
    memory_.resize(bytes);
    const auto mode = static_cast<uint64_t>(info_->domain_attr->mr_mode);
    if ((mode & FI_MR_LOCAL) != 0) {
      fid_mr *mr = nullptr;
      must("fi_mr_reg", fi_mr_reg(domain_.get(), memory_.data(), memory_.size(), FI_SEND | FI_RECV,
                                  0, 1, 0, &mr, nullptr));
      mr_.reset(mr);
    }
    return memory_.data();
  }
  void *desc() { return mr_ ? fi_mr_desc(mr_.get()) : nullptr; }
  // How long closing every endpoint takes, and then the rest.
  nlohmann::json close() {
    const uint64_t start = now_ns();
    mr_.reset();
    endpoints_.clear();
    const double endpoints_s = seconds_since(start);
    eq_.reset();
    cq_.reset();
    av_.reset();
    domain_.reset();
    fabric_.reset();
    return {{"endpoints_s", endpoints_s}, {"all_s", seconds_since(start)}};
  }

 private:
  const PartyOptions &options_;
  Info info_;
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  Fid<fid_cq> cq_;
  Fid<fid_av> av_;
  Fid<fid_eq> eq_;
  std::vector<char> memory_;
  Fid<fid_mr> mr_;
  std::vector<Fid<fid_ep>> endpoints_;
};

// Calls `turn` until the parent sends a message, and returns that. Checks for it every 64 turns.
template <class Turn>
nlohmann::json until(const PartyOptions &options, Control &control, Turn turn) {
  for (uint32_t i = 0;; ++i) {
    turn();
    if (i % 4096 == 0) check_memory(options);
    if (i % 64 == 0 && control.readable()) return control.receive(options.timeout);
  }
}

// A child process and the control connection to it.
struct Child {
  pid_t pid = -1;
  std::unique_ptr<Control> control;

  Child(const std::function<void(Control &)> &body) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      fail("socketpair: %s", strerror(errno));
    const pid_t parent = getpid();
    pid = fork();
    if (pid < 0) fail("fork: %s", strerror(errno));
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      close(ends[0]);
      Control mine{Fd(ends[1])};
      int status = 0;
      try {
        body(mine);
      } catch (const std::exception &failure) {
        status = 1;
        try {
          mine.send({{"error", failure.what()}});
        } catch (const std::exception &) {
        }
      }
      fflush(stdout);
      _exit(status);
    }
    close(ends[1]);
    control = std::make_unique<Control>(Fd(ends[0]));
  }
  Child(Child &&other) noexcept
      : pid(std::exchange(other.pid, -1)), control(std::move(other.control)) {}
  ~Child() { kill(); }
  // Waits for its end; throws if it does not end in time or with status 0.
  void join(double seconds) {
    const uint64_t end = now_ns() + static_cast<uint64_t>(seconds * 1e9);
    int status = 0;
    pid_t got = 0;
    while ((got = waitpid(pid, &status, WNOHANG)) == 0 && now_ns() < end) usleep(1000);
    if (got == 0) fail("a process does not end");
    pid = -1;
    if (status != 0) fail("a process ended with status %#x", status);
  }
  void kill() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = -1;
  }
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_PARTY_H
