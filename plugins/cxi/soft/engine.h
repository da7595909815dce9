// SPDX-License-Identifier: BSD-2-Clause
// Engine: the NIC in software, of one process. It executes commands and the packets of peers by the
// rules of a Cassini, and knows neither sockets nor time.
//
// Example:
//    // A process's NIC with the address 1.
//    inline Result<std::unique_ptr<Lni>> open_nic(Engine &engine) { return engine.open(1); }
//    // Answers a peer.
//    inline Reply answer(Engine &engine, const Packet &packet) { return engine.on_packet(packet); }
//
// One engine serves all NICs that its process has opened; what they send to each other does not
// leave it. One lock guards all. A command is executed by the thread that gives it, and so is what
// follows from it here: a Get of a rendezvous, commands that a counter fires.
//
// Not for other processes: the Outside carries packets to them. An endpoint's PID, and what a
// service limits, is the Outside's, too.
#ifndef WEFT_PLUGINS_CXI_SOFT_ENGINE_H
#define WEFT_PLUGINS_CXI_SOFT_ENGINE_H

#include <weft/sdk/progress/lock.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plugins/cxi/nic/device.h"
#include "plugins/cxi/nic/nic.h"
#include "plugins/cxi/soft/outside.h"
#include "plugins/cxi/soft/packet.h"

namespace weft::cxi {

class EventRing;
class SoftCounter;
class SoftEndpoint;
class SoftLni;
class SoftPortal;
class SoftTransmitQueue;

// An operation of this process that has not been answered.
struct Operation {
  Transfer transfer;
  SoftLni *lni = nullptr;
  SoftTransmitQueue *queue = nullptr;  // null: the NIC's own, or a triggered one
  uint64_t token = 0;                  // 0: not in flight
  uint64_t slot = 0, uses = 0;         // of which a token is made
  bool is_fence = false;
  bool is_rendezvous_get = false;  // of the NIC itself, for a message
  bool has_bytes = false;          // of a Get: its bytes have come in pieces
  Rc landed = Rc::kOk;             // what came of that
  Portal *portal = nullptr;        // of that: whose event the reply is
  uint8_t inline_bytes[kMaxInline];
};

// How a message looks that software is to match.
class RequestForm {
 public:
  virtual ~RequestForm() = default;
  // In front of the bytes of the message.
  virtual uint32_t bytes(const Packet &) const { return sizeof(RequestHeader); }
  virtual void write(const Packet &packet, uint8_t *at) const;
};

class Engine final : private Asker {
 public:
  // `seed`: for hashes, so that peers cannot choose what collides.
  Engine(Outside &outside, uint64_t seed);
  ~Engine();
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  // By `service`, from whose pool it takes; null: from that of the Outside.
  Result<std::unique_ptr<Lni>> open(Nid nid, const Service &service = {},
                                    std::shared_ptr<Pool> pool = nullptr);

  // ---- for what carries packets ----
  // The bytes of the reply are valid until the next call. kNone: Packet::asker is told later.
  Reply on_packet(const Packet &packet);
  // The same for a Get whose bytes are taken in pieces: the reply has none, and where it is kOk and
  // has a length, `loan` is what read_loan() wants, until end_loan(). Only then the process hears
  // of it, and may change its memory.
  Reply on_get(const Packet &packet, uint64_t &loan);
  bool read_loan(uint64_t loan, uint32_t offset, std::span<uint8_t> out);  // false: it is over
  void end_loan(uint64_t loan, bool whole);  // whether all bytes were read
  // Whether puts wait at a lossless portal (R13): then try_waiting() is to be called now and then,
  // because a place may become free without a call of this process.
  bool has_waiting() const { return has_waiting_.load(std::memory_order_relaxed); }
  void try_waiting();
  // Bytes of an operation that the Outside was given, for later pieces. False: it is over, or its
  // memory is not mapped any more.
  bool read_source(uint64_t token, uint32_t offset, std::span<uint8_t> out);
  // A number below the most operations that were ever in flight, of which no two have the same.
  static size_t slot_of(uint64_t token) { return token & ((uint64_t{1} << kSlotBits) - 1); }
  // An unknown token is ignored.
  void on_reply(const Reply &reply);

