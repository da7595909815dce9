// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/objects/eq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "plugin-api/sdk/testing/test_eq.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;

// ---- opening and closing ----

TEST(EqOpen, WithoutAttributesOpensAQueue) {
  TestInstance instance;
  std::atomic<size_t> children{0};
  fid_fabric fabric{};
  fabric.fid.fclass = FI_CLASS_FABRIC;
  auto opened = Eq::open(instance.c(), &fabric.fid, children, nullptr, &fabric);
  ASSERT_TRUE(opened);
  EXPECT_EQ((*opened)->base()->context, &fabric);
  EXPECT_EQ((*opened)->base()->fclass, size_t(FI_CLASS_EQ));
  EXPECT_EQ(children.load(), 1u);
  uint32_t event = 0;
  EXPECT_EQ(fi_eq_write((*opened)->c(), 1, &event, sizeof event, 0), -FI_EINVAL)
      << "the queue was opened without FI_WRITE";
  EXPECT_EQ(fi_eq_read((*opened)->c(), &event, &event, sizeof event, 0), -FI_EAGAIN);
  EXPECT_EQ(fi_eq_sread((*opened)->c(), &event, &event, sizeof event, 0, 0), -FI_EINVAL);
  EXPECT_EQ((*opened)->trywait(), -FI_EINVAL);
  (*opened)->users.fetch_add(1);
  EXPECT_EQ(fi_close((*opened)->base()), -FI_EBUSY);
  (*opened)->users.fetch_sub(1);
  EXPECT_EQ(fi_close((*opened)->base()), 0);
}

TEST(EqOpen, RefusesInvalidAttributes) {
  TestInstance instance;
  std::atomic<size_t> children{0};
  fid_fabric fabric{};
  const auto code = [&](const fi_eq_attr &attr) {
    auto opened = Eq::open(instance.c(), &fabric.fid, children, &attr, nullptr);
    EXPECT_FALSE(opened);
    return opened ? 0 : opened.error().code;
  };
  EXPECT_EQ(code(eq_attr(FI_WAIT_NONE, FI_READ)), FI_EBADFLAGS);
  fi_eq_attr attr = eq_attr();
  put(attr.wait_obj, 100);
  EXPECT_EQ(code(attr), FI_EINVAL);
  EXPECT_EQ(code(eq_attr(FI_WAIT_SET)), FI_EINVAL);
  instance.refuse = true;
  EXPECT_EQ(code(eq_attr(FI_WAIT_FD)), FI_EOTHER);
  EXPECT_EQ(children.load(), 0u);
}

// ---- reading and writing ----

TEST(EqRead, InOrder) {
  TestEq queue;
  for (uint32_t i = 1; i <= 5; ++i) queue.write(i);
  for (uint32_t i = 1; i <= 5; ++i) EXPECT_EQ(queue.next(), i);
  EXPECT_EQ(queue.next(), -FI_EAGAIN);
}

TEST(EqRead, APeekLeavesTheEvent) {
  TestEq queue;
  queue.write(1);
  queue.write(2);
  EXPECT_EQ(queue.next(FI_PEEK), 1);
  EXPECT_EQ(queue.next(FI_PEEK), 1);
  EXPECT_EQ(queue.next(), 1);
  EXPECT_EQ(queue.next(FI_PEEK), 2);
  EXPECT_EQ(queue.next(), 2);
  EXPECT_EQ(queue.next(FI_PEEK), -FI_EAGAIN);
}

TEST(EqRead, ASmallBufferLosesNothing) {
  TestEq queue;
  EventSource source;  // any object with a fid would do
  queue.eq->push(FI_MR_COMPLETE, queue.eq->base(), 77);
  uint32_t event = 0;
  fi_eq_entry entry{};
  EXPECT_EQ(fi_eq_read(queue.c(), &event, &entry, sizeof entry - 1, 0), -FI_ETOOSMALL);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, nullptr, 0, 0), -FI_ETOOSMALL);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, nullptr, sizeof entry, 0), -FI_EINVAL);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, &entry, sizeof entry, 0), ssize_t(sizeof entry));
  EXPECT_EQ(event, uint32_t(FI_MR_COMPLETE));
  EXPECT_EQ(entry.fid, queue.eq->base());
  EXPECT_EQ(entry.context, &queue);
  EXPECT_EQ(entry.data, 77u);
}

