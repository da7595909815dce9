// SPDX-License-Identifier: BSD-2-Clause
// weft-hook-bench: the cost of hooks per call, through the outermost op table of an endpoint whose
// provider (examples/null-provider) has no network.
//
//   weft-hook-bench [--rounds 11] [--calls 300000] [--processes 5] [--json] [--check]
//
// Each mode has processes of its own, with its own environment, so that no plugin of the other
// modes is loaded. A mode has several processes, because their addresses in memory make a
// difference of some nanoseconds. The processes take turns, round by round, so that other load of
// the machine meets all of them. A round is a loop of fi_recv, fi_inject and fi_cq_read: three
// calls. The time is that of the thread (CLOCK_THREAD_CPUTIME_ID). The figure is the median of all
// rounds, less the median of the mode without hooks.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <fcntl.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weft/diagnosis.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Mode {
  const char *name, *what, *hooks;
  bool attach_and_detach = false;
  double budget = -1;  // ns per call; negative: none
};
constexpr Mode kModes[] = {
    {"none", "no hook", ""},
    {"none again", "no hook: the noise", "", false, -1},
    {"detached", "hook attached and taken off again", "", true, 0},
    {"idle", "8 hooks that intercept nothing", "idle1;idle2;idle3;idle4;idle5;idle6;idle7;idle8",
     false, 0},
    {"profile", "profile, with histograms", "profile", false, 5},
    {"trace", "trace, a record for each call", "trace", false, 60},
};

void must(ssize_t rc, const char *what) {
  if (rc < 0) throw std::runtime_error(absl::StrCat(what, ": ", fi_strerror(int(-rc))));
}

class Endpoint {
 public:
  Endpoint() {
    fi_info *hints = fi_allocinfo();
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG;
    const int rc = fi_getinfo(fi_version(), nullptr, nullptr, 0, hints, &info_);
    fi_freeinfo(hints);
    must(rc, "fi_getinfo (is null-provider.so in FI_PROVIDER_PATH?)");
    must(fi_fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
    must(fi_domain(fabric_, info_, &domain_, nullptr), "fi_domain");
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_MSG;
    must(fi_cq_open(domain_, &cq_attr, &cq_, nullptr), "fi_cq_open");
    must(fi_endpoint(domain_, info_, &ep_, nullptr), "fi_endpoint");
    must(fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_enable(ep_), "fi_enable");
  }
  ~Endpoint() {
    fi_close(&ep_->fid);
    fi_close(&cq_->fid);
    fi_close(&domain_->fid);
    fi_close(&fabric_->fid);
    fi_freeinfo(info_);
  }
  fid_ep *ep() const { return ep_; }
  fid_cq *cq() const { return cq_; }
  fid_fabric *fabric() const { return fabric_; }

  // Nanoseconds per call.
  double round(int loops) {
    char in[64], out[64] = {};
    fi_cq_msg_entry entry;
    const double begin = now();
    for (int i = 0; i < loops; ++i) {
      must(fi_recv(ep_, in, sizeof in, nullptr, FI_ADDR_UNSPEC, in), "fi_recv");
      must(fi_inject(ep_, out, sizeof out, 0), "fi_inject");
      must(fi_cq_read(cq_, &entry, 1), "fi_cq_read");
    }
    return (now() - begin) / loops / 3;
  }

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
  }
  fi_info *info_ = nullptr;
  fid_fabric *fabric_ = nullptr;
  fid_domain *domain_ = nullptr;
  fid_cq *cq_ = nullptr;
  fid_ep *ep_ = nullptr;
};

// Attaches and detaches the hook; throws unless the op tables are the same as before.
void come_and_go(const Endpoint &endpoint, const char *hook) {
  struct fid *fid = nullptr;
  weft_diagnosis_ops *ops = nullptr;
  must(fi_open(fi_version(), WEFT_DIAGNOSIS, nullptr, 0, 0, &fid, nullptr), "diagnosis");
  must(fi_open_ops(fid, WEFT_DIAGNOSIS_OPS, 0, reinterpret_cast<void **>(&ops), nullptr),
       "diagnosis");
  const void *const before[] = {endpoint.ep()->msg, endpoint.cq()->ops, endpoint.ep()->fid.ops};
  char *why = nullptr;
  must(ops->attach_hook(fid, &endpoint.fabric()->fid, hook, &why), "attach");
  if (endpoint.ep()->msg == before[0]) throw std::runtime_error("the hook was not attached");
  must(ops->detach_hook(fid, &endpoint.fabric()->fid, hook, &why), "detach");
  const void *const after[] = {endpoint.ep()->msg, endpoint.cq()->ops, endpoint.ep()->fid.ops};
  if (!std::equal(std::begin(before), std::end(before), after))
    throw std::runtime_error("detached, but the op tables are not those from before");
  fi_close(fid);
}

// The process of a mode: runs a round for each byte on stdin and writes its time to stdout.
int serve(int loops, bool attach_and_detach) {
  Endpoint endpoint;
  if (attach_and_detach) come_and_go(endpoint, "profile");
  endpoint.round(loops / 10 + 1);
  for (char order; read(STDIN_FILENO, &order, 1) == 1;) {
    const double ns = endpoint.round(loops);
    if (write(STDOUT_FILENO, &ns, sizeof ns) != sizeof ns) return 1;
  }
  return 0;
}

