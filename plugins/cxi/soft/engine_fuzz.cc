// SPDX-License-Identifier: BSD-2-Clause
// An engine between hostile peers and a process that uses it in any order: heads of any bytes, with
// the bytes behind them, replies to what was sent, commands. Memory is real, so AddressSanitizer
// sees what the engine touches. Input: steps, each a byte for what happens, and its arguments.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plugins/cxi/soft/engine.h"
#include "plugins/cxi/soft/frame.h"
#include "plugins/cxi/soft/peer_stream.h"
#include "tests/fuzz/check.h"

using namespace weft::cxi;

namespace {

class Input {
 public:
  Input(const uint8_t *data, size_t size) : at_(data), end_(data + size) {}
  bool empty() const { return at_ == end_; }
  uint8_t byte() { return empty() ? 0 : *at_++; }
  uint32_t below(uint32_t limit) { return (uint32_t{byte()} << 8 | byte()) % limit; }
  void fill(uint8_t *out, size_t size) {
    for (size_t i = 0; i < size; ++i) out[i] = byte();
  }

 private:
  const uint8_t *at_, *const end_;
};

// Who asks, and waits at a lossless portal.
struct Patient final : Asker {
  void on_late(const Reply &reply) override {
    FUZZ_CHECK(reply.rc != Rc::kNone);
    FUZZ_CHECK(waiting-- != 0);
  }
  bool take_room(size_t bytes) override {
    if (bytes > kRoom - room) return false;
    room += bytes;
    return true;
  }
  void give_room(size_t bytes) override {
    FUZZ_CHECK(bytes <= room);
    room -= bytes;
  }
  static constexpr size_t kRoom = 2000;
  size_t waiting = 0, room = 0;
};

class Host final : public Outside, public Pool {
 public:
  Pool &pool(Nid) override { return *this; }
  bool take(Resource resource) override {
    if (used_[size_t(resource)] == kLimit) return false;
    ++used_[size_t(resource)];
    return true;
  }
  void give(Resource resource) override {
    FUZZ_CHECK(used_[size_t(resource)] != 0);
    --used_[size_t(resource)];
  }
  uint32_t used(Resource resource) const override { return used_[size_t(resource)]; }
  uint32_t limit(Resource) const override { return kLimit; }
  void count(weft::cxi::Telemetry) override {}
  weft::Result<Pid> claim(Nid, Vni, Pid pid) override { return pid == kAnyPid ? Pid{0} : pid; }
  void release(Nid, Vni, Pid) override {}
  Rc send(const Packet &packet) override {
    // What leaves is read, and is a frame.
    std::array<uint8_t, kHeadSize> head;
    write_head(packet, head);
    const auto frame = parse_head(head);
    if (frame) {
      const auto *const bytes = static_cast<const uint8_t *>(packet.bytes);
      for (uint32_t i = 0; i < frame->bytes; ++i) sum = sum + bytes[i];
    }
    sent.push_back(packet.token);
    if (stream != nullptr && packet.to.pid % 2 == 1) stream->send(packet);
    return Rc::kOk;
  }

  std::vector<uint64_t> sent;
  PeerStream *stream = nullptr;
  Patient patient;
  volatile uint8_t sum = 0;

 private:
  static constexpr uint32_t kLimit = 12;
  uint32_t used_[2] = {};
};

constexpr size_t kMostBytes = 4096;  // of a frame

// The process, its portals, and memory of which some is not mapped.
struct Node {
  explicit Node(Host &host) : engine(host, 99), lni(*engine.open(1)) {
    endpoint = *lni->endpoint(10, 5);
    events = *lni->event_queue({.places = 16});
    acks = *lni->event_queue({.places = 16});
    for (size_t i = 0; i < portals.size(); ++i) renew_portal(i);
    counter = *lni->counter();
    queue = *lni->transmit_queue(8, {.vni = 10});
    triggers = *lni->trigger_queue({.vni = 10});
    mapped = *lni->map(start(), kMemory, Lni::kRead | Lni::kWrite);
    read_only = *lni->map(start(), kMemory / 2, Lni::kRead);
  }
  void renew_portal(size_t i) {
    portals[i].reset();
    portals[i] = *lni->portal(
        {.is_matching = i != 2, .flow_control = i == 0 || i == 3, .lossless = i == 3}, *events);
    FUZZ_CHECK(portals[i]->map(*endpoint, kIndices[i]));
    portals[i]->set_state(PortalState::kEnabled, kIgnoreDrops);
  }
  uint64_t start() const { return reinterpret_cast<uintptr_t>(memory.get()); }
  Memory any(Input &in) const {
    return in.byte() & 3 ? mapped : in.byte() & 1 ? read_only : Memory{7};
  }

