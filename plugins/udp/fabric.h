// SPDX-License-Identifier: BSD-2-Clause
// The fabric of the udp provider: domains, event queues, and what the provider counts.
#ifndef WEFT_PLUGINS_UDP_FABRIC_H
#define WEFT_PLUGINS_UDP_FABRIC_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/eq.h>
#include <weft/sdk/fid.h>

#include <atomic>

#include "plugins/udp/settings.h"

namespace weft::udp {

class Fabric final : public sdk::Object<Fabric, fid_fabric> {
 public:
  static Result<fid_fabric *> open(const weft_instance *instance, const Settings &settings,
                                   const fi_fabric_attr &attr, void *context);

  const Settings &settings() const { return settings_; }
  Stats &stats() { return stats_; }
  uint32_t api_version() const { return api_version_; }
  std::atomic<size_t> children{0};

  // fi_ops_fabric
  int domain(struct fi_info *info, struct fid_domain **domain, void *context);
  int domain2(struct fi_info *info, struct fid_domain **domain, uint64_t flags, void *context);
  int eq_open(struct fi_eq_attr *attr, struct fid_eq **eq, void *context);
  int wait_open(struct fi_wait_attr *attr, struct fid_wait **set);
  int trywait(struct fid **fids, int count);

  // fi_ops
  int close();
  int ops_open(const char *name, uint64_t flags, void **ops, void *context);

 private:
  Fabric(const weft_instance *instance, const Settings &settings, const fi_fabric_attr &attr,
         void *context);
  ~Fabric() = default;

  const Settings settings_;
  const uint32_t api_version_;
  Stats stats_;
};

}  // namespace weft::udp

#endif
