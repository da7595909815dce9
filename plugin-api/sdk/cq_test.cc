// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/cq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>

#include "plugin-api/sdk/test_instance.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void *ctx(size_t i) {
  return reinterpret_cast<void *>(i);
}

// A queue that closes with the test. The provider's side takes the lock as a provider does.
class Queue {
 public:
  Queue(TestDomain &domain, const fi_cq_attr &attr) : domain_(domain) {
    auto opened = Cq::open(domain.context, &attr, ctx(77));
    if (opened) {
      cq = *opened;
    } else {
      ADD_FAILURE() << opened.error().text;
    }
  }
  ~Queue() {
    if (cq != nullptr) {
      EXPECT_EQ(fi_close(cq->base()), 0);
    }
  }
  fid_cq *c() { return cq->c(); }
  void push(size_t i) {
    Guard guard(domain_.engine.lock());
    cq->push({.context = ctx(i), .flags = FI_RECV | FI_MSG, .len = i});
  }
  void push_error(size_t i, int err = FI_ETRUNC) {
    Guard guard(domain_.engine.lock());
    cq->push_error({.context = ctx(i), .err = err, .prov_errno = err});
  }
  // What the next read gives: the context's number, or an error; of an error entry minus its
  // context.
  ssize_t next() {
    fi_cq_tagged_entry entry{};
    const ssize_t n = fi_cq_read(c(), &entry, 1);
    if (n == 1) return ssize_t(reinterpret_cast<size_t>(entry.op_context));
    if (n != -FI_EAVAIL) return n;
    fi_cq_err_entry error{};
    EXPECT_EQ(fi_cq_readerr(c(), &error, 0), 1);
    last_error = error.err;
    return -1000 - ssize_t(reinterpret_cast<size_t>(error.op_context));
  }
  ssize_t sread(int timeout_ms = kPatienceMs, size_t threshold = 0) {
    fi_cq_tagged_entry entry{};
    return fi_cq_sread(c(), &entry, 1, ctx(threshold), timeout_ms);
  }

  Cq *cq = nullptr;
  int last_error = 0;

 private:
  TestDomain &domain_;
};

fi_cq_attr attr_of(enum fi_wait_obj wait = FI_WAIT_NONE, size_t size = 0) {
  fi_cq_attr attr{};
  attr.size = size;
  attr.format = FI_CQ_FORMAT_TAGGED;
  attr.wait_obj = wait;
  return attr;
}

fi_cq_attr threshold_attr() {
  fi_cq_attr attr = attr_of(FI_WAIT_UNSPEC);
  attr.wait_cond = FI_CQ_COND_THRESHOLD;
  return attr;
}

// ---- opening and closing ----

TEST(CqOpen, DefaultsAreAGoodQueue) {
  TestDomain domain;
  auto opened = Cq::open(domain.context, nullptr, ctx(5));
  ASSERT_TRUE(opened);
  EXPECT_EQ((*opened)->base()->context, ctx(5));
  EXPECT_EQ((*opened)->base()->fclass, size_t(FI_CLASS_CQ));
  EXPECT_TRUE(Cq::is_mine((*opened)->base(), FI_CLASS_CQ, domain.instance.c()));
  EXPECT_EQ(domain.context.children.load(), 1u);
  EXPECT_EQ(domain.instance.alive.load(), 1);
  fi_cq_entry entry;
  EXPECT_EQ(fi_cq_read((*opened)->c(), &entry, 1), -FI_EAGAIN);
  EXPECT_EQ(fi_close((*opened)->base()), 0);
}

TEST(CqOpen, RoomThatIsNotUsedTakesNoMemory) {
  TestDomain domain;
  const auto resident = [] {
    size_t total = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> total >> pages;
    return pages * size_t(sysconf(_SC_PAGESIZE));
  };
  std::vector<std::unique_ptr<Queue>> queues;
  const size_t before = resident();
  for (int i = 0; i < 16; ++i)
    queues.push_back(std::make_unique<Queue>(domain, attr_of(FI_WAIT_NONE, 1 << 18)));
  EXPECT_LT(resident() - before, size_t(8) << 20) << "of 224 MiB";
}

TEST(CqOpen, WhatIsWrongIsSaid) {
  TestDomain domain;
  const auto code = [&](const fi_cq_attr &attr) {
    auto opened = Cq::open(domain.context, &attr, nullptr);
    EXPECT_FALSE(opened);
    return opened ? 0 : opened.error().code;
  };
  fi_cq_attr attr = attr_of();
  put(attr.format, -3);
  EXPECT_EQ(code(attr), FI_EINVAL);
  attr = attr_of();
  put(attr.wait_obj, 99);
  EXPECT_EQ(code(attr), FI_EINVAL);
  EXPECT_EQ(code(attr_of(FI_WAIT_SET)), FI_EINVAL) << "no wait set given";
  attr = attr_of(FI_WAIT_FD);
  put(attr.wait_cond, 9);
  EXPECT_EQ(code(attr), FI_EINVAL);
  attr = attr_of();
  attr.flags = FI_AFFINITY | FI_PEEK;
  EXPECT_EQ(code(attr), FI_EBADFLAGS);
  EXPECT_EQ(code(attr_of(FI_WAIT_NONE, SIZE_MAX)), FI_EINVAL);
  domain.instance.refuse = true;
  EXPECT_EQ(code(attr_of(FI_WAIT_FD)), FI_EOTHER);
}

