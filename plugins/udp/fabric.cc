// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/fabric.h"

#include <weft/sdk/domain.h>
#include <weft/sdk/ops.h>
#include <weft/sdk/sets.h>

#include <new>
#include <string_view>

#include "plugins/udp/domain.h"

namespace weft::udp {

Fabric::Fabric(const weft_instance *instance, const Settings &settings, const fi_fabric_attr &attr,
               void *context)
    : Object(instance, FI_CLASS_FABRIC, context),
      settings_(settings),
      api_version_(attr.api_version) {
  sdk::fill_tables(*this);
  c()->api_version = attr.api_version;
}

Result<fid_fabric *> Fabric::open(const weft_instance *instance, const Settings &settings,
                                  const fi_fabric_attr &attr, void *context) {
  Fabric *fabric = new (std::nothrow) Fabric(instance, settings, attr, context);
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
  retire();
  delete this;
  return 0;
}

int Fabric::ops_open(const char *name, uint64_t flags, void **ops, void *) {
  if (name == nullptr || ops == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (std::string_view(name) != WEFT_COUNTERS_OPS) return -FI_ENOSYS;
  static const weft_counters_ops counters = {
      sizeof(weft_counters_ops),
      [](struct fid *fid, weft_counter *out, size_t count) -> size_t {
        return Fabric::from(fid)->stats_.read(out, out != nullptr ? count : 0);
      },
  };
  *ops = const_cast<weft_counters_ops *>(&counters);
  return 0;
}

}  // namespace weft::udp
