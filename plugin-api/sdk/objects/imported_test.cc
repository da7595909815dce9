// SPDX-License-Identifier: BSD-2-Clause
// Queues of both kinds and counters that another provider owns (FI_PEER; fi_peer.3).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/providers/fi_peer.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_cq.h"
#include "plugin-api/sdk/testing/test_instance.h"
#include "weft/sdk/devices/cq_source.h"
#include "weft/sdk/objects/cntr.h"
#include "weft/sdk/objects/eq.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The owner of a queue: remembers what it gets, and takes only `room` entries.
struct OwnerCq {
  OwnerCq() {
    ops.size = sizeof ops;
    ops.write = [](fid_peer_cq *cq, void *context, uint64_t flags, size_t len, void *buf,
                   uint64_t data, uint64_t tag, fi_addr_t src) -> ssize_t {
      auto &self = *static_cast<OwnerCq *>(cq->fid.context);
      if (self.room == 0) return -FI_EAGAIN;
      --self.room;
      self.entries.push_back(std::to_string(reinterpret_cast<size_t>(context)));
      self.last = {context, flags, len, buf, data, tag, src};
      return 0;
    };
    ops.writeerr = [](fid_peer_cq *cq, const fi_cq_err_entry *entry) -> ssize_t {
      auto &self = *static_cast<OwnerCq *>(cq->fid.context);
      if (self.room == 0) return -FI_EAGAIN;
      --self.room;
      self.entries.push_back("error " +
                             std::to_string(reinterpret_cast<size_t>(entry->op_context)));
      self.last_error = *entry;
      self.err_data.assign(static_cast<const char *>(entry->err_data), entry->err_data_size);
      return 0;
    };
    cq.fid.fclass = FI_CLASS_PEER_CQ;
    cq.fid.context = this;
    cq.owner_ops = &ops;
  }
  fi_cq_attr attr(enum fi_wait_obj wait = FI_WAIT_NONE, size_t size = 0) {
    fi_cq_attr attr = cq_attr(wait, size);
    attr.flags = FI_PEER;
    return attr;
  }

  fi_ops_cq_owner ops{};
  fid_peer_cq cq{};
  fi_peer_cq_context context{.size = sizeof context, .cq = &cq};
  size_t room = SIZE_MAX;
  std::vector<std::string> entries;
  Completion last;
  fi_cq_err_entry last_error{};
  std::string err_data;
};

class ImportedCq : public ::testing::Test {
 protected:
  void TearDown() override {
    if (cq_ != nullptr) {
      EXPECT_EQ(fi_close(cq_->base()), 0);
    }
  }
  void open(size_t size = 0) {
    const fi_cq_attr attr = owner_.attr(FI_WAIT_NONE, size);
    auto opened = Cq::open(domain_.context, &attr, &owner_.context);
    ASSERT_TRUE(opened) << opened.error().text;
    cq_ = *opened;
  }
  void push(size_t i) {
    Guard guard(domain_.engine.lock());
    cq_->push({.context = ctx(i),
               .flags = FI_RECV | FI_TAGGED,
               .len = i,
               .buf = this,
               .data = 4,
               .tag = 5,
               .src_addr = 6});
  }
  void fail(size_t i) {
    Guard guard(domain_.engine.lock());
    cq_->push_error({.context = ctx(i),
                     .flags = FI_RECV,
                     .tag = 9,
                     .olen = 8,
                     .err = FI_ETRUNC,
                     .prov_errno = 7,
                     .err_data = "why"});
  }
  std::string refusal(const fi_cq_attr &attr, void *context, int code = FI_EINVAL) {
    auto opened = Cq::open(domain_.context, &attr, context);
    if (opened) {
      fi_close((*opened)->base());
      return "opened";
    }
    EXPECT_EQ(opened.error().code, code);
    return opened.error().text;
  }

  TestDomain domain_;
  OwnerCq owner_;
  Cq *cq_ = nullptr;
};