TEST(CqOpen, TheConditionCountsOnlyForThoseWhoWait) {
  TestDomain domain;
  fi_cq_attr attr = attr_of(FI_WAIT_NONE);
  put(attr.wait_cond, 9);  // fi_cq.3: ignored
  attr.flags = FI_AFFINITY;
  Queue queue(domain, attr);
  EXPECT_EQ(queue.next(), -FI_EAGAIN);
}

TEST(CqClose, IsRefusedWhileItIsInUse) {
  TestDomain domain;
  Queue queue(domain, attr_of());
  queue.cq->users.fetch_add(1);
  EXPECT_EQ(fi_close(queue.cq->base()), -FI_EBUSY);
  EXPECT_EQ(domain.instance.alive.load(), 1);
  queue.cq->users.fetch_sub(1);
}

TEST(CqClose, WhatIsLeftIsLost) {
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_FD));
  for (size_t i = 0; i < 100; ++i) {
    queue.push(i);
    queue.push_error(i);
  }
}

// ---- reading ----

const Completion kFull{.context = reinterpret_cast<void *>(0x11),
                       .flags = 0x22,
                       .len = 0x33,
                       .buf = reinterpret_cast<void *>(0x44),
                       .data = 0x55,
                       .tag = 0x66,
                       .src_addr = 0x77};

class CqFormats : public ::testing::TestWithParam<enum fi_cq_format> {};
INSTANTIATE_TEST_SUITE_P(All, CqFormats,
                         ::testing::Values(FI_CQ_FORMAT_UNSPEC, FI_CQ_FORMAT_CONTEXT,
                                           FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA,
                                           FI_CQ_FORMAT_TAGGED));

TEST_P(CqFormats, EntriesHaveTheirFieldsAndNothingBehindIsTouched) {
  TestDomain domain;
  fi_cq_attr attr = attr_of();
  attr.format = GetParam();
  Queue queue(domain, attr);
  {
    Guard guard(domain.engine.lock());
    queue.cq->push(kFull);
    queue.cq->push(kFull);
  }
  size_t size = sizeof(fi_cq_entry);
  if (GetParam() == FI_CQ_FORMAT_MSG) size = sizeof(fi_cq_msg_entry);
  if (GetParam() == FI_CQ_FORMAT_DATA) size = sizeof(fi_cq_data_entry);
  if (GetParam() == FI_CQ_FORMAT_TAGGED) size = sizeof(fi_cq_tagged_entry);
  // In memory of exactly that size, so that a sanitizer detects an overflow.
  const std::unique_ptr<void, void (*)(void *)> buffer(std::malloc(2 * size), std::free);
  std::memset(buffer.get(), 0x5a, 2 * size);
  fi_addr_t from[3] = {1, 2, 3};
  ASSERT_EQ(fi_cq_readfrom(queue.c(), buffer.get(), 2, from), 2);
  for (int i = 0; i < 2; ++i) {
    fi_cq_tagged_entry entry{};
    std::memcpy(&entry, static_cast<char *>(buffer.get()) + size_t(i) * size, size);
    EXPECT_EQ(entry.op_context, kFull.context);
    EXPECT_EQ(entry.flags, size > sizeof(fi_cq_entry) ? kFull.flags : 0);
    EXPECT_EQ(entry.len, size > sizeof(fi_cq_entry) ? kFull.len : 0);
    EXPECT_EQ(entry.buf, size > sizeof(fi_cq_msg_entry) ? kFull.buf : nullptr);
    EXPECT_EQ(entry.data, size > sizeof(fi_cq_msg_entry) ? kFull.data : 0);
    EXPECT_EQ(entry.tag, size > sizeof(fi_cq_data_entry) ? kFull.tag : 0);
    EXPECT_EQ(from[i], kFull.src_addr);
  }
  EXPECT_EQ(from[2], 3u);
}

TEST(CqRead, InOrderAndNoMoreThanAskedFor) {
  TestDomain domain;
  Queue queue(domain, attr_of());
  for (size_t i = 0; i < 10; ++i) queue.push(i);
  fi_cq_tagged_entry entries[10];
  fi_addr_t from[10];
  EXPECT_EQ(fi_cq_read(queue.c(), entries, 3), 3);
  EXPECT_EQ(entries[2].op_context, ctx(2));
  EXPECT_EQ(fi_cq_readfrom(queue.c(), entries, 10, from), 7);
  EXPECT_EQ(entries[0].op_context, ctx(3));
  EXPECT_EQ(entries[6].op_context, ctx(9));
  EXPECT_EQ(from[6], FI_ADDR_NOTAVAIL);
  EXPECT_EQ(fi_cq_read(queue.c(), entries, 10), -FI_EAGAIN);
}