  // The same where the bytes come in pieces. on_head(): the reply, if the request is refused; else
  // 0: collect the bytes and call on_packet(); or else the number of a landing, for on_bytes() and
  // on_end(). Who cannot go on calls on_end(), too: `whole` says whether all bytes have come.
  struct Begun {
    std::optional<Reply> reply;
    uint64_t landing = 0;
  };
  Begun on_head(const Packet &packet);
  void on_bytes(uint64_t landing, std::span<const uint8_t> bytes);
  Reply on_end(uint64_t landing, bool whole);
  // Bytes of the reply to a Get, from `offset` on, before on_reply() without bytes.
  void on_reply_bytes(uint64_t token, uint32_t offset, std::span<const uint8_t> bytes);

  // Off: software issues the Gets of rendezvous puts (the device's property rdzv_get_en).
  void set_issues_gets(bool issues) { issues_gets_ = issues; }

  // Before anything is opened. Default: a RequestHeader.
  void set_request_form(const RequestForm &form) { request_form_ = &form; }

  // ---- for the objects of this folder; the lock is held ----
  const RequestForm &request_form() const { return *request_form_; }
  bool issues_gets() const { return issues_gets_; }
  Outside &outside() { return outside_; }
  uint64_t seed() const { return seed_; }
  void add_endpoint(SoftEndpoint &endpoint);
  void remove_endpoint(SoftEndpoint &endpoint);
  Operation *new_operation();  // null: no memory
  void give_back(Operation &operation);
  // Starts an operation, and takes its reply if that is there at once.
  void start(Operation &operation);
  // To start when the call at hand is done.
  void start_later(Operation &operation) { later_.push_back(&operation); }
  void fired(SoftCounter &counter);  // it may have commands to fire
  // The object ends: operations in flight report to it no more.
  void forget(const SoftLni &lni);
  void forget(const EventQueue &eq);
  void forget(const SoftCounter &counter);
  void forget(const Portal &portal);
  // What is under way with an entry ends: kMstCancelled.
  void cancel(const Portal &portal, List list, uint16_t buffer_id);
  void forget(const SoftTransmitQueue &queue);
  void forget(const Asker &asker);  // what it has waiting is dropped
  void set_waiting(SoftPortal &portal, bool waits);
  void answer_late(Asker &asker, const Reply &reply);  // by settle()
  void settle();                                       // does what was left for later
  Reply serve(const Packet &packet);

  sdk::InlineMutex lock;

 private:
  static constexpr unsigned kSlotBits = 24;  // of a token; above it how often the slot was used

  void on_late(const Reply &reply) override;
  bool take_room(size_t) override { return true; }  // our own queues bound it
  void give_room(size_t) override {}
  void finish(Operation &operation, const Reply &reply);
  Rc check_local(const Operation &operation, const sdk::HmemPlace *&source) const;
  Operation *in_flight(uint64_t token);
  SoftEndpoint *find(Nid nid, Vni vni, Pid pid) const;
  template <class F>
  void visit_in_flight(F visit);

  Outside &outside_;
  const uint64_t seed_;
  std::atomic<bool> issues_gets_{true};
  const RequestForm *request_form_;
  std::unordered_map<uint64_t, SoftEndpoint *> endpoints_;
  std::map<std::pair<Nid, Vni>, size_t> vnis_;  // endpoints of each
  std::map<Nid, size_t> nids_;                  // Lnis of each
  std::deque<std::unique_ptr<Operation>> operations_;
  std::vector<Operation *> free_;
  std::deque<Operation *> later_;
  struct Landing;
  std::map<uint64_t, Landing> landings_;
  uint64_t last_landing_ = 0;
  struct Loan;
  std::map<uint64_t, Loan> loans_;
  uint64_t last_loan_ = 0;
  std::deque<SoftCounter *> fired_;
  std::vector<SoftPortal *> waiting_;  // portals where puts wait
  std::atomic<bool> has_waiting_{false};
  std::deque<std::pair<Asker *, Reply>> late_;

  friend class SoftLni;
};

using EngineGuard = std::lock_guard<sdk::InlineMutex>;

}  // namespace weft::cxi

#endif
