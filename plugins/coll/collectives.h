// SPDX-License-Identifier: BSD-2-Clause
// Collectives: the groups of an endpoint, and their messages through the endpoint beneath.
//
// Example:
//    // fi_barrier.
//    inline ssize_t barrier(Collectives &collectives, fi_addr_t group, void *context) {
//      return collectives.start({.group = group, .coll = FI_BARRIER, .context = context});
//    }
//
// What groups do is group/'s business; this is their Carrier. A message that the endpoint beneath
// takes no more of waits, in order, for the next progress. Calls are with the engine's lock held.
// Not for the C calls themselves: weft/sdk/transfers/collective_ops.h.
#ifndef WEFT_PLUGINS_COLL_COLLECTIVES_H
#define WEFT_PLUGINS_COLL_COLLECTIVES_H

#include <rdma/fi_collective.h>
#include <weft/sdk/addresses/av_set.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/objects/contexts.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/transfers/collective_ops.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/coll/fabric.h"
#include "plugins/coll/group/groups.h"
#include "plugins/coll/posted.h"
#include "plugins/coll/staging.h"

namespace weft::coll {

class Endpoint;

// What fi_join_collective gives out.
class CollectiveGroup final : public sdk::Object<CollectiveGroup, fid_mc> {
 public:
  CollectiveGroup(Endpoint &endpoint, std::vector<fi_addr_t> members, uint64_t sets, void *context);
  int close();                     // fi_ops; -FI_EBUSY: something is still in flight
  void end();                      // of close(): the rest, which always succeeds
  void discard() { delete this; }  // one that nobody knows yet
  // The rank of a member, as operations name their root.
  std::optional<uint32_t> rank_of(fi_addr_t member) const;
  bool is_for(fi_collective_op coll) const;

  Endpoint &endpoint;
  const std::vector<fi_addr_t> members;
  const uint64_t sets;   // FI_..._SET: which collectives it is for; 0: all
  uint32_t number = 0;   // of its Group
  bool is_left = false;  // close() was called

 private:
  ~CollectiveGroup() = default;
};

class Collectives final : private Carrier, private sdk::Handler {
 public:
  // fi_addr_t of groups are kGroupBase plus a number.
  static constexpr fi_addr_t kGroupBase = UINT64_C(1) << 62;
  static constexpr size_t kPackets = 16;   // receives for packets
  static constexpr size_t kPlaces = 1024;  // room beneath for what groups have in flight

  Collectives(Endpoint &endpoint, Fabric &fabric, sdk::Engine &engine, sdk::TxContext &tx);
  ~Collectives();

  Result<fid_mc *> join(sdk::Av &av, const fi_collective_addr &address, void *context);
  bool leave(CollectiveGroup &group);  // false: something is still in flight
  ssize_t start(const sdk::CollectiveRequest &call);
  // That the application has not tried to close. The others go with the endpoint.
  bool has_groups() const;
  void end_groups();  // without the engine's lock
  void close();
  void share(Numbers &numbers) { groups_.share(numbers); }
  static ssize_t receive(fid_ep *beneath, Wire &wire);

  // ---- for the reader of the queue beneath ----
  // `source`: of a message, as the endpoint beneath names its sender.
  void on_done(Wire &wire, int err, size_t length, fi_addr_t source = FI_ADDR_NOTAVAIL);
  bool has_ended() const { return !ended_.empty(); }  // on_polled() reports it
  void on_polled();  // after all that has been read: what waits may go on

 private:
  static constexpr size_t kReports = 16384;
  struct Report {
    void *context = nullptr;
    bool wanted = false;
    std::unique_ptr<Staging> staging{};  // its buffers are a device's
  };
  struct Noted {
    uint32_t number;
    Ended one;
  };
  struct Lost {
    Wire *wire;
    int err;
  };

  // Carrier
  bool post(Flight &flight) override;
  void cancel(Flight &flight) override;
  void tell(Group &group, uint32_t rank, const Packet &packet) override;
  void ended(Group &group, const Ended &one) override;
  bool is_at(uint64_t peer, const std::string &address) const override;
  // sdk::Handler
  void on_deadline() override;
  void on_event(uint32_t) override {}

  Result<GroupPlace> place_of(sdk::Av &av, const std::vector<fi_addr_t> &members) const;
  Result<std::vector<fi_addr_t>> members_of(sdk::Av &av, const fi_collective_addr &address,
                                            uint64_t &sets) const;
  Result<CollectiveGroup *> make_group(std::vector<fi_addr_t> members, uint64_t sets,
                                       void *context);
  CollectiveGroup *find(fi_addr_t address) const;
  int fill_call(const sdk::CollectiveRequest &call, const CollectiveGroup &group,
                Call &wanted) const;
  int start_in(Group &group, Call &wanted, uint64_t now, Report &asked);

  Wire &take(Wire::Kind kind);
  void give(Wire &wire);
  void submit(Wire &wire);
  void on_packet(Wire &wire, int err, size_t length, fi_addr_t source);
  ssize_t try_post(Wire &wire);
  void open_packets();
  void look();
  void report(const Noted &noted);
  void report_join(CollectiveGroup &group, const Ended &one);
  uint64_t now() const;  // of operations
  void arm(uint64_t now);

  Endpoint &endpoint_;
  Fabric &fabric_;
  sdk::Engine &engine_;
  sdk::TxContext &tx_;
  Groups groups_;
  std::map<uint32_t, CollectiveGroup *> objects_;  // by the numbers of groups
  sdk::Pool<Report> reports_{kReports};
  std::deque<std::unique_ptr<Wire>> wires_;
  std::vector<Wire *> free_;
  std::deque<Wire *> waiting_;  // for room in the endpoint beneath
  std::deque<Lost> lost_;       // that it has refused
  std::deque<Noted> ended_;
  bool has_packets_ = false, looks_ = false;
  uint64_t armed_ = 0;  // when on_deadline() comes; 0: it does not
};

}  // namespace weft::coll

#endif
