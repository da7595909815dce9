// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/levels.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <ostream>

namespace weft::conformance {
namespace {

constexpr size_t kBytes = 8;

// A call, and what it names.
struct Call {
  fid_ep *ep = nullptr;
  fi_addr_t to = FI_ADDR_UNSPEC;
  uint64_t at = 0, key = 0;
  char *out = nullptr, *result = nullptr, *compare = nullptr;
  void *context = nullptr;
  uint64_t level = 0;

  ssize_t send(uint64_t flags, bool tagged) const {
    const iovec iov{out, kBytes};
    fi_msg_tagged message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = to;
    message.context = context;
    fi_msg untagged{};
    untagged.msg_iov = &iov;
    untagged.iov_count = 1;
    untagged.addr = to;
    untagged.context = context;
    return tagged ? fi_tsendmsg(ep, &message, flags) : fi_sendmsg(ep, &untagged, flags);
  }
  ssize_t write(uint64_t flags) const {
    const iovec iov{out, kBytes};
    const fi_rma_iov rma{at, kBytes, key};
    fi_msg_rma message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = to;
    message.rma_iov = &rma;
    message.rma_iov_count = 1;
    message.context = context;
    return fi_writemsg(ep, &message, flags);
  }
  ssize_t atomic(uint64_t flags) const {
    const fi_ioc iov{out, 1};
    const fi_rma_ioc rma{at, 1, key};
    fi_msg_atomic message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = to;
    message.rma_iov = &rma;
    message.rma_iov_count = 1;
    message.datatype = FI_UINT64;
    message.op = FI_SUM;
    message.context = context;
    return fi_atomicmsg(ep, &message, flags);
  }
};

struct Operation {
  const char *name;
  uint64_t caps;
  uint64_t counts;  // FI_SEND, FI_WRITE or FI_READ
  bool has_entry;
  ssize_t (*start)(const Call &call);
  bool has_data = false;
  bool is_tagged() const { return caps == FI_TAGGED; }
};

constexpr uint64_t kEntry = FI_COMPLETION;
constexpr Operation kOperations[] = {
    {"fi_send", FI_MSG, FI_SEND, true,
     [](const Call &c) { return fi_send(c.ep, c.out, kBytes, nullptr, c.to, c.context); }},
    {"fi_sendmsg", FI_MSG, FI_SEND, true,
     [](const Call &c) { return c.send(kEntry | c.level, false); }},
    {"fi_sendmsg, FI_INJECT", FI_MSG, FI_SEND, true,
     [](const Call &c) { return c.send(kEntry | FI_INJECT | c.level, false); }},
    {"fi_sendmsg, FI_INJECT alone", FI_MSG, FI_SEND, true,
     [](const Call &c) { return c.send(FI_INJECT, false); }},
    {"fi_inject", FI_MSG, FI_SEND, false,
     [](const Call &c) { return fi_inject(c.ep, c.out, kBytes, c.to); }},
    {"fi_injectdata", FI_MSG, FI_SEND, false,
     [](const Call &c) { return fi_injectdata(c.ep, c.out, kBytes, 7, c.to); }},
    {"fi_tsend", FI_TAGGED, FI_SEND, true,
     [](const Call &c) { return fi_tsend(c.ep, c.out, kBytes, nullptr, c.to, 0, c.context); }},
    {"fi_tsendmsg, FI_INJECT", FI_TAGGED, FI_SEND, true,
     [](const Call &c) { return c.send(kEntry | FI_INJECT | c.level, true); }},
    {"fi_tinject", FI_TAGGED, FI_SEND, false,
     [](const Call &c) { return fi_tinject(c.ep, c.out, kBytes, c.to, 0); }},
    {"fi_tinjectdata", FI_TAGGED, FI_SEND, false,
     [](const Call &c) { return fi_tinjectdata(c.ep, c.out, kBytes, 7, c.to, 0); }},
    {"fi_write", FI_RMA, FI_WRITE, true,
     [](const Call &c) {
       return fi_write(c.ep, c.out, kBytes, nullptr, c.to, c.at, c.key, c.context);
     }},
    {"fi_writemsg", FI_RMA, FI_WRITE, true,
     [](const Call &c) { return c.write(kEntry | c.level); }},
    {"fi_writemsg, FI_INJECT", FI_RMA, FI_WRITE, true,
     [](const Call &c) { return c.write(kEntry | FI_INJECT | c.level); }},
    {"fi_writemsg, FI_INJECT alone", FI_RMA, FI_WRITE, true,
     [](const Call &c) { return c.write(FI_INJECT); }},
    {"fi_inject_write", FI_RMA, FI_WRITE, false,
     [](const Call &c) { return fi_inject_write(c.ep, c.out, kBytes, c.to, c.at, c.key); }},
    {"fi_inject_writedata", FI_RMA, FI_WRITE, false,
     [](const Call &c) { return fi_inject_writedata(c.ep, c.out, kBytes, 7, c.to, c.at, c.key); },
     true},
    {"fi_read", FI_RMA, FI_READ, true,
     [](const Call &c) {
       return fi_read(c.ep, c.result, kBytes, nullptr, c.to, c.at, c.key, c.context);
     }},
    {"fi_atomic", FI_ATOMIC, FI_WRITE, true,
     [](const Call &c) {
       return fi_atomic(c.ep, c.out, 1, nullptr, c.to, c.at, c.key, FI_UINT64, FI_SUM, c.context);
     }},
    {"fi_atomicmsg, FI_INJECT", FI_ATOMIC, FI_WRITE, true,
     [](const Call &c) { return c.atomic(kEntry | FI_INJECT | c.level); }},
    {"fi_inject_atomic", FI_ATOMIC, FI_WRITE, false,
     [](const Call &c) {
       return fi_inject_atomic(c.ep, c.out, 1, c.to, c.at, c.key, FI_UINT64, FI_SUM);
     }},
    {"fi_fetch_atomic", FI_ATOMIC, FI_READ, true,
     [](const Call &c) {
       return fi_fetch_atomic(c.ep, c.out, 1, nullptr, c.result, nullptr, c.to, c.at, c.key,
                              FI_UINT64, FI_SUM, c.context);
     }},
    {"fi_compare_atomic", FI_ATOMIC, FI_READ, true,
     [](const Call &c) {
       return fi_compare_atomic(c.ep, c.out, 1, nullptr, c.compare, nullptr, c.result, nullptr,
                                c.to, c.at, c.key, FI_UINT64, FI_CSWAP, c.context);
     }},
};

// Whether an operation completes only by what the target does, in calls of its own.
bool needs_the_target(const Operation &operation, uint64_t level, enum fi_ep_type type) {
  if (is_matched_by_a_nic(type)) return false;
  const bool is_message = operation.counts == FI_SEND;
  if (is_over_a_device(type))  // which does the remote accesses, and acknowledges packets
    return type == FI_EP_RDM && is_message && level == FI_DELIVERY_COMPLETE;
  return operation.counts == FI_READ || level != FI_INJECT_COMPLETE;
}

// What the initiator is told: by its queue, and by the counter of each kind.
struct Told {
  size_t entries = 0;
  std::array<uint64_t, 3> counts{};
  bool operator==(const Told &) const = default;
};
std::ostream &operator<<(std::ostream &out, const Told &told) {
  return out << told.entries << " entries, counters " << told.counts[0] << ' ' << told.counts[1]
             << ' ' << told.counts[2];
}

size_t place_of(uint64_t counts) {
  return counts == FI_SEND ? 0 : counts == FI_WRITE ? 1 : 2;
}

// One operation after the other on the same endpoints.
class Course {
 public:
  explicit Course(LevelTest &test) : test_(test) {
    region_ = test.target->expose(memory_, sizeof memory_, kAccess, 1);
    call_ = {.ep = test.initiator->ep,
             .to = test.to,
             .at = test.target->base_of(memory_),
             .key = fi_mr_key(region_),
             .out = out_,
             .result = result_,
             .compare = compare_,
             .context = out_,
             .level = test.level};
  }

