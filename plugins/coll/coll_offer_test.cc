// SPDX-License-Identifier: BSD-2-Clause
// Who is offered the layer: who asks for FI_COLLECTIVE, and nobody else.
#include <rdma/fi_collective.h>

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

}  // namespace
}  // namespace weft::conformance::rdm
