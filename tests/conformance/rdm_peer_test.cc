// SPDX-License-Identifier: BSD-2-Clause
// Objects that another provider owns (fi_peer.3): a completion queue, a counter and a shared receive
// context of the test's own, into which the stack reports.
#include <rdma/providers/fi_peer.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <thread>

#include "tests/conformance/rdm_harness.h"

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

}  // namespace
}  // namespace weft::conformance::rdm
