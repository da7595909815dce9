// SPDX-License-Identifier: BSD-2-Clause
// fault: a hook that makes operations fail, by rules and reproducibly. It tests the layers and the
// program above it against a bad network, a bad peer and a bad provider.
//
//   FI_HOOK=fault FI_FAULT_RULES='send:p=0.01:drop; recv:nth=3:error=EIO; seed=42' ./program
//   stacks: {lossy: [{layer: rxm}, {hook: fault, params: {rules: "..."}}, {provider: tcp}]}
//
// What the actions mean:
//   drop        the message is not sent; the caller gets its completion as if it was
//   dup         it is sent twice; the caller sees one completion
//   reorder     it is sent after the next message of the endpoint, or after 16 reads of its
//               completion queues if there is none
//   delay=N     it is sent after N more messages of the endpoint and reads of its completion queues
//   truncate=N  only its first N bytes are sent
//   corrupt     one bit of it is flipped
//   error=E     the operation is not started; its completion is an error
//   fail=E      the call returns -E; eagain: -FI_EAGAIN
//   full        the call returns -FI_EAGAIN, and so do all posts on the endpoint until the program
//               reads its completion queue, as with a full transmit queue
//   kill        the endpoint's connection is shut down, then the call goes on
//   overrun     the completion queue returns -FI_EOVERRUN from now on
// and of cq_read: eagain, the queue is empty; fail=E, the read fails.
//
// The hook copies only messages that a rule picked; all copies together take `memory` bytes at
// most. It sends a copy with a context of its own and puts the caller's context back when the
// completion is read. An action that the hook cannot do correctly is skipped and counted as
// not_applicable: a copy where the provider wants descriptors of registered memory, or a made-up
// completion for a queue that was open before the hook came, because its format is not known. Held
// messages go out when the program waits or closes the endpoint, so that it never waits for the
// answer to a message that is held.
//
// Counters, one per rule: fi_open_ops(&domain->fid, "weft_counters_1:fault", 0, &ops, NULL).
#include <weft/sdk/unit/stats.h>

#include "plugins/hook-fault/injector.h"
#include "plugins/hook-fault/message_ops.h"
#include "plugins/hook-fault/post_ops.h"

namespace weft::fault {
namespace {

using namespace weft::sdk;

// Bytes of an entry; 0 for FI_CQ_FORMAT_UNSPEC, where the provider chooses the format.
size_t entry_size(int format) {
  switch (format) {
    case FI_CQ_FORMAT_CONTEXT:
      return sizeof(fi_cq_entry);
    case FI_CQ_FORMAT_MSG:
      return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
      return sizeof(fi_cq_data_entry);
    case FI_CQ_FORMAT_TAGGED:
      return sizeof(fi_cq_tagged_entry);
    default:
      return 0;
  }
}

class Fault : public MessageOps<Fault>, public PostOps<Fault> {
 public:
  using ObjectState = State;
  static constexpr weft_param params[] = {
      string_param(
          "rules", "",
          "what goes wrong: \"send:size>1000:p=0.01:drop; recv:nth=3:error=EIO; seed=42\""),
      size_param("memory", "16M", "the most that copies of messages may take, in bytes", 0,
                 int64_t{1} << 40),
  };
  static constexpr UnitInfo info{.name = "fault",
                                 .summary = "makes operations fail, by rules, for tests",
                                 .version = FI_VERSION(1, 0),
                                 .maturity = WEFT_MATURITY_BETA,
                                 .security = WEFT_SECURITY_NO_NETWORK,
                                 .params = params};

  static Result<std::unique_ptr<Fault>> create(const weft_instance *instance) {
    const Params<Fault> params(instance);
    Result<Rules> rules = parse_rules(params.string("rules"));
    if (!rules)
      return fail(rules.error().code, "%s (%s)", rules.error().text.c_str(),
                  params.origin("rules"));
    return std::unique_ptr<Fault>(new Fault(instance, *std::move(rules), params.size("memory")));
  }

  Result<std::unique_ptr<State>> attach(struct fid *fid) {
    switch (fid->fclass) {
      case FI_CLASS_EP:
      case FI_CLASS_TX_CTX:
      case FI_CLASS_RX_CTX:
      case FI_CLASS_SRX_CTX:
        return injector_.enter(reinterpret_cast<fid_ep *>(fid));
      case FI_CLASS_CQ:
        return injector_.enter(reinterpret_cast<fid_cq *>(fid));
      case FI_CLASS_FABRIC:
      case FI_CLASS_DOMAIN:
      case FI_CLASS_CNTR:
        return std::make_unique<State>();
      default:
        return nullptr;
    }
  }

  Injector &injector() { return injector_; }

  // ---- completions ----

