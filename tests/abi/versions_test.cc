// SPDX-License-Identifier: BSD-2-Clause
// Callers of every version of the symbols. A program that was linked against an old version has
// shorter structs: the library must neither read nor write past their end. Its lists are freed by
// the fi_freeinfo of the same version. The library under test is real up to Front, which echoes
// (core/api/front_double.cc).
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <cstring>
#include <string>

#include "core/base/guarded.h"
#include "tests/paths.h"

namespace weft {
namespace {

// Sizes of the structs as released, in numbers: independent of today's headers.
struct Version {
  const char *name;
  size_t info, tx, ep, domain, fabric;
};
constexpr Version kVersions[] = {
    {"FABRIC_1.0", 112, 72, 88, 128, 28},  {"FABRIC_1.1", 112, 72, 104, 192, 32},
    {"FABRIC_1.2", 120, 72, 104, 192, 32}, {"FABRIC_1.3", 120, 80, 104, 200, 32},
    {"FABRIC_1.7", 120, 80, 104, 208, 32}, {"FABRIC_1.8", 120, 80, 104, 216, 32},
    {"FABRIC_1.9", 120, 80, 104, 232, 32},
};
bool older(const Version &version, const char *than) {
  return std::strcmp(version.name, than) < 0;
}

void *library() {
  static void *const handle =
      dlopen(test::built("tests/libweft_fabric_double.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  return handle;
}

template <class F>
F *symbol(const char *name, const char *version) {
  return reinterpret_cast<F *>(dlvsym(library(), name, version));
}

class Versions : public testing::TestWithParam<Version> {
 protected:
  void SetUp() override {
    ASSERT_NE(library(), nullptr) << dlerror();
    getinfo = symbol<decltype(fi_getinfo)>("fi_getinfo", GetParam().name);
    freeinfo = symbol<decltype(fi_freeinfo)>("fi_freeinfo", GetParam().name);
    dupinfo = symbol<decltype(fi_dupinfo)>("fi_dupinfo", GetParam().name);
    ASSERT_NE(getinfo, nullptr);
    ASSERT_NE(freeinfo, nullptr);
    ASSERT_NE(dupinfo, nullptr);
  }
  decltype(fi_getinfo) *getinfo = nullptr;
  decltype(fi_freeinfo) *freeinfo = nullptr;
  decltype(fi_dupinfo) *dupinfo = nullptr;
};

// Hints that end where the caller's did.
struct ShortHints {
  explicit ShortHints(const Version &v)
      : info_memory(v.info), tx(v.tx), rx(64), ep(v.ep), domain(v.domain), fabric(v.fabric) {
    info = info_memory.as<fi_info>();
    info->mode = FI_CONTEXT;
    info->tx_attr = tx.as<fi_tx_attr>();
    info->rx_attr = rx.as<fi_rx_attr>();
    info->ep_attr = ep.as<fi_ep_attr>();
    info->domain_attr = domain.as<fi_domain_attr>();
    info->fabric_attr = fabric.as<fi_fabric_attr>();
    info->tx_attr->rma_iov_limit = 3;
    info->ep_attr->rx_ctx_cnt = 4;
    info->domain_attr->max_ep_srx_ctx = 5;
    info->domain_attr->name = const_cast<char *>("eth0");
    info->fabric_attr->name = const_cast<char *>("net");
    info->fabric_attr->prov_version = 6;
  }
  Guarded info_memory, tx, rx, ep, domain, fabric;
  fi_info *info;
};

TEST_P(Versions, ShortHintsAreReadToTheirEndAndNoFurther) {
  ShortHints hints(GetParam());
  fi_info *list = nullptr;
  ASSERT_EQ(getinfo(FI_VERSION(1, 0), nullptr, nullptr, 1, hints.info, &list), 0);
  ASSERT_NE(list, nullptr);
  ASSERT_NE(list->next, nullptr);
  for (const fi_info *info = list; info != nullptr; info = info->next) {
    EXPECT_EQ(info->mode, FI_CONTEXT);
    EXPECT_EQ(info->tx_attr->rma_iov_limit, 3u);
    EXPECT_EQ(info->ep_attr->rx_ctx_cnt, 4u);
    EXPECT_EQ(info->domain_attr->max_ep_srx_ctx, 5u);
    EXPECT_STREQ(info->domain_attr->name, "eth0");
    EXPECT_STREQ(info->fabric_attr->name, "net");
    EXPECT_EQ(info->fabric_attr->prov_version, 6u);
    EXPECT_EQ(info->rx_attr->total_buffered_recv, 0u);  // what Front saw of newer members
  }
  freeinfo(list);
}

// The bytes behind a caller's structs may be anything. They must not be taken for newer members,
// above all not for pointers.
TEST_P(Versions, BytesBehindTheHintsAreIgnored) {
  fi_info *hints = dupinfo(nullptr);
  ASSERT_NE(hints, nullptr);
  const auto fill = [](void *object, size_t from, size_t size) {
    if (from < size) std::memset(static_cast<char *>(object) + from, 0x5a, size - from);
  };
  const Version &v = GetParam();
  fi_info *const next = hints->next;
  fill(hints, v.info, sizeof *hints);
  fill(hints->tx_attr, v.tx, sizeof *hints->tx_attr);
  fill(hints->ep_attr, v.ep, sizeof *hints->ep_attr);
  fill(hints->domain_attr, v.domain, sizeof *hints->domain_attr);
  fill(hints->fabric_attr, v.fabric, sizeof *hints->fabric_attr);
  fi_info *list = nullptr;
  ASSERT_EQ(getinfo(FI_VERSION(1, 0), nullptr, nullptr, 0, hints, &list), 0);
  EXPECT_EQ(list->rx_attr->total_buffered_recv, 0u);
  fi_info *copy = dupinfo(hints);
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(hints->next, next);
  freeinfo(copy);
  freeinfo(list);
  freeinfo(hints);  // follows none of the bytes either
}

TEST_P(Versions, ResultsHaveTheMembersThatTheCallerKnowsAndAreFreedWhole) {
  const Version &v = GetParam();
  fi_info *list = nullptr;
  ASSERT_EQ(getinfo(FI_VERSION(1, 3), nullptr, nullptr, 1, nullptr, &list), 0);
  for (const fi_info *info = list; info != nullptr; info = info->next) {
    // The offer sets all of these. ASan finds leaks of members that the caller does not see.
    EXPECT_EQ(info->nic == nullptr, older(v, "FABRIC_1.2"));
    EXPECT_EQ(info->ep_attr->auth_key == nullptr, older(v, "FABRIC_1.1"));
    EXPECT_EQ(info->domain_attr->auth_key == nullptr, older(v, "FABRIC_1.1"));
    EXPECT_EQ(info->tx_attr->tclass == 0, older(v, "FABRIC_1.3"));
    EXPECT_EQ(info->domain_attr->max_ep_auth_key == 0, older(v, "FABRIC_1.7"));
    EXPECT_EQ(info->domain_attr->max_group_id == 0, older(v, "FABRIC_1.8"));
    EXPECT_EQ(info->domain_attr->max_cntr_value == 0, older(v, "FABRIC_1.9"));
  }
  freeinfo(list);
}

TEST_P(Versions, DupinfoReadsNoFurtherAndGivesNewestStructs) {
  ShortHints original(GetParam());
  fi_info *copy = dupinfo(original.info);
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->tx_attr->rma_iov_limit, 3u);
  EXPECT_EQ(copy->domain_attr->max_ep_srx_ctx, 5u);
  EXPECT_NE(copy->domain_attr->name, original.info->domain_attr->name);
  EXPECT_EQ(copy->domain_attr->max_err_cntr_value, 0u);
  EXPECT_EQ(copy->fabric_attr->api_version, 0u);
  EXPECT_EQ(copy->nic, nullptr);
  fi_info *again = dupinfo(copy);
  freeinfo(copy);
  EXPECT_STREQ(again->fabric_attr->name, "net");
  freeinfo(again);
}

TEST_P(Versions, DupinfoOfNothingIsAnEmptyInfo) {
  fi_info *info = dupinfo(nullptr);
  ASSERT_NE(info, nullptr);
  EXPECT_NE(info->domain_attr, nullptr);
  EXPECT_EQ(info->caps, 0u);
  freeinfo(info);
  freeinfo(nullptr);
}

TEST_P(Versions, BareHintsAndFailuresWork) {
  Guarded memory(GetParam().info);
  fi_info *list = reinterpret_cast<fi_info *>(1);
  ASSERT_EQ(getinfo(FI_VERSION(1, 0), nullptr, nullptr, 0, memory.as<fi_info>(), &list), 0);
  freeinfo(list);

  ShortHints hints(GetParam());
  hints.info->fabric_attr->prov_name = const_cast<char *>("fail");
  list = reinterpret_cast<fi_info *>(1);
  EXPECT_EQ(getinfo(FI_VERSION(1, 0), nullptr, nullptr, 0, hints.info, &list), -FI_ENODATA);
  EXPECT_EQ(list, nullptr);
  EXPECT_EQ(getinfo(FI_VERSION(1, 0), nullptr, nullptr, 0, hints.info, nullptr), -FI_EINVAL);
  list = reinterpret_cast<fi_info *>(1);
  EXPECT_EQ(getinfo(FI_VERSION(200, 0), nullptr, nullptr, 0, nullptr, &list), -FI_ENOSYS);
  EXPECT_EQ(list, nullptr);
}

std::string test_name(const testing::TestParamInfo<Version> &info) {
  std::string name = info.param.name;
  name.replace(name.find('.'), 1, "_");
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, Versions, testing::ValuesIn(kVersions), test_name);

TEST(Fabric, OldAttributesEndBeforeTheApiVersion) {
  auto *old_fabric = symbol<decltype(fi_fabric)>("fi_fabric", "FABRIC_1.0");
  auto *new_fabric = symbol<decltype(fi_fabric)>("fi_fabric", "FABRIC_1.1");
  ASSERT_NE(old_fabric, nullptr);
  ASSERT_NE(new_fabric, nullptr);
  int context = 0;
  fid_fabric *fabric = nullptr;
  Guarded short_memory(28);
  ASSERT_EQ(old_fabric(short_memory.as<fi_fabric_attr>(), &fabric, &context), 0);
  EXPECT_EQ(fabric->api_version, 0u);
  EXPECT_EQ(fabric->fid.context, &context);
  EXPECT_EQ(fi_close(&fabric->fid), 0);

  Guarded full_memory(32);
  full_memory.as<fi_fabric_attr>()->api_version = FI_VERSION(1, 5);
  ASSERT_EQ(old_fabric(full_memory.as<fi_fabric_attr>(), &fabric, nullptr), 0);
  EXPECT_EQ(fabric->api_version, 0u);
  EXPECT_EQ(fi_close(&fabric->fid), 0);
  ASSERT_EQ(new_fabric(full_memory.as<fi_fabric_attr>(), &fabric, nullptr), 0);
  EXPECT_EQ(fabric->api_version, FI_VERSION(1, 5));
  EXPECT_EQ(fi_close(&fabric->fid), 0);

  EXPECT_EQ(new_fabric(nullptr, &fabric, nullptr), -FI_EINVAL);
  EXPECT_EQ(new_fabric(full_memory.as<fi_fabric_attr>(), nullptr, nullptr), -FI_EINVAL);
}

TEST(Fabric2, TakesAnInfoOfItsOwnFirstRelease) {
  auto *fabric2 = symbol<decltype(fi_fabric2)>("fi_fabric2", "FABRIC_1.8");
  ASSERT_NE(fabric2, nullptr);
  ShortHints info(kVersions[5]);
  info.info->fabric_attr->api_version = FI_VERSION(2, 0);
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(fabric2(info.info, &fabric, 0, nullptr), 0);
  EXPECT_EQ(fabric->api_version, FI_VERSION(2, 0));
  EXPECT_EQ(fi_close(&fabric->fid), 0);
  EXPECT_EQ(fabric2(nullptr, &fabric, 0, nullptr), -FI_EINVAL);
  info.info->fabric_attr = nullptr;
  EXPECT_EQ(fabric2(info.info, &fabric, 0, nullptr), -FI_EINVAL);
}

TEST(Symbols, UnversionedLookupsGetTheNewest) {
  for (const char *name : {"fi_getinfo", "fi_freeinfo", "fi_dupinfo"}) {
    ASSERT_NE(dlsym(library(), name), nullptr);
    EXPECT_EQ(dlsym(library(), name), dlvsym(library(), name, "FABRIC_1.9")) << name;
    EXPECT_EQ(dlvsym(library(), name, "FABRIC_1.4"), nullptr) << name;
  }
  EXPECT_EQ(dlsym(library(), "fi_fabric"), dlvsym(library(), "fi_fabric", "FABRIC_1.1"));
}

}  // namespace
}  // namespace weft
