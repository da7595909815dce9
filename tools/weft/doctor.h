// SPDX-License-Identifier: BSD-2-Clause
// Finds settings of this machine that could harm a job, from facts that are passed in.
//
// Example (statements):
//     Facts facts;
//     facts.fd_soft = 1024;
//     std::vector<std::string> remedies;
//     for (const Finding &finding : judge(facts))
//       if (finding.state != State::kOk) remedies.push_back(finding.remedy);
//
// judge() is a pure function; doctor.cc gathers the facts.
#ifndef WEFT_TOOLS_WEFT_DOCTOR_H
#define WEFT_TOOLS_WEFT_DOCTOR_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft::cli {

enum class State { kOk, kWarn, kFail };

struct Finding {
  State state = State::kOk;
  std::string check;    // "open files"
  std::string finding;  // the state, with the numbers
  std::string cause;    // why it is a problem; empty where all is well
  std::string remedy;   // the command that repairs it
};

struct Facts {
  uint64_t ranks = 512;  // processes of a job that one process talks to

  uint64_t fd_soft = 0, fd_hard = 0;  // UINT64_MAX: no limit
  // From /proc/sys; absent where it cannot be read, as in some containers.
  std::optional<uint64_t> somaxconn, syn_backlog, port_low, port_high;

  // RDMA devices that the kernel knows, and what a process needs in order to use them.
  struct RdmaDevice {
    std::string name;     // "mlx5_0"
    bool active = false;  // a port of it
  };
  std::vector<RdmaDevice> rdma;
  std::string unopened_node;  // a file of /dev/infiniband that is not there or not this user's
  uint64_t memlock_soft = UINT64_MAX, memlock_hard = UINT64_MAX;  // bytes; UINT64_MAX: no limit

  // NICs of the provider cxi, as it knows them.
  struct CxiNic {
    std::string name;
    bool software = false, up = true;
    std::vector<uint32_t> services;  // that this user may use
    uint32_t processes = 0;          // that use it
    uint32_t entries_free = 0, entries = 0;
  };
  std::vector<CxiNic> cxi;

  struct Domain {
    std::string name, address;
    bool loopback = false;
  };
  std::vector<Domain> domains;          // the results of fi_getinfo(), best first
  std::vector<std::string> interfaces;  // how the provider tcp ranked the interfaces
  std::string no_domain_reason;         // why there are no domains
  // Providers that the configuration asks for, and leaves no interface or device of this host.
  struct Lost {
    std::string provider, reason, where;
  };
  std::vector<Lost> lost;

  struct Folder {
    std::string path, origin;
    bool exists = false;
    bool world_writable = false;  // the folder or a file in it
    std::string world_writable_path;
    bool has_plugins = false, has_index = false, index_damaged = false, index_stale = false;
  };
  std::vector<Folder> folders;

  struct Quarantined {
    std::string library, reason;
  };
  std::vector<Quarantined> quarantined;
  std::vector<Quarantined> stuck;  // hung or crashed when this command asked them

  struct Diagnostic {
    bool error = false;
    std::string where, text;
  };
  std::vector<Diagnostic> diagnostics;  // of the configuration
};

std::vector<Finding> judge(const Facts &facts);

const char *state_word(State state);  // "OK", "WARN", "FAIL"
State worst_of(const std::vector<Finding> &findings);

}  // namespace weft::cli

#endif
