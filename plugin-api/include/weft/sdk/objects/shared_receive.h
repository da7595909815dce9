// SPDX-License-Identifier: BSD-2-Clause
// SharedReceiveContext: receives that several unconnected endpoints of one domain share
// (fi_srx_context; fi_endpoint.3, "Shared contexts"): tagged and untagged, multi-receive, directed,
// FI_PEEK and FI_CLAIM over the messages of all of them.
//
// Example:
//    int srx_ctx(DomainContext &domain, fi_rx_attr *attr, fid_ep **ep, void *context) {
//      return open_shared_receive(domain, attr, {.caps = FI_MSG | FI_RECV, .size = 1024}, ep,
//                                 context);
//    }
//
// An RdmEndpoint that the context is bound to uses its receiver from fi_enable on, and reports to
// its own queue and counter. The context makes no progress and knows no peer.
//
// With FI_PEER in rx_attr.op_flags the context is imported: the receives are those of another
// provider, the owner (fi_peer.3), which posts and matches them. The calls that post receives here
// give -FI_ENOSYS. An owner may call start and discard at any time: they take effect with the next
// progress. It closes the context when it calls nothing of it any more.
//
// fi_export_fid lends the context to another provider, whose messages the receives then take, too.
// A multi-receive buffer of a lent context needs an endpoint here with a queue, which tells where
// it ends; so does a directed receive, for the address vector.
//
// Not for connected endpoints: recv_queue.h.
#ifndef WEFT_SDK_OBJECTS_SHARED_RECEIVE_H
#define WEFT_SDK_OBJECTS_SHARED_RECEIVE_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/cq.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/transfers/receiver.h>
#include <weft/sdk/transfers/recv_ops.h>

#include <atomic>

namespace weft::sdk {

class PeerCalls;

// What a provider has to give.
struct SharedReceiveOffer {
  uint64_t caps = 0;          // rx_attr.caps may ask for
  size_t size = 1024;         // receives that are expected, unless rx_attr.size says
  size_t max_size = 1 << 20;  // which may be at most so many
  size_t min_multi_recv = 64;
};

class SharedReceiveContext final : public Object<SharedReceiveContext, fid_ep>,
                                   public ReceiveOps<SharedReceiveContext> {
 public:
  static Result<SharedReceiveContext *> open(DomainContext &domain, const fi_rx_attr *attr,
                                             const SharedReceiveOffer &offer, void *context);
  // One of the domain's; null: the fid is something else.
  static SharedReceiveContext *find(DomainContext &domain, const struct fid *fid);

  Receiver &receiver() { return receiver_; }
  uint64_t caps() const { return caps_; }
  std::atomic<size_t> users{0};  // endpoints bound, and peers that it is lent to
  PeerCalls &peer_calls();       // made at the first call

  // ---- for ReceiveOps ----
  Lock &lock() { return domain_.engine->lock(); }
  static constexpr bool enabled() { return true; }
  bool offers(uint64_t kind, uint64_t) const { return (caps_ & kind) != 0; }
  uint64_t rx_flags() const { return rx_flags_; }
  ssize_t start(const RecvRequest &request);

  // ---- fi_ops_ep ----
  ssize_t cancel(void *context);
  int getopt(int level, int name, void *value, size_t *length);
  int setopt(int level, int name, const void *value, size_t length);
  ssize_t rx_size_left();

  // ---- fi_ops ----
  int close();  // -FI_EBUSY while endpoints are bound
  int control(int command, void *arg);

 private:
  SharedReceiveContext(DomainContext &domain, uint64_t caps, uint64_t op_flags, size_t size,
                       void *context);
  ~SharedReceiveContext();

  DomainContext &domain_;
  const uint64_t caps_;
  uint64_t rx_flags_;
  Receiver receiver_;
  std::unique_ptr<ImportedReceives> import_;  // FI_PEER
  std::unique_ptr<PeerCalls> lent_;           // null: never lent
};

// fi_srx_context of a domain: logs why not.
int open_shared_receive(DomainContext &domain, const fi_rx_attr *attr,
                        const SharedReceiveOffer &offer, fid_ep **context_ep, void *context);

}  // namespace weft::sdk

#endif
