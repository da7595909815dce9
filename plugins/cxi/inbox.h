// SPDX-License-Identifier: BSD-2-Clause
// Inbox: the messages that come to an endpoint. The NIC matches them with the receives that a
// Receiver gives it to keep; what comes too early waits in buffers of ours.
//
// Example:
//    // Moves on what the NIC has told.
//    inline void progress(Inbox &inbox) {
//      while (inbox.read_events()) {
//      }
//    }
//
// A message without a receive is the NIC's (a header in its unexpected list, bytes in an overflow
// buffer) until a receive takes it, or until it is collected: then it is the Receiver's. It is
// collected where an application looks at what has come (FI_PEEK), and where the NIC has no place
// any more.
//
// Flow control: where the NIC cannot take a message it disables the portal and counts what it
// drops. Its software collects all messages, waits until the senders have told of as many drops,
// enables the portal, and tells them. A sender that is gone tells nothing: after kPatienceNs
// without a word the portal is enabled all the same.
//
// Lossless (FI_CXI_MSG_LOSSLESS): messages wait in the NIC until it has a place for them. It tells
// nobody, so its software looks whether list entries are short, and makes room in the same way.
//
// A NIC without a place for one more receive, or for a message without one, gives receives back, so
// that there is place for messages; until all receives are done software matches what is collected.
// An application may post more receives than rx_attr.size, and more than the NIC has list entries:
// then the same happens, and in hybrid mode software matches from then on.
//
// Software matches (FI_CXI_RX_MATCH_MODE): the NIC brings each message that misses its receives to
// a request buffer. All calls are with the endpoint's lock held. Not for sending, nor for what an
// application asks for: Receiver (weft/sdk/transfers/receiver.h) has all forms of receives.
#ifndef WEFT_PLUGINS_CXI_INBOX_H
#define WEFT_PLUGINS_CXI_INBOX_H

#include <weft/sdk/memory/lazy_array.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/transfers/receiver.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "plugins/cxi/bits.h"
#include "plugins/cxi/buffers.h"
#include "plugins/cxi/counters.h"
#include "plugins/cxi/device_memory.h"
#include "plugins/cxi/links.h"
#include "plugins/cxi/ports.h"
#include "plugins/cxi/settings.h"
#include "plugins/cxi/sources.h"
#include "plugins/cxi/tokens.h"

namespace weft::cxi {

class Control;

class Inbox final : private sdk::Handler {
 public:
  static constexpr uint64_t kPatienceNs = 5'000'000'000;

  Inbox(const Ports &ports, sdk::Receiver &receiver, sdk::Engine &engine, Sources &sources,
        const Settings &settings, Counters &counters, const Protocol &protocol,
        const weft_instance *instance);
  ~Inbox();
  Result<void> open(bool waits, size_t max_list_entries);
  void set_control(Control &control) { control_ = &control; }
  void close();

  // ---- for sdk::ReceiverSink ----
  bool keep(sdk::Receive &receive);
  void deliver(sdk::Unexpected &message, sdk::Receive &receive);
  void discard(sdk::Unexpected &message);

  // ---- for calls of the application ----
  // Before a receive is posted. False: not now, while messages or receives change their place.
  bool make_way();
  // Collects what the NIC has saved. False: not all of it yet.
  bool collect();
  bool cancel(const void *context);  // false: no receive has it

  // ---- progress ----
  // False: there were none. `always`: even while the completion queue is full.
  bool read_events(bool always = false);
  void on_notify(const Peer &peer, uint32_t drops);
  EventQueue &events() { return *events_; }

