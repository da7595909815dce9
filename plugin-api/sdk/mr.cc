// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/mr.h>

#include <sys/random.h>
#include <weft/sdk/eq.h>
#include <weft/sdk/ops.h>

#include <algorithm>
#include <limits>
#include <new>

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

Mr::Mr(MrTable &table, const fi_mr_attr &attr, uint64_t key, bool enabled)
    : Object(table.domain_.instance, FI_CLASS_MR, attr.context),
      table_(table),
      iov_(attr.mr_iov, attr.mr_iov + attr.iov_count),
      access_(attr.access),
      fid_key_(key),
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

int Mr::close() {
  DomainContext &domain = table_.domain_;
  {
    Guard guard(domain.engine->lock());
    if (pins != 0 && table_.on_close) table_.on_close(*this);
    if (pins != 0) return -FI_EBUSY;
    table_.regions_.erase(fid_key_);
  }
  retire();
  if (remote_write_ != nullptr) remote_write_->users.fetch_sub(1);
  if (remote_read_ != nullptr) remote_read_->users.fetch_sub(1);
  domain.children.fetch_sub(1, std::memory_order_relaxed);
  delete this;
  return 0;
}

int Mr::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  // Regions belong to the domain here: binding one to an endpoint is allowed and changes nothing (fi_mr.3, FI_MR_ENDPOINT).
  if (fid->fclass == FI_CLASS_EP || fid->fclass == FI_CLASS_SEP) return 0;
  if (!Cntr::is_mine(fid, FI_CLASS_CNTR, instance())) return -FI_EINVAL;
  if (flags == 0 || flags & ~uint64_t(FI_REMOTE_WRITE | FI_REMOTE_READ)) return -FI_EBADFLAGS;
  Guard guard(table_.domain_.engine->lock());
  Cntr *cntr = Cntr::from(fid);
  for (auto [flag, slot] : {std::pair{uint64_t(FI_REMOTE_WRITE), &remote_write_}, {uint64_t(FI_REMOTE_READ), &remote_read_}}) {
    if (!(flags & flag)) continue;
    if (*slot != nullptr) return -FI_EBUSY;
    cntr->users.fetch_add(1);
    *slot = cntr;
  }
  return 0;
}

int Mr::control(int command, void *) {
  Guard guard(table_.domain_.engine->lock());
  switch (command) {
    case FI_ENABLE:
      enabled_ = true;
      return 0;
    case FI_REFRESH:  // the pages may be what they like: addresses are resolved by the processor
      return 0;
    default:
      return -FI_ENOSYS;
  }
}

uint64_t MrTable::random_key() const {
  uint64_t key;
  do {
    // Never blocks once the system is up; a key that a stranger can guess is worse than a failure.
    if (getrandom(&key, sizeof key, 0) != ssize_t(sizeof key)) return FI_KEY_NOTAVAIL;
  } while (key == FI_KEY_NOTAVAIL || regions_.contains(key));
  return key;
}

Result<Mr *> MrTable::reg(const fi_mr_attr &attr, uint64_t flags) {
  constexpr uint64_t kAccess =
      FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_COLLECTIVE;
  if (flags & ~uint64_t(FI_RMA_EVENT | FI_RMA_PMEM | FI_HMEM_HOST_ALLOC))
    return fail(FI_EBADFLAGS, "memory registration: flags %#llx are not supported", (unsigned long long)flags);
  if (attr.iov_count == 0 || attr.mr_iov == nullptr || attr.iov_count > mode_.iov_limit)
    return fail(FI_EINVAL, "memory registration: %zu buffers; 1 to %zu (domain_attr.mr_iov_limit) are allowed",
                attr.iov_count, mode_.iov_limit);
  if (attr.access & ~kAccess)
    return fail(FI_EINVAL, "memory registration: access %#llx has unknown bits", (unsigned long long)attr.access);
  if (attr.offset != 0) return fail(FI_EINVAL, "memory registration: offset is reserved and must be 0");
  if (attr.iface != FI_HMEM_SYSTEM) return fail(FI_ENOSYS, "memory registration: only system memory is supported");
  uint64_t length = 0;
  for (size_t i = 0; i < attr.iov_count; ++i) {
    const uintptr_t base = reinterpret_cast<uintptr_t>(attr.mr_iov[i].iov_base);
    if (__builtin_add_overflow(length, attr.mr_iov[i].iov_len, &length) ||
        attr.mr_iov[i].iov_len > std::numeric_limits<uintptr_t>::max() - base)
      return fail(FI_EINVAL, "memory registration: buffer %zu runs past the end of the address space", i);
  }

  Mr *mr = nullptr;
  {
    Guard guard(domain_.engine->lock());
    uint64_t key = attr.requested_key;
    if (mode_.provider_keys) {
      key = random_key();
      if (key == FI_KEY_NOTAVAIL) return fail(FI_ENOKEY, "memory registration: the kernel gave no random key");
    } else if (regions_.contains(key)) {
      return fail(FI_ENOKEY, "memory registration: key %#llx is in use", (unsigned long long)key);
    }
    const bool enabled = !(mode_.enable_needed && (flags & FI_RMA_EVENT));
    mr = new (std::nothrow) Mr(*this, attr, key, enabled);
    if (mr == nullptr) return fail(FI_ENOMEM, "memory registration: no memory");
    regions_.emplace(key, mr);
  }
  if (auto published = mr->publish(domain_.fid); !published) {
    Guard guard(domain_.engine->lock());
    regions_.erase(mr->key());
    delete mr;
    return tl::unexpected(published.error());
  }
  domain_.children.fetch_add(1, std::memory_order_relaxed);
  return mr;
}

MrTable::Access MrTable::resolve(uint64_t key, uint64_t address, uint64_t length, uint64_t access, iovec *iov,
                                 size_t room) {
  const auto it = regions_.find(key);
  if (it == regions_.end()) return {.reject = MrReject::kNoKey};
  Mr &mr = *it->second;
  if (!mr.enabled_) return {.reject = MrReject::kDisabled};
  if ((mr.access_ & access) != access) return {.reject = MrReject::kAccess};
  // Offset of the range in the region's concatenated buffers. Virtual addresses count from the first buffer's.
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
