// SPDX-License-Identifier: BSD-2-Clause
// ProviderFabric: what the fabrics of all providers have: settings, counters, the number of objects
// that are open, and the calls that open and close it.
//
// Example:
//    struct Settings {};
//    struct Counters : CounterSet {};
//    class Fabric final : public ProviderFabric<Fabric, Settings, Counters> {
//     public:
//      // What open() is given beyond its own arguments comes here.
//      Fabric(const Opening &opening, int devices) : ProviderFabric(opening), devices_(devices) {}
//      int devices() const { return devices_; }
//
//     private:
//      const int devices_;
//    };
//    weft::Result<fid_fabric *> open(const weft_instance *instance, const fi_fabric_attr &attr) {
//      return Fabric::open(instance, Settings(), attr, nullptr, 3);
//    }
//
// A fabric that has to begin something before it is given out has a member start(), and ends it in
// its destructor. Not for layers, which own the fabric beneath: layer_fabric.h.
#ifndef WEFT_SDK_OBJECTS_PROVIDER_FABRIC_H
#define WEFT_SDK_OBJECTS_PROVIDER_FABRIC_H

#include <rdma/fabric.h>
#include <weft/result.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/unit/stats.h>

#include <atomic>
#include <memory>
#include <new>
#include <utility>

namespace weft::sdk {

struct NoSettings {};

template <class F, class Settings = NoSettings, class Counters = NoCounters>
class ProviderFabric : public Object<F, fid_fabric> {
 public:
  // Errors: FI_ENOMEM, and those of start() and of the core.
  template <class... Parts>
  static Result<fid_fabric *> open(const weft_instance *instance, const Settings &settings,
                                   const fi_fabric_attr &attr, void *context, Parts &&...parts) {
    std::unique_ptr<F> fabric(new (std::nothrow) F(Opening(instance, settings, attr, context),
                                                   std::forward<Parts>(parts)...));
    if (fabric == nullptr) return fail(FI_ENOMEM, "no memory for a fabric");
    fill_tables(*fabric);
    WEFT_CHECK(fabric->start());
    WEFT_CHECK(fabric->publish(nullptr));
    return fabric.release()->c();
  }

  const Settings &settings() const { return settings_; }
  Counters &counters() { return *stats_; }
  Stats<Counters> &stats() { return stats_; }
  uint32_t api_version() const { return api_version_; }
  Result<void> start() { return {}; }
  std::atomic<size_t> children{0};

  // fi_ops
  int close() {
    if (children.load() != 0) return -FI_EBUSY;
    this->retire();
    delete static_cast<F *>(this);
    return 0;
  }
  int ops_open(const char *name, uint64_t flags, void **ops, void *) {
    return open_counters<F>(name, flags, ops);
  }

 protected:
  // The arguments of open(), which alone makes one.
  class Opening {
    friend class ProviderFabric;
    Opening(const weft_instance *instance, const Settings &settings, const fi_fabric_attr &attr,
            void *context)
        : instance(instance), settings(settings), attr(attr), context(context) {}
    const weft_instance *const instance;
    const Settings &settings;
    const fi_fabric_attr &attr;
    void *const context;
  };

  explicit ProviderFabric(const Opening &opening)
      : Object<F, fid_fabric>(opening.instance, FI_CLASS_FABRIC, opening.context),
        settings_(opening.settings),
        api_version_(opening.attr.api_version) {
    this->c()->api_version = api_version_;
  }
  ~ProviderFabric() = default;

 private:
  const Settings settings_;
  const uint32_t api_version_;
  Stats<Counters> stats_;
};

}  // namespace weft::sdk

#endif
