// SPDX-License-Identifier: BSD-2-Clause
// SharedTransmit: a transmit context that endpoints of a domain share (fi_stx_context,
// fi_endpoint.3, SHARED CONTEXTS). Operations are posted to the endpoints, and report to their
// queues and counters. What they share are the attributes: together they have as many operations in
// flight as the context has places.
//
// Example:
//    #include <weft/sdk/objects/ops.h>
//    class Domain final : public Object<Domain, fid_domain>, public SoftwareDomain {
//     public:
//      int stx_ctx(struct fi_tx_attr *attr, struct fid_stx **stx, void *context) {
//        return open_shared_transmit(shared(), attr, {.caps = FI_MSG | FI_SEND, .size = 1024}, stx,
//                                    context);
//      }
//    };
//
// Endpoints take it by EndpointCore::bind_object(). An endpoint that was bound to one counts its
// operations in flight when it is asked (EndpointCore::count_in_flight). One that was not opened
// for it (FI_SHARED_CONTEXT) may take it after fi_enable, and may outlive it. Not for contexts of
// scalable endpoints: scalable.h.
#ifndef WEFT_SDK_OBJECTS_SHARED_TRANSMIT_H
#define WEFT_SDK_OBJECTS_SHARED_TRANSMIT_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/cq.h>
#include <weft/sdk/objects/fid.h>

#include <atomic>
#include <vector>

namespace weft::sdk {

class EndpointCore;

// What a provider has to give.
struct SharedTransmitOffer {
  uint64_t caps = 0;          // tx_attr.caps may ask for
  size_t size = 1024;         // operations, unless tx_attr.size says
  size_t max_size = 1 << 20;  // which may be at most so many
  size_t inject_size = 0;     // tx_attr.inject_size may be at most so much
};

class SharedTransmit final : public Object<SharedTransmit, fid_stx> {
 public:
  static Result<SharedTransmit *> open(DomainContext &domain, const fi_tx_attr *attr,
                                       const SharedTransmitOffer &offer, void *context);

  const DomainContext &domain() const { return domain_; }
  // What keeps an endpoint with these attributes from sharing it; null: nothing.
  const char *refusal(uint64_t caps, size_t tx_size, size_t inject_size) const;
  // With the domain's lock held.
  void join(EndpointCore &endpoint) { endpoints_.push_back(&endpoint); }
  void leave(EndpointCore &endpoint);
  bool is_full() const;

  // ---- fi_ops_ep ----
  int getopt(int level, int name, void *value, size_t *length);
  ssize_t tx_size_left();

  // ---- fi_ops ----
  // -FI_EBUSY while endpoints are bound that were opened for it; others go on without it.
  int close();

 private:
  SharedTransmit(DomainContext &domain, uint64_t caps, size_t size, size_t inject_size,
                 void *context);
  ~SharedTransmit() = default;
  size_t in_flight() const;

  DomainContext &domain_;
  const uint64_t caps_;
  const size_t size_, inject_size_;
  std::vector<EndpointCore *> endpoints_;
};

// fi_stx_context of a domain: logs why not.
int open_shared_transmit(DomainContext &domain, const fi_tx_attr *attr,
                         const SharedTransmitOffer &offer, fid_stx **stx, void *context);

}  // namespace weft::sdk

#endif
