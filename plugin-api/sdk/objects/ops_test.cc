// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/objects/ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>

#include "weft/sdk/objects/fid.h"

namespace weft::sdk::ops_test {
namespace {

class Base {
 public:
  ssize_t tsend(const void *, size_t len, void *, fi_addr_t, uint64_t tag, void *) {
    return static_cast<ssize_t>(len + tag);
  }
};

class Ep final : public Object<Ep, fid_ep>, public Base {
 public:
  Ep() : Object(nullptr, FI_CLASS_EP, nullptr) { fill_tables(*this); }
  int close() { return ++closed > 1 ? -FI_EBUSY : 0; }
  int tostr(char *buf, size_t len) const {
    copied = snprintf(buf, len, "ep");
    return 0;
  }
  ssize_t cancel(void *context) noexcept {
    cancelled = context;
    return 0;
  }
  int getname(void *, size_t *addrlen) {
    *addrlen = 28;
    return -FI_ETOOSMALL;
  }
  ssize_t send(const void *, size_t len, void *, fi_addr_t, void *) {
    sent += len;
    return 0;
  }
  ssize_t send(const char *text) { return send(text, std::strlen(text), nullptr, 0, nullptr); }
  ssize_t sendv(const struct iovec *, void **, size_t, fi_addr_t, void *) {
    throw std::bad_alloc();
  }
  ssize_t inject(const void *, size_t, fi_addr_t) { throw std::runtime_error("no"); }
  ssize_t inject_write(const void *, size_t len, fi_addr_t, uint64_t addr, uint64_t key) {
    return static_cast<ssize_t>(len + addr + key);
  }
  ssize_t write(const void *, size_t, void *, fi_addr_t, uint64_t, uint64_t, void *) { return 11; }
  ssize_t atomic(const void *, size_t, void *, fi_addr_t, uint64_t, uint64_t, enum fi_datatype,
                 enum fi_op, void *) {
    return 12;
  }