TEST(EqRead, ReturnsWhatTheApplicationWrote) {
  TestEq queue;
  const std::string text(3000, 'w');
  EXPECT_EQ(fi_eq_write(queue.c(), 8, text.data(), text.size(), 0), ssize_t(text.size()));
  EXPECT_EQ(fi_eq_write(queue.c(), 9, nullptr, 0, 0), 0);
  EXPECT_EQ(fi_eq_write(queue.c(), 9, nullptr, 1, 0), -FI_EINVAL);
  std::string in(text.size(), ' ');
  uint32_t event = 0;
  EXPECT_EQ(fi_eq_read(queue.c(), &event, in.data(), in.size() - 1, 0), -FI_ETOOSMALL);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, in.data(), in.size(), 0), ssize_t(in.size()));
  EXPECT_EQ(in, text);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, nullptr, 0, 0), 0);
  EXPECT_EQ(event, 9u);
}

TEST(EqRead, MakesProgressOfItsSources) {
  TestEq queue;
  EventSource a, b;
  queue.push_from(a, 1);
  queue.push_from(b, 2);
  queue.eq->add_source(a.engine);
  queue.eq->add_source(b.engine);
  queue.eq->add_source(b.engine);
  b.event.signal();
  EXPECT_EQ(queue.next(), 2);
  queue.eq->remove_source(b.engine);
  b.event.signal();
  EXPECT_EQ(queue.next(), 2) << "it was added twice";
  queue.eq->remove_source(b.engine);
  queue.eq->remove_source(b.engine);
  b.event.signal();
  EXPECT_EQ(queue.next(), -FI_EAGAIN);
  a.event.signal();
  EXPECT_EQ(queue.next(), 1);
  queue.eq->remove_source(a.engine);
}

TEST(EqConnection, PrivateDataFollowsTheEntry) {
  TestEq queue;
  const std::array<std::byte, 5> data{std::byte{1}, std::byte{2}, std::byte{3}};
  fi_info info{};
  queue.eq->push_cm(FI_CONNREQ, queue.eq->base(), &info, data);
  queue.eq->push_cm(FI_CONNECTED, queue.eq->base(), nullptr, {});
  alignas(fi_eq_cm_entry) unsigned char memory[64];
  auto *entry = reinterpret_cast<fi_eq_cm_entry *>(memory);
  uint32_t event = 0;
  EXPECT_EQ(fi_eq_read(queue.c(), &event, entry, sizeof *entry - 1, 0), -FI_ETOOSMALL);
  std::memset(memory, 0x5a, sizeof memory);
  // What does not fit of the data is cut.
  EXPECT_EQ(fi_eq_read(queue.c(), &event, entry, sizeof *entry + 2, FI_PEEK),
            ssize_t(sizeof *entry + 2));
  EXPECT_EQ(entry->data[1], 2);
  EXPECT_EQ(entry->data[2], 0x5a);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, entry, sizeof memory, 0), ssize_t(sizeof *entry + 5));
  EXPECT_EQ(event, uint32_t(FI_CONNREQ));
  EXPECT_EQ(entry->fid, queue.eq->base());
  EXPECT_EQ(entry->info, &info);
  EXPECT_EQ(entry->data[2], 3);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, entry, sizeof *entry, 0), ssize_t(sizeof *entry));
  EXPECT_EQ(event, uint32_t(FI_CONNECTED));
  EXPECT_EQ(entry->info, nullptr);
  EXPECT_TRUE(dropped.empty()) << "what was read is the reader's";
}

TEST(EqConnection, UnreadEventsOfAClosedObjectAreDropped) {
  TestEq queue;
  struct fid one {
  }, two{};
  fi_info a{}, b{}, c{};
  queue.eq->push_cm(FI_CONNREQ, &one, &a, {});
  queue.eq->push_cm(FI_CONNREQ, &two, &b, {});
  queue.eq->push_error({.fid = &one, .err = FI_EIO});
  queue.eq->push_cm(FI_CONNREQ, &one, &c, {});
  queue.write(5);
  queue.eq->forget(&one);
  EXPECT_THAT(dropped, ElementsAre(&a, &c));
  queue.eq->forget(&one);
  fi_eq_cm_entry entry{};
  uint32_t event = 0;
  EXPECT_EQ(fi_eq_read(queue.c(), &event, &entry, sizeof entry, FI_PEEK), ssize_t(sizeof entry));
  EXPECT_EQ(entry.fid, &two);
  queue.close();
  EXPECT_THAT(dropped, ElementsAre(&a, &c, &b));
}

