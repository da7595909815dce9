// SPDX-License-Identifier: BSD-2-Clause
// Cq: a completion queue in all formats and with all wait objects (fi_cq.3), for any provider that
// has an Engine.
//
// Example:
//    void on_done(Engine &engine, Cq &cq, void *context, size_t n, int err) {
//      Guard guard(engine.lock());
//      if (err == 0)
//        cq.push({.context = context, .flags = FI_SEND | FI_MSG, .len = n});
//      else
//        cq.push_error({.context = context, .flags = FI_SEND | FI_MSG, .err = err});
//    }
//
// push() and full() are for the provider, with the engine's lock held; applications call the rest.
// A queue never loses a completion under FI_RM_ENABLED: it grows, and the operations that its
// endpoints let be posted bound it. So all providers keep one rule. It is about entries that a peer
// causes and that use up no posted operation: a message into a multi-receive buffer, a remote write
// with data. The provider takes the peer's bytes only while holds_back() is false; else the bytes
// stay where they are. A handler that has to wait marks itself dirty, and is flushed when there is
// room. A provider that stops reading while a queue is full keeps the rule for all that it reads.
// What an application causes by its own call is reported at once, also if the queue is full. Under
// FI_RM_DISABLED a full queue overruns: its entries can be read, then it says FI_EOVERRUN for ever
// (fi_cq.3, NOTES). A queue whose entries a device makes has a CqSource (cq_source.h), and grows in
// either case: the device has accepted those entries.
//
// With FI_PEER a queue is imported: another provider owns the queue that the application reads, and
// gets each entry by its write() and writeerr(), with the engine's lock held. What it does not take
// at once waits here for the next progress. It drives progress by fi_cq_read() of no entries; the
// other ways to read give -FI_ENOSYS (fi_peer.3). Nothing changes for the provider that push()es.
//
// Not for operations or matching: it knows neither.
#ifndef WEFT_SDK_OBJECTS_CQ_H
#define WEFT_SDK_OBJECTS_CQ_H

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <weft/sdk/memory/lazy_array.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/progress/wait.h>

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

struct fid_peer_cq;

namespace weft::sdk {

class Address;
class AvKeys;
class CqFeeder;
class CqSource;
class CqWriter;
class DeferredQueue;
class Hmem;
class MrTable;
class SharedReceiveContext;
class WaitSet;
struct Lane;

// What the queues, counters and regions of a domain share. Lives in the domain, as long as its
// objects.
struct DomainContext {
  const weft_instance *instance = nullptr;
  struct fid *fid = nullptr;  // the domain's
  Engine *engine = nullptr;
  uint32_t api_version = 0;         // of the fabric
  bool resource_management = true;  // FI_RM_ENABLED
  size_t default_cq_size = 1024;
  bool hmem = false;               // FI_HMEM: memory may be a device's
  const Hmem *devices = nullptr;   // FI_HMEM, of a domain that copies: its devices
  bool user_ids = false;           // FI_AV_USER_ID: its address vectors can have them
  AvKeys *av_keys = nullptr;       // FI_AV_AUTH_KEY: its address vectors have keys (av_keys.h)
  bool read_by_layer = false;      // its entries are whole, whatever the application's API version
  bool keeps_descriptors = false;  // its receivers keep those of receives (receiver.h)
  bool keeps_receives = false;     // ReceiverSink::keep() is asked for each receive
  // What fi_cq_strerror says of a prov_errno; null, or what gives null: the operating system's
  // text.
  const char *(*text_of)(int prov_errno) = nullptr;
  // Whether a peer may come into an address vector of the domain: 0, or the -FI_E... of
  // fi_av_insert, and the domain logs why. Null: each may whose address can be read. With the
  // engine's lock held.
  int (*check_peer)(DomainContext &domain, const Address &peer) = nullptr;
  // What counters start (deferred.h). Null: its device does.
  DeferredQueue *deferred = nullptr;
  std::atomic<size_t> children{0};  // open objects; a domain with some is busy
  std::vector<SharedReceiveContext *> shared_receives{};  // open ones; with the engine's lock held
  MrTable *regions = nullptr;                             // of a domain in software
  // Of a lane (scalable.h): the context that it is for, and the application's domain, or the domain
  // of the inner provider beneath that one.
  const Lane *lane = nullptr;
  DomainContext *origin = nullptr;

  // The domain that the application knows.
  const DomainContext &known() const { return lane != nullptr ? *origin : *this; }
};

// `home` counts the object that lives under its lock, unless it is the domain that the application
// knows: that one counts its objects anyway.
inline void move_home(DomainContext *&home, DomainContext &to) {
  if (home != nullptr) home->children.fetch_sub(1);
  home = to.lane != nullptr ? &to : nullptr;
  if (home != nullptr) home->children.fetch_add(1);
}

struct Completion {
  void *context = nullptr;
  uint64_t flags = 0;
  size_t len = 0;
  void *buf = nullptr;
  uint64_t data = 0;
  uint64_t tag = 0;
  fi_addr_t src_addr = FI_ADDR_NOTAVAIL;
};

struct CompletionError {
  void *context = nullptr;
  uint64_t flags = 0;
  size_t len = 0;
  void *buf = nullptr;
  uint64_t data = 0;
  uint64_t tag = 0;
  size_t olen = 0;
  int err = 0;         // positive FI_E...
  int prov_errno = 0;  // for strerror: positive errno or FI_E...
  std::string err_data;
  fi_addr_t src_addr = FI_ADDR_NOTAVAIL;
};

class Cq final : public Object<Cq, fid_cq> {
 public:
  static Result<Cq *> open(DomainContext &domain, const fi_cq_attr *attr, void *context);
  // A queue of a device. `locked`: false only if the application promised to serialize all calls
  // for this queue (FI_THREAD_COMPLETION, FI_THREAD_DOMAIN).
  static Result<Cq *> open(DomainContext &domain, const fi_cq_attr *attr, void *context,
                           std::unique_ptr<CqSource> source, bool locked);

