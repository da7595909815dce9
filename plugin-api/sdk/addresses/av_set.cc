// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/addresses/av_set.h>
#include <weft/sdk/objects/domain.h>
#include <weft/sdk/objects/ops.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <unordered_set>

#include "plugin-api/sdk/objects/exported.h"
#include "plugin-api/sdk/objects/peer.h"

namespace weft::sdk {
namespace {

std::atomic<fi_addr_t> last_set{0};

Result<void> check_attr(const Av &av, const fi_av_set_attr &attr) {
  if (attr.flags & ~(FI_UNIVERSE | FI_PEER | AvSet::kCollectives))
    return fail(FI_EBADFLAGS,
                "fi_av_set_attr.flags %#llx: only FI_UNIVERSE, FI_PEER and FI_..._SET are known",
                (unsigned long long)attr.flags);
  if (attr.comm_key_size > AvSet::kMaxKey || (attr.comm_key_size != 0 && attr.comm_key == nullptr))
    return fail(FI_EINVAL, "fi_av_set_attr.comm_key of %zu bytes at %p: at most %zu bytes",
                attr.comm_key_size, (void *)attr.comm_key, AvSet::kMaxKey);
  const bool from = attr.start_addr != FI_ADDR_NOTAVAIL, to = attr.end_addr != FI_ADDR_NOTAVAIL;
  if (from != to)
    return fail(FI_EINVAL,
                "fi_av_set_attr: start_addr and end_addr are both addresses, or both "
                "FI_ADDR_NOTAVAIL");
  if (!from || attr.flags & FI_UNIVERSE) return {};
  if (av.is_map())
    return fail(FI_EINVAL,
                "fi_av_set_attr.start_addr needs a vector of type FI_AV_TABLE (fi_av_set.3): use "
                "FI_ADDR_NOTAVAIL, and fi_av_set_insert");
  if (attr.start_addr > attr.end_addr || attr.end_addr >= av.capacity())
    return fail(FI_EINVAL,
                "fi_av_set_attr: start_addr %llu, end_addr %llu: the vector has addresses below "
                "%u",
                (unsigned long long)attr.start_addr, (unsigned long long)attr.end_addr,
                av.capacity());
  if (attr.stride == 0 && attr.start_addr != attr.end_addr)
    return fail(FI_EINVAL, "fi_av_set_attr.stride is 0: 1 takes every address of the range");
  return {};
}

}  // namespace

AvSet::AvSet(Av &av, const fi_av_set_attr &attr, void *context)
    : Object(av.instance(), FI_CLASS_AV_SET, context),
      av_(av),
      flags_(attr.flags & kCollectives),
      key_(attr.comm_key, attr.comm_key + attr.comm_key_size),
      address_(kBase + last_set.fetch_add(1)) {
  fill_tables(*this);
}

Result<AvSet *> AvSet::open(Av &av, const fi_av_set_attr *attr, void *context) {
  if (attr == nullptr) return fail(FI_EINVAL, "fi_av_set: attr is null");
  std::unique_ptr<AvSet, void (*)(AvSet *)> set(nullptr, [](AvSet *object) { delete object; });
  {
    const Guard guard(av.engine().lock());
    WEFT_CHECK(check_attr(av, *attr));
    set.reset(new AvSet(av, *attr, context));
    WEFT_CHECK(attr->flags & FI_PEER ? set->import(context) : set->fill(*attr));
  }
  WEFT_CHECK(set->publish(av.base()));
  av.users.fetch_add(1);
  return set.release();
}

// The owner takes a lock of its own: it must not need ours.
Result<void> AvSet::import(void *context) {
  WEFT_TRY(fid_peer_av_set *const owner, peer_av_set(context));
  size_t count = 0;
  int rc = owner->owner_ops->members(owner, nullptr, &count);
  while (rc == -FI_ETOOSMALL) {  // it may grow meanwhile
    members_.resize(count);
    rc = owner->owner_ops->members(owner, members_.data(), &count);
  }
  if (rc != 0) return fail(-rc, "fi_av_set: FI_PEER: the owner does not say who is in its set");
  members_.resize(count);
  for (const fi_addr_t member : members_)
    if (av_.index_of(member) == Av::kNone)
      return fail(FI_EINVAL,
                  "fi_av_set: FI_PEER: the owner's set has %#llx, which is not in this vector: "
                  "insert the same addresses here, in the same order",
                  (unsigned long long)member);
  return {};
}

int AvSet::control(int command, void *arg) {
  return command == FI_EXPORT_FID ? export_fid(*this, arg) : -FI_ENOSYS;
}

Result<void> AvSet::fill(const fi_av_set_attr &attr) {
  fi_addr_t from = attr.start_addr, to = attr.end_addr;
  uint64_t stride = std::max<uint64_t>(attr.stride, 1);
  if (attr.flags & FI_UNIVERSE) {
    if (av_.capacity() == 0) return {};
    from = 0;
    to = av_.capacity() - 1;
    stride = 1;
  }
  if (from == FI_ADDR_NOTAVAIL) return {};
  // Below the capacity, which has 32 bits: no sum overflows.
  stride = std::min<uint64_t>(stride, av_.capacity());
  for (fi_addr_t address = from; address <= to; address += stride)
    if (av_.index_of(address) != Av::kNone) members_.push_back(address);
  if (attr.count != 0 && members_.size() > attr.count)
    return fail(FI_EINVAL, "fi_av_set_attr.count is %zu, but the range has %zu addresses",
                attr.count, members_.size());
  return {};
}

Result<AvSet *> AvSet::find(Av &av, const fid_av_set *set) {
  if (set == nullptr || !is_mine(&set->fid, FI_CLASS_AV_SET, av.instance()))
    return fail(FI_EINVAL, "it names no set that fi_av_set made from this provider's vectors");
  AvSet *const own = from(const_cast<fid_av_set *>(set));
  if (&own->av_ != &av)
    return fail(FI_EINVAL, "its set is of another address vector than the endpoint's");
  return own;
}

bool AvSet::has(fi_addr_t address) const {
  return std::ranges::find(members_, address) != members_.end();
}

void AvSet::add(fi_addr_t address) {
  if (!key_.empty() || !has(address)) members_.push_back(address);
}

const AvSet *AvSet::other(const fid_av_set *source) const {
  const auto found = find(av_, source);
  return found ? *found : nullptr;
}

int AvSet::set_union(const struct fid_av_set *source) {
  const Guard guard(av_.engine().lock());
  const AvSet *const set = other(source);
  if (set == nullptr) return -FI_EINVAL;
  if (set == this) return 0;
  std::unordered_set<fi_addr_t> known(members_.begin(), members_.end());
  for (const fi_addr_t address : set->members_)
    if (known.insert(address).second) members_.push_back(address);
  return 0;
}

int AvSet::intersect(const struct fid_av_set *source) {
  const Guard guard(av_.engine().lock());
  const AvSet *const set = other(source);
  if (set == nullptr) return -FI_EINVAL;
  const std::unordered_set<fi_addr_t> theirs(set->members_.begin(), set->members_.end());
  std::erase_if(members_, [&](fi_addr_t address) { return !theirs.contains(address); });
  return 0;
}

int AvSet::diff(const struct fid_av_set *source) {
  const Guard guard(av_.engine().lock());
  const AvSet *const set = other(source);
  if (set == nullptr) return -FI_EINVAL;
  const std::unordered_set<fi_addr_t> theirs(set->members_.begin(), set->members_.end());
  std::erase_if(members_, [&](fi_addr_t address) { return theirs.contains(address); });
  return 0;
}

int AvSet::insert(fi_addr_t address) {
  const Guard guard(av_.engine().lock());
  if (av_.index_of(address) == Av::kNone) return -FI_EINVAL;
  add(address);
  return 0;
}

int AvSet::remove(fi_addr_t address) {
  const Guard guard(av_.engine().lock());
  const auto place = std::ranges::find(members_, address);
  if (place == members_.end()) return -FI_EINVAL;
  members_.erase(place);
  return 0;
}

int AvSet::addr(fi_addr_t *address) {
  if (address == nullptr) return -FI_EINVAL;
  *address = address_;
  return 0;
}

int AvSet::close() {
  if (users.load() != 0) return -FI_EBUSY;
  retire();
  av_.users.fetch_sub(1);
  delete this;
  return 0;
}

int Av::av_set(struct fi_av_set_attr *attr, struct fid_av_set **set, void *context) {
  if (set == nullptr) return -FI_EINVAL;
  return finish(instance(), FI_LOG_AV, AvSet::open(*this, attr, context), set);
}

}  // namespace weft::sdk
