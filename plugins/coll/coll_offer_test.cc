// SPDX-License-Identifier: BSD-2-Clause
// Who is offered the layer: who asks for FI_COLLECTIVE, and nobody else; over which stacks.
#include <rdma/fi_collective.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

std::vector<std::string> offered_for(uint64_t caps) {
  const Info hints(fi_allocinfo());
  hints->caps = caps;
  fi_info *found = nullptr;
  std::vector<std::string> names;
  if (fi_getinfo(kApi, nullptr, nullptr, 0, caps != 0 ? hints.get() : nullptr, &found) != 0)
    return names;
  const Info all(found);
  for (const fi_info *one = all.get(); one != nullptr; one = one->next) {
    names.emplace_back(one->fabric_attr->prov_name);
    if (names.back().find("coll") == std::string::npos) continue;
    EXPECT_TRUE(one->caps & FI_COLLECTIVE);
    EXPECT_EQ(one->ep_attr->mem_tag_format >> 63, 0u);
  }
  return names;
}

bool has_the_layer(const std::vector<std::string> &names) {
  for (const std::string &name : names)
    if (name == "tcp;off_coll") return true;
  return false;
}

TEST(CollOffer, IsForWhoAsks) {
  EXPECT_FALSE(has_the_layer(offered_for(0)));
  EXPECT_FALSE(has_the_layer(offered_for(FI_MSG | FI_TAGGED)));
  EXPECT_TRUE(has_the_layer(offered_for(FI_COLLECTIVE)));
  EXPECT_TRUE(has_the_layer(offered_for(FI_MSG | FI_TAGGED | FI_COLLECTIVE)));
}

// Over a layer it is for who names the stack. Stock's ofi_rxm has collective operations inside of
// it, so its name will do, too.
TEST(CollOffer, StandsOverEachLayerByName) {
  for (const char *name :
       {"tcp;ofi_rxm", "tcp;ofi_rxm;off_coll", "udp;ofi_rxd", "udp;ofi_rxd;off_coll"}) {
    SCOPED_TRACE(name);
    const Info hints(fi_allocinfo());
    hints->caps = FI_MSG | FI_TAGGED | FI_COLLECTIVE;
    hints->fabric_attr->prov_name = strdup(name);
    Info found;
    must(try_info(found, nullptr, nullptr, 0, hints.get()));
    EXPECT_STREQ(found->fabric_attr->prov_name, name);
    EXPECT_TRUE(found->caps & FI_COLLECTIVE);
    Handle<fid_fabric> fabric;
    must(fi_fabric(found->fabric_attr, fabric.out(), nullptr));
    Handle<fid_domain> domain;
    must(fi_domain(fabric, found.get(), domain.out(), nullptr));
    fi_collective_attr attr{.op = FI_SUM, .datatype = FI_UINT64};
    EXPECT_EQ(fi_query_collective(domain, FI_ALLREDUCE, &attr, 0), 0);
  }
  // The units in the other order, or by weft's own names, are the same stack.
  for (const char *name : {"ofi_rxm;tcp", "tcp;rxm", "tcp;rxm;coll"}) {
    const Info otherwise(fi_allocinfo());
    otherwise->caps = FI_COLLECTIVE;
    otherwise->fabric_attr->prov_name = strdup(name);
    Info same;
    must(try_info(same, nullptr, nullptr, 0, otherwise.get()));
    EXPECT_STREQ(same->fabric_attr->prov_name,
                 std::string(name).ends_with("coll") ? "tcp;ofi_rxm;off_coll" : "tcp;ofi_rxm");
  }
  // Who asks for no collective operations gets the layer itself.
  const Info hints(fi_allocinfo());
  hints->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
  Info found;
  must(try_info(found, nullptr, nullptr, 0, hints.get()));
  EXPECT_FALSE(found->caps & FI_COLLECTIVE);
}

}  // namespace
}  // namespace weft::conformance::rdm
