// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/info.h"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/base/guarded.h"

namespace weft {
namespace {

char *own(const char *text) {
  return ::strdup(text);
}

uint8_t *own_key(const char *text) {
  return reinterpret_cast<uint8_t *>(::strdup(text));
}

void *own_bytes(const char *text) {
  return ::strdup(text);
}

// Every member that owns something is set.
InfoPtr full_info() {
  InfoPtr info(alloc_info());
  info->caps = FI_MSG;
  info->mode = FI_CONTEXT;
  info->addr_format = FI_ADDR_STR;
  info->src_addr = own_bytes("fi_sockaddr://a");
  info->src_addrlen = 15;  // without its NUL
  info->dest_addr = own_bytes("dest");
  info->dest_addrlen = 5;
  info->tx_attr->size = 11;
  info->tx_attr->tclass = FI_TC_BULK_DATA;
  info->rx_attr->iov_limit = 4;
  info->ep_attr->type = FI_EP_MSG;
  info->ep_attr->auth_key = own_key("secret");
  info->ep_attr->auth_key_size = 6;
  info->domain_attr->name = own("eth0");
  info->domain_attr->auth_key = own_key("key");
  info->domain_attr->auth_key_size = 3;
  info->domain_attr->mr_cnt = 7;
  info->domain_attr->max_err_cntr_value = 99;
  info->fabric_attr->name = own("net");
  info->fabric_attr->prov_name = own("tcp");
  info->fabric_attr->api_version = FI_VERSION(2, 6);

  fi_device_attr device{own("mlx"), own("id"), own("0"), own("vendor"), own("driver"), own("fw")};
  fi_bus_attr bus{};
  bus.bus_type = FI_BUS_PCI;
  bus.attr.pci = {1, 2, 3, 4};
  fi_link_attr link{own("aa:bb"), 1500, 100, FI_LINK_UP, own("Ethernet")};
  auto *nic = static_cast<fid_nic *>(std::calloc(1, sizeof(fid_nic)));
  nic->device_attr = static_cast<fi_device_attr *>(std::malloc(sizeof device));
  *nic->device_attr = device;
  nic->bus_attr = static_cast<fi_bus_attr *>(std::malloc(sizeof bus));
  *nic->bus_attr = bus;
  nic->link_attr = static_cast<fi_link_attr *>(std::malloc(sizeof link));
  *nic->link_attr = link;
  info->nic = nic;
  return info;
}

TEST(Info, AllocGivesEveryAttributeAndZeros) {
  InfoPtr info(alloc_info());
  ASSERT_NE(info, nullptr);
  ASSERT_NE(info->tx_attr, nullptr);
  ASSERT_NE(info->rx_attr, nullptr);
  ASSERT_NE(info->ep_attr, nullptr);
  ASSERT_NE(info->domain_attr, nullptr);
  ASSERT_NE(info->fabric_attr, nullptr);
  EXPECT_EQ(info->nic, nullptr);
  EXPECT_EQ(info->caps, 0u);
  EXPECT_EQ(info->domain_attr->max_err_cntr_value, 0u);
  EXPECT_EQ(InfoPtr(dup_info(nullptr))->next, nullptr);
}

TEST(Info, FreeTakesNullAndLists) {
  free_info(nullptr);
  fi_info *list = dup_info(nullptr);
  list->next = dup_info(nullptr);
  free_info(list);  // leaks show under ASan
}

TEST(Info, CopyIsDeep) {
  InfoPtr info = full_info();
  int dummy = 0;
  info->handle = reinterpret_cast<fid_t>(&dummy);
  info->domain_attr->domain = reinterpret_cast<fid_domain *>(&dummy);
  info->fabric_attr->fabric = reinterpret_cast<fid_fabric *>(&dummy);
  info->next = dup_info(nullptr);
  InfoPtr copy(dup_info(info.get()));
  const std::string long_ago = info->fabric_attr->prov_name;
  // Open objects are shared, the list is not.
  EXPECT_EQ(copy->handle, info->handle);
  EXPECT_EQ(copy->domain_attr->domain, info->domain_attr->domain);
  EXPECT_EQ(copy->fabric_attr->fabric, info->fabric_attr->fabric);
  EXPECT_EQ(copy->next, nullptr);
  info.reset();  // anything shared would be used after free now

  EXPECT_EQ(copy->caps, FI_MSG);
  EXPECT_EQ(copy->mode, FI_CONTEXT);
  EXPECT_EQ(copy->src_addrlen, 15u);
  EXPECT_STREQ(static_cast<char *>(copy->src_addr), "fi_sockaddr://a");
  EXPECT_STREQ(static_cast<char *>(copy->dest_addr), "dest");
  EXPECT_EQ(copy->tx_attr->tclass, static_cast<uint32_t>(FI_TC_BULK_DATA));
  EXPECT_EQ(copy->rx_attr->iov_limit, 4u);
  EXPECT_EQ(std::memcmp(copy->ep_attr->auth_key, "secret", 6), 0);
  EXPECT_EQ(std::memcmp(copy->domain_attr->auth_key, "key", 3), 0);
  EXPECT_STREQ(copy->domain_attr->name, "eth0");
  EXPECT_EQ(copy->domain_attr->max_err_cntr_value, 99u);
  EXPECT_STREQ(copy->fabric_attr->name, "net");
  EXPECT_EQ(copy->fabric_attr->prov_name, long_ago);
  ASSERT_NE(copy->nic, nullptr);
  EXPECT_EQ(copy->nic->fid.fclass, static_cast<size_t>(FI_CLASS_NIC));
  EXPECT_STREQ(copy->nic->device_attr->firmware, "fw");
  EXPECT_EQ(copy->nic->bus_attr->attr.pci.function_id, 4);
  EXPECT_STREQ(copy->nic->link_attr->network_type, "Ethernet");
  EXPECT_EQ(copy->nic->link_attr->state, FI_LINK_UP);
}

TEST(Info, CopyLeavesOutWhatIsAbsent) {
  fi_info bare{};
  bare.caps = FI_RMA;
  InfoPtr copy(dup_info(&bare));
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->caps, FI_RMA);
  EXPECT_EQ(copy->tx_attr, nullptr);
  EXPECT_EQ(copy->domain_attr, nullptr);
  EXPECT_EQ(copy->nic, nullptr);
}

TEST(Info, AuthKeysFromTheAddressVectorHaveNoLength) {
  InfoPtr info(alloc_info());
  uint8_t unused = 0;
  info->domain_attr->auth_key_size = FI_AV_AUTH_KEY;
  info->domain_attr->auth_key = &unused;
  InfoPtr copy(dup_info(info.get()));
  info->domain_attr->auth_key = nullptr;
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->domain_attr->auth_key_size, FI_AV_AUTH_KEY);
  EXPECT_EQ(copy->domain_attr->auth_key, nullptr);
}

