// SPDX-License-Identifier: BSD-2-Clause
// An endpoint of shm (FI_EP_RDM): a socket whose abstract name is the endpoint's, and a link to
// every peer in use.
//
// Example:
//    inline Result<fid_ep *> open(Domain &domain, const fi_info &info) {
//      WEFT_TRY(Endpoint *const endpoint, Endpoint::open(domain, info, nullptr));
//      return endpoint->c();  // the application binds, enables and closes it
//    }
//
// Each progress looks at the links' rings, and now and then at the sockets. A thread that sleeps is
// woken by a packet of its peer's socket. Flow control: a message without a posted receive is saved
// within limits (max_saved_per_peer, max_saved); beyond them the link is not read until a receive
// is posted, and its sender waits for room; or, while something else is awaited, the sender is told
// to send no messages (Link::refuse_messages).
#ifndef WEFT_PLUGINS_SHM_ENDPOINT_H
#define WEFT_PLUGINS_SHM_ENDPOINT_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/memory/index_table.h>
#include <weft/sdk/objects/alias.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/rdm_endpoint.h>
#include <weft/sdk/progress/exit_duty.h>
#include <weft/sdk/transfers/order.h>
#include <weft/sdk/transfers/transfer.h>

#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "plugins/shm/counters.h"
#include "plugins/shm/domain.h"
#include "plugins/shm/link.h"
#include "plugins/shm/names.h"
#include "plugins/shm/saved.h"

namespace weft::shm {

class Endpoint final : public sdk::Object<Endpoint, fid_ep>,
                       public sdk::RdmEndpoint,
                       public sdk::TransferOps<Endpoint>,
                       public sdk::AvUser,
                       private sdk::ReceiverSink,
                       private sdk::ExitDuty,
                       private sdk::Poller {
 public:
  static Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);

  // ---- for TransferOps ----
  ssize_t start(const sdk::RecvRequest &request);
  ssize_t start(const sdk::SendRequest &request);
  ssize_t start(const sdk::RmaRequest &request);
  ssize_t start(const sdk::AtomicRequest &request);

  // ---- fi_ops_atomic ----
  int atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);
  int fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);
  int compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);

  // ---- fi_ops_cm, fi_ops_ep ----
  int setname(void *addr, size_t len);
  int getname(void *addr, size_t *len);
  ssize_t cancel(void *context);
  ssize_t tx_size_left();

  // ---- fi_ops ----
  int close();
  int bind(struct fid *fid, uint64_t flags) { return bind_object(fid, flags); }
  int control(int command, void *arg);
  int ops_open(const char *name, uint64_t flags, void **ops, void *context);  // WEFT_LOCAL_OPS
  void close_copies();  // weft/sdk/objects/ops.h

  // ---- AvUser ----
  void on_av_removed(uint32_t index) override;
  void on_av_inserted(uint32_t index, const sdk::Address &address) override;

  // ---- for links ----
  const Settings &settings() const { return shm_domain_.settings(); }
  Counters &counters() { return shm_domain_.counters(); }
  Table<Operation> &operations() { return operations_; }
  Table<Fetch> &fetches() { return fetches_; }
  // The operation has ended: 0 or FI_E...
  void finish(Operation &op, int error);
  // Whether so much more for messages of the link is within the limits, or `extra` above them.
  bool has_memory(Link &link, uint64_t cost, uint64_t extra = 0) const;
  // Memory for a message without a receive; null: over the limits, or no memory.
  Saved *save(Link &link, uint64_t bytes);
  // What was saved of the link, and is still at its peer, never comes.
  void lose_saved(Link &link, int error);
  // Memory of the part [offset, offset + n) of the regions. The number of vectors, or -FI_E...
  ssize_t resolve(const Region *regions, size_t count, uint64_t access, uint64_t offset, uint64_t n,
                  iovec *iov, size_t room);
  // What a peer has done to the regions: for counters.
  void count_access(const Region *regions, size_t count, uint64_t access);
  void let_go(Link &link);  // nothing goes out on it any more
  void bury(Link &link);    // it is over

 private:
  struct Stranger;

  Endpoint(Domain &domain, const fi_info &info, WantedName name, void *context);
  ~Endpoint();

  // endpoint_life.cc
  Result<void> begin();
  int begin_early(const char *call);
  Result<void> listen();
  void stop_listening();
  void linger();
  bool has_unsent() const;

  // peers.cc
  Peer *peer_at(uint32_t index);
  Peer *find_or_add(const sdk::Address &name);
  void set_source(Peer &peer, uint32_t source) { peer.source = source; }
  uint32_t next_unnamed();
  Result<void> connect(Peer &peer);
  int reach(fi_addr_t address);
  Result<void> check_process(const Process &process) const;
  Geometry geometry() const;
  Link *add_link(Peer &peer, Link::Side side, sdk::UniqueFd socket, const Process &process,
                 PairMemory memory, const Geometry &geometry);
  void watch(int fd, Watched *what);
  void look_at_sockets();
  void accept_strangers();
  void hear(Stranger &stranger);
  Result<void> admit(sdk::UniqueFd socket, const Process &process, const Hello &hello, int memory);
  Result<void> check_name(const sdk::Address &name, const Process &process) const;
  void drop(Stranger &stranger);
  void clean_up();

  // endpoint.cc
  template <class Request, class Fill>
  ssize_t launch(const Request &request, Fill fill);
  template <class Request>
  ssize_t fail_now(const Request &request, int error);
  Operation *take_operation(uint64_t flags);
  void give(Operation &op);
  void release(Saved &saved);
  bool poll_links();
  void note_input(bool found);

  // ReceiverSink
  void deliver(sdk::Unexpected &message, sdk::Receive &receive) override;
  void discard(sdk::Unexpected &message) override;
  void on_shared_receive() override { resume(); }
  bool waits_for_receives(bool imported) const override { return !imported; }  // on_poll() does it
  std::string source_address(const sdk::Message &message) override;

  void resume();  // links that had no room

  // Poller
  void on_poll() override;
  int wait_fds(std::vector<int> &fds) override;
  bool may_wait() override;
  // ExitDuty
  bool owes(bool exits) override;

  Domain &shm_domain_;
  WantedName wanted_;
  sdk::Address name_;  // while it listens
  sdk::UniqueFd listener_, epoll_;
  const uint64_t probe_;  // peers try to read it
  sdk::OrderKeeper keeper_;
  Table<Operation> operations_;
  Table<Fetch> fetches_{SIZE_MAX};
  std::unordered_map<sdk::Address, std::unique_ptr<Peer>, sdk::AddressHash> peers_;
  sdk::IndexTable<Peer> table_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<Link *> buried_;  // of these, to be destroyed
  std::atomic<uint64_t> losses_{0};
  std::vector<std::unique_ptr<Stranger>> strangers_, gone_;
  std::vector<Link *> hot_;  // those that had input, where there are many
  size_t next_ = 0, next_hot_ = 0;
  uint32_t next_unnamed_ = 0;
  uint64_t saved_bytes_ = 0;
  unsigned fruitless_ = 0, fruitful_ = 0;
  uint64_t looked_at_ns_ = 0;  // when it looked at the sockets
  bool stalled_ = false;       // a link has something for which there was no room
  bool has_slept_ = false;     // perhaps: may_wait() was asked
};

}  // namespace weft::shm

#endif
