// SPDX-License-Identifier: BSD-2-Clause
// RxmLayer: reliable datagrams (FI_EP_RDM) over a provider with connected endpoints (FI_EP_MSG). It
// answers fi_getinfo and opens fabrics; WEFT_PLUGIN in provider.cc registers it.
//
// Example:
//    // What an application does by fi_getinfo and fi_fabric.
//    inline Result<fid_fabric *> open_first(RxmLayer &layer, const sdk::GetinfoQuery &query) {
//      WEFT_TRY(const sdk::InfoList offers, layer.getinfo(query));
//      if (offers.front() == nullptr) return fail(FI_ENODATA, "rxm: nothing to offer");
//      return layer.fabric(*offers.front()->fabric_attr, nullptr);
//    }
//
// Not for parameters: settings.h.
#ifndef WEFT_PLUGINS_RXM_PROVIDER_H
#define WEFT_PLUGINS_RXM_PROVIDER_H

#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/unit.h>

#include "plugins/rxm/settings.h"

namespace weft::rxm {

class RxmLayer {
 public:
  static constexpr sdk::UnitInfo info{
      .name = "rxm",
      .ofi_name = "ofi_rxm",
      .summary = "reliable datagrams over connected endpoints",
      .version = FI_VERSION(1, 0),
      .needs_ep = WEFT_EP_BIT(FI_EP_MSG),
      .offers_ep = WEFT_EP_BIT(FI_EP_RDM),
      .rank = 300,
      .maturity = WEFT_MATURITY_BETA,
      .security = WEFT_SECURITY_ROBUST,
      .params = parameters::kAll,
  };

  RxmLayer(const weft_instance *instance, sdk::Inner inner)
      : instance_(instance),
        inner_(inner),
        options_(Options::from(instance)),
        hmem_({.cuda = options_.libcuda}) {}

  Result<sdk::InfoList> getinfo(const sdk::GetinfoQuery &query);
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);
  Result<void> explain(const sdk::LineSink &line);

  // The fi_info of the inner provider for what an application opens with `info`.
  Result<sdk::InfoList> inner_info(const fi_info &info) const;
  const weft_instance *instance() const { return instance_; }
  const Options &options() const { return options_; }
  sdk::HmemSource &hmem() const { return hmem_; }

 private:
  Result<sdk::InfoList> hints(const fi_info *outer, uint64_t caps) const;
  Result<sdk::InfoList> ask(const sdk::InfoList &hints, const sdk::GetinfoQuery &query) const;
  Result<void> offer(fi_info &info, const sdk::GetinfoQuery &query) const;
  void offer_registration(fi_info &info, const sdk::GetinfoQuery &query) const;

  const weft_instance *instance_;
  const sdk::Inner inner_;
  const Options options_;
  mutable sdk::HmemSource hmem_;  // opens libraries when somebody asks
};

// domain_attr.mr_mode as FI_MR_... bits, also if it is FI_MR_BASIC or FI_MR_SCALABLE.
int registration_bits(int mr_mode);

// Bytes that `inner` injects with our header. Other injected data is copied.
size_t inject_room(const fi_info &inner);
// What is offered: that, within these bounds.
size_t inject_size(const fi_info &inner);
inline constexpr size_t kLeastInjectSize = 64, kMostInjectSize = 192;
inline constexpr size_t kMaxInjectSize = 16384;  // if the hints ask for more: such data is copied

}  // namespace weft::rxm

#endif
