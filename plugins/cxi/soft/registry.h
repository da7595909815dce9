// SPDX-License-Identifier: BSD-2-Clause
// Registry: what the processes of a host share of one NIC in software: who owns which (VNI, PID),
// and how many list entries and triggered commands are in use.
//
// Example:
//    // Where the owner of an address can be reached.
//    inline std::optional<uint32_t> owner_of(Registry &registry, Vni vni, Pid pid) {
//      const auto owner = registry.find(vni, pid);
//      if (!owner) return std::nullopt;  // nobody has it, or not any more
//      return owner->door;
//    }
//
// It is a file in the user's runtime folder, mapped by each process. A process that was killed loses
// what it had as soon as another one asks. Calls are thread-safe. Calls that change an owner take a
// lock of the file, which the kernel releases when its holder dies; take() and give() take none.
//
// A process is known by its number and the time of its start, so all must be in one PID namespace.
// Not against a process of the same user that means harm: it may write to the file.
#ifndef WEFT_PLUGINS_CXI_SOFT_REGISTRY_H
#define WEFT_PLUGINS_CXI_SOFT_REGISTRY_H

#include <weft/result.h>
#include <weft/sdk/unique_fd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "plugins/cxi/nic/words.h"
#include "plugins/cxi/soft/outside.h"

namespace weft::cxi {

struct RegistryLimits {
  uint32_t list_entries = 16384, triggered = 512;  // of the host, for all processes
};

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
  // The file. Its name has the layout's number: processes of another one do not meet ours.
  static std::string path_of(const std::string &folder, Nid nid);

  // ---- Pool ----
  bool take(Resource resource) override;
  void give(Resource resource) override;
  uint32_t used(Resource resource) const override;
  uint32_t limit(Resource resource) const override;
  void count(Telemetry which) override;

  uint64_t counted(Telemetry which) const;  // by all processes, those that have ended, too

 private:
  struct File;
  class FileLock;
  Registry(sdk::UniqueFd fd, File *file) : fd_(std::move(fd)), file_(file) {}
  Result<void> join();
  void reclaim() const;  // what dead processes had; the file is locked
  void clear(uint32_t slot) const;
  bool is_dead(uint32_t slot) const;
  bool try_to_take(size_t resource);

  mutable std::mutex mutex_;  // the file's lock is the process's, not the thread's
  sdk::UniqueFd fd_;
  File *const file_;
  uint32_t self_ = 0, process_ = 0;  // our slot, and who we are: a forked child is not
  std::atomic<uint32_t> failures_{0};
};

}  // namespace weft::cxi

#endif
