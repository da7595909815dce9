// SPDX-License-Identifier: BSD-2-Clause
// Objects that another provider owns (fi_peer.3): a completion queue, a counter and a shared
// receive context of the test's own, into which the stack reports.
#include <rdma/fi_collective.h>
#include <rdma/fi_ext.h>
#include <rdma/providers/fi_peer.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <thread>

#include "tests/conformance/rdm_harness.h"
#include "tests/conformance/text_addresses.h"

namespace weft::conformance::rdm {
namespace {

class OwnerCq {
 public:
  OwnerCq() {
    ops_.size = sizeof ops_;
    ops_.write = [](fid_peer_cq *cq, void *context, uint64_t flags, size_t len, void *buf,
                    uint64_t data, uint64_t tag, fi_addr_t src) -> ssize_t {
      return of(cq).add({context, flags, len, buf, data, tag, src});
    };
    ops_.writeerr = [](fid_peer_cq *cq, const fi_cq_err_entry *e) -> ssize_t {
      return of(cq).add({.context = e->op_context,
                         .flags = e->flags,
                         .len = e->len,
                         .tag = e->tag,
                         .olen = e->olen,
                         .err = e->err});
    };
    cq_.fid.fclass = FI_CLASS_PEER_CQ;
    cq_.fid.context = this;
    cq_.owner_ops = &ops_;
  }
  std::optional<Completion> next() {
    std::lock_guard guard(mutex_);
    if (entries_.empty()) return {};
    const Completion first = entries_.front();
    entries_.pop_front();
    return first;
  }
  fi_peer_cq_context context{.size = sizeof context, .cq = &cq_};

 private:
  static OwnerCq &of(fid_peer_cq *cq) { return *static_cast<OwnerCq *>(cq->fid.context); }
  ssize_t add(const Completion &entry) {
    std::lock_guard guard(mutex_);
    entries_.push_back(entry);
    return 0;
  }
  fi_ops_cq_owner ops_{};
  fid_peer_cq cq_{};
  std::mutex mutex_;
  std::deque<Completion> entries_;
};

struct OwnerCntr {
  OwnerCntr() {
    ops.size = sizeof ops;
    ops.inc = [](fid_peer_cntr *c) { ++static_cast<OwnerCntr *>(c->fid.context)->value; };
    ops.incerr = [](fid_peer_cntr *c) { ++static_cast<OwnerCntr *>(c->fid.context)->errors; };
    cntr.fid.fclass = FI_CLASS_PEER_CNTR;
    cntr.fid.context = this;
    cntr.owner_ops = &ops;
  }
  fi_ops_cntr_owner ops{};
  fid_peer_cntr cntr{};
  fi_peer_cntr_context context{.size = sizeof context, .cntr = &cntr};
  std::atomic<uint64_t> value{0}, errors{0};
};

// The smallest owner of receives. It calls the peer with its own lock held, and a receive that is
// posted between get and queue starts the message inside of queue: what a peer has to live with.
class OwnerSrx {
 public:
  OwnerSrx() {
    ops_.size = sizeof ops_;
    ops_.get_msg = [](fid_peer_srx *srx, fi_peer_match_attr *attr, fi_peer_rx_entry **entry) {
      return of(srx).get(false, *attr, entry);
    };
    ops_.get_tag = [](fid_peer_srx *srx, fi_peer_match_attr *attr, fi_peer_rx_entry **entry) {
      return of(srx).get(true, *attr, entry);
    };
    ops_.queue_msg = [](fi_peer_rx_entry *entry) { return of(entry->srx).queue(false, entry); };
    ops_.queue_tag = [](fi_peer_rx_entry *entry) { return of(entry->srx).queue(true, entry); };
    ops_.foreach_unspec_addr = [](fid_peer_srx *srx, fi_addr_t (*address)(fi_peer_rx_entry *)) {
      of(srx).name(address);
    };
    ops_.free_entry = [](fi_peer_rx_entry *entry) { of(entry->srx).free(entry); };
    srx_.ep_fid.fid.fclass = FI_CLASS_PEER_SRX;
    srx_.ep_fid.fid.context = this;
    srx_.owner_ops = &ops_;
  }
  ~OwnerSrx() { EXPECT_EQ(live_, 0) << "entries that the peer has not given back"; }

  // What an application calls.
  void recv(bool tagged, std::vector<uint8_t> &in, uint64_t tag, uint64_t ignore = 0,
            fi_addr_t from = FI_ADDR_UNSPEC) {
    std::lock_guard guard(mutex_);
    const Posted posted{{in.data(), in.size()}, &in, from, tag, ignore};
    for (Entry *entry : queued_[tagged]) {
      if (!posted.takes(entry->addr, entry->tag)) continue;
      queued_[tagged].remove(entry);
      entry->take(posted);
      return must((tagged ? srx_.peer_ops->start_tag : srx_.peer_ops->start_msg)(entry));
    }
    posted_[tagged].push_back(posted);
  }
  void discard_all() {
    std::lock_guard guard(mutex_);
    for (const bool tagged : {false, true}) {
      for (Entry *entry : queued_[tagged])
        must((tagged ? srx_.peer_ops->discard_tag : srx_.peer_ops->discard_msg)(entry));
      queued_[tagged].clear();
    }
  }
  size_t queued() {
    std::lock_guard guard(mutex_);
    return queued_[0].size() + queued_[1].size();
  }
  int live() {
    std::lock_guard guard(mutex_);
    return live_;
  }
  fi_peer_srx_context context{.size = sizeof context, .srx = &srx_};

