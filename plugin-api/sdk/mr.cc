// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/mr.h>

#include <endian.h>
#include <sys/random.h>
#include <weft/sdk/eq.h>
#include <weft/sdk/iov.h>
#include <weft/sdk/ops.h>
#include <weft/sdk/persist.h>

#include <algorithm>
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

void Mr::count_remote(uint64_t access, uint64_t bytes) {
  Cntr *cntr = access & FI_REMOTE_WRITE ? remote_write_ : remote_read_;
  if (cntr != nullptr) cntr->add_events(1, bytes);
}

void Mr::confine(uint64_t endpoint) {
  Guard guard(table_.domain_.engine->lock());
  endpoint_ = endpoint;
}

int Mr::close() {
  DomainContext &domain = table_.domain_;
  {
    Guard guard(domain.engine->lock());
    if (pins != 0 && table_.on_close) table_.on_close(*this);
    if (pins != 0) return -FI_EBUSY;
    table_.regions_.erase(fid_key_);
    table_.persistent_ -= persistent_ ? 1 : 0;
  }
  retire();
  if (table_.eq != nullptr) table_.eq->forget(base());
  if (remote_write_ != nullptr) remote_write_->users.fetch_sub(1);
  if (remote_read_ != nullptr) remote_read_->users.fetch_sub(1);
  domain.children.fetch_sub(1, std::memory_order_relaxed);
  delete this;
  return 0;
}

int Mr::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  const MrTable::Mode &mode = table_.mode_;
  if (fid->fclass == FI_CLASS_EP || fid->fclass == FI_CLASS_SEP) {
    if (flags & ~kBindFlags) return -FI_EBADFLAGS;
    // Regions belong to the domain here: without FI_MR_ENDPOINT it is allowed and changes nothing.
    if (!mode.endpoint_needed) return 0;
    if (!is_mine(fid, fid->fclass, instance())) return -FI_EINVAL;
    uint64_t number;
    if (const int rc = endpoint_number(table_.domain_, fid, number); rc != 0) return rc;
    Guard guard(table_.domain_.engine->lock());
    if (enabled_) return -FI_EOPBADSTATE;
    if (endpoint_ != 0 && endpoint_ != number) return -FI_EBUSY;
    endpoint_ = number;
    return 0;
  }
  if (!Cntr::is_mine(fid, FI_CLASS_CNTR, instance())) return -FI_EINVAL;
  if (flags == 0 || flags & ~kBindFlags) return -FI_EBADFLAGS;
  Cntr *cntr = Cntr::from(fid);
  if (&cntr->domain() != &table_.domain_)
    return -FI_EINVAL;  // of another domain, which has another lock
  Guard guard(table_.domain_.engine->lock());
  // fi_mr.3: no more bindings after fi_mr_enable().
  if ((mode.enable_needed || mode.endpoint_needed) && enabled_) return -FI_EOPBADSTATE;
  const bool write = flags & FI_REMOTE_WRITE, read = flags & FI_REMOTE_READ;
  if ((write && remote_write_ != nullptr) || (read && remote_read_ != nullptr)) return -FI_EBUSY;
  if (write) remote_write_ = cntr;
  if (read) remote_read_ = cntr;
  cntr->users.fetch_add(size_t(write) + size_t(read));
  return 0;
}

int Mr::control(int command, void *arg) {
  switch (command) {
    case FI_ENABLE: {
      Guard guard(table_.domain_.engine->lock());
      if (table_.mode_.endpoint_needed && endpoint_ == 0) return -FI_EOPBADSTATE;
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
    const auto [place, added] = regions_.try_emplace(key);
    if (!added)
      return fail(FI_ENOKEY, "memory registration: key %#llx is in use", (unsigned long long)key);
    const bool enabled =
        holder != 0 || (!mode_.endpoint_needed && !(mode_.enable_needed && (flags & FI_RMA_EVENT)));
    try {
      mr = place->second = new Mr(*this, attr, flags, key, enabled, holder);
      persistent_ += mr->persistent() ? 1 : 0;
    } catch (const std::bad_alloc &) {
      regions_.erase(place);
      return fail(FI_ENOMEM, "memory registration: no memory");
    }
  }
  if (auto published = mr->publish(domain_.fid); !published) {
    Guard guard(domain_.engine->lock());
    regions_.erase(mr->key());
    persistent_ -= mr->persistent() ? 1 : 0;
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
  if (it == regions_.end()) return {.reject = MrReject::kNoKey};
  Mr &mr = *it->second;
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

}  // namespace weft::sdk
