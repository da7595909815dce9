// SPDX-License-Identifier: BSD-2-Clause
// Branch: a domain of a provider beneath, and how progress is made there.
//
// Example:
//    // Looks once at both ways.
//    inline void poll(Branch &network, Branch &local) {
//      local.poll();
//      network.poll();
//    }
//
// No lock of the layer may be held in its calls: what is beneath reports to the layer's queues,
// whose lock comes after those beneath. Not for queues that are lent: lent.h.
#ifndef WEFT_PLUGINS_LINK_BRANCH_H
#define WEFT_PLUGINS_LINK_BRANCH_H

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <weft/result.h>
#include <weft/sdk/layers/inner_wait.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace weft::link {

// The places of the two providers in whatever there is one of for each.
inline constexpr size_t kNetwork = 0, kLocal = 1, kBranches = 2;

class Branch {
 public:
  Branch() = default;
  ~Branch() { close(); }
  Branch(const Branch &) = delete;
  Branch &operator=(const Branch &) = delete;

  // `info`: what the domain was opened with. Who closes it calls close() before.
  Result<void> open(fid_fabric *fabric, fid_domain *domain, const fi_info &info);
  void close();
  bool is_open() const { return domain_ != nullptr; }

  fid_domain *domain() const { return domain_; }
  const fi_info &info() const { return *info_; }

  void poll() { fi_cq_read(pulse_, nullptr, 0); }
  // As of a Poller of the engine. `changed`: the descriptors are not those of the last wait_fds().
  int wait_fds(std::vector<int> &fds);
  bool may_wait(bool &changed);

  // Something was reported by this provider, or began there.
  void note_event() { events_.store(events() + 1, std::memory_order_relaxed); }
  uint64_t events() const { return events_.load(std::memory_order_relaxed); }

 private:
  fid_fabric *fabric_ = nullptr;
  fid_domain *domain_ = nullptr;
  const fi_info *info_ = nullptr;
  fid_cq *pulse_ = nullptr;  // has no entries; who reads it makes progress
  std::mutex mutex_;         // of wait_
  sdk::InnerWait wait_;
  std::atomic<uint64_t> events_{0};
};

}  // namespace weft::link

#endif