TEST(CqRead, WithoutABufferIsRefused) {
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_FD));
  queue.push(1);
  EXPECT_EQ(fi_cq_read(queue.c(), nullptr, 1), -FI_EINVAL);
  EXPECT_EQ(fi_cq_sread(queue.c(), nullptr, 1, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_cq_readerr(queue.c(), nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(queue.next(), 1);
}

TEST(CqRead, MakesProgress) {
  TestDomain domain;
  Queue queue(domain, attr_of());
  Event event;
  domain.engine.add(event, event.fd(), EPOLLIN, 0);
  event.then = [&] { queue.cq->push({.context = ctx(8)}); };
  event.signal();
  EXPECT_EQ(queue.next(), 8);
  // A count of 0 drives it too, whether there is something to read or not (fi_cq.3).
  event.signal();
  EXPECT_EQ(fi_cq_read(queue.c(), nullptr, 0), 0);
  EXPECT_EQ(event.seen(), 2);
  event.signal();
  EXPECT_EQ(fi_cq_read(queue.c(), nullptr, 0), 0);
  EXPECT_EQ(event.seen(), 3);
  EXPECT_EQ(queue.next(), 8);
  EXPECT_EQ(queue.next(), 8);
  EXPECT_EQ(fi_cq_read(queue.c(), nullptr, 0), -FI_EAGAIN);
  queue.push_error(1);
  EXPECT_EQ(fi_cq_read(queue.c(), nullptr, 0), -FI_EAVAIL);
  domain.engine.remove(event);
}

TEST(CqRead, SendsWhatIsStaged) {
  TestDomain domain;
  Queue queue(domain, attr_of());
  Event event;
  queue.push(1);
  domain.engine.mark_dirty(event);
  EXPECT_EQ(queue.next(), 1);
  EXPECT_EQ(event.flushes(), 1);
}

TEST(CqRead, AHandlerThatWaitsForRoomIsCalledWhenThereIsSome) {
  // Like an endpoint whose peer writes with CQ data while the queue is full.
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_UNSPEC, 4));
  Event event;
  event.then_flush = [&] {
    if (queue.cq->full()) return domain.engine.mark_dirty(event);
    queue.cq->push({.context = ctx(50)});
  };
  const auto stall = [&] {
    Guard guard(domain.engine.lock());
    domain.engine.mark_dirty(event);
    domain.engine.flush();
  };
  for (size_t i = 0; i < 4; ++i) queue.push(i);
  EXPECT_TRUE(queue.cq->full());
  stall();
  // This read must call the handler: no progress call follows.
  EXPECT_EQ(queue.next(), 0);
  EXPECT_TRUE(queue.cq->full()) << "50 is in";
  stall();
  EXPECT_EQ(queue.sread(0), 1);
  EXPECT_TRUE(queue.cq->full());
  EXPECT_EQ(queue.next(), 2);
  EXPECT_EQ(queue.next(), 3);
  while (!queue.cq->full()) queue.push_error(60);
  stall();
  EXPECT_EQ(queue.next(), 50);
  EXPECT_TRUE(queue.cq->full());
  EXPECT_EQ(queue.next(), 50);
  while (!queue.cq->full()) queue.push(61);
  stall();
  fi_cq_err_entry error{};
  EXPECT_EQ(fi_cq_readerr(queue.c(), &error, 0), 1);
  EXPECT_TRUE(queue.cq->full()) << "an error entry that is read makes room as well";
  Guard guard(domain.engine.lock());
  domain.engine.remove(event);
}

// ---- errors ----

TEST(CqError, TheyComeInTheirOrder) {
  TestDomain domain;
  Queue queue(domain, attr_of());
  queue.push(1);
  queue.push_error(2, FI_ECANCELED);
  queue.push_error(3, FI_EIO);
  queue.push(4);
  fi_cq_tagged_entry entries[8];
  fi_cq_err_entry error{};
  EXPECT_EQ(fi_cq_readerr(queue.c(), &error, 0), -FI_EAGAIN) << "a good one is first";
  EXPECT_EQ(fi_cq_read(queue.c(), entries, 8), 1);
  EXPECT_EQ(entries[0].op_context, ctx(1));
  EXPECT_EQ(fi_cq_read(queue.c(), entries, 8), -FI_EAVAIL);
  EXPECT_EQ(fi_cq_read(queue.c(), entries, 8), -FI_EAVAIL);
  EXPECT_EQ(fi_cq_readerr(queue.c(), &error, 0), 1);
  EXPECT_EQ(error.op_context, ctx(2));
  EXPECT_EQ(error.err, FI_ECANCELED);
  EXPECT_EQ(fi_cq_readerr(queue.c(), &error, 0), 1);
  EXPECT_EQ(error.op_context, ctx(3));
  EXPECT_EQ(error.err, FI_EIO);
  EXPECT_EQ(fi_cq_readerr(queue.c(), &error, 0), -FI_EAGAIN);
  EXPECT_EQ(fi_cq_read(queue.c(), entries, 8), 1);
  EXPECT_EQ(entries[0].op_context, ctx(4));
  EXPECT_EQ(fi_cq_read(queue.c(), entries, 8), -FI_EAGAIN);
}

const CompletionError kError{.context = reinterpret_cast<void *>(0x10),
                             .flags = 0x20,
                             .len = 0x30,
                             .buf = reinterpret_cast<void *>(0x40),
                             .data = 0x50,
                             .tag = 0x60,
                             .olen = 0x70,
                             .err = FI_ETRUNC,
                             .prov_errno = 12345,
                             .err_data = "what the provider has to say",
                             .src_addr = 0x80};