 private:
  // A receive that the NIC has, by the buffer_id of its entry.
  struct Slot {
    sdk::Receive *receive = nullptr;  // null: free
    uint64_t start = 0, length = 0;   // of the entry
    uint64_t origin = 0;              // of a multi-receive buffer: where the entry begins in it
    uint64_t taken = 0;               // bytes of messages that are done
    uint64_t total = UINT64_MAX;      // bytes that it has taken in all, once it is unlinked
    uint64_t saved_at = 0;            // where the next of the saved messages goes
    uint32_t users = 0;               // messages under way
    bool unlinked = false;            // it takes no more,
    bool ends = false;                // and neither does its receive
    bool taken_back = false;          // by take_back(),
    bool is_canceled = false;         // or by cancel(), unless a message has come first
    sdk::HmemPlace place;             // of memory of a device,
    Memory window;                    // and how the NIC reaches it
    bool is_multi() const { return receive->flags & FI_MULTI_RECV; }
  };
  // A message on its way into a receive.
  struct Incoming {
    Slot *slot = nullptr;             // null: software has matched it
    sdk::Receive *receive = nullptr;  // of those
    uint64_t rest_at = 0;             // of a rendezvous: where its rest goes
    Sender sender;
    Peer reader;  // whom a Get of software's own asks
    uint64_t bits = 0, data = 0;
    uint64_t saved = 0;              // where its first bytes are, if it came too early
    uint64_t at = 0;                 // in the slot's memory,
    uint64_t takes = 0;              // and how much of that the NIC has given it
    uint32_t first = 0, length = 0;  // bytes that came along, and of all
    uint32_t rest = 0;               // that a Get reads,
    uint32_t read = 0;               // and has read
    bool is_rendezvous = false, is_saved = false;
    bool known = false, landed = true, begun = true, done = true;
    bool unlinks = false;
    Rc rc = Rc::kOk;
    Transfer get;   // of software's own,
    Memory window;  // into memory of a device
  };
  // Messages whose rest the NIC reads, and whose replies it does not tell apart.
  struct Reads {
    std::vector<Incoming *> messages;
    size_t replies = 0;
    uint64_t bytes = 0;
    Rc rc = Rc::kOk;
  };
  struct Saved : sdk::Unexpected {
    Sender sender;
    uint64_t bits = 0, start = 0, remote_offset = 0;
    uint32_t first = 0;
    uint8_t rendezvous_id = 0;
    bool is_rendezvous = false, landed = true, is_requested = false;
    sdk::Receive *receive = nullptr;  // that waits for the bytes
  };
  static constexpr uint16_t kReserve = UINT16_MAX - 1;  // buffer_id
  enum class Flow : uint8_t { kRunning, kDropping, kEnabling };

  void on_event_of(const Event &event);
  void on_put(const Event &event);
  void on_access(const Event &event);
  void on_saved_put(const Event &event);  // into an overflow buffer
  void on_overflow_end(const Event &event);
  void on_request(const Event &event);
  void on_taken(const Event &event);  // a receive has got a message that was saved
  void on_collected(const Event &event);
  void on_rendezvous(const Event &event);
  void on_reply(const Event &event);
  void on_link(const Event &event);
  void on_unlink(const Event &event);
  void on_state(const Event &event);

  // Receives.
  bool may_post() const { return !collecting_ && !taking_back_; }
  bool append(sdk::Receive &receive);
  Slot *take_slot();
  bool has_slot() const { return !free_.empty() || made_ < most_; }
  bool is_slot(uint16_t id) const { return id < made_; }
  Slot *slot_of(const Event &event);
  std::span<Slot> slots() { return {slots_.get(), made_}; }
  void on_no_slot();
  Memory memory_of(const Slot &slot) const {
    return slot.window.number != 0 ? slot.window : ports_.all;
  }
  sdk::HmemPlace place_of(const sdk::Receive &receive, uint64_t start, uint64_t length) const;
  bool map_device(const sdk::HmemPlace &place, uint64_t start, uint64_t length, Memory &window);
  void unmap(Memory &window);
  void offer_again();
  void take_back();
  void reserve();
  bool read_link();
  void give_up_reserve();
  void on_back();
  void leave_to_software_if_short();
  bool may_leave_to_software() const;
  void leave_to_software(const char *why);
  void free_slot(Slot &slot);
  uint16_t id_of(const Slot &slot) const { return uint16_t(&slot - slots_.get()); }
  void settle(Slot &slot);