 private:
  struct Posted {
    iovec iov;
    void *context;
    fi_addr_t from;
    uint64_t tag, ignore;
    bool takes(fi_addr_t source, uint64_t its_tag) const {
      return (from == FI_ADDR_UNSPEC || from == source) && ((tag ^ its_tag) & ~ignore) == 0;
    }
  };
  struct Entry : fi_peer_rx_entry {
    void take(const Posted &posted) {
      place = posted.iov;
      iov = &place;
      count = 1;
      context = posted.context;
    }
    iovec place;
  };
  static OwnerSrx &of(fid_peer_srx *srx) {
    return *static_cast<OwnerSrx *>(srx->ep_fid.fid.context);
  }
  // Whether a posted receive takes the message of the entry.
  bool match(bool tagged, Entry &entry) {
    auto &all = posted_[tagged];
    const auto at = std::find_if(all.begin(), all.end(), [&](const Posted &posted) {
      return posted.takes(entry.addr, entry.tag);
    });
    if (at == all.end()) return false;
    entry.take(*at);
    all.erase(at);
    return true;
  }
  int get(bool tagged, const fi_peer_match_attr &attr, fi_peer_rx_entry **out) {
    std::lock_guard guard(mutex_);
    auto *entry = new Entry{};
    ++live_;
    entry->srx = &srx_;
    entry->addr = attr.addr;
    entry->tag = attr.tag;
    *out = entry;
    return match(tagged, *entry) ? 0 : -FI_ENOENT;
  }
  int queue(bool tagged, fi_peer_rx_entry *queued) {
    auto *entry = static_cast<Entry *>(queued);
    std::lock_guard guard(mutex_);
    if (match(tagged, *entry))
      return (tagged ? srx_.peer_ops->start_tag : srx_.peer_ops->start_msg)(entry);
    queued_[tagged].push_back(entry);
    return 0;
  }
  void name(fi_addr_t (*address)(fi_peer_rx_entry *)) {
    std::lock_guard guard(mutex_);
    for (auto &list : queued_)
      for (Entry *entry : list)
        if (entry->addr == FI_ADDR_UNSPEC) entry->addr = address(entry);
  }
  void free(fi_peer_rx_entry *entry) {
    std::lock_guard guard(mutex_);
    --live_;
    delete static_cast<Entry *>(entry);
  }

  fi_ops_srx_owner ops_{};
  fid_peer_srx srx_{};
  std::mutex mutex_;
  std::deque<Posted> posted_[2];
  std::list<Entry *> queued_[2];
  int live_ = 0;
};

constexpr uint64_t kCaps = FI_MSG | FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV | FI_PEER;
constexpr size_t kHere = 0, kPeer = 1;

class RdmPeer : public ::testing::Test {
 protected:
  // An endpoint that reports its receives to the owner, and one that sends.
  void open(bool imports_receives, enum fi_progress progress = FI_PROGRESS_UNSPEC) {
    covers("FI_PEER");
    Options options;
    options.caps = kCaps;
    options.progress = progress;
    if (!find_info(options)) GTEST_SKIP() << "fi_getinfo offers no FI_PEER";
    plain_ = options;
    plain_.caps = kCaps & ~FI_PEER;
    options.rx_cq.flags = FI_PEER;
    options.rx_owner = &cq.context;
    options.shared_receive = imports_receives;
    if (imports_receives) options.srx_owner = &srx.context;
    if (imports_receives && !find_info(options)) GTEST_SKIP() << "no shared receive contexts";
    net.emplace(0);
    net->add(options, [this](Node &node) {
      fi_cntr_attr attr{};
      attr.flags = FI_PEER;
      node.count(FI_RECV, attr, &cntr.context);
    });
    net->add(plain_);
  }
  void send(std::vector<uint8_t> &out, bool tagged = false, uint64_t tag = 0) {
    net->post([&] {
      fid_ep *const ep = (*net)[kPeer].ep;
      const fi_addr_t to = net->at(kPeer, kHere);
      return tagged ? fi_tsend(ep, out.data(), out.size(), nullptr, to, tag, &out)
                    : fi_send(ep, out.data(), out.size(), nullptr, to, &out);
    });
  }
  Completion wait_owner() {
    std::optional<Completion> got;
    EXPECT_TRUE(net->until([&] { return (got = cq.next()).has_value(); }));
    return got.value_or(Completion{});
  }
  void sent() { EXPECT_EQ(net->wait((*net)[kPeer].tx_cq).err, 0); }

