// SPDX-License-Identifier: BSD-2-Clause
// What the hook fault keeps per endpoint and per completion queue, and how it describes a call.
//
// Example:
//    Attempt send_of(size_t len, fi_addr_t dest, void *context) {
//      return plain(kSend, len, dest, context, FI_MSG);
//    }
//    bool has_overrun(Link link, const fid_cq *cq) {
//      const auto *queue = state_at<QueueState>(link, &cq->fid);  // null: the hook is not on it
//      return queue != nullptr && queue->overrun;
//    }
//
// Everything here except for the Attempt is guarded by the mutex of the Injector (injector.h). Not
// for rules: rules.h has them.
#ifndef WEFT_PLUGINS_HOOK_FAULT_STATE_H
#define WEFT_PLUGINS_HOOK_FAULT_STATE_H

#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/unit.h>

#include <deque>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "plugins/hook-fault/rules.h"

namespace weft::fault {

using Link = const weft_hook_link &;

struct State {
  virtual ~State() = default;
};

// How many calls of each operation an object has seen, and how often each rule fired on it.
struct Calls {
  uint64_t seen[kOperations] = {};
  std::vector<uint64_t> fired;
};

// The copy of a message. The hook sends it and keeps it until it has read the completion.
struct Copy {
  fi_context2 room{};  // for the provider, where it asks for FI_CONTEXT
  std::vector<char> bytes;
  void *context = nullptr;        // the caller's
  bool hides_completion = false;  // the caller already gets the completion of the original
  const void *owner = nullptr;
};

// Sends a copy through the next table.
using Issue = std::function<ssize_t(const void *buf, size_t len, void *context)>;

// A message that is sent later.
struct Held {
  std::unique_ptr<Copy> copy;
  Issue issue;
  uint64_t due = 0;         // a value of the endpoint's clock
  bool after_next = false;  // due earlier if another message is sent
  bool kept = false;        // the provider reads the copy until the operation is complete
  bool completes = false;   // the caller gets a completion
};

class Injector;
struct QueueState;

struct EndpointState final : State {
  uint64_t ordinal = 0;
  fid_ep *ep = nullptr;
  Calls calls;
  uint64_t clock = 0;  // messages of the endpoint and reads of its completion queues
  bool full = false;
  std::deque<Held> held;
  QueueState *tx = nullptr, *rx = nullptr;
  bool tx_selective = false, rx_selective = false;
  bool default_completes = true;  // with selective completions: what calls without flags ask for
  fid_cntr *tx_counter = nullptr, *rx_counter = nullptr;
  size_t busy = 0;       // threads that send held messages, outside of a call on the endpoint
  bool closing = false;  // no further thread may become busy
  Injector *injector = nullptr;
  ~EndpointState() override;
};

struct QueueState final : State {
  uint64_t ordinal = 0;
  fid_cq *cq = nullptr;
  size_t stride = 0;  // bytes of an entry; 0: not known
  Calls calls;
  bool overrun = false;
  std::deque<fi_cq_err_entry> made_up;  // completions of the hook; err 0: a success
  std::vector<EndpointState *> endpoints;
  Injector *injector = nullptr;
  ~QueueState() override;
};

inline State &state_of(Link link) {
  return *static_cast<State *>(link.object_state);
}
inline EndpointState &endpoint_of(Link link) {
  return static_cast<EndpointState &>(state_of(link));
}
inline QueueState &queue_of(Link link) {
  return static_cast<QueueState &>(state_of(link));
}
// The hook's link on another object; null: the hook is not on it.
inline const weft_hook_link *link_at(uint32_t slot, const struct fid *fid) {
  const weft_fid_header *header = sdk::header_of(fid);
  if (header->magic != WEFT_FID_MAGIC) return nullptr;
  weft_hook_link **links = __atomic_load_n(&header->links_core, __ATOMIC_ACQUIRE);
  return links != nullptr ? __atomic_load_n(&links[slot], __ATOMIC_ACQUIRE) : nullptr;
}
template <class T>
T *state_at(Link mine, const struct fid *fid) {
  const weft_hook_link *link = link_at(mine.slot, fid);
  return link != nullptr ? dynamic_cast<T *>(&state_of(*link)) : nullptr;
}

// What a call asks for.
struct Attempt {
  Operation operation;
  size_t size;
  fi_addr_t peer;
  void *context;
  bool flagged;    // a call with explicit flags (fi_sendmsg and the like)
  uint64_t flags;  // these flags
  uint64_t kind;   // flags of its completion, for instance FI_MSG | FI_SEND
  uint64_t tag = 0;

  bool is_receive() const { return operation == kRecv || operation == kTrecv; }
  bool is_injected() const { return operation == kInject || operation == kTinject; }
};

inline size_t bytes_in(const iovec *iov, size_t count) {
  size_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += iov[i].iov_len;
  return sum;
}
// Whether the hook may look at a list. It passes on a list that no provider accepts, and the
// provider refuses it.
inline bool is_readable(const void *iov, size_t count) {
  return count <= 64 && (count == 0 || iov != nullptr);
}
inline bool has_descriptors(void *const *desc, size_t count) {
  for (size_t i = 0; desc != nullptr && i < count; ++i) {
    if (desc[i] != nullptr) return true;
  }
  return false;
}
inline size_t size_of(const enum fi_datatype &datatype) {
  return sdk::datatype_size(sdk::raw(datatype));
}

// FI_SEND or FI_RECV for messages. The `kind` of RMA and atomics has the direction already.
inline uint64_t direction(Operation operation) {
  switch (operation) {
    case kRecv:
    case kTrecv:
      return FI_RECV;
    case kSend:
    case kTsend:
    case kInject:
    case kTinject:
      return FI_SEND;
    default:
      return 0;
  }
}
// A call without flags.
inline Attempt plain(Operation operation, size_t size, fi_addr_t peer, void *context, uint64_t kind,
                     uint64_t tag = 0) {
  return {operation, size, peer, context, false, 0, kind | direction(operation), tag};
}
// A call with flags and a message struct: fi_msg, fi_msg_tagged, fi_msg_rma or fi_msg_atomic.
template <class Message>
Attempt flagged(Operation operation, const Message &msg, uint64_t flags, uint64_t kind) {
  size_t size = 0;
  if (is_readable(msg.msg_iov, msg.iov_count)) {
    if constexpr (std::is_same_v<Message, fi_msg_atomic>) {
      for (size_t i = 0; i < msg.iov_count; ++i)
        size += msg.msg_iov[i].count * size_of(msg.datatype);
    } else {
      size = bytes_in(msg.msg_iov, msg.iov_count);
    }
  }
  return {operation, size, msg.addr, msg.context, true, flags, kind | direction(operation), 0};
}

}  // namespace weft::fault

#endif