  // For the provider, with the lock held.
  void push(const Completion &completion) {
    if (tail_ - head_ >= room_ && !needs_place(completion)) return;
    ring_[tail_++ & mask_] = completion;
    wait_.notify();
  }
  void push_error(CompletionError error);
  // Of an imported queue: its owner has not taken all of it yet.
  bool has_untold() const { return owner_ != nullptr && head_ != tail_; }
  bool full() const { return tail_ - head_ >= size_; }
  // Full, and the application asked to be protected from that (FI_RM_ENABLED).
  bool holds_back() const { return full() && domain_.resource_management; }
  // fi_cancel and a closing endpoint touch no entry of the queue: reported completions stay.
  std::atomic<size_t> users{0};  // endpoints bound; a queue with some is busy
  // The domain's; of a device's queue: its own; of a queue that a context of a scalable endpoint
  // reports to: the lane's.
  Engine &engine() { return *engine_.load(std::memory_order_relaxed); }
  const DomainContext &domain() const { return domain_; }
  CqSource *source() const;
  // The queue to push() to under the lock of `from`, the domain or a lane of it: this one, whose
  // engine becomes that of `from`, or, where it is in use under another lock, one that feeds it.
  // Without a lock held.
  Cq *reached_from(DomainContext &from);
  // Whether one may push() with the lock of this engine held, or always. With that lock held it
  // stays so.
  bool is_under(const Engine &engine) const {
    return device_ != nullptr || engine_.load(std::memory_order_relaxed) == &engine;
  }

  // fi_ops_cq
  ssize_t read(void *buf, size_t count);
  ssize_t readfrom(void *buf, size_t count, fi_addr_t *src_addr);
  ssize_t readerr(struct fi_cq_err_entry *buf, uint64_t flags);
  ssize_t sread(void *buf, size_t count, const void *cond, int timeout) {
    return sreadfrom(buf, count, nullptr, cond, timeout);
  }
  ssize_t sreadfrom(void *buf, size_t count, fi_addr_t *src_addr, const void *cond, int timeout);
  int signal();
  const char *strerror(int prov_errno, const void *err_data, char *buf, size_t len);

  // fi_ops
  int close();
  int control(int command, void *arg);

  // 0: a wait on the descriptor is safe; -FI_EAGAIN: there is something to read (fi_trywait).
  int trywait();
  // For poll sets: whether there is something to read after some progress.
  bool poll();

 private:
  friend class CqFeeder;
  friend class CqWriter;
  bool come_to(DomainContext &to);
  struct Device;
  Cq(DomainContext &domain, const fi_cq_attr &attr, void *context, fid_peer_cq *owner,
     std::unique_ptr<Device> device);
  ~Cq();
  static Result<Cq *> open(DomainContext &domain, const fi_cq_attr *attr, void *context,
                           std::unique_ptr<Device> device);

  // An entry of the ring that stands for errors_.front() in order.
  static constexpr uint64_t kError = UINT64_C(1) << 63;
  // The ring has no room. False: there is nothing to do any more, since the owner has taken the
  // completion, or the queue has overrun.
  bool needs_place(Completion completion);
  bool make_room();
  bool is_empty() const { return head_ == tail_ && !overrun_; }
  ssize_t take(void *buf, size_t count, fi_addr_t *src_addr);
  ssize_t read_ring(Engine &engine, void *buf, size_t count, fi_addr_t *src_addr);
  ssize_t read_here(void *buf, size_t count, fi_addr_t *src_addr);
  ssize_t read_device(void *buf, size_t count, fi_addr_t *src_addr);
  ssize_t read_before_device(void *buf, size_t count, fi_addr_t *src_addr);
  static const fi_ops_cq *device_ops();
  void overrun();

  // Of an imported queue: whether the owner has taken it, and everything before it.
  bool tell(const Completion &completion);
  bool tell(const CompletionError &error);
  bool tell_waiting();
  ssize_t read_for_owner(const void *buf, size_t count);
  static const fi_ops_cq *imported_ops();

  DomainContext &domain_;
  fid_peer_cq *const owner_;  // of an imported queue
  const std::unique_ptr<Device> device_;
  std::atomic<Engine *> engine_;   // changes with the locks of both held
  DomainContext *home_ = nullptr;  // the lane whose engine it is
  const enum fi_cq_format format_;
  const bool threshold_;        // FI_CQ_COND_THRESHOLD
  const size_t size_;           // asked for; the ring may grow beyond it
  LazyArray<Completion> ring_;  // of mask_ + 1 entries
  size_t mask_;
  size_t room_;  // entries of the ring; 0 after an overrun, and of an imported queue
  size_t head_ = 0, tail_ = 0;
  bool overrun_ = false;
  bool signal_pending_ = false;
  uint64_t signals_ = 0;
  std::deque<CompletionError> errors_;
  std::string last_err_data_;  // what the last error entry given out points to
  WaitObject wait_;
  WaitSet *wait_set_ = nullptr;                     // FI_WAIT_SET: the set it joined
  std::vector<std::unique_ptr<CqFeeder>> feeders_;  // one for each other lane
};

// The text of an errno or FI_E... code, for fi_cq_strerror and fi_eq_strerror: thread-safe, written
// into buf if there is one.
const char *strerror_into(int code, char *buf, size_t len);

}  // namespace weft::sdk

#endif