  int closed = 0;
  mutable int copied = 0;
  size_t sent = 0;
  void *cancelled = nullptr;
};

TEST(Ops, MembersAreCalledWithTheObject) {
  Ep ep;
  int mark = 0;
  EXPECT_EQ(fi_send(ep.c(), "abc", 3, nullptr, 0, nullptr), 0);
  EXPECT_EQ(ep.sent, 3u);
  EXPECT_EQ(ep.send("four"), 0);
  EXPECT_EQ(fi_cancel(ep.base(), &mark), 0);
  EXPECT_EQ(ep.cancelled, &mark);
  EXPECT_EQ(fi_inject_write(ep.c(), "abc", 3, 0, 40, 500), 543);
  EXPECT_EQ(fi_write(ep.c(), "", 0, nullptr, 0, 0, 0, nullptr), 11);
  EXPECT_EQ(fi_atomic(ep.c(), "", 0, nullptr, 0, 0, 0, FI_INT8, FI_SUM, nullptr), 12);
  EXPECT_EQ(fi_tsend(ep.c(), "abc", 3, nullptr, 0, 7, nullptr), 10);
  size_t length = 0;
  EXPECT_EQ(fi_getname(ep.base(), nullptr, &length), -FI_ETOOSMALL);
  EXPECT_EQ(length, 28u);
  char text[8];
  EXPECT_EQ(ep.base()->ops->tostr(ep.base(), text, sizeof text), 0);
  EXPECT_STREQ(text, "ep");
  EXPECT_EQ(fi_close(ep.base()), 0);
  EXPECT_EQ(fi_close(ep.base()), -FI_EBUSY);
}

TEST(Ops, AnExceptionBecomesAnErrno) {
  Ep ep;
  EXPECT_EQ(fi_sendv(ep.c(), nullptr, nullptr, 0, 0, nullptr), -FI_ENOMEM);
  EXPECT_EQ(fi_inject(ep.c(), nullptr, 0, 0), -FI_EOTHER);
}

TEST(Ops, AbsentMembersAreStubs) {
  Ep ep;
  EXPECT_EQ(fi_recv(ep.c(), nullptr, 0, nullptr, 0, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_trecv(ep.c(), nullptr, 0, nullptr, 0, 0, 0, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_connect(ep.c(), nullptr, nullptr, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_ep_bind(ep.c(), nullptr, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_barrier(ep.c(), 0, nullptr), -FI_ENOSYS);
}

TEST(Ops, FillTablesSetsWhatTheFidHas) {
  Ep ep;
  EXPECT_EQ(ep.base()->ops, fid_ops<Ep>());
  EXPECT_EQ(ep.c()->ops, ep_ops<Ep>());
  EXPECT_EQ(ep.c()->cm, cm_ops<Ep>());
  EXPECT_EQ(ep.c()->msg, msg_ops<Ep>());
  EXPECT_EQ(ep.c()->rma, rma_ops<Ep>());
  EXPECT_EQ(ep.c()->tagged, tagged_ops<Ep>());
  EXPECT_EQ(ep.c()->atomic, atomic_ops<Ep>());
  EXPECT_EQ(ep.c()->collective, collective_ops<Ep>());
  class Domain final : public Object<Domain, fid_domain> {
   public:
    Domain() : Object(nullptr, FI_CLASS_DOMAIN, nullptr) { fill_tables(*this); }
    int close() { return 0; }
  } domain;
  EXPECT_EQ(domain.c()->ops, domain_ops<Domain>());
  EXPECT_EQ(domain.c()->mr, mr_ops<Domain>());
  class Mr final : public Object<Mr, fid_mr> {
   public:
    Mr() : Object(nullptr, FI_CLASS_MR, nullptr) { fill_tables(*this); }
    int close() { return 0; }
  } mr;
  EXPECT_EQ(mr.base()->ops, fid_ops<Mr>());
}

class Cntr final : public Object<Cntr, fid_cntr> {
 public:
  Cntr() : Object(nullptr, FI_CLASS_CNTR, nullptr) {}
  int close() { return 0; }
  uint64_t readerr() { throw 1; }
};
class Cq final : public Object<Cq, fid_cq> {
 public:
  Cq() : Object(nullptr, FI_CLASS_CQ, nullptr) {}
};
class Av final : public Object<Av, fid_av> {
 public:
  Av() : Object(nullptr, FI_CLASS_AV, nullptr) {}
};

TEST(Ops, CallsThatCannotFailStillAnswer) {
  Cntr cntr;
  EXPECT_EQ(cntr_ops<Cntr>()->read(cntr.c()), 0u);
  EXPECT_EQ(cntr_ops<Cntr>()->readerr(cntr.c()), 0u);
  Cq cq;
  char text[8] = "xxxxxxx";
  EXPECT_STREQ(cq_ops<Cq>()->strerror(cq.c(), 1, nullptr, text, sizeof text), "the pro");
  EXPECT_STREQ(cq_ops<Cq>()->strerror(cq.c(), 1, nullptr, nullptr, 0), ops_detail::kNoText);
  Av av;
  size_t length = sizeof text;
  EXPECT_STREQ(av_ops<Av>()->straddr(av.c(), nullptr, text, &length), "the pro");
  EXPECT_EQ(length, sizeof ops_detail::kNoText);
}

// All entries behind `size` are set.
template <class Ops>
void expect_full(const Ops *ops) {
  EXPECT_EQ(ops->size, sizeof *ops);
  void *entries[sizeof *ops / sizeof(void *)];
  std::memcpy(entries, ops, sizeof *ops);
  for (size_t i = 1; i < sizeof *ops / sizeof(void *); ++i) EXPECT_NE(entries[i], nullptr) << i;
}

struct Nothing {
  using FidType = struct fid;
  static Nothing *from(struct fid *) { return nullptr; }
  int close() { return 0; }
};

TEST(Ops, EveryTableIsFullAndHasItsSize) {
  expect_full(fid_ops<Nothing>());
  expect_full(fabric_ops<Nothing>());
  expect_full(domain_ops<Nothing>());
  expect_full(mr_ops<Nothing>());
  expect_full(ep_ops<Nothing>());
  expect_full(cm_ops<Nothing>());
  expect_full(msg_ops<Nothing>());
  expect_full(rma_ops<Nothing>());
  expect_full(tagged_ops<Nothing>());
  expect_full(atomic_ops<Nothing>());
  expect_full(collective_ops<Nothing>());
  expect_full(cq_ops<Nothing>());
  expect_full(eq_ops<Nothing>());
  expect_full(cntr_ops<Nothing>());
  expect_full(av_ops<Nothing>());
  expect_full(av_set_ops<Nothing>());
  expect_full(wait_ops<Nothing>());
  expect_full(poll_ops<Nothing>());
  EXPECT_EQ(msg_ops<Ep>(), msg_ops<Ep>());
}

}  // namespace
}  // namespace weft::sdk::ops_test