void push_full_error(TestDomain &domain, Queue &queue) {
  Guard guard(domain.engine.lock());
  queue.cq->push_error(kError);
}

TEST(CqError, EveryFieldArrives) {
  TestDomain domain;
  Queue queue(domain, attr_of());
  push_full_error(domain, queue);
  fi_cq_err_entry error{};
  ASSERT_EQ(fi_cq_readerr(queue.c(), &error, 0), 1);
  EXPECT_EQ(error.op_context, kError.context);
  EXPECT_EQ(error.flags, kError.flags);
  EXPECT_EQ(error.len, kError.len);
  EXPECT_EQ(error.buf, kError.buf);
  EXPECT_EQ(error.data, kError.data);
  EXPECT_EQ(error.tag, kError.tag);
  EXPECT_EQ(error.olen, kError.olen);
  EXPECT_EQ(error.err, kError.err);
  EXPECT_EQ(error.prov_errno, kError.prov_errno);
  EXPECT_EQ(error.src_addr, kError.src_addr);
}

TEST(CqErrorData, IsLentWhereThereIsNoBuffer) {
  TestDomain domain;
  Queue queue(domain, attr_of());
  push_full_error(domain, queue);
  push_full_error(domain, queue);
  char own[4] = "own";
  fi_cq_err_entry error{};
  error.err_data = own;  // with a size of 0: ignored
  ASSERT_EQ(fi_cq_readerr(queue.c(), &error, 0), 1);
  EXPECT_NE(error.err_data, own);
  ASSERT_EQ(error.err_data_size, kError.err_data.size());
  EXPECT_EQ(std::memcmp(error.err_data, kError.err_data.data(), error.err_data_size), 0);
  error.err_data = nullptr;  // with a size
  ASSERT_EQ(fi_cq_readerr(queue.c(), &error, 0), 1);
  ASSERT_EQ(error.err_data_size, kError.err_data.size());
  EXPECT_EQ(std::memcmp(error.err_data, kError.err_data.data(), error.err_data_size), 0);
}

TEST(CqErrorData, IsCopiedAndCutToTheBuffer) {
  TestDomain domain;
  Queue queue(domain, attr_of());
  for (const size_t room : {size_t(1), size_t(7), kError.err_data.size(), size_t(100)}) {
    push_full_error(domain, queue);
    const std::unique_ptr<char[]> buffer(new char[room]);
    fi_cq_err_entry error{};
    error.err_data = buffer.get();
    error.err_data_size = room;
    ASSERT_EQ(fi_cq_readerr(queue.c(), &error, 0), 1);
    EXPECT_EQ(error.err_data, buffer.get());
    EXPECT_EQ(error.err_data_size, std::min(room, kError.err_data.size()));
    EXPECT_EQ(std::memcmp(buffer.get(), kError.err_data.data(), error.err_data_size), 0);
  }
}

TEST(CqErrorData, NothingIsNothing) {
  TestDomain domain;
  Queue queue(domain, attr_of());
  char own[4] = "own";
  fi_cq_err_entry error{};
  queue.push_error(1);
  error.err_data = own;
  error.err_data_size = sizeof own;
  ASSERT_EQ(fi_cq_readerr(queue.c(), &error, 0), 1);
  EXPECT_EQ(error.err_data_size, 0u);
  EXPECT_STREQ(own, "own");
  queue.push_error(1);
  error.err_data = nullptr;
  error.err_data_size = 17;
  ASSERT_EQ(fi_cq_readerr(queue.c(), &error, 0), 1);
  EXPECT_EQ(error.err_data, nullptr);
  EXPECT_EQ(error.err_data_size, 0u);
}

TEST(CqErrorData, AnOlderCallersStructEndsEarlier) {
  // The struct got err_data_size with API 1.5 and src_addr with 1.20.
  const std::pair<uint32_t, size_t> kAges[] = {
      {FI_VERSION(1, 0), offsetof(fi_cq_err_entry, err_data_size)},
      {FI_VERSION(1, 4), offsetof(fi_cq_err_entry, err_data_size)},
      {FI_VERSION(1, 5), offsetof(fi_cq_err_entry, src_addr)},
      {FI_VERSION(1, 19), offsetof(fi_cq_err_entry, src_addr)},
      {FI_VERSION(1, 20), sizeof(fi_cq_err_entry)},
      {FI_VERSION(2, 6), sizeof(fi_cq_err_entry)}};
  for (const auto &[version, size] : kAges) {
    TestDomain domain(version);
    Queue queue(domain, attr_of());
    push_full_error(domain, queue);
    const std::unique_ptr<void, void (*)(void *)> memory(std::malloc(size), std::free);
    std::memset(memory.get(), 0xff, size);  // an old caller initializes nothing
    auto *error = static_cast<fi_cq_err_entry *>(memory.get());
    char own[8] = "";
    if (FI_VERSION_GE(version, FI_VERSION(1, 5))) {
      error->err_data = own;
      error->err_data_size = sizeof own;
    }
    ASSERT_EQ(fi_cq_readerr(queue.c(), error, 0), 1);
    EXPECT_EQ(error->err, FI_ETRUNC);
    if (FI_VERSION_GE(version, FI_VERSION(1, 5))) {
      EXPECT_EQ(error->err_data, own);
    } else {
      EXPECT_EQ(std::memcmp(error->err_data, kError.err_data.data(), kError.err_data.size()), 0);
    }
  }
}

