// SPDX-License-Identifier: BSD-2-Clause
// For tests of two processes without sockets: an engine each, and a stream between them, of which
// as many bytes pass at a time as the test says.
//
// Example (statements):
//    Wire wire;
//    std::vector<uint8_t> out{1, 2, 3}, in(3);
//    wire.b.inbox->append(List::kPriority, wire.b.entry_for(region(1, 0), in));
//    wire.a.start(wire.a.transfer(Op::kPut, out, 2, 0));
//    wire.settle();
//    const bool arrived = in == out;
//
// Not for how processes find each other: test_node.h.
#ifndef WEFT_PLUGINS_CXI_SOFT_TEST_WIRE_H
#define WEFT_PLUGINS_CXI_SOFT_TEST_WIRE_H

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "plugins/cxi/soft/peer_stream.h"
#include "plugins/cxi/soft/test_nic.h"

namespace weft::cxi {

// A host whose packets for elsewhere go into a stream.
class Streaming final : public Outside {
 public:
  Pool &pool(Nid nid) override { return host.pool(nid); }
  Result<Pid> claim(Nid nid, Vni vni, Pid pid) override { return host.claim(nid, vni, pid); }
  void release(Nid nid, Vni vni, Pid pid) override { host.release(nid, vni, pid); }
  Rc send(const Packet &packet) override {
    if (stream == nullptr) return Rc::kUndeliverable;
    stream->send(packet);
    return Rc::kOk;
  }

  Host host;
  PeerStream *stream = nullptr;
};

// A process with an engine of its own.
struct Side {
  explicit Side(Nid nid, uint64_t seed)
      : engine(outside, seed),
        stream(std::make_unique<PeerStream>(engine)),
        lni(must(engine.open(nid))),
        endpoint(must(lni->endpoint(kVni, Pid(nid)))),
        events(must(lni->event_queue({.places = 256}))),
        acks(must(lni->event_queue({.places = 256}))),
        queue(must(lni->transmit_queue(64, {.vni = kVni}))),
        everything(must(lni->map(0, UINT64_MAX, Lni::kRead | Lni::kWrite))) {
    outside.stream = stream.get();
    inbox = open_portal(0);
    source = open_portal(kRendezvousIndex);
  }
  std::unique_ptr<Portal> open_portal(Index index) {
    auto portal = must(lni->portal({.is_matching = true, .flow_control = index == 0}, *events));
    must(portal->map(*endpoint, index));
    portal->set_state(PortalState::kEnabled, 0);
    events->ack(1);
    return portal;
  }
  Entry entry_for(Entry entry, std::vector<uint8_t> &memory) const {
    entry.memory = everything;
    entry.start = reinterpret_cast<uintptr_t>(memory.data());
    entry.length = memory.size();
    return entry;
  }
  Transfer transfer(Op op, const std::vector<uint8_t> &memory, Nid to, Index index) const {
    Transfer t;
    t.op = op;
    t.to = {to, Pid(to), index};
    t.memory = everything;
    t.local = reinterpret_cast<uintptr_t>(memory.data());
    t.length = uint32_t(memory.size());
    t.initiator = match_id(endpoint->pid(), Nid(endpoint->pid()));
    t.eq = acks.get();
    return t;
  }
  void start(const Transfer &transfer) {
    ASSERT_EQ(queue->post(transfer), 0);
    queue->flush();
  }

  Streaming outside;
  Engine engine;
  std::unique_ptr<PeerStream> stream;
  std::unique_ptr<Lni> lni;
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<EventQueue> events, acks;
  std::unique_ptr<TransmitQueue> queue;
  Memory everything;
  std::unique_ptr<Portal> inbox, source;
};

struct Wire {
  // Carries at most `piece` bytes in each direction; false: there were none.
  bool carry(size_t piece) {
    bool any = false;
    for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      std::vector<uint8_t> bytes(piece);
      bytes.resize(from->stream->output(bytes));
      const auto refused = to->stream->on_bytes(bytes);
      EXPECT_FALSE(refused.has_value()) << text_of(*refused);
      any = any || !bytes.empty();
    }
    return any;
  }
  void settle(size_t piece = 1000) {
    while (carry(piece)) {
    }
  }
  Side a{1, 11}, b{2, 22};
};

}  // namespace weft::cxi

#endif
