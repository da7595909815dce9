// SPDX-License-Identifier: BSD-2-Clause
// Part of every test program of connected endpoints: without the stack under test there is nothing
// to test. (Those of reliable datagrams have it in their harness.)
#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

class StackIsThere : public ::testing::Environment {
 public:
  void SetUp() override {
    if (is_fresh_process()) return;  // whoever made it looked
    Info list;
    const Info hints = make_hints();
    if (const int rc = try_info(list, "127.0.0.1", nullptr, 0, hints.get()); rc != -FI_ENODATA)
      must(rc);
    for (const fi_info *info = list.get(); info != nullptr; info = info->next)
      if (info->fabric_attr->prov_name == stack()) return;
    stack_is_missing("FI_EP_MSG");
  }
};
[[maybe_unused]] const auto *const kStackIsThere =
    ::testing::AddGlobalTestEnvironment(new StackIsThere);

}  // namespace
}  // namespace weft::conformance