TEST(CqStrerror, SaysItInWords) {
  TestDomain domain;
  Queue queue(domain, attr_of());
  char text[64];
  EXPECT_EQ(fi_cq_strerror(queue.c(), FI_ETRUNC, nullptr, text, sizeof text), text);
  EXPECT_THAT(text, HasSubstr("truncated"));
  EXPECT_STREQ(fi_cq_strerror(queue.c(), ENOENT, nullptr, text, sizeof text), strerror(ENOENT));
  EXPECT_STREQ(fi_cq_strerror(queue.c(), -ENOENT, nullptr, text, sizeof text), strerror(ENOENT));
  EXPECT_THAT(fi_cq_strerror(queue.c(), FI_EOVERRUN, nullptr, nullptr, 0), HasSubstr("overrun"));
  std::memset(text, 'x', sizeof text);
  EXPECT_STREQ(fi_cq_strerror(queue.c(), FI_ETRUNC, nullptr, text, 5), "mess");
  EXPECT_EQ(text[5], 'x');
  for (const int code : {0, 1 << 20, INT_MAX, INT_MIN})
    EXPECT_STRNE(fi_cq_strerror(queue.c(), code, nullptr, text, sizeof text), "");
}

// ---- growth and overrun ----

TEST(CqGrowth, NothingIsLostUnderResourceManagement) {
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_NONE, 4));
  size_t in = 0, out = 0;
  const auto expect_next = [&] {
    const ssize_t got = queue.next();
    ASSERT_EQ(got, out % 7 == 0 ? -1000 - ssize_t(out) : ssize_t(out));
    ++out;
  };
  // The ring grows with its start at many different positions.
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 11 + round; ++i, ++in) in % 7 == 0 ? queue.push_error(in) : queue.push(in);
    for (int i = 0; i < 7; ++i) expect_next();
  }
  while (out < in) expect_next();
  EXPECT_EQ(queue.next(), -FI_EAGAIN);
}

TEST(CqGrowth, FullIsWhatWasAskedFor) {
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_NONE, 5));
  for (size_t i = 1; i <= 5; ++i) {
    EXPECT_FALSE(queue.cq->full());
    queue.push(i);
  }
  EXPECT_TRUE(queue.cq->full());
  queue.push(6);
  EXPECT_EQ(queue.next(), 1);
  EXPECT_TRUE(queue.cq->full());
  EXPECT_EQ(queue.next(), 2);
  EXPECT_FALSE(queue.cq->full());
}

TEST(CqOverrun, WhatIsInIsReadAndThenItIsSaid) {
  TestDomain domain;
  domain.context.resource_management = false;
  Queue queue(domain, attr_of(FI_WAIT_FD, 4));
  for (size_t i = 1; i <= 3; ++i) queue.push(i);
  queue.push_error(4);
  queue.push(5);
  queue.push_error(6);
  for (ssize_t i = 1; i <= 3; ++i) EXPECT_EQ(queue.next(), i);
  EXPECT_EQ(queue.next(), -1004);
  EXPECT_EQ(queue.last_error, FI_ETRUNC);
  // The overrun is permanent (fi_cq.3, NOTES), even if there is room again.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(queue.next(), -1000);
    EXPECT_EQ(queue.last_error, FI_EOVERRUN);
    queue.push(7);
    queue.push_error(8);
    EXPECT_EQ(fi_cq_read(queue.c(), nullptr, 0), -FI_EAVAIL);
    EXPECT_EQ(queue.sread(), -FI_EAVAIL);
  }
}

TEST(CqOverrun, WakesWaitingThreads) {
  TestDomain domain;
  domain.context.resource_management = false;
  fi_cq_attr attr = threshold_attr();
  attr.size = 4;
  Queue queue(domain, attr);
  for (size_t i = 0; i < 3; ++i) queue.push(i);
  fi_cq_tagged_entry entries[8];
  ssize_t got = 0;
  Sleeper sleeper([&] { got = fi_cq_sread(queue.c(), entries, 8, ctx(4), kPatienceMs); });
  EXPECT_TRUE(sleeper.eventually_asleep());
  {
    Guard guard(domain.engine.lock());
    for (size_t i = 3; i < 9; ++i) queue.cq->push({.context = ctx(i)});
  }
  sleeper.join();
  EXPECT_EQ(got, 4);
  EXPECT_EQ(queue.next(), -1000);
  EXPECT_EQ(queue.last_error, FI_EOVERRUN);
}

// ---- waiting ----

class CqWait : public ::testing::TestWithParam<enum fi_wait_obj> {};
INSTANTIATE_TEST_SUITE_P(Objects, CqWait,
                         ::testing::Values(FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_POLLFD,
                                           FI_WAIT_YIELD, FI_WAIT_MUTEX_COND));

