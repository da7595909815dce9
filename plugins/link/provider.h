// SPDX-License-Identifier: BSD-2-Clause
// LinkLayer: one endpoint over two providers. The first one beneath it reaches the processes of
// this host, through memory; the second one is a network, whose addresses the application sees.
//
// Example:
//    inline Result<sdk::InfoList> of_network(const LinkLayer &layer, const fi_info &info) {
//      return layer.inner_info(info);
//    }
//
// Not for what its endpoints do: endpoint.h.
#ifndef WEFT_PLUGINS_LINK_PROVIDER_H
#define WEFT_PLUGINS_LINK_PROVIDER_H

#include <weft/sdk/unit.h>

#include <span>

#include "plugins/link/settings.h"

namespace weft::link {

class LinkLayer {
 public:
  static constexpr sdk::UnitInfo info{
      .name = "link",
      .summary = "peers of this host through memory, all others by a network",
      .version = FI_VERSION(1, 0),
      .needs_ep = WEFT_EP_BIT(FI_EP_RDM),
      .inner_min = 2,
      .inner_max = 2,
      .offers_ep = WEFT_EP_BIT(FI_EP_RDM),
      .rank = 1,
      .maturity = WEFT_MATURITY_EXPERIMENTAL,
      .security = WEFT_SECURITY_TRUSTED_PEERS,
      .params = parameters::kAll};

  LinkLayer(const weft_instance *instance, std::span<const sdk::Inner> inner);

  Result<sdk::InfoList> getinfo(const sdk::GetinfoQuery &query);
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);
  Result<void> explain(const sdk::LineSink &line);

  // What the domains beneath are opened with, for an application's `info`: that of the network, and
  // that of memory.
  Result<sdk::InfoList> inner_info(const fi_info &info) const;
  Result<sdk::InfoList> local_info(const fi_info &info) const;
  Result<fid_fabric *> local_fabric(const fi_fabric_attr &attr) const {
    return local_.fabric(attr, nullptr);
  }
  const weft_instance *instance() const { return instance_; }
  const Options &options() const { return options_; }

 private:
  Result<sdk::InfoList> hints(const fi_info *outer, bool local) const;

  const weft_instance *instance_;
  const sdk::Inner local_, network_;
  const Options options_;
};

// Capabilities of endpoints that the layer offers where both providers have them.
uint64_t offered_caps();
// What an application does of registration (fi_mr.3) that the layer passes on. The old words stand
// for some of it.
int registration_bits(int mr_mode);

// What a domain that was opened with `info` lets its shared receives have.
uint64_t receive_caps_over(const fi_info &info);

}  // namespace weft::link

#endif
