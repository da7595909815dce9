// SPDX-License-Identifier: BSD-2-Clause
// fault: a hook that makes things go wrong, by rules and reproducibly, so that what is above it in
// the stack can be tested against a bad network, a bad peer and a bad provider.
//
//   FI_HOOK=fault FI_FAULT_RULES='send:p=0.01:drop; recv:nth=3:error=EIO; seed=42' ./program
//   stacks: {lossy: [{layer: rxm}, {hook: fault, params: {rules: "..."}}, {provider: tcp}]}
//
// What the actions mean:
//   drop        the message is not sent; the caller gets the completion that he would have got
//   dup         it is sent twice; the caller sees one completion
//   reorder     it is sent after the next message of the endpoint, or soon if there is none
//   delay=N     it is sent after N more calls on the endpoint and reads of its completion queues
//   truncate=N  only its first N bytes are sent
//   corrupt     one bit of it is flipped
//   error=E     the operation is not started; its completion is an error
//   fail=E      the call returns -E; eagain: -FI_EAGAIN
//   full        the call, and all posts on the endpoint until its completion queue was read, return
//               -FI_EAGAIN, as where the queue is full
//   kill        the endpoint's connection is shut down, and the call goes on from there
//   overrun     the completion queue returns -FI_EOVERRUN from now on
// and of cq_read: eagain, there is nothing yet; fail=E, the read fails.
//
// Copies are made only for messages that a rule picked, and take `memory` at most; they are sent by
// the hook itself, with contexts of its own that it takes out of the completion queue again. What
// cannot be done right is not done at all, and counted as not_applicable: a copy where the provider
// wants descriptors of registered memory, or a made-up completion for a queue whose format is not
// known because it was open before the hook came. Messages that are held go out when the program
// waits or closes the endpoint, so that nobody waits for what waits for him.
//
// Counters: fi_open_ops(&domain->fid, "hook-fault", 0, &weft_counters_ops, NULL), one for each
// rule.
#include <weft/sdk/atomic.h>
#include <weft/sdk/log.h>
#include <weft/sdk/unit.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "plugins/hook-fault/rules.h"

namespace weft::fault {
namespace {

using namespace weft::sdk;

struct State {
  virtual ~State() = default;
};

// How many calls of a sort an object has seen, and how often each rule fired on it.
struct Calls {
  uint64_t seen[kOperations] = {};
  std::vector<uint64_t> fired;
};

struct QueueState;

// A message that the hook sends: its copy lives until the completion is read.
struct Ghost {
  fi_context2 room{};  // the provider's, where it asks for FI_CONTEXT
  std::vector<char> bytes;
  void *context = nullptr;  // the caller's
  bool swallow = false;     // nobody asked for this completion
  const void *owner = nullptr;
};

using Issue = std::function<ssize_t(const void *buf, size_t len, void *context)>;

struct Held {
  std::unique_ptr<Ghost> ghost;
  Issue issue;
  uint64_t due = 0;         // of the endpoint's clock
  bool after_next = false;  // or as soon as another message went out
  bool kept = false;        // the provider reads the copy until it is complete
  bool completes = false;   // the caller gets a completion
};

struct EndpointState final : State {
  uint64_t ordinal = 0;
  fid_ep *ep = nullptr;
  Calls calls;
  uint64_t clock = 0;
  bool full = false;
  std::deque<Held> held;
  QueueState *tx = nullptr, *rx = nullptr;
  bool tx_selective = false, rx_selective = false;
  bool default_completes = true;  // where completions are selective: of calls without flags
  fid_cntr *tx_counter = nullptr, *rx_counter = nullptr;
  size_t busy = 0;       // threads that send what is held, from outside of a call on the endpoint
  bool closing = false;  // none may begin to
  class Fault *hook = nullptr;
  ~EndpointState() override;
};

struct QueueState final : State {
  uint64_t ordinal = 0;
  fid_cq *cq = nullptr;
  size_t stride = 0;  // of an entry; 0: not known
  Calls calls;
  bool overrun = false;
  std::deque<fi_cq_err_entry> made_up;  // err 0: a good one
  std::vector<EndpointState *> endpoints;
  class Fault *hook = nullptr;
  ~QueueState() override;
};

// What a call asks for.
struct Attempt {
  Operation operation;
  size_t size;
  fi_addr_t peer;
  void *context;
  bool flagged;    // an op with explicit flags
  uint64_t flags;  // then these
  uint64_t kind;   // of its completion: FI_MSG | FI_SEND
  uint64_t tag = 0;
};

struct Verdict {
  const Rule *rule = nullptr;
  size_t index = 0;
  uint64_t call = 0;
};

size_t bytes_in(const iovec *iov, size_t count) {
  size_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += iov[i].iov_len;
  return sum;
}
// What no provider accepts is not looked at: it goes on to the provider, who says so.
bool is_readable(const void *iov, size_t count) {
  return count <= 64 && (count == 0 || iov != nullptr);
}
bool has_descriptors(void *const *desc, size_t count) {
  for (size_t i = 0; desc != nullptr && i < count; ++i) {
    if (desc[i] != nullptr) return true;
  }
  return false;
}

class Fault {
 public:
  using Link = const weft_hook_link &;
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
      case FI_CLASS_SRX_CTX: {
        auto state = std::make_unique<EndpointState>();
        state->ep = reinterpret_cast<fid_ep *>(fid);
        state->hook = this;
        state->calls.fired.resize(rules_.rules.size());
        std::lock_guard lock(mutex_);
        state->ordinal = ++ordinals_;
        endpoints_.push_back(state.get());
        return state;
      }
      case FI_CLASS_CQ: {
        auto state = std::make_unique<QueueState>();
        state->cq = reinterpret_cast<fid_cq *>(fid);
        state->hook = this;
        state->calls.fired.resize(rules_.rules.size());
        std::lock_guard lock(mutex_);
        state->ordinal = ++ordinals_;
        return state;
      }
      case FI_CLASS_FABRIC:
      case FI_CLASS_DOMAIN:
      case FI_CLASS_CNTR:
        return std::make_unique<State>();
      default:
        return nullptr;
    }
  }

  // ---- messages that are sent ----

