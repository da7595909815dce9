// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/fabric.h"

#include <new>
#include <utility>

#include "plugins/shm/domain.h"
#include "plugins/shm/endpoint.h"

namespace weft::shm {

Fabric::Fabric(const weft_instance *instance, const Settings &settings,
               std::shared_ptr<std::atomic<unsigned>> next_number, const fi_fabric_attr &attr,
               void *context)
    : Object(instance, FI_CLASS_FABRIC, context),
      settings_(settings),
      next_number_(std::move(next_number)),
      api_version_(attr.api_version) {
  sdk::fill_tables(*this);
  c()->api_version = attr.api_version;
}

Result<fid_fabric *> Fabric::open(const weft_instance *instance, const Settings &settings,
                                  std::shared_ptr<std::atomic<unsigned>> next_number,
                                  const fi_fabric_attr &attr, void *context) {
  auto *const fabric =
      new (std::nothrow) Fabric(instance, settings, std::move(next_number), attr, context);
  if (fabric == nullptr) return fail(FI_ENOMEM, "no memory for a fabric");
  if (auto published = fabric->publish(nullptr); !published) {
    delete fabric;
    return tl::unexpected(published.error());
  }
  return fabric->c();
}

int Fabric::close() {
  if (children.load() != 0) return -FI_EBUSY;
  retire();
  delete this;
  return 0;
}

}  // namespace weft::shm
