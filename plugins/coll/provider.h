// SPDX-License-Identifier: BSD-2-Clause
// CollLayer: collective operations (fi_collective.3) over any unconnected endpoints with tagged
// messages. It is offered to who asks for FI_COLLECTIVE, and to nobody else.
//
// Example:
//    inline bool is_asked_for(const CollLayer &layer, const fi_info &hints) {
//      return layer.is_wanted(&hints);
//    }
//
// Not for what its endpoints do: endpoint.h.
#ifndef WEFT_PLUGINS_COLL_PROVIDER_H
#define WEFT_PLUGINS_COLL_PROVIDER_H

#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/unit.h>

#include <memory>
#include <utility>

#include "plugins/coll/schedule/choice.h"
#include "plugins/coll/settings.h"

namespace weft::coll {

// What an application does of registration (fi_mr.3) that the layer passes on. The old words stand
// for some of it.
int registration_bits(int mr_mode);

// What of receives an application may ask for in a domain that was opened with `info`.
uint64_t receive_caps_over(const fi_info &info);

class CollLayer {
 public:
  static constexpr sdk::UnitInfo info{.name = "coll",
                                      .ofi_name = "off_coll",
                                      .summary = "collective operations over tagged messages",
                                      .version = FI_VERSION(1, 0),
                                      .needs_ep = WEFT_EP_BIT(FI_EP_RDM),
                                      .offers_ep = WEFT_EP_BIT(FI_EP_RDM),
                                      .rank = 1,
                                      .security = WEFT_SECURITY_TRUSTED_PEERS,
                                      .params = parameters::kAll};

  static Result<std::unique_ptr<CollLayer>> create(const weft_instance *instance, sdk::Inner inner);

  Result<sdk::InfoList> getinfo(const sdk::GetinfoQuery &query);
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);
  Result<void> explain(const sdk::LineSink &line);

  bool is_wanted(const fi_info *hints) const;
  // What the domain beneath is opened with, for an application's `info`.
  Result<sdk::InfoList> inner_info(const fi_info &info) const;
  const weft_instance *instance() const { return instance_; }
  const Options &options() const { return options_; }
  const Choice &choice() const { return choice_; }
  sdk::HmemSource &hmem() const { return hmem_; }

 private:
  CollLayer(const weft_instance *instance, sdk::Inner inner, Choice choice, const Options &options)
      : instance_(instance),
        inner_(inner),
        choice_(std::move(choice)),
        options_(options),
        hmem_({.cuda = options_.libcuda}) {}
  Result<sdk::InfoList> hints(const fi_info *outer) const;
  void offer(fi_info &entry, const sdk::GetinfoQuery &query) const;
  static void offer_domain(fi_domain_attr &domain, const sdk::GetinfoQuery &query);

  const weft_instance *instance_;
  const sdk::Inner inner_;
  const Choice choice_;
  const Options options_;
  mutable sdk::HmemSource hmem_;  // opens libraries when somebody asks
};

}  // namespace weft::coll

#endif
