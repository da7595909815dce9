// SPDX-License-Identifier: BSD-2-Clause
// weft doctor: gathers the facts that doctor_judge.cc judges.
#include "tools/weft/doctor.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "tools/weft/command.h"
#include "tools/weft/cxi.h"
#include "tools/weft/decisions.h"
#include "tools/weft/hints.h"
#include "tools/weft/library.h"

namespace weft::cli {
namespace fs = std::filesystem;
namespace {

struct DoctorOptions {
  bool json = false;
  uint64_t ranks = Facts{}.ranks;
};

std::vector<uint64_t> numbers_in(const std::string &path) {
  std::ifstream file(path);
  std::vector<uint64_t> numbers;
  for (uint64_t value; file >> value;) numbers.push_back(value);
  return numbers;
}

std::optional<uint64_t> number_in(const std::string &path) {
  const std::vector<uint64_t> numbers = numbers_in(path);
  return numbers.empty() ? std::nullopt : std::optional(numbers.front());
}

uint64_t limit(rlim_t value) {
  return value == RLIM_INFINITY ? UINT64_MAX : uint64_t{value};
}

bool is_loopback(const std::string &address) {
  return address.starts_with("127.") || address == "::1";
}

// Whether every user may write to it. The sticky bit of a folder does not count: every user may
// still add files.
bool world_writable(const fs::path &path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && !S_ISLNK(status.st_mode) &&
         (status.st_mode & S_IWOTH) != 0;
}

int64_t modified_ns(const fs::path &path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

Facts::Folder look_at(const std::string &path, const std::string &origin) {
  Facts::Folder folder{.path = path, .origin = origin, .world_writable_path = {}};
  std::error_code error;
  folder.exists = fs::is_directory(path, error);
  if (!folder.exists) return folder;
  const auto check = [&](const fs::path &one) {
    if (folder.world_writable || !world_writable(one)) return;
    folder.world_writable = true;
    folder.world_writable_path = one;
  };
  check(path);
  const fs::path manifests = fs::path(path) / "plugins.d", index = fs::path(path) / "plugins.idx";
  for (const fs::path &place : {fs::path(path), manifests}) {
    check(place);
    for (fs::directory_iterator entry(place, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string extension = entry->path().extension();
      if (extension != ".so" && extension != ".yaml" && extension != ".idx") continue;
      check(entry->path());
      // The reader of the configuration lies among the plugins, but is not one.
      folder.has_plugins = folder.has_plugins ||
                           (extension == ".so" && entry->path().filename() != "weft-config.so");
    }
    error.clear();
  }
  std::ifstream file(index);
  folder.has_index = file.is_open();
  std::string mark, format, abi;
  int64_t manifests_ns = 0;
  if (folder.has_index && !(file >> mark >> format >> abi >> manifests_ns && mark == "weft-index"))
    folder.index_damaged = true;
  // An index is valid for the folder of manifests from which it was made.
  folder.index_stale =
      folder.has_index && !folder.index_damaged && manifests_ns != modified_ns(manifests);
  return folder;
}

// The kernel's list, without any library of rdma-core.
void look_for_rdma(Facts &facts) {
  std::error_code error;
  for (fs::directory_iterator entry("/sys/class/infiniband", error), end; !error && entry != end;
       entry.increment(error)) {
    Facts::RdmaDevice device{.name = entry->path().filename()};
    std::error_code none;
    for (fs::directory_iterator port(entry->path() / "ports", none), last; !none && port != last;
         port.increment(none)) {
      std::ifstream state(port->path() / "state");  // "4: ACTIVE"
      std::string number, word;
      device.active = device.active || (state >> number >> word && word == "ACTIVE");
    }
    facts.rdma.push_back(std::move(device));
  }
  if (facts.rdma.empty()) return;
  std::ranges::sort(facts.rdma, {}, &Facts::RdmaDevice::name);
  const fs::path nodes = "/dev/infiniband";
  std::vector<fs::path> needed{nodes / "rdma_cm"};
  for (fs::directory_iterator entry(nodes, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().filename().string().starts_with("uverbs")) needed.push_back(entry->path());
  if (needed.size() == 1) needed.push_back(nodes / "uverbs0");
  for (const fs::path &node : needed)
    if (::access(node.c_str(), R_OK | W_OK) != 0) facts.unopened_node = node;
  // Who may lock any amount is not limited.
  rlimit locked{};
  if (::geteuid() != 0 && getrlimit(RLIMIT_MEMLOCK, &locked) == 0) {
    facts.memlock_soft = limit(locked.rlim_cur);
    facts.memlock_hard = limit(locked.rlim_max);
  }
}

// Where the provider is not offered there is nothing to tell.
void look_for_cxi(Facts &facts) {
  const auto nics = CxiNics::open();
  if (!nics) return;
  const auto devices = nics->devices();
  if (!devices) return;
  for (const weft_cxi_device &device : *devices) {
    Facts::CxiNic nic{.name = device.name,
                      .software = device.is_software != 0,
                      .up = device.is_up != 0,
                      .services = {},
                      .entries_free = device.max_list_entries -
                                      std::min(device.list_entries, device.max_list_entries),
                      .entries = device.max_list_entries};
    if (const auto services = nics->services(device.name))
      for (const weft_cxi_service &one : *services)
        if (one.is_usable) nic.services.push_back(one.id);
    if (const auto processes = nics->processes(device.name, 0))
      nic.processes = uint32_t(processes->size());
    facts.cxi.push_back(std::move(nic));
  }
}

void look_at_decisions(const std::vector<Candidate> &candidates, Facts &facts) {
  std::vector<std::string> reasons;
  for (const Candidate &candidate : candidates) {
    const Decision &last = candidate.last();
    reasons.push_back(absl::StrCat(candidate.name, ": ", last.reason));
    if (last.lost) facts.lost.push_back({candidate.name, last.reason, last.rule});
  }
  if (facts.domains.empty() && !reasons.empty())
    facts.no_domain_reason = absl::StrJoin(reasons, "; ");
}

Result<Facts> gather(const Library &library, uint64_t ranks) {
  Facts facts;
  facts.ranks = ranks;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    facts.fd_soft = limit(files.rlim_cur);
    facts.fd_hard = limit(files.rlim_max);
  }
  facts.somaxconn = number_in("/proc/sys/net/core/somaxconn");
  facts.syn_backlog = number_in("/proc/sys/net/ipv4/tcp_max_syn_backlog");
  if (const auto ports = numbers_in("/proc/sys/net/ipv4/ip_local_port_range"); ports.size() == 2) {
    facts.port_low = ports[0];
    facts.port_high = ports[1];
  }
  look_for_rdma(facts);

  WEFT_TRY(const Offers offers, ask({}));
  std::set<std::pair<std::string, std::string>> seen;
  for (const fi_info *info = offers.list.get(); info != nullptr; info = info->next) {
    Facts::Domain domain;
    if (info->domain_attr != nullptr && info->domain_attr->name != nullptr)
      domain.name = info->domain_attr->name;
    domain.address = source_address(*info);
    domain.loopback = is_loopback(domain.address);
    if (seen.insert({domain.name, domain.address}).second)
      facts.domains.push_back(std::move(domain));
  }
  if (facts.domains.empty()) facts.no_domain_reason = fi_strerror(-offers.ret);
  if (const Result<Json> why = library.why("")) look_at_decisions(by_candidate(*why), facts);
  if (const Result<Json> explained = library.explain("tcp"))
    for (const Json &element : array_of(*explained, "elements"))
      for (std::string &line : texts_of(element, "lines")) facts.interfaces.push_back(line);

  WEFT_TRY(const Json plugins, library.plugins());
  for (const Json &folder : array_of(plugins, "folders"))
    facts.folders.push_back(look_at(text_of(folder, "path"), text_of(folder, "origin")));
  for (const Json &plugin : array_of(plugins, "plugins"))
    if (text_of(plugin, "state") == "quarantined")
      facts.quarantined.push_back({text_of(plugin, "library"), text_of(plugin, "reason")});
    else if (text_of(plugin, "stage") == "getinfo")
      facts.stuck.push_back({text_of(plugin, "library"), text_of(plugin, "reason")});

  look_for_cxi(facts);

  WEFT_TRY(const Json config, library.config());
  for (const Json &one : array_of(config, "diagnostics")) {
    if (text_of(one, "severity") == "note") continue;  // not a problem
    facts.diagnostics.push_back(
        {text_of(one, "severity") == "error", text_of(one, "where"), text_of(one, "text")});
  }
  return facts;
}

Result<int> run(const DoctorOptions &options) {
  WEFT_TRY(const Library library, Library::open());
  WEFT_TRY(const Facts facts, gather(library, options.ranks));
  const std::vector<Finding> findings = judge(facts);
  const int status = static_cast<int>(worst_of(findings));
  if (options.json) {
    Json list = Json::array();
    for (const Finding &finding : findings)
      list.push_back({{"state", state_word(finding.state)},
                      {"check", finding.check},
                      {"finding", finding.finding},
                      {"cause", finding.cause},
                      {"remedy", finding.remedy}});
    print_json({{"worst", state_word(worst_of(findings))},
                {"ranks", facts.ranks},
                {"findings", list},
                {"interfaces", facts.interfaces}});
    return status;
  }
  Table table({"STATE", "CHECK", "FINDING"});
  for (const Finding &finding : findings) {
    table.add({state_word(finding.state), finding.check, finding.finding},
              finding.state == State::kOk     ? Emphasis::kNone
              : finding.state == State::kWarn ? Emphasis::kDoubtful
                                              : Emphasis::kBad);
    if (finding.check == "interfaces")
      for (const std::string &line : facts.interfaces) table.note(absl::StrCat("tcp: ", line));
    if (!finding.cause.empty()) table.note(absl::StrCat("cause: ", finding.cause));
    if (!finding.remedy.empty()) table.note(absl::StrCat("remedy: ", finding.remedy));
  }
  table.print();
  return status;
}

}  // namespace

void add_doctor(CLI::App &app, Action &action) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App *command = app.add_subcommand(
      "doctor",
      "Limits, kernel settings, interfaces, RDMA devices, plugins: whatever could harm a job");
  command->add_option("--ranks", options->ranks, "peers that one process talks to (default: 512)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{10000000}));
  command->add_flag("--json", options->json, "JSON instead of text");
  command->callback([&action, options] { action = [options] { return run(*options); }; });
  command->footer("Exit status: 0 all is well, 1 warnings, 2 failures.");
}

}  // namespace weft::cli
