// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/objects/cq.h>

#include <string.h>
#include <weft/sdk/devices/cq_source.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/sets.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstdio>
#include <mutex>
#include <new>
#include <utility>

#include "exported.h"
#include "feeder.h"
#include "peer.h"

namespace weft::sdk {
namespace {

constexpr size_t kMaxSize = size_t(1) << 48;  // entries: no memory has as many

}  // namespace

const char *strerror_into(int code, char *buf, size_t len) {
  static thread_local char own[128];
  if (buf == nullptr || len == 0) {
    buf = own;
    len = sizeof own;
  }
  static constexpr struct {
    int code;
    const char *text;
  } kTexts[] = {
      {FI_EOTHER, "unspecified error"},
      {FI_ETOOSMALL, "provided buffer is too small"},
      {FI_EOPBADSTATE, "operation not permitted in this state"},
      {FI_EAVAIL, "error available"},
      {FI_EBADFLAGS, "flags not supported"},
      {FI_ENOEQ, "missing or unavailable event queue"},
      {FI_EDOMAIN, "invalid resource domain"},
      {FI_ENOCQ, "missing or unavailable completion queue"},
      {FI_ECRC, "checksum error"},
      {FI_ETRUNC, "message truncated: longer than the posted buffer"},
      {FI_ENOKEY, "required key not available"},
      {FI_ENOAV, "missing or unavailable address vector"},
      {FI_EOVERRUN, "queue has been overrun"},
      {FI_ENORX, "no receive buffer posted at the peer"},
      {FI_ENOMR, "no memory registration"},
  };
  if (code < 0 && code != INT_MIN) code = -code;
  for (const auto &t : kTexts) {
    if (t.code != code) continue;
    snprintf(buf, len, "%s", t.text);
    return buf;
  }
  char text[128];
  // The GNU form returns a pointer that need not be `text`.
  const char *said = strerror_r(code, text, sizeof text);
  snprintf(buf, len, "%s", said);
  return buf;
}

// Blocking calls collect the device's entries in the ring.
struct Cq::Device final : DeviceEngine<CqSource> {
  using DeviceEngine::DeviceEngine;
  void on_poll() override;
  bool may_wait() override {
    const bool quiet = source->arm();
    return quiet || cq->full();  // the next read goes on
  }