  ssize_t cq_read(Link link, fid_cq *cq, void *buf, size_t count) {
    return injector_.read_queue(link, buf, count, nullptr,
                                [&] { return link.next.cq->read(cq, buf, count); });
  }
  ssize_t cq_readfrom(Link link, fid_cq *cq, void *buf, size_t count, fi_addr_t *src) {
    return injector_.read_queue(link, buf, count, src,
                                [&] { return link.next.cq->readfrom(cq, buf, count, src); });
  }
  ssize_t cq_sread(Link link, fid_cq *cq, void *buf, size_t count, const void *cond, int timeout) {
    return injector_.wait_queue(
        link, buf, count, nullptr, timeout, [&] { return link.next.cq->read(cq, buf, count); },
        [&](int left) { return link.next.cq->sread(cq, buf, count, cond, left); });
  }
  ssize_t cq_sreadfrom(Link link, fid_cq *cq, void *buf, size_t count, fi_addr_t *src,
                       const void *cond, int timeout) {
    return injector_.wait_queue(
        link, buf, count, src, timeout, [&] { return link.next.cq->readfrom(cq, buf, count, src); },
        [&](int left) { return link.next.cq->sreadfrom(cq, buf, count, src, cond, left); });
  }
  ssize_t cq_readerr(Link link, fid_cq *cq, fi_cq_err_entry *entry, uint64_t flags) {
    return injector_.read_error(link, cq, entry, flags);
  }
  uint64_t cntr_read(Link link, fid_cntr *cntr) {
    injector_.flush_all();
    return link.next.cntr->read(cntr);
  }
  int cntr_wait(Link link, fid_cntr *cntr, uint64_t threshold, int timeout) {
    injector_.flush_all();
    return link.next.cntr->wait(cntr, threshold, timeout);
  }
  // The program is about to sleep: held messages are sent first, and it must not sleep while there
  // is a made-up completion.
  int trywait(Link link, fid_fabric *fabric, struct fid **fids, int count) {
    injector_.flush_all();
    for (int i = 0; fids != nullptr && i < count; ++i) {
      if (fids[i] == nullptr || fids[i]->fclass != FI_CLASS_CQ) continue;
      const auto *queue = state_at<QueueState>(link, fids[i]);
      if (queue != nullptr && injector_.has_made_up(*queue)) return -FI_EAGAIN;
    }
    return link.next.fabric->trywait(fabric, fids, count);
  }

  // ---- what the hook must know of the objects ----

  int endpoint(Link link, fid_domain *domain, fi_info *info, fid_ep **ep, void *context) {
    const int rc = link.next.domain->endpoint(domain, info, ep, context);
    if (rc == 0) opened(link, *ep, info);
    return rc;
  }
  int endpoint2(Link link, fid_domain *domain, fi_info *info, fid_ep **ep, uint64_t flags,
                void *context) {
    const int rc = link.next.domain->endpoint2(domain, info, ep, flags, context);
    if (rc == 0) opened(link, *ep, info);
    return rc;
  }
  int cq_open(Link link, fid_domain *domain, fi_cq_attr *attr, fid_cq **cq, void *context) {
    const int rc = link.next.domain->cq_open(domain, attr, cq, context);
    if (rc != 0 || attr == nullptr) return rc;
    const size_t stride = entry_size(raw(attr->format));
    if (auto *queue = state_at<QueueState>(link, &(*cq)->fid); queue != nullptr && stride != 0)
      queue->stride = stride;
    return rc;
  }
  int bind(Link link, struct fid *fid, struct fid *other, uint64_t flags) {
    const int rc = link.next.fid->bind(fid, other, flags);
    auto *endpoint = dynamic_cast<EndpointState *>(&state_of(link));
    if (rc == 0 && endpoint != nullptr) injector_.note_bound(link, *endpoint, other, flags);
    return rc;
  }
  int control(Link link, struct fid *fid, int command, void *arg) {
    const int rc = link.next.fid->control(fid, command, arg);
    if (rc != 0 || command != FI_ALIAS) return rc;
    auto *original = dynamic_cast<EndpointState *>(&state_of(link));
    const auto &made = *static_cast<struct fi_alias *>(arg);
    auto *alias = state_at<EndpointState>(link, *made.fid);
    if (original != nullptr && alias != nullptr)
      injector_.note_alias(*original, *alias, made.flags);
    return rc;
  }
  int close(Link link, struct fid *fid) {
    auto *endpoint = dynamic_cast<EndpointState *>(&state_of(link));
    if (endpoint == nullptr) return link.next.fid->close(fid);
    injector_.begin_close(*endpoint);
    const int rc = link.next.fid->close(fid);
    if (rc != 0) injector_.close_failed(*endpoint);
    return rc;
  }
  int ops_open(Link link, struct fid *fid, const char *name, uint64_t flags, void **ops,
               void *context) {
    if (is_counters_of<Fault>(name)) return open_hook_counters<Fault>(flags, ops);
    return link.next.fid->ops_open(fid, name, flags, ops, context);
  }
  const CounterList &stats() const { return injector_.stats(); }

 private:
  Fault(const weft_instance *instance, Rules rules, size_t memory)
      : injector_(instance, std::move(rules), memory) {}

  static void opened(Link link, fid_ep *ep, const fi_info *info) {
    auto *state = state_at<EndpointState>(link, &ep->fid);
    if (state != nullptr && info != nullptr && info->tx_attr != nullptr)
      state->default_completes = (info->tx_attr->op_flags & FI_COMPLETION) != 0;
  }

  Injector injector_;
};

constexpr PluginInfo kPlugin{
    .name = "hook-fault", .vendor = "weft", .version = WEFT_VERSION, .license = "BSD-2-Clause"};

}  // namespace
}  // namespace weft::fault

WEFT_PLUGIN(weft::fault::kPlugin, weft::fault::Fault)
