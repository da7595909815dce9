// SPDX-License-Identifier: BSD-2-Clause
// Hmem on the double of CUDA's driver (tests/hmem), whose memory faults when it is touched.
#include <gtest/gtest.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/transfers/atomic.h>

#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/hmem/device.h"

namespace weft::sdk {
namespace {

using hmem::DeviceMemory;
using Kind = DeviceMemory::Kind;

class HmemTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hmem::have_double()) GTEST_SKIP() << "WEFT_TEST_CUDA names no double of libcuda";
    auto opened = Hmem::open({.cuda = std::getenv("WEFT_TEST_CUDA"), .direct = 100});
    ASSERT_TRUE(opened) << opened.error().text;
    hmem_ = *opened;
  }
  static std::vector<uint8_t> numbers(size_t count) {
    std::vector<uint8_t> bytes(count);
    std::iota(bytes.begin(), bytes.end(), uint8_t{1});
    return bytes;
  }
  // Why a registration is refused; "": it is not.
  std::string why(const void *at, size_t length, enum fi_hmem_iface iface, int device = 0,
                  uint64_t flags = 0) {
    const iovec iov{const_cast<void *>(at), length};
    fi_mr_attr attr{};
    attr.mr_iov = &iov;
    attr.iov_count = 1;
    attr.iface = iface;
    attr.device.cuda = device;
    const auto place = hmem_->check(attr, flags);
    return place ? "" : place.error().text;
  }
  std::shared_ptr<const Hmem> hmem_;
};

TEST_F(HmemTest, AnAddressSaysWhoseItIs) {
  const std::vector<uint8_t> host(100);
  EXPECT_FALSE(hmem_->find(host.data(), host.size()));
  const DeviceMemory memory(5000, 1);
  const HmemPlace place = hmem_->find(memory.data() + 1000, 10);
  ASSERT_TRUE(place);
  EXPECT_EQ(place.iface->iface(), FI_HMEM_CUDA);
  EXPECT_EQ(place.device, 1u);
  EXPECT_EQ(place.bytes, 4000u);
  EXPECT_EQ(place.kind, HmemPlace::Kind::kDevice);
  EXPECT_FALSE(hmem_->find(memory.data(), 0)) << "nothing is nowhere";
}

TEST_F(HmemTest, PinnedMemoryOfTheHostIsTheHosts) {
  const DeviceMemory pinned(100, 0, Kind::kHost);
  EXPECT_FALSE(hmem_->find(pinned.data(), 100));
}

TEST_F(HmemTest, BytesGoThereAndBack) {
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{1000001}}) {
    const std::vector<uint8_t> out = numbers(size);
    const DeviceMemory memory(size), other(size, 1);
    const HmemPlace place = hmem_->find(memory.data(), size);
    const HmemPlace second = hmem_->find(other.data(), size);
    EXPECT_TRUE(hmem_copy(memory.data(), &place, out.data(), nullptr, size));
    EXPECT_EQ(memory.read(), out);
    EXPECT_TRUE(hmem_copy(other.data(), &second, memory.data(), &place, size));
    std::vector<uint8_t> in(size);
    EXPECT_TRUE(hmem_copy(in.data(), nullptr, other.data(), &second, size));
    EXPECT_EQ(in, out);
  }
}

TEST_F(HmemTest, TheHostsMemoryMayOverlap) {
  std::vector<uint8_t> bytes = numbers(10);
  EXPECT_TRUE(hmem_copy(bytes.data() + 1, nullptr, bytes.data(), nullptr, 9));
  EXPECT_EQ(bytes[9], 9);
  EXPECT_TRUE(hmem_copy(nullptr, nullptr, nullptr, nullptr, 0));
}

TEST_F(HmemTest, ACopyBeyondTheAllocationFails) {
  const DeviceMemory memory(100);
  const HmemPlace place = hmem_->find(memory.data(), 100);
  std::vector<uint8_t> in(200);
  EXPECT_FALSE(hmem_copy(in.data(), nullptr, memory.data(), &place, 200));
}

TEST_F(HmemTest, AThreadWithoutAContextCopies) {
  const DeviceMemory memory(numbers(100));
  const HmemPlace place = hmem_->find(memory.data(), 100);
  std::vector<uint8_t> in(100);
  std::thread([&] {
    EXPECT_TRUE(hmem_copy(in.data(), nullptr, memory.data(), &place, 100));
  }).join();
  EXPECT_EQ(in, numbers(100));
}