TEST_F(ImportedCq, GivesItsEntriesToTheOwner) {
  open();
  push(1);
  fail(2);
  push(3);
  EXPECT_THAT(owner_.entries, ElementsAre("1", "error 2", "3"));
  EXPECT_EQ(owner_.last.flags, uint64_t(FI_RECV | FI_TAGGED));
  EXPECT_EQ(owner_.last.len, 3u);
  EXPECT_EQ(owner_.last.buf, this);
  EXPECT_EQ(owner_.last.data, 4u);
  EXPECT_EQ(owner_.last.tag, 5u);
  EXPECT_EQ(owner_.last.src_addr, 6u);
  EXPECT_EQ(owner_.last_error.err, FI_ETRUNC);
  EXPECT_EQ(owner_.last_error.prov_errno, 7);
  EXPECT_EQ(owner_.last_error.tag, 9u);
  EXPECT_EQ(owner_.last_error.olen, 8u);
  EXPECT_EQ(owner_.err_data, "why");
}

TEST_F(ImportedCq, LeadsBackToTheOwner) {
  open();
  EXPECT_EQ(cq_->base()->context, &owner_.cq);
}

TEST_F(ImportedCq, OnlyTheOwnerReads) {
  open();
  push(1);
  fi_cq_tagged_entry entry{};
  fi_cq_err_entry error{};
  fi_addr_t source;
  EXPECT_EQ(fi_cq_read(cq_->c(), &entry, 1), -FI_ENOSYS);
  EXPECT_EQ(fi_cq_readfrom(cq_->c(), &entry, 1, &source), -FI_ENOSYS);
  EXPECT_EQ(fi_cq_readerr(cq_->c(), &error, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_cq_sread(cq_->c(), &entry, 1, nullptr, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_cq_sreadfrom(cq_->c(), &entry, 1, &source, nullptr, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_cq_signal(cq_->c()), -FI_ENOSYS);
  EXPECT_STREQ(fi_cq_strerror(cq_->c(), FI_ETRUNC, nullptr, nullptr, 0),
               "message truncated: longer than the posted buffer");
}

TEST_F(ImportedCq, AReadOfNothingDrivesProgress) {
  open();
  const auto rounds = [this] {
    Guard guard(domain_.engine.lock());
    return domain_.engine.rounds();
  };
  const uint64_t before = rounds();
  EXPECT_EQ(fi_cq_read(cq_->c(), nullptr, 0), 0);
  EXPECT_NE(rounds(), before);
}

// An owner that takes nothing for a while loses nothing, gets all in order, and is not asked twice.
TEST_F(ImportedCq, WhatTheOwnerDoesNotTakeWaitsInOrder) {
  open(4);
  owner_.room = 1;
  for (size_t i = 1; i <= 20; ++i) {
    if (i % 3 == 0) {
      fail(i);
    } else {
      push(i);
    }
  }
  EXPECT_THAT(owner_.entries, ElementsAre("1"));
  {
    Guard guard(domain_.engine.lock());
    EXPECT_TRUE(cq_->holds_back());
  }
  owner_.room = 2;
  EXPECT_EQ(fi_cq_read(cq_->c(), nullptr, 0), 0);
  EXPECT_THAT(owner_.entries, ElementsAre("1", "2", "error 3"));
  owner_.room = SIZE_MAX;
  push(21);
  ASSERT_EQ(owner_.entries.size(), 21u);
  for (size_t i = 1; i <= 21; ++i)
    EXPECT_EQ(owner_.entries[i - 1], (i < 21 && i % 3 == 0 ? "error " : "") + std::to_string(i));
  Guard guard(domain_.engine.lock());
  EXPECT_FALSE(cq_->holds_back());
}

// A handler that waited for room in the queue goes on when the owner has taken entries.
TEST_F(ImportedCq, ReadingWakesWhoWaitsForRoom) {
  struct Waits final : Handler {
    void on_event(uint32_t) override {}
    void on_flush() override {
      flushed = !cq->holds_back();
      if (!flushed) cq->engine().mark_dirty(*this);
    }
    Cq *cq = nullptr;
    bool flushed = false;
  } handler;
  open(2);
  handler.cq = cq_;
  owner_.room = 0;
  push(1);
  push(2);
  owner_.room = SIZE_MAX;
  {
    Guard guard(domain_.engine.lock());
    EXPECT_TRUE(cq_->holds_back());
    domain_.engine.mark_dirty(handler);
  }
  EXPECT_EQ(fi_cq_read(cq_->c(), nullptr, 0), 0);
  EXPECT_TRUE(handler.flushed);
}

TEST_F(ImportedCq, RefusesWhatIsNoOwner) {
  const fi_cq_attr attr = owner_.attr();
  const fi_peer_cq_context good = owner_.context;
  EXPECT_THAT(refusal(attr, nullptr), HasSubstr("the context is a struct fi_peer_cq_context"));
  owner_.context.size = sizeof(size_t);
  EXPECT_THAT(refusal(attr, &owner_.context), HasSubstr("the context is a"));
  owner_.context = good;
  owner_.context.cq = nullptr;
  EXPECT_THAT(refusal(attr, &owner_.context), HasSubstr("the context is a"));
  owner_.context = good;
  owner_.cq.fid.fclass = FI_CLASS_CQ;
  EXPECT_THAT(refusal(attr, &owner_.context), HasSubstr("fclass"));
  owner_.cq.fid.fclass = FI_CLASS_PEER_CQ;
  owner_.ops.size = offsetof(fi_ops_cq_owner, writeerr);
  EXPECT_THAT(refusal(attr, &owner_.context), HasSubstr("lack operations"));
  owner_.ops.size = sizeof owner_.ops;
  owner_.ops.writeerr = nullptr;
  EXPECT_THAT(refusal(attr, &owner_.context), HasSubstr("is null"));
  owner_.cq.owner_ops = nullptr;
  EXPECT_THAT(refusal(attr, &owner_.context), HasSubstr("lack operations"));
}

// A device with numbers to report: what it reports goes to the owner in the owner's reads.
TEST_F(ImportedCq, ADeviceReportsToTheOwner) {
  struct Source final : CqSource {
    void read(CqWriter &out) override {
      for (; next <= last && out.room() != 0; ++next) {
        if (next == 3) {
          out.put_error({.context = ctx(next), .err = FI_EIO});
        } else {
          out.put({.context = ctx(next)});
        }
      }
    }
    int wait_fd() override { return -FI_ENOSYS; }
    bool arm() override { return true; }
    size_t next = 1, last = 4;
  };
  const fi_cq_attr attr = owner_.attr();
  auto opened = Cq::open(domain_.context, &attr, &owner_.context, std::make_unique<Source>(), true);
  ASSERT_TRUE(opened) << opened.error().text;
  cq_ = *opened;
  EXPECT_THAT(owner_.entries, IsEmpty());
  EXPECT_EQ(fi_cq_read(cq_->c(), nullptr, 0), 0);
  EXPECT_THAT(owner_.entries, ElementsAre("1", "2", "error 3", "4"));
}

// ---- counters ----

struct OwnerCntr {
  OwnerCntr() {
    ops.size = sizeof ops;
    ops.inc = [](fid_peer_cntr *cntr) { ++static_cast<OwnerCntr *>(cntr->fid.context)->value; };
    ops.incerr = [](fid_peer_cntr *cntr) { ++static_cast<OwnerCntr *>(cntr->fid.context)->errors; };
    cntr.fid.fclass = FI_CLASS_PEER_CNTR;
    cntr.fid.context = this;
    cntr.owner_ops = &ops;
    attr.flags = FI_PEER;
  }
  fi_ops_cntr_owner ops{};
  fid_peer_cntr cntr{};
  fi_peer_cntr_context context{.size = sizeof context, .cntr = &cntr};
  fi_cntr_attr attr{};
  uint64_t value = 0, errors = 0;
};

TEST(ImportedCntr, CountsOnTheOwners) {
  TestDomain domain;
  OwnerCntr owner;
  auto opened = Cntr::open(domain.context, &owner.attr, &owner.context);
  ASSERT_TRUE(opened) << opened.error().text;
  Cntr &cntr = **opened;
  EXPECT_EQ(cntr.base()->context, &owner.cntr);
  for (uint64_t i = 1; i <= 5; ++i) {
    {
      Guard guard(domain.engine.lock());
      cntr.add_events(1, 100);
    }
    EXPECT_EQ(owner.value, i) << "at once, not when somebody reads";
    EXPECT_EQ(owner.errors, i - 1);
    Guard guard(domain.engine.lock());
    cntr.add_error();
    EXPECT_EQ(owner.errors, i);
  }
  {
    Guard guard(domain.engine.lock());
    cntr.add_events(3, 100);
  }
  EXPECT_EQ(owner.value, 8u);
  EXPECT_EQ(fi_cntr_read(cntr.c()), 8u);
  EXPECT_EQ(fi_cntr_readerr(cntr.c()), 5u);
  EXPECT_EQ(fi_cntr_add(cntr.c(), 1), -FI_ENOSYS);
  EXPECT_EQ(fi_cntr_set(cntr.c(), 1), -FI_ENOSYS);
  EXPECT_EQ(fi_cntr_adderr(cntr.c(), 1), -FI_ENOSYS);
  EXPECT_EQ(fi_cntr_seterr(cntr.c(), 1), -FI_ENOSYS);
  EXPECT_EQ(fi_cntr_wait(cntr.c(), 1, 0), -FI_ENOSYS);
  EXPECT_EQ(owner.value, 8u);
  EXPECT_EQ(owner.errors, 5u);
  EXPECT_EQ(fi_close(cntr.base()), 0);
}

TEST(ImportedCntr, RefusesWhatItCannotDo) {
  TestDomain domain;
  OwnerCntr owner;
  const auto refusal = [&](const fi_cntr_attr &attr, void *context) -> std::string {
    auto opened = Cntr::open(domain.context, &attr, context);
    if (!opened) {
      EXPECT_EQ(opened.error().code, FI_EINVAL);
      return opened.error().text;
    }
    fi_close((*opened)->base());
    return "opened";
  };
  EXPECT_THAT(refusal(owner.attr, nullptr), HasSubstr("fi_peer_cntr_context"));
  fi_cntr_attr attr = owner.attr;
  attr.events = FI_CNTR_EVENTS_BYTES;
  EXPECT_THAT(refusal(attr, &owner.context), HasSubstr("no bytes"));
  attr = owner.attr;
  attr.wait_obj = FI_WAIT_FD;
  EXPECT_THAT(refusal(attr, &owner.context), HasSubstr("waits on the owner's"));
  owner.ops.inc = nullptr;
  EXPECT_THAT(refusal(owner.attr, &owner.context), HasSubstr("is null"));
}

// ---- event queues (fi_peer.3, PEER EQ) ----

// The owner's queue takes only `room` events, and refuses with `refusal`.
struct OwnerEq {
  OwnerEq() {
    ops.size = sizeof ops;
    ops.write = [](fid_eq *eq, uint32_t event, const void *buf, size_t len, uint64_t) -> ssize_t {
      auto &self = *static_cast<OwnerEq *>(eq->fid.context);
      if (self.room == 0) return self.refusal;
      --self.room;
      fi_eq_entry entry{};
      EXPECT_EQ(len, sizeof entry);
      std::memcpy(&entry, buf, sizeof entry);
      self.events.push_back(std::to_string(event) + ": " + std::to_string(entry.data));
      return ssize_t(len);
    };
    eq.fid.fclass = FI_CLASS_EQ;
    eq.fid.context = this;
    eq.ops = &ops;
  }
  fi_ops_eq ops{};
  fid_eq eq{};
  fi_peer_eq_context context{.size = sizeof context, .eq = &eq};
  size_t room = SIZE_MAX;
  ssize_t refusal = -FI_EAGAIN;
  std::vector<std::string> events;
};

class ImportedEq : public ::testing::Test {
 protected:
  ImportedEq() {
    fabric_.fid.fclass = FI_CLASS_FABRIC;
    fabric_.api_version = FI_VERSION(2, 6);
    attr_.flags = FI_PEER;
    attr_.wait_obj = FI_WAIT_NONE;
  }
  ~ImportedEq() override {
    if (eq_ != nullptr) {
      EXPECT_EQ(fi_close(eq_->base()), 0);
    }
  }
  Result<Eq *> open(void *context) {
    return Eq::open(instance_.c(), &fabric_.fid, children_, &attr_, context);
  }
  std::string refusal(void *context) {
    auto opened = open(context);
    if (opened) fi_close((*opened)->base());
    return opened ? "opened" : opened.error().text;
  }
  ssize_t drive() {
    uint32_t event = 0;
    return fi_eq_read(eq_->c(), &event, nullptr, 0, 0);
  }

  TestInstance instance_;
  std::atomic<size_t> children_{0};
  fid_fabric fabric_{};
  fi_eq_attr attr_{};
  OwnerEq owner_;
  Eq *eq_ = nullptr;
};

TEST_F(ImportedEq, WhatTheOwnerDoesNotTakeWaitsInOrder) {
  eq_ = *open(&owner_.context);
  eq_->push(1, &fabric_.fid, 10);
  owner_.room = 0;
  eq_->push(2, &fabric_.fid, 20);
  eq_->push_error({.fid = &fabric_.fid, .err = FI_EIO, .err_data = "why"});
  eq_->push(3, &fabric_.fid, 30);
  EXPECT_EQ(drive(), 0);
  EXPECT_THAT(owner_.events, ElementsAre("1: 10"));
  owner_.room = SIZE_MAX;
  EXPECT_EQ(drive(), -FI_EAVAIL);
  EXPECT_THAT(owner_.events, ElementsAre("1: 10", "2: 20"));
  fi_eq_err_entry error{};
  EXPECT_EQ(fi_eq_readerr(eq_->c(), &error, FI_PEEK), ssize_t(sizeof error));
  EXPECT_EQ(drive(), -FI_EAVAIL) << "it was only looked at";
  EXPECT_EQ(fi_eq_readerr(eq_->c(), &error, 0), ssize_t(sizeof error));
  EXPECT_EQ(error.err, FI_EIO);
  EXPECT_THAT(owner_.events, ElementsAre("1: 10", "2: 20", "3: 30"));
  EXPECT_EQ(drive(), 0);
}

TEST_F(ImportedEq, AnEventThatTheOwnerRefusesBecomesAnError) {
  eq_ = *open(&owner_.context);
  owner_.room = 0;
  owner_.refusal = -FI_ENOSPC;
  int context = 0;
  eq_->push(1, &fabric_.fid, 10, &context);
  EXPECT_EQ(drive(), -FI_EAVAIL);
  fi_eq_err_entry error{};
  EXPECT_EQ(fi_eq_readerr(eq_->c(), &error, 0), ssize_t(sizeof error));
  EXPECT_EQ(error.err, FI_ENOSPC);
  EXPECT_EQ(error.data, 10u);
  EXPECT_EQ(error.context, &context);
  EXPECT_EQ(error.fid, &fabric_.fid);
}

TEST_F(ImportedEq, RefusesWhatIsNoOwner) {
  EXPECT_THAT(refusal(nullptr), HasSubstr("the owner's queue"));
  fi_peer_eq_context context = owner_.context;
  context.size = 0;
  EXPECT_THAT(refusal(&context), HasSubstr("the owner's queue"));
  owner_.eq.fid.fclass = FI_CLASS_CQ;
  EXPECT_THAT(refusal(&owner_.context), HasSubstr("fclass"));
  owner_.eq.fid.fclass = FI_CLASS_EQ;
  owner_.ops.write = nullptr;
  EXPECT_THAT(refusal(&owner_.context), HasSubstr("is null"));
  owner_.ops.write = OwnerEq().ops.write;
  attr_.flags = FI_PEER | FI_WRITE;
  EXPECT_THAT(refusal(&owner_.context), HasSubstr("FI_WRITE"));
  attr_.flags = FI_PEER;
  attr_.wait_obj = FI_WAIT_FD;
  EXPECT_THAT(refusal(&owner_.context), HasSubstr("one waits on the owner's queue"));
}

}  // namespace
}  // namespace weft::sdk