TEST_P(CqWait, TheTimeIsKept) {
  TestDomain domain;
  Queue queue(domain, attr_of(GetParam()));
  const uint64_t start = now_ns();
  EXPECT_EQ(queue.sread(30), -FI_EAGAIN);
  EXPECT_GE(now_ns() - start, 30'000'000u);
  EXPECT_EQ(queue.sread(0), -FI_EAGAIN);
  queue.push(1);
  queue.push_error(2);
  EXPECT_EQ(queue.sread(0), 1);
  EXPECT_EQ(queue.sread(-1), -FI_EAVAIL);
}

TEST_P(CqWait, ACompletionFromElsewhereWakes) {
  TestDomain domain;
  Queue queue(domain, attr_of(GetParam()));
  for (size_t i = 0; i < 50; ++i) {
    ssize_t got = 0;
    Sleeper sleeper([&] { got = queue.sread(i % 2 != 0 ? -1 : kPatienceMs); });
    if (i % 5 == 0 && GetParam() != FI_WAIT_YIELD) {
      EXPECT_TRUE(sleeper.eventually_asleep());
    }
    i % 3 == 0 ? queue.push_error(i) : queue.push(i);
    sleeper.join();
    EXPECT_EQ(got, i % 3 == 0 ? -FI_EAVAIL : 1);
    if (i % 3 == 0) {
      EXPECT_EQ(queue.next(), -1000 - ssize_t(i));
    }
  }
}

TEST_P(CqWait, TheWaitingThreadMakesProgressItself) {
  TestDomain domain;
  Queue queue(domain, attr_of(GetParam()));
  Event event;
  event.then = [&] { queue.cq->push({.context = ctx(3)}); };
  {
    Guard guard(domain.engine.lock());
    domain.engine.add(event, event.fd(), EPOLLIN, 0);
  }
  for (int i = 0; i < 20; ++i) {
    ssize_t got = 0;
    Sleeper sleeper([&] { got = queue.sread(); });
    if (i % 5 == 0 && GetParam() != FI_WAIT_YIELD) {
      EXPECT_TRUE(sleeper.eventually_asleep());
    }
    event.signal();
    sleeper.join();
    EXPECT_EQ(got, 1);
  }
  // A deadline of a handler wakes it too.
  event.then_deadline = event.then;
  ssize_t got = 0;
  Sleeper sleeper([&] { got = queue.sread(); });
  {
    Guard guard(domain.engine.lock());
    domain.engine.set_deadline(event, now_ns() + 2'000'000);
  }
  sleeper.join();
  EXPECT_EQ(got, 1);
  Guard guard(domain.engine.lock());
  domain.engine.remove(event);
}

TEST_P(CqWait, SeveralThreadsShareWhatComes) {
  TestDomain domain;
  Queue queue(domain, attr_of(GetParam()));
  constexpr size_t kCount = 1000;
  std::mutex mutex;
  std::multiset<void *> seen;
  {
    std::vector<std::unique_ptr<Sleeper>> readers;
    for (int t = 0; t < 4; ++t)
      readers.push_back(std::make_unique<Sleeper>([&] {
        for (;;) {
          fi_cq_tagged_entry entries[3];
          const ssize_t n = fi_cq_sread(queue.c(), entries, 3, nullptr, kPatienceMs);
          ASSERT_GT(n, 0);
          std::lock_guard guard(mutex);
          for (ssize_t i = 0; i < n; ++i) seen.insert(entries[i].op_context);
          if (seen.contains(nullptr)) return;
        }
      }));
    for (size_t i = 1; i <= kCount; ++i) {
      queue.push(i);
      if (i % 16 == 0) sched_yield();
    }
    for (int t = 0; t < 4 * 3; ++t) queue.push(0);  // enough that each gets one
  }
  seen.erase(nullptr);
  EXPECT_EQ(seen.size(), kCount);
  EXPECT_EQ(std::set<void *>(seen.begin(), seen.end()).size(), kCount);
}

TEST(CqSread, NeedsAWaitObjectOfItsOwn) {
  TestDomain domain;
  Queue none(domain, attr_of(FI_WAIT_NONE));
  EXPECT_EQ(none.sread(0), -FI_EINVAL);
  none.push(1);
  EXPECT_EQ(none.sread(0), -FI_EINVAL);
}

TEST(CqSread, WithACountOfZeroTellsThatThereIsSomething) {
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_UNSPEC));
  ssize_t got = -1;
  Sleeper sleeper([&] { got = fi_cq_sread(queue.c(), nullptr, 0, nullptr, kPatienceMs); });
  EXPECT_TRUE(sleeper.eventually_asleep());
  queue.push(3);
  sleeper.join();
  EXPECT_EQ(got, 0);
  EXPECT_EQ(queue.next(), 3);
}

TEST(CqSread, OfASerializedDomainWorksToo) {
  TestDomain domain(FI_VERSION(1, 17), false);
  Queue queue(domain, attr_of(FI_WAIT_FD));
  EXPECT_EQ(queue.sread(5), -FI_EAGAIN);
  queue.push(1);
  EXPECT_EQ(queue.sread(), 1);
}