  Options plain_;
  OwnerCq cq;
  OwnerCntr cntr;
  OwnerSrx srx;
  std::optional<Net> net;
};

TEST_F(RdmPeer, IsACapabilityOfTheDomainToo) {
  RDM_NEEDS(FI_PEER);
  const Info info = ask([](fi_info &hints) { hints.domain_attr->caps = FI_PEER; });
  ASSERT_NE(info, nullptr);
  EXPECT_NE(info->domain_attr->caps & FI_PEER, 0u);
  Options options;
  options.caps = kCaps;
  const Info asked = find_info(options), not_asked = find_info();
  EXPECT_EQ(asked->caps & FI_PEER, uint64_t(FI_PEER));
  EXPECT_EQ(not_asked->caps & FI_PEER, 0u) << "nobody asked";
}

TEST_F(RdmPeer, TheOwnersQueueAndCounterGetWhatArrives) {
  open(false);
  if (IsSkipped()) return;
  uint64_t count = 0;
  for (size_t size : edges()) {
    SCOPED_TRACE(size);
    for (const bool tagged : {false, true}) {
      std::vector<uint8_t> in(size), out = pattern(size, 1);
      fid_ep *const ep = (*net)[kHere].ep;
      must(tagged ? fi_trecv(ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 7, 0, &in)
                  : fi_recv(ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, &in));
      send(out, tagged, 7);
      const Completion got = wait_owner();
      EXPECT_EQ(got.err, 0);
      EXPECT_EQ(got.context, &in);
      EXPECT_EQ(got.len, size);
      EXPECT_EQ(got.flags & (FI_RECV | FI_MSG | FI_TAGGED),
                uint64_t(FI_RECV | (tagged ? FI_TAGGED : FI_MSG)));
      EXPECT_EQ(got.tag, tagged ? 7u : 0u);
      EXPECT_EQ(got.source, net->at(kHere, kPeer));
      EXPECT_EQ(in, out);
      sent();
      EXPECT_EQ(cntr.value, ++count);
    }
  }
  EXPECT_EQ(cntr.errors, 0u);
}

TEST_F(RdmPeer, TheOwnersQueueAndCounterGetErrors) {
  open(false);
  if (IsSkipped()) return;
  std::vector<uint8_t> in(8), out = pattern(64, 1);
  must(fi_recv((*net)[kHere].ep, in.data(), 8, nullptr, FI_ADDR_UNSPEC, &in));
  send(out);
  const Completion cut = wait_owner();
  EXPECT_EQ(cut.err, FI_ETRUNC);
  EXPECT_EQ(cut.olen, 56u);
  EXPECT_EQ(cntr.errors, 1u);
  must(fi_recv((*net)[kHere].ep, in.data(), 8, nullptr, FI_ADDR_UNSPEC, &in));
  must(fi_cancel((*net)[kHere].ep.fid(), &in));
  EXPECT_EQ(wait_owner().err, FI_ECANCELED);
  EXPECT_EQ(cntr.errors, 2u);
}

TEST_F(RdmPeer, TheOwnersReceivesTakeMessagesBeforeAndAfterTheyArrive) {
  open(true);
  if (IsSkipped()) return;
  for (size_t size : edges()) {
    for (const bool tagged : {false, true}) {
      for (const bool posted_first : {true, false}) {
        SCOPED_TRACE(::testing::Message()
                     << size << " bytes, tagged " << tagged << ", posted first " << posted_first);
        std::vector<uint8_t> in(size), out = pattern(size, 1);
        if (posted_first) srx.recv(tagged, in, tagged ? 7 : 0);
        send(out, tagged, tagged ? 7 : 0);
        if (!posted_first) {
          ASSERT_TRUE(net->until([&] { return srx.queued() == 1; }));
          srx.recv(tagged, in, tagged ? 7 : 0);
        }
        const Completion got = wait_owner();
        EXPECT_EQ(got.err, 0);
        EXPECT_EQ(got.context, &in);
        EXPECT_EQ(got.len, size);
        EXPECT_EQ(got.source, net->at(kHere, kPeer));
        EXPECT_EQ(in, out);
        sent();
        EXPECT_EQ(srx.live(), 0);
      }
    }
  }
}

TEST_F(RdmPeer, ReceivesAreNotPostedAtTheImportedContext) {
  open(true);
  if (IsSkipped()) return;
  char byte;
  fid_ep *const context = (*net)[kHere].srx, *const ep = (*net)[kHere].ep;
  EXPECT_EQ(fi_recv(context, &byte, 1, nullptr, FI_ADDR_UNSPEC, &byte), -FI_ENOSYS);
  EXPECT_EQ(fi_trecv(context, &byte, 1, nullptr, FI_ADDR_UNSPEC, 0, 0, &byte), -FI_ENOSYS);
  EXPECT_EQ(fi_cancel(&context->fid, &byte), -FI_ENOSYS);
  EXPECT_EQ(fi_recv(ep, &byte, 1, nullptr, FI_ADDR_UNSPEC, &byte), -FI_EOPNOTSUPP);
}

TEST_F(RdmPeer, DiscardedMessagesAreForgotten) {
  open(true);
  if (IsSkipped()) return;
  std::vector<uint8_t> out = pattern(100, 1), large = pattern(300000, 2), in(100);
  send(out, true, 1);
  send(large, true, 2);
  ASSERT_TRUE(net->until([&] { return srx.queued() == 2; }));
  srx.discard_all();
  ASSERT_TRUE(net->until([&] { return srx.live() == 0; }));
  sent();
  sent();
  EXPECT_FALSE(cq.next().has_value()) << "a completion of a discarded message";
  srx.recv(true, in, 3);
  send(out, true, 3);
  EXPECT_EQ(wait_owner().err, 0);
  sent();
}

// The endpoint goes while the owner has messages of it: their entries come back, at the latest when
// the context is closed.
TEST_F(RdmPeer, AnEndpointClosesWithMessagesAtTheOwner) {
  open(true);
  if (IsSkipped()) return;
  std::vector<uint8_t> out = pattern(100, 1), in(100);
  for (uint64_t tag : {1, 2, 3}) send(out, true, tag);
  ASSERT_TRUE(net->until([&] { return srx.queued() == 3; }));
  for (int i = 0; i < 3; ++i) sent();
  (*net)[kHere].ep.reset();
  EXPECT_EQ(srx.live(), 3);
  srx.recv(true, in, 2);
  ASSERT_TRUE(net->until([&] { return srx.live() == 2; }));
  net.reset();
  EXPECT_EQ(srx.live(), 0);
}

// The owner's lock is held around its calls in both directions, while the peer makes progress in a
// thread of its own.
TEST_F(RdmPeer, TheOwnerPostsWhileThePeerMakesProgress) {
  open(true, FI_PROGRESS_AUTO);
  if (IsSkipped()) return;
  constexpr uint64_t kCount = 300;
  std::vector<std::vector<uint8_t>> in(kCount, std::vector<uint8_t>(8)), out;
  for (uint64_t i = 0; i < kCount; ++i) out.push_back(pattern(8, unsigned(i)));
  std::thread application([&] {
    for (uint64_t i = 0; i < kCount; ++i) srx.recv(true, in[i], i);
  });
  for (uint64_t i = 0; i < kCount; ++i) {
    send(out[i], true, i);
    sent();
  }
  application.join();
  for (uint64_t i = 0; i < kCount; ++i) {
    const Completion got = wait_owner();
    ASSERT_EQ(got.err, 0);
    ASSERT_EQ(got.context, &in[got.tag]);
    ASSERT_EQ(in[got.tag], out[got.tag]);
  }
  EXPECT_EQ(srx.live(), 0);
}

TEST_F(RdmPeer, OpenCallsRefuseWhatIsNoOwner) {
  open(false);
  if (IsSkipped()) return;
  Node &node = (*net)[kHere];
  fi_cq_attr cq_attr{};
  cq_attr.flags = FI_PEER;
  fid_cq *queue = nullptr;
  EXPECT_EQ(fi_cq_open(node.domain, &cq_attr, &queue, nullptr), -FI_EINVAL);
  fi_cntr_attr cntr_attr{};
  cntr_attr.flags = FI_PEER;
  fid_cntr *counter = nullptr;
  EXPECT_EQ(fi_cntr_open(node.domain, &cntr_attr, &counter, nullptr), -FI_EINVAL);
  Options shared;
  shared.shared_receive = true;
  if (!find_info(shared)) return;
  fi_rx_attr rx_attr{};
  rx_attr.op_flags = FI_PEER;
  fid_ep *context = nullptr;
  EXPECT_EQ(fi_srx_context(node.domain, &rx_attr, &context, nullptr), -FI_EINVAL);
  fi_peer_srx_context empty{};
  EXPECT_EQ(fi_srx_context(node.domain, &rx_attr, &context, &empty), -FI_EINVAL);
}

// ---- another provider of ours as the owner ----

// An endpoint of another stack than the one under test, that sends to itself. Its objects are lent.
struct Owner {
  // With `shared` its receives are those of a shared receive context.
  explicit Owner(bool shared = false) {
    const Info hints(fi_allocinfo());
    hints->fabric_attr->prov_name = strdup(stack() == "tcp" ? "udp;ofi_rxd" : "tcp");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_TAGGED;
    if (shared) hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    info = get_info("127.0.0.1", nullptr, FI_SOURCE, hints.get());
    must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
    must(fi_domain(fabric, info.get(), domain.out(), nullptr));
    fi_cq_attr cq_attr = Options::cq_attr();
    must(fi_cq_open(domain, &cq_attr, cq.out(), nullptr));
    fi_cntr_attr cntr_attr{};
    must(fi_cntr_open(domain, &cntr_attr, cntr.out(), nullptr));
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    must(fi_av_open(domain, &av_attr, av.out(), nullptr));
    if (shared) must(fi_srx_context(domain, info->rx_attr, srx.out(), nullptr));
    must(fi_endpoint(domain, info.get(), ep.out(), nullptr));
    if (shared) must(fi_ep_bind(ep, srx.fid(), 0));
    must(fi_ep_bind(ep, cq.fid(), FI_TRANSMIT | FI_RECV));
    must(fi_ep_bind(ep, cntr.fid(), FI_RECV));
    must(fi_ep_bind(ep, av.fid(), 0));
    must(fi_enable(ep));
  }
  std::string name() const {
    char name[256];
    size_t length = sizeof name;
    must(fi_getname(ep.fid(), name, &length));
    return {name, length};
  }
  fi_addr_t insert() {
    fi_addr_t at = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(fi_av_insert(av, name().data(), 1, &at, 0, nullptr), 1);
    return at;
  }

