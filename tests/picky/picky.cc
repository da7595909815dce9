// SPDX-License-Identifier: BSD-2-Clause
// The unit, its fabrics, domains and regions. calls.cc has what endpoints do, queue.cc completions.
#include "tests/picky/picky.h"

#include <weft/sdk/unit.h>
#include <weft/sdk/unit/log.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace weft::picky {

World &World::all() {
  static World *world = new World;  // objects may outlive static destructors
  return *world;
}

int violation(const Domain &domain, const char *format, ...) {
  ++World::all().violations;
  char text[200];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  WEFT_WARN(domain.instance, FI_LOG_EP_DATA, "picky: %s", text);
  return -FI_EINVAL;
}

namespace {

// ---- regions ----

// Not an address: what is no descriptor must be found out without reading it.
void *descriptor_of(uint64_t id) {
  return reinterpret_cast<void *>(uintptr_t(id << 4 | 0xd));
}

int close_region(struct fid *fid) {
  World &world = World::all();
  std::lock_guard guard(world.lock);
  Region &region = world.regions.at(fid);
  Domain &domain = *region.domain;
  for (const auto &[id, op] : domain.calls) {
    if (op->endpoint == nullptr) continue;
    for (const uint64_t used : op->regions)
      if (used == region.id)
        return violation(domain, "a region closes while call %llu is using it",
                         (unsigned long long)id);
  }
  fid->ops = region.ops.below;
  if (const int rc = fi_close(fid); rc != 0) {
    region.ops.put(fid->ops);
    return rc;
  }
  domain.regions.erase(region.id);
  world.regions.erase(fid);
  return 0;
}

int regattr(struct fid *fid, const fi_mr_attr *attr, uint64_t flags, fid_mr **mr) {
  World &world = World::all();
  std::lock_guard guard(world.lock);
  Domain &domain = world.domains.at(fid);
  if (world.most_regions != 0 && domain.regions.size() >= world.most_regions) return -FI_ENOMEM;
  if (const int rc = domain.mr.below->regattr(fid, attr, flags, mr); rc != 0) return rc;
  Region &region = world.regions[&(*mr)->fid];
  region.fid = *mr;
  region.domain = &domain;
  region.id = ++world.last_id;
  ++world.registered;
  region.memory.assign(attr->mr_iov, attr->mr_iov + attr->iov_count);
  region.access = attr->access;
  region.ops.take((*mr)->fid.ops);
  region.ops.ours.close = close_region;
  region.ops.put((*mr)->fid.ops);
  (*mr)->mem_desc = descriptor_of(region.id);
  domain.regions[region.id] = &region;
  return 0;
}

int regv(struct fid *fid, const iovec *iov, size_t count, uint64_t access, uint64_t offset,
         uint64_t key, uint64_t flags, fid_mr **mr, void *context) {
  const fi_mr_attr attr{.mr_iov = iov,
                        .iov_count = count,
                        .access = access,
                        .offset = offset,
                        .requested_key = key,
                        .context = context};
  return regattr(fid, &attr, flags, mr);
}

int reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset,
        uint64_t key, uint64_t flags, fid_mr **mr, void *context) {
  const iovec iov{const_cast<void *>(buf), len};
  return regv(fid, &iov, 1, access, offset, key, flags, mr, context);
}

// ---- domains ----

int open_queue(fid_domain *fid, fi_cq_attr *attr, fid_cq **cq, void *context) {
  World &world = World::all();
  std::lock_guard guard(world.lock);
  Domain &domain = world.domains.at(fid);
  const enum fi_cq_format format = attr->format;
  attr->format = FI_CQ_FORMAT_TAGGED;  // all members, whatever the caller wants of them
  const int rc = domain.domain.below->cq_open(fid, attr, cq, context);
  attr->format = format;
  if (rc == 0) adopt(*cq, domain, format);
  return rc;
}

