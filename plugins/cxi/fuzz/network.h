// SPDX-License-Identifier: BSD-2-Clause
// Network: the NICs in software of this process, without sockets, and a liar beside them, whose
// frames come by the stream of a connection. For tests of what a hostile peer may do.
//
// Example (statements):
//    Network network(/*entries=*/100);
//    Nics nics(network);  // cxi0 and cxi1, for a Fabric
//    Liar liar(network, /*nid=*/3);
//    liar.say(liar.packet(Op::kRendezvousPut, {.pid = 0, .index = kDoneIndex}), {});
//    liar.hear();  // what the NICs ask is in liar.asked
//
// Not for honest peers: those are endpoints.
#ifndef WEFT_PLUGINS_CXI_FUZZ_NETWORK_H
#define WEFT_PLUGINS_CXI_FUZZ_NETWORK_H

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "plugins/cxi/bits.h"
#include "plugins/cxi/nic/device.h"
#include "plugins/cxi/soft/engine.h"
#include "plugins/cxi/soft/frame.h"
#include "plugins/cxi/soft/peer_stream.h"
#include "tests/fuzz/check.h"

namespace weft::cxi::fuzz {

inline constexpr Nid kTarget = 1, kHonest = 2;  // NICs of this process; liars have others
inline constexpr Vni kVni = 10;

class Network final : public Outside, public Pool {
 public:
  explicit Network(uint32_t entries) : limits_{entries, 32} {}
  ~Network() override {
    for (const uint32_t used : used_) FUZZ_CHECK(used == 0, "something of a NIC is left over");
  }

  Engine engine{*this, 7};
  bool is_plain = false;                // its NICs do what hardware does, and no better
  std::map<Nid, PeerStream *> streams;  // to who is elsewhere

  // ---- Outside ----
  Pool &pool(Nid) override { return *this; }
  Result<Pid> claim(Nid nid, Vni vni, Pid pid) override {
    if (pid == kAnyPid)
      for (pid = 0; pids_.contains({nid, vni, pid});) ++pid;
    if (!pids_.insert({nid, vni, pid}).second) return fail(FI_EADDRINUSE, "PID %u", pid);
    return pid;
  }
  void release(Nid nid, Vni vni, Pid pid) override { pids_.erase({nid, vni, pid}); }
  Rc send(const Packet &packet) override {
    const auto found = streams.find(packet.to.nid);
    if (found == streams.end()) return Rc::kUndeliverable;
    found->second->send(packet);
    return Rc::kOk;
  }

  // ---- Pool ----
  bool take(Resource resource) override {
    uint32_t &used = used_[size_t(resource)];
    return used != limits_[size_t(resource)] && ++used != 0;
  }
  void give(Resource resource) override {
    FUZZ_CHECK(used_[size_t(resource)] != 0, "more is given back than was taken");
    --used_[size_t(resource)];
  }
  uint32_t used(Resource resource) const override { return used_[size_t(resource)]; }
  uint32_t limit(Resource resource) const override { return limits_[size_t(resource)]; }
  void count(Telemetry) override {}

 private:
  const uint32_t limits_[2];
  uint32_t used_[2] = {};
  std::set<std::tuple<Nid, Vni, Pid>> pids_;
};

// What hardware does not know of a portal is not told to the NIC.
class PlainLni final : public Lni {
 public:
  explicit PlainLni(std::unique_ptr<Lni> lni) : lni_(std::move(lni)) {}
  Result<std::unique_ptr<Endpoint>> endpoint(Vni vni, Pid pid) override {
    return lni_->endpoint(vni, pid);
  }
  Result<Memory> map(uint64_t start, uint64_t length, unsigned access) override {
    return lni_->map(start, length, access);
  }
  void unmap(const Memory &memory) override { lni_->unmap(memory); }
  void lend(const Memory &memory, uint64_t reader) override { lni_->lend(memory, reader); }
  Result<std::unique_ptr<EventQueue>> event_queue(const EventQueueOptions &options) override {
    return lni_->event_queue(options);
  }
  Result<std::unique_ptr<Counter>> counter() override { return lni_->counter(); }
  Result<std::unique_ptr<Portal>> portal(const PortalOptions &options, EventQueue &eq) override {
    PortalOptions known = options;
    known.no_rendezvous = false;
    return lni_->portal(known, eq);
  }
  Result<std::unique_ptr<TransmitQueue>> transmit_queue(size_t depth,
                                                        const Profile &profile) override {
    return lni_->transmit_queue(depth, profile);
  }
  Result<std::unique_ptr<TriggerQueue>> trigger_queue(const Profile &profile) override {
    return lni_->trigger_queue(profile);
  }

 private:
  const std::unique_ptr<Lni> lni_;
};

class Nic final : public Device {
 public:
  Nic(Network &network, DeviceFacts facts) : network_(network), facts_(std::move(facts)) {}
  const DeviceFacts &facts() const override { return facts_; }
  std::vector<Service> services() const override { return {Service{}}; }
  Result<std::unique_ptr<Lni>> open_lni(uint32_t) override {
    WEFT_TRY(std::unique_ptr<Lni> lni, network_.engine.open(facts_.nid));
    if (network_.is_plain) lni = std::make_unique<PlainLni>(std::move(lni));
    return lni;
  }
  void poll() override { network_.engine.try_waiting(); }
  void push() override {}
  uint64_t telemetry(Telemetry) const override { return 0; }
  int wait_fd() const override { return -1; }

