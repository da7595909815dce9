// SPDX-License-Identifier: BSD-2-Clause
// Liar: a hostile peer on libibverbs and librdmacm alone, with queue pairs, for the fuzz target of
// connected endpoints. It sends what a device lets it send: any private data, messages and
// immediates of any size, accesses to any address with any key; and it leaves at any time.
//
// Example:
//    // It connects to whoever listens at `target`, and sends what the input says.
//    inline void attack(Liar &liar, const sdk::Address &target, weft::fuzz::Input &in) {
//      liar.call(target, std::string_view("\2hi"), /*how=*/0);
//      liar.run();  // as often as the library has to tell something
//      liar.send(in, {});
//    }
//
// Not for peers that keep the rules: those are endpoints. Strangers have no queue pairs.
#ifndef WEFT_PLUGINS_VERBS_FUZZ_LIAR_H
#define WEFT_PLUGINS_VERBS_FUZZ_LIAR_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <weft/sdk/addresses/address.h>

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <span>
#include <string>
#include <string_view>

#include "tests/fuzz/world.h"

namespace weft::verbs::fuzz {

// Memory that an application shows to its peers.
struct Shown {
  uint64_t address, key;
};

class Liar {
 public:
  explicit Liar(const sdk::Address &local);  // it listens there
  ~Liar();
  Liar(const Liar &) = delete;
  Liar &operator=(const Liar &) = delete;

  const sdk::Address &name() const { return name_; }
  Shown memory() const { return {reinterpret_cast<uintptr_t>(bytes_.data()), region_->rkey}; }

  // Bits of `how`: it has no queue pair, and names any number; it does not say that it is ready;
  // its device tries again for ever where there is no receive.
  void call(const sdk::Address &target, std::string_view data, uint8_t how);
  void answer(std::string_view data, uint8_t how);  // the request that has waited longest
  void refuse(std::string_view data);
  void leave(uint8_t which, uint8_t how);
  void send(weft::fuzz::Input &in, std::span<const Shown> shown);
  void receive(weft::fuzz::Input &in);
  // Handles what the library tells, and takes what the device tells.
  void run();

 private:
  struct Link {
    rdma_cm_id *id;
    std::string data;
    uint8_t how;
  };
  Link *link(uint8_t which);
  void give_queue_pair(const Link &link);
  void end(rdma_cm_id *id);
  void on_event(rdma_cm_event_type type, rdma_cm_id *id);

  rdma_event_channel *channel_;
  rdma_cm_id *listener_ = nullptr;
  ibv_pd *domain_ = nullptr;
  ibv_cq *queue_ = nullptr;
  ibv_mr *region_ = nullptr;
  std::array<uint8_t, 4096> bytes_;
  sdk::Address name_;
  std::list<Link> links_;
  std::deque<rdma_cm_id *> requests_;
};

}  // namespace weft::verbs::fuzz

#endif
