// SPDX-License-Identifier: BSD-2-Clause
// For tests of the NIC in software: a host without other processes, and what a process opens.
//
// Example (statements):
//    Host host;
//    Process a(host, 1, 10), b(host, 2, 20);
//    Portal &inbox = b.open_portal(0, {.is_matching = true});
//    std::array<uint64_t, 1> in{}, out{7};
//    inbox.append(List::kPriority, b.entry_for(receive(1), in));
//    const bool arrived = a.result_of(a.put_to(b.at(0), out)) == Rc::kOk && in == out;
//
// Not for several processes: those have sockets.
#ifndef WEFT_PLUGINS_CXI_SOFT_TEST_NIC_H
#define WEFT_PLUGINS_CXI_SOFT_TEST_NIC_H

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "plugins/cxi/soft/engine.h"

namespace weft::cxi {

inline constexpr Vni kVni = 10;

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().text);
  return std::move(*result);
}
inline void must(Result<void> result) {
  if (!result) throw std::runtime_error(result.error().text);
}

class Host final : public Outside, public Pool {
 public:
  explicit Host(uint32_t triggered = 100) : limits{1000, triggered} {}
  // How a process gets its share of a NIC; another program of the same tests has another way.
  using Opener = Result<std::unique_ptr<Lni>> (*)(Host &host, Nid nid);
  static inline Opener opener = nullptr;
  static inline bool is_soft = true;  // its queues have exactly the places that were asked for
  Result<std::unique_ptr<Lni>> open(Nid nid) {
    return opener != nullptr ? opener(*this, nid) : engine.open(nid);
  }

  Pool &pool(Nid) override { return *this; }
  bool take(Resource resource) override {
    if (used_[size_t(resource)] == limits[size_t(resource)]) return false;
    ++used_[size_t(resource)];
    return true;
  }
  void give(Resource resource) override { --used_[size_t(resource)]; }
  uint32_t used(Resource resource) const override { return used_[size_t(resource)]; }
  uint32_t limit(Resource resource) const override { return limits[size_t(resource)]; }
  void count(Telemetry which) override { ++counted[size_t(which)]; }
  Result<Pid> claim(Nid nid, Vni vni, Pid pid) override {
    if (pid == kAnyPid)
      for (pid = 0; pids_.contains({nid, vni, pid});) ++pid;
    if (!pids_.insert({nid, vni, pid}).second) return fail(FI_EADDRINUSE, "PID %u", pid);
    return pid;
  }
  void release(Nid nid, Vni vni, Pid pid) override { pids_.erase({nid, vni, pid}); }
  Rc send(const Packet &packet) override {
    if (elsewhere) sent.push_back(packet);
    return elsewhere ? Rc::kOk : Rc::kUndeliverable;
  }

  uint32_t limits[2];  // by Resource
  uint64_t counted[kTelemetryCount] = {};
  bool elsewhere = false;  // what is not here is in another process
  std::vector<Packet> sent;
  Engine engine{*this, 12345};

 private:
  uint32_t used_[2] = {};
  std::set<std::tuple<Nid, Vni, Pid>> pids_;
};

// A process with a NIC, a PID, a transmit queue, and a queue of events of each side.
class Process {
 public:
  explicit Process(Host &host, Nid nid = 1, Pid pid = kAnyPid, Vni vni = kVni, size_t places = 64)
      : lni(must(host.open(nid))),
        endpoint(must(lni->endpoint(vni, pid))),
        acks(must(lni->event_queue({.places = places}))),
        events(must(lni->event_queue({.places = places}))),
        queue(must(lni->transmit_queue(16, {.vni = vni}))),
        nid_(nid) {
    everything = must(lni->map(0, UINT64_MAX, Lni::kRead | Lni::kWrite));
  }

  Address at(Index index) const { return {nid_, endpoint->pid(), index}; }
  uint32_t id() const { return match_id(endpoint->pid(), nid_); }

  Portal &open_portal(Index index, const PortalOptions &options) {
    portals.push_back(must(lni->portal(options, *events)));
    must(portals.back()->map(*endpoint, index));
    portals.back()->set_state(PortalState::kEnabled, 0);
    EXPECT_EQ(next().value().type, EventType::kStateChange);
    return *portals.back();
  }
  template <class T>
  Entry entry_for(Entry entry, T &memory) const {
    entry.memory = everything;
    entry.start = reinterpret_cast<uintptr_t>(std::data(memory));
    entry.length = std::size(memory) * sizeof *std::data(memory);
    return entry;
  }
  template <class T>
  Transfer put_to(const Address &to, const T &bytes) const {
    Transfer put;
    put.to = to;
    put.memory = everything;
    put.local = reinterpret_cast<uintptr_t>(std::data(bytes));
    put.length = uint32_t(std::size(bytes) * sizeof *std::data(bytes));
    put.initiator = id();
    put.eq = acks.get();
    return put;
  }
  void send(const Transfer &transfer) {
    ASSERT_EQ(queue->post(transfer), 0);
    queue->flush();
  }
  Rc result_of(const Transfer &transfer) {  // that of its acknowledgement or reply
    send(transfer);
    const std::optional<Event> event = take(*acks);
    return event ? event->rc : Rc::kNone;
  }

  static std::optional<Event> take(EventQueue &from) {
    const Event *const event = from.peek(0);
    if (event == nullptr) return std::nullopt;
    const Event copy = *event;
    from.ack(1);
    return copy;
  }
  std::optional<Event> next() { return take(*events); }
  std::optional<Event> ack() { return take(*acks); }

  std::unique_ptr<Lni> lni;
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<EventQueue> acks, events;
  std::unique_ptr<TransmitQueue> queue;
  std::deque<std::unique_ptr<Portal>> portals;
  Memory everything;

 private:
  const Nid nid_;
};

// A receive that takes what a message of any length and tag has.
inline Entry receive(uint16_t buffer_id) {
  return {.buffer_id = buffer_id,
          .ignore_bits = ~uint64_t{0},
          .op_put = true,
          .manage_local = true,
          .use_once = true,
          .link_disable = true,
          .unlink_disable = true};
}
inline Entry tagged(uint16_t buffer_id, uint64_t tag) {
  Entry entry = receive(buffer_id);
  entry.match_bits = tag;
  entry.ignore_bits = 0;
  return entry;
}
// A buffer for what comes too early.
inline Entry overflow(uint16_t buffer_id, uint64_t min_free) {
  Entry entry = receive(buffer_id);
  entry.use_once = false;
  entry.min_free = min_free;
  return entry;
}
// A memory region of a portal with matching.
inline Entry region(uint16_t buffer_id, uint64_t key) {
  Entry entry = tagged(buffer_id, key);
  entry.op_get = true;
  entry.manage_local = entry.use_once = false;
  return entry;
}

}  // namespace weft::cxi

#endif
