// SPDX-License-Identifier: BSD-2-Clause
// Collectives: the collective operations of an endpoint (fi_collective.3; fi_cxi.7, COLLECTIVES):
// its groups, the portal through which their members reach it, and what applications ask for.
//
// Example:
//    // fi_barrier.
//    inline ssize_t barrier(Collectives &collectives, fi_addr_t group, void *context) {
//      return collectives.start({.group = group, .coll = FI_BARRIER, .context = context});
//    }
//
// A NIC in software has no multicast, and no fabric manager: members send each other packets, in a
// tree (collective/group.h). A packet that the peer had no place for goes again after a while.
//
// fi_close of a group's fid leaves it; operations under way are canceled. Calls are with the
// endpoint's lock held. Not for the C calls themselves: weft/sdk/transfers/collective_ops.h.
#ifndef WEFT_PLUGINS_CXI_COLLECTIVES_H
#define WEFT_PLUGINS_CXI_COLLECTIVES_H

#include <rdma/fi_collective.h>
#include <weft/sdk/addresses/av_set.h>
#include <weft/sdk/objects/contexts.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/transfers/collective_ops.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "plugins/cxi/buffers.h"
#include "plugins/cxi/collective/groups.h"
#include "plugins/cxi/counters.h"
#include "plugins/cxi/ports.h"
#include "plugins/cxi/settings.h"
#include "plugins/cxi/tokens.h"

namespace weft::cxi {

class Collectives;
class CxiEndpoint;

// The most members of a group: their addresses are in the memory of each.
inline constexpr size_t kMaxMembers = size_t{1} << 20;

// What fi_join_collective gives out.
class CollectiveGroup final : public sdk::Object<CollectiveGroup, fid_mc> {
 public:
  struct Operation {
    bool active = false, report = false;
    void *context = nullptr;
    void *result = nullptr;  // null: nobody wants it
    Opcode opcode = Opcode::kBarrier;
    uint8_t bytes = 0;
  };

  CollectiveGroup(CxiEndpoint &endpoint, std::vector<fi_addr_t> members, bool by_rank,
                  void *context);
  // fi_ops
  int close();
  void discard() { delete this; }  // one that nobody knows yet

  // The rank of a member, as operations name their root.
  std::optional<uint32_t> rank_of(fi_addr_t member) const;

  CxiEndpoint &endpoint;
  const std::vector<fi_addr_t> members;
  const bool by_rank;               // COMM_KEY_RANK
  uint64_t id = 0;                  // of its Group
  std::optional<uint32_t> address;  // of multicast, that is to be given back
  Operation operations[Group::kWindow];

 private:
  ~CollectiveGroup() = default;
};

class Collectives final : private sdk::Handler, private FabricManager::User {
 public:
  // fi_addr_t of groups are kGroupBase plus a number.
  static constexpr fi_addr_t kGroupBase = UINT64_C(1) << 62;

  Collectives(CxiEndpoint &endpoint, const Ports &ports, sdk::Engine &engine, sdk::TxContext &tx,
              const Settings &settings, Counters &counters);
  ~Collectives();
  Result<void> open();
  bool is_open() const { return portal_ != nullptr; }
  void close();  // all groups were left
  // After close(), without the engine's lock: until the fabric manager has its addresses back.
  void wait_for_manager();

  Result<fid_mc *> join(sdk::Av &av, const fi_collective_addr &address, void *context);
  void leave(CollectiveGroup &group);
  ssize_t start(const sdk::CollectiveRequest &call);
  bool has_groups() const { return !groups_.empty(); }

  // ---- progress ----
  bool read_events();                                  // false: there were none
  bool has_sent() const { return messages_.empty(); }  // all, and it has arrived
  bool linger();                                       // as read_events(), without the engine
  EventQueue &events() { return *events_; }

 private:
  struct Message {
    Peer peer;
    GroupPacket packet;
    GroupPacket::Bytes bytes;
    uint64_t at = 0;  // 0: under way; else when it goes again
    std::list<Message>::iterator self;
    uint64_t token = 0;
  };

  Result<GroupPlace> place_of(sdk::Av &av, const sdk::AvSet &set, bool &by_rank) const;
  Result<void> find_own_rank(GroupPlace &place) const;
  CollectiveGroup *find(fi_addr_t address) const;
  void look();  // sends and reports what the groups have to say
  void report(GroupOutput::Ended &one);
  bool put_result(void *to, const uint8_t *bytes, size_t count) const;
  void report_join(CollectiveGroup &group, Failure failure);
  Result<void> open_manager();
  void ask_manager(uint64_t id);
  void on_manager_answer(const FabricManager::Answer &answer) override;
  void post(Message &message);
  void on_arrived(const Event &event);
  void on_refused(const Event &event);
  void on_answer(Message &message, Rc rc);
  void post_again(uint64_t now);
  void schedule();
  void on_deadline() override;
  void on_event(uint32_t) override {}

  CxiEndpoint &endpoint_;
  const Ports &ports_;
  sdk::Engine &engine_;
  sdk::TxContext &tx_;
  const Settings &settings_;
  Counters &counters_;
  std::unique_ptr<EventQueue> events_;
  std::unique_ptr<TransmitQueue> queue_;
  std::unique_ptr<Portal> portal_;
  std::unique_ptr<Buffers> buffers_;
  std::unique_ptr<Groups> protocol_;
  std::unique_ptr<FabricManager> manager_;        // from the first group that needs it
  uint64_t link_at_ = 0;                          // when buffers are offered to the NIC again
  std::map<uint64_t, CollectiveGroup *> groups_;  // by the numbers of the protocol
  std::list<Message> messages_, spare_;
  Tokens<Message> tokens_;
  GroupOutput output_;
};

// Whether there is such a collective (fi_query_collective). 0, or -FI_E...
int query_collective(fi_collective_op coll, fi_collective_attr *attr, uint64_t flags);

}  // namespace weft::cxi

#endif
