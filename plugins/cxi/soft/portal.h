// SPDX-License-Identifier: BSD-2-Clause
// SoftPortal: a portal table entry of the NIC in software: its lists, its state, and what a request
// of a peer does there.
//
// Example:
//    // What the engine does with a request for a portal that it has found; its lock is held.
//    inline Reply take(SoftPortal &portal, const Packet &packet) { return portal.serve(packet); }
//
// The comments of portal.cc and portal_commands.cc name the rules (R2 to R9) of
// docs/cxi.md. Not for finding the portal, nor for the initiator's part.
#ifndef WEFT_PLUGINS_CXI_SOFT_PORTAL_H
#define WEFT_PLUGINS_CXI_SOFT_PORTAL_H

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plugins/cxi/nic/nic.h"
#include "plugins/cxi/soft/engine.h"
#include "plugins/cxi/soft/entry_list.h"
#include "plugins/cxi/soft/event_ring.h"
#include "plugins/cxi/soft/header_list.h"

namespace weft::cxi {

class SoftPortal final : public Portal {
 public:
  SoftPortal(Engine &engine, SoftLni &lni, const PortalOptions &options, EventRing &eq);
  ~SoftPortal() override;

  // Where a request goes, and how far it reaches.
  struct Hit {
    List list = List::kPriority;
    LinkedEntry *entry = nullptr;
    Memory memory;      // of the entry
    uint64_t peer = 0;  // who asks: memory that is lent is found by that
    uint64_t address = 0;
    uint32_t mlength = 0;                   // bytes that move
    uint64_t takes = 0;                     // bytes of the entry that it uses up
    const sdk::HmemPlace *place = nullptr;  // of the address, while the request is looked at
    Rc rc = Rc::kOk;
  };
  // A put that has found no place, with its bytes.
  struct Waiting {
    Packet packet;
    std::unique_ptr<uint8_t[]> bytes;
  };
  // A request that has found its entry. The entry may go before the bytes have moved.
  struct Arrival {
    Packet packet;
    Hit hit;
    Entry entry;
    uint64_t room = 0;  // that the entry had
    bool unlinked = false;
    bool is_told = false;            // of the match
    std::unique_ptr<Header> header;  // of an overflow buffer
  };

  // ---- with the engine's lock held ----
  Reply serve(const Packet &packet);
  // serve() where the bytes of a put come later, or those of a Get leave later. begin() returns the
  // reply if the request is refused. Else it has taken its entry, and has places for its events;
  // but a put that !can_land() has done nothing: serve() it when its bytes are there.
  std::optional<Reply> begin(const Packet &packet, Arrival &arrival);
  static bool can_land(const Arrival &arrival) { return arrival.hit.list == List::kPriority; }
  void land(Arrival &arrival, uint32_t offset, const uint8_t *bytes, uint32_t count);
  bool copy_out(const Arrival &arrival, uint32_t offset, std::span<uint8_t> out) const;
  Reply end(Arrival &arrival);
  void abandon(const Arrival &arrival) { eq_.unhold(events_of(arrival)); }  // the portal ends
  void unmapped(const SoftEndpoint &endpoint);
  // portal_waiting.cc. What waits is tried again; forgotten, as its asker is gone.
  void try_waiting();
  void forget(const Asker &asker);

  // ---- Portal ----
  Result<void> map(Endpoint &endpoint, Index index) override;
  void set_state(PortalState state, uint32_t drops) override;
  int take_over(uint32_t drops) override;
  PortalStatus status() const override;
  void append(List list, const Entry &entry) override;
  void unlink(List list, uint16_t buffer_id) override;
  void search(const Criteria &criteria, bool takes) override;
  void invalidate(List list, uint16_t buffer_id) override;

 private:
  EntryList &list(List which);
  const EntryList &list(List which) const { return const_cast<SoftPortal *>(this)->list(which); }
  bool is_running() const {
    return state_ == PortalState::kEnabled || state_ == PortalState::kSoftwareManaged;
  }
  Hit match(const Packet &packet);
  Reply refuse(const Packet &packet);                          // nothing matches
  Rc no_entry_left(const Packet &packet, Reason if_software);  // R8
  void leave_to_software(Reason reason);
  Rc disable(Reason reason);
  Rc find_no_place(const Packet &packet, Reason reason);
  bool may_wait(const Packet &packet) const;
  Reply wait(const Packet &packet);
  std::optional<Reply> try_to_serve(const Packet &packet);
  bool would_wait(const Arrival &arrival) const;
  // kNone: nobody is told.
  void end_waiting(const std::function<bool(const Waiting &)> &ends, Rc rc);
  void note_waiting();
  void change_state(PortalState state, Reason reason);
  void locate(Hit &hit, const Packet &packet) const;  // R4
  void count(const Packet &packet, Rc rc, bool is_silent);
  std::optional<Reply> arrive(const Packet &packet, Arrival &arrival);
  size_t events_of(const Arrival &arrival) const;
  Rc resolve(const Hit &hit, uint32_t offset, size_t length, unsigned access, Memory &memory) const;
  Rc move_bytes(const Hit &hit, const Packet &packet, Reply &reply);
  void tell_match(Arrival &arrival);
  void use_up(Arrival &arrival);                // R5
  void report(Arrival &arrival, Reply &reply);  // R5
  Event event_of(const Packet &packet, const Hit &hit, uint16_t buffer_id) const;
  void post(const Event &event);
  void begin_rendezvous(const Entry &entry, uint64_t address, uint64_t room, const Header &message,
                        Event event);                        // R7
  bool take_unexpected(LinkedEntry &entry, Header &header);  // R6
  void report_link(List list, const Entry &entry, Rc rc);
  bool new_entry();
  void release(LinkedEntry *entry);
  void drop(Header *header);

  Engine &engine_;
  SoftLni &lni_;
  const PortalOptions options_;
  EventRing &eq_;
  std::vector<SoftEndpoint *> endpoints_;  // that it is mapped in, of one PID
  PortalState state_ = PortalState::kDisabled;
  uint32_t drops_ = 0;
  EntryList priority_, overflow_, request_;
  HeaderList unexpected_;
  Rc appends_ = Rc::kOk;         // what an append gets; not kOk: one has failed
  std::deque<Waiting> waiting_;  // of a lossless portal, in the order of their arrival
};

}  // namespace weft::cxi

#endif
