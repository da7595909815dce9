// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/memory/mr.h>

#include <endian.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/memory/persist.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/objects/ops.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace weft::sdk {

const char *text_of(MrReject reject) {
  switch (reject) {
    case MrReject::kNone:
      return "accepted";
    case MrReject::kNoKey:
      return "no region with this key";
    case MrReject::kDisabled:
      return "the region is not enabled yet";
    case MrReject::kAccess:
      return "the region does not grant this access";
    case MrReject::kRange:
      return "the range lies outside of the region";
  }
  return "unknown";
}

MrTable::Mode MrTable::Mode::of(int mr_mode) {
  // Two names of API versions before 1.5; the second is the absence of all bits.
  if (mr_mode == FI_MR_BASIC) return {.virtual_addresses = true, .provider_keys = true};
  return {.virtual_addresses = (mr_mode & FI_MR_VIRT_ADDR) != 0,
          .provider_keys = (mr_mode & FI_MR_PROV_KEY) != 0,
          .enable_needed = (mr_mode & FI_MR_RMA_EVENT) != 0,
          .endpoint_needed = (mr_mode & FI_MR_ENDPOINT) != 0};
}

Mr::Mr(MrTable &table, const fi_mr_attr &attr, uint64_t flags, uint64_t key, bool enabled,
       uint64_t holder)
    : Object(table.domain_.instance, FI_CLASS_MR, attr.context),
      table_(table),
      iov_(attr.mr_iov, attr.mr_iov + attr.iov_count),
      access_(attr.access),
      fid_key_(key),
      holder_(holder),
      persistent_((flags & FI_RMA_PMEM) != 0),
      enabled_(enabled) {
  for (const iovec &v : iov_) length_ += v.iov_len;
  c()->fid.ops = const_cast<fi_ops *>(fid_ops<Mr>());
  c()->mem_desc = this;
  c()->key = key;
}

Mr::Mr(MrTable &table, Mr &lent)
    : Object(table.domain_.instance, FI_CLASS_MR, nullptr),
      table_(table),
      iov_(lent.iov_),
      length_(lent.length_),
      access_(lent.access_),
      fid_key_(lent.fid_key_),
      holder_(lent.holder_),
      persistent_(lent.persistent_),
      enabled_(true),
      endpoint_(lent.endpoint_),
      lender_(&lent) {}

// What lanes have counted, in the engine of the regions' domain.
class MrTable::FarCounts final : public Poller {
 public:
  explicit FarCounts(MrTable &table) : table_(table) { engine().add_poller(*this); }
  ~FarCounts() {
    engine().remove_poller(*this);
    if (const int event = event_.load(); event >= 0) ::close(event);
  }
  // By a lane.
  void tell() {
    if (filled_.exchange(true)) return;
    if (const int event = event_.load(); event >= 0) eventfd_write(event, 1);
  }
  static void report(Mr &mr) {
    for (auto &[far, cntr] :
         {std::pair(&mr.far_write_, mr.remote_write_), std::pair(&mr.far_read_, mr.remote_read_)}) {
      const uint64_t operations = far->operations.exchange(0), bytes = far->bytes.exchange(0);
      if (operations != 0 && cntr != nullptr) cntr->add_events(operations, bytes);
    }
  }
  void on_poll() override {
    if (!filled_.exchange(false)) return;
    eventfd_t count;
    if (const int event = event_.load(); event >= 0) eventfd_read(event, &count);
    for (auto &[key, mr] : table_.regions_) report(*mr);
  }
  int wait_fds(std::vector<int> &fds) override {
    if (event_.load() < 0) event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (event_.load() < 0) return -errno;
    fds.push_back(event_.load());
    return 0;
  }
  bool may_wait() override { return !filled_.load(); }

 private:
  Engine &engine() { return *table_.domain_.engine; }
  MrTable &table_;
  std::atomic<bool> filled_{false};
  std::atomic<int> event_{-1};
};

MrTable::MrTable(DomainContext &domain, Mode mode) : domain_(domain), mode_(mode) {
  domain.regions = this;
}

MrTable::~MrTable() {
  stop_borrowing();
  if (far_ == nullptr) return;
  const Guard guard(domain_.engine->lock());
  far_.reset();
}