struct Runner {
  pid_t pid = -1;
  int to = -1, from = -1;
  std::vector<double> ns;
};

Runner start(const Mode &mode, const std::string &self, const std::string &plugins, int loops) {
  int down[2], up[2];
  // O_CLOEXEC: no child keeps the pipe of another open, so each sees the end of its own.
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  Runner runner;
  runner.pid = fork();
  if (runner.pid < 0) throw std::runtime_error("fork");
  if (runner.pid == 0) {
    dup2(down[0], STDIN_FILENO);
    dup2(up[1], STDOUT_FILENO);
    setenv("FI_PROVIDER", "null", 1);
    setenv("FI_PROVIDER_PATH", plugins.c_str(), 1);
    if (*mode.hooks != '\0')
      setenv("FI_HOOK", mode.hooks, 1);
    else
      unsetenv("FI_HOOK");
    execl(self.c_str(), self.c_str(), "--calls", std::to_string(loops * 3).c_str(),
          mode.attach_and_detach ? "--serve-detached" : "--serve", nullptr);
    _exit(127);
  }
  close(down[0]);
  close(up[1]);
  runner.to = down[1];
  runner.from = up[0];
  return runner;
}

bool round_of(Runner &runner) {
  double ns = 0;
  if (write(runner.to, "r", 1) != 1 || read(runner.from, &ns, sizeof ns) != sizeof ns) return false;
  runner.ns.push_back(ns);
  return true;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

int run(int argc, char **argv) {
  CLI::App app("Measures what hooks cost per call, with a provider that has no network.",
               "weft-hook-bench");
  int rounds = 11, calls = 300000, processes = 5;
  bool json = false, check = false, worker = false, detached = false;
  std::string plugins;
  app.add_option("--processes", processes, "for each way to run [5]")->check(CLI::Range(1, 100));
  app.add_option("--rounds", rounds, "of each process [11]")->check(CLI::Range(1, 100000));
  app.add_option("--calls", calls, "in a round [300000]")->check(CLI::Range(3, 1 << 30));
  app.add_option("--plugins", plugins, "folders with null-provider.so and idle-hooks.so");
  app.add_flag("--json", json, "as JSON");
  app.add_flag("--check", check, "end with 1 where a budget is exceeded");
  app.add_flag("--serve", worker)->group("");
  app.add_flag("--serve-detached", detached)->group("");
  CLI11_PARSE(app, argc, argv);
  if (worker || detached) return serve(calls / 3, detached);

  signal(SIGPIPE, SIG_IGN);
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  if (plugins.empty()) plugins = self.parent_path().parent_path() / "examples";
  std::vector<Runner> runners;
  for (int p = 0; p < processes; ++p) {
    for (const Mode &mode : kModes) runners.push_back(start(mode, self, plugins, calls / 3));
  }
  constexpr size_t kCount = std::size(kModes);
  std::vector<char> works(kCount, true);
  for (int i = 0; i < rounds; ++i) {
    for (size_t r = 0; r < runners.size(); ++r)
      works[r % kCount] = works[r % kCount] && round_of(runners[r]);
  }
  for (Runner &runner : runners) {
    close(runner.to);
    close(runner.from);
    waitpid(runner.pid, nullptr, 0);
  }
  if (!works[0]) throw std::runtime_error("the run without hooks failed");
  for (size_t r = kCount; r < runners.size(); ++r) {
    std::vector<double> &all = runners[r % kCount].ns;
    all.insert(all.end(), runners[r].ns.begin(), runners[r].ns.end());
  }
  runners.erase(runners.begin() + kCount, runners.end());

  const double base = median(runners[0].ns);
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  bool within = true;
  if (!json) absl::PrintF("%-34s %10s %10s %10s %8s\n", "", "ns/call", "added", "least", "budget");
  for (size_t m = 0; m < runners.size(); ++m) {
    const Mode &mode = kModes[m];
    const std::vector<double> &ns = runners[m].ns;
    const double middle = median(ns);
    const double least = ns.empty() ? 0 : *std::min_element(ns.begin(), ns.end());
    if (json) {
      nlohmann::ordered_json one{{"name", mode.name}, {"what", mode.what}, {"ran", bool(works[m])}};
      if (works[m]) {
        one.update({{"ns_per_call", middle}, {"added_ns", middle - base}, {"least_ns", least}});
      }
      if (mode.budget >= 0) one["budget_ns"] = mode.budget;
      all.push_back(std::move(one));
    } else if (!works[m]) {
      absl::PrintF("%-34s %10s\n", mode.what, "not run");
    } else {
      absl::PrintF("%-34s %10.2f %10.2f %10.2f", mode.what, middle, middle - base, least);
      if (mode.budget >= 0) absl::PrintF(" %8.0f", mode.budget);
      absl::PrintF("\n");
    }
    // Half a nanosecond is within the noise of a shared machine.
    if (works[m] && mode.budget >= 0 && middle - base > mode.budget + 0.5) within = false;
  }
  if (json) {
    absl::PrintF("%s\n",
                 nlohmann::ordered_json{
                     {"processes", processes}, {"rounds", rounds}, {"calls", calls}, {"modes", all}}
                     .dump(2));
  }
  return check && !within ? 1 : 0;
}

}  // namespace

int main(int argc, char **argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception &error) {
    absl::FPrintF(stderr, "weft-hook-bench: %s\n", error.what());
    return 2;
  }
}
