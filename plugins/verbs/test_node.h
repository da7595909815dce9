// SPDX-License-Identifier: BSD-2-Clause
// For tests of the plugin's classes on the double: an instance whose core keeps the log, and a
// network with a device.
//
// Example:
//    void look(Devices &devices) {
//      TestNode node;  // one device, dbl0, with 10.99.0.1 and fd99::1
//      EXPECT_TRUE(devices.refresh());
//      EXPECT_EQ(node.log(), "");
//    }
//
// Not for tests over the C API: those run a whole stack.
#ifndef WEFT_PLUGINS_VERBS_TEST_NODE_H
#define WEFT_PLUGINS_VERBS_TEST_NODE_H

#include <gtest/gtest.h>
#include <weft/plugin.h>

#include <string>

#include "core/base/info.h"
#include "plugins/verbs/device.h"
#include "plugins/verbs/double/double.h"

namespace weft::verbs {

inline std::string &test_log() {
  static std::string log;
  return log;
}

inline constexpr weft_core_services kTestCore = {
    .struct_size = sizeof(weft_core_services),
    .info_alloc = [] { return alloc_info(); },
    .info_dup = [](const fi_info *info) { return dup_info(info); },
    .info_free = [](fi_info *info) { free_info(info); },
    .log_enabled = [](const weft_instance *, int32_t, int32_t) -> int32_t { return 1; },
    .log = [](const weft_instance *, int32_t, int32_t, const char *, int32_t,
              const char *text) { test_log() += std::string(text) + "\n"; },
    .object_opened = [](struct fid *, struct fid *, weft_error *) -> int32_t { return 0; },
    .object_closing = [](struct fid *) {},
};

class TestNode {
 public:
  explicit TestNode(const verbs_double::NetworkOptions &network = {},
                    const verbs_double::DeviceOptions &first = {})
      : network(network), device(this->network.add(first)) {
    instance.struct_size = sizeof instance;
    instance.core = &kTestCore;
    instance.magic = WEFT_INSTANCE_MAGIC;
    instance.stack = "verbs";
    test_log().clear();
  }
  ~TestNode() {
    EXPECT_EQ(network.open_objects(), "");
    EXPECT_TRUE(network.complaints().empty()) << network.complaints().front();
  }
  const std::string &log() const { return test_log(); }

  verbs_double::Network network;
  verbs_double::Device &device;
  weft_instance instance{};
};

}  // namespace weft::verbs

#endif
