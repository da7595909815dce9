// SPDX-License-Identifier: BSD-2-Clause
// Posted: the context of each call to the endpoint beneath: a message or an access to remote memory
// of the application's, or a message of a group (Wire).
//
// Example:
//    inline bool is_of_a_group(const Posted &posted) { return posted.kind >= Posted::kFlight; }
//
// `inner` comes first: a provider that wants FI_CONTEXT writes there. Not for what is done with it.
#ifndef WEFT_PLUGINS_COLL_POSTED_H
#define WEFT_PLUGINS_COLL_POSTED_H

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sys/uio.h>
#include <weft/sdk/memory/iov.h>

#include <cstddef>
#include <cstdint>

#include "plugins/coll/group/operation.h"

namespace weft::coll {

class Collectives;
class Receives;

inline fi_msg untagged(const fi_msg_tagged &msg) {
  return {.msg_iov = msg.msg_iov,
          .desc = msg.desc,
          .iov_count = msg.iov_count,
          .addr = msg.addr,
          .context = msg.context,
          .data = msg.data};
}

struct Posted {
  enum Kind : uint8_t { kMessage, kAccess, kFlight, kPacketIn, kPacketOut };
  fi_context2 inner;
  Kind kind = kMessage;
};

// A send or a receive of the application.
struct Message : Posted {
  iovec iov[sdk::kIovLimit];
  void *context = nullptr;
  uint64_t flags = 0;  // of the completion
  uint64_t length = 0, tag = 0;
  uint64_t looks = 0;                 // FI_PEEK, FI_CLAIM, FI_DISCARD
  bool report = false, busy = false;  // `report` of a receive: the call wants it (FI_COMPLETION)
  bool is_multi = false;              // FI_MULTI_RECV: it takes several messages
  bool has_claimed = false;           // a message, which the next receive with its context gets
  Receives *home = nullptr;           // of a receive

  template <class Request>
  void begin(const Request &request) {
    kind = kMessage;
    context = request.context;
    tag = request.tag;
    busy = true;
    looks = 0;
    has_claimed = is_multi = false;
  }
};

// A remote access or an atomic operation of the application. The vectors stay for as long as the
// provider beneath may want them (FI_ASYNC_IOV).
struct Access : Posted {
  union {
    iovec iov[sdk::kIovLimit];
    fi_ioc operands[sdk::kIovLimit];
  };
  union {
    fi_rma_iov rma[sdk::kIovLimit];
    fi_rma_ioc rma_atomic[sdk::kIovLimit];
  };
  fi_ioc compares[sdk::kIovLimit], results[sdk::kIovLimit];
  void *context = nullptr;
  uint64_t flags = 0;  // of the completion
  uint64_t length = 0;
  bool report = false;
};

struct Wire : Posted {
  Collectives *owner = nullptr;  // null: a shared receive context
  Flight *flight = nullptr;      // kFlight
  iovec iov = {};
  uint64_t peer = 0;              // the name beneath
  uint32_t number = 0, rank = 0;  // kPacketOut: whose, and to whom
  PacketType type = {};           // the same
  Packet::Bytes bytes = {};

  bool receives() const { return kind == kPacketIn || (kind == kFlight && !flight->sends); }
};

}  // namespace weft::coll

#endif