 private:
  Network &network_;
  const DeviceFacts facts_;
};

class Nics final : public Devices {
 public:
  explicit Nics(Network &network) : network_(network) {}
  std::vector<DeviceFacts> list() const override {
    std::vector<DeviceFacts> all;
    for (const Nid nid : {kTarget, kHonest})
      all.push_back({.name = "cxi" + std::to_string(nid - kTarget),
                     .nid = nid,
                     .is_software = true,
                     .max_list_entries = network_.limit(Resource::kListEntry),
                     .max_triggered = network_.limit(Resource::kTriggered),
                     .bus = {}});
    return all;
  }
  Result<std::shared_ptr<Device>> open(std::string_view name) override {
    for (const DeviceFacts &facts : list())
      if (facts.name == name) return std::make_shared<Nic>(network_, facts);
    return fail(FI_ENODEV, "no such NIC");
  }

 private:
  Network &network_;
};

// A peer with a NIC of its own that sends what it likes. What its connection refuses ends that, and
// it connects again.
class Liar {
 public:
  Liar(Network &network, Nid nid) : network_(network), nid_(nid) { connect(); }
  ~Liar() { leave(); }

  Nid nid() const { return nid_; }
  Packet packet(Op op, const Address &to) const {
    Packet made;
    made.op = op;
    made.vni = kVni;
    made.source = nid_;
    made.to = {kTarget, to.pid, to.index};
    made.initiator = match_id(0, nid_);
    return made;
  }
  // A packet with as many bytes as it has to have; those that are not given are 0.
  void say(Packet packet, std::span<const uint8_t> bytes) {
    packet.token = ++last_token_;
    Head head;
    write_head(packet, head);
    say_frame(head, bytes_behind(packet), bytes);
  }
  // An answer to one of those in `asked`.
  void answer(size_t which, Rc rc, uint32_t length, std::span<const uint8_t> bytes) {
    const Reply reply{.token = asked[which].token, .rc = rc, .mlength = length};
    asked.erase(asked.begin() + ptrdiff_t(which));
    const bool brings = !bytes.empty() && length != 0;
    Head head;
    write_head(reply, brings, head);
    say_frame(head, brings ? length : 0, bytes);
  }
  void say_bytes(std::span<const uint8_t> bytes) {
    if (stream_ == nullptr) return;
    const auto exact = std::make_unique<uint8_t[]>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), exact.get());
    if (stream_->on_bytes({exact.get(), bytes.size()})) {
      leave();
      connect();
    }
  }
  // Reads what has come: questions to it, and answers to its own.
  void hear() {
    std::array<uint8_t, 512> some;
    while (const size_t count = stream_ != nullptr ? stream_->output(some) : 0)
      heard_.insert(heard_.end(), some.begin(), some.begin() + ptrdiff_t(count));
    while (heard_.size() >= kHeadSize) {
      const auto frame = parse_head(std::span<const uint8_t, kHeadSize>(heard_.data(), kHeadSize));
      FUZZ_CHECK(frame.has_value(), "a NIC says what is no frame");
      const size_t size = kHeadSize + frame->bytes + (frame->bytes != 0 ? 1 : 0);
      if (heard_.size() < size) return;
      if (frame->kind == Frame::Kind::kPacket)
        asked.push_back(frame->packet);
      else
        answers.emplace_back(frame->reply.token, frame->reply);
      heard_.erase(heard_.begin(), heard_.begin() + ptrdiff_t(size));
    }
  }
  // Its process ends.
  void leave() {
    network_.streams.erase(nid_);
    if (stream_ != nullptr) stream_->end();
    stream_.reset();
    asked.clear();
    heard_.clear();
  }
  void connect() {
    stream_ = std::make_unique<PeerStream>(network_.engine);
    stream_->set_ends({.here = kTarget, .there = nid_, .may_ask = true});
    network_.streams[nid_] = stream_.get();
  }
  uint64_t last_token() const { return last_token_; }

  std::vector<Packet> asked;                        // and not answered yet
  std::vector<std::pair<uint64_t, Reply>> answers;  // by token

 private:
  using Head = std::array<uint8_t, kHeadSize>;
  void say_frame(const Head &head, uint32_t count, std::span<const uint8_t> bytes) {
    std::vector<uint8_t> frame(head.begin(), head.end());
    frame.insert(frame.end(), bytes.begin(), bytes.begin() + std::min<size_t>(bytes.size(), count));
    frame.resize(kHeadSize + count);
    if (count != 0) frame.push_back(1);
    say_bytes(frame);
  }

  Network &network_;
  const Nid nid_;
  std::unique_ptr<PeerStream> stream_;
  std::vector<uint8_t> heard_;
  uint64_t last_token_ = 0;
};

}  // namespace weft::cxi::fuzz

#endif