  // Messages.
  void on_read_by_nic(const Event &event);
  void end_reads(uint64_t key);
  void forget_rendezvous(const Incoming &message);
  Incoming *known_rendezvous(const Slot &slot, uint64_t rest_at, bool Incoming::*told) const;
  Incoming &incoming(Slot &slot, const Event &event, uint64_t rest_at, bool Incoming::*told);
  Incoming &describe(Slot &slot, const Event &event, uint64_t at);
  void advance(Incoming &message);
  void finish(Incoming &message);
  void finish_in_slot(Incoming &message);
  sdk::Message message_of(const Incoming &message);
  sdk::Message message_of(const Sender &sender, uint64_t bits, uint64_t data, uint64_t length);
  void save(Saved &message, uint64_t data, uint64_t length);
  void start_delivery(Saved &message, sdk::Receive &receive);
  void drop(Saved &message);
  void release(uint64_t start, uint32_t bytes, bool is_requested);
  void read_rest(Incoming &message, uint64_t remote_offset, uint8_t id);
  void tell_matched(const Peer &peer, uint64_t bits);
  void post_gets();

  // Flow control and collecting.
  void search();
  void on_all_collected();
  void try_to_enable();
  void on_enabled();
  void enable_without_the_lost();
  bool is_pool_low() const;
  bool is_lossless() const { return settings_.msg_lossless && !protocol_.is_rnr; }
  void make_room();
  void look_in(uint64_t ns);
  void look_soon() {
    if (look_after_ > kLookNs) [[unlikely]]  // it is lossless, and was idle
      look_in(look_after_ = kLookNs);
  }
  void retry_later();
  void be_patient();
  void schedule();
  void on_deadline() override;
  void on_event(uint32_t) override {}

  const Ports &ports_;
  sdk::Receiver &receiver_;
  sdk::Engine &engine_;
  Sources &sources_;
  const Settings &settings_;
  Counters &counters_;
  const Protocol protocol_;
  const weft_instance *const instance_;
  Control *control_ = nullptr;
  std::unique_ptr<EventQueue> events_;
  VniQueue queue_;
  std::unique_ptr<Portal> portal_;
  Buffers overflow_, request_;

  sdk::LazyArray<Slot> slots_;  // of most_, of which made_ were used
  size_t most_ = 0, made_ = 0;
  std::deque<uint16_t> free_;  // in the order of their last use
  size_t kept_ = 0;
  sdk::Pool<Incoming> incoming_;
  Tokens<Incoming> tokens_;                         // of Gets of software's own
  std::multimap<uint64_t, Incoming *> rendezvous_;  // by rest_at, in the order of their coming
  std::unordered_map<uint64_t, Reads> reads_;       // by what a RendezvousReply says
  sdk::Pool<Saved> saved_;
  std::unordered_set<uint64_t> landed_;  // bytes of messages whose header was not taken yet
  std::unordered_map<uint64_t, Incoming *> awaited_;     // headers before the bytes: of receives,
  std::unordered_map<uint64_t, Saved *> awaited_saved_;  // and of saved messages
  std::deque<Incoming *> gets_;                          // to be posted

  size_t pool_used_ = 0, pool_size_ = 0;  // list entries, as the last event has told
  ptrdiff_t waiting_ = 0;  // messages without a receive that the NIC has; -1: the news of one come
  bool offloads_ = true;   // receives go to the NIC
  Links links_;
  bool has_reserve_ = false;  // an entry that no message meets
  bool starved_ = false;      // it had no place for one: software matches what it saves
  bool restarts_ = false;     // the next one begins a new sequence
  bool collecting_ = false;
  std::deque<Event> held_;            // for software to match, when all is collected
  size_t taking_back_ = 0;            // receives that the NIC has not given back yet,
  std::vector<sdk::Receive *> back_;  // and those that it has
  Flow flow_ = Flow::kRunning;
  uint32_t told_ = 0;  // drops that senders have told of
  std::vector<Peer> senders_;
  uint64_t retry_at_ = 0, give_up_at_ = 0;
  static constexpr uint64_t kLookNs = 1'000'000, kIdleLookNs = 16'000'000;
  uint64_t look_at_ = 0;     // of a lossless one: whether the NIC has list entries,
  uint64_t look_after_ = 0;  // and how long after that again
};

}  // namespace weft::cxi

#endif