TEST(Info, NicsOfThisLibraryCanBeCopiedAndClosed) {
  InfoPtr copy(dup_info(full_info().get()));
  struct fid *twin = nullptr;
  ASSERT_EQ(fi_control(&copy->nic->fid, FI_DUP, &twin), 0);
  copy.reset();
  EXPECT_STREQ(container_of(twin, fid_nic, fid)->device_attr->name, "mlx");
  char text[64];
  EXPECT_EQ(twin->ops->tostr(twin, text, sizeof text), 0);
  EXPECT_EQ(std::string(text).rfind("nic:\n", 0), 0u);
  EXPECT_EQ(fi_control(twin, FI_ENABLE, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_control(twin, FI_DUP, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_close(twin), 0);
}

// A provider's own nic, with attributes that only it understands.
struct ForeignNic {
  fid_nic nic{};
  int *alive;
};
int foreign_close(struct fid *fid) {
  auto *self = reinterpret_cast<ForeignNic *>(container_of(fid, fid_nic, fid));
  --*self->alive;
  delete self;
  return 0;
}
int foreign_control(struct fid *fid, int command, void *arg);
fi_ops foreign_ops = {.size = sizeof(fi_ops), .close = foreign_close, .control = foreign_control};
int foreign_control(struct fid *fid, int command, void *arg) {
  if (command != FI_DUP) return -FI_ENOSYS;
  auto *self = reinterpret_cast<ForeignNic *>(container_of(fid, fid_nic, fid));
  auto *copy = new ForeignNic{*self};
  ++*copy->alive;
  *static_cast<struct fid **>(arg) = &copy->nic.fid;
  return 0;
}

TEST(Info, NicsOfProvidersCopyAndFreeThemselves) {
  int alive = 1;
  InfoPtr info(alloc_info());
  auto *foreign = new ForeignNic;
  foreign->alive = &alive;
  foreign->nic.fid.ops = &foreign_ops;
  foreign->nic.prov_attr = &alive;
  info->nic = &foreign->nic;
  {
    InfoPtr copy(dup_info(info.get()));
    EXPECT_EQ(alive, 2);
    EXPECT_EQ(copy->nic->prov_attr, &alive);
  }
  EXPECT_EQ(alive, 1);
  info.reset();
  EXPECT_EQ(alive, 0);
}

// ---- old layouts, in numbers, independent of offsetof in info.cc ----

struct OldSizes {
  InfoLayout layout;
  size_t info, tx, ep, domain, fabric;
};
constexpr OldSizes kOld[] = {
    {InfoLayout::kFabric1_0, 112, 72, 88, 128, 32},
    {InfoLayout::kFabric1_1, 112, 72, 104, 192, 32},
    {InfoLayout::kFabric1_2, 120, 72, 104, 192, 32},
    {InfoLayout::kFabric1_3, 120, 80, 104, 200, 32},
    {InfoLayout::kFabric1_7, 120, 80, 104, 208, 32},
    {InfoLayout::kFabric1_8, 120, 80, 104, 216, 32},
    {InfoLayout::kFabric1_9, 120, 80, 104, 232, 32},
};

// An fi_info of an old caller, each struct of exactly its size.
struct OldInfo {
  explicit OldInfo(const OldSizes &sizes)
      : info_memory(sizes.info),
        tx_memory(sizes.tx),
        rx_memory(sizeof(fi_rx_attr)),
        ep_memory(sizes.ep),
        domain_memory(sizes.domain),
        fabric_memory(sizes.fabric) {
    info = info_memory.as<fi_info>();
    info->tx_attr = tx_memory.as<fi_tx_attr>();
    info->rx_attr = rx_memory.as<fi_rx_attr>();
    info->ep_attr = ep_memory.as<fi_ep_attr>();
    info->domain_attr = domain_memory.as<fi_domain_attr>();
    info->fabric_attr = fabric_memory.as<fi_fabric_attr>();
    info->tx_attr->rma_iov_limit = 3;
    info->ep_attr->rx_ctx_cnt = 4;
    info->domain_attr->max_ep_srx_ctx = 5;
    info->domain_attr->name = const_cast<char *>("eth0");
    info->fabric_attr->prov_name = const_cast<char *>("tcp");
    info->fabric_attr->prov_version = 6;
    // In 1.0 this was padding with any content.
    if (sizes.layout == InfoLayout::kFabric1_0) info->fabric_attr->api_version = 0x5a5a5a5a;
  }
  Guarded info_memory, tx_memory, rx_memory, ep_memory, domain_memory, fabric_memory;
  fi_info *info;
};

class OldLayouts : public testing::TestWithParam<OldSizes> {};

TEST_P(OldLayouts, DupReadsNoFurtherAndGivesFullStructs) {
  OldInfo old(GetParam());
  InfoPtr copy(dup_info(old.info, GetParam().layout));
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->tx_attr->rma_iov_limit, 3u);
  EXPECT_EQ(copy->tx_attr->tclass, 0u);
  EXPECT_EQ(copy->ep_attr->rx_ctx_cnt, 4u);
  EXPECT_EQ(copy->ep_attr->auth_key, nullptr);
  EXPECT_EQ(copy->domain_attr->max_ep_srx_ctx, 5u);
  EXPECT_EQ(copy->domain_attr->max_err_cntr_value, 0u);
  EXPECT_STREQ(copy->domain_attr->name, "eth0");
  EXPECT_EQ(copy->fabric_attr->prov_version, 6u);
  EXPECT_EQ(copy->fabric_attr->api_version, 0u);
  EXPECT_EQ(copy->nic, nullptr);
}

TEST_P(OldLayouts, WideningFabricAttributesReadsNoFurther) {
  OldInfo old(GetParam());
  const fi_fabric_attr wide = widen(*old.info->fabric_attr, GetParam().layout);
  EXPECT_EQ(wide.prov_version, 6u);
  EXPECT_EQ(wide.api_version, 0u);
  EXPECT_STREQ(wide.prov_name, "tcp");
}

TEST_P(OldLayouts, NewerMembersAreHiddenAndFreed) {
  const InfoLayout layout = GetParam().layout;
  fi_info *list = full_info().release();
  list->next = full_info().release();
  hide_newer(list, layout);
  for (fi_info *info = list; info != nullptr; info = info->next) {
    EXPECT_EQ(info->nic == nullptr, layout < InfoLayout::kFabric1_2);
    EXPECT_EQ(info->ep_attr->auth_key == nullptr, layout < InfoLayout::kFabric1_1);
    EXPECT_EQ(info->domain_attr->auth_key == nullptr, layout < InfoLayout::kFabric1_1);
    EXPECT_EQ(info->domain_attr->mr_cnt, layout < InfoLayout::kFabric1_1 ? 0u : 7u);
    EXPECT_EQ(info->tx_attr->tclass, layout < InfoLayout::kFabric1_3 ? 0u : +FI_TC_BULK_DATA);
    EXPECT_EQ(info->domain_attr->max_err_cntr_value, layout < InfoLayout::kFabric1_9 ? 0u : 99u);
    EXPECT_EQ(info->tx_attr->size, 11u);
    EXPECT_STREQ(info->fabric_attr->prov_name, "tcp");
  }
  free_info(list, layout);
}

INSTANTIATE_TEST_SUITE_P(All, OldLayouts, testing::ValuesIn(kOld));

}  // namespace
}  // namespace weft