  Info info;
  Handle<fid_fabric> fabric;
  Handle<fid_domain> domain;
  Handle<fid_cq> cq;
  Handle<fid_cntr> cntr;
  Handle<fid_av> av;
  Handle<fid_ep> srx;
  Handle<fid_ep> ep;
};

// fi_export_fid; the result is closed before the owner's object is.
template <class Peer, class Fid>
Handle<Peer> lend(Fid *object, size_t fclass) {
  struct fid *lent = nullptr;
  must(fi_export_fid(&object->fid, 0, &lent, &lent));
  EXPECT_EQ(lent->fclass, fclass);
  EXPECT_EQ(lent->context, &lent);
  return Handle<Peer>(reinterpret_cast<Peer *>(lent));
}

TEST_F(RdmPeer, AnotherProviderOfOursIsTheOwner) {
  RDM_NEEDS(FI_PEER);
  Owner owner;
  const Handle<fid_peer_cq> queue = lend<fid_peer_cq>(owner.cq.get(), FI_CLASS_PEER_CQ);
  const Handle<fid_peer_cntr> counter = lend<fid_peer_cntr>(owner.cntr.get(), FI_CLASS_PEER_CNTR);
  fi_peer_cq_context queue_context{.size = sizeof queue_context, .cq = queue};
  fi_peer_cntr_context counter_context{.size = sizeof counter_context, .cntr = counter};
  Options options;
  options.caps = kCaps;
  options.rx_cq.flags = FI_PEER;
  options.rx_owner = &queue_context;
  Net both(0);
  both.add(options, [&](Node &node) {
    fi_cntr_attr attr{};
    attr.flags = FI_PEER;
    node.count(FI_RECV, attr, &counter_context);
  });
  options.rx_cq.flags = 0;
  options.rx_owner = nullptr;
  both.add(options);
  const fi_addr_t itself = owner.insert();
  const auto next = [&] {
    std::optional<Completion> got;
    EXPECT_TRUE(both.until([&] { return (got = poll(owner.cq)).has_value(); }));
    return got.value_or(Completion{});
  };
  uint64_t received = 0;
  for (const size_t size : {0, 100, 20000, 300000}) {
    SCOPED_TRACE(size);
    const std::vector<uint8_t> out = pattern(size, 1);
    // By the peer.
    std::vector<uint8_t> in(size);
    must(fi_trecv(both[kHere].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 7, 0, &in));
    both.post([&] {
      return fi_tsend(both[kPeer].ep, out.data(), size, nullptr, both.at(kPeer, kHere), 7, nullptr);
    });
    const Completion got = next();
    EXPECT_EQ(got.err, 0);
    EXPECT_EQ(got.context, &in);
    EXPECT_EQ(got.len, size);
    EXPECT_EQ(got.tag, 7u);
    EXPECT_EQ(in, out);
    EXPECT_EQ(both.wait(both[kPeer].tx_cq).err, 0);
    // By the owner itself.
    std::vector<uint8_t> own(size);
    must(fi_trecv(owner.ep, own.data(), size, nullptr, FI_ADDR_UNSPEC, 8, 0, &own));
    both.post([&] { return fi_tsend(owner.ep, out.data(), size, nullptr, itself, 8, nullptr); });
    bool has_sent = false, has_received = false;
    for (int i = 0; i < 2; ++i) {
      const Completion one = next();
      EXPECT_EQ(one.err, 0);
      (one.flags & FI_SEND ? has_sent : has_received) = true;
    }
    EXPECT_TRUE(has_sent && has_received);
    EXPECT_EQ(own, out);
    received += 2;
    EXPECT_TRUE(both.until([&] { return fi_cntr_read(owner.cntr) == received; }));
  }
  // An error of the peer's.
  std::vector<uint8_t> small(8), out = pattern(64, 1);
  must(fi_recv(both[kHere].ep, small.data(), 8, nullptr, FI_ADDR_UNSPEC, &small));
  both.post([&] {
    return fi_send(both[kPeer].ep, out.data(), 64, nullptr, both.at(kPeer, kHere), nullptr);
  });
  const Completion cut = next();
  EXPECT_EQ(cut.err, FI_ETRUNC);
  EXPECT_EQ(cut.context, &small);
  EXPECT_EQ(cut.olen, 56u);
  EXPECT_TRUE(both.until([&] { return fi_cntr_readerr(owner.cntr) == 1; }));
  must(fi_recv(both[kHere].ep, small.data(), 8, nullptr, FI_ADDR_UNSPEC, &small));
  must(fi_cancel(both[kHere].ep.fid(), &small));
  EXPECT_EQ(next().err, FI_ECANCELED);
}

// Threads of both providers report at once; nobody waits for the other's lock for ever.
TEST_F(RdmPeer, AnOwnerAndItsPeerMakeProgressByThemselves) {
  RDM_NEEDS(FI_PEER);
  Owner owner;
  const Handle<fid_peer_cq> queue = lend<fid_peer_cq>(owner.cq.get(), FI_CLASS_PEER_CQ);
  fi_peer_cq_context context{.size = sizeof context, .cq = queue};
  Options options;
  options.caps = kCaps;
  options.progress = FI_PROGRESS_AUTO;
  options.rx_cq.flags = FI_PEER;
  options.rx_owner = &context;
  Net both(0);
  both.add(options);
  options.rx_cq.flags = 0;
  options.rx_owner = nullptr;
  both.add(options);
  const fi_addr_t itself = owner.insert();
  constexpr size_t kCount = 200;
  std::vector<uint64_t> in(2 * kCount), out(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    out[i] = i;
    must(fi_trecv(both[kHere].ep, &in[i], 8, nullptr, FI_ADDR_UNSPEC, i, 0, &in[i]));
    must(fi_trecv(owner.ep, &in[kCount + i], 8, nullptr, FI_ADDR_UNSPEC, i, 0, &in[kCount + i]));
  }
  std::thread sender([&] {
    for (size_t i = 0; i < kCount; ++i) {
      while (fi_tinject(both[kPeer].ep, &out[i], 8, both.at(kPeer, kHere), i) == -FI_EAGAIN)
        std::this_thread::yield();  // the thread that makes room may need this processor
    }
  });
  for (size_t sent = 0, got = 0; got < 2 * kCount;) {
    if (sent < kCount && fi_tinject(owner.ep, &out[sent], 8, itself, sent) == 0) ++sent;
    std::optional<Completion> one;
    if (!both.until([&] { return (one = poll(owner.cq)).has_value() || sent < kCount; })) {
      ADD_FAILURE() << got << " of " << 2 * kCount;
      break;
    }
    if (!one) continue;
    EXPECT_EQ(one->err, 0);
    ++got;
  }
  sender.join();
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(in[i], i);
    EXPECT_EQ(in[kCount + i], i);
  }
}

TEST_F(RdmPeer, WhatIsLentIsBusy) {
  RDM_NEEDS(FI_PEER);
  Node node{Options{}};
  fid_cq *queue = nullptr;
  fi_cq_attr cq_attr = Options::cq_attr();
  must(fi_cq_open(node.domain, &cq_attr, &queue, nullptr));
  {
    const auto lent = lend<fid_peer_cq>(queue, FI_CLASS_PEER_CQ);
    EXPECT_EQ(fi_close(&queue->fid), -FI_EBUSY);
  }
  must(fi_close(&queue->fid));
  // What is imported is not this provider's to lend, and bytes cannot be counted for others.
  cq_attr.flags = FI_PEER;
  must(fi_cq_open(node.domain, &cq_attr, &queue, &cq.context));
  struct fid *lent = nullptr;
  EXPECT_EQ(fi_export_fid(&queue->fid, 0, &lent, nullptr), -FI_ENOSYS);
  must(fi_close(&queue->fid));
  fi_cntr_attr cntr_attr{};
  cntr_attr.events = FI_CNTR_EVENTS_BYTES;
  fid_cntr *counter = nullptr;
  must(fi_cntr_open(node.domain, &cntr_attr, &counter, nullptr));
  EXPECT_EQ(fi_export_fid(&counter->fid, 0, &lent, nullptr), -FI_ENOSYS);
  must(fi_close(&counter->fid));
}

// The receives of that endpoint take its own messages and those of the stack under test.
class RdmPeerReceives : public ::testing::Test {
 protected:
  void open(enum fi_progress progress = FI_PROGRESS_UNSPEC) {
    covers("FI_PEER");
    Options options;
    options.caps = kCaps & ~(FI_SOURCE | FI_DIRECTED_RECV);
    options.progress = progress;
    options.shared_receive = true;
    if (!find_info(options)) GTEST_SKIP() << "no FI_PEER, or no shared receive contexts";
    owner_.emplace(true);
    queue_.emplace(lend<fid_peer_cq>(owner_->cq.get(), FI_CLASS_PEER_CQ));
    receives_.emplace(lend<fid_ep>(owner_->srx.get(), FI_CLASS_PEER_SRX));
    queue_context_.cq = *queue_;
    srx_context_.srx = reinterpret_cast<fid_peer_srx *>(receives_->get());
    options.rx_cq.flags = FI_PEER;
    options.rx_owner = &queue_context_;
    options.srx_owner = &srx_context_;
    net_.emplace(0);
    net_->add(options);
    Options plain;
    plain.caps = options.caps & ~FI_PEER;
    plain.progress = progress;
    net_->add(plain);
    itself_ = owner_->insert();
  }
  void recv(bool tagged, std::vector<uint8_t> &in, uint64_t tag, uint64_t flags = 0) {
    const iovec iov{in.data(), in.size()};
    if (tagged) {
      fi_msg_tagged msg{};
      msg.msg_iov = &iov;
      msg.iov_count = 1;
      msg.addr = FI_ADDR_UNSPEC;
      msg.tag = tag;
      msg.context = &in;
      must(fi_trecvmsg(owner_->srx, &msg, flags));
    } else {
      fi_msg msg{};
      msg.msg_iov = &iov;
      msg.iov_count = 1;
      msg.addr = FI_ADDR_UNSPEC;
      msg.context = &in;
      must(fi_recvmsg(owner_->srx, &msg, flags));
    }
  }
  void send(const std::vector<uint8_t> &out, bool tagged, uint64_t tag) {
    fid_ep *const ep = (*net_)[kPeer].ep;
    const fi_addr_t to = net_->at(kPeer, kHere);
    net_->post([&] {
      return tagged ? fi_tsend(ep, out.data(), out.size(), nullptr, to, tag, nullptr)
                    : fi_send(ep, out.data(), out.size(), nullptr, to, nullptr);
    });
  }
  void sent() { EXPECT_EQ(net_->wait((*net_)[kPeer].tx_cq).err, 0); }
  Completion next() {
    std::optional<Completion> got;
    EXPECT_TRUE(net_->until([&] { return (got = poll(owner_->cq)).has_value(); }));
    return got.value_or(Completion{});
  }
  // Until the owner has a message without a receive. FI_PEEK tells of it, with `flags`.
  Completion peek(bool tagged, uint64_t tag, uint64_t flags = 0) {
    std::vector<uint8_t> none;
    Completion got;
    EXPECT_TRUE(net_->until([&] {
      recv(tagged, none, tag, FI_PEEK | flags);
      return (got = next()).err == 0;
    }));
    return got;
  }