  void take(const Operation &operation) {
    SCOPED_TRACE(operation.name);
    const bool takes_a_receive = operation.has_data && is_of_a_device(test_.type);
    if (operation.counts == FI_SEND || takes_a_receive) post_receive(operation.is_tagged());
    const Told before = told();
    Told after = before;
    after.entries += operation.has_entry;
    if (test_.counters[0] != nullptr) ++after.counts[place_of(operation.counts)];
    test_.let_target_sleep(true);
    test_.driver->post([&] { return operation.start(call_); });
    test_.driver->settle();
    if (needs_the_target(operation, test_.level, test_.type)) {
      EXPECT_EQ(told(), before) << "the target has done nothing yet";
    }
    test_.let_target_sleep(false);
    EXPECT_TRUE(test_.driver->until([&] { return told() == after; })) << told();
    if (operation.counts == FI_SEND) {
      EXPECT_EQ(test_.driver->wait(test_.target->receive_cq()).err, 0);
    }
    test_.driver->settle();
    EXPECT_EQ(told(), after) << "told more than once";
    while (poll_cq(test_.target->receive_cq())) {  // remote data of a write
    }
  }

 private:
  static constexpr uint64_t kAccess = FI_REMOTE_READ | FI_REMOTE_WRITE;

  void post_receive(bool tagged) {
    fid_ep *const ep = test_.target->ep;
    must(tagged ? fi_trecv(ep, in_, kBytes, nullptr, FI_ADDR_UNSPEC, 0, 0, in_)
                : fi_recv(ep, in_, kBytes, nullptr, FI_ADDR_UNSPEC, in_));
  }
  Told told() {
    while (const auto done = poll_cq(test_.initiator->tx_cq)) {
      EXPECT_EQ(done->err, 0) << fi_strerror(done->err);
      ++entries_;
    }
    Told told{.entries = entries_};
    for (size_t i = 0; i < test_.counters.size(); ++i)
      if (test_.counters[i] != nullptr) {
        told.counts[i] = fi_cntr_read(test_.counters[i]);
        EXPECT_EQ(fi_cntr_readerr(test_.counters[i]), 0u);
      }
    return told;
  }

  LevelTest &test_;
  alignas(8) char memory_[64] = {};
  alignas(8) char out_[kBytes] = {1}, in_[kBytes] = {}, result_[kBytes] = {}, compare_[kBytes] = {};
  fid_mr *region_;
  Call call_;
  size_t entries_ = 0;
};

}  // namespace

void LevelTest::run() {
  Course course(*this);
  for (const Operation &operation : kOperations)
    if ((initiator->options.caps & operation.caps) != 0) course.take(operation);
  initiator->ep.reset();  // before the memory that its operations name
  target->ep.reset();
  target->regions.clear();
}

}  // namespace weft::conformance
