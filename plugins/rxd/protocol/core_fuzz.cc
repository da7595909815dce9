// SPDX-License-Identifier: BSD-2-Clause
// Packets of a peer to an endpoint, in any order: the input is a list of events. Most packets get
// the pair of a connection that was made by a valid handshake, so that the states after the
// handshake are reached; some are sent unchanged.
#include <arpa/inet.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/ip/sock_addr.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/test_carrier.h"
#include "plugins/rxd/protocol/weft.h"
#include "plugins/rxd/wire/stock.h"

namespace weft::rxd {
namespace {

void must(bool holds, const char *what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

sdk::Address address_of(uint16_t n) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(n);
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return sdk::SockAddr(in);
}

class Target final : public Carrier, public Core::Upper, public sdk::ReceiverSink {
 public:
  Target() : receiver_(*this, {.size = 64}), region_(4096) {
    Settings settings;
    settings.tx_size = 32;
    settings.unexpected_limit = 1 << 16;
    core_ = std::make_unique<Core>(*this, *this, settings);
    core_->set_own_address(address_of(1));
  }
  ~Target() {
    core_->shut_down(FI_ECANCELED);
    receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
      receiver_.forget(m);
      core_->discard(static_cast<Incoming &>(m));
    });
    must(core_->inbox().in_use() == 0, "messages are left over");
    must(core_->inbox().bytes() == 0, "bytes of messages are left over");
    must(core_->in_flight() == 0, "operations are left over");
    must(buffers_.empty(), "datagrams are left over");
    core_.reset();
    must(paths_ == 0, "paths are left over");
  }

  void come(std::vector<uint8_t> bytes) {
    auto buffer = std::make_unique<Buffer>();
    buffer->bytes = std::move(bytes);
    Buffer *b = buffer.get();
    buffers_[b] = std::move(buffer);
    if (!core_->on_datagram(b->bytes, *b, nullptr)) buffers_.erase(b);
  }
  // Connects by the handshake, as peer number 2.
  void connect(uint64_t instance, uint32_t connection, uint32_t cookie) {
    uint8_t name[wire::kNameSize] = {};
    std::memcpy(name, address_of(2).data(), address_of(2).size());
    uint8_t rts[stock::kMaxHeader];
    const size_t size = stock::encode(
        {.type = stock::Type::kRts, .marked = true, .index = 9, .name = address_of(2)}, rts);
    last_.clear();
    come({rts, rts + size});
    const auto challenge = wire::parse(last_);
    if (!challenge || challenge->header.kind != wire::PacketKind::kChallenge) return;
    uint8_t bytes[wire::kConnectSize];
    wire::Writer w(bytes);
    ours_ = {.instance = instance,
             .connection = connection,
             .cookie = cookie,
             .datagram = 9000,
             .limit = 64,
             .messages = 64,
             .credit = 64};
    w.connect({}, 9, std::get_if<wire::Challenge>(&challenge->content)->token, name, ours_);
    last_.clear();
    accept_.clear();
    come({bytes, bytes + w.size()});
    const auto accept = wire::parse(accept_);
    if (!accept || accept->header.kind != wire::PacketKind::kAccept) return;
    theirs_ = std::get_if<wire::Accept>(&accept->content)->part;
    sequence_ = 0;
  }
  void say(wire::PacketKind kind, uint16_t flags, uint32_t sequence,
           std::span<const uint8_t> content) {
    std::vector<uint8_t> bytes(wire::kHeaderSize);
    wire::Writer w(bytes);
    w.header({.kind = kind,
              .flags = flags,
              .to = theirs_.connection,
              .cookie = theirs_.cookie + ours_.cookie,
              .sequence = sequence,
              .time = uint32_t(now_ / 1000)});
    bytes.insert(bytes.end(), content.begin(), content.end());
    come(std::move(bytes));
  }
  void pass(uint64_t ns) {
    now_ += ns;
    if (deadline_ != 0 && deadline_ <= now_) {
      deadline_ = 0;
      core_->on_deadline();
    }
  }
  void idle() {
    core_->on_idle();
    core_->poll();
    must(core_->inbox().bytes() < (16 << 20), "a peer made us keep too much");
  }
  void post(size_t length) {
    if (memory_.size() > 200) return;
    memory_.push_back(std::make_unique<std::vector<uint8_t>>(length));
    const iovec iov{memory_.back()->data(), length};
    receiver_.post({.tagged = length % 2 == 0, .iov = &iov, .count = 1, .ignore = ~UINT64_C(0)});
  }
  void start(uint8_t kind, size_t length) {
    TxOp *op = core_->take();
    if (op == nullptr || memory_.size() > 200) {
      if (op != nullptr) core_->give(*op);
      return;
    }
    memory_.push_back(std::make_unique<std::vector<uint8_t>>(length + 8));
    op->kind = TxOp::Kind(kind % 4);
    op->length = length;
    op->tagged = (kind & 4) != 0;
    op->delivery = (kind & 8) != 0;
    op->fence = (kind & 16) != 0;
    op->vectors[0] = {0, length, 7};
    op->vector_count = op->kind != TxOp::Kind::kMessage ? 1 : 0;
    if (op->kind == TxOp::Kind::kAtomic) {
      op->length = 8;
      op->vectors[0].length = 8;
      op->atomic = sdk::AtomicKind::kFetch;
      op->datatype = FI_UINT64;
      op->op = FI_SUM;
      op->results[0] = {memory_.back()->data(), 1};
      op->result_count = 1;
      op->iov[0] = {op->bytes, 8};
      std::memset(op->bytes, 1, 8);
    } else {
      op->iov[0] = {memory_.back()->data(), length};
    }
    op->count = 1;
    const sdk::Address peer = address_of(2);
    if (core_->start(*op, 2, &peer) != 0) core_->give(*op);
  }
  uint32_t next() { return sequence_++; }
  void set_full(bool full) { core_->set_full(full); }
  bool low = false, full = false;

