// SPDX-License-Identifier: BSD-2-Clause
// LayerFabric: the fabric of a layer that has domains of its own above the inner provider's. It has
// event queues and wait sets, and owns the inner fabric.
//
// Example:
//    struct MyLayer {
//      const weft_instance *instance() const;
//    };
//    class Domain;
//    using Fabric = LayerFabric<MyLayer, Domain>;
//    class Domain final : public Object<Domain, fid_domain> {
//     public:
//      static weft::Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context);
//    };
//    // A layer that counts names its counters: LayerFabric<MyLayer, Domain, Counters>.
//    weft::Result<fid_fabric *> open(const MyLayer &layer, fid_fabric *inner,
//                                    const fi_fabric_attr &attr, void *context) {
//      return Fabric::open(layer, inner, attr, context);  // takes `inner`
//    }
//
// Not for providers, whose fabrics often have an engine.
#ifndef WEFT_SDK_LAYERS_LAYER_FABRIC_H
#define WEFT_SDK_LAYERS_LAYER_FABRIC_H

#include <rdma/fi_domain.h>
#include <weft/sdk/objects/fabric_ops.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/unit/stats.h>

#include <atomic>
#include <new>

namespace weft::sdk {

template <class Layer, class Domain, class Counters = NoCounters>
class LayerFabric final : public Object<LayerFabric<Layer, Domain, Counters>, fid_fabric>,
                          public FabricOps<LayerFabric<Layer, Domain, Counters>, Domain> {
 public:
  // Takes the inner fabric, also if it fails.
  static Result<fid_fabric *> open(const Layer &layer, fid_fabric *inner,
                                   const fi_fabric_attr &attr, void *context) {
    auto *fabric = new (std::nothrow) LayerFabric(layer, inner, attr, context);
    if (fabric == nullptr) {
      fi_close(&inner->fid);
      return fail(FI_ENOMEM, "no memory for a fabric");
    }
    if (auto published = fabric->publish(nullptr); !published) {
      fi_close(&inner->fid);
      delete fabric;
      return tl::unexpected(published.error());
    }
    return fabric->c();
  }

  const Layer &layer() const { return layer_; }
  fid_fabric *inner() const { return inner_; }
  uint32_t api_version() const { return api_version_; }
  Stats<Counters> &stats() { return stats_; }
  std::atomic<size_t> children{0};

  void close_copies() { fi_close(&inner_->fid); }  // ops.h

  // fi_ops
  int close() {
    if (children.load() != 0) return -FI_EBUSY;
    if (const int rc = fi_close(&inner_->fid); rc != 0) return rc;
    this->retire();
    delete this;
    return 0;
  }
  int ops_open(const char *name, uint64_t flags, void **ops, void *) {
    return open_counters<LayerFabric>(name, flags, ops);
  }

 private:
  LayerFabric(const Layer &layer, fid_fabric *inner, const fi_fabric_attr &attr, void *context)
      : Object<LayerFabric, fid_fabric>(layer.instance(), FI_CLASS_FABRIC, context),
        layer_(layer),
        inner_(inner),
        api_version_(attr.api_version) {
    this->c()->fid.ops = c_table(fid_ops<LayerFabric>());
    this->c()->ops = c_table(fabric_ops<LayerFabric>());
    this->c()->api_version = attr.api_version;
  }
  ~LayerFabric() = default;

  const Layer &layer_;
  fid_fabric *const inner_;
  const uint32_t api_version_;
  Stats<Counters> stats_;
};

}  // namespace weft::sdk

#endif