  Cq *cq = nullptr;
};

Cq::Cq(DomainContext &domain, const fi_cq_attr &attr, void *context, fid_peer_cq *owner,
       std::unique_ptr<Device> device)
    : Object(domain.instance, FI_CLASS_CQ, owner != nullptr ? owner : context),
      domain_(domain),
      owner_(owner),
      device_(std::move(device)),
      engine_(device_ != nullptr ? &device_->engine : domain.engine),
      format_(attr.format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_CONTEXT : attr.format),
      threshold_(raw(attr.wait_cond) == FI_CQ_COND_THRESHOLD),
      size_(attr.size != 0 ? attr.size : domain.default_cq_size),
      ring_(make_lazy_array<Completion>(std::bit_ceil(size_))),
      mask_(std::bit_ceil(size_) - 1),
      room_(owner == nullptr ? mask_ + 1 : 0) {
  c()->fid.ops = const_cast<fi_ops *>(fid_ops<Cq>());
  c()->ops = const_cast<fi_ops_cq *>(owner != nullptr     ? imported_ops()
                                     : device_ != nullptr ? device_ops()
                                                          : cq_ops<Cq>());
  if (device_ != nullptr) device_->yield_as(*domain.engine);
}

Cq::~Cq() = default;

CqSource *Cq::source() const {
  return device_ != nullptr ? device_->source.get() : nullptr;
}

Result<Cq *> Cq::open(DomainContext &domain, const fi_cq_attr *attr, void *context) {
  return open(domain, attr, context, nullptr);
}

Result<Cq *> Cq::open(DomainContext &domain, const fi_cq_attr *attr, void *context,
                      std::unique_ptr<CqSource> source, bool locked) {
  return open(domain, attr, context, std::make_unique<Device>(std::move(source), locked));
}

Result<Cq *> Cq::open(DomainContext &domain, const fi_cq_attr *attr, void *context,
                      std::unique_ptr<Device> device) {
  const fi_cq_attr defaults{};
  if (attr == nullptr) attr = &defaults;
  if (raw(attr->format) < FI_CQ_FORMAT_UNSPEC || raw(attr->format) > FI_CQ_FORMAT_TAGGED)
    return fail(FI_EINVAL, "fi_cq_attr.format %d: not one of enum fi_cq_format", raw(attr->format));
  const int cond = raw(attr->wait_cond);  // ignored with FI_WAIT_NONE (fi_cq.3)
  if (raw(attr->wait_obj) != FI_WAIT_NONE && cond != FI_CQ_COND_NONE &&
      cond != FI_CQ_COND_THRESHOLD)
    return fail(FI_EINVAL, "fi_cq_attr.wait_cond %d: not one of enum fi_cq_wait_cond", cond);
  if (attr->flags & ~uint64_t(FI_AFFINITY | FI_PEER))
    return fail(FI_EBADFLAGS, "fi_cq_attr.flags %#llx: only FI_AFFINITY and FI_PEER are known",
                (unsigned long long)attr->flags);
  if (attr->size > kMaxSize)
    return fail(FI_ENOMEM, "fi_cq_attr.size %zu: no memory for as many entries", attr->size);
  fid_peer_cq *owner = nullptr;
  if (attr->flags & FI_PEER) {
    WEFT_TRY(owner, peer_cq(context));
  }
  Cq *cq = new (std::nothrow) Cq(domain, *attr, context, owner, std::move(device));
  if (cq == nullptr || cq->ring_ == nullptr) {
    delete cq;
    return fail(FI_ENOMEM, "no memory for a completion queue of %zu entries", attr->size);
  }
  Engine &engine = cq->engine();
  auto opened = cq->wait_.open(raw(attr->wait_obj));
  if (opened && attr->wait_obj == FI_WAIT_SET)
    opened = WaitSet::check(attr->wait_set, domain.instance);
  if (opened) {
    Guard guard(engine.lock());
    cq->wait_.add_source({.engine = &engine, .held = true});
    if (cq->device_ != nullptr) {
      cq->device_->cq = cq;
      cq->device_->start();
    }
  }
  if (opened && attr->wait_obj == FI_WAIT_SET) {
    cq->wait_set_ = WaitSet::from(attr->wait_set);
    opened = cq->wait_set_->join(cq->base(), {.engine = &engine}, cq->wait_);
  }
  if (opened) opened = cq->publish(domain.fid);
  if (!opened) {
    if (cq->wait_set_ != nullptr) cq->wait_set_->leave(cq->base(), {.engine = &engine});
    delete cq;
    return tl::unexpected(opened.error());
  }
  domain.children.fetch_add(1, std::memory_order_relaxed);
  return cq;
}

void Cq::overrun() {
  overrun_ = true;
  room_ = 0;
  wait_.notify();
}

bool Cq::needs_place(Completion completion) {
  if (owner_ != nullptr && tell(completion)) return false;
  return !overrun_ && (tail_ - head_ <= mask_ || make_room());
}

bool Cq::make_room() {
  // Under FI_RM_DISABLED a full queue overruns.
  LazyArray<Completion> bigger;
  if (domain_.resource_management || device_ != nullptr)
    bigger = make_lazy_array<Completion>(2 * (mask_ + 1));
  if (bigger == nullptr) {
    overrun();
    return false;
  }
  const size_t count = tail_ - head_;
  for (size_t i = 0; i < count; ++i) bigger[i] = ring_[(head_ + i) & mask_];
  ring_.swap(bigger);
  mask_ = 2 * mask_ + 1;
  if (owner_ == nullptr) room_ = mask_ + 1;
  head_ = 0;
  tail_ = count;
  return true;
}

void Cq::push_error(CompletionError error) {
  if (owner_ != nullptr && tell(error)) return;
  if (overrun_ || (tail_ - head_ > mask_ && !make_room())) return;
  try {
    errors_.push_back(std::move(error));
  } catch (const std::bad_alloc &) {
    return overrun();
  }
  ring_[tail_++ & mask_] = Completion{.flags = kError};
  wait_.notify();
}

// Inline: most reads find one entry, or none.
[[gnu::always_inline]] inline ssize_t Cq::take(void *buf, size_t count, fi_addr_t *src_addr) {
  if (head_ == tail_) {
    if (overrun_) return -FI_EAVAIL;
    wait_.clear();
    return -FI_EAGAIN;
  }
  if (ring_[head_ & mask_].flags & kError) return -FI_EAVAIL;
  if (buf == nullptr && count != 0) return -FI_EINVAL;
  const bool was_full = full();
  auto *out = static_cast<char *>(buf);
  size_t n = 0;
  for (; n < count && head_ != tail_; ++n, ++head_) {
    const Completion &c = ring_[head_ & mask_];
    if (c.flags & kError) break;
    out = write_entry(out, format_, c);
    if (src_addr != nullptr) *src_addr++ = c.src_addr;
  }
  if (was_full) engine().flush();  // handlers may have waited for room
  return ssize_t(n);
}

// Inline, so that fi_cq_read is one function.
[[gnu::always_inline]] inline ssize_t Cq::read_ring(Engine &engine, void *buf, size_t count,
                                                    fi_addr_t *src_addr) {
  engine.flush();
  // fi_cq.3: a count of 0 drives progress, and takes nothing.
  if (is_empty() || count == 0) engine.progress();
  return take(buf, count, src_addr);
}

[[gnu::always_inline]] inline ssize_t Cq::read_here(void *buf, size_t count, fi_addr_t *src_addr) {
  ssize_t n;
  bool over;
  {
    EngineGuard held(engine_);
    n = read_ring(held.engine, buf, count, src_addr);
    over = held.engine.is_turn_over(n != -FI_EAGAIN);
  }
  if (over) [[unlikely]]
    Engine::give_way(engine_);
  return n;
}

ssize_t Cq::read(void *buf, size_t count) {
  return read_here(buf, count, nullptr);
}

ssize_t Cq::readfrom(void *buf, size_t count, fi_addr_t *src_addr) {
  return read_here(buf, count, src_addr);
}

ssize_t Cq::readerr(struct fi_cq_err_entry *buf, uint64_t) {
  if (buf == nullptr) return -FI_EINVAL;
  EngineGuard held(engine_);
  CompletionError error{.err = FI_EOVERRUN, .prov_errno = FI_EOVERRUN};
  if (head_ != tail_) {
    if (!(ring_[head_ & mask_].flags & kError)) return -FI_EAGAIN;
    const bool was_full = full();
    ++head_;
    error = std::move(errors_.front());
    errors_.pop_front();
    if (was_full) held.engine.flush();
  } else if (!overrun_) {
    return -FI_EAGAIN;
  }
  buf->op_context = error.context;
  buf->flags = error.flags;
  buf->len = error.len;
  buf->buf = error.buf;
  buf->data = error.data;
  buf->tag = error.tag;
  buf->olen = error.olen;
  buf->err = error.err;
  buf->prov_errno = error.prov_errno;
  // The struct grew: err_data_size with API 1.5, src_addr with 1.20. An older application's ends
  // before them. A layer's never does, but its fabric has the version of the application.
  const auto since = [this](uint32_t major, uint32_t minor) {
    return domain_.read_by_layer || FI_VERSION_GE(domain_.api_version, FI_VERSION(major, minor));
  };
  last_err_data_ = std::move(error.err_data);
  const bool sized = since(1, 5);
  if (sized && buf->err_data != nullptr && buf->err_data_size > 0) {
    const size_t n = std::min(buf->err_data_size, last_err_data_.size());
    memcpy(buf->err_data, last_err_data_.data(), n);
    buf->err_data_size = n;
  } else {
    buf->err_data = last_err_data_.empty() ? nullptr : last_err_data_.data();
    if (sized) buf->err_data_size = last_err_data_.size();
  }
  if (since(1, 20)) buf->src_addr = error.src_addr;
  return 1;
}

ssize_t Cq::sreadfrom(void *buf, size_t count, fi_addr_t *src_addr, const void *cond, int timeout) {
  if (!wait_.can_block()) return -FI_EINVAL;
  size_t threshold = 1;
  if (threshold_ && cond != nullptr) {
    // The pointer itself is the number (fi_cq.3, fi_cq_attr.wait_cond).
    threshold = std::clamp<size_t>(reinterpret_cast<uintptr_t>(cond), 1, size_);
  }
  const Deadline deadline(timeout);
  const bool yields = wait_.type() == FI_WAIT_YIELD;
  Engine &engine = EngineGuard::hold(engine_);  // it does not change while a thread waits
  std::unique_lock lock(engine.lock(), std::adopt_lock);
  WaitObject::Waiter waiter(wait_);
  YieldingWait yielding;
  bool interrupted = false;
  const uint64_t signals = signals_;
  for (;;) {
    engine.flush();
    if (tail_ - head_ < threshold) engine.progress();
    const bool signalled = signals != signals_ || std::exchange(signal_pending_, false);
    const bool enough = tail_ - head_ >= threshold || !errors_.empty() || overrun_;
    if (enough || signalled || deadline.passed()) return take(buf, count, src_addr);
    if (interrupted) {
      const ssize_t n = take(buf, count, src_addr);
      return n == -FI_EAGAIN ? -FI_EINTR : n;
    }
    // What is here was seen; below a threshold only more of it is a reason to wake.
    waiter.looked();
    const int rc = yields ? 0 : waiter.prepare(instance(), FI_LOG_CQ, "fi_cq_sread");
    if (rc != 0) return rc;
    lock.unlock();
    interrupted = !(yields ? yielding.yield() : waiter.block(deadline.left_ms()));
    lock.lock();
  }
}

int Cq::signal() {
  EngineGuard held(engine_);
  if (wait_.awaited()) {
    ++signals_;
  } else {
    signal_pending_ = true;
  }
  wait_.notify();
  return 0;
}

const char *Cq::strerror(int prov_errno, const void *, char *buf, size_t len) {
  const char *const said = device_ != nullptr           ? device_->source->text_of(prov_errno)
                           : domain_.text_of != nullptr ? domain_.text_of(prov_errno)
                                                        : nullptr;
  return said != nullptr ? ops_detail::copy_text(said, buf, len)
                         : strerror_into(prov_errno, buf, len);
}

// ---- a queue that several lanes report to ----

// What the queue of a lane, an imported one, has as its owner.
class CqFeeder final : public Feeder {
 public:
  CqFeeder(DomainContext &lane, Cq &to) : Feeder(lane, to.engine()), to_(to) {
    fi_cq_attr attr{};
    attr.size = to.size_;
    owner_.feeder = this;
    owner_.peer.owner_ops = &kOps;
    cq = new Cq(lane, attr, nullptr, &owner_.peer, nullptr);
  }
  ~CqFeeder() { delete cq; }
  Cq *cq;