  void append(Input &in) {
    Entry entry;
    entry.buffer_id = in.byte() % 8;
    entry.memory = any(in);
    const uint32_t at = in.below(kMemory);
    entry.start = start() + at;
    entry.length = in.below(uint32_t(kMemory - at) + 1);
    entry.match_bits = in.byte() % 4;
    entry.ignore_bits = in.byte() & 1 ? ~uint64_t{0} : in.byte() % 4;
    entry.min_free = in.byte();
    const uint8_t flags = in.byte(), more = in.byte();
    entry.op_put = flags & 1;
    entry.op_get = flags & 2;
    entry.manage_local = flags & 4;
    entry.use_once = flags & 8;
    entry.no_truncate = flags & 16;
    entry.unexpected_header_disable = flags & 32;
    entry.comm_disable = flags & 64;
    entry.counter = flags & 128 ? counter.get() : nullptr;
    entry.counts_bytes = more & 1;
    entry.restart_sequence = more & 2;
    portals[in.byte() % portals.size()]->append(List(in.byte() % 3), entry);
  }

  // A frame through the stream of a connection, whole or not; and what the stream has to say.
  void stream_in(Host &host, const std::array<uint8_t, kHeadSize> &head, uint32_t length,
                 Input &in) {
    if (stream == nullptr) {
      stream = std::make_unique<PeerStream>(engine);
      host.stream = stream.get();
    }
    const size_t said = in.below(8000);
    const auto out = std::make_unique<uint8_t[]>(said);
    FUZZ_CHECK(stream->output({out.get(), said}) <= said);
    std::vector<uint8_t> bytes(head.begin(), head.end());
    bytes.resize(kHeadSize + std::min(length, in.below(9000)), 0xab);
    bytes.push_back(in.byte() & 1);
    if (in.byte() % 4 == 0) bytes.resize(in.below(uint32_t(bytes.size())));
    const auto exact = std::make_unique<uint8_t[]>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), exact.get());
    const auto refused = stream->on_bytes({exact.get(), bytes.size()});
    if (!refused && in.byte() % 16 != 0) return;
    host.stream = nullptr;
    stream.reset();
  }

  // More of what has begun to come, or its end.
  void bring(Input &in) {
    if (landings.empty()) return;
    const size_t which = in.byte() % landings.size();
    const size_t count = in.below(600);
    const auto bytes = std::make_unique<uint8_t[]>(count);
    engine.on_bytes(landings[which], {bytes.get(), count});
    if (in.byte() & 1) return;
    (void)engine.on_end(landings[which], in.byte() & 1);
    landings.erase(landings.begin() + ptrdiff_t(which));
  }

  void transfer(Input &in) {
    Transfer t;
    t.op = Op(1 + in.byte() % 5);
    // To itself, or to what is elsewhere.
    t.to = {Nid(1 + in.byte() % 2), 5, kIndices[in.byte() % 4]};
    t.memory = any(in);
    const uint32_t at = in.below(kMemory);
    t.local = start() + at;
    t.length = t.op >= Op::kAtomic ? 8 : in.below(uint32_t(kMemory - at) + 1);
    t.eager_length = in.below(t.length + 1);
    t.rendezvous_id = in.byte();
    t.remote_offset = in.byte();
    t.match_bits = in.byte() % 4;
    t.result_memory = any(in);
    t.result = start() + (in.below(kMemory) & ~7u) % (kMemory - 8);
    t.initiator = match_id(5, 1);
    t.eq = in.byte() & 1 ? acks.get() : nullptr;
    t.counter = in.byte() & 1 ? counter.get() : nullptr;
    if (in.byte() % 4 == 0) {
      (void)triggers->post({.counter = counter.get(), .threshold = in.byte(), .transfer = t});
    } else if (queue->post(t) == 0 && in.byte() & 1) {
      queue->flush();
    }
  }

  static constexpr size_t kMemory = 512;
  static constexpr Index kIndices[4] = {0, 117, 20, kRendezvousIndex};
  std::unique_ptr<uint8_t[]> memory = std::make_unique<uint8_t[]>(kMemory);
  Engine engine;
  std::unique_ptr<Lni> lni;
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<EventQueue> events, acks;
  std::array<std::unique_ptr<Portal>, 4> portals;
  std::unique_ptr<Counter> counter;
  std::unique_ptr<TransmitQueue> queue;
  std::unique_ptr<TriggerQueue> triggers;
  Memory mapped, read_only;
  std::vector<uint64_t> landings;
  std::unique_ptr<PeerStream> stream;
};

// What another host says first. What is understood is said again in the same way.
void hear(std::span<const uint8_t, kHelloSize> bytes) {
  const auto hello = parse_hello(bytes);
  if (!hello) return;
  FUZZ_CHECK(hello->to.nid <= kMaxNid && hello->to.pid <= kMaxPid);
  std::array<uint8_t, kHelloSize> again, third;
  write_hello(*hello, again);
  const auto same = parse_hello(again);
  FUZZ_CHECK(same.has_value());
  write_hello(*same, third);
  FUZZ_CHECK(again == third);
}

