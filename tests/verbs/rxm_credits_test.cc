// SPDX-License-Identifier: BSD-2-Clause
// Credits of rxm over a device without shared receives, as stock libfabric counts them: against a
// peer that is written here from the wire format alone. It opens connected endpoints of verbs, and
// posts each receive once.
#include <arpa/inet.h>

#include <cstring>
#include <deque>

#include "plugins/rxm/wire/connect_data.h"
#include "plugins/rxm/wire/packet.h"
#include "tests/verbs/rxm_exchange.h"

namespace weft::conformance {
namespace {

using namespace rxm;

constexpr size_t kPacket = kHeaderSize + 16384;
constexpr uint32_t kIndex = 7;  // by which it wants to be addressed

class StockPeer {
 public:
  // Connects to an endpoint over rxm; `other` makes progress meanwhile.
  StockPeer(Peer &other, FlowControl flow, size_t receives) {
    Info hints = make_hints(FI_MSG | FI_RMA);
    free(std::exchange(hints->fabric_attr->prov_name, strdup("verbs")));
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->mode = FI_RX_CQ_DATA;
    char node[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &other.name.sin_addr, node, sizeof node);
    info_ = get_info(node, std::to_string(ntohs(other.name.sin_port)).c_str(), 0, hints.get());
    must(fi_fabric(info_->fabric_attr, fabric_.out(), nullptr));
    fi_eq_attr eq{};
    must(fi_eq_open(fabric_, &eq, eq_.out(), nullptr));
    must(fi_domain(fabric_, info_.get(), domain_.out(), nullptr));
    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_MSG;
    must(fi_cq_open(domain_, &cq, cq_.out(), nullptr));
    memory_.resize((receives + 1) * kPacket);
    must(fi_mr_reg(domain_, memory_.data(), memory_.size(), FI_SEND | FI_RECV, 0, 0, 0, mr_.out(),
                   nullptr));
    must(fi_endpoint(domain_, info_.get(), ep_.out(), nullptr));
    must(fi_ep_bind(ep_, eq_.fid(), 0));
    must(fi_ep_bind(ep_, cq_.fid(), FI_TRANSMIT | FI_RECV));
    must(fi_enable(ep_));
    for (size_t i = 1; i <= receives; ++i) post(i);
    const ConnectBytes data = encode(ConnectData{.port = 9,
                                                 .flow_control = flow,
                                                 .eager_limit = 16384,
                                                 .receive_count = uint32_t(receives),
                                                 .process = 1,
                                                 .index = kIndex});
    must(fi_connect(ep_, info_->dest_addr, data.data(), data.size()));
    for (const Deadline deadline; !connected_;) {
      if (deadline.passed()) throw std::runtime_error("no connection");
      other.progress();
      read_event();
    }
  }
  const AcceptData &accepted() const { return accepted_; }

  // What has arrived, in order; each receive is used once.
  struct Arrived {
    Packet packet;
    std::string payload;
  };
  std::deque<Arrived> arrived;
  void progress() {
    fi_cq_msg_entry e{};
    ssize_t n;
    while ((n = fi_cq_read(cq_, &e, 1)) == 1) {
      if (!(e.flags & FI_RECV)) {
        ++sent_;
        continue;
      }
      const size_t place = size_t(e.op_context);
      const Parsed parsed = parse({memory_.data() + place * kPacket, e.len});
      ASSERT_EQ(parsed.reject, Reject::kNone);
      ASSERT_EQ(parsed.packet.connection, kIndex);
      Arrived one{parsed.packet, {}};
      one.payload.assign(reinterpret_cast<const char *>(parsed.packet.payload.data()),
                         parsed.packet.payload.size());
      if (parsed.packet.type == PacketType::kCredit) {
        credits_ += parsed.packet.credits;
        ++credit_packets_;
      } else {
        arrived.push_back(std::move(one));
      }
    }
    ASSERT_EQ(n, -FI_EAGAIN);
  }
  uint64_t credits() const { return credits_; }
  size_t credit_packets() const { return credit_packets_; }

  void send(WireHeader header, const std::string &payload = {}) {
    uint8_t *const at = memory_.data();  // one packet at a time
    std::memcpy(at, &header, sizeof header);
    std::memcpy(at + sizeof header, payload.data(), payload.size());
    const size_t before = sent_;
    must(fi_send(ep_, at, sizeof header + payload.size(), fi_mr_desc(mr_), 0, nullptr));
    for (const Deadline deadline; sent_ == before;) {
      if (deadline.passed()) throw std::runtime_error("a packet does not leave");
      progress();
    }
    --credits_;
  }
  void send_message(uint64_t tag, const std::string &payload) {
    WireHeader header = header_of(PacketType::kEager, accepted_.index);
    header.op = uint8_t(PacketOp::kTagged);
    header.size = payload.size();
    header.tag = tag;
    send(header, payload);
  }
  void grant(uint64_t count) {
    WireHeader header = header_of(PacketType::kCredit, accepted_.index);
    header.control_data = count;
    header.op = uint8_t(PacketOp::kAtomic);
    send(header);
  }

 private:
  void post(size_t place) {
    must(fi_recv(ep_, memory_.data() + place * kPacket, kPacket, fi_mr_desc(mr_), 0,
                 reinterpret_cast<void *>(place)));
  }
  void read_event() {
    alignas(fi_eq_cm_entry) char bytes[sizeof(fi_eq_cm_entry) + 256];
    uint32_t event = 0;
    const ssize_t n = fi_eq_read(eq_, &event, bytes, sizeof bytes, 0);
    if (n == -FI_EAGAIN) return;
    must(n);
    if (event != FI_CONNECTED) throw std::runtime_error("another event than FI_CONNECTED");
    const auto &entry = *reinterpret_cast<const fi_eq_cm_entry *>(bytes);
    const auto data = parse_accept({entry.data, size_t(n) - sizeof entry});
    if (!data) throw std::runtime_error(text_of(data.error()));
    accepted_ = *data;
    connected_ = true;
  }