// ---- errors ----

TEST(EqError, KeepsItsPlaceAmongTheEvents) {
  TestEq queue;
  queue.write(1);
  EventError error = kEventError;
  error.fid = queue.eq->base();
  queue.eq->push_error(error);
  queue.write(2);
  fi_eq_err_entry entry{};
  EXPECT_EQ(fi_eq_readerr(queue.c(), &entry, 0), -FI_EAGAIN);
  EXPECT_EQ(queue.next(), 1);
  EXPECT_EQ(queue.next(), -FI_EAVAIL);
  EXPECT_EQ(fi_eq_readerr(queue.c(), nullptr, 0), -FI_EINVAL);
  for (const uint64_t flags : {uint64_t(FI_PEEK), uint64_t(0)}) {
    entry = {};
    ASSERT_EQ(fi_eq_readerr(queue.c(), &entry, flags), ssize_t(sizeof entry));
    EXPECT_EQ(entry.fid, queue.eq->base());
    EXPECT_EQ(entry.context, kEventError.context);
    EXPECT_EQ(entry.data, kEventError.data);
    EXPECT_EQ(entry.err, kEventError.err);
    EXPECT_EQ(entry.prov_errno, kEventError.prov_errno);
    ASSERT_EQ(entry.err_data_size, kEventError.err_data.size());
    EXPECT_EQ(std::memcmp(entry.err_data, kEventError.err_data.data(), entry.err_data_size), 0);
  }
  EXPECT_EQ(fi_eq_readerr(queue.c(), &entry, 0), -FI_EAGAIN);
  EXPECT_EQ(queue.next(), 2);
}

TEST(EqError, ItsDataIsCopiedAndCutToTheBuffer) {
  TestEq queue;
  for (const size_t room : {1, 3, 7, 100}) {
    queue.eq->push_error(kEventError);
    const std::unique_ptr<char[]> buffer(new char[room]);
    fi_eq_err_entry entry{};
    entry.err_data = buffer.get();
    entry.err_data_size = room;
    ASSERT_EQ(fi_eq_readerr(queue.c(), &entry, 0), ssize_t(sizeof entry));
    EXPECT_EQ(entry.err_data, buffer.get());
    EXPECT_EQ(entry.err_data_size, std::min(room, kEventError.err_data.size()));
    EXPECT_EQ(std::memcmp(buffer.get(), kEventError.err_data.data(), entry.err_data_size), 0);
  }
  queue.eq->push_error({.err = FI_EIO});
  fi_eq_err_entry entry{};
  entry.err_data_size = 5;
  ASSERT_EQ(fi_eq_readerr(queue.c(), &entry, 0), ssize_t(sizeof entry));
  EXPECT_EQ(entry.err_data, nullptr);
  EXPECT_EQ(entry.err_data_size, 0u);
}

TEST(EqError, IgnoresTheBufferFieldsOfCallersBeforeApi15) {
  // fi_eq.3: before API 1.5 these fields were outputs only, so callers did not initialize them.
  TestEq queue(eq_attr(), FI_VERSION(1, 4));
  queue.eq->push_error(kEventError);
  fi_eq_err_entry entry;
  std::memset(&entry, 0x5a, sizeof entry);
  ASSERT_EQ(fi_eq_readerr(queue.c(), &entry, 0), ssize_t(sizeof entry));
  ASSERT_EQ(entry.err_data_size, kEventError.err_data.size());
  EXPECT_EQ(std::memcmp(entry.err_data, kEventError.err_data.data(), entry.err_data_size), 0);
}

TEST(EqError, HasAText) {
  TestEq queue;
  char text[64];
  EXPECT_EQ(fi_eq_strerror(queue.c(), FI_ECONNREFUSED, nullptr, text, sizeof text), text);
  EXPECT_STREQ(text, strerror(ECONNREFUSED));
}

}  // namespace
}  // namespace weft::sdk