 private:
  struct Owner {
    fid_peer_cq peer{};  // the first member
    CqFeeder *feeder = nullptr;
  };
  static CqFeeder &of(fid_peer_cq *peer) { return *reinterpret_cast<Owner *>(peer)->feeder; }
  static ssize_t write(fid_peer_cq *peer, void *context, uint64_t flags, size_t len, void *buf,
                       uint64_t data, uint64_t tag, fi_addr_t source) {
    return of(peer).add({context, flags, len, buf, data, tag, source}, {});
  }
  static ssize_t writeerr(fid_peer_cq *peer, const fi_cq_err_entry *entry) {
    return of(peer).add({.flags = Cq::kError}, error_of(*entry));
  }
  static fi_ops_cq_owner kOps;

  ssize_t add(const Completion &completion, CompletionError error) {
    ssize_t rc = 0;
    put([&] {
      try {
        if (waiting_.size() >= to_.size_) rc = -FI_EAGAIN;
        if (rc == 0) waiting_.emplace_back(completion, std::move(error));
      } catch (const std::bad_alloc &) {
        rc = -FI_ENOMEM;
      }
    });
    return rc;
  }
  void empty() override {
    while (!waiting_.empty() && !to_.holds_back()) {
      auto &[completion, error] = waiting_.front();
      if (completion.flags & Cq::kError) {
        to_.push_error(std::move(error));
      } else {
        to_.push(completion);
      }
      waiting_.pop_front();
    }
    if (!waiting_.empty()) leave_filled();
  }
  void on_progress() override {
    const bool was_full = cq->full();
    cq->tell_waiting();
    if (was_full && !cq->full()) cq->engine().flush();  // handlers may have waited for room
  }

