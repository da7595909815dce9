// SPDX-License-Identifier: BSD-2-Clause
// Registry: what the processes of a host share of one NIC in software: who owns which (VNI, PID),
// the services, and how many list entries and triggered commands are in use.
//
// Example:
//    // Where the owner of an address can be reached.
//    inline std::optional<uint32_t> owner_of(Registry &registry, Vni vni, Pid pid) {
//      const auto owner = registry.find(vni, pid);
//      if (!owner) return std::nullopt;  // nobody has it, or not any more
//      return owner->door;
//    }
//
// It is a file in the user's runtime folder, mapped by each process. A file of another version is
// replaced if no living process uses it. A process that was killed loses
// what it had as soon as another one asks. Calls are thread-safe. Calls that give out what is free
// take a lock of the file, which the kernel releases when its holder dies: where one is stopped
// with it, they fail, and say who it is (FI_EAGAIN). All others take none, so what is under way
// goes on.
//
// A process is known by its number and the time of its start, so all must be in one PID namespace:
// each has a folder of its own (host.h).
// Not against a process of the same user that means harm: it may write to the file.
#ifndef WEFT_PLUGINS_CXI_SOFT_REGISTRY_H
#define WEFT_PLUGINS_CXI_SOFT_REGISTRY_H

#include <weft/result.h>
#include <weft/sdk/progress/fork_mark.h>
#include <weft/sdk/progress/unique_fd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plugins/cxi/nic/service.h"
#include "plugins/cxi/nic/words.h"
#include "plugins/cxi/soft/outside.h"

namespace weft::cxi {

struct RegistryLimits {
  uint32_t list_entries = 16384, triggered = 512;  // of the host, for all processes
};

struct RegistryFile;

class Registry final : public Pool {
 public:
  struct Owner {
    uint32_t process = 0;
    uint32_t door = 0;  // what it has said of where it can be reached
  };

  // `limits` are those of whoever comes first.
  static Result<std::unique_ptr<Registry>> open(const std::string &folder, Nid nid,
                                                const RegistryLimits &limits);
  ~Registry() override;
  Registry(const Registry &) = delete;
  Registry &operator=(const Registry &) = delete;

  void set_door(uint32_t door);

  // FI_EADDRINUSE: a living process has it; with kAnyPid: all are taken.
  Result<Pid> claim(Vni vni, Pid pid);
  void release(Vni vni, Pid pid);
  std::optional<Owner> find(Vni vni, Pid pid) const;
  bool has_vni(Vni vni) const;  // of a living process
  // Changes with each claim and each release: what find() has said may be wrong then.
  uint32_t generation() const;
  // Whether a process of this user has opened the NIC, now or before.
  static bool exists(const std::string &folder, Nid nid);
  static std::string path_of(const std::string &folder, Nid nid);  // the file

  // ---- services ----
  static Service usual(const RegistryLimits &limits);  // that each NIC has from the start
  std::vector<Service> services() const;
  // What this process takes by a service, until the last copy goes, which must be before this
  // object. FI_EINVAL, FI_EPERM as usable_service(). `nic` is for the words.
  struct Opened {
    Service service;
    std::shared_ptr<Pool> pool;
  };
  Result<Opened> use(uint32_t service, const std::string &nic);
  ServiceUse usage(uint32_t service) const;  // 0: of all together
  // Its id. Limits of 0: the NIC's. FI_ENOSPC: there is no place for one more.
  Result<uint32_t> create(const Service &service);
  Result<void> enable(uint32_t service, bool enabled);
  Result<void> destroy(uint32_t service);  // FI_EBUSY: a living process uses it

  // ---- Pool: what this process takes without a service ----
  bool take(Resource resource) override { return take(self_, resource); }
  void give(Resource resource) override { give(self_, resource); }
  void count(Telemetry which) override { count(self_, which); }
  uint64_t counted(Telemetry which) const;  // by all processes, those that have ended, too
  uint32_t used(Resource resource) const override;
  uint32_t limit(Resource resource) const override;

 private:
  class FileLock;
  class Share;
  Registry(sdk::UniqueFd fd, RegistryFile *file, Nid nid)
      : fd_(std::move(fd)), file_(file), nid_(nid) {}
  Result<void> join(const RegistryLimits &limits);
  // ---- the file is locked ----
  Result<uint32_t> take_slot(uint32_t service);
  void reclaim() const;   // what dead processes had
  bool is_alone() const;  // no other process lives
  // ---- no lock ----
  void try_to_reclaim() const;  // unless the file is locked
  void give_up(uint32_t slot);
  bool is_dead(uint32_t slot) const;
  bool take(uint32_t slot, Resource resource);
  void give(uint32_t slot, Resource resource);
  void count(uint32_t slot, Telemetry which);
  bool try_to_take(uint32_t slot, size_t resource);

  mutable std::mutex mutex_;  // the file's lock is the process's, not the thread's
  sdk::UniqueFd fd_;
  RegistryFile *const file_;
  const Nid nid_;
  uint32_t self_ = 0, process_ = 0;  // our slot, and who we are
  const sdk::ForkMark mark_;         // a forked child has no slot
  uint64_t start_time_ = 0;
  std::atomic<uint32_t> failures_{0};
};

}  // namespace weft::cxi

#endif
