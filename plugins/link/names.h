// SPDX-License-Identifier: BSD-2-Clause
// Names: the peers of one address vector of the application in the vectors of both domains beneath.
// There each has the application's fi_addr_t as its user id, by which the providers name sources.
//
// Example:
//    // Whether the peer may be on this host.
//    inline bool may_be_here(Names &names, uint32_t index) {
//      return names.of(index).at[kLocal] != FI_ADDR_NOTAVAIL;
//    }
//
// A peer comes into the vector of memory only if its address is one of this host's. The calls of
// the application's vector only note what is to be done, as they hold the layer's lock: follow()
// does it. Not for which way a peer is reached: ways.h.
#ifndef WEFT_PLUGINS_LINK_NAMES_H
#define WEFT_PLUGINS_LINK_NAMES_H

#include <rdma/fi_domain.h>
#include <weft/result.h>
#include <weft/sdk/addresses/av.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "plugins/link/branch.h"

namespace weft::link {

class Domain;

class Names final : public sdk::AvUser {
 public:
  using Owned = sdk::Av;
  static Result<std::shared_ptr<Names>> open(Domain &domain, sdk::Av &av);
  Names(Domain &domain, sdk::Av &av) : domain_(domain), av_(av) {}
  ~Names();  // after the endpoints beneath that use it

  fid_av *at(size_t branch) const { return beneath_[branch]; }

  // ---- without a lock of the layer ----
  struct Name {
    fi_addr_t at[kBranches] = {FI_ADDR_NOTAVAIL, FI_ADDR_NOTAVAIL};  // in the vectors beneath
    int error = FI_EINVAL;  // why it is not in that of the network
  };
  Name of(uint32_t index);
  void follow();

 private:
  void note(uint32_t index);
  void apply(uint32_t index, const std::optional<sdk::Address> &address);
  int insert(size_t branch, uint32_t format, const sdk::Address &address, uint32_t index,
             fi_addr_t &at);
  // sdk::AvUser
  void on_av_removed(uint32_t index) override { note(index); }
  void on_av_inserted(uint32_t index, const sdk::Address &) override { note(index); }

  Domain &domain_;
  sdk::Av &av_;
  bool is_user_ = false;
  fid_av *beneath_[kBranches] = {};
  // With the engine's lock: entries that have changed, each once.
  std::vector<uint32_t> changed_;
  std::vector<bool> is_changed_;
  std::atomic<bool> has_changes_{false};
  std::mutex mutex_;  // of what follows; taken before the locks beneath
  std::vector<Name> names_;
};

}  // namespace weft::link

#endif