int open_endpoint(fid_domain *fid, fi_info *info, fid_ep **ep, void *context) {
  World &world = World::all();
  std::lock_guard guard(world.lock);
  Domain &domain = world.domains.at(fid);
  if (const int rc = domain.domain.below->endpoint(fid, info, ep, context); rc != 0) return rc;
  adopt(*ep, domain);
  Endpoint &endpoint = of(*ep);
  if (info->tx_attr != nullptr) endpoint.tx_flags = info->tx_attr->op_flags;
  if (info->rx_attr != nullptr) endpoint.rx_flags = info->rx_attr->op_flags;
  endpoint.prefix = info->ep_attr->type == FI_EP_DGRAM ? kPrefix : 0;
  return 0;
}

int open_shared(fid_domain *fid, fi_rx_attr *attr, fid_ep **ep, void *context) {
  World &world = World::all();
  std::lock_guard guard(world.lock);
  Domain &domain = world.domains.at(fid);
  if (const int rc = domain.domain.below->srx_ctx(fid, attr, ep, context); rc != 0) return rc;
  adopt(*ep, domain);
  if (attr != nullptr) of(*ep).rx_flags = attr->op_flags;
  return 0;
}

int close_domain(struct fid *fid) {
  World &world = World::all();
  std::lock_guard guard(world.lock);
  Domain &domain = world.domains.at(fid);
  fid->ops = domain.ops.below;
  if (const int rc = fi_close(fid); rc != 0) {
    domain.ops.put(fid->ops);
    return rc;
  }
  world.domains.erase(fid);
  return 0;
}

int open_domain(fid_fabric *fid, fi_info *info, fid_domain **opened, void *context) {
  World &world = World::all();
  std::lock_guard guard(world.lock);
  Fabric &fabric = world.fabrics.at(fid);
  if (const int rc = fabric.fabric.below->domain(fid, info, opened, context); rc != 0) return rc;
  fid_domain *const d = *opened;
  Domain &domain = world.domains[&d->fid];
  domain.fid = d;
  domain.instance = fabric.instance;
  domain.ops.take(d->fid.ops);
  domain.ops.ours.close = close_domain;
  domain.ops.put(d->fid.ops);
  domain.domain.take(d->ops);
  domain.domain.ours.cq_open = open_queue;
  domain.domain.ours.endpoint = open_endpoint;
  domain.domain.ours.srx_ctx = open_shared;
  domain.domain.put(d->ops);
  domain.mr.take(d->mr);
  domain.mr.ours.reg = reg;
  domain.mr.ours.regv = regv;
  domain.mr.ours.regattr = regattr;
  domain.mr.put(d->mr);
  return 0;
}

// ---- fabrics ----

int try_wait(fid_fabric *fid, struct fid **fids, int count) {
  World &world = World::all();
  std::lock_guard guard(world.lock);
  for (int i = 0; i < count; ++i)
    if (const auto queue = world.queues.find(fids[i]);
        queue != world.queues.end() && !queue->second.told.empty())
      return -FI_EAGAIN;
  return world.fabrics.at(fid).fabric.below->trywait(fid, fids, count);
}

size_t read_counters(struct fid *, weft_counter *counters, size_t count) {
  const World &world = World::all();
  const weft_counter all[] = {{"picky_violations", world.violations},
                              {"picky_calls", world.calls},
                              {"picky_described_vectors", world.described},
                              {"picky_registrations", world.registered},
                              {"picky_data_receives", world.data_receives}};
  std::memcpy(counters, all, std::min(count, std::size(all)) * sizeof *all);
  return std::size(all);
}

int open_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context) {
  static weft_counters_ops counters{sizeof counters, read_counters};
  if (name != nullptr && std::strcmp(name, WEFT_COUNTERS_OPS) == 0) {
    *ops = &counters;
    return 0;
  }
  const fi_ops *below = nullptr;
  {
    World &world = World::all();
    std::lock_guard guard(world.lock);
    below = world.fabrics.at(fid).ops.below;
  }
  return below->ops_open(fid, name, flags, ops, context);
}

// Without the lock: it waits for who reads the counters (object_closing in weft/plugin.h).
int close_fabric(struct fid *fid) {
  World &world = World::all();
  Fabric *fabric = nullptr;
  {
    std::lock_guard guard(world.lock);
    fabric = &world.fabrics.at(fid);
    fabric->closes = true;
  }
  const int rc = fabric->ops.below->close(fid);
  std::lock_guard guard(world.lock);
  // Another fabric may be in the same place now.
  if (rc == 0 && fabric->closes) world.fabrics.erase(fid);
  if (rc != 0) fabric->closes = false;
  return rc;
}

