// SPDX-License-Identifier: BSD-2-Clause
// profile: a hook that counts. For each endpoint, operation and class of peers it counts calls,
// bytes, refusals and errors, with histograms of sizes, of the durations of calls and of the times
// to completion. For each completion queue it counts reads, empty reads, completions and errors.
// Other processes read the counts from a segment (formats/profile.h; `weft stats`, `weft top`,
// `weft exporter`), and the program itself can ask for them with fi_profile(3).
//
//   FI_HOOK=profile ./program &     weft top
#include <weft/sdk/unit.h>
#include <weft/sdk/unit/log.h>

#include <cstring>
#include <memory>
#include <mutex>

#include "plugins/hook-profile/operation_ops.h"
#include "plugins/hook-profile/profile_fid.h"
#include "plugins/hook-profile/state.h"

namespace weft::profile {
namespace {

using namespace weft::sdk;

// The process has one segment, and all instances of the hook write to it.
class Shared {
 public:
  std::shared_ptr<Segment> segment(const weft_instance *instance, size_t size) {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Segment> segment = segment_.lock();
    // A child made by fork counts in a segment of its own.
    if (segment == nullptr || segment->pid() != getpid()) {
      std::string why;
      segment = Segment::open(size, why);
      segment_ = segment;
      if (!why.empty())
        WEFT_WARN(instance, FI_LOG_CORE, "what is counted is for fi_profile only: %s", why.c_str());
    }
    return segment;
  }

 private:
  std::mutex mutex_;
  std::weak_ptr<Segment> segment_;
};

Labels labels_of(const struct fid *fid) {
  const weft_fid_header *header = header_of(fid);
  Labels labels{};
  labels.object = header->id_core;
  std::snprintf(labels.element, sizeof labels.element, "%s", header->instance->unit->name);
  std::snprintf(labels.stack, sizeof labels.stack, "%s", header->instance->stack);
  return labels;
}

class Profile : public OperationOps<Profile> {
 public:
  using ObjectState = State;
  static constexpr weft_param params[] = {
      int_param("sample", "128", "one call in so many is measured; 1: each", 1, 1 << 20),
      size_param("segment_size", "64M",
                 "the most that the counters of a process may take, in bytes", 256 << 10,
                 int64_t{1} << 32),
  };
  static constexpr UnitInfo info{.name = "profile",
                                 .summary = "counts operations, with histograms, for weft top",
                                 .version = FI_VERSION(1, 0),
                                 .maturity = WEFT_MATURITY_BETA,
                                 .security = WEFT_SECURITY_NO_NETWORK,
                                 .params = params};

  explicit Profile(const weft_instance *instance)
      : instance_(instance),
        shared_(static_cast<Shared *>(instance->plugin_state)),
        sample_(static_cast<uint32_t>(Params<Profile>(instance).integer("sample"))),
        segment_size_(Params<Profile>(instance).size("segment_size")),
        registry_(instance->hook_slot) {}

  Result<std::unique_ptr<State>> attach(struct fid *fid) {
    switch (fid->fclass) {
      case FI_CLASS_DOMAIN:
        return std::make_unique<DomainState>(registry_, fid);
      case FI_CLASS_AV:
        return std::make_unique<AvState>();
      case FI_CLASS_EP:
      case FI_CLASS_SEP:
      case FI_CLASS_TX_CTX:
      case FI_CLASS_RX_CTX:
      case FI_CLASS_SRX_CTX:
      case FI_CLASS_CQ:
        break;
      default:
        return nullptr;
    }
    std::shared_ptr<Segment> segment = shared_->segment(instance_, segment_size_);
    if (segment == nullptr) return fail(FI_ENOMEM, "no memory for counters");
    if (fid->fclass == FI_CLASS_CQ) {
      Labels labels = labels_of(fid);
      std::snprintf(labels.operation, sizeof labels.operation, "cq_read");
      return std::make_unique<QueueState>(std::make_shared<Queue>(std::move(segment), labels));
    }
    return std::make_unique<EndpointState>(registry_, reinterpret_cast<fid_ep *>(fid),
                                           std::move(segment), labels_of(fid), sample_);
  }

  // ---- completion queues ----

