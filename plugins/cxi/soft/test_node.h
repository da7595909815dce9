// SPDX-License-Identifier: BSD-2-Clause
// For tests of several processes in one: a Node is what a process has of a NIC, with its own
// Neighbours.
//
// Example (statements):
//    const TestFolder folder;  // the host
//    Node a(folder.path, 1, 5), b(folder.path, 2, 6);
//    const std::vector<uint8_t> out = pattern(100);
//    std::vector<uint8_t> there(100);
//    b.append(region(1, 0), there);
//    a.start(Op::kPut, b.at(), out);
//    const bool arrived = a.result({&b}) == Rc::kOk && there == out;
//
// Nodes with different folders are on different hosts.
#ifndef WEFT_PLUGINS_CXI_SOFT_TEST_NODE_H
#define WEFT_PLUGINS_CXI_SOFT_TEST_NODE_H

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "plugins/cxi/soft/neighbours.h"
#include "plugins/cxi/soft/test_nic.h"
#include "plugins/cxi/soft/test_process.h"

namespace weft::cxi {

// What a process opens of one NIC.
struct Node {
  Node(const std::string &folder, Nid nid, Pid pid, Vni vni = kVni, uint32_t address = 0,
       const HostsOptions &hosts = {})
      : neighbours(must(Neighbours::open(folder, nid * 1000 + pid, {}, hosts))),
        lni(must(neighbours->open_nic(nid, address))),
        endpoint(must(lni->endpoint(vni, pid))),
        events(must(lni->event_queue({.places = 256}))),
        acks(must(lni->event_queue({.places = 256}))),
        queue(must(lni->transmit_queue(64, {.vni = vni}))),
        everything(must(lni->map(0, UINT64_MAX, Lni::kRead | Lni::kWrite))),
        inbox(must(lni->portal({.is_matching = true}, *events))),
        nid(nid) {
    must(inbox->map(*endpoint, 0));
    inbox->set_state(PortalState::kEnabled, 0);
    events->ack(1);
  }
  Address at() const { return {nid, endpoint->pid(), 0}; }
  void append(Entry entry, std::vector<uint8_t> &memory) {
    entry.memory = everything;
    entry.start = reinterpret_cast<uintptr_t>(memory.data());
    entry.length = memory.size();
    inbox->append(List::kPriority, entry);
  }
  void start(Op op, const Address &to, const std::vector<uint8_t> &memory) {
    Transfer t;
    t.op = op;
    t.to = to;
    t.memory = everything;
    t.local = reinterpret_cast<uintptr_t>(memory.data());
    t.length = uint32_t(memory.size());
    t.initiator = match_id(endpoint->pid(), nid);
    t.eq = acks.get();
    ASSERT_EQ(queue->post(t), 0);
    queue->flush();
  }
  // The next acknowledgement, while these make progress.
  Rc result(std::initializer_list<Node *> others = {}) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < end) {
      neighbours->poll();
      for (Node *const other : others) other->neighbours->poll();
      if (const auto event = Process::take(*acks)) return event->rc;
    }
    return Rc::kNone;
  }

  std::unique_ptr<Neighbours> neighbours;
  std::unique_ptr<Lni> lni;
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<EventQueue> events, acks;
  std::unique_ptr<TransmitQueue> queue;
  Memory everything;
  std::unique_ptr<Portal> inbox;
  const Nid nid;
};

inline std::vector<uint8_t> pattern(size_t length) {
  std::vector<uint8_t> bytes(length);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  return bytes;
}

// Answers for ever.
[[noreturn]] inline void serve(Neighbours &neighbours) {
  while (true) {
    pollfd descriptor{neighbours.wait_fd(), POLLIN, 0};
    ::poll(&descriptor, 1, -1);
    neighbours.poll();
  }
}

}  // namespace weft::cxi

#endif