TEST_F(HmemTest, ShortCopiesOfSharedMemoryAreTheProcessors) {
  const DeviceMemory shared(1000, 0, Kind::kManaged);
  const HmemPlace place = hmem_->find(shared.data(), 1000);
  ASSERT_EQ(place.kind, HmemPlace::Kind::kShared);
  std::vector<uint8_t> bytes = numbers(1000);
  const uint64_t before = hmem::count("copies");
  EXPECT_TRUE(hmem_copy(shared.data(), &place, bytes.data(), nullptr, 100));
  EXPECT_EQ(hmem::count("copies"), before);
  EXPECT_TRUE(hmem_copy(shared.data(), &place, bytes.data(), nullptr, 101));
  EXPECT_EQ(hmem::count("copies"), before + 1);
}

TEST_F(HmemTest, ADmabufHasTheBytes) {
  const DeviceMemory memory(numbers(10000));
  const HmemPlace place = hmem_->find(memory.data(), 10000);
  auto range = place.iface->dmabuf(place, memory.data() + 5, 100);
  ASSERT_TRUE(range) << range.error().text;
  EXPECT_EQ(range->offset, 5u);
  void *const seen = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, range->fd.get(), 0);
  ASSERT_NE(seen, MAP_FAILED);
  EXPECT_EQ(static_cast<const uint8_t *>(seen)[5], 6);
  ::munmap(seen, 4096);
  const std::vector<uint8_t> host(10);
  EXPECT_FALSE(place.iface->dmabuf(place, host.data(), 10));
}

TEST_F(HmemTest, VectorsInMemoryOfAnyKindAreGatheredAndScattered) {
  const DeviceMemory first(numbers(100)), second(100, 1);
  std::vector<uint8_t> host(100), out(250);
  const iovec iov[3] = {{first.data(), 100}, {host.data(), 100}, {second.data(), 100}};
  std::vector<uint8_t> in(250);
  std::iota(in.begin(), in.end(), uint8_t{7});
  EXPECT_TRUE(hmem_scatter(hmem_.get(), iov, 3, 25, in.data(), in.size()));
  EXPECT_TRUE(hmem_gather(hmem_.get(), out.data(), iov, 3, 25, out.size()));
  EXPECT_EQ(out, in);
  EXPECT_EQ(first.read(0, 25), numbers(25)) << "what is before the offset stays";
  EXPECT_EQ(second.read(0, 75), std::vector<uint8_t>(in.begin() + 175, in.end()));
  EXPECT_TRUE(hmem_->holds(iov, 3));
  const iovec beyond{second.data() + 50, 51};
  EXPECT_FALSE(hmem_->holds(&beyond, 1));
  hmem::fail_after(0);
  EXPECT_FALSE(hmem_gather(hmem_.get(), out.data(), iov, 1, 0, 10));
  EXPECT_TRUE(hmem_gather(nullptr, out.data(), iov + 1, 1, 0, 10)) << "without FI_HMEM";
  hmem::fail_no_more();
}

TEST_F(HmemTest, AnAtomicOnADevice) {
  std::vector<uint8_t> words(16);
  words[0] = 5;
  words[8] = 6;
  const DeviceMemory memory(words);
  const iovec target{memory.data(), 16};
  const uint64_t operands[2] = {10, 20};
  uint64_t old[2] = {};
  EXPECT_TRUE(hmem_atomic(hmem_.get(), AtomicKind::kFetch, FI_SUM, FI_UINT64, &target, 1, 16,
                          operands, nullptr, old));
  EXPECT_EQ(old[0], 5u);
  EXPECT_EQ(old[1], 6u);
  EXPECT_EQ(memory.read()[0], 15);
  EXPECT_EQ(memory.read()[8], 26);
}