// A frame of a peer: any bytes, or a packet to one of the portals.
void receive(Node &node, Host &host, Input &in) {
  std::array<uint8_t, kHeadSize> head;
  switch (in.byte() % 3) {
    case 0:
      in.fill(head.data(), head.size());
      hear(std::span(head).first<kHelloSize>());
      break;
    case 1: {
      Packet packet;
      packet.op = Op(1 + in.byte() % 5);
      packet.vni = 10;
      packet.source = 2 + in.byte() % 2;
      packet.to = {1, 5, Node::kIndices[in.byte() % 4]};
      packet.initiator = match_id(in.byte() % 4, packet.source);
      packet.length = in.below(600);
      packet.eager_length = in.below(packet.length + 1);
      packet.match_bits = in.byte() % 4;
      packet.remote_offset = in.byte();
      packet.rendezvous_id = in.byte();
      packet.amo_op = AmoOp(in.byte() % 16);
      packet.amo_type = AmoType(in.byte() % 16);
      packet.cswap = Cswap(in.byte() % 8);
      if (packet.op >= Op::kAtomic && in.byte() % 8 != 0) packet.length = 8;
      write_head(packet, head);
      break;
    }
    default: {
      Reply reply;
      reply.token = host.sent.empty() ? in.byte() : host.sent[in.byte() % host.sent.size()];
      reply.rc = in.byte() & 3 ? Rc::kOk : Rc(in.byte());
      reply.mlength = in.below(600);
      write_head(reply, in.byte() & 1, head);
    }
  }
  const auto frame = parse_head(head);
  if (in.byte() % 4 == 0) return node.stream_in(host, head, frame ? frame->bytes : 0, in);
  if (!frame || frame->bytes > kMostBytes) return;
  // Exactly as many bytes as there are.
  const auto bytes = std::make_unique<uint8_t[]>(frame->bytes);
  std::memset(bytes.get(), 0xab, frame->bytes);
  if (frame->kind == Frame::Kind::kReply) {
    Reply reply = frame->reply;
    if (in.byte() & 1) {
      node.engine.on_reply_bytes(reply.token, in.below(600), {bytes.get(), frame->bytes});
      if (in.byte() & 1) return;
    }
    reply.bytes = bytes.get();
    if (frame->bytes == 0) reply.mlength = 0;
    return node.engine.on_reply(reply);
  }
  Packet packet = frame->packet;
  if (in.byte() & 1) {
    const Engine::Begun begun = node.engine.on_head(packet);
    if (begun.landing != 0) node.landings.push_back(begun.landing);
    if (begun.landing != 0 || begun.reply.has_value()) return;
  }
  packet.bytes = bytes.get();
  if (in.byte() % 4 != 0) packet.asker = &host.patient;
  ++host.patient.waiting;
  const Reply reply = node.engine.on_packet(packet);
  FUZZ_CHECK(reply.token == packet.token);
  if (reply.rc == Rc::kNone) {
    FUZZ_CHECK(packet.asker != nullptr);
    return;
  }
  --host.patient.waiting;
  if (packet.op != Op::kGet || reply.rc != Rc::kOk) return;
  FUZZ_CHECK(reply.mlength <= packet.length);
  const auto *const found = static_cast<const uint8_t *>(reply.bytes);
  for (uint32_t i = 0; i < reply.mlength; ++i) host.sum = host.sum + found[i];
}

void step(Node &node, Host &host, Input &in) {
  Portal &portal = *node.portals[in.byte() % node.portals.size()];
  switch (in.byte() % 12) {
    case 0:
      return node.append(in);
    case 1:
      return node.transfer(in);
    case 2:
      return portal.unlink(List(in.byte() % 3), in.byte() % 8);
    case 3:
      return portal.set_state(PortalState(1 + in.byte() % 3),
                              in.byte() & 1 ? kIgnoreDrops : in.byte());
    case 4:
      return portal.search({.match_bits = in.byte() % 4u,
                            .ignore_bits = in.byte() & 1 ? ~uint64_t{0} : 0,
                            .once = (in.byte() & 1) != 0},
                           in.byte() & 1);
    case 5:
      if (in.byte() & 1) return node.bring(in);
      if (in.byte() & 1) return node.engine.try_waiting();
      return node.counter->add(in.byte());
    case 6:
      return node.queue->flush();
    case 7:
      (void)node.queue->fence();
      return;
    case 8:
      (void)portal.take_over(in.byte() % 4);
      FUZZ_CHECK(portal.status().entries_used <= portal.status().entries_max);
      return;
    case 9:
      if (in.byte() % 8 == 0) return node.renew_portal(in.byte() % node.portals.size());
      for (EventQueue *const queue : {node.events.get(), node.acks.get()})
        while (queue->peek(0) != nullptr) queue->ack(1);
      return;
    default:
      return receive(node, host, in);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Input in(data, size);
  Host host;
  {
    Node node(host);
    while (!in.empty()) step(node, host, in);
    host.stream = nullptr;
  }
  FUZZ_CHECK(host.patient.waiting == 0 && host.patient.room == 0);
  for (const Resource resource : {Resource::kListEntry, Resource::kTriggered})
    FUZZ_CHECK(host.used(resource) == 0);
  return 0;
}