  fi_peer_cq_context queue_context_{.size = sizeof queue_context_, .cq = nullptr};
  fi_peer_srx_context srx_context_{.size = sizeof srx_context_, .srx = nullptr};
  std::optional<Owner> owner_;
  std::optional<Handle<fid_peer_cq>> queue_;
  std::optional<Handle<fid_ep>> receives_;  // the first member of a fid_peer_srx
  std::optional<Net> net_;
  fi_addr_t itself_ = FI_ADDR_NOTAVAIL;
};

TEST_F(RdmPeerReceives, TakeMessagesOfBoth) {
  open();
  if (IsSkipped()) return;
  for (const size_t size : {0, 100, 20000, 300000}) {
    for (const bool tagged : {false, true}) {
      for (const bool posted_first : {true, false}) {
        SCOPED_TRACE(::testing::Message()
                     << size << " bytes, tagged " << tagged << ", posted first " << posted_first);
        const std::vector<uint8_t> out = pattern(size, 1);
        std::vector<uint8_t> in(size), own(size);
        if (posted_first) recv(tagged, in, 7);
        send(out, tagged, 7);
        if (!posted_first) {
          const Completion seen = peek(tagged, 7);
          EXPECT_EQ(seen.len, size);
          recv(tagged, in, 7);
        }
        const Completion got = next();
        EXPECT_EQ(got.err, 0);
        EXPECT_EQ(got.context, &in);
        EXPECT_EQ(got.len, size);
        EXPECT_EQ(got.tag, tagged ? 7u : 0u);
        EXPECT_EQ(in, out);
        sent();
        recv(tagged, own, 7);
        net_->post([&] {
          return tagged ? fi_tsend(owner_->ep, out.data(), size, nullptr, itself_, 7, nullptr)
                        : fi_send(owner_->ep, out.data(), size, nullptr, itself_, nullptr);
        });
        for (int i = 0; i < 2; ++i) EXPECT_EQ(next().err, 0);
        EXPECT_EQ(own, out);
      }
    }
  }
}

TEST_F(RdmPeerReceives, ReportErrors) {
  open();
  if (IsSkipped()) return;
  std::vector<uint8_t> small(8);
  const std::vector<uint8_t> out = pattern(64, 1);
  recv(true, small, 1);
  send(out, true, 1);
  const Completion cut = next();
  EXPECT_EQ(cut.err, FI_ETRUNC);
  EXPECT_EQ(cut.context, &small);
  EXPECT_EQ(cut.olen, 56u);
  sent();
  recv(true, small, 2);
  must(fi_cancel(owner_->srx.fid(), &small));
  EXPECT_EQ(next().err, FI_ECANCELED);
}

TEST_F(RdmPeerReceives, AreLookedFor) {
  open();
  if (IsSkipped()) return;
  const std::vector<uint8_t> out = pattern(100, 1), large = pattern(300000, 2);
  std::vector<uint8_t> in(100);
  send(out, true, 1);
  send(large, true, 2);
  send(out, true, 3);
  EXPECT_EQ(peek(true, 2, FI_DISCARD).len, large.size());
  sent();
  sent();
  sent();
  EXPECT_EQ(peek(true, 1, 0).len, out.size());
  // A claim is found again by its context.
  const iovec iov{in.data(), in.size()};
  fi_msg_tagged msg{};
  msg.msg_iov = &iov;
  msg.iov_count = 1;
  msg.addr = FI_ADDR_UNSPEC;
  msg.tag = 3;
  msg.context = &in;
  must(fi_trecvmsg(owner_->srx, &msg, FI_PEEK | FI_CLAIM));
  EXPECT_EQ(next().err, 0);
  must(fi_trecvmsg(owner_->srx, &msg, FI_CLAIM));
  EXPECT_EQ(next().context, &in);
  EXPECT_EQ(in, out);
  recv(true, in, 1);
  EXPECT_EQ(next().len, out.size());
}

TEST_F(RdmPeerReceives, FillABufferTogether) {
  open();
  if (IsSkipped()) return;
  std::vector<uint8_t> buffer(1000);
  size_t least = 200;
  must(fi_setopt(owner_->srx.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
  const std::vector<uint8_t> out = pattern(300, 1);
  send(out, false, 0);
  (void)peek(false, 0);
  sent();
  recv(false, buffer, 0, FI_MULTI_RECV);
  send(out, false, 0);
  sent();
  net_->post(
      [&] { return fi_send(owner_->ep, out.data(), out.size(), nullptr, itself_, nullptr); });
  bool ended = false;
  for (size_t got = 0; got < 3 || !ended;) {
    const Completion one = next();
    ASSERT_EQ(one.err, 0);
    if (one.flags & FI_SEND) continue;
    ASSERT_EQ(one.context, &buffer);
    EXPECT_FALSE(ended);
    ended = (one.flags & FI_MULTI_RECV) != 0;
    if ((one.flags & FI_RECV) == 0) continue;
    ++got;
    ASSERT_GE(one.buf, buffer.data());
    EXPECT_EQ(std::memcmp(one.buf, out.data(), out.size()), 0);
  }
}

TEST_F(RdmPeerReceives, AreBusyWhileThePeerHasMessages) {
  open();
  if (IsSkipped()) return;
  const std::vector<uint8_t> out = pattern(100, 1);
  send(out, true, 1);
  (void)peek(true, 1);
  sent();
  EXPECT_EQ(fi_close(owner_->srx.fid()), -FI_EBUSY);
  EXPECT_EQ(fi_close(receives_->fid()), -FI_EBUSY);
  net_.reset();
}

// The peer has a thread of its own; the owner's receives are posted while it brings messages.
TEST_F(RdmPeerReceives, ArePostedWhileThePeerMakesProgress) {
  open(FI_PROGRESS_AUTO);
  if (IsSkipped()) return;
  constexpr size_t kCount = 300;
  std::vector<uint64_t> in(2 * kCount), out(kCount);
  std::thread sender([&] {
    for (size_t i = 0; i < kCount; ++i) {
      out[i] = i;
      while (fi_tinject((*net_)[kPeer].ep, &out[i], 8, net_->at(kPeer, kHere), i) == -FI_EAGAIN)
        std::this_thread::yield();  // the thread that makes room may need this processor
    }
  });
  size_t posted = 0, sent = 0, got = 0;
  while (got < 2 * kCount) {
    if (posted < 2 * kCount &&
        fi_trecv(owner_->srx, &in[posted], 8, nullptr, FI_ADDR_UNSPEC, posted, 0, nullptr) == 0)
      ++posted;
    const uint64_t tag = kCount + sent;
    if (sent < kCount && fi_tinject(owner_->ep, &tag, 8, itself_, tag) == 0) ++sent;
    std::optional<Completion> one;
    const bool waits = posted == 2 * kCount && sent == kCount;
    if (!net_->until([&] { return (one = poll(owner_->cq)).has_value() || !waits; })) {
      ADD_FAILURE() << got << " of " << 2 * kCount;
      break;
    }
    if (!one) continue;
    EXPECT_EQ(one->err, 0);
    ++got;
  }
  sender.join();
  for (size_t i = 0; i < 2 * kCount; ++i) EXPECT_EQ(in[i], i);
}

// ---- event queues ----

struct EventEntry {
  uint32_t event = 0;
  fi_eq_entry entry{};
};
std::optional<EventEntry> read_event(fid_eq *eq) {
  EventEntry got;
  const ssize_t n = fi_eq_read(eq, &got.event, &got.entry, sizeof got.entry, 0);
  if (n == -FI_EAGAIN) return {};
  EXPECT_EQ(n, ssize_t(sizeof got.entry));
  return got;
}

TEST_F(RdmPeer, TheOwnersEventQueueGetsEvents) {
  RDM_NEEDS(FI_PEER);
  Owner owner;
  fi_eq_attr attr{};
  attr.flags = FI_WRITE;
  Handle<fid_eq> owners, reads_only;
  must(fi_eq_open(owner.fabric, &attr, owners.out(), nullptr));
  attr.flags = 0;
  must(fi_eq_open(owner.fabric, &attr, reads_only.out(), nullptr));
  Options options;
  options.caps |= FI_PEER;
  Node node(options), other(options);
  fi_peer_eq_context context{.size = sizeof context, .eq = owners};
  attr.flags = FI_PEER;
  Handle<fid_eq> imported;
  must(fi_eq_open(node.fabric, &attr, imported.out(), &context));
  EXPECT_EQ(imported.fid()->context, owners.get());
  fi_av_attr av_attr{};
  av_attr.flags = FI_EVENT;
  Handle<fid_av> av;
  const int rc = fi_av_open(node.domain, &av_attr, av.out(), nullptr);
  if (rc == -FI_EBADFLAGS) GTEST_SKIP() << stack() << " inserts at once: without events";
  must(rc);
  must(fi_av_bind(av, imported.fid(), 0));
  const auto insert = [&](const std::string &address) {
    fi_addr_t at = FI_ADDR_NOTAVAIL;
    must(insert_address(av, address, &at, 0, &options));
  };
  insert(other.name());
  std::optional<EventEntry> got = read_event(owners);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->event, uint32_t(FI_AV_COMPLETE));
  EXPECT_EQ(got->entry.fid, av.fid());
  EXPECT_EQ(got->entry.context, &options);
  EXPECT_EQ(got->entry.data, 1u);
  EXPECT_EQ(fi_eq_read(imported, &got->event, nullptr, 0, 0), 0);

  // fi_eq_write has no form for an error: the owner reads it from the peer's queue. What comes
  // behind it waits.
  insert(std::string(other.name().size(), '\xff'));
  EXPECT_FALSE(read_event(owners));
  EXPECT_EQ(fi_eq_read(imported, &got->event, nullptr, 0, 0), -FI_EAVAIL);
  fi_eq_err_entry error{};
  EXPECT_EQ(fi_eq_readerr(imported, &error, 0), ssize_t(sizeof error));
  EXPECT_EQ(error.fid, av.fid());
  EXPECT_NE(error.err, 0);
  got = read_event(owners);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->entry.data, 0u);

  // Reading, waiting and writing is the owner's.
  EXPECT_EQ(fi_eq_read(imported, &got->event, &got->entry, sizeof got->entry, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_eq_sread(imported, &got->event, &got->entry, sizeof got->entry, 0, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_eq_write(imported, FI_NOTIFY, &got->entry, sizeof got->entry, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_close(imported.fid()), -FI_EBUSY);

  // No owner, one that cannot be waited for here, and one that nobody may write to.
  fid_eq *none = nullptr;
  EXPECT_EQ(fi_eq_open(node.fabric, &attr, &none, nullptr), -FI_EINVAL);
  attr.wait_obj = FI_WAIT_FD;
  EXPECT_EQ(fi_eq_open(node.fabric, &attr, &none, &context), -FI_EINVAL);
  attr.wait_obj = FI_WAIT_NONE;
  context.eq = reads_only;
  Handle<fid_eq> vain;
  must(fi_eq_open(node.fabric, &attr, vain.out(), &context));
  Handle<fid_av> second;
  must(fi_av_open(node.domain, &av_attr, second.out(), nullptr));
  must(fi_av_bind(second, vain.fid(), 0));
  fi_addr_t at = FI_ADDR_NOTAVAIL;
  must(insert_address(second, other.name(), &at, 0, &options));
  EXPECT_EQ(fi_eq_read(vain, &got->event, nullptr, 0, 0), -FI_EAVAIL);
  EXPECT_EQ(fi_eq_readerr(vain, &error, 0), ssize_t(sizeof error));
  EXPECT_EQ(error.err, FI_EINVAL);
  EXPECT_EQ(error.context, &options);
}

TEST_F(RdmPeer, AddressVectorsAndTheirSetsAreShared) {
  RDM_NEEDS(FI_PEER);
  Owner owner;
  const auto vector = lend<fid_peer_av>(owner.av.get(), FI_CLASS_PEER_AV);
  fi_peer_av_context context{.size = sizeof context, .av = vector};
  EXPECT_EQ(vector->owner_ops->ep_addr(vector, owner.ep), FI_ADDR_NOTAVAIL);
  const fi_addr_t itself = owner.insert();
  EXPECT_EQ(vector->owner_ops->ep_addr(vector, owner.ep), itself);
  fi_av_attr attr{};
  ASSERT_EQ(vector->owner_ops->query(vector, &attr), 0);
  EXPECT_EQ(attr.type, FI_AV_TABLE);
  EXPECT_EQ(attr.count, 1u);

  // A vector of the stack under test beside it, of the same kind.
  Options options;
  options.caps |= FI_PEER;
  Node node(options), other(options);
  attr = {};
  attr.flags = FI_PEER;
  Handle<fid_av> own;
  must(fi_av_open(node.domain, &attr, own.out(), &context));
  EXPECT_EQ(attr.type, FI_AV_TABLE);
  fi_av_attr map{};
  map.type = FI_AV_MAP;
  map.flags = FI_PEER;
  fid_av *none = nullptr;
  EXPECT_EQ(fi_av_open(node.domain, &map, &none, &context), -FI_EINVAL) << "another type";
  map.flags = FI_PEER;
  EXPECT_EQ(fi_av_open(node.domain, &map, &none, nullptr), -FI_EINVAL) << "no owner";

  // The owner's set, and one here with its members.
  fi_av_set_attr set_attr{};
  set_attr.start_addr = set_attr.end_addr = FI_ADDR_NOTAVAIL;
  Handle<fid_av_set> set;
  must(fi_av_set(owner.av, &set_attr, set.out(), nullptr));
  must(fi_av_set_insert(set, itself));
  const auto lent = lend<fid_peer_av_set>(set.get(), FI_CLASS_PEER_AV_SET);
  size_t count = 0;
  EXPECT_EQ(lent->owner_ops->members(lent, nullptr, &count), -FI_ETOOSMALL);
  EXPECT_EQ(count, 1u);
  fi_peer_av_set_context set_context{};
  set_context.size = sizeof set_context;
  set_context.av_set = reinterpret_cast<fi_peer_av_set *>(lent.get());
  set_attr.flags = FI_PEER;
  fid_av_set *refused = nullptr;
  EXPECT_EQ(fi_av_set(own, &set_attr, &refused, &set_context), -FI_EINVAL)
      << "the address is not in this vector";
  fi_addr_t at = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(insert_address(own, other.name(), &at, 0, nullptr), 1);
  ASSERT_EQ(at, itself);
  Handle<fid_av_set> here;
  must(fi_av_set(own, &set_attr, here.out(), &set_context));
  const auto again = lend<fid_peer_av_set>(here.get(), FI_CLASS_PEER_AV_SET);
  fi_addr_t member = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(again->owner_ops->members(again, &member, &count), 0);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(member, itself);
}

// Objects that nobody uses here (fi_peer.3, PEER DOMAIN): -FI_EINVAL, as for an invalid flag.
TEST_F(RdmPeer, ADomainOfAnOwnerIsRefused) {
  RDM_NEEDS(FI_PEER);
  Node node{Options{}};
  fi_peer_domain_context context{.size = sizeof context, .domain = node.domain};
  fid_domain *domain = nullptr;
  EXPECT_EQ(fi_domain2(node.fabric, node.info.get(), &domain, FI_PEER, &context), -FI_EINVAL);
}

}  // namespace
}  // namespace weft::conformance::rdm