TEST_F(HmemTest, ARegistrationMustBeTrue) {
  const std::vector<uint8_t> host(100);
  const DeviceMemory memory(100, 1), pinned(100, 0, Kind::kHost), shared(100, 0, Kind::kManaged);
  EXPECT_EQ(why(host.data(), 100, FI_HMEM_SYSTEM), "");
  EXPECT_EQ(why(memory.data(), 100, FI_HMEM_CUDA, 1), "");
  EXPECT_EQ(why(memory.data(), 100, FI_HMEM_CUDA, 1, FI_HMEM_DEVICE_ONLY), "");
  EXPECT_EQ(why(pinned.data(), 100, FI_HMEM_CUDA, 7, FI_HMEM_HOST_ALLOC), "");
  EXPECT_EQ(why(shared.data(), 100, FI_HMEM_SYSTEM), "");
  EXPECT_EQ(why(nullptr, 0, FI_HMEM_CUDA), "");
  const auto has = [](const std::string &text, const char *part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_PRED2(has, why(memory.data(), 100, FI_HMEM_SYSTEM), "of CUDA device 1");
  EXPECT_PRED2(has, why(host.data(), 100, FI_HMEM_CUDA), "is the host's");
  EXPECT_PRED2(has, why(memory.data(), 100, FI_HMEM_CUDA, 0), "device is 0");
  EXPECT_PRED2(has, why(memory.data(), 101, FI_HMEM_CUDA, 1), "ends after 100");
  EXPECT_PRED2(has, why(memory.data(), 100, FI_HMEM_ROCR, 1), "FI_HMEM_ROCR");
  EXPECT_PRED2(has, why(host.data(), 100, fi_hmem_iface(77)), "no interface that exists");
  EXPECT_PRED2(has, why(host.data(), 100, FI_HMEM_SYSTEM, 0, FI_HMEM_DEVICE_ONLY),
               "FI_HMEM_DEVICE_ONLY");
  EXPECT_PRED2(has, why(pinned.data(), 100, FI_HMEM_CUDA, 0, FI_HMEM_DEVICE_ONLY), "the host's");
}

TEST_F(HmemTest, WhatTheApplicationCopiedBeforeComesBefore) {
  const hmem::CurrentContext current;
  const std::vector<uint8_t> first = numbers(1000), second(1000, 9);
  DeviceMemory memory(1000);
  std::vector<uint8_t> host(1000);
  for (const std::vector<uint8_t> *bytes : {&first, &second}) {
    hmem::copy(memory.data(), bytes->data(), bytes->size());  // it may return before they are there
    const HmemPlace place = hmem_->find(memory.data(), memory.size());
    ASSERT_TRUE(hmem_copy(host.data(), nullptr, memory.data(), &place, host.size()));
    EXPECT_EQ(host, *bytes);
  }
}

TEST_F(HmemTest, HostMemoryIsRegisteredInTheContextAtHand) {
  std::vector<uint8_t> host(100);
  hmem_->register_host(host.data(), host.size());
  EXPECT_EQ(hmem::count("registered"), 0u) << "the thread has no context";
  const hmem::CurrentContext current;
  hmem_->register_host(host.data(), host.size());
  EXPECT_EQ(hmem::count("registered"), 1u);
  std::thread([&] { hmem_->unregister_host(host.data()); }).join();
  EXPECT_EQ(hmem::count("registered"), 0u);
}

TEST_F(HmemTest, OptionsOfAnEndpointThatCopies) {
  HmemEndpointOptions options;
  const auto set = [&](const Hmem *hmem, int name, auto value) {
    return options.set(hmem, name, &value, sizeof value);
  };
  const Hmem *const own = hmem_.get();
  EXPECT_EQ(set(nullptr, FI_OPT_FI_HMEM_P2P, int{FI_HMEM_P2P_ENABLED}), -FI_ENOPROTOOPT);
  EXPECT_EQ(set(own, FI_OPT_FI_HMEM_P2P, int{FI_HMEM_P2P_DISABLED}), 0);
  EXPECT_EQ(set(own, FI_OPT_FI_HMEM_P2P, int{FI_HMEM_P2P_REQUIRED}), -FI_EOPNOTSUPP);
  EXPECT_EQ(set(own, FI_OPT_FI_HMEM_P2P, int{4}), -FI_EINVAL);
  EXPECT_EQ(set(own, FI_OPT_FI_HMEM_P2P, char{0}), -FI_EINVAL);
  EXPECT_EQ(set(own, FI_OPT_MIN_MULTI_RECV, int{0}), -FI_ENOPROTOOPT);
  int value = 0;
  size_t length = sizeof value;
  EXPECT_EQ(options.get(own, FI_OPT_FI_HMEM_P2P, &value, &length), 0);
  EXPECT_EQ(value, FI_HMEM_P2P_DISABLED);
  EXPECT_EQ(options.get(nullptr, FI_OPT_FI_HMEM_P2P, &value, &length), -FI_ENOPROTOOPT);
  length = 1;
  EXPECT_EQ(options.get(own, FI_OPT_FI_HMEM_P2P, &value, &length), -FI_ETOOSMALL);
  EXPECT_EQ(length, sizeof(int));
  EXPECT_EQ(set(own, FI_OPT_CUDA_API_PERMITTED, true), 0);
  EXPECT_EQ(set(own, FI_OPT_CUDA_API_PERMITTED, false), -FI_EOPNOTSUPP);
  EXPECT_EQ(set(own, FI_OPT_CUDA_API_PERMITTED, int{1}), -FI_EINVAL);
  EXPECT_EQ(set(nullptr, FI_OPT_CUDA_API_PERMITTED, true), -FI_EINVAL);
}

TEST(HmemOpen, WithoutALibraryTheReasonIsSaid) {
  const auto missing = Hmem::open({.cuda = "libno-such-driver.so"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, FI_ENODATA);
  EXPECT_NE(missing.error().text.find("libno-such-driver.so"), std::string::npos);
  const auto none = Hmem::open({.cuda = ""});
  EXPECT_EQ(none.error().code, FI_ENODATA);
  const auto other = Hmem::open({.cuda = "libc.so.6"});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, FI_ENOSYS);
  EXPECT_NE(other.error().text.find("cuInit"), std::string::npos);
}

}  // namespace
}  // namespace weft::sdk