  Info info_;
  Handle<fid_fabric> fabric_;
  Handle<fid_eq> eq_;
  Handle<fid_domain> domain_;
  Handle<fid_cq> cq_;
  std::vector<uint8_t> memory_;
  Handle<fid_mr> mr_;
  Handle<fid_ep> ep_;
  AcceptData accepted_;
  bool connected_ = false;
  uint64_t credits_ = 1;  // each side begins with one
  size_t credit_packets_ = 0, sent_ = 0;
};

// Until it is so, and a little longer: more than is expected may come.
template <class IsSo>
void settle(Peer &b, StockPeer &stock, IsSo is_so) {
  const Deadline deadline;
  for (int i = 0; i < 200 && !deadline.passed(); i += is_so() ? 1 : 0) {
    b.progress();
    stock.progress();
  }
}
void settle_arrived(Peer &b, StockPeer &stock, size_t arrived) {
  settle(b, stock, [&] { return stock.arrived.size() >= arrived; });
}

// The first credit packet has the number of posted receives without the one that every connection
// begins with; later ones come when half of the receives are posted again. So a sender that keeps
// to them never finds the receiver without a receive.
TEST(RxmOverVerbsCredits, AStockSenderIsGrantedWhatIsPosted) {
  constexpr size_t kCount = 200, kReceives = 32;
  Peer b(PeerOptions{.node = kPlain});
  StockPeer stock(b, FlowControl::kOn, kCount);
  EXPECT_EQ(stock.accepted().flow_control, FlowControl::kOn);
  EXPECT_EQ(stock.accepted().receive_count, kReceives);
  settle(b, stock, [&] { return stock.credit_packets() != 0; });
  EXPECT_EQ(stock.credit_packets(), 1u);
  EXPECT_EQ(stock.credits(), kReceives);
  stock.grant(100);  // for its answers
  std::vector<Bytes> in(kCount, Bytes(100));
  for (size_t i = 0; i < kCount; ++i) {
    must(fi_trecv(b.ep, in[i].data(), in[i].size(), nullptr, FI_ADDR_UNSPEC, i, 0, mark(i)));
    for (const Deadline deadline; stock.credits() < 2;) {
      ASSERT_FALSE(deadline.passed()) << "no credits after " << i << " messages";
      b.progress();
      stock.progress();
    }
    ASSERT_LE(stock.credits(), kReceives) << "more than are posted";
    stock.send_message(i, std::string(100, char(i)));
  }
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(wait(b, mark(i), {&b}).len, 100u);
    EXPECT_EQ(in[i], Bytes(100, uint8_t(i)));
  }
  EXPECT_GE(stock.credit_packets(), kCount / kReceives);
}

// weft sends what it was granted and no more. It keeps the last credit for a credit packet.
TEST(RxmOverVerbsCredits, WeftKeepsToTheCreditsOfAStockReceiver) {
  Peer b(PeerOptions{.node = kPlain});
  StockPeer stock(b, FlowControl::kOn, 64);
  settle(b, stock, [&] { return stock.credit_packets() != 0; });
  sockaddr_in from = b.name;  // the address of its host, and the port that it named
  from.sin_port = htons(9);
  const fi_addr_t to = b.insert(from);
  for (uint64_t tag = 0; tag < 20; ++tag) must(fi_tsend(b.ep, &b, 8, nullptr, to, tag, mark(tag)));
  settle_arrived(b, stock, 0);
  EXPECT_EQ(stock.arrived.size(), 0u);  // its one credit was for the credit packet
  stock.grant(5);
  settle_arrived(b, stock, 4);
  EXPECT_EQ(stock.arrived.size(), 4u);
  stock.grant(8);
  settle_arrived(b, stock, 12);
  EXPECT_EQ(stock.arrived.size(), 12u);
  stock.grant(20);
  settle_arrived(b, stock, 20);
  ASSERT_EQ(stock.arrived.size(), 20u);
  for (uint64_t tag = 0; tag < 20; ++tag) {
    EXPECT_EQ(stock.arrived[tag].packet.tag, tag);
    EXPECT_EQ(wait(b, mark(tag), {&b}).err, 0);
  }
}

// A peer that declines gets no credit packets and is sent to freely; so does one that has shared
// receives itself.
TEST(RxmOverVerbsCredits, APeerMayDecline) {
  for (const char *node : {kPlain, kAddress}) {
    SCOPED_TRACE(node);
    Peer b(PeerOptions{.node = node});
    StockPeer stock(b, node == kPlain ? FlowControl::kOff : FlowControl::kOn, 64);
    EXPECT_EQ(stock.accepted().flow_control, node == kPlain ? FlowControl::kOn : FlowControl::kOff);
    sockaddr_in from = b.name;
    from.sin_port = htons(9);
    const fi_addr_t to = b.insert(from);
    for (uint64_t tag = 0; tag < 40; ++tag) {
      must(fi_tsend(b.ep, &b, 8, nullptr, to, tag, mark(tag)));
      EXPECT_EQ(wait(b, mark(tag), {&b}).err, 0);
    }
    settle_arrived(b, stock, 40);
    EXPECT_EQ(stock.arrived.size(), 40u);
    EXPECT_EQ(stock.credit_packets(), 0u);
  }
}

}  // namespace
}  // namespace weft::conformance
