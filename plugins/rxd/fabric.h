// SPDX-License-Identifier: BSD-2-Clause
// The fabric of the layer: event queues and wait sets of its own, and the inner provider's fabric.
#ifndef WEFT_PLUGINS_RXD_FABRIC_H
#define WEFT_PLUGINS_RXD_FABRIC_H

#include <rdma/fi_domain.h>
#include <weft/sdk/fid.h>

#include <atomic>

#include "plugins/rxd/provider.h"

namespace weft::rxd {

class Fabric final : public sdk::Object<Fabric, fid_fabric> {
 public:
  // Takes the inner fabric if it succeeds.
  static Result<fid_fabric *> open(const RxdLayer &layer, fid_fabric *inner,
                                   const fi_fabric_attr &attr, void *context);

  const RxdLayer &layer() const { return layer_; }
  fid_fabric *inner() const { return inner_; }
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

 private:
  Fabric(const RxdLayer &layer, fid_fabric *inner, const fi_fabric_attr &attr, void *context);
  ~Fabric() = default;

  const RxdLayer &layer_;
  fid_fabric *const inner_;
  const uint32_t api_version_;
};

}  // namespace weft::rxd

#endif