TEST(CqSread, WithoutDescriptorsIsAnError) {
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_FD));
  const size_t before = open_files();
  {
    NoMoreFiles none;
    EXPECT_EQ(queue.sread(), -FI_EMFILE);
    EXPECT_EQ(queue.sread(), -FI_EMFILE);
    fid *fids[] = {queue.cq->base()};
    EXPECT_EQ(queue.cq->trywait(), -FI_EMFILE);
    int fd;
    EXPECT_EQ(fi_control(fids[0], FI_GETWAIT, &fd), -FI_EMFILE);
    queue.push(1);
    EXPECT_EQ(queue.sread(), 1) << "what is there can be had";
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_THAT(domain.instance.log(), ElementsAre(HasSubstr("fi_cq_sread")));
  EXPECT_EQ(queue.sread(5), -FI_EAGAIN);
}

TEST(CqSread, WhatAHandlerThrowsLeavesNothingLocked) {
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_FD));
  Event event;
  event.then = [] { throw std::bad_alloc(); };
  domain.engine.add(event, event.fd(), EPOLLIN, 0);
  event.signal();
  EXPECT_EQ(queue.sread(), -FI_ENOMEM);
  EXPECT_FALSE(event.seen() == 0);
  Sleeper other([&] { queue.push(1); });
  EXPECT_TRUE(other.eventually_done());
  EXPECT_EQ(queue.next(), 1);
  domain.engine.remove(event);
}

// ---- the threshold ----

TEST(CqThreshold, WaitsForSoMany) {
  TestDomain domain;
  Queue queue(domain, threshold_attr());
  fi_cq_tagged_entry entries[8];
  ssize_t got = 0;
  Sleeper sleeper([&] { got = fi_cq_sread(queue.c(), entries, 8, ctx(4), kPatienceMs); });
  for (size_t i = 1; i <= 3; ++i) {
    queue.push(i);
    EXPECT_TRUE(sleeper.eventually_asleep());
    EXPECT_FALSE(sleeper.done());
  }
  queue.push(4);
  sleeper.join();
  EXPECT_EQ(got, 4);
}

TEST(CqThreshold, WhenTheTimeIsOverWhatIsThereIsReturned) {
  TestDomain domain;
  Queue queue(domain, threshold_attr());
  fi_cq_tagged_entry entries[8];
  queue.push(1);
  queue.push(2);
  EXPECT_EQ(fi_cq_sread(queue.c(), entries, 8, ctx(4), 20), 2);
  EXPECT_EQ(fi_cq_sread(queue.c(), entries, 8, ctx(4), 0), -FI_EAGAIN);
}

TEST(CqThreshold, AnErrorIsReasonEnough) {
  TestDomain domain;
  Queue queue(domain, threshold_attr());
  fi_cq_tagged_entry entries[8];
  ssize_t got = 0;
  Sleeper sleeper([&] { got = fi_cq_sread(queue.c(), entries, 8, ctx(4), kPatienceMs); });
  queue.push(1);
  EXPECT_TRUE(sleeper.eventually_asleep());
  queue.push_error(2);
  sleeper.join();
  EXPECT_EQ(got, 1);
  EXPECT_EQ(fi_cq_sread(queue.c(), entries, 8, ctx(4), kPatienceMs), -FI_EAVAIL);
}

TEST(CqThreshold, MoreThanTheQueueHoldsIsNotWaitedFor) {
  TestDomain domain;
  fi_cq_attr attr = threshold_attr();
  attr.size = 4;
  Queue queue(domain, attr);
  for (size_t i = 0; i < 4; ++i) queue.push(i);
  fi_cq_tagged_entry entries[8];
  EXPECT_EQ(fi_cq_sread(queue.c(), entries, 8, ctx(1000), kPatienceMs), 4);
  queue.push(1);
  EXPECT_EQ(fi_cq_sread(queue.c(), entries, 8, nullptr, kPatienceMs), 1) << "none given: any";
}

TEST(CqThreshold, IsIgnoredUnlessTheQueueWasOpenedForIt) {
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_UNSPEC));
  queue.push(1);
  EXPECT_EQ(queue.sread(kPatienceMs, 50), 1);
}

TEST(CqThreshold, AThreadThatWaitsForLessIsNotForgotten) {
  // The first entry wakes both threads. The thread that goes on waiting must not take the wakeup of
  // the other thread.
  TestDomain domain;
  Queue queue(domain, threshold_attr());
  for (int round = 0; round < 50; ++round) {
    ssize_t few = 0, many = 0;
    fi_cq_tagged_entry a[8], b[8];
    Sleeper more([&] { many = fi_cq_sread(queue.c(), a, 8, ctx(3), kPatienceMs); });
    Sleeper also([&] { few = fi_cq_sread(queue.c(), b, 8, ctx(2), kPatienceMs); });
    EXPECT_TRUE(more.eventually_asleep());
    EXPECT_TRUE(also.eventually_asleep());
    queue.push(1);
    queue.push(2);
    EXPECT_TRUE(also.eventually_done());
    EXPECT_EQ(few, 2);
    for (size_t i = 0; i < 3; ++i) queue.push(i);
    EXPECT_TRUE(more.eventually_done());
    EXPECT_EQ(many, 3);
  }
}

// ---- the signal ----

