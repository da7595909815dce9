// SPDX-License-Identifier: BSD-2-Clause
// count: a hook that counts what each endpoint sends with fi_send. The endpoint tells the count:
//   fi_open_ops(&ep->fid, "hook-count", 0, (void **)&counters_ops, NULL);  // weft_counters_ops
// An example: it shows state per object, and an op that the hook answers itself.
#include <weft/sdk/unit.h>

#include <cstring>

namespace {

using namespace weft::sdk;

class HookCount {
 public:
  static constexpr UnitInfo info{.name = "count",
                                 .summary = "counts what endpoints send",
                                 .version = FI_VERSION(1, 0),
                                 .security = WEFT_SECURITY_NO_NETWORK};
  struct ObjectState {
    std::atomic<uint64_t> sends{0};
  };
  weft::Result<std::unique_ptr<ObjectState>> attach(fid *fid) {
    if (fid->fclass != FI_CLASS_EP) return nullptr;
    return std::make_unique<ObjectState>();
  }

  ssize_t send(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len, void *desc,
               fi_addr_t dest, void *context) {
    const ssize_t rc = link.next.msg->send(ep, buf, len, desc, dest, context);
    if (rc == 0) object_state<HookCount>(link).sends.fetch_add(1, std::memory_order_relaxed);
    return rc;
  }
  int ops_open(const weft_hook_link &link, fid *fid, const char *name, uint64_t flags, void **ops,
               void *context) {
    static constexpr weft_counters_ops kOps{.size = sizeof(weft_counters_ops),
                                            .read = &read_counters};
    if (std::strcmp(name, "hook-count") != 0) {
      return link.next.fid->ops_open(fid, name, flags, ops, context);
    }
    *ops = const_cast<weft_counters_ops *>(&kOps);
    return 0;
  }

 private:
  static size_t read_counters(fid *fid, weft_counter *counters, size_t count) {
    const ObjectState &state = object_state<HookCount>(hook_link<HookCount>(fid));
    if (count > 0) counters[0] = {"sends", state.sends};
    return 1;
  }
};
constexpr PluginInfo kPlugin{
    .name = "hook-count", .vendor = "weft", .version = "1.0.0", .license = "BSD-2-Clause"};
}  // namespace
WEFT_PLUGIN(kPlugin, HookCount)
