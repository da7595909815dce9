// SPDX-License-Identifier: BSD-2-Clause
// LayerDomain: the domain of a layer with unconnected endpoints of its own (layer_endpoint.h) above
// the inner provider's domain, which it owns.
//
// Example:
//    #include <weft/sdk/layers/layer_fabric.h>
//    struct MyLayer {
//      struct Options { size_t tx_size = 1024, rx_size = 1024; };
//      const weft_instance *instance() const;
//      const Options &options() const;
//      weft::Result<InfoList> inner_info(const fi_info &info) const;
//    };
//    class Domain;
//    class Endpoint final : public Object<Endpoint, fid_ep> {
//     public:
//      static weft::Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);
//    };
//    using Fabric = LayerFabric<MyLayer, Domain>;
//    class Domain final : public LayerDomain<Domain, Fabric, Endpoint> {
//     public:
//      static weft::Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context) {
//        WEFT_TRY(InfoList inner, fabric.layer().inner_info(info));
//        return start(new Domain(fabric, info, std::move(inner), context), info);
//      }
//      AtomicLimits atomic_limits() const;  // of its endpoints
//     private:
//      friend LayerDomain;  // frees it
//      Domain(Fabric &fabric, const fi_info &info, InfoList inner, void *context)
//          : LayerDomain(fabric, {.iov_limit = 1}, info, std::move(inner), context) {}
//      ~Domain() = default;
//    };
//
// Regions are the layer's own (DomainCore); a layer that leaves them to the inner provider has reg,
// regv and regattr itself. Not for providers.
#ifndef WEFT_SDK_LAYERS_LAYER_DOMAIN_H
#define WEFT_SDK_LAYERS_LAYER_DOMAIN_H

#include <rdma/fi_domain.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/layers/layer_info.h>
#include <weft/sdk/objects/fabric_ops.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/scalable.h>
#include <weft/sdk/objects/shared_receive.h>
#include <weft/sdk/objects/shared_transmit.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/progress/linger_budget.h>
#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/transfers/levels.h>
#include <weft/sdk/unit/info_list.h>

#include <cstdint>
#include <string>
#include <utility>

namespace weft::sdk {

// tx_attr.size, rx_attr.size: more is refused.
inline constexpr size_t kMaxQueueSize = 1 << 20;

// `Core`: SoftwareDomain, or DomainCore for a layer whose regions are not in a table of its own; it
// then passes its Memory.
template <class D, class F, class Endpoint, class Core = SoftwareDomain>
class LayerDomain : public Object<D, fid_domain>,
                    public Core,
                    public DomainOps<D, Endpoint>,
                    public ScalableOps<D, Endpoint> {
 public:
  F &fabric() const { return fabric_; }
  fid_domain *inner() const { return inner_; }
  const fi_info &inner_info() const { return *inner_info_.front(); }  // what it was opened with
  LingerBudget &linger_budget() { return linger_budget_; }

  // fi_ops_domain
  int av_open(struct fi_av_attr *attr, struct fid_av **av, void *context) {
    return open_av(this->shared(), addr_format_, attr, av, context, name_,
                   native_format(inner_info()));
  }
  int srx_ctx(struct fi_rx_attr *attr, struct fid_ep **ep, void *context) {
    return open_shared_receive(this->shared(), attr,
                               {.caps = kRdmReceiveCaps,
                                .size = fabric_.layer().options().rx_size,
                                .max_size = kMaxQueueSize},
                               ep, context);
  }
  int stx_ctx(struct fi_tx_attr *attr, struct fid_stx **stx, void *context) {
    return open_shared_transmit(this->shared(), attr,
                                {.caps = kRdmTransmitCaps,
                                 .size = fabric_.layer().options().tx_size,
                                 .max_size = kMaxQueueSize,
                                 .inject_size = SIZE_MAX},
                                stx, context);
  }
  int query_atomic(enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
                   uint64_t flags) {
    return atomic_query(raw(datatype), raw(op), self().atomic_limits(), attr, flags);
  }

  // A lane (scalable.h) has an inner domain that is one of its origin's.
  Result<void> join(D &origin) {
    WEFT_CHECK(Core::join(origin));
    fid_domain *const inner_origin = origin.inner();
    const int rc = fi_control(&inner_->fid, WEFT_JOIN_DOMAIN, inner_origin);
    if (rc != 0) return fail(-rc, "the inner provider has no lanes");
    return {};
  }

  void close_copies() {  // ops.h
    Core::close_copies();
    fi_close(&inner_->fid);
  }

  // fi_ops
  int close() {
    if (this->shared().children.load() != 0) return -FI_EBUSY;
    this->close_lanes();
    this->engine().stop_thread();
    if (const int rc = fi_close(&inner_->fid); rc != 0) return rc;
    this->retire();
    this->unbind();
    fabric_.children.fetch_sub(1);
    delete &self();
    return 0;
  }
  int bind(struct fid *fid, uint64_t flags) { return this->bind_eq(fid, flags); }

 protected:
  // `info` as the application passed it to fi_domain, `inner_info` what the inner domain is to be
  // opened with.
  template <class... M>
  LayerDomain(F &fabric, const MrTable::Mode &regions, const fi_info &info, InfoList inner_info,
              void *context, M &...memory)
      : Object<D, fid_domain>(fabric.instance(), FI_CLASS_DOMAIN, context),
        Core(fabric.instance(), this->base(), settings_for(fabric, regions, info), memory...),
        fabric_(fabric),
        inner_info_(std::move(inner_info)),
        name_(info.domain_attr->name != nullptr ? info.domain_attr->name : ""),
        addr_format_(info.addr_format) {
    fill_tables(self());
  }
  ~LayerDomain() = default;

  // The rest of open(): the inner domain, and the thread where one is wanted. Takes `domain`, also
  // if it fails.
  static Result<D *> start(D *domain, const fi_info &info) {
    Result<void> done = domain->open_inner(info);
    if (done) done = DomainCore::start(*domain, info, domain->fabric_.base());
    if (done) {
      domain->fabric_.children.fetch_add(1);
      return domain;
    }
    if (domain->inner_ != nullptr) fi_close(&domain->inner_->fid);
    delete domain;
    return tl::unexpected(std::move(done).error());
  }

 private:
  D &self() { return static_cast<D &>(*this); }

  static DomainSettings settings_for(const F &fabric, const MrTable::Mode &regions,
                                     const fi_info &info) {
    const auto &options = fabric.layer().options();
    return DomainSettings::of(info, fabric.api_version(), options.tx_size + options.rx_size,
                              regions);
  }
  Result<void> open_inner(const fi_info &info) {
    fi_info *inner = inner_info_.front();
    inner->domain_attr->threading = needs_lock(info) ? FI_THREAD_SAFE : FI_THREAD_DOMAIN;
    inner->domain_attr->tclass = domain_class(info, fabric_.api_version());
    // What the inner provider can do is no default of its endpoints: the layer asks call by call.
    inner->tx_attr->op_flags &= ~kLevelFlags;
    if (const int rc = fi_domain(fabric_.inner(), inner, &inner_, nullptr); rc != 0)
      return fail(-rc, "fi_domain: the inner provider has no domain %s for it", name_.c_str());
    fi_control(&inner_->fid, WEFT_READ_BY_LAYER, nullptr);
    return {};
  }

  F &fabric_;
  fid_domain *inner_ = nullptr;
  const InfoList inner_info_;
  const std::string name_;
  const uint32_t addr_format_;
  LingerBudget linger_budget_;
};

}  // namespace weft::sdk

#endif
