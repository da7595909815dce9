// SPDX-License-Identifier: BSD-2-Clause
// Cntr: an event counter (fi_cntr.3).
//
// Example:
//    void on_done(Cntr &cntr, uint64_t bytes, int err) {  // by the provider, engine's lock held
//      if (err == 0) cntr.add_events(1, bytes);
//      else cntr.add_error();
//    }
//
// Counts operations or bytes as it was opened for. Reading makes progress; a counter of a device
// (cntr_source.h) is read where the device keeps it. With FI_PEER a counter is imported: each
// operation is counted on the counter of another provider too, the owner (fi_peer.3), with the
// engine's lock held. Reading it drives progress and tells what was counted here. The other calls
// are for the owner's: -FI_ENOSYS. Not a completion queue: it says how many operations have ended,
// never which.
#ifndef WEFT_SDK_OBJECTS_CNTR_H
#define WEFT_SDK_OBJECTS_CNTR_H

#include <weft/sdk/objects/cq.h>

#include <map>
#include <memory>
#include <vector>

struct fid_peer_cntr;

namespace weft::sdk {

class CntrFeeder;
class CntrSource;
class CntrStore;
class Deferred;

class Cntr final : public Object<Cntr, fid_cntr> {
 public:
  static Result<Cntr *> open(DomainContext &domain, const fi_cntr_attr *attr, void *context);
  // A counter of a device. `locked`: false only if the application promised to serialize all calls
  // for this counter.
  static Result<Cntr *> open(DomainContext &domain, const fi_cntr_attr *attr, void *context,
                             std::unique_ptr<CntrSource> source, bool locked);
  // A counter of the domain whose numbers are in a store.
  static Result<Cntr *> open(DomainContext &domain, const fi_cntr_attr *attr, void *context,
                             std::unique_ptr<CntrStore> store);

  void add_events(uint64_t operations, uint64_t bytes) {
    if (store_ != nullptr) [[unlikely]]
      return count_in_store(bytes_ ? bytes : operations);
    value_.fetch_add(bytes_ ? bytes : operations, std::memory_order_relaxed);
    changed();
  }
  void add_error() {
    if (store_ != nullptr) [[unlikely]]
      return count_error_in_store();
    errors_.fetch_add(1, std::memory_order_relaxed);
    changed();
  }
  CntrStore *store() const { return store_.get(); }
  bool counts_bytes() const { return bytes_; }
  // The store has changed by itself.
  void look() { changed(); }
  std::atomic<size_t> users{0};
  // As in Cq; what feeds a counter is a counter, too.
  Engine &engine() { return *engine_.load(std::memory_order_relaxed); }
  const DomainContext &domain() const { return domain_; }
  Cntr *reached_from(DomainContext &from);
  bool is_under(const Engine &engine) const {
    return device_ != nullptr || engine_.load(std::memory_order_relaxed) == &engine;
  }

  // ---- for what waits for a threshold (deferred.h), with the engine's lock held ----
  // Not of a device, which changes by itself, and not imported.
  // Nor one that reports for a lane, which has another lock than what waits.
  bool can_defer() const {
    return device_ == nullptr && store_ == nullptr && import_ == nullptr &&
           is_under(*domain_.engine);
  }
  uint64_t reached() const;  // successes and errors
  void await(Deferred &deferred);
  void leave(Deferred &deferred);
  void change(uint64_t value, bool adds);

  // fi_ops_cntr
  uint64_t read();
  uint64_t readerr();
  int add(uint64_t value);
  int set(uint64_t value);
  int wait(uint64_t threshold, int timeout);
  int adderr(uint64_t value);
  int seterr(uint64_t value);

  // fi_ops
  int close();
  int control(int command, void *arg);
  int ops_open(const char *name, uint64_t flags, void **ops, void *context);

  int trywait();
  bool poll();  // changed since the last poll

 private:
  friend class CntrFeeder;
  bool come_to(DomainContext &to);
  struct Device;
  // Of an imported counter.
  class Import final : public WaitObject::Listener {
   public:
    Import(Cntr &cntr, fid_peer_cntr *owner) : cntr_(cntr), owner_(owner) {}
    void on_notify() override;

   private:
    Cntr &cntr_;
    fid_peer_cntr *const owner_;
    uint64_t value_ = 0, errors_ = 0;  // that the owner knows of
  };
  static const fi_ops_cntr *imported_ops();
  Cntr(DomainContext &domain, const fi_cntr_attr &attr, void *context, fid_peer_cntr *owner,
       std::unique_ptr<Device> device, std::unique_ptr<CntrStore> store);
  ~Cntr();
  static Result<Cntr *> open(DomainContext &domain, const fi_cntr_attr *attr, void *context,
                             std::unique_ptr<Device> device, std::unique_ptr<CntrStore> store);
  void count_in_store(uint64_t amount);
  void count_error_in_store();
  uint64_t value() const;
  uint64_t errors() const;
  // A read has found `now`.
  bool is_turn_over(Engine &engine, uint64_t now);
  // Since the last call.
  bool has_changed();
  void changed() {
    changed_ = true;
    wait_.notify();
    if (awaited_.load(std::memory_order_relaxed)) [[unlikely]]
      tell_deferred();
  }
  void collect_due();
  void tell_deferred();
  enum class Which { kValue, kErrors };
  int update(Which which, uint64_t value, bool add);

  DomainContext &domain_;
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<CntrStore> store_;
  const std::unique_ptr<Import> import_;
  std::atomic<Engine *> engine_;   // changes with the locks of both held
  DomainContext *home_ = nullptr;  // the lane whose engine it is
  const bool bytes_;
  std::atomic<uint64_t> value_{0}, errors_{0};
  std::atomic<uint64_t> last_read_{0};
  bool changed_ = false;              // since the last poll or trywait
  std::atomic<bool> awaited_{false};  // there is something in `deferred_`
  std::multimap<uint64_t, Deferred *> deferred_;
  uint64_t seen_value_ = 0, seen_errors_ = 0;  // of a device, by the last poll or trywait
  WaitObject wait_;
  WaitSet *wait_set_ = nullptr;                       // FI_WAIT_SET: the set it joined
  std::vector<std::unique_ptr<CntrFeeder>> feeders_;  // one for each other lane
};

}  // namespace weft::sdk

#endif
