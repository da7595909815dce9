// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/fabric.h"

#include <weft/sdk/ops.h>

#include <new>
#include <utility>

#include "plugins/cxi/error_text.h"

namespace weft::cxi {

Fabric::Fabric(const weft_instance *instance, const Settings &settings,
               std::shared_ptr<Devices> devices, std::shared_ptr<sdk::HmemSource> hmem,
               const fi_fabric_attr &attr, void *context)
    : Object(instance, FI_CLASS_FABRIC, context),
      settings_(settings),
      devices_(std::move(devices)),
      hmem_(std::move(hmem)),
      api_version_(attr.api_version) {
  sdk::fill_tables(*this);
  c()->api_version = attr.api_version;
}

Result<fid_fabric *> Fabric::open(const weft_instance *instance, const Settings &settings,
                                  std::shared_ptr<Devices> devices,
                                  std::shared_ptr<sdk::HmemSource> hmem, const fi_fabric_attr &attr,
                                  void *context) {
  auto *const fabric = new (std::nothrow)
      Fabric(instance, settings, std::move(devices), std::move(hmem), attr, context);
  if (fabric == nullptr) return fail(FI_ENOMEM, "no memory for a fabric");
  if (auto opened = fabric->publish(nullptr); !opened) {
    delete fabric;
    return tl::unexpected(opened.error());
  }
  return fabric->c();
}

int Fabric::eq_open(struct fi_eq_attr *attr, struct fid_eq **eq, void *context) {
  const int rc = FabricOps::eq_open(attr, eq, context);
  if (rc == 0) sdk::Eq::from(*eq)->text_of = text_of_error;
  return rc;
}

int Fabric::close() {
  if (children.load() != 0) return -FI_EBUSY;
  retire();
  delete this;
  return 0;
}

}  // namespace weft::cxi