void Mr::count_remote(uint64_t access, uint64_t bytes) {
  if (lender_ != nullptr) [[unlikely]] {
    Far &far = access & FI_REMOTE_WRITE ? lender_->far_write_ : lender_->far_read_;
    far.operations.fetch_add(1);
    far.bytes.fetch_add(bytes);
    return table_.origin_->far_->tell();
  }
  Cntr *cntr = access & FI_REMOTE_WRITE ? remote_write_ : remote_read_;
  if (cntr != nullptr) cntr->add_events(1, bytes);
}

void Mr::confine(uint64_t endpoint) {
  Guard guard(table_.domain_.engine->lock());
  const std::lock_guard alone(table_.lending_);
  endpoint_ = endpoint;
}

int Mr::close() {
  DomainContext &domain = table_.domain_;
  {
    Guard guard(domain.engine->lock());
    if (pins != 0 && table_.on_close) table_.on_close(*this);
    if (pins != 0) return -FI_EBUSY;
    {
      const std::lock_guard alone(table_.lending_);
      if (is_reached()) table_.regions_.erase(fid_key_);
      table_.persistent_ -= persistent_ ? 1 : 0;
    }
    for (MrTable *borrower : table_.borrowers_) {
      if (!is_reached() || borrower->give_back(fid_key_)) continue;
      const std::lock_guard alone(table_.lending_);
      table_.regions_.emplace(fid_key_, this);
      table_.persistent_ += persistent_ ? 1 : 0;
      return -FI_EBUSY;
    }
    MrTable::FarCounts::report(*this);
  }
  retire();
  if (table_.eq != nullptr) table_.eq->forget(base());
  if (outer_write_ != nullptr) outer_write_->users.fetch_sub(1);
  if (outer_read_ != nullptr) outer_read_->users.fetch_sub(1);
  domain.children.fetch_sub(1, std::memory_order_relaxed);
  delete this;
  return 0;
}

int Mr::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  const MrTable::Mode &mode = table_.mode_;
  if (fid->fclass == FI_CLASS_EP || fid->fclass == FI_CLASS_SEP || fid->fclass == FI_CLASS_RX_CTX ||
      fid->fclass == FI_CLASS_TX_CTX) {
    if (flags & ~kBindFlags) return -FI_EBADFLAGS;
    // Regions belong to the domain here: without FI_MR_ENDPOINT it is allowed and changes nothing.
    if (!mode.endpoint_needed) return 0;
    if (!is_mine(fid, fid->fclass, instance())) return -FI_EINVAL;
    uint64_t number;
    if (const int rc = endpoint_number(table_.domain_, fid, number); rc != 0) return rc;
    Guard guard(table_.domain_.engine->lock());
    if (enabled_) return -FI_EOPBADSTATE;
    if (endpoint_ != 0 && endpoint_ != number) return -FI_EBUSY;
    const std::lock_guard alone(table_.lending_);
    endpoint_ = number;
    return 0;
  }
  if (!Cntr::is_mine(fid, FI_CLASS_CNTR, instance())) return -FI_EINVAL;
  if (flags == 0 || flags & ~kBindFlags) return -FI_EBADFLAGS;
  Cntr *const outer = Cntr::from(fid);
  if (&outer->domain() != &table_.domain_) return -FI_EDOMAIN;  // it has another lock
  Cntr *const cntr = outer->reached_from(table_.domain_);
  Guard guard(table_.domain_.engine->lock());
  // fi_mr.3: no more bindings after fi_mr_enable().
  if ((mode.enable_needed || mode.endpoint_needed) && enabled_) return -FI_EOPBADSTATE;
  const bool write = flags & FI_REMOTE_WRITE, read = flags & FI_REMOTE_READ;
  if ((write && remote_write_ != nullptr) || (read && remote_read_ != nullptr)) return -FI_EBUSY;
  const std::lock_guard lent(table_.lending_);
  if (write) remote_write_ = cntr, outer_write_ = outer;
  if (read) remote_read_ = cntr, outer_read_ = outer;
  outer->users.fetch_add(size_t(write) + size_t(read));
  return 0;
}