TEST(CqSignal, WithoutAWaiterEndsTheNextWait) {
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_FD));
  EXPECT_EQ(fi_cq_signal(queue.c()), 0);
  EXPECT_EQ(fi_cq_signal(queue.c()), 0);
  EXPECT_EQ(queue.sread(), -FI_EAGAIN);
  const uint64_t start = now_ns();
  EXPECT_EQ(queue.sread(20), -FI_EAGAIN) << "once";
  EXPECT_GE(now_ns() - start, 20'000'000u);
}

TEST(CqSignal, AWaiterReturnsWithWhatIsThere) {
  TestDomain domain;
  Queue queue(domain, threshold_attr());
  ssize_t got = 0;
  {
    Sleeper sleeper([&] { got = queue.sread(kPatienceMs, 4); });
    EXPECT_TRUE(sleeper.eventually_asleep());
    EXPECT_EQ(fi_cq_signal(queue.c()), 0);
  }
  EXPECT_EQ(got, -FI_EAGAIN);
  queue.push(1);
  {
    Sleeper sleeper([&] { got = queue.sread(kPatienceMs, 4); });
    EXPECT_TRUE(sleeper.eventually_asleep());
    EXPECT_EQ(fi_cq_signal(queue.c()), 0);
  }
  EXPECT_EQ(got, 1);
}

TEST(CqSignal, AllWaitersReturn) {
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_FD));
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Sleeper>> waiters;
    for (int t = 0; t < 4; ++t)
      waiters.push_back(
          std::make_unique<Sleeper>([&] { EXPECT_EQ(queue.sread(2 * kPatienceMs), -FI_EAGAIN); }));
    for (auto &waiter : waiters) EXPECT_TRUE(waiter->eventually_asleep());
    EXPECT_EQ(fi_cq_signal(queue.c()), 0);
    for (auto &waiter : waiters) EXPECT_TRUE(waiter->eventually_done());
  }
}

TEST(CqSignal, AReaderThatDoesNotWaitDoesNotSwallowIt) {
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_FD));
  std::atomic<bool> stop{false};
  Sleeper spinner([&] {
    while (!stop) {
      EXPECT_EQ(queue.next(), -FI_EAGAIN);
      (void)queue.cq->trywait();
    }
  });
  for (int round = 0; round < 50; ++round) {
    Sleeper waiter([&] { EXPECT_EQ(queue.sread(2 * kPatienceMs), -FI_EAGAIN); });
    EXPECT_TRUE(waiter.eventually_asleep());
    EXPECT_EQ(fi_cq_signal(queue.c()), 0);
    EXPECT_TRUE(waiter.eventually_done());
  }
  stop = true;
}

// ---- waiting without the library ----

TEST(CqNative, TheDescriptorSaysWhenToRead) {
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_FD));
  int fd = -1;
  ASSERT_EQ(fi_control(queue.cq->base(), FI_GETWAIT, &fd), 0);
  enum fi_wait_obj type = FI_WAIT_NONE;
  EXPECT_EQ(fi_control(queue.cq->base(), FI_GETWAITOBJ, &type), 0);
  EXPECT_EQ(type, FI_WAIT_FD);
  EXPECT_EQ(fi_control(queue.cq->base(), FI_ENABLE, nullptr), -FI_ENOSYS);
  EXPECT_EQ(queue.cq->trywait(), 0);
  EXPECT_FALSE(readable(fd));
  queue.push(1);
  queue.push(2);
  EXPECT_TRUE(readable(fd));
  EXPECT_EQ(queue.cq->trywait(), -FI_EAGAIN);
  EXPECT_EQ(queue.next(), 1);
  EXPECT_EQ(queue.cq->trywait(), -FI_EAGAIN);
  EXPECT_TRUE(readable(fd));
  EXPECT_EQ(queue.next(), 2);
  EXPECT_EQ(queue.cq->trywait(), 0);
  EXPECT_FALSE(readable(fd));
  Event event;
  domain.engine.add(event, event.fd(), EPOLLIN, 0);
  event.signal();
  EXPECT_TRUE(readable(fd)) << "there is progress to be made";
  event.then = [&] { queue.cq->push({.context = ctx(3)}); };
  EXPECT_EQ(queue.cq->trywait(), -FI_EAGAIN);
  EXPECT_EQ(queue.next(), 3);
  domain.engine.remove(event);
}

TEST(CqNative, TrywaitThenPollMissesNothing) {
  TestDomain domain;
  Queue queue(domain, attr_of(FI_WAIT_FD));
  int fd = -1;
  ASSERT_EQ(fi_control(queue.cq->base(), FI_GETWAIT, &fd), 0);
  constexpr ssize_t kCount = 2000;
  Sleeper reader([&] {
    for (ssize_t i = 0; i < kCount;) {
      const ssize_t got = queue.next();
      if (got == -FI_EAGAIN) {
        if (queue.cq->trywait() == 0) {
          ASSERT_TRUE(readable(fd, kPatienceMs)) << "asleep at " << i;
        }
        continue;
      }
      ASSERT_EQ(got, i);
      ++i;
    }
  });
  for (ssize_t i = 0; i < kCount; ++i) {
    queue.push(size_t(i));
    if (i % 4 == 0) sched_yield();
  }
  EXPECT_TRUE(reader.eventually_done());
}

}  // namespace
}  // namespace weft::sdk
