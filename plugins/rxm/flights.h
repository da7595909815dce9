// SPDX-License-Identifier: BSD-2-Clause
// Flights: calls of an inner provider that demands more than the vectors of a message
// (weft/sdk/layers/inner_modes.h). Each call gets, until it has completed, a context that is the
// provider's, arrays of vectors that stay, and registered memory.
//
// Example:
//    // Lower does this if InnerModes::of_calls() holds; other providers get the vectors as they are.
//    inline ssize_t send(Flights &flights, Flights::Calls &of_link, fid_ep *ep,
//                        const iovec &packet, Token *token) {
//      const fi_msg msg{.msg_iov = &packet, .iov_count = 1};
//      return flights.send(of_link, ep, msg, nullptr, FI_COMPLETION, token);
//    }
//    inline Token *completed(Flights &flights, void *op_context) {
//      return flights.land(op_context);  // of a completion or of an error entry
//    }
//
// Where local memory must be registered, packets are gathered in staging memory that was registered
// when it was made; a long vector with a descriptor is not copied. Remote access needs the caller's
// memory itself: what has no descriptor is registered for this one call. Call everything with the
// engine's lock held. Not for receive buffers: Lower posts these itself.
#ifndef WEFT_PLUGINS_RXM_FLIGHTS_H
#define WEFT_PLUGINS_RXM_FLIGHTS_H

#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <weft/sdk/layers/inner_modes.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/memory/pool.h>

#include <memory>
#include <vector>

#include "plugins/rxm/domain.h"
#include "plugins/rxm/protocol/carrier.h"

namespace weft::rxm {

class Flights {
 public:
  // The calls of one link that have not completed.
  struct Calls {
    size_t count = 0;
  };

  explicit Flights(Domain &domain) : domain_(domain), flights_(SIZE_MAX) {}
  ~Flights() { close(); }
  Flights(const Flights &) = delete;
  Flights &operator=(const Flights &) = delete;

  // `packet_size`: bytes of the longest packet.
  // `inner`: of its endpoints; `queue`: how many calls of a link the provider queues, 0: any.
  void open(const sdk::InnerModes &modes, size_t packet_size, const fi_tx_attr &inner,
            size_t queue);
  // All endpoints of the inner provider are closed.
  void close();

  // fi_sendmsg of a packet. `msg` has no descriptors; `desc` may be null, and each of it: a
  // descriptor of the inner provider. With `token` null the context of `msg` is passed on, which an
  // error may have: the call must have FI_INJECT. What is longer than the provider injects is
  // copied instead, and nothing is told of it: a credit packet must leave whatever that limit is.
  ssize_t send(Calls &calls, fid_ep *ep, fi_msg msg, void *const *desc, uint64_t flags,
               Token *token);
  // fi_readmsg or fi_writemsg. `msg` has no descriptors. With `token` null its context is passed
  // on, which an error may have: the call must have FI_INJECT and no FI_COMPLETION. -FI_EAGAIN,
  // before anything is registered, while the link has as many calls in flight as the provider
  // queues.
  ssize_t access(Calls &calls, fid_ep *ep, bool write, fi_msg_rma msg, void *const *desc,
                 uint64_t flags, Token *token);
  // A call has completed, or failed. Null: it was not one of these, or nobody waits for it.
  Token *land(void *op_context);
  // The endpoint of the link is closed: its calls do not complete any more. Returns their tokens.
  std::vector<Token *> drop(const Calls &calls);
  // Whether packets are on their way that the application does not wait for, and that the provider
  // has not copied: injected messages, answers, credits. They would be lost with their endpoint.
  bool has_injected();

 private:
  static constexpr size_t kMost = 1 + sdk::kIovLimit;  // vectors of a packet
  struct Staging;
  struct Flight {
    fi_context2 context;  // the provider's; must be the first member
    Calls *calls;         // of its link; null: not in use
    Token *token;
    Staging *staging;
    size_t region_count;
    sdk::InnerRegion regions[sdk::kIovLimit];
    iovec iov[kMost];
    void *desc[kMost];
    fi_rma_iov rma[kMaxVectors];
  };
  // Memory of one packet.
  struct Staging {
    uint8_t *bytes;
    void *desc;
  };
  struct Chunk {
    std::unique_ptr<uint8_t[]> memory;
    std::unique_ptr<Staging[]> each;
    sdk::InnerRegion region;
  };

  Flight *take(Calls &calls, Token *token);
  void give(Flight &flight);
  int stage(Flight &flight, const iovec *iov, void *const *desc, size_t count, size_t &made);
  int grow();
  iovec injected(const iovec *iov, size_t count);

  Domain &domain_;
  sdk::InnerModes modes_;
  size_t packet_size_ = 0, inject_limit_ = 0, queue_ = SIZE_MAX;
  sdk::Pool<Flight> flights_;
  std::vector<Chunk> chunks_;
  std::vector<Staging *> free_;
  std::unique_ptr<uint8_t[]> scratch_;  // for injected data in several pieces
};

}  // namespace weft::rxm

#endif