int Mr::control(int command, void *arg) {
  switch (command) {
    case FI_ENABLE: {
      Guard guard(table_.domain_.engine->lock());
      if (table_.mode_.endpoint_needed && endpoint_ == 0) return -FI_EOPBADSTATE;
      const std::lock_guard alone(table_.lending_);
      enabled_ = true;
      return 0;
    }
    case FI_REFRESH: {
      // Nothing to do: the processor resolves addresses, whatever pages they are in.
      const auto *modify = static_cast<const struct fi_mr_modify *>(arg);
      if (modify == nullptr || (modify->attr.iov_count != 0 && modify->attr.mr_iov == nullptr))
        return -FI_EINVAL;
      return modify->flags != 0 ? -FI_EBADFLAGS : 0;
    }
    case FI_GET_RAW_MR:
      return raw_attr(static_cast<const struct fi_mr_raw_attr *>(arg));
    default:
      return -FI_ENOSYS;
  }
}

// A raw key is the key, high byte first, so that it can go from any host to any other.
int Mr::raw_attr(const struct fi_mr_raw_attr *attr) const {
  if (attr == nullptr || attr->key_size == nullptr) return -FI_EINVAL;
  if (attr->flags != 0) return -FI_EBADFLAGS;
  const size_t room = std::exchange(*attr->key_size, sizeof fid_key_);
  if (room < sizeof fid_key_) return -FI_ETOOSMALL;
  if (attr->raw_key == nullptr) return -FI_EINVAL;
  const uint64_t key = htobe64(fid_key_);
  std::memcpy(attr->raw_key, &key, sizeof key);
  if (attr->base_addr != nullptr)
    *attr->base_addr =
        table_.mode_.virtual_addresses ? reinterpret_cast<uintptr_t>(iov_[0].iov_base) : 0;
  return 0;
}

int MrTable::map_raw(const struct fi_mr_map_raw *map) {
  uint64_t key;
  if (map == nullptr || map->raw_key == nullptr || map->key == nullptr ||
      map->key_size != sizeof key)
    return -FI_EINVAL;
  if (map->flags != 0) return -FI_EBADFLAGS;
  std::memcpy(&key, map->raw_key, sizeof key);
  *map->key = be64toh(key);
  return 0;
}

uint64_t MrTable::random_key() {
  uint64_t key;
  do {
    if (random_left_ == 0) {
      // Never blocks once the system is up; a key that a stranger can guess is worse than a
      // failure.
      if (getrandom(random_.data(), sizeof random_, 0) != ssize_t(sizeof random_))
        return FI_KEY_NOTAVAIL;
      random_left_ = random_.size();
    }
    key = random_[--random_left_];
  } while (key == FI_KEY_NOTAVAIL || regions_.contains(key));
  return key;
}

Result<fid_mr *> MrTable::open(const fi_mr_attr &attr, uint64_t flags) {
  WEFT_TRY(Mr *const mr, reg(attr, flags));
  return mr->c();
}

Result<Mr *> MrTable::reg(const fi_mr_attr &attr, uint64_t flags, uint64_t holder) {
  WEFT_CHECK(check_registration(attr, flags, {.iov_limit = mode_.iov_limit}));
  Mr *mr = nullptr;
  {
    Guard guard(domain_.engine->lock());
    uint64_t key = attr.requested_key;
    if (mode_.provider_keys || holder != 0) {
      key = random_key();
      if (key == FI_KEY_NOTAVAIL)
        return fail(FI_ENOKEY, "memory registration: the kernel gave no random key");
    }
    const std::lock_guard alone(lending_);
    const bool enabled =
        holder != 0 || (!mode_.endpoint_needed && !(mode_.enable_needed && (flags & FI_RMA_EVENT)));
    try {
      auto fresh = std::unique_ptr<Mr, void (*)(Mr *)>(
          new Mr(*this, attr, flags, key, enabled, holder), [](Mr *one) { delete one; });
      // What no peer reaches has no key that could be in use.
      if (fresh->is_reached() && !regions_.try_emplace(key, fresh.get()).second)
        return fail(FI_ENOKEY, "memory registration: key %#llx is in use", (unsigned long long)key);
      mr = fresh.release();
      persistent_ += mr->persistent() ? 1 : 0;
    } catch (const std::bad_alloc &) {
      return fail(FI_ENOMEM, "memory registration: no memory");
    }
  }
  if (auto published = mr->publish(domain_.fid); !published) {
    Guard guard(domain_.engine->lock());
    {
      const std::lock_guard alone(lending_);
      if (mr->is_reached()) regions_.erase(mr->key());
      persistent_ -= mr->persistent() ? 1 : 0;
    }
    delete mr;
    return tl::unexpected(published.error());
  }
  domain_.children.fetch_add(1, std::memory_order_relaxed);
  return mr;
}

