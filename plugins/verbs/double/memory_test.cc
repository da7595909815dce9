// SPDX-License-Identifier: BSD-2-Clause
// Devices as programs see them, and the registration of memory.
#include <sys/mman.h>

#include "plugins/verbs/double/test_pair.h"

namespace weft::verbs_double {
namespace {

class DoubleMemory : public testing::Test {
 protected:
  void SetUp() override {
    ibv_device **list = ibv_get_device_list(nullptr);
    ASSERT_NE(list[0], nullptr);
    context_ = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    ASSERT_NE(context_, nullptr);
    pd_ = ibv_alloc_pd(context_);
    ASSERT_NE(pd_, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    EXPECT_EQ(ibv_close_device(context_), 0);
    EXPECT_EQ(surroundings_.network.open_objects(), "");
  }

  Surroundings surroundings_;
  ibv_context *context_ = nullptr;
  ibv_pd *pd_ = nullptr;
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(4096);
};

TEST_F(DoubleMemory, DeviceReportsItsLimits) {
  ibv_device_attr attr = {};
  ASSERT_EQ(ibv_query_device(context_, &attr), 0);
  EXPECT_EQ(attr.max_qp_wr, Limits().max_qp_wr);
  EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_HCA);
  ibv_device_attr_ex whole = {};
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &whole), 0);
  EXPECT_EQ(whole.orig_attr.max_cqe, attr.max_cqe);
  ibv_port_attr port = {};
  ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(ibv_query_port(context_, 2, &port), EINVAL);
}

TEST_F(DoubleMemory, GidTableHasTheAddresses) {
  ibv_gid gid = {};
  ASSERT_EQ(ibv_query_gid(context_, 1, 1, &gid), 0);
  const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 99, 0, 1};
  EXPECT_EQ(std::memcmp(gid.raw, mapped, sizeof mapped), 0);
  ibv_gid_entry entry = {};
  ASSERT_EQ(ibv_query_gid_ex(context_, 1, 1, &entry, 0), 0);
  EXPECT_EQ(entry.gid_type, static_cast<uint32_t>(IBV_GID_TYPE_ROCE_V2));
  ibv_gid_entry table[8];
  EXPECT_EQ(ibv_query_gid_table(context_, table, 8, 0), 3);
  EXPECT_EQ(ibv_query_gid(context_, 1, 3, &gid), -1);
}

TEST_F(DoubleMemory, KeysDiffer) {
  ibv_mr *first = ibv_reg_mr(pd_, memory_.data(), 64, IBV_ACCESS_LOCAL_WRITE);
  ibv_mr *second = ibv_reg_mr(pd_, memory_.data(), 64, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first->lkey, second->lkey);
  EXPECT_NE(first->lkey, first->rkey);
  EXPECT_EQ(first->addr, memory_.data());
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(first), 0);
  EXPECT_EQ(ibv_dereg_mr(second), 0);
}

TEST_F(DoubleMemory, RemoteChangesNeedLocalOnes) {
  EXPECT_EQ(ibv_reg_mr(pd_, memory_.data(), 64, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(DoubleMemory, MemoryMustBeMapped) {
  void *gone = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_EQ(munmap(gone, 8192), 0);
  EXPECT_EQ(ibv_reg_mr(pd_, gone, 8192, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(DoubleMemory, LimitOfSizeHolds) {
  EXPECT_EQ(ibv_reg_mr(pd_, memory_.data(), size_t{1} << 41, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(ibv_reg_mr(pd_, memory_.data(), 0, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(DoubleMemory, OptionalAccessIsTaken) {
  ibv_mr *region =
      ibv_reg_mr(pd_, memory_.data(), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
}

TEST_F(DoubleMemory, RegisteringAgainMovesTheRegion) {
  ibv_mr *region = ibv_reg_mr(pd_, memory_.data(), 64, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(region, nullptr);
  ASSERT_EQ(
      ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory_.data() + 64, 128, 0),
      0);
  EXPECT_EQ(region->addr, memory_.data() + 64);
  EXPECT_EQ(region->length, 128U);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
}

TEST_F(DoubleMemory, DmabufIsReachedByItsOwnAddresses) {
  const int fd = memfd_create("dmabuf", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  ibv_mr *region = ibv_reg_dmabuf_mr(pd_, 4096, 4096, /*iova=*/0, fd, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->length, 4096U);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd_, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EBADF);
  close(fd);
}

TEST(DoubleDevices, WithoutANetworkThereAreNone) {
  int count = 7;
  ibv_device **list = ibv_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(list[0], nullptr);
  ibv_free_device_list(list);
  EXPECT_EQ(rdma_create_event_channel(), nullptr);
}

TEST(DoubleDevices, AddressBelongsToOneDevice) {
  Network network;
  network.add({.name = "a"});
  EXPECT_THROW(network.add({.name = "b"}), std::invalid_argument);
  EXPECT_THROW(network.add({.name = "c", .addresses = {"no address"}}), std::invalid_argument);
}

}  // namespace
}  // namespace weft::verbs_double
