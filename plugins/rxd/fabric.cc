// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/fabric.h"

#include <weft/sdk/domain.h>
#include <weft/sdk/eq.h>
#include <weft/sdk/ops.h>
#include <weft/sdk/sets.h>

#include <new>

#include "plugins/rxd/domain.h"

namespace weft::rxd {

Fabric::Fabric(const RxdLayer &layer, fid_fabric *inner, const fi_fabric_attr &attr, void *context)
    : Object(layer.instance(), FI_CLASS_FABRIC, context),
      layer_(layer),
      inner_(inner),
      api_version_(attr.api_version) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<Fabric>());
  c()->ops = const_cast<fi_ops_fabric *>(sdk::fabric_ops<Fabric>());
  c()->api_version = attr.api_version;
}

Result<fid_fabric *> Fabric::open(const RxdLayer &layer, fid_fabric *inner,
                                  const fi_fabric_attr &attr, void *context) {
  auto *fabric = new (std::nothrow) Fabric(layer, inner, attr, context);
  if (fabric == nullptr) return fail(FI_ENOMEM, "no memory for a fabric");
  if (auto published = fabric->publish(nullptr); !published) {
    delete fabric;
    return tl::unexpected(published.error());
  }
  return fabric->c();
}

int Fabric::domain(struct fi_info *info, struct fid_domain **domain, void *context) {
  return domain2(info, domain, 0, context);
}

int Fabric::domain2(struct fi_info *info, struct fid_domain **domain, uint64_t flags,
                    void *context) {
  if (info == nullptr || domain == nullptr || info->domain_attr == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  return sdk::finish(instance(), FI_LOG_DOMAIN, Domain::open(*this, *info, context), domain);
}

int Fabric::eq_open(struct fi_eq_attr *attr, struct fid_eq **eq, void *context) {
  if (eq == nullptr) return -FI_EINVAL;
  return sdk::finish(instance(), FI_LOG_EQ,
                     sdk::Eq::open(instance(), base(), children, attr, context), eq);
}

int Fabric::wait_open(struct fi_wait_attr *attr, struct fid_wait **set) {
  if (set == nullptr) return -FI_EINVAL;
  return sdk::finish(instance(), FI_LOG_FABRIC,
                     sdk::WaitSet::open(instance(), base(), children, attr), set);
}

int Fabric::trywait(struct fid **fids, int count) {
  return sdk::trywait(instance(), fids, count);
}

int Fabric::close() {
  if (children.load() != 0) return -FI_EBUSY;
  if (const int rc = fi_close(&inner_->fid); rc != 0) return rc;
  retire();
  delete this;
  return 0;
}

}  // namespace weft::rxd
