// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/services_ops.h"

#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "plugins/cxi/fabric.h"
#include "plugins/cxi/nic/service.h"

namespace weft::cxi {
namespace {

static_assert(WEFT_CXI_MAX_MEMBERS == kMaxServiceMembers && WEFT_CXI_MAX_VNIS == kMaxServiceVnis);
static_assert(WEFT_CXI_BEST_EFFORT == 1u << unsigned(TrafficClass::kBestEffort));

// No exception leaves, and a failure has its words.
template <class F>
int answer(struct fid *fid, char **text, F call) {
  if (text != nullptr) *text = nullptr;
  if (fid == nullptr || fid->fclass != FI_CLASS_FABRIC) return -FI_EINVAL;
  try {
    const Result<void> done = call(Fabric::from(fid)->devices());
    if (done) return 0;
    if (text != nullptr) *text = strdup(done.error().text.c_str());
    return -done.error().code;
  } catch (const std::bad_alloc &) {
    return -FI_ENOMEM;
  }
}

Result<std::shared_ptr<Device>> open(Devices &devices, const char *name) {
  if (name == nullptr) return fail(FI_EINVAL, "cxi: the name of the NIC is NULL");
  return devices.open(name);
}

template <class T>
Result<void> give(const std::vector<T> &all, T *out, size_t *count) {
  if (count == nullptr) return fail(FI_EINVAL, "cxi: count is NULL");
  if (out != nullptr) std::copy_n(all.begin(), std::min(*count, all.size()), out);
  *count = all.size();
  return {};
}

// A NIC that does not tell has none in use.
ServiceUse use_of(const Device &device, uint32_t service) {
  return device.usage(service).value_or(ServiceUse());
}

weft_cxi_device device_of(const Device &device) {
  const DeviceFacts &facts = device.facts();
  const ServiceUse use = use_of(device, 0);
  weft_cxi_device out{};
  facts.name.copy(out.name, sizeof out.name - 1);
  out.nid = facts.nid;
  out.is_software = facts.is_software;
  out.is_up = facts.link_up;
  out.max_list_entries = uint32_t(facts.max_list_entries);
  out.max_triggered = uint32_t(facts.max_triggered);
  out.list_entries = uint32_t(use.list_entries);
  out.triggered = uint32_t(use.triggered);
  return out;
}

weft_cxi_service service_of(const Service &service, const Device &device, const User &user) {
  const ServiceUse use = use_of(device, service.id);
  weft_cxi_service out{};
  out.id = service.id;
  out.is_enabled = service.is_enabled;
  out.is_usable = service.is_enabled && is_member(service, user);
  for (const Service::Member &member : service.members)
    if (out.member_count < kMaxServiceMembers)
      out.members[out.member_count++] = {.id = member.id, .is_group = member.is_group};
  for (const Service::Vnis &range : service.vnis)
    if (out.vni_count < kMaxServiceVnis)
      out.vnis[out.vni_count++] = {.first = range.first, .last = range.last};
  for (const TrafficClass one : service.classes) out.classes |= 1u << unsigned(one);
  out.max_list_entries = uint32_t(service.max_list_entries);
  out.max_triggered = uint32_t(service.max_triggered);
  out.list_entries = uint32_t(use.list_entries);
  out.triggered = uint32_t(use.triggered);
  out.processes = uint32_t(use.processes.size());
  return out;
}

Result<Service> service_of(const weft_cxi_service &in) {
  if (in.member_count > kMaxServiceMembers || in.vni_count > kMaxServiceVnis)
    return fail(FI_EINVAL, "cxi: a service has at most %zu members and %zu ranges of VNIs",
                kMaxServiceMembers, kMaxServiceVnis);
  Service service;
  service.max_list_entries = in.max_list_entries;
  service.max_triggered = in.max_triggered;
  for (size_t i = 0; i < in.member_count; ++i)
    service.members.push_back({in.members[i].is_group != 0, in.members[i].id});
  for (size_t i = 0; i < in.vni_count; ++i)
    service.vnis.push_back({in.vnis[i].first, in.vnis[i].last});
  for (unsigned i = 0; i < 32; ++i)
    if (in.classes >> i & 1) service.classes.push_back(TrafficClass(i));
  return service;
}

int devices(struct fid *fid, weft_cxi_device *out, size_t *count, char **text) {
  return answer(fid, text, [&](Devices &all) -> Result<void> {
    std::vector<weft_cxi_device> list;
    for (const DeviceFacts &facts : all.list()) {
      WEFT_TRY(const auto device, all.open(facts.name));
      list.push_back(device_of(*device));
    }
    return give(list, out, count);
  });
}

int services(struct fid *fid, const char *name, weft_cxi_service *out, size_t *count, char **text) {
  return answer(fid, text, [&](Devices &all) -> Result<void> {
    WEFT_TRY(const auto device, open(all, name));
    const User user = User::own();
    std::vector<weft_cxi_service> list;
    for (const Service &service : device->services())
      list.push_back(service_of(service, *device, user));
    std::ranges::sort(list, {}, &weft_cxi_service::id);
    return give(list, out, count);
  });
}

int processes(struct fid *fid, const char *name, uint32_t service, weft_cxi_process *out,
              size_t *count, char **text) {
  return answer(fid, text, [&](Devices &all) -> Result<void> {
    WEFT_TRY(const auto device, open(all, name));
    WEFT_TRY(const ServiceUse use, device->usage(service));
    std::vector<weft_cxi_process> list;
    for (const ServiceUse::Process &one : use.processes)
      list.push_back({one.id, uint32_t(one.list_entries), uint32_t(one.triggered)});
    return give(list, out, count);
  });
}

int create(struct fid *fid, const char *name, const weft_cxi_service *service, uint32_t *id,
           char **text) {
  return answer(fid, text, [&](Devices &all) -> Result<void> {
    if (service == nullptr || id == nullptr)
      return fail(FI_EINVAL, "cxi: the service or its id is NULL");
    WEFT_TRY(const auto device, open(all, name));
    WEFT_TRY(const Service wanted, service_of(*service));
    WEFT_TRY(*id, device->create_service(wanted));
    return {};
  });
}

int enable(struct fid *fid, const char *name, uint32_t service, int enabled, char **text) {
  return answer(fid, text, [&](Devices &all) -> Result<void> {
    WEFT_TRY(const auto device, open(all, name));
    return device->enable_service(service, enabled != 0);
  });
}

int destroy(struct fid *fid, const char *name, uint32_t service, char **text) {
  return answer(fid, text, [&](Devices &all) -> Result<void> {
    WEFT_TRY(const auto device, open(all, name));
    return device->destroy_service(service);
  });
}

}  // namespace

int open_services_ops(void **ops) {
  static weft_cxi_services_ops table = {.size = sizeof table,
                                        .devices = devices,
                                        .services = services,
                                        .processes = processes,
                                        .create = create,
                                        .enable = enable,
                                        .destroy = destroy};
  if (ops == nullptr) return -FI_EINVAL;
  *ops = &table;
  return 0;
}

}  // namespace weft::cxi
