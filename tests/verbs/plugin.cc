// SPDX-License-Identifier: BSD-2-Clause
// The plugin verbs, linked with the double. It needs no device node.
#include <weft/sdk/unit.h>

#include "plugins/verbs/provider.h"

namespace weft::verbs {
namespace {

class DoubledVerbs {
 public:
  static constexpr sdk::UnitInfo info = [] {
    sdk::UnitInfo same = VerbsProvider::info;
    same.devices = {};
    return same;
  }();

  static Result<std::unique_ptr<DoubledVerbs>> create(const weft_instance *instance) {
    WEFT_TRY(std::unique_ptr<VerbsProvider> provider, VerbsProvider::create(instance));
    return std::make_unique<DoubledVerbs>(std::move(provider));
  }
  explicit DoubledVerbs(std::unique_ptr<VerbsProvider> provider) : provider_(std::move(provider)) {}

  Result<sdk::InfoList> getinfo(const sdk::GetinfoQuery &query) {
    return provider_->getinfo(query);
  }
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context) {
    return provider_->fabric(attr, context);
  }
  Result<void> explain(const sdk::LineSink &line) { return provider_->explain(line); }

 private:
  const std::unique_ptr<VerbsProvider> provider_;
};

constexpr sdk::PluginInfo plugin{.name = "verbs",
                                 .vendor = "The weft authors",
                                 .version = WEFT_VERSION,
                                 .license = "BSD-2-Clause"};

}  // namespace
}  // namespace weft::verbs

WEFT_PLUGIN(weft::verbs::plugin, weft::verbs::DoubledVerbs)