bool MrTable::persist(uint64_t key, uint64_t address, uint64_t length, const MrPeer &peer) {
  std::array<iovec, kIovLimit> pieces;
  const Access found =
      resolve(key, address, length, FI_REMOTE_WRITE, pieces.data(), pieces.size(), peer);
  if (found.mr == nullptr || !found.mr->persistent()) return true;
  return std::all_of(pieces.begin(), pieces.begin() + found.count, make_persistent);
}

MrTable::Access MrTable::resolve(uint64_t key, uint64_t address, uint64_t length, uint64_t access,
                                 iovec *iov, size_t room, const MrPeer &peer) {
  const auto it = regions_.find(key);
  MrReject absent = MrReject::kNoKey;
  Mr *const found = it != regions_.end() ? it->second
                    : origin_ != nullptr ? borrow(key, absent)
                                         : nullptr;
  if (found == nullptr) return {.reject = absent};
  Mr &mr = *found;
  if ((mr.holder_ != 0 && mr.holder_ != peer.holder) ||
      (mr.endpoint_ != 0 && mr.endpoint_ != peer.endpoint))
    return {.reject = MrReject::kNoKey};
  if (!mr.enabled_) return {.reject = MrReject::kDisabled};
  if ((mr.access_ & access) != access) return {.reject = MrReject::kAccess};
  // Offset of the range in the region's concatenated buffers. Virtual addresses count from the
  // first buffer's.
  uint64_t offset = address;
  if (mode_.virtual_addresses) {
    const uint64_t base = reinterpret_cast<uintptr_t>(mr.iov_[0].iov_base);
    if (address < base) return {.reject = MrReject::kRange};
    offset = address - base;
  }
  if (offset > mr.length_ || length > mr.length_ - offset) return {.reject = MrReject::kRange};
  Access result{.mr = &mr};
  for (const iovec &v : mr.iov_) {
    if (offset >= v.iov_len) {
      offset -= v.iov_len;
      continue;
    }
    if (length == 0) break;
    if (result.count == room) return {.reject = MrReject::kRange};
    const uint64_t n = std::min<uint64_t>(length, v.iov_len - offset);
    iov[result.count++] = {static_cast<char *>(v.iov_base) + offset, size_t(n)};
    offset = 0;
    length -= n;
  }
  return result;
}

// ---- of a lane ----

void MrTable::borrow_from(MrTable &origin) {
  const Guard guard(origin.domain_.engine->lock());
  origin.borrowers_.push_back(this);
  if (origin.far_ == nullptr) origin.far_ = std::make_unique<FarCounts>(origin);
  const Guard own(domain_.engine->lock());
  origin_ = &origin;
}

void MrTable::stop_borrowing() {
  if (origin_ == nullptr) return;
  const Guard guard(origin_->domain_.engine->lock());
  std::erase(origin_->borrowers_, this);
  const Guard own(domain_.engine->lock());
  origin_ = nullptr;
  for (auto it = regions_.begin(); it != regions_.end(); it = regions_.erase(it)) {
    end_borrowed(*it->second);
    delete it->second;
  }
}

// With the lane's lock held. Null: `reject` says why not.
Mr *MrTable::borrow(uint64_t key, MrReject &reject) {
  const std::lock_guard alone(origin_->lending_);
  const auto it = origin_->regions_.find(key);
  if (it == origin_->regions_.end()) return nullptr;
  if (!it->second->enabled_) {
    reject = MrReject::kDisabled;
    return nullptr;
  }
  Mr *copy = nullptr;
  try {
    copy = new Mr(*this, *it->second);
    regions_.emplace(key, copy);
  } catch (const std::bad_alloc &) {
    delete copy;
    return nullptr;
  }
  return copy;
}

bool MrTable::end_borrowed(Mr &mr) {
  if (mr.pins != 0 && on_close) on_close(mr);
  return mr.pins == 0;
}

// The region closes, with the lock of its engine held. False: it is in use.
bool MrTable::give_back(uint64_t key) {
  const Guard guard(domain_.engine->lock());
  const auto it = regions_.find(key);
  if (it == regions_.end()) return true;
  if (!end_borrowed(*it->second)) return false;
  delete it->second;
  regions_.erase(it);
  return true;
}

}  // namespace weft::sdk
