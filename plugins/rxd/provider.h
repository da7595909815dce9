// SPDX-License-Identifier: BSD-2-Clause
// The layer rxd as fi_getinfo sees it: reliable, unconnected endpoints (FI_EP_RDM) over a provider
// with datagrams.
#ifndef WEFT_PLUGINS_RXD_PROVIDER_H
#define WEFT_PLUGINS_RXD_PROVIDER_H

#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/unit.h>

#include <memory>

#include "plugins/rxd/settings.h"

namespace weft::rxd {

// The inject size of stock's rxd, so that programs see the same limit.
inline constexpr size_t kInjectSize = 1256;
inline constexpr size_t kMaxInjectSize = 16384;  // if the hints ask for it
inline constexpr uint64_t kMaxMessageSize = INT64_MAX;

class RxdLayer {
 public:
  static constexpr sdk::UnitInfo info{
      .name = "rxd",
      .ofi_name = "ofi_rxd",
      .summary = "reliable datagrams over unreliable ones",
      .version = FI_VERSION(1, 0),
      .needs_ep = WEFT_EP_BIT(FI_EP_DGRAM),
      .offers_ep = WEFT_EP_BIT(FI_EP_RDM),
      .rank = 100,
      .maturity = WEFT_MATURITY_BETA,
      .security = WEFT_SECURITY_ROBUST,
      .params = parameters::kAll,
  };

  static Result<std::unique_ptr<RxdLayer>> create(const weft_instance *instance, sdk::Inner inner);

  Result<sdk::InfoList> getinfo(const sdk::GetinfoQuery &query);
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);
  Result<void> explain(const sdk::LineSink &line);

  // The inner provider's fi_info for an application's `info`, with the largest datagrams that it
  // carries there.
  Result<sdk::InfoList> inner_info(const fi_info &info) const;
  const weft_instance *instance() const { return instance_; }
  const Options &options() const { return options_; }
  sdk::HmemSource &hmem() const { return hmem_; }

 private:
  RxdLayer(const weft_instance *instance, sdk::Inner inner, Options options)
      : instance_(instance),
        inner_(inner),
        options_(std::move(options)),
        hmem_({.cuda = options_.libcuda}) {}
  Result<sdk::InfoList> hints(const fi_info *outer) const;

  const weft_instance *instance_;
  const sdk::Inner inner_;
  const Options options_;
  mutable sdk::HmemSource hmem_;  // opens libraries when somebody asks
};

}  // namespace weft::rxd

#endif
