// SPDX-License-Identifier: BSD-2-Clause
// Names, sockets and memory of two ends in one process.
#include "plugins/shm/host_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "plugins/shm/far_memory.h"
#include "plugins/shm/wire/pair_memory.h"

namespace weft::shm {
namespace {

using ::testing::HasSubstr;

constexpr Geometry kRings{.lines = 64, .bytes = 1 << 16};

sdk::Address own_name(const char *test) {
  const std::string text = "fi_shm://" + std::to_string(getpid()) + "-" + test;
  return sdk::read_address(FI_ADDR_STR, text.c_str()).value();
}
std::vector<uint8_t> bytes_of(const char *text) {
  return {text, text + std::strlen(text)};
}

struct Sockets {
  explicit Sockets(const char *test) : name(own_name(test)), listener(listen_as(name, 8).value()) {
    asks = connect_to(name).value();
    asked = accept_from(listener.get());
  }
  const sdk::Address name;
  sdk::UniqueFd listener, asks, asked;
};

TEST(ShmSocket, ANameIsTakenOnceAndGoesWithItsSocket) {
  const sdk::Address name = own_name("once");
  EXPECT_EQ(connect_to(name).error().code, FI_ECONNREFUSED);
  {
    const auto listener = listen_as(name, 8);
    ASSERT_TRUE(listener);
    EXPECT_EQ(listen_as(name, 8).error().code, FI_EADDRINUSE);
    EXPECT_TRUE(connect_to(name));
  }
  EXPECT_EQ(connect_to(name).error().code, FI_ECONNREFUSED);
  EXPECT_TRUE(listen_as(name, 8));
}

// Who asks does not wait: the listener finds what was sent when it looks.
TEST(ShmSocket, PacketsAndADescriptorWaitForTheListener) {
  const sdk::Address name = own_name("waits");
  const sdk::UniqueFd listener = listen_as(name, 8).value();
  {
    const sdk::UniqueFd asks = connect_to(name).value();
    const sdk::UniqueFd fd = PairMemory::make(kRings).value();
    EXPECT_EQ(send_packet(asks.get(), bytes_of("hello"), fd.get()), 0);
  }
  const sdk::UniqueFd asked = accept_from(listener.get());
  ASSERT_GE(asked.get(), 0);
  EXPECT_LT(accept_from(listener.get()).get(), 0);
  uint8_t packet[16];
  sdk::UniqueFd fd;
  EXPECT_EQ(receive_packet(asked.get(), packet, &fd), 5);
  EXPECT_TRUE(PairMemory::map(fd.get(), kRings));
  EXPECT_EQ(receive_packet(asked.get(), packet), 0) << "it is gone";
}

TEST(ShmSocket, TheKernelSaysWhoTheOtherEndIs) {
  const Sockets sockets("who");
  for (const int socket : {sockets.asks.get(), sockets.asked.get()}) {
    const auto process = process_of(socket);
    ASSERT_TRUE(process);
    EXPECT_EQ(process->pid, getpid());
    EXPECT_EQ(process->uid, getuid());
  }
}

TEST(ShmSocket, TheEndOfOneIsSeenByTheOther) {
  Sockets sockets("end");
  uint8_t packet[16];
  EXPECT_EQ(receive_packet(sockets.asks.get(), packet), -EAGAIN);
  EXPECT_TRUE(is_alive(sockets.asks.get()));
  sockets.asked.reset();
  EXPECT_FALSE(is_alive(sockets.asks.get()));
  EXPECT_EQ(receive_packet(sockets.asks.get(), packet), 0);
  EXPECT_LT(send_packet(sockets.asks.get(), bytes_of("x")), 0);
}

TEST(ShmSocket, MoreDescriptorsThanOneAreClosed) {
  Sockets sockets("many");
  int fds[3];
  for (int &fd : fds) fd = dup(0);
  char control[CMSG_SPACE(sizeof fds)] = {};
  iovec part{const_cast<char *>("x"), 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr *const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(header), fds, sizeof fds);
  ASSERT_EQ(sendmsg(sockets.asks.get(), &message, 0), 1);
  for (const int fd : fds) close(fd);
  uint8_t packet[16];
  sdk::UniqueFd first;
  EXPECT_EQ(receive_packet(sockets.asked.get(), packet, &first), 1);
  ASSERT_GE(first.get(), 0);
  const int next = dup(0);  // the lowest that is free
  close(next);
  EXPECT_LE(next, first.get() + 1) << "the others are not open";
}

// ---- memory ----

TEST(ShmMemory, BothEndsSeeTheSame) {
  const sdk::UniqueFd fd = PairMemory::make(kRings).value();
  const PairMemory one = PairMemory::map(fd.get(), kRings).value();
  const PairMemory two = PairMemory::map(fd.get(), kRings).value();
  Producer out(direction_of(one.base(), kRings, 0), kRings);
  Consumer in(direction_of(two.base(), kRings, 0), kRings);
  out.put({.type = 3, .size = 5, .tag = 8}, "hello");
  Head head;
  ASSERT_TRUE(in.peek(head));
  EXPECT_EQ(head.tag, 8u);
}

// A peer passes some descriptor. None of these may be mapped: who touches its memory would get a
// signal when the peer likes.
TEST(ShmMemory, WhatIsNotMemoryOfThatSizeIsRefused) {
  const auto refused = [](int fd, const Geometry &geometry = kRings) {
    const auto mapped = PairMemory::map(fd, geometry);
    EXPECT_FALSE(mapped);
    return mapped ? std::string() : mapped.error().text;
  };
  const sdk::UniqueFd good = PairMemory::make(kRings).value();
  EXPECT_THAT(refused(good.get(), {.lines = 128, .bytes = 1 << 16}), HasSubstr("should have"));
  EXPECT_THAT(refused(good.get(), {.lines = 65, .bytes = 1 << 16}), HasSubstr("not possible"));
  EXPECT_THAT(refused(-1), HasSubstr("not of memory"));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_THAT(refused(ends[0]), HasSubstr("not of memory"));
  close(ends[0]);
  close(ends[1]);
  const sdk::UniqueFd open(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open.get(), off_t(1) << 20), 0);
  EXPECT_THAT(refused(open.get()), HasSubstr("can still be changed"));
  const sdk::UniqueFd small(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(fcntl(small.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_THAT(refused(small.get()), HasSubstr("should have"));
  const sdk::UniqueFd fixed = PairMemory::make(kRings).value();
  const sdk::UniqueFd frozen(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(frozen.get(), lseek(fixed.get(), 0, SEEK_END)), 0);
  ASSERT_EQ(fcntl(frozen.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
  EXPECT_THAT(refused(frozen.get()), HasSubstr("mmap"));
}

// ---- copies ----

TEST(ShmFarMemory, CopiesBetweenVectors) {
  const std::string from = "0123456789";
  std::string to(10, '.');
  const FarVector far[2] = {{.address = reinterpret_cast<uintptr_t>(from.data()), .length = 3},
                            {.address = reinterpret_cast<uintptr_t>(from.data() + 5), .length = 5}};
  const iovec own[2] = {{to.data(), 2}, {to.data() + 4, 6}};
  const int error = read_far(getpid(), own, 2, far, 2, 7);
  if (error == EPERM || error == ENOSYS) GTEST_SKIP() << "processes cannot copy here";
  ASSERT_EQ(error, 0);
  EXPECT_EQ(to, "01..25678.");
}

TEST(ShmFarMemory, AWrongAddressIsAnError) {
  uint8_t byte = 0;
  const iovec own{&byte, 1};
  for (const uint64_t address : {UINT64_C(0), UINT64_MAX, UINT64_C(1) << 63}) {
    const FarVector far{.address = address, .length = 1};
    EXPECT_NE(read_far(getpid(), &own, 1, &far, 1, 1), 0);
    EXPECT_NE(write_far(getpid(), &own, 1, &far, 1, 1), 0);
  }
}

}  // namespace
}  // namespace weft::shm
