// SPDX-License-Identifier: BSD-2-Clause
// Endpoint: an endpoint of the layer. What the application starts goes through the endpoint beneath
// as it is; messages of its groups have tags of their own (group/packet.h).
//
// Example:
//    // Whether a tag is one that applications may use.
//    inline bool is_free(uint64_t tag) { return !is_ours(tag); }
//
// Not for groups: collectives.h.
#ifndef WEFT_PLUGINS_COLL_ENDPOINT_H
#define WEFT_PLUGINS_COLL_ENDPOINT_H

#include <weft/sdk/addresses/address.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/layers/inner_wait.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/objects/alias.h>
#include <weft/sdk/transfers/collective_ops.h>
#include <weft/sdk/transfers/transfer.h>

#include <memory>
#include <vector>

#include "plugins/coll/collectives.h"
#include "plugins/coll/domain.h"
#include "plugins/coll/names.h"
#include "plugins/coll/posted.h"
#include "plugins/coll/receives.h"

namespace weft::coll {

class SharedReceives;

class Endpoint final : public sdk::Object<Endpoint, fid_ep>,
                       public sdk::EndpointCore,
                       public sdk::TransferOps<Endpoint>,
                       public sdk::CollectiveOps<Endpoint, sdk::AvSet::kCollectives>,
                       private sdk::Poller {
 public:
  static constexpr uint64_t kSendFlags =
      FI_COMPLETION | FI_INJECT | FI_MORE | FI_REMOTE_CQ_DATA | FI_FENCE | sdk::kLevelFlags;

  static Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);
  Endpoint(Domain &domain, const fi_info &info, void *context);
  ~Endpoint();

  // ---- for groups ----
  Collectives &collectives() { return collectives_; }
  fid_ep *beneath() const { return inner_; }
  size_t inject_beneath() const { return inject_beneath_; }
  // FI_REMOTE_CQ_DATA, if the provider beneath has it.
  uint64_t data_beneath() const {
    return domain_.inner_info().domain_attr->cq_data_size != 0 ? FI_REMOTE_CQ_DATA : 0;
  }
  const sdk::Hmem *hmem() const { return domain_.hmem(); }
  // Where receives are posted beneath; the context that they are shared by, or null.
  fid_ep *receives_beneath() const;
  SharedReceives *shared_receives() const { return shared_; }
  void poll_beneath();
  void poll_all_beneath();  // of all that share
  Result<sdk::Address> own_address() const;
  Names &names() { return *names_; }

  // ---- for TransferOps, with the lock of the domain held ----
  ssize_t start(const sdk::SendRequest &request);
  ssize_t start(const sdk::RecvRequest &request);
  ssize_t start(const sdk::RmaRequest &request);
  ssize_t start(const sdk::AtomicRequest &request);

  // ---- fi_ops ----
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);
  int close();

  // ---- fi_ops_cm: the name is that of the endpoint beneath ----
  int setname(void *addr, size_t length) { return fi_setname(&inner_->fid, addr, length); }
  int getname(void *addr, size_t *length) { return fi_getname(&inner_->fid, addr, length); }
  // ---- fi_ops_ep ----
  ssize_t cancel(void *context);
  // Of multi-receives and of devices: those of the endpoint beneath.
  int getopt(int level, int name, void *value, size_t *length) {
    if (name == FI_OPT_MIN_MULTI_RECV || name == FI_OPT_FI_HMEM_P2P)
      return fi_getopt(&inner_->fid, level, name, value, length);
    return get_limit(level, name, value, length);
  }
  int setopt(int level, int name, const void *value, size_t length);
  ssize_t tx_size_left();
  ssize_t rx_size_left();
  // ---- fi_ops_atomic ----
  int atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
    return fi_atomicvalid(inner_, datatype, op, count);
  }
  int fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
    return fi_fetch_atomicvalid(inner_, datatype, op, count);
  }
  int compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
    return fi_compare_atomicvalid(inner_, datatype, op, count);
  }

  // ---- for CollectiveOps ----
  ssize_t start(const sdk::CollectiveRequest &request);
  Result<void> may_join() const;
  Result<fid_mc *> join_collective(const fi_collective_addr &address, void *context);
  sdk::Engine &engine() { return domain_.engine(); }

 private:
  Result<void> open_inner(const fi_info &info);
  Result<void> enable();
  int bind_shared(struct fid *fid, uint64_t flags);
  void end_send(Message &message) {
    message.busy = false;
    sends_.give(&message);
  }
  Receives &receives();
  void on_wire(Wire &wire, int err, size_t length, fi_addr_t source);
  // Groups want to know the sources of messages, also where the application does not.
  fi_addr_t reported(fi_addr_t source) const {
    return caps() & FI_SOURCE ? names_->reported(source) : FI_ADDR_NOTAVAIL;
  }
  void report_receive(Message &message, const fi_cq_tagged_entry &entry, fi_addr_t source);
  bool cancel_beneath(const void *context);
  bool may_read() {
    return (!receives().has_multi() && !(caps() & FI_REMOTE_WRITE)) || !rx_.is_full();
  }
  // Who gets to know of the end of a receive.
  struct Told {
    void *context;
    sdk::Cntr *cntr;
    bool report;
  };
  Told told_of(Message &message);

  // accesses.cc
  template <class Request, class Call>
  ssize_t start_access(const Request &request, uint64_t length, Call call);
  void end_access(Access &access, int err);
  Result<void> count_remote();
  void forget_remote();

  void read_beneath(bool to_the_end);
  // sdk::Poller: the queue beneath
  void on_poll() override;
  int wait_fds(std::vector<int> &fds) override { return wait_.add_to(fds); }
  bool may_wait() override;
  bool on_done(const fi_cq_tagged_entry &entry, fi_addr_t source);
  bool on_error();
  void fail_message(Message &message, const fi_cq_err_entry &entry);

  Domain &domain_;
  sdk::TxContext tx_;
  sdk::RxContext rx_;
  const size_t send_vectors_, remote_vectors_, inject_beneath_;
  sdk::Pool<Message> sends_;
  Receives own_receives_;
  SharedReceives *shared_ = nullptr;
  sdk::Pool<Access> accesses_;
  fid_ep *inner_ = nullptr;
  sdk::InnerQueue queue_;
  std::unique_ptr<Names> own_names_;
  Names *names_ = nullptr;  // its own, or those of the shared receives
  bool names_bound_ = false;
  fid_cntr *remote_write_ = nullptr, *remote_read_ = nullptr;  // of peers' accesses
  sdk::InnerWait wait_;
  Collectives collectives_;
};

}  // namespace weft::coll

#endif
