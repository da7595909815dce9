// SPDX-License-Identifier: BSD-2-Clause
// Names: peers of the application's address vector in a vector of the domain beneath. One peer is
// there from its first use on; where sources are told (FI_SOURCE) or there are groups, all are.
//
// Example:
//    // Where a send to the peer with this index goes.
//    inline fi_addr_t way_to(Names &names, uint32_t index) { return names.of(index); }
//
// An endpoint has names of its own; those that share receives have the same, because a directed
// receive names its peer for all of them. With the engine's lock held. Not for members of groups as
// applications know them: collectives.h.
#ifndef WEFT_PLUGINS_COLL_NAMES_H
#define WEFT_PLUGINS_COLL_NAMES_H

#include <rdma/fi_domain.h>
#include <weft/result.h>
#include <weft/sdk/addresses/av.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace weft::coll {

class Domain;

class Names final : public sdk::AvUser {
 public:
  static Result<std::unique_ptr<Names>> open(Domain &domain);
  ~Names();  // after the endpoints beneath are closed

  fid_av *beneath() const { return peers_; }
  // An endpoint with this vector is enabled; and it closes.
  bool takes(const sdk::Av &av) const { return users_ == 0 || av_ == &av; }
  void start(sdk::Av &av, bool tells_sources);
  void stop();
  // Between start() and stop(): from now on all peers are there, and their messages have sources.
  void name_all();

  // The name beneath; FI_ADDR_NOTAVAIL: it has none.
  fi_addr_t of(uint32_t index) {
    if (index < names_.size() && names_[index].address != FI_ADDR_NOTAVAIL) [[likely]]
      return names_[index].address;
    return insert(index);
  }
  fi_addr_t find(fi_addr_t peer) {
    return users_ != 0 ? of(av_->index_of(peer)) : FI_ADDR_NOTAVAIL;
  }
  // It stays when the application removes the peer, and is the peer's again if it comes back.
  fi_addr_t keep(uint32_t index);
  // The application's fi_addr_t of a source beneath, after name_all().
  fi_addr_t reported(fi_addr_t source) const;
  // That of a name beneath; empty: there is no such name.
  std::string address_of(fi_addr_t name) const;

 private:
  struct Name {
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    bool is_kept = false;
  };
  explicit Names(Domain &domain) : domain_(domain) {}
  fi_addr_t insert(uint32_t index);
  std::string address_at(uint32_t index) const;  // as the domain beneath takes it; or empty
  void forget_all();
  // sdk::AvUser
  void on_av_removed(uint32_t index) override;
  void on_av_inserted(uint32_t index, const sdk::Address &) override { of(index); }

  Domain &domain_;
  fid_av *peers_ = nullptr;
  sdk::Av *av_ = nullptr;
  size_t users_ = 0;
  bool names_all_ = false;
  std::vector<Name> names_;                          // by index of the application's vector
  std::unordered_map<std::string, fi_addr_t> kept_;  // of peers that were removed, by address
  std::unordered_map<fi_addr_t, uint32_t> indices_;  // the way back, after name_all()
};

}  // namespace weft::coll

#endif