  ssize_t send(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
               void *context) {
    const auto next = link.next.msg->send;
    const iovec iov{const_cast<void *>(buf), len};
    return transmit(
        link, plain(kSend, len, dest, context, FI_MSG), &iov, 1, desc != nullptr,
        [&] { return next(ep, buf, len, desc, dest, context); },
        [=](const void *b, size_t l, void *c) { return next(ep, b, l, nullptr, dest, c); });
  }
  ssize_t sendv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t dest,
                void *context) {
    const auto go_on = [&] { return link.next.msg->sendv(ep, iov, desc, count, dest, context); };
    if (!is_readable(iov, count)) return go_on();
    const auto next = link.next.msg->send;
    return transmit(link, plain(kSend, bytes_in(iov, count), dest, context, FI_MSG), iov, count,
                    has_descriptors(desc, count), go_on, [=](const void *b, size_t l, void *c) {
                      return next(ep, b, l, nullptr, dest, c);
                    });
  }
  ssize_t sendmsg(Link link, fid_ep *ep, const fi_msg *msg, uint64_t flags) {
    const auto go_on = [&] { return link.next.msg->sendmsg(ep, msg, flags); };
    if (msg == nullptr || !is_readable(msg->msg_iov, msg->iov_count)) return go_on();
    const auto next = link.next.msg->sendmsg;
    return transmit(link, flagged(kSend, *msg, flags, FI_MSG), msg->msg_iov, msg->iov_count,
                    has_descriptors(msg->desc, msg->iov_count), go_on,
                    [=, copy = *msg](const void *b, size_t l, void *c) {
                      const iovec iov{const_cast<void *>(b), l};
                      fi_msg again = copy;
                      again.msg_iov = &iov;
                      again.iov_count = 1;
                      again.desc = nullptr;
                      again.context = c;
                      return next(ep, &again, flags);
                    });
  }
  ssize_t senddata(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                   fi_addr_t dest, void *context) {
    const auto next = link.next.msg->senddata;
    const iovec iov{const_cast<void *>(buf), len};
    return transmit(
        link, plain(kSend, len, dest, context, FI_MSG), &iov, 1, desc != nullptr,
        [&] { return next(ep, buf, len, desc, data, dest, context); },
        [=](const void *b, size_t l, void *c) { return next(ep, b, l, nullptr, data, dest, c); });
  }
  ssize_t inject(Link link, fid_ep *ep, const void *buf, size_t len, fi_addr_t dest) {
    const auto next = link.next.msg->inject;
    const iovec iov{const_cast<void *>(buf), len};
    return transmit(
        link, plain(kInject, len, dest, nullptr, FI_MSG), &iov, 1, false,
        [&] { return next(ep, buf, len, dest); },
        [=](const void *b, size_t l, void *) { return next(ep, b, l, dest); });
  }
  ssize_t injectdata(Link link, fid_ep *ep, const void *buf, size_t len, uint64_t data,
                     fi_addr_t dest) {
    const auto next = link.next.msg->injectdata;
    const iovec iov{const_cast<void *>(buf), len};
    return transmit(
        link, plain(kInject, len, dest, nullptr, FI_MSG), &iov, 1, false,
        [&] { return next(ep, buf, len, data, dest); },
        [=](const void *b, size_t l, void *) { return next(ep, b, l, data, dest); });
  }
  ssize_t tsend(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
                uint64_t tag, void *context) {
    const auto next = link.next.tagged->send;
    const iovec iov{const_cast<void *>(buf), len};
    return transmit(
        link, plain(kTsend, len, dest, context, FI_TAGGED, tag), &iov, 1, desc != nullptr,
        [&] { return next(ep, buf, len, desc, dest, tag, context); },
        [=](const void *b, size_t l, void *c) { return next(ep, b, l, nullptr, dest, tag, c); });
  }
  ssize_t tsendv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t dest,
                 uint64_t tag, void *context) {
    const auto go_on = [&] {
      return link.next.tagged->sendv(ep, iov, desc, count, dest, tag, context);
    };
    if (!is_readable(iov, count)) return go_on();
    const auto next = link.next.tagged->send;
    return transmit(
        link, plain(kTsend, bytes_in(iov, count), dest, context, FI_TAGGED, tag), iov, count,
        has_descriptors(desc, count), go_on,
        [=](const void *b, size_t l, void *c) { return next(ep, b, l, nullptr, dest, tag, c); });
  }
  ssize_t tsendmsg(Link link, fid_ep *ep, const fi_msg_tagged *msg, uint64_t flags) {
    const auto go_on = [&] { return link.next.tagged->sendmsg(ep, msg, flags); };
    if (msg == nullptr || !is_readable(msg->msg_iov, msg->iov_count)) return go_on();
    const auto next = link.next.tagged->sendmsg;
    Attempt attempt = flagged(kTsend, *msg, flags, FI_TAGGED);
    attempt.tag = msg->tag;
    return transmit(link, attempt, msg->msg_iov, msg->iov_count,
                    has_descriptors(msg->desc, msg->iov_count), go_on,
                    [=, copy = *msg](const void *b, size_t l, void *c) {
                      const iovec iov{const_cast<void *>(b), l};
                      fi_msg_tagged again = copy;
                      again.msg_iov = &iov;
                      again.iov_count = 1;
                      again.desc = nullptr;
                      again.context = c;
                      return next(ep, &again, flags);
                    });
  }
  ssize_t tsenddata(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                    fi_addr_t dest, uint64_t tag, void *context) {
    const auto next = link.next.tagged->senddata;
    const iovec iov{const_cast<void *>(buf), len};
    return transmit(
        link, plain(kTsend, len, dest, context, FI_TAGGED, tag), &iov, 1, desc != nullptr,
        [&] { return next(ep, buf, len, desc, data, dest, tag, context); },
        [=](const void *b, size_t l, void *c) {
          return next(ep, b, l, nullptr, data, dest, tag, c);
        });
  }
  ssize_t tinject(Link link, fid_ep *ep, const void *buf, size_t len, fi_addr_t dest,
                  uint64_t tag) {
    const auto next = link.next.tagged->inject;
    const iovec iov{const_cast<void *>(buf), len};
    return transmit(
        link, plain(kTinject, len, dest, nullptr, FI_TAGGED, tag), &iov, 1, false,
        [&] { return next(ep, buf, len, dest, tag); },
        [=](const void *b, size_t l, void *) { return next(ep, b, l, dest, tag); });
  }
  ssize_t tinjectdata(Link link, fid_ep *ep, const void *buf, size_t len, uint64_t data,
                      fi_addr_t dest, uint64_t tag) {
    const auto next = link.next.tagged->injectdata;
    const iovec iov{const_cast<void *>(buf), len};
    return transmit(
        link, plain(kTinject, len, dest, nullptr, FI_TAGGED, tag), &iov, 1, false,
        [&] { return next(ep, buf, len, data, dest, tag); },
        [=](const void *b, size_t l, void *) { return next(ep, b, l, data, dest, tag); });
  }

  // ---- everything else that is posted ----

  ssize_t recv(Link link, fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src,
               void *context) {
    return post(link, plain(kRecv, len, src, context, FI_MSG),
                [&] { return link.next.msg->recv(ep, buf, len, desc, src, context); });
  }
  ssize_t recvv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t src,
                void *context) {
    const size_t size = is_readable(iov, count) ? bytes_in(iov, count) : 0;
    return post(link, plain(kRecv, size, src, context, FI_MSG),
                [&] { return link.next.msg->recvv(ep, iov, desc, count, src, context); });
  }
  ssize_t recvmsg(Link link, fid_ep *ep, const fi_msg *msg, uint64_t flags) {
    return post_msg(link, kRecv, FI_MSG, msg, flags,
                    [&] { return link.next.msg->recvmsg(ep, msg, flags); });
  }
  ssize_t trecv(Link link, fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src,
                uint64_t tag, uint64_t ignore, void *context) {
    return post(link, plain(kTrecv, len, src, context, FI_TAGGED, tag), [&] {
      return link.next.tagged->recv(ep, buf, len, desc, src, tag, ignore, context);
    });
  }
  ssize_t trecvv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t src,
                 uint64_t tag, uint64_t ignore, void *context) {
    const size_t size = is_readable(iov, count) ? bytes_in(iov, count) : 0;
    return post(link, plain(kTrecv, size, src, context, FI_TAGGED, tag), [&] {
      return link.next.tagged->recvv(ep, iov, desc, count, src, tag, ignore, context);
    });
  }
  ssize_t trecvmsg(Link link, fid_ep *ep, const fi_msg_tagged *msg, uint64_t flags) {
    return post_msg(link, kTrecv, FI_TAGGED, msg, flags,
                    [&] { return link.next.tagged->recvmsg(ep, msg, flags); });
  }

  ssize_t read(Link link, fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src,
               uint64_t addr, uint64_t key, void *context) {
    return post(link, plain(kRead, len, src, context, FI_RMA | FI_READ),
                [&] { return link.next.rma->read(ep, buf, len, desc, src, addr, key, context); });
  }
  ssize_t readv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t src,
                uint64_t addr, uint64_t key, void *context) {
    const size_t size = is_readable(iov, count) ? bytes_in(iov, count) : 0;
    return post(link, plain(kRead, size, src, context, FI_RMA | FI_READ), [&] {
      return link.next.rma->readv(ep, iov, desc, count, src, addr, key, context);
    });
  }
  ssize_t readmsg(Link link, fid_ep *ep, const fi_msg_rma *msg, uint64_t flags) {
    return post_msg(link, kRead, FI_RMA | FI_READ, msg, flags,
                    [&] { return link.next.rma->readmsg(ep, msg, flags); });
  }
  ssize_t write(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
                uint64_t addr, uint64_t key, void *context) {
    return post(link, plain(kWrite, len, dest, context, FI_RMA | FI_WRITE),
                [&] { return link.next.rma->write(ep, buf, len, desc, dest, addr, key, context); });
  }
  ssize_t writev(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t dest,
                 uint64_t addr, uint64_t key, void *context) {
    const size_t size = is_readable(iov, count) ? bytes_in(iov, count) : 0;
    return post(link, plain(kWrite, size, dest, context, FI_RMA | FI_WRITE), [&] {
      return link.next.rma->writev(ep, iov, desc, count, dest, addr, key, context);
    });
  }
  ssize_t writemsg(Link link, fid_ep *ep, const fi_msg_rma *msg, uint64_t flags) {
    return post_msg(link, kWrite, FI_RMA | FI_WRITE, msg, flags,
                    [&] { return link.next.rma->writemsg(ep, msg, flags); });
  }
  ssize_t writedata(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                    fi_addr_t dest, uint64_t addr, uint64_t key, void *context) {
    return post(link, plain(kWrite, len, dest, context, FI_RMA | FI_WRITE), [&] {
      return link.next.rma->writedata(ep, buf, len, desc, data, dest, addr, key, context);
    });
  }
  ssize_t inject_write(Link link, fid_ep *ep, const void *buf, size_t len, fi_addr_t dest,
                       uint64_t addr, uint64_t key) {
    return post(link, plain(kInjectWrite, len, dest, nullptr, FI_RMA | FI_WRITE),
                [&] { return link.next.rma->inject(ep, buf, len, dest, addr, key); });
  }
  ssize_t inject_writedata(Link link, fid_ep *ep, const void *buf, size_t len, uint64_t data,
                           fi_addr_t dest, uint64_t addr, uint64_t key) {
    return post(link, plain(kInjectWrite, len, dest, nullptr, FI_RMA | FI_WRITE),
                [&] { return link.next.rma->injectdata(ep, buf, len, data, dest, addr, key); });
  }

  ssize_t atomic(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, fi_addr_t dest,
                 uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op,
                 void *context) {
    return post(link, plain(kAtomic, count * size_of(datatype), dest, context, kAtomicFlags), [&] {
      return link.next.atomic->write(ep, buf, count, desc, dest, addr, key, datatype, op, context);
    });
  }
  ssize_t atomicmsg(Link link, fid_ep *ep, const fi_msg_atomic *msg, uint64_t flags) {
    return post_msg(link, kAtomic, kAtomicFlags, msg, flags,
                    [&] { return link.next.atomic->writemsg(ep, msg, flags); });
  }
  ssize_t fetch_atomic(Link link, fid_ep *ep, const void *buf, size_t count, void *desc,
                       void *result, void *result_desc, fi_addr_t dest, uint64_t addr, uint64_t key,
                       enum fi_datatype datatype, enum fi_op op, void *context) {
    return post(link, plain(kAtomic, count * size_of(datatype), dest, context, FI_ATOMIC | FI_READ),
                [&] {
                  return link.next.atomic->readwrite(ep, buf, count, desc, result, result_desc,
                                                     dest, addr, key, datatype, op, context);
                });
  }
  ssize_t fetch_atomicmsg(Link link, fid_ep *ep, const fi_msg_atomic *msg, fi_ioc *resultv,
                          void **result_desc, size_t result_count, uint64_t flags) {
    return post_msg(link, kAtomic, FI_ATOMIC | FI_READ, msg, flags, [&] {
      return link.next.atomic->readwritemsg(ep, msg, resultv, result_desc, result_count, flags);
    });
  }
  ssize_t compare_atomic(Link link, fid_ep *ep, const void *buf, size_t count, void *desc,
                         const void *compare, void *compare_desc, void *result, void *result_desc,
                         fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                         enum fi_op op, void *context) {
    return post(
        link, plain(kAtomic, count * size_of(datatype), dest, context, FI_ATOMIC | FI_READ), [&] {
          return link.next.atomic->compwrite(ep, buf, count, desc, compare, compare_desc, result,
                                             result_desc, dest, addr, key, datatype, op, context);
        });
  }
  ssize_t compare_atomicmsg(Link link, fid_ep *ep, const fi_msg_atomic *msg, const fi_ioc *comparev,
                            void **compare_desc, size_t compare_count, fi_ioc *resultv,
                            void **result_desc, size_t result_count, uint64_t flags) {
    return post_msg(link, kAtomic, FI_ATOMIC | FI_READ, msg, flags, [&] {
      return link.next.atomic->compwritemsg(ep, msg, comparev, compare_desc, compare_count, resultv,
                                            result_desc, result_count, flags);
    });
  }

  // ---- completions ----

  ssize_t cq_read(Link link, fid_cq *cq, void *buf, size_t count) {
    return read_queue(link, cq, buf, count, nullptr,
                      [&] { return link.next.cq->read(cq, buf, count); });
  }
  ssize_t cq_readfrom(Link link, fid_cq *cq, void *buf, size_t count, fi_addr_t *src) {
    return read_queue(link, cq, buf, count, src,
                      [&] { return link.next.cq->readfrom(cq, buf, count, src); });
  }
  ssize_t cq_sread(Link link, fid_cq *cq, void *buf, size_t count, const void *cond, int timeout) {
    return wait_queue(
        link, cq, buf, count, nullptr, timeout, [&] { return link.next.cq->read(cq, buf, count); },
        [&](int left) { return link.next.cq->sread(cq, buf, count, cond, left); });
  }
  ssize_t cq_sreadfrom(Link link, fid_cq *cq, void *buf, size_t count, fi_addr_t *src,
                       const void *cond, int timeout) {
    return wait_queue(
        link, cq, buf, count, src, timeout,
        [&] { return link.next.cq->readfrom(cq, buf, count, src); },
        [&](int left) { return link.next.cq->sreadfrom(cq, buf, count, src, cond, left); });
  }
  ssize_t cq_readerr(Link link, fid_cq *cq, fi_cq_err_entry *entry, uint64_t flags) {
    QueueState &queue = queue_of(link);
    {
      std::lock_guard lock(mutex_);
      if (!queue.made_up.empty() && queue.made_up.front().err != 0) {
        const fi_cq_err_entry made = queue.made_up.front();
        queue.made_up.pop_front();
        give_error(made, entry);
        return 1;
      }
    }
    const ssize_t rc = link.next.cq->readerr(cq, entry, flags);
    if (rc <= 0) return rc;
    const std::unique_ptr<Ghost> ghost = take(entry->op_context);
    if (ghost == nullptr) return rc;
    if (ghost->swallow) return -FI_EAGAIN;
    entry->op_context = ghost->context;
    return rc;
  }
  uint64_t cntr_read(Link link, fid_cntr *cntr) {
    flush_all();
    return link.next.cntr->read(cntr);
  }
  int cntr_wait(Link link, fid_cntr *cntr, uint64_t threshold, int timeout) {
    flush_all();
    return link.next.cntr->wait(cntr, threshold, timeout);
  }
  // Somebody is about to sleep: not while there is something for him, or to be sent.
  int trywait(Link link, fid_fabric *fabric, struct fid **fids, int count) {
    flush_all();
    for (int i = 0; fids != nullptr && i < count; ++i) {
      if (fids[i] == nullptr || fids[i]->fclass != FI_CLASS_CQ) continue;
      auto *queue = state_at<QueueState>(link, fids[i]);
      std::lock_guard lock(mutex_);
      if (queue != nullptr && !queue->made_up.empty()) return -FI_EAGAIN;
    }
    return link.next.fabric->trywait(fabric, fids, count);
  }

  // ---- what has to be known of the objects ----

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
    if (auto *queue = state_at<QueueState>(link, &(*cq)->fid)) {
      switch (raw(attr->format)) {
        case FI_CQ_FORMAT_CONTEXT:
          queue->stride = sizeof(fi_cq_entry);
          break;
        case FI_CQ_FORMAT_MSG:
          queue->stride = sizeof(fi_cq_msg_entry);
          break;
        case FI_CQ_FORMAT_DATA:
          queue->stride = sizeof(fi_cq_data_entry);
          break;
        case FI_CQ_FORMAT_TAGGED:
          queue->stride = sizeof(fi_cq_tagged_entry);
          break;
        default:
          break;  // the provider's choice: not known here
      }
    }
    return rc;
  }
  int bind(Link link, struct fid *fid, struct fid *other, uint64_t flags) {
    const int rc = link.next.fid->bind(fid, other, flags);
    auto *endpoint = dynamic_cast<EndpointState *>(&object_state<Fault>(link));
    if (rc != 0 || endpoint == nullptr) return rc;
    std::lock_guard lock(mutex_);
    if (other->fclass == FI_CLASS_CQ) {
      auto *queue = state_at<QueueState>(link, other);
      if (queue == nullptr) return rc;
      const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
      if ((flags & FI_TRANSMIT) != 0) {
        endpoint->tx = queue;
        endpoint->tx_selective = selective;
      }
      if ((flags & FI_RECV) != 0) {
        endpoint->rx = queue;
        endpoint->rx_selective = selective;
      }
      use(*queue, endpoint);
    } else if (other->fclass == FI_CLASS_CNTR) {
      if ((flags & FI_SEND) != 0) endpoint->tx_counter = reinterpret_cast<fid_cntr *>(other);
      if ((flags & FI_RECV) != 0) endpoint->rx_counter = reinterpret_cast<fid_cntr *>(other);
    }
    return rc;
  }
  int control(Link link, struct fid *fid, int command, void *arg) {
    const int rc = link.next.fid->control(fid, command, arg);
    if (rc != 0 || command != FI_ALIAS) return rc;
    auto *original = dynamic_cast<EndpointState *>(&object_state<Fault>(link));
    const auto &made = *static_cast<struct fi_alias *>(arg);
    auto *alias = state_at<EndpointState>(link, *made.fid);
    if (original == nullptr || alias == nullptr) return rc;
    std::lock_guard lock(mutex_);
    alias->tx = original->tx;
    alias->rx = original->rx;
    alias->tx_selective = original->tx_selective;
    alias->rx_selective = original->rx_selective;
    alias->tx_counter = original->tx_counter;
    alias->rx_counter = original->rx_counter;
    alias->default_completes = (made.flags & FI_TRANSMIT) != 0 ? (made.flags & FI_COMPLETION) != 0
                                                               : original->default_completes;
    for (QueueState *queue : {alias->tx, alias->rx}) {
      if (queue != nullptr) use(*queue, alias);
    }
    return rc;
  }
  int close(Link link, struct fid *fid) {
    auto *endpoint = dynamic_cast<EndpointState *>(&object_state<Fault>(link));
    if (endpoint == nullptr) return link.next.fid->close(fid);
    flush(*endpoint, true);
    {
      std::unique_lock lock(mutex_);
      endpoint->closing = true;
      idle_.wait(lock, [&] { return endpoint->busy == 0; });
    }
    const int rc = link.next.fid->close(fid);
    if (rc != 0) {
      std::lock_guard lock(mutex_);
      endpoint->closing = false;
    }
    return rc;
  }
  int ops_open(Link link, struct fid *fid, const char *name, uint64_t flags, void **ops,
               void *context) {
    static constexpr weft_counters_ops kOps{.size = sizeof kOps, .read = &read_counters};
    if (name == nullptr || std::strcmp(name, "hook-fault") != 0)
      return link.next.fid->ops_open(fid, name, flags, ops, context);
    if (ops == nullptr) return -FI_EINVAL;
    *ops = const_cast<weft_counters_ops *>(&kOps);
    return 0;
  }

  void forget(EndpointState *endpoint) {
    std::lock_guard lock(mutex_);
    std::erase(endpoints_, endpoint);
    for (QueueState *queue : {endpoint->tx, endpoint->rx}) {
      if (queue != nullptr) std::erase(queue->endpoints, endpoint);
    }
    std::erase_if(ghosts_, [&](const auto &one) {
      if (one.second->owner != endpoint) return false;
      copied_ -= one.second->bytes.size();
      return true;
    });
    for (const Held &held : endpoint->held) copied_ -= held.ghost->bytes.size();
  }
  void forget(QueueState *queue) {
    std::lock_guard lock(mutex_);
    for (EndpointState *endpoint : queue->endpoints) {
      if (endpoint->tx == queue) endpoint->tx = nullptr;
      if (endpoint->rx == queue) endpoint->rx = nullptr;
    }
  }

 private:
  static constexpr uint64_t kAtomicFlags = FI_ATOMIC | FI_WRITE;
  static constexpr uint64_t kReorderPatience = 16;  // calls that wait for another message

  Fault(const weft_instance *instance, Rules rules, size_t memory)
      : instance_(instance), rules_(std::move(rules)), memory_(memory) {
    for (const Rule &rule : rules_.rules) concerned_ |= rule.operations;
    fired_.resize(rules_.rules.size());
    for (size_t i = 0; i < rules_.rules.size(); ++i)
      names_.push_back("rule " + std::to_string(i + 1) + ": " + rules_.rules[i].text);
  }

  static EndpointState &endpoint_of(Link link) {
    return static_cast<EndpointState &>(object_state<Fault>(link));
  }
  static QueueState &queue_of(Link link) {
    return static_cast<QueueState &>(object_state<Fault>(link));
  }
  template <class T>
  static T *state_at(Link mine, const struct fid *fid) {
    const weft_fid_header *header = header_of(fid);
    if (header->magic != WEFT_FID_MAGIC) return nullptr;
    weft_hook_link **links = __atomic_load_n(&header->links_core, __ATOMIC_ACQUIRE);
    if (links == nullptr) return nullptr;
    const weft_hook_link *link = __atomic_load_n(&links[mine.slot], __ATOMIC_ACQUIRE);
    return link != nullptr ? dynamic_cast<T *>(static_cast<State *>(link->object_state)) : nullptr;
  }
  static size_t size_of(const enum fi_datatype &datatype) { return datatype_size(raw(datatype)); }

  static Attempt plain(Operation operation, size_t size, fi_addr_t peer, void *context,
                       uint64_t kind, uint64_t tag = 0) {
    return {operation, size, peer, context, false, 0, kind | direction(operation), tag};
  }
  template <class Message>
  static Attempt flagged(Operation operation, const Message &msg, uint64_t flags, uint64_t kind) {
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
  static uint64_t direction(Operation operation) {
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
        return 0;  // RMA and atomics say it themselves
    }
  }
  void opened(Link link, fid_ep *ep, const fi_info *info) {
    auto *state = state_at<EndpointState>(link, &ep->fid);
    if (state != nullptr && info != nullptr && info->tx_attr != nullptr)
      state->default_completes = (info->tx_attr->op_flags & FI_COMPLETION) != 0;
  }

  static void use(QueueState &queue, EndpointState *endpoint) {
    std::vector<EndpointState *> &users = queue.endpoints;
    if (std::find(users.begin(), users.end(), endpoint) == users.end()) users.push_back(endpoint);
  }

  // Counts the call; the first rule that applies to it. With the mutex held.
  Verdict judge(Calls &calls, uint64_t ordinal, Operation operation, size_t size, fi_addr_t peer) {
    const uint64_t call = ++calls.seen[operation];
    for (size_t i = 0; i < rules_.rules.size(); ++i) {
      const Rule &rule = rules_.rules[i];
      if (!rule.is_for(operation)) continue;
      if (operation != kCqRead && (size < rule.least || size > rule.most)) continue;
      if (rule.peer != UINT64_MAX && rule.peer != peer) continue;
      if (rule.nth != 0 && rule.nth != call) continue;
      if (rule.every != 0 && call % rule.every != 0) continue;
      if (calls.fired[i] >= rule.times) continue;
      if (rule.probability < 1 &&
          chance(rules_.seed, ordinal, operation, call, uint32_t(i)) >= rule.probability)
        continue;
      return {&rule, i, call};
    }
    return {};
  }
  void note(Calls &calls, const Verdict &verdict) {
    ++calls.fired[verdict.index];
    ++fired_[verdict.index];
  }
  void note_not_applicable(const Rule &rule) {
    ++not_applicable_;
    WEFT_INFO(instance_, FI_LOG_EP_DATA, "rule \"%s\" is not applicable to this operation",
              rule.text.c_str());
  }

  bool completes(const EndpointState &endpoint, const Attempt &attempt) const {
    if (attempt.operation == kInject || attempt.operation == kTinject) return false;
    const bool receive = attempt.operation == kRecv || attempt.operation == kTrecv;
    if (!(receive ? endpoint.rx_selective : endpoint.tx_selective)) return true;
    return attempt.flagged ? (attempt.flags & FI_COMPLETION) != 0
                           : !receive && endpoint.default_completes;
  }

  // An entry for the caller that the provider knows nothing of. With the mutex held. False: there
  // is no queue for it, or none whose entries are known.
  bool can_make_up(const EndpointState &endpoint, const Attempt &attempt) const {
    const bool receive = attempt.operation == kRecv || attempt.operation == kTrecv;
    const QueueState *queue = receive ? endpoint.rx : endpoint.tx;
    return queue != nullptr && queue->stride != 0;
  }
  QueueState *make_up(EndpointState &endpoint, const Attempt &attempt, int err) {
    const bool receive = attempt.operation == kRecv || attempt.operation == kTrecv;
    QueueState *queue = receive ? endpoint.rx : endpoint.tx;
    fi_cq_err_entry entry{};
    entry.op_context = attempt.context;
    entry.flags = attempt.kind;
    entry.tag = attempt.tag;
    entry.err = err;
    entry.prov_errno = err;
    entry.src_addr = FI_ADDR_NOTAVAIL;
    queue->made_up.push_back(entry);
    return queue;
  }
  // Wakes who sleeps on the queue. Without the mutex.
  void wake(QueueState *queue) {
    const weft_hook_link &link = hook_link<Fault>(&queue->cq->fid);
    if (link.next.cq->signal != nullptr) (void)link.next.cq->signal(queue->cq);
  }

  // What needs nothing but the call itself. Nothing: the call may go on.
  template <class Call>
  std::optional<ssize_t> simple(Link link, EndpointState &endpoint, const Attempt &attempt,
                                const Verdict &verdict, Call call) {
    const Rule &rule = *verdict.rule;
    std::unique_lock lock(mutex_);
    switch (rule.action) {
      case Action::kFail:
        note(endpoint.calls, verdict);
        return -static_cast<ssize_t>(rule.number);
      case Action::kAgain:
        note(endpoint.calls, verdict);
        return -FI_EAGAIN;
      case Action::kFull:
        if (endpoint.tx == nullptr && endpoint.rx == nullptr) {
          note_not_applicable(rule);
          return {};
        }
        note(endpoint.calls, verdict);
        endpoint.full = any_full_ = true;
        return -FI_EAGAIN;
      case Action::kError: {
        const bool receive = attempt.operation == kRecv || attempt.operation == kTrecv;
        if (!can_make_up(endpoint, attempt)) {
          note_not_applicable(rule);
          return {};
        }
        note(endpoint.calls, verdict);
        QueueState *queue = make_up(endpoint, attempt, static_cast<int>(rule.number));
        fid_cntr *counter = receive ? endpoint.rx_counter : endpoint.tx_counter;
        lock.unlock();
        if (counter != nullptr) (void)counter->ops->adderr(counter, 1);
        wake(queue);
        return 0;
      }
      case Action::kKill: {
        lock.unlock();
        const int rc = link.next.cm != nullptr && endpoint.ep->fid.fclass == FI_CLASS_EP
                           ? link.next.cm->shutdown(endpoint.ep, 0)
                           : -FI_ENOSYS;
        lock.lock();
        if (rc == 0)
          note(endpoint.calls, verdict);
        else
          note_not_applicable(rule);
        lock.unlock();
        return call();
      }
      default:
        return {};
    }
  }

  template <class Call>
  ssize_t post(Link link, const Attempt &attempt, Call call) {
    if ((concerned_ >> attempt.operation & 1) == 0 && !any_full_) return call();
    EndpointState &endpoint = endpoint_of(link);
    Verdict verdict;
    {
      std::lock_guard lock(mutex_);
      if (endpoint.full) return -FI_EAGAIN;
      verdict =
          judge(endpoint.calls, endpoint.ordinal, attempt.operation, attempt.size, attempt.peer);
    }
    if (verdict.rule != nullptr) {
      if (const auto rc = simple(link, endpoint, attempt, verdict, call)) return *rc;
    }
    return counted(endpoint, attempt.operation, call());
  }
  // A call that the provider had no room for did not happen: how often it is tried again depends on
  // the time, and what goes wrong must not.
  ssize_t counted(EndpointState &endpoint, Operation operation, ssize_t rc) {
    if (rc == -FI_EAGAIN) {
      std::lock_guard lock(mutex_);
      --endpoint.calls.seen[operation];
    }
    return rc;
  }
  ssize_t undone(EndpointState &endpoint, const Verdict &verdict, Operation operation, ssize_t rc) {
    std::lock_guard lock(mutex_);
    --endpoint.calls.fired[verdict.index];
    --fired_[verdict.index];
    if (rc == -FI_EAGAIN) --endpoint.calls.seen[operation];
    return rc;
  }
  template <class Message, class Call>
  ssize_t post_msg(Link link, Operation operation, uint64_t kind, const Message *msg,
                   uint64_t flags, Call call) {
    if (msg == nullptr) return call();
    return post(link, flagged(operation, *msg, flags, kind), call);
  }

  // A message: it may also be lost, copied, changed and held.
  template <class Call, class Again>
  ssize_t transmit(Link link, const Attempt &attempt, const iovec *iov, size_t count,
                   bool described, Call call, Again issue) {
    if (rules_.rules.empty()) return call();
    EndpointState &endpoint = endpoint_of(link);
    tick(endpoint);
    const auto go_on = [&] {
      const ssize_t rc = call();
      if (rc == 0) message_went(endpoint);
      return counted(endpoint, attempt.operation, rc);
    };
    std::unique_lock lock(mutex_);
    if (endpoint.full) return -FI_EAGAIN;
    const Verdict verdict =
        judge(endpoint.calls, endpoint.ordinal, attempt.operation, attempt.size, attempt.peer);
    if (verdict.rule == nullptr) {
      lock.unlock();
      return go_on();
    }
    const Rule &rule = *verdict.rule;
    if (rule.action >= Action::kError) {
      lock.unlock();
      const auto rc = simple(link, endpoint, attempt, verdict, call);
      return rc ? *rc : go_on();
    }
    const bool injected = attempt.operation == kInject || attempt.operation == kTinject;
    const bool completion = completes(endpoint, attempt);
    if (rule.action == Action::kDrop) {
      if (completion && !can_make_up(endpoint, attempt) && endpoint.tx_counter == nullptr) {
        note_not_applicable(rule);
        lock.unlock();
        return go_on();
      }
      note(endpoint.calls, verdict);
      QueueState *queue =
          completion && can_make_up(endpoint, attempt) ? make_up(endpoint, attempt, 0) : nullptr;
      fid_cntr *counter = injected ? nullptr : endpoint.tx_counter;
      lock.unlock();
      if (counter != nullptr) (void)counter->ops->add(counter, 1);
      if (queue != nullptr) wake(queue);
      return 0;
    }
    // The rest sends copies. Their completions must be found again among the others, and a second
    // one must not be counted.
    const size_t size = rule.action == Action::kTruncate
                            ? std::min<uint64_t>(attempt.size, rule.number)
                            : attempt.size;
    const bool twice = rule.action == Action::kDuplicate;
    const bool found_again = injected || (can_make_up(endpoint, attempt) && !described);
    if (!found_again || size > memory_ || copied_ > memory_ - size ||
        (twice && endpoint.tx_counter != nullptr && !injected)) {
      note_not_applicable(rule);
      lock.unlock();
      return go_on();
    }
    note(endpoint.calls, verdict);
    auto ghost = std::make_unique<Ghost>();
    ghost->context = attempt.context;
    ghost->owner = &endpoint;
    ghost->swallow = twice;
    ghost->bytes.resize(size);
    for (size_t i = 0, at = 0; i < count && at < size; ++i) {
      const size_t part = std::min(iov[i].iov_len, size - at);
      if (part != 0) std::memcpy(ghost->bytes.data() + at, iov[i].iov_base, part);
      at += part;
    }
    if (rule.action == Action::kCorrupt && size > 0) {
      const uint64_t random = mixed(rules_.seed, endpoint.ordinal, attempt.operation, verdict.call,
                                    static_cast<uint32_t>(verdict.index) + 1000);
      ghost->bytes[(random >> 3) % size] ^= static_cast<char>(1u << (random & 7));
    }
    copied_ += size;
    const bool held = rule.action == Action::kReorder || rule.action == Action::kDelay;
    if (held) {
      const bool after_next = rule.action == Action::kReorder;
      endpoint.held.push_back({std::move(ghost), std::move(issue),
                               endpoint.clock + (after_next ? kReorderPatience : rule.number),
                               after_next, !injected, completion});
      ++held_;
      return 0;
    }
    lock.unlock();
    if (twice) {
      const ssize_t rc = call();
      if (rc != 0) {
        discard(ghost);
        return undone(endpoint, verdict, attempt.operation, rc);
      }
      message_went(endpoint);
      // The second one is lost where there is no room for it: nobody waits for it.
      if (issue_ghost(ghost, issue, !injected) != 0) discard(ghost);
      return 0;
    }
    const ssize_t rc = issue_ghost(ghost, issue, !injected);
    if (rc != 0) {
      discard(ghost);
      return undone(endpoint, verdict, attempt.operation, rc);
    }
    message_went(endpoint);
    return 0;
  }

  // Sends a copy. `kept`: the provider reads it until it is complete. 0: the ghost is gone or in
  // the hands of the provider.
  ssize_t issue_ghost(std::unique_ptr<Ghost> &ghost, const Issue &issue, bool kept) {
    Ghost *const sent = ghost.get();
    if (kept) {  // before its completion can be read
      std::lock_guard lock(mutex_);
      ghosts_.emplace(sent, std::move(ghost));
    }
    const ssize_t rc = issue(sent->bytes.data(), sent->bytes.size(), sent);
    if (kept && rc != 0) {
      std::lock_guard lock(mutex_);
      const auto found = ghosts_.find(sent);
      ghost = std::move(found->second);
      ghosts_.erase(found);
    } else if (!kept && rc == 0) {
      discard(ghost);
    }
    return rc;
  }
  void discard(std::unique_ptr<Ghost> &ghost) {
    if (ghost == nullptr) return;
    std::lock_guard lock(mutex_);
    copied_ -= ghost->bytes.size();
    ghost = nullptr;
  }
  // The ghost of a completion; null: it is the caller's own.
  std::unique_ptr<Ghost> take(void *context) {
    std::lock_guard lock(mutex_);
    const auto found = ghosts_.find(static_cast<Ghost *>(context));
    if (found == ghosts_.end()) return nullptr;
    std::unique_ptr<Ghost> ghost = std::move(found->second);
    ghosts_.erase(found);
    copied_ -= ghost->bytes.size();
    return ghost;
  }

  // ---- messages that are held ----

  void tick(EndpointState &endpoint) {
    {
      std::lock_guard lock(mutex_);
      ++endpoint.clock;
      if (endpoint.held.empty()) return;
    }
    flush(endpoint, false);
  }
  void message_went(EndpointState &endpoint) {
    {
      std::lock_guard lock(mutex_);
      if (endpoint.held.empty()) return;
      for (Held &held : endpoint.held) {
        if (held.after_next) held.due = 0;
      }
    }
    flush(endpoint, false);
  }
  // Sends what is due, or all.
  void flush(EndpointState &endpoint, bool all) {
    for (;;) {
      Held held;
      {
        std::lock_guard lock(mutex_);
        const auto due =
            std::find_if(endpoint.held.begin(), endpoint.held.end(),
                         [&](const Held &one) { return all || one.due <= endpoint.clock; });
        if (due == endpoint.held.end()) return;
        held = std::move(*due);
        endpoint.held.erase(due);
        --held_;
      }
      void *const context = held.ghost->context;
      const ssize_t rc = issue_ghost(held.ghost, held.issue, held.kept);
      if (rc == 0) continue;
      std::unique_lock lock(mutex_);
      if (rc == -FI_EAGAIN) {  // later
        held.due = endpoint.clock + 1;
        endpoint.held.push_front(std::move(held));
        ++held_;
        return;
      }
      // The caller was told that it is under way: he is told that it failed.
      copied_ -= held.ghost->bytes.size();
      if (!held.completes || endpoint.tx == nullptr) continue;
      Attempt attempt{kSend, 0, 0, context, false, 0, FI_SEND, 0};
      QueueState *queue = make_up(endpoint, attempt, static_cast<int>(-rc));
      lock.unlock();
      wake(queue);
    }
  }
  // Endpoints on which something is held, kept from closing until flushed. With the mutex held.
  std::vector<EndpointState *> pinned(const std::vector<EndpointState *> &endpoints) {
    std::vector<EndpointState *> found;
    for (EndpointState *endpoint : endpoints) {
      if (endpoint->held.empty() || endpoint->closing) continue;
      ++endpoint->busy;
      found.push_back(endpoint);
    }
    return found;
  }
  void flush_pinned(const std::vector<EndpointState *> &endpoints, bool all) {
    for (EndpointState *endpoint : endpoints) {
      flush(*endpoint, all);
      std::lock_guard lock(mutex_);
      if (--endpoint->busy == 0) idle_.notify_all();
    }
  }
  void flush_all() {
    if (held_ == 0) return;
    std::unique_lock lock(mutex_);
    const std::vector<EndpointState *> endpoints = pinned(endpoints_);
    lock.unlock();
    flush_pinned(endpoints, true);
  }

  // ---- reading completion queues ----

  static void give_error(const fi_cq_err_entry &made, fi_cq_err_entry *entry) {
    // err_data and its size, which the caller set, say that there is none.
    entry->op_context = made.op_context;
    entry->flags = made.flags;
    entry->len = entry->olen = 0;
    entry->buf = nullptr;
    entry->data = 0;
    entry->tag = made.tag;
    entry->err = made.err;
    entry->prov_errno = made.prov_errno;
    entry->err_data_size = 0;
  }

  // Puts made-up completions behind `have` entries.
  ssize_t add_made_up(QueueState &queue, char *entries, size_t have, size_t room, fi_addr_t *src) {
    std::lock_guard lock(mutex_);
    while (have < room && !queue.made_up.empty() && queue.made_up.front().err == 0) {
      const fi_cq_err_entry &made = queue.made_up.front();
      fi_cq_tagged_entry entry{};
      entry.op_context = made.op_context;
      entry.flags = made.flags;
      entry.tag = made.tag;
      std::memcpy(entries + have * queue.stride, &entry, queue.stride);
      if (src != nullptr) src[have] = FI_ADDR_NOTAVAIL;
      ++have;
      queue.made_up.pop_front();
    }
    if (have > 0) return static_cast<ssize_t>(have);
    return !queue.made_up.empty() ? -FI_EAVAIL : -FI_EAGAIN;
  }

  // Gives the caller's contexts back, and takes out what he did not ask for. How many are left.
  size_t restore(QueueState &queue, char *entries, size_t count, fi_addr_t *src) {
    {
      std::lock_guard lock(mutex_);
      if (ghosts_.empty() || queue.stride == 0) return count;
    }
    size_t left = 0;
    for (size_t i = 0; i < count; ++i) {
      char *const entry = entries + i * queue.stride;
      void *context;
      std::memcpy(&context, entry, sizeof context);
      const std::unique_ptr<Ghost> ghost = take(context);
      if (ghost != nullptr && ghost->swallow) continue;
      if (ghost != nullptr) std::memcpy(entry, &ghost->context, sizeof context);
      if (left != i) {
        std::memcpy(entries + left * queue.stride, entry, queue.stride);
        if (src != nullptr) src[left] = src[i];
      }
      ++left;
    }
    return left;
  }

  // An error that nobody asked for is taken out; another waits for the caller. 0: there is none.
  ssize_t sort_error(Link link, QueueState &queue) {
    {
      std::lock_guard lock(mutex_);
      if (ghosts_.empty()) return -FI_EAVAIL;
    }
    fi_cq_err_entry entry{};
    const ssize_t rc = link.next.cq->readerr(queue.cq, &entry, 0);
    if (rc <= 0) return rc == -FI_EAGAIN ? 0 : rc;
    const std::unique_ptr<Ghost> ghost = take(entry.op_context);
    if (ghost != nullptr && ghost->swallow) return 0;
    if (ghost != nullptr) entry.op_context = ghost->context;
    entry.err_data = nullptr;
    std::lock_guard lock(mutex_);
    queue.made_up.push_front(entry);
    return -FI_EAVAIL;
  }

  template <class Read>
  ssize_t read_queue(Link link, fid_cq *, void *buf, size_t count, fi_addr_t *src, Read read) {
    if (rules_.rules.empty()) return read();
    QueueState &queue = queue_of(link);
    std::vector<EndpointState *> waiting;
    {
      std::lock_guard lock(mutex_);
      for (EndpointState *endpoint : queue.endpoints) {
        endpoint->full = false;
        ++endpoint->clock;
      }
      if (queue.overrun) return -FI_EOVERRUN;
      const Verdict verdict = judge(queue.calls, queue.ordinal, kCqRead, 0, 0);
      if (verdict.rule != nullptr) {
        note(queue.calls, verdict);
        switch (verdict.rule->action) {
          case Action::kFail:
            return -static_cast<ssize_t>(verdict.rule->number);
          case Action::kOverrun:
            queue.overrun = true;
            return -FI_EOVERRUN;
          default:
            return -FI_EAGAIN;
        }
      }
      waiting = pinned(queue.endpoints);
    }
    flush_pinned(waiting, false);
    return take_completions(link, queue, buf, count, src, read);
  }

  template <class Read>
  ssize_t take_completions(Link link, QueueState &queue, void *buf, size_t count, fi_addr_t *src,
                           Read read) {
    for (;;) {
      {
        // What an error stands in front of has to wait for it.
        std::lock_guard lock(mutex_);
        if (!queue.made_up.empty() && queue.made_up.front().err != 0) return -FI_EAVAIL;
      }
      const ssize_t rc = read();
      if (rc == -FI_EAVAIL) {
        const ssize_t sorted = sort_error(link, queue);
        if (sorted == 0) continue;
        return sorted;
      }
      if (rc <= 0 && rc != -FI_EAGAIN) return rc;
      if (queue.stride == 0) return rc;
      auto *entries = static_cast<char *>(buf);
      const size_t left =
          rc > 0 ? restore(queue, entries, static_cast<size_t>(rc), src) : size_t{0};
      const ssize_t all = add_made_up(queue, entries, left, count, src);
      if (rc > 0 && all == -FI_EAGAIN) continue;  // all of them were the hook's own
      return all;
    }
  }

  template <class Read, class Wait>
  ssize_t wait_queue(Link link, fid_cq *cq, void *buf, size_t count, fi_addr_t *src, int timeout,
                     Read read, Wait wait) {
    if (rules_.rules.empty()) return wait(timeout);
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::milliseconds(std::max(timeout, 0));
    for (bool first = true;; first = false) {
      const ssize_t rc = first ? read_queue(link, cq, buf, count, src, read)
                               : take_completions(link, queue_of(link), buf, count, src, read);
      if (rc != -FI_EAGAIN) return rc;
      flush_all();
      // A short sleep at a time: what another thread makes up, or holds and finds no room for, has
      // to be looked after.
      const auto begin = Clock::now();
      if (timeout >= 0 && begin >= end) return -FI_EAGAIN;
      auto slice = std::chrono::milliseconds(held_ != 0 ? 10 : 100);
      if (timeout >= 0)
        slice = std::min(slice, std::chrono::ceil<std::chrono::milliseconds>(end - begin));
      const ssize_t woken = take_completions(link, queue_of(link), buf, count, src,
                                             [&] { return wait(int(slice.count())); });
      if (woken != -FI_EAGAIN && woken != 0) return woken;
      // Whoever calls fi_cq_signal ends the wait.
      if (Clock::now() < begin + slice) return -FI_EAGAIN;
    }
  }

  static size_t read_counters(struct fid *fid, weft_counter *counters, size_t count) {
    Fault &self = *static_cast<Fault *>(hook_link<Fault>(fid).hook_state);
    std::lock_guard lock(self.mutex_);
    for (size_t i = 0; i < count && i <= self.names_.size(); ++i) {
      if (i < self.names_.size())
        counters[i] = {self.names_[i].c_str(), self.fired_[i]};
      else
        counters[i] = {"not_applicable", self.not_applicable_};
    }
    return self.names_.size() + 1;
  }

  const weft_instance *instance_;
  const Rules rules_;
  const size_t memory_;
  uint32_t concerned_ = 0;  // operations that some rule is for
  std::atomic<bool> any_full_{false};
  std::atomic<size_t> held_{0};

  // Never held in a call of the provider.
  std::mutex mutex_;
  std::condition_variable idle_;  // nobody is busy with an endpoint any more
  uint64_t ordinals_ = 0;
  std::vector<EndpointState *> endpoints_;
  std::unordered_map<Ghost *, std::unique_ptr<Ghost>> ghosts_;  // in the hands of the provider
  size_t copied_ = 0;
  std::vector<uint64_t> fired_;
  uint64_t not_applicable_ = 0;
  std::vector<std::string> names_;
};

EndpointState::~EndpointState() {
  if (hook != nullptr) hook->forget(this);
}
QueueState::~QueueState() {
  if (hook != nullptr) hook->forget(this);
}

constexpr PluginInfo kPlugin{
    .name = "hook-fault", .vendor = "weft", .version = WEFT_VERSION, .license = "BSD-2-Clause"};

}  // namespace
}  // namespace weft::fault

WEFT_PLUGIN(weft::fault::kPlugin, weft::fault::Fault)
