// SPDX-License-Identifier: BSD-2-Clause
// Domain: the domain of the layer, above the one that carries its messages and has its memory
// regions.
//
// Example:
//    // The longest message that a member sends another.
//    inline uint64_t longest(const Domain &domain) {
//      return domain.inner_info().ep_attr->max_msg_size;
//    }
//
// Not for groups, which are an endpoint's: collectives.h.
#ifndef WEFT_PLUGINS_COLL_DOMAIN_H
#define WEFT_PLUGINS_COLL_DOMAIN_H

#include <weft/sdk/layers/inner_progress.h>
#include <weft/sdk/layers/layer_domain.h>
#include <weft/sdk/layers/mirrors.h>
#include <weft/sdk/memory/memory.h>

#include <unordered_map>
#include <utility>

#include "plugins/coll/fabric.h"

namespace weft::coll {

class Endpoint;

// fi_query_collective of endpoints whose messages have up to `longest` bytes.
int query_collective(enum fi_collective_op coll, struct fi_collective_attr *attr, uint64_t flags,
                     uint64_t longest);

class Domain;

// Regions are those of the domain beneath (region.h).
class BeneathMemory final : public sdk::Memory {
 public:
  explicit BeneathMemory(Domain &domain) : domain_(domain) {}
  Result<fid_mr *> open(const fi_mr_attr &attr, uint64_t flags) override;

 private:
  Domain &domain_;
};

class Domain final : public sdk::LayerDomain<Domain, Fabric, Endpoint, sdk::DomainCore> {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context) {
    WEFT_TRY(sdk::InfoList inner, fabric.layer().inner_info(info));
    // What the application does by itself, whether it was demanded or not.
    inner.front()->domain_attr->mr_mode |= registration_bits(info.domain_attr->mr_mode);
    std::shared_ptr<const sdk::Hmem> hmem;
    if ((info.caps | info.domain_attr->caps) & FI_HMEM) {
      WEFT_TRY(hmem, fabric.layer().hmem().open());
    }
    auto *const domain = new Domain(fabric, info, std::move(inner), context);
    domain->set_hmem(std::move(hmem));
    return start(domain, info);
  }
  int query_atomic(enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
                   uint64_t flags) {
    return fi_query_atomic(inner(), datatype, op, attr, flags);
  }
  int srx_ctx(struct fi_rx_attr *attr, struct fid_ep **ep, void *context);
  // What shared receives may be opened with.
  uint64_t receive_caps() const { return receive_caps_; }
  int query_collective(enum fi_collective_op coll, struct fi_collective_attr *attr,
                       uint64_t flags) {
    return coll::query_collective(coll, attr, flags, inner_info().ep_attr->max_msg_size);
  }

  // ---- with the engine's lock held ----
  sdk::Mirrors &mirrors() { return mirrors_; }
  sdk::InnerProgress &progress_beneath() { return progress_beneath_; }
  // FI_MR_ENDPOINT: regions are bound to the endpoint beneath that of the application. By its
  // number; null: it is gone.
  bool endpoint_needed() const { return endpoint_needed_; }
  void note_endpoint(uint64_t number, fid_ep *beneath) { endpoints_[number] = beneath; }
  void forget_endpoint(uint64_t number) { endpoints_.erase(number); }
  fid_ep *endpoint_beneath(uint64_t number) const {
    const auto found = endpoints_.find(number);
    return found != endpoints_.end() ? found->second : nullptr;
  }

 private:
  friend LayerDomain;
  Domain(Fabric &fabric, const fi_info &info, sdk::InfoList inner, void *context)
      : LayerDomain(fabric, {}, info, std::move(inner), context, memory_),
        receive_caps_(receive_caps_over(info)),
        endpoint_needed_((registration_bits(info.domain_attr->mr_mode) & FI_MR_ENDPOINT) != 0),
        mirrors_(fabric.inner()) {}
  ~Domain() = default;

  BeneathMemory memory_{*this};
  const uint64_t receive_caps_;
  const bool endpoint_needed_;
  sdk::Mirrors mirrors_;
  sdk::InnerProgress progress_beneath_;
  std::unordered_map<uint64_t, fid_ep *> endpoints_;
};

}  // namespace weft::coll

#endif
