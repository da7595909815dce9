// SPDX-License-Identifier: BSD-2-Clause
// The examples that move messages, loop and crc over loop, in a program: the same tests for both
// stacks. ctest runs each test in a process of its own (examples/CMakeLists.txt).
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <weft/plugin.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

struct DeleteInfo {
  void operator()(fi_info *info) const { fi_freeinfo(info); }
};
using InfoPointer = std::unique_ptr<fi_info, DeleteInfo>;

// FI_EP_RDM of a stack ("loop", "loop;crc").
InfoPointer info_of(const char *stack) {
  const InfoPointer hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_RDM;
  hints->fabric_attr->prov_name = strdup(stack);
  fi_info *info = nullptr;
  EXPECT_EQ(fi_getinfo(FI_VERSION(2, 6), nullptr, nullptr, 0, hints.get(), &info), 0) << stack;
  return InfoPointer(info);
}
const char *stack_of_test() {
  return std::getenv("FI_PROVIDER");
}

// An application with one endpoint, and all objects of its own.
class Application {
 public:
  // `known`: a peer whose address is in the vector before fi_enable.
  explicit Application(const char *stack = stack_of_test(), Application *known = nullptr)
      : info_(info_of(stack)) {
    if (info_ == nullptr) return;
    fi_cq_attr cq_attr{.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    fi_av_attr av_attr{.type = FI_AV_TABLE};
    EXPECT_EQ(fi_fabric(info_->fabric_attr, &fabric, nullptr), 0);
    EXPECT_EQ(fi_domain(fabric, info_.get(), &domain, nullptr), 0);
    EXPECT_EQ(fi_cq_open(domain, &cq_attr, &cq, nullptr), 0);
    EXPECT_EQ(fi_av_open(domain, &av_attr, &av, nullptr), 0);
    EXPECT_EQ(fi_endpoint(domain, info_.get(), &ep, nullptr), 0);
    EXPECT_EQ(fi_enable(ep), -FI_ENOAV);
    EXPECT_EQ(fi_ep_bind(ep, &av->fid, 0), 0);
    EXPECT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    EXPECT_EQ(fi_send(ep, "x", 1, nullptr, 0, nullptr), -FI_EOPBADSTATE);
    if (known != nullptr) {
      EXPECT_EQ(insert(*known), 0u);
    }
    EXPECT_EQ(fi_enable(ep), 0);
  }
  ~Application() {
    if (info_ == nullptr) return;
    if (ep != nullptr) {
      EXPECT_EQ(fi_close(&cq->fid), -FI_EBUSY);
      close_endpoint();
    }
    EXPECT_EQ(fi_close(&av->fid), 0);
    EXPECT_EQ(fi_close(&cq->fid), 0);
    EXPECT_EQ(fi_close(&domain->fid), 0);
    EXPECT_EQ(fi_close(&fabric->fid), 0);
  }
  void close_endpoint() {
    EXPECT_EQ(fi_close(&ep->fid), 0);
    ep = nullptr;
  }

  fi_addr_t insert(Application &peer) {
    char address[64];
    size_t length = sizeof address;
    fi_addr_t name = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(fi_getname(&peer.ep->fid, address, &length), 0);
    EXPECT_EQ(fi_av_insert(av, address, 1, &name, 0, nullptr), 1);
    return name;
  }
  fi_cq_tagged_entry wait() {
    fi_cq_tagged_entry entry{};
    const ssize_t n = fi_cq_sread(cq, &entry, 1, nullptr, -1);
    EXPECT_EQ(n, 1) << fi_strerror(int(-n));
    return entry;
  }
  fi_cq_err_entry wait_for_error() {
    fi_cq_tagged_entry entry{};
    EXPECT_EQ(fi_cq_sread(cq, &entry, 1, nullptr, -1), -FI_EAVAIL);
    fi_cq_err_entry error{};
    EXPECT_EQ(fi_cq_readerr(cq, &error, 0), 1);
    return error;
  }
  const fi_info &info() const { return *info_; }

  fid_fabric *fabric = nullptr;
  fid_domain *domain = nullptr;
  fid_cq *cq = nullptr;
  fid_av *av = nullptr;
  fid_ep *ep = nullptr;

 private:
  InfoPointer info_;
};

TEST(ExampleMessages, Exchange) {
  Application a, b;
  const fi_addr_t to_b = a.insert(b);
  EXPECT_STREQ(a.info().fabric_attr->prov_name, stack_of_test());

  // A posted receive, in two vectors.
  char first[4] = "", second[16] = "", context_of_send;
  const iovec in[] = {{first, 3}, {second, sizeof second}};
  ASSERT_EQ(fi_recvv(b.ep, in, nullptr, 2, FI_ADDR_UNSPEC, first), 0);
  ASSERT_EQ(fi_senddata(a.ep, "message", 8, nullptr, 42, to_b, &context_of_send), 0);
  fi_cq_tagged_entry done = a.wait();
  EXPECT_EQ(done.op_context, &context_of_send);
  EXPECT_EQ(done.flags, FI_SEND | FI_MSG);
  done = b.wait();
  EXPECT_EQ(done.op_context, first);
  EXPECT_EQ(done.flags, FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA);
  EXPECT_EQ(done.len, 8u);
  EXPECT_EQ(done.data, 42u);
  EXPECT_STREQ(first, "mes");
  EXPECT_STREQ(second, "sage");

  // Messages that come before their receives, which take them by tag.
  ASSERT_EQ(fi_tinject(a.ep, "one", 4, to_b, 1), 0);
  ASSERT_EQ(fi_tinject(a.ep, "two", 4, to_b, 2), 0);
  ASSERT_EQ(fi_trecv(b.ep, second, sizeof second, nullptr, FI_ADDR_UNSPEC, 2, 0, second), 0);
  done = b.wait();
  EXPECT_EQ(done.tag, 2u);
  EXPECT_EQ(done.flags, FI_RECV | FI_TAGGED);
  EXPECT_STREQ(second, "two");
  ASSERT_EQ(fi_trecv(b.ep, second, sizeof second, nullptr, FI_ADDR_UNSPEC, 0, ~0ull, second), 0);
  done = b.wait();
  EXPECT_EQ(done.tag, 1u);
  EXPECT_STREQ(second, "one");

  // An empty message, and one that is too long.
  ASSERT_EQ(fi_recv(b.ep, nullptr, 0, nullptr, FI_ADDR_UNSPEC, &a), 0);
  ASSERT_EQ(fi_inject(a.ep, nullptr, 0, to_b), 0);
  EXPECT_EQ(b.wait().len, 0u);
  ASSERT_EQ(fi_recv(b.ep, first, 2, nullptr, FI_ADDR_UNSPEC, &b), 0);
  ASSERT_EQ(fi_inject(a.ep, "four", 4, to_b), 0);
  const fi_cq_err_entry error = b.wait_for_error();
  EXPECT_EQ(error.err, FI_ETRUNC);
  EXPECT_EQ(error.olen, 2u);
  EXPECT_EQ(error.len, 2u);
  EXPECT_EQ(error.op_context, &b);
}

TEST(ExampleMessages, APeerMayBeInsertedBeforeFiEnable) {
  Application b;
  Application a(stack_of_test(), &b);
  char room[8] = "";
  ASSERT_EQ(fi_recv(b.ep, room, sizeof room, nullptr, FI_ADDR_UNSPEC, room), 0);
  ASSERT_EQ(fi_inject(a.ep, "hello", 6, 0), 0);
  b.wait();
  EXPECT_STREQ(room, "hello");
}

TEST(ExampleMessages, Refusals) {
  Application a, b;
  const fi_addr_t to_b = a.insert(b);
  EXPECT_EQ(fi_send(a.ep, "x", 1, nullptr, to_b + 1, nullptr), -FI_EINVAL);
  const std::vector<char> large(a.info().tx_attr->inject_size + 1);
  EXPECT_EQ(fi_inject(a.ep, large.data(), large.size(), to_b), -FI_EMSGSIZE);
  iovec vectors[5]{};
  EXPECT_EQ(fi_recvv(b.ep, vectors, nullptr, 5, FI_ADDR_UNSPEC, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_read(a.ep, vectors, 0, nullptr, to_b, 0, 0, nullptr), -FI_EOPNOTSUPP);

  char room[8];
  ASSERT_EQ(fi_recv(b.ep, room, sizeof room, nullptr, FI_ADDR_UNSPEC, room), 0);
  EXPECT_EQ(fi_cancel(&b.ep->fid, &a), -FI_ENOENT);
  EXPECT_EQ(fi_cancel(&b.ep->fid, room), 0);
  EXPECT_EQ(b.wait_for_error().err, FI_ECANCELED);

  // The port of b, but another host.
  sockaddr_in elsewhere{};
  size_t length = sizeof elsewhere;
  ASSERT_EQ(fi_getname(&b.ep->fid, &elsewhere, &length), 0);
  elsewhere.sin_addr.s_addr = htonl(0x0a000001);
  fi_addr_t to_elsewhere = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(a.av, &elsewhere, 1, &to_elsewhere, 0, nullptr), 1);
  ASSERT_EQ(fi_send(a.ep, "x", 1, nullptr, to_elsewhere, room), 0);
  EXPECT_EQ(a.wait_for_error().err, FI_EHOSTUNREACH);

  fi_addr_t removed = to_b;
  b.close_endpoint();
  ASSERT_EQ(fi_send(a.ep, "x", 1, nullptr, to_b, room), 0);
  const fi_cq_err_entry error = a.wait_for_error();
  EXPECT_EQ(error.err, FI_EHOSTUNREACH);
  EXPECT_EQ(error.op_context, room);
  ASSERT_EQ(fi_av_remove(a.av, &removed, 1, 0), 0);
  EXPECT_EQ(fi_send(a.ep, "x", 1, nullptr, to_b, nullptr), -FI_EINVAL);
}

// A receiver that makes no progress stops its sender. One that makes progress, but posts no
// receive, saves messages, and stops its sender later. Nothing is lost.
TEST(ExampleMessages, AReceiverWithoutReceivesStopsItsSender) {
  Application a, b;
  const fi_addr_t to_b = a.insert(b);
  uint64_t sent = 0;
  const auto send_all = [&] {
    while (fi_inject(a.ep, &sent, sizeof sent, to_b) == 0) ++sent;
    EXPECT_EQ(fi_inject(a.ep, &sent, sizeof sent, to_b), -FI_EAGAIN);
    return sent;
  };
  const uint64_t on_wire = send_all();
  EXPECT_GT(on_wire, 0u);
  fi_cq_tagged_entry none;
  for (uint64_t before = UINT64_MAX; before != sent; send_all()) {
    before = sent;
    EXPECT_EQ(fi_cq_read(b.cq, &none, 1), -FI_EAGAIN);
    EXPECT_EQ(fi_cq_read(a.cq, &none, 1), -FI_EAGAIN);
  }
  EXPECT_GT(sent, 2 * on_wire);
  for (uint64_t i = 0; i < sent; ++i) {
    uint64_t got = UINT64_MAX;
    ASSERT_EQ(fi_recv(b.ep, &got, sizeof got, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    b.wait();
    ASSERT_EQ(got, i);
  }
  EXPECT_EQ(fi_inject(a.ep, &sent, sizeof sent, to_b), 0);
}

// Threads that block wake each other.
TEST(ExampleMessages, BlockedThreads) {
  constexpr uint64_t kRounds = 2000;
  Application a, b;
  const fi_addr_t to_a = b.insert(a), to_b = a.insert(b);
  std::thread other([&] {
    for (uint64_t i = 0; i < kRounds; ++i) {
      uint64_t got = 0;
      EXPECT_EQ(fi_recv(b.ep, &got, sizeof got, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
      b.wait();
      EXPECT_EQ(got, i);
      EXPECT_EQ(fi_inject(b.ep, &i, sizeof i, to_a), 0);
    }
  });
  for (uint64_t i = 0; i < kRounds; ++i) {
    uint64_t got = 0;
    EXPECT_EQ(fi_recv(a.ep, &got, sizeof got, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    EXPECT_EQ(fi_inject(a.ep, &i, sizeof i, to_b), 0);
    a.wait();
    EXPECT_EQ(got, i);
  }
  other.join();
}

// FI_PROVIDER allows both stacks. What comes from an endpoint without the layer has no checksum.
TEST(ExampleMessages, DamageIsAnError) {
  Application plain("loop"), checked("loop;crc");
  const fi_addr_t to_checked = plain.insert(checked);
  char room[32];
  ASSERT_EQ(fi_recv(checked.ep, room, sizeof room, nullptr, FI_ADDR_UNSPEC, room), 0);
  ASSERT_EQ(fi_inject(plain.ep, "no header here", 15, to_checked), 0);
  const fi_cq_err_entry error = checked.wait_for_error();
  EXPECT_EQ(error.err, FI_EIO);
  EXPECT_EQ(error.op_context, room);

  weft_counters_ops *ops = nullptr;
  ASSERT_EQ(fi_open_ops(&checked.fabric->fid, WEFT_COUNTERS_OPS, 0, reinterpret_cast<void **>(&ops),
                        nullptr),
            0);
  weft_counter counters[8];
  ASSERT_EQ(ops->read(&checked.fabric->fid, counters, 8), 2u);
  EXPECT_STREQ(counters[1].name, "messages_damaged");
  EXPECT_EQ(counters[1].value, 1u);
}

// A node elsewhere: the answer says why there is none.
TEST(ExampleMessages, OtherNodes) {
  fi_info *info = nullptr;
  EXPECT_EQ(fi_getinfo(FI_VERSION(2, 6), "192.0.2.1", "7", 0, nullptr, &info), -FI_ENODATA);
  ASSERT_EQ(fi_getinfo(FI_VERSION(2, 6), "127.0.0.1", "7", FI_SOURCE, nullptr, &info), 0);
  const InfoPointer here(info);
  EXPECT_NE(here->src_addr, nullptr);
  EXPECT_EQ(here->dest_addr, nullptr);
}

}  // namespace