  // ---- Carrier ----
  Path *open(const sdk::Address &peer, int &) override {
    ++paths_;
    return new Path{peer};
  }
  void close(Path &path) override {
    --paths_;
    delete &path;
  }
  bool is_local(const sdk::Address &) override { return true; }
  bool names_sources() const override { return false; }
  void name_sources(bool) override {}
  int send(Path &, const iovec *iov, size_t count, bool) override {
    if (full) return -FI_EAGAIN;
    last_.clear();
    for (size_t i = 0; i < count; ++i) {
      const auto *at = static_cast<const uint8_t *>(iov[i].iov_base);
      last_.insert(last_.end(), at, at + iov[i].iov_len);
    }
    if (last_.size() > 3 && last_[0] == wire::kMagic && last_[3] == 3) accept_ = last_;
    return 0;
  }
  void flush() override {}
  size_t max_datagram() const override { return 9000; }
  size_t receive_window() const override { return 1 << 18; }
  void release(Buffer &buffer) override {
    must(buffers_.erase(&buffer) == 1, "a datagram was given back twice");
  }
  bool buffers_low() const override { return low; }
  ssize_t resolve(const RmaVector &v, uint64_t, iovec *iov, size_t room) override {
    if (v.key != 7 || room == 0 || v.address > region_.size() ||
        v.length > region_.size() - v.address)
      return -FI_EACCES;
    iov[0] = {region_.data() + v.address, v.length};
    return 1;
  }
  uint64_t now_ns() override { return now_ += 100; }
  void set_deadline(uint64_t at) override { deadline_ = at; }
  void random(std::span<uint8_t> out) override {
    for (uint8_t &byte : out) byte = uint8_t((chance_ = chance_ * 1664525 + 1013904223) >> 24);
  }
  // ---- Core::Upper ----
  void on_done(TxOp &, int) override {}
  sdk::Receiver &receiver() override { return receiver_; }
  uint32_t index_of(const sdk::Address &address) override { return address.port(); }
  void on_remote_write(uint32_t, uint64_t, bool, uint64_t, std::span<const RmaVector>) override {}
  void on_remote_read(uint64_t, std::span<const RmaVector>) override {}
  void on_remote_atomic(uint64_t, uint64_t, std::span<const RmaVector>) override {}
  void warn(const char *) override {}
  void deliver(sdk::Unexpected &m, sdk::Receive &r) override {
    core_->deliver(static_cast<Incoming &>(m), r);
  }
  void discard(sdk::Unexpected &m) override { core_->discard(static_cast<Incoming &>(m)); }

 private:
  sdk::Receiver receiver_;
  std::unique_ptr<Core> core_;
  std::vector<uint8_t> region_, last_, accept_;
  std::map<Buffer *, std::unique_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> memory_;
  wire::Part ours_, theirs_;
  uint64_t now_ = 1'000'000'000, deadline_ = 0;
  uint32_t sequence_ = 0, chance_ = 1;
  int paths_ = 0;
};

}  // namespace
}  // namespace weft::rxd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace weft::rxd;
  Target target;
  target.connect(1, 5, 77);
  std::span<const uint8_t> rest(data, size);
  const auto take = [&rest](size_t n) {
    n = std::min(n, rest.size());
    const auto taken = rest.first(n);
    rest = rest.subspan(n);
    return taken;
  };
  const auto byte = [&take] {
    const auto one = take(1);
    return one.empty() ? uint8_t{0} : one[0];
  };
  while (!rest.empty()) {
    const uint8_t what = byte();
    const uint8_t how = byte();
    const size_t n = byte();
    switch (what % 10) {
      case 0:  // frames in order; the first bit: they start operations
        target.say(wire::PacketKind::kData, uint16_t((how & 1) != 0 ? wire::kFlagOrdered : 0),
                   target.next(), take(n));
        break;
      case 1:  // frames at some number
        target.say(wire::PacketKind::kData, uint16_t((how & 1) != 0 ? wire::kFlagOrdered : 0),
                   uint32_t(how >> 1), take(n));
        break;
      case 2:  // an acknowledgement
        target.say(wire::PacketKind::kAcknowledge, wire::kFlagAcknowledgement, 0, take(n));
        break;
      case 3:
        target.say(wire::PacketKind(how), uint16_t(n & 31), 0, take(byte()));
        break;
      case 4: {
        const auto raw = take(n);
        target.come({raw.begin(), raw.end()});
        break;
      }
      case 5:
        target.pass(uint64_t(n) * (how % 2 == 0 ? 100'000 : 50'000'000));
        break;
      case 6:
        target.post(n * 8 + how);
        break;
      case 7:
        target.start(how, n * 16);
        break;
      case 8:
        target.low = (how & 1) != 0;
        target.full = (how & 2) != 0;
        target.set_full((how & 4) != 0);
        target.idle();
        break;
      case 9:
        target.full = false;
        target.pass(1000);
        target.connect(how, uint32_t(n) + 1, 78);
        break;
    }
  }
  return 0;
}
