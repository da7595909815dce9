// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/objects/cq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "plugin-api/sdk/testing/test_cq.h"

namespace weft::sdk {
namespace {

using ::testing::HasSubstr;

// ---- opening and closing ----

TEST(CqOpen, WithoutAttributesOpensAQueue) {
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

TEST(CqOpen, UnusedEntriesTakeNoMemory) {
  TestDomain domain;
  const auto resident = [] {
    size_t total = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> total >> pages;
    return pages * size_t(sysconf(_SC_PAGESIZE));
  };
  std::vector<std::unique_ptr<TestCq>> queues;
  const size_t before = resident();
  for (int i = 0; i < 16; ++i)
    queues.push_back(std::make_unique<TestCq>(domain, cq_attr(FI_WAIT_NONE, 1 << 18)));
  EXPECT_LT(resident() - before, size_t(8) << 20) << "the queues have room for 224 MiB";
}

TEST(CqOpen, RefusesInvalidAttributes) {
  TestDomain domain;
  const auto code = [&](const fi_cq_attr &attr) {
    auto opened = Cq::open(domain.context, &attr, nullptr);
    EXPECT_FALSE(opened);
    return opened ? 0 : opened.error().code;
  };
  fi_cq_attr attr = cq_attr();
  put(attr.format, -3);
  EXPECT_EQ(code(attr), FI_EINVAL);
  attr = cq_attr();
  put(attr.wait_obj, 99);
  EXPECT_EQ(code(attr), FI_EINVAL);
  EXPECT_EQ(code(cq_attr(FI_WAIT_SET)), FI_EINVAL) << "no wait set given";
  attr = cq_attr(FI_WAIT_FD);
  put(attr.wait_cond, 9);
  EXPECT_EQ(code(attr), FI_EINVAL);
  attr = cq_attr();
  attr.flags = FI_AFFINITY | FI_PEEK;
  EXPECT_EQ(code(attr), FI_EBADFLAGS);
  EXPECT_EQ(code(cq_attr(FI_WAIT_NONE, SIZE_MAX)), FI_ENOMEM);
  domain.instance.refuse = true;
  EXPECT_EQ(code(cq_attr(FI_WAIT_FD)), FI_EOTHER);
}

TEST(CqOpen, IgnoresTheWaitConditionWithoutAWaitObject) {
  TestDomain domain;
  fi_cq_attr attr = cq_attr(FI_WAIT_NONE);
  put(attr.wait_cond, 9);  // fi_cq.3: ignored
  attr.flags = FI_AFFINITY;
  TestCq queue(domain, attr);
  EXPECT_EQ(queue.next(), -FI_EAGAIN);
}

TEST(CqClose, IsRefusedWhileItIsInUse) {
  TestDomain domain;
  TestCq queue(domain, cq_attr());
  queue.cq->users.fetch_add(1);
  EXPECT_EQ(fi_close(queue.cq->base()), -FI_EBUSY);
  EXPECT_EQ(domain.instance.alive.load(), 1);
  queue.cq->users.fetch_sub(1);
}

TEST(CqClose, DropsUnreadEntries) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(FI_WAIT_FD));
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

TEST_P(CqFormats, WritesTheFieldsOfTheFormatAndNothingBeyond) {
  TestDomain domain;
  fi_cq_attr attr = cq_attr();
  attr.format = GetParam();
  TestCq queue(domain, attr);
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
  TestCq queue(domain, cq_attr());
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
  TestCq queue(domain, cq_attr(FI_WAIT_FD));
  queue.push(1);
  EXPECT_EQ(fi_cq_read(queue.c(), nullptr, 1), -FI_EINVAL);
  EXPECT_EQ(fi_cq_sread(queue.c(), nullptr, 1, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_cq_readerr(queue.c(), nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(queue.next(), 1);
}

TEST(CqRead, MakesProgress) {
  TestDomain domain;
  TestCq queue(domain, cq_attr());
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
  TestCq queue(domain, cq_attr());
  Event event;
  queue.push(1);
  domain.engine.mark_dirty(event);
  EXPECT_EQ(queue.next(), 1);
  EXPECT_EQ(event.flushes(), 1);
}

TEST(CqRead, MakesRoomForAHandlerThatWaitsForIt) {
  // Like an endpoint whose peer writes with CQ data while the queue is full.
  TestDomain domain;
  TestCq queue(domain, cq_attr(FI_WAIT_UNSPEC, 4));
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

TEST(CqError, KeepsItsPlaceAmongTheCompletions) {
  TestDomain domain;
  TestCq queue(domain, cq_attr());
  queue.push(1);
  queue.push_error(2, FI_ECANCELED);
  queue.push_error(3, FI_EIO);
  queue.push(4);
  fi_cq_tagged_entry entries[8];
  fi_cq_err_entry error{};
  EXPECT_EQ(fi_cq_readerr(queue.c(), &error, 0), -FI_EAGAIN) << "a completion is first";
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

void push_full_error(TestDomain &domain, TestCq &queue) {
  Guard guard(domain.engine.lock());
  queue.cq->push_error(kError);
}

TEST(CqError, EveryFieldArrives) {
  TestDomain domain;
  TestCq queue(domain, cq_attr());
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

TEST(CqErrorData, IsTheProvidersWithoutABuffer) {
  TestDomain domain;
  TestCq queue(domain, cq_attr());
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
  TestCq queue(domain, cq_attr());
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

TEST(CqErrorData, IsEmptyWhenTheProviderGaveNone) {
  TestDomain domain;
  TestCq queue(domain, cq_attr());
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

TEST(CqErrorData, WritesOnlyTheFieldsOfTheCallersApiVersion) {
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
    TestCq queue(domain, cq_attr());
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

TEST(CqStrerror, HasATextForEachCode) {
  TestDomain domain;
  TestCq queue(domain, cq_attr());
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
  TestCq queue(domain, cq_attr(FI_WAIT_NONE, 4));
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

TEST(CqGrowth, IsFullAtTheRequestedSize) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(FI_WAIT_NONE, 5));
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

TEST(CqOverrun, IsReportedAfterTheEntriesBeforeIt) {
  TestDomain domain;
  domain.context.resource_management = false;
  TestCq queue(domain, cq_attr(FI_WAIT_FD, 4));
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
  fi_cq_attr attr = cq_threshold_attr();
  attr.size = 4;
  TestCq queue(domain, attr);
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

}  // namespace
}  // namespace weft::sdk
