// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/extensions.h"

#include <rdma/fi_cxi_ext.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/objects/endpoint_number.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <iterator>
#include <string_view>

#include "plugins/cxi/domain.h"
#include "plugins/cxi/endpoint.h"
#include "plugins/cxi/nic_counter.h"

namespace weft::cxi {
namespace {

// The address of a NIC in a dragonfly network, from the low bits up.
constexpr unsigned kPortBits = 6, kSwitchBits = 5, kGroupBits = 9;

constexpr unsigned bits(Nid nid, unsigned from, unsigned count) {
  return nid >> from & ((1u << count) - 1);
}

// What is passed as the first argument may be no domain of ours.
Domain *domain_of(struct fid *fid) {
  if (fid == nullptr || fid->fclass != FI_CLASS_DOMAIN) return nullptr;
  return Domain::from(fid);
}

int cntr_read(struct fid *fid, unsigned int number, uint64_t *value, struct timespec *time) {
  Domain *const domain = domain_of(fid);
  const auto which = telemetry_of(number);
  if (domain == nullptr || !which || value == nullptr) return -FI_EINVAL;
  *value = domain->device().telemetry(*which);
  if (time != nullptr) ::clock_gettime(CLOCK_REALTIME, time);
  return 0;
}

int topology(struct fid *fid, unsigned int *group, unsigned int *switches, unsigned int *port) {
  Domain *const domain = domain_of(fid);
  if (domain == nullptr) return -FI_EINVAL;
  const Nid nid = domain->device().facts().nid;
  if (port != nullptr) *port = bits(nid, 0, kPortBits);
  if (switches != nullptr) *switches = bits(nid, kPortBits, kSwitchBits);
  if (group != nullptr) *group = bits(nid, kPortBits + kSwitchBits, kGroupBits);
  return 0;
}

// Descriptors are allowed, and never needed.
int enable_hybrid_mr_desc(struct fid *fid, bool) {
  return domain_of(fid) != nullptr ? 0 : -FI_EINVAL;
}

size_t ep_get_unexp_msgs(struct fid_ep *ep, struct fi_cq_tagged_entry *entries, size_t count,
                         fi_addr_t *sources, size_t *found) {
  if (ep == nullptr || ep->fid.fclass != FI_CLASS_EP || found == nullptr) return size_t(-FI_EINVAL);
  return CxiEndpoint::from(ep)->list_unexpected(entries, count, sources, *found);
}

int get_dwq_depth(struct fid *fid, size_t *depth) {
  Domain *const domain = domain_of(fid);
  if (domain == nullptr || depth == nullptr) return -FI_EINVAL;
  *depth = domain->deferred_depth();
  return 0;
}

int set_flag(struct fid *fid, int command, bool enable) {
  Domain *const domain = domain_of(fid);
  return domain != nullptr ? control_domain(*domain, command, &enable) : -FI_EINVAL;
}
int enable_mr_match_events(struct fid *fid, bool enable) {
  return set_flag(fid, FI_OPT_CXI_SET_MR_MATCH_EVENTS, enable);
}
int enable_optimized_mrs(struct fid *fid, bool enable) {
  return set_flag(fid, FI_OPT_CXI_SET_OPTIMIZED_MRS, enable);
}

NicCounter *counter_of(struct fid *fid) {
  if (fid == nullptr || fid->fclass != FI_CLASS_CNTR) return nullptr;
  return static_cast<NicCounter *>(sdk::Cntr::from(fid)->store());
}

int set_wb_buffer(struct fid *fid, void *buffer, size_t length) {
  NicCounter *const counter = counter_of(fid);
  if (counter == nullptr || (buffer != nullptr && length < sizeof(uint64_t))) return -FI_EINVAL;
  if (reinterpret_cast<uintptr_t>(buffer) % sizeof(uint64_t) != 0) return -FI_EINVAL;
  counter->write_back_to(static_cast<uint64_t *>(buffer));
  return 0;
}

// A store to memory tells a NIC in software nothing.
int get_mmio_addr(struct fid *fid, void **address, size_t *length) {
  NicCounter *const counter = counter_of(fid);
  if (counter == nullptr || address == nullptr || length == nullptr) return -FI_EINVAL;
  void *const registers = counter->counter().registers();
  if (registers == nullptr) return -FI_ENOSYS;
  *address = registers;
  *length = Counter::kRegisterBytes;
  return 0;
}

constexpr std::string_view kMatchModes[] = {"hardware", "software", "hybrid"};  // of MatchMode

// Who matches messages of the endpoints to come.
int set_match_mode(Domain &domain, const char *name) {
  const auto found = std::ranges::find(kMatchModes, std::string_view(name));
  if (found == std::end(kMatchModes) || domain.endpoint_count() != 0) return -FI_EINVAL;
  domain.settings_to_change().match_mode = MatchMode(found - std::begin(kMatchModes));
  return 0;
}

int set_request_buffer(Domain &domain, size_t bytes) {
  Settings &settings = domain.settings_to_change();
  if (bytes < settings.max_eager() + kMaxRequestHead) {
    WEFT_WARN(domain.instance(), FI_LOG_DOMAIN,
              "FI_OPT_CXI_SET_REQ_BUF_SIZE_OVERRIDE: %zu: a message of %zu bytes must fit into a "
              "buffer (FI_CXI_RDZV_THRESHOLD, FI_CXI_RDZV_GET_MIN)",
              bytes, settings.max_eager());
    return -FI_EINVAL;
  }
  if (domain.endpoint_count() != 0) return -FI_EINVAL;
  settings.req_buf_size = bytes;
  return 0;
}

// Of messages: options that came after those of regions.
int control_messages(Domain &domain, int command, void *arg) {
  if (arg == nullptr) return -FI_EINVAL;
  const sdk::Guard guard(domain.engine().lock());
  const std::string_view mode = kMatchModes[size_t(domain.settings().match_mode)];
  switch (command) {
    case FI_OPT_CXI_SET_RX_MATCH_MODE_OVERRIDE:
      return set_match_mode(domain, static_cast<const char *>(arg));
    case FI_OPT_CXI_GET_RX_MATCH_MODE_OVERRIDE:
      std::memcpy(arg, mode.data(), mode.size() + 1);  // it is of a literal
      return 0;
    case FI_OPT_CXI_SET_REQ_BUF_SIZE_OVERRIDE:
      return set_request_buffer(domain, *static_cast<const size_t *>(arg));
    default:
      *static_cast<size_t *>(arg) = domain.settings().req_buf_size;
      return 0;
  }
}

}  // namespace

int open_domain_ops(const char *name, void **ops) {
  static fi_cxi_dom_ops table = {.cntr_read = cntr_read,
                                 .topology = topology,
                                 .enable_hybrid_mr_desc = enable_hybrid_mr_desc,
                                 .ep_get_unexp_msgs = ep_get_unexp_msgs,
                                 .get_dwq_depth = get_dwq_depth,
                                 .enable_mr_match_events = enable_mr_match_events,
                                 .enable_optimized_mrs = enable_optimized_mrs};
  for (const char *const known : {FI_CXI_DOM_OPS_1, FI_CXI_DOM_OPS_2, FI_CXI_DOM_OPS_3,
                                  FI_CXI_DOM_OPS_4, FI_CXI_DOM_OPS_5, FI_CXI_DOM_OPS_6}) {
    if (std::string_view(name) != known) continue;
    *ops = &table;
    return 0;
  }
  return -FI_EINVAL;
}

int open_counter_ops(const char *name, void **ops) {
  static fi_cxi_cntr_ops table = {.set_wb_buffer = set_wb_buffer, .get_mmio_addr = get_mmio_addr};
  if (std::string_view(name) != FI_CXI_COUNTER_OPS) return -FI_EINVAL;
  *ops = &table;
  return 0;
}

int control_domain(Domain &domain, int command, void *arg) {
  if (command >= FI_OPT_CXI_SET_RX_MATCH_MODE_OVERRIDE &&
      command <= FI_OPT_CXI_GET_REQ_BUF_SIZE_OVERRIDE)
    return control_messages(domain, command, arg);
  if (command < FI_OPT_CXI_SET_MR_MATCH_EVENTS || command > FI_OPT_CXI_GET_PROV_KEY_CACHE)
    return -FI_ENOSYS;
  if (arg == nullptr) return -FI_EINVAL;
  bool &value = *static_cast<bool *>(arg);
  const sdk::Guard guard(domain.engine().lock());
  Regions &regions = domain.regions();
  switch (command) {
    case FI_OPT_CXI_GET_OPTIMIZED_MRS:
      value = regions.optimized;
      return 0;
    case FI_OPT_CXI_GET_MR_MATCH_EVENTS:
      value = regions.match_events;
      return 0;
    case FI_OPT_CXI_GET_PROV_KEY_CACHE:
      value = regions.key_cache;
      return 0;
    case FI_OPT_CXI_SET_OPTIMIZED_MRS:
      if (!regions.has_provider_keys() || !regions.empty()) return -FI_EINVAL;
      regions.optimized = value;
      return 0;
    case FI_OPT_CXI_SET_MR_MATCH_EVENTS:
      if (!regions.empty() || domain.endpoint_count() != 0) return -FI_EINVAL;
      regions.match_events = value;
      return 0;
    default:
      if (!regions.has_provider_keys() || !regions.empty()) return -FI_EINVAL;
      regions.key_cache = value;
      return 0;
  }
}

}  // namespace weft::cxi
