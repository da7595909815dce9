// SPDX-License-Identifier: BSD-2-Clause
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>

#include "tools/weft/doctor.h"

namespace weft::cli {
namespace {

// Descriptors that a process needs beside those of its peers: files, libraries, epoll and eventfd
// of its queues, those of an MPI.
constexpr uint64_t kOwnDescriptors = 64;

std::string number(uint64_t value) {
  return value == UINT64_MAX ? "unlimited" : absl::StrCat(value);
}

// The next power of two, at least 1024.
uint64_t rounded(uint64_t value) {
  uint64_t power = 1024;
  while (power < value && power < (uint64_t{1} << 40)) power *= 2;
  return power;
}

Finding judge_files(const Facts &facts) {
  const uint64_t need = facts.ranks + kOwnDescriptors;
  Finding finding{.check = "open files",
                  .finding = absl::StrCat("soft limit ", number(facts.fd_soft), ", hard limit ",
                                          number(facts.fd_hard)),
                  .cause = {},
                  .remedy = {}};
  if (facts.fd_soft >= need) {
    absl::StrAppend(&finding.finding, ": enough for ", facts.ranks, " peers over tcp");
    return finding;
  }
  finding.cause = absl::StrCat("a process with ", facts.ranks, " peers over tcp needs about ", need,
                               " descriptors");
  const std::string wanted = number(rounded(need));
  if (facts.fd_hard >= need) {
    finding.state = State::kWarn;
    finding.remedy = absl::StrCat("ulimit -n ", number(std::min(rounded(need), facts.fd_hard)),
                                  "  (in the job script, before the program starts)");
  } else {
    finding.state = State::kFail;
    finding.remedy = absl::StrCat(
        "as root: echo '* - nofile ", wanted,
        "' > /etc/security/limits.d/90-fabric.conf, and log in again (under systemd: LimitNOFILE=",
        wanted, ")");
  }
  return finding;
}

Finding judge_queue(const Facts &facts, const char *key, const std::optional<uint64_t> &value,
                    const char *what) {
  Finding finding{.check = key, .finding = {}, .cause = {}, .remedy = {}};
  if (!value) {
    finding.finding = "cannot be read here";
    return finding;
  }
  finding.finding = number(*value);
  if (*value >= facts.ranks) {
    absl::StrAppend(&finding.finding, ": enough for ", facts.ranks, " peers that connect at once");
    return finding;
  }
  finding.state = State::kWarn;
  finding.cause = absl::StrCat(what, " when ", facts.ranks,
                               " peers connect at once; they try again after 1 s or more");
  finding.remedy =
      absl::StrCat("sysctl -w ", key, "=", number(std::max<uint64_t>(rounded(facts.ranks), 4096)));
  return finding;
}

Finding judge_ports(const Facts &facts) {
  Finding finding{.check = "net.ipv4.ip_local_port_range",
                  .finding = "cannot be read here",
                  .cause = {},
                  .remedy = {}};
  if (!facts.port_low || !facts.port_high || *facts.port_high < *facts.port_low) return finding;
  const uint64_t ports = *facts.port_high - *facts.port_low + 1;
  finding.finding = absl::StrCat(*facts.port_low, " to ", *facts.port_high, ", ", ports, " ports");
  // A connection in TIME_WAIT keeps its port. So a job that follows another needs twice the ports.
  const uint64_t need = 2 * facts.ranks;
  if (ports >= need) return finding;
  finding.state = ports < facts.ranks ? State::kFail : State::kWarn;
  finding.cause = absl::StrCat(facts.ranks,
                               " connections, and those of the job before that are still closing, "
                               "need about ",
                               need, " ports");
  finding.remedy = "sysctl -w net.ipv4.ip_local_port_range='32768 60999'";
  return finding;
}

// Of the list entries of a NIC: less than this part is few.
constexpr uint32_t kFewEntries = 16;

// An application and a layer register what a device reads and writes, and that cannot be paged out.
constexpr uint64_t kMemlock = uint64_t{1} << 30;

void judge_rdma(const Facts &facts, std::vector<Finding> &findings) {
  if (facts.rdma.empty()) {
    findings.push_back({State::kOk, "RDMA devices", "none", "", ""});
    return;
  }
  const auto name = [](std::string *out, const Facts::RdmaDevice &device) {
    absl::StrAppend(out, device.name, device.active ? "" : " (port down)");
  };
  Finding devices{.check = "RDMA devices",
                  .finding = absl::StrJoin(facts.rdma, ", ", name),
                  .cause = {},
                  .remedy = {}};
  if (!facts.unopened_node.empty()) {
    devices.state = State::kWarn;
    devices.cause = absl::StrCat("this user cannot open ", facts.unopened_node,
                                 ", so the provider verbs is left out");
    devices.remedy =
        "as root: modprobe -a ib_uverbs rdma_ucm; in a container, pass /dev/infiniband on; else "
        "see the access rights of that file";
  } else if (std::ranges::none_of(facts.rdma, &Facts::RdmaDevice::active)) {
    devices.state = State::kWarn;
    devices.cause = "no port is active";
    devices.remedy = "rdma link  (shows the ports and their network interfaces)";
  }
  findings.push_back(std::move(devices));

  Finding memory{.check = "locked memory",
                 .finding = absl::StrCat("soft limit ", number(facts.memlock_soft), ", hard limit ",
                                         number(facts.memlock_hard), " bytes"),
                 .cause = {},
                 .remedy = {}};
  if (facts.memlock_soft < kMemlock) {
    memory.cause =
        "memory that an RDMA device uses is locked, and fi_mr_reg fails beyond the limit";
    memory.state = facts.memlock_hard < kMemlock ? State::kFail : State::kWarn;
    memory.remedy =
        facts.memlock_hard < kMemlock
            ? "as root: echo '* - memlock unlimited' > /etc/security/limits.d/91-rdma.conf, and "
              "log in again (under systemd: LimitMEMLOCK=infinity)"
            : absl::StrCat("ulimit -l ",
                           facts.memlock_hard == UINT64_MAX
                               ? "unlimited"
                               : absl::StrCat(facts.memlock_hard / 1024),
                           "  (in the job script, before the program starts)");
  }
  findings.push_back(std::move(memory));
}

void judge_cxi(const Facts &facts, std::vector<Finding> &findings) {
  for (const Facts::CxiNic &nic : facts.cxi) {
    Finding finding{
        .check = absl::StrCat("cxi ", nic.name),
        .finding = absl::StrCat(
            nic.software ? "in software" : "hardware", ", ",
            nic.services.empty() ? "no service"
                                 : absl::StrCat(nic.services.size() == 1 ? "service " : "services ",
                                                absl::StrJoin(nic.services, ", ")),
            " for this user, ", nic.processes, nic.processes == 1 ? " process" : " processes", ", ",
            nic.entries_free, " of ", nic.entries, " list entries free"),
        .cause = {},
        .remedy = {}};
    if (!nic.up) {
      finding.state = State::kWarn;
      finding.cause = "its link is down";
      finding.remedy = "cxi_stat  (shows the state of the link)";
    } else if (nic.services.empty()) {
      finding.state = State::kWarn;
      finding.cause = "without a service a program gets no domain on it";
      finding.remedy = absl::StrCat("weft cxi service list --device ", nic.name,
                                    "  (then enable one, or create one)");
    } else if (nic.entries_free < nic.entries / kFewEntries) {
      finding.state = State::kWarn;
      finding.cause = "messages without a receive and regions have hardly any place left";
      finding.remedy = absl::StrCat("weft cxi service show ", nic.services.front(), " --device ",
                                    nic.name, "  (tells which processes have them)");
    }
    findings.push_back(std::move(finding));
  }
}

Finding judge_interfaces(const Facts &facts) {
  Finding finding{.check = "interfaces", .finding = {}, .cause = {}, .remedy = {}};
  if (facts.domains.empty()) {
    finding.state = State::kFail;
    finding.finding = "no provider offers an endpoint";
    finding.cause = facts.no_domain_reason;
    finding.remedy = "`weft why` tells what stopped each candidate";
    return finding;
  }
  const auto name = [](std::string *out, const Facts::Domain &domain) {
    absl::StrAppend(out, domain.name);
    if (!domain.address.empty()) absl::StrAppend(out, " (", domain.address, ")");
  };
  finding.finding =
      absl::StrCat("in order of preference: ", absl::StrJoin(facts.domains, ", ", name));
  if (std::all_of(facts.domains.begin(), facts.domains.end(),
                  [](const Facts::Domain &domain) { return domain.loopback; })) {
    finding.state = State::kWarn;
    finding.cause = "only loopback can be used: other hosts cannot be reached";
    finding.remedy =
        "ip link set DEVICE up, give it an address, and see params.tcp.interfaces in "
        "`weft config show --origin`";
  }
  return finding;
}

void judge_lost(const Facts &facts, std::vector<Finding> &findings) {
  for (const Facts::Lost &one : facts.lost)
    findings.push_back({State::kFail, absl::StrCat("provider ", one.provider),
                        "is asked for, and has nothing to work with on this host", one.reason,
                        one.where.empty() ? absl::StrCat("weft explain '", one.provider, "'")
                                          : absl::StrCat("correct it there: ", one.where,
                                                         ", or disable it on this "
                                                         "host; weft explain '",
                                                         one.provider, "'")});
}

void judge_folders(const Facts &facts, std::vector<Finding> &findings) {
  for (const Facts::Folder &folder : facts.folders) {
    Finding finding{.check = "plugin folder", .finding = folder.path, .cause = {}, .remedy = {}};
    if (!folder.exists) {
      finding.state = State::kWarn;
      finding.finding += " does not exist";
      finding.cause = absl::StrCat(folder.origin, " names it");
      finding.remedy = "make it, or take it out there";
      findings.push_back(std::move(finding));
      continue;
    }
    if (folder.world_writable) {
      finding.state = State::kFail;
      finding.finding = absl::StrCat(folder.world_writable_path, " can be written by everybody");
      finding.cause =
          "anybody on this host could put code into every program that uses libfabric; "
          "weft refuses to load from there";
      finding.remedy = absl::StrCat("chmod o-w '", folder.world_writable_path, "'");
      findings.push_back(std::move(finding));
      continue;
    }
    const std::string refresh = absl::StrCat("weft plugin refresh '", folder.path, "'");
    if (folder.index_damaged || folder.index_stale) {
      finding.state = State::kWarn;
      finding.finding += folder.index_damaged ? "/plugins.idx is damaged"
                                              : "/plugins.idx is older than its manifests";
      finding.cause = "every start of a program reads the manifests one by one instead";
      finding.remedy = refresh;
    } else if (!folder.has_index && folder.has_plugins) {
      finding.state = State::kWarn;
      finding.finding += " has no plugins.idx";
      finding.cause = "every start of a program reads the manifests one by one";
      finding.remedy = refresh;
    } else {
      finding.finding += folder.has_index ? ": index is fresh" : ": no plugins in it";
    }
    findings.push_back(std::move(finding));
  }
}

}  // namespace

std::vector<Finding> judge(const Facts &facts) {
  std::vector<Finding> findings;
  findings.push_back(judge_files(facts));
  findings.push_back(
      judge_queue(facts, "net.core.somaxconn", facts.somaxconn, "a listener's queue overflows"));
  findings.push_back(judge_queue(facts, "net.ipv4.tcp_max_syn_backlog", facts.syn_backlog,
                                 "half-open connections are dropped"));
  findings.push_back(judge_ports(facts));
  findings.push_back(judge_interfaces(facts));
  judge_lost(facts, findings);
  judge_rdma(facts, findings);
  judge_cxi(facts, findings);
  judge_folders(facts, findings);
  for (const Facts::Quarantined &one : facts.quarantined)
    findings.push_back(
        {State::kWarn, "quarantine", absl::StrCat(one.library, " is not used"), one.reason,
         absl::StrCat("repair or replace it, then: weft plugin check '", one.library, "'")});
  for (const Facts::Quarantined &one : facts.stuck)
    findings.push_back({State::kFail, "plugins",
                        absl::StrCat(one.library, " stops every program that asks for it"),
                        one.reason,
                        "repair or replace it, or disable its units (providers.disable)"});
  if (facts.quarantined.empty())
    findings.push_back({State::kOk, "quarantine", "no plugin is in it", "", ""});
  for (const Facts::Diagnostic &one : facts.diagnostics)
    findings.push_back({one.error ? State::kFail : State::kWarn, "configuration", one.where,
                        one.text, "mend it there, then: weft config lint"});
  if (facts.diagnostics.empty())
    findings.push_back({State::kOk, "configuration", "nothing to complain of", "", ""});
  return findings;
}

const char *state_word(State state) {
  return state == State::kOk ? "OK" : state == State::kWarn ? "WARN" : "FAIL";
}

State worst_of(const std::vector<Finding> &findings) {
  State worst = State::kOk;
  for (const Finding &finding : findings) worst = std::max(worst, finding.state);
  return worst;
}

}  // namespace weft::cli