  Cq &to_;
  Owner owner_;
  std::deque<std::pair<Completion, CompletionError>> waiting_;
};

fi_ops_cq_owner CqFeeder::kOps = {
    .size = sizeof(fi_ops_cq_owner), .write = &CqFeeder::write, .writeerr = &CqFeeder::writeerr};

Cq *Cq::reached_from(DomainContext &from) {
  if (come_to(from)) return this;
  EngineGuard held(engine_);
  for (const auto &feeder : feeders_)
    if (&feeder->lane() == &from) return feeder->cq;
  feeders_.push_back(std::make_unique<CqFeeder>(from, *this));
  feeders_.back()->start();
  return feeders_.back()->cq;
}

bool Cq::come_to(DomainContext &to) {
  if (is_under(*to.engine)) return true;
  return change_engine(engine_, *to.engine, wait_, [&] {
    if (users.load() != 0 || wait_.awaited() || wait_set_ != nullptr || !feeders_.empty())
      return false;
    move_home(home_, to);
    return true;
  });
}

int Cq::close() {
  if (users.load() != 0) return -FI_EBUSY;
  if (wait_set_ != nullptr) wait_set_->leave(base(), {.engine = &engine()});
  {
    EngineGuard held(engine_);
    for (const auto &feeder : feeders_) feeder->stop();
  }
  feeders_.clear();
  retire();
  if (home_ != nullptr) home_->children.fetch_sub(1);
  domain_.children.fetch_sub(1, std::memory_order_relaxed);
  delete this;
  return 0;
}

int Cq::control(int command, void *arg) {
  if (command == FI_EXPORT_FID) return owner_ == nullptr ? export_fid(*this, arg) : -FI_ENOSYS;
  if (command == WEFT_QUEUE) {
    if (owner_ != nullptr || device_ != nullptr || arg == nullptr) return -FI_ENOSYS;
    *static_cast<weft_queue *>(arg) = {.cq = c(), .has_entries = [](fid_cq *fid) {
                                         Cq &cq = *from(fid);
                                         EngineGuard held(cq.engine_);
                                         return int(!cq.is_empty());
                                       }};
    return 0;
  }
  EngineGuard held(engine_);
  return wait_.control(command, arg);
}

int Cq::trywait() {
  EngineGuard held(engine_);
  if (is_empty()) held.engine.progress();
  if (!is_empty()) return -FI_EAGAIN;
  wait_.clear();
  const int rc = wait_.arm(instance(), FI_LOG_CQ);
  return rc == 0 ? wait_.arm_relays() : rc;
}

bool Cq::poll() {
  EngineGuard held(engine_);
  held.engine.flush();
  if (is_empty()) held.engine.progress();
  return !is_empty();
}

// ---- a device's queue ----

// Up to the size that was asked for: what nobody reads stays in the device.
void Cq::Device::on_poll() {
  constexpr size_t kAtOnce = 64;
  const size_t have = cq->tail_ - cq->head_;
  if (have >= cq->size_) return;
  CqWriter out(*cq, nullptr, std::min(kAtOnce, cq->size_ - have), nullptr);
  source->read(out);
}

// The engine is the queue's own for ever, and serves the device alone.
[[gnu::always_inline]] inline ssize_t Cq::read_device(void *buf, size_t count,
                                                      fi_addr_t *src_addr) {
  {
    Guard guard(device_->engine.lock());
    if (!is_empty() || count == 0) [[unlikely]]
      return read_before_device(buf, count, src_addr);
    if (buf == nullptr) [[unlikely]]
      return -FI_EINVAL;
    CqWriter out(*this, buf, count, src_addr);
    device_->source->read(out);
    const bool found = out.written_ != 0 || out.rings_;
    const bool over = device_->engine.is_turn_over(found);
    if (out.written_ != 0) return ssize_t(out.written_);
    if (found) [[unlikely]]  // an error
      return -FI_EAVAIL;
    wait_.clear();
    if (!over) return -FI_EAGAIN;
  }
  device_->engine.give_way();
  return -FI_EAGAIN;
}

// What software has made comes first.
[[gnu::noinline]] ssize_t Cq::read_before_device(void *buf, size_t count, fi_addr_t *src_addr) {
  return read_ring(device_->engine, buf, count, src_addr);
}

// Readers of a device poll it without a detour.
const fi_ops_cq *Cq::device_ops() {
  static const fi_ops_cq table = [] {
    fi_ops_cq ops = *cq_ops<Cq>();
    ops.read = [](fid_cq *fid, void *buf, size_t count) noexcept {
      return ops_detail::guarded<ssize_t>(
          [=] { return from(fid)->read_device(buf, count, nullptr); });
    };
    ops.readfrom = [](fid_cq *fid, void *buf, size_t count, fi_addr_t *src_addr) noexcept {
      return ops_detail::guarded<ssize_t>(
          [=] { return from(fid)->read_device(buf, count, src_addr); });
    };
    return ops;
  }();
  return &table;
}

void CqWriter::put_in_ring(void *context, uint64_t flags, size_t len, void *buf, uint64_t data,
                           uint64_t tag, fi_addr_t source) {
  rings_ = true;  // the source may have taken more than was wanted
  if (room_ != 0) --room_;
  cq_.push({context, flags, len, buf, data, tag, source});
}

void CqWriter::put_error(CompletionError error) {
  rings_ = true;
  if (room_ != 0) --room_;
  cq_.push_error(std::move(error));
}

}  // namespace weft::sdk