  ssize_t cq_read(Link link, fid_cq *cq, void *buf, size_t count) {
    const ssize_t rc = link.next.cq->read(cq, buf, count);
    queue_of(link).count(rc, buf);
    return rc;
  }
  ssize_t cq_readfrom(Link link, fid_cq *cq, void *buf, size_t count, fi_addr_t *src) {
    const ssize_t rc = link.next.cq->readfrom(cq, buf, count, src);
    queue_of(link).count(rc, buf);
    return rc;
  }
  ssize_t cq_sread(Link link, fid_cq *cq, void *buf, size_t count, const void *cond, int timeout) {
    const ssize_t rc = link.next.cq->sread(cq, buf, count, cond, timeout);
    queue_of(link).count(rc, buf);
    return rc;
  }
  ssize_t cq_sreadfrom(Link link, fid_cq *cq, void *buf, size_t count, fi_addr_t *src,
                       const void *cond, int timeout) {
    const ssize_t rc = link.next.cq->sreadfrom(cq, buf, count, src, cond, timeout);
    queue_of(link).count(rc, buf);
    return rc;
  }
  ssize_t cq_readerr(Link link, fid_cq *cq, fi_cq_err_entry *entry, uint64_t flags) {
    const ssize_t rc = link.next.cq->readerr(cq, entry, flags);
    if (rc > 0) queue_of(link).count_error(rc, entry->op_context);
    return rc;
  }

  // ---- what the hook must know of the objects ----

  int cq_open(Link link, fid_domain *domain, fi_cq_attr *attr, fid_cq **cq, void *context) {
    const int rc = link.next.domain->cq_open(domain, attr, cq, context);
    if (rc == 0 && attr != nullptr) {
      if (auto *state = state_at<QueueState>(link, &(*cq)->fid))
        state->queue->set_format(attr->format);
    }
    return rc;
  }
  int bind(Link link, struct fid *fid, struct fid *other, uint64_t flags) {
    const int rc = link.next.fid->bind(fid, other, flags);
    if (rc == 0) {
      if (auto *endpoint = dynamic_cast<EndpointState *>(&state_of(link)))
        endpoint->bound(link, other, flags);
    }
    return rc;
  }
  int control(Link link, struct fid *fid, int command, void *arg) {
    const int rc = link.next.fid->control(fid, command, arg);
    if (rc != 0 || (command != FI_ENABLE && command != FI_ALIAS)) return rc;
    auto *endpoint = dynamic_cast<EndpointState *>(&state_of(link));
    if (endpoint == nullptr) return rc;
    if (command == FI_ENABLE) {
      endpoint->learn_name();
    } else if (auto *alias =
                   state_at<EndpointState>(link, *static_cast<struct fi_alias *>(arg)->fid)) {
      alias->stands_for(*endpoint);
    }
    return rc;
  }
  int av_remove(Link link, fid_av *av, fi_addr_t *addresses, size_t count, uint64_t flags) {
    const int rc = link.next.av->remove(av, addresses, count, flags);
    auto &state = static_cast<AvState &>(state_of(link));
    // The vector may give the number to another peer, of another class.
    for (size_t i = 0; i < count && addresses != nullptr; ++i) state.peers->forget(addresses[i]);
    return rc;
  }
  int ops_open(Link link, struct fid *fid, const char *name, uint64_t flags, void **ops,
               void *context) {
    State *state = &state_of(link);
    const bool has_profile = dynamic_cast<EndpointState *>(state) != nullptr ||
                             dynamic_cast<DomainState *>(state) != nullptr;
    if (!has_profile || name == nullptr || std::strcmp(name, "fi_profile_ops") != 0)
      return link.next.fid->ops_open(fid, name, flags, ops, context);
    if (flags != 0) return -FI_EBADFLAGS;
    if (ops == nullptr) return -FI_EINVAL;
    *ops = open_profile(instance_, registry_, fid, context);
    return 0;
  }

 private:
  const weft_instance *instance_;
  Shared *const shared_;
  const uint32_t sample_;
  const size_t segment_size_;
  Registry registry_;
};

constexpr PluginInfo kPlugin{
    .name = "hook-profile",
    .vendor = "weft",
    .version = WEFT_VERSION,
    .license = "BSD-2-Clause",
    .init = [](const weft_offer &) -> Result<void *> { return new Shared; },
    .fini = [](void *state) { delete static_cast<Shared *>(state); }};

}  // namespace
}  // namespace weft::profile

WEFT_PLUGIN(weft::profile::kPlugin, weft::profile::Profile)
