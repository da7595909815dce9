// SPDX-License-Identifier: BSD-2-Clause
// Receives: the receives that an application has posted at an endpoint, or at a shared receive
// context (shared_receives.h), and where they are beneath.
//
// Example:
//    // fi_recv.
//    inline ssize_t receive(Receives &receives, fid_ep *beneath, Names &names, uint64_t caps,
//                           const sdk::RecvRequest &request) {
//      return receives.post(beneath, names, caps, request);
//    }
//
// With the engine's lock held. Not for their completions, which are the endpoint's that has got the
// message.
#ifndef WEFT_PLUGINS_COLL_RECEIVES_H
#define WEFT_PLUGINS_COLL_RECEIVES_H

#include <weft/sdk/memory/pool.h>
#include <weft/sdk/transfers/transfer_requests.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "plugins/coll/posted.h"

namespace weft::coll {

class Names;

class Receives {
 public:
  // Of receives with up to `vectors` vectors each, as many as there is memory for. `size` are
  // expected (rx_attr.size).
  Receives(size_t size, size_t vectors) : size_(size), vectors_(vectors) {}

  // `names` has the sources of directed receives. 0, or -FI_E...
  ssize_t post(fid_ep *beneath, Names &names, uint64_t caps, const sdk::RecvRequest &request);
  ssize_t cancel(fid_ep *beneath, const void *context);
  void end(Message &message);
  // More may be completed than there are receives (FI_MULTI_RECV).
  bool has_multi() const { return multi_ != 0; }
  size_t size() const { return size_; }
  size_t left() const { return size_ - std::min(size_, pool_.in_use()); }

 private:
  Message *place_of(const sdk::RecvRequest &request);

  const size_t size_, vectors_;
  sdk::Pool<Message> pool_{SIZE_MAX};
  size_t multi_ = 0;
};

}  // namespace weft::coll

#endif