// ---- the unit ----

using namespace sdk;

constexpr uint32_t kEndpoints = WEFT_EP_BIT(FI_EP_MSG) | WEFT_EP_BIT(FI_EP_DGRAM);

class Picky {
 public:
  static constexpr weft_param params[] = {
      bool_param("prefix", "0", "demand FI_MSG_PREFIX of connected endpoints too"),
      bool_param("shared", "1", "offer shared receive contexts, if the provider beneath does"),
      size_param("inject_size", "64K", "bytes that may be injected, if the provider beneath can", 0,
                 65536),
      int_param("regions", "0", "open regions per domain; 0: no limit", 0, 1 << 20)};

  static constexpr UnitInfo info{
      .name = "picky",
      .summary = "demands what hardware does, and checks that it gets it",
      .version = FI_VERSION(1, 0),
      .needs_ep = kEndpoints,
      .offers_ep = kEndpoints,
      .rank = 1,
      .security = WEFT_SECURITY_NO_NETWORK,
      .params = params};

  Picky(const weft_instance *instance, Inner inner)
      : instance_(instance),
        inner_(inner),
        prefix_(Params<Picky>(instance).flag("prefix")),
        shared_(Params<Picky>(instance).flag("shared")),
        inject_size_(Params<Picky>(instance).size("inject_size")) {
    World::all().inject_size = inject_size_;
    World::all().most_regions = size_t(Params<Picky>(instance).integer("regions"));
  }

  Result<InfoList> getinfo(const GetinfoQuery &query) {
    WEFT_TRY(InfoList list, inner_.getinfo(query));
    for (fi_info *entry = list.front(); entry != nullptr; entry = entry->next) {
      uint64_t mode = FI_CONTEXT2 | FI_RX_CQ_DATA | FI_ASYNC_IOV;
      if (entry->ep_attr->type == FI_EP_DGRAM || prefix_) {
        mode |= FI_MSG_PREFIX;
        entry->ep_attr->msg_prefix_size = kPrefix;
      }
      entry->mode |= mode;
      entry->tx_attr->mode |= mode;
      entry->rx_attr->mode |= mode;
      entry->domain_attr->mr_mode |= FI_MR_LOCAL;
      if (!shared_) entry->domain_attr->max_ep_srx_ctx = 0;
      entry->tx_attr->inject_size = std::min(entry->tx_attr->inject_size, inject_size_);
      // Other calls are not checked.
      for (uint64_t *caps : {&entry->caps, &entry->tx_attr->caps, &entry->rx_attr->caps})
        *caps &= ~uint64_t(FI_TAGGED | FI_ATOMIC);
    }
    return list;
  }

  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context) {
    WEFT_TRY(fid_fabric *const fabric, inner_.fabric(attr, context));
    adopt(fabric, instance_);
    return fabric;
  }

 private:
  const weft_instance *instance_;
  Inner inner_;
  const bool prefix_, shared_;
  const size_t inject_size_;
};

constexpr PluginInfo kPlugin{
    .name = "picky", .vendor = "The weft authors", .version = "1.0.0", .license = "BSD-2-Clause"};

}  // namespace

void adopt(fid_fabric *fid, const weft_instance *instance) {
  World &world = World::all();
  std::lock_guard guard(world.lock);
  Fabric &fabric = world.fabrics[&fid->fid] = {};
  fabric.fid = fid;
  fabric.instance = instance;
  fabric.ops.take(fid->fid.ops);
  fabric.ops.ours.close = close_fabric;
  fabric.ops.ours.ops_open = open_ops;
  fabric.ops.put(fid->fid.ops);
  fabric.fabric.take(fid->ops);
  fabric.fabric.ours.domain = open_domain;
  fabric.fabric.ours.trywait = try_wait;
  fabric.fabric.put(fid->ops);
}

}  // namespace weft::picky

WEFT_PLUGIN(weft::picky::kPlugin, weft::picky::Picky)
