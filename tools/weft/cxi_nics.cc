// SPDX-License-Identifier: BSD-2-Clause
// The library's answers about the NICs of cxi.
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>

#include <cstdlib>

#include "tools/weft/cxi.h"
#include "tools/weft/hints.h"

namespace weft::cli {
namespace {

constexpr size_t kRoom = 64;  // before the library has said how many there are

tl::unexpected<Error> failure(int ret, char *text) {
  const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
  return tl::unexpected<Error>(Error{-ret, text != nullptr ? text : fi_strerror(-ret)});
}

}  // namespace

void CxiNics::Close::operator()(fid_fabric *fabric) const {
  fi_close(&fabric->fid);
}

Result<CxiNics> CxiNics::open() {
  for (const char *const name : {"SLINGSHOT_VNIS", "SLINGSHOT_DEVICES", "SLINGSHOT_SVC_IDS"})
    unsetenv(name);
  HintOptions hints;
  hints.provider = "cxi";
  WEFT_TRY(const Offers offers, ask(hints));
  if (offers.list == nullptr)
    return fail(-offers.ret, "the provider cxi is not offered here (%s): `weft why cxi` tells why",
                fi_strerror(-offers.ret));
  CxiNics nics;
  fid_fabric *fabric = nullptr;
  if (const int ret = fi_fabric(offers.list->fabric_attr, &fabric, nullptr); ret != 0)
    return fail(-ret, "the fabric of cxi cannot be opened: %s", fi_strerror(-ret));
  nics.fabric_.reset(fabric);
  void *ops = nullptr;
  if (const int ret = fi_open_ops(&fabric->fid, WEFT_CXI_SERVICES_OPS, 0, &ops, nullptr); ret != 0)
    return fail(-ret,
                "this provider cxi does not tell of its services: it is not weft's, or older");
  nics.ops_ = static_cast<weft_cxi_services_ops *>(ops);
  if (nics.ops_->size < sizeof(weft_cxi_services_ops))
    return fail(FI_ENOSYS, "this provider cxi is too old to be asked: update it");
  return nics;
}

template <class T, class F>
Result<std::vector<T>> CxiNics::read_all(F call) const {
  std::vector<T> all(kRoom);
  while (true) {
    size_t count = all.size();
    char *text = nullptr;
    if (const int ret = call(all.data(), &count, &text); ret != 0) return failure(ret, text);
    const bool whole = count <= all.size();
    all.resize(count);
    if (whole) return all;
  }
}

template <class F>
Result<void> CxiNics::change(F call) const {
  char *text = nullptr;
  if (const int ret = call(&text); ret != 0) return failure(ret, text);
  return {};
}

Result<std::vector<weft_cxi_device>> CxiNics::devices() const {
  return read_all<weft_cxi_device>([&](weft_cxi_device *out, size_t *count, char **text) {
    return ops_->devices(&fabric_->fid, out, count, text);
  });
}

Result<std::vector<weft_cxi_service>> CxiNics::services(const std::string &device) const {
  return read_all<weft_cxi_service>([&](weft_cxi_service *out, size_t *count, char **text) {
    return ops_->services(&fabric_->fid, device.c_str(), out, count, text);
  });
}

Result<weft_cxi_service> CxiNics::service(const std::string &device, uint32_t id) const {
  WEFT_TRY(const std::vector<weft_cxi_service> all, services(device));
  for (const weft_cxi_service &one : all)
    if (one.id == id) return one;
  return fail(FI_ENOENT, "%s has no service %u: `weft cxi service list` has those it has",
              device.c_str(), id);
}

Result<std::vector<weft_cxi_process>> CxiNics::processes(const std::string &device,
                                                         uint32_t id) const {
  return read_all<weft_cxi_process>([&](weft_cxi_process *out, size_t *count, char **text) {
    return ops_->processes(&fabric_->fid, device.c_str(), id, out, count, text);
  });
}

Result<uint32_t> CxiNics::create(const std::string &device, const weft_cxi_service &service) const {
  uint32_t id = 0;
  WEFT_CHECK(change([&](char **text) {
    return ops_->create(&fabric_->fid, device.c_str(), &service, &id, text);
  }));
  return id;
}

Result<void> CxiNics::enable(const std::string &device, uint32_t id, bool enabled) const {
  return change(
      [&](char **text) { return ops_->enable(&fabric_->fid, device.c_str(), id, enabled, text); });
}

Result<void> CxiNics::destroy(const std::string &device, uint32_t id) const {
  return change(
      [&](char **text) { return ops_->destroy(&fabric_->fid, device.c_str(), id, text); });
}

}  // namespace weft::cli
