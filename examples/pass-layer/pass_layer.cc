// SPDX-License-Identifier: BSD-2-Clause
// pass: a layer that passes everything to the provider beneath it, except for one thing that a
// program can see: it reports that no more than FI_PASS_INJECT_SIZE bytes can be injected.
//
//   FI_PROVIDER="tcp;pass" fi_info -v | grep inject_size
//
// An example: objects are those of the inner provider, so that the layer costs nothing after
// fi_getinfo. A layer that changes what the data path does makes objects of its own above the inner
// ones.
#include <weft/sdk/unit.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>

namespace {

using namespace weft::sdk;
using weft::Result;

constexpr uint32_t kAnyEndpoint =
    WEFT_EP_BIT(FI_EP_MSG) | WEFT_EP_BIT(FI_EP_DGRAM) | WEFT_EP_BIT(FI_EP_RDM);

class Pass {
 public:
  static constexpr weft_param params[] = {
      size_param("inject_size", "16", "most bytes that a program may inject", 0, 1 << 20)};
  static constexpr UnitInfo info{.name = "pass",
                                 .summary = "hands everything through, with a smaller inject size",
                                 .version = FI_VERSION(1, 0),
                                 .needs_ep = kAnyEndpoint,
                                 .offers_ep = kAnyEndpoint,
                                 .rank = 100,
                                 .security = WEFT_SECURITY_NO_NETWORK,
                                 .params = params};

  Pass(const weft_instance *instance, Inner inner)
      : instance_(instance), inner_(inner), limit_(Params<Pass>(instance).size("inject_size")) {}

  Result<InfoList> getinfo(const GetinfoQuery &query) {
    WEFT_TRY(InfoList list, inner_.getinfo(query));
    for (fi_info *entry = list.front(); entry != nullptr; entry = entry->next) {
      if (entry->tx_attr == nullptr) continue;
      entry->tx_attr->inject_size = std::min(entry->tx_attr->inject_size, limit_);
    }
    return list;
  }

  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context) {
    WEFT_INFO(instance_, FI_LOG_FABRIC, "inject sizes are limited to %zu bytes", limit_);
    return inner_.fabric(attr, context);
  }

  Result<void> explain(const LineSink &line) {
    const char *origin = Params<Pass>(instance_).origin("inject_size");
    line("inject sizes are limited to %zu bytes (%s)", limit_, origin);
    return {};
  }

 private:
  const weft_instance *instance_;
  Inner inner_;
  size_t limit_;
};

constexpr PluginInfo kPlugin{
    .name = "pass-layer", .vendor = "weft", .version = "1.0.0", .license = "BSD-2-Clause"};

}  // namespace

WEFT_PLUGIN(kPlugin, Pass)
