// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/region.h"

#include <weft/sdk/addresses/auth.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/objects/endpoint_number.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "plugins/cxi/domain.h"
#include "plugins/cxi/endpoint.h"
#include "plugins/cxi/nic_counter.h"

namespace weft::cxi {
namespace {

constexpr uint64_t kPatienceNs = 5'000'000'000;  // with peers, when a region closes
constexpr unsigned kSequenceShift = 16;
constexpr uint64_t kMaxSequence = uint64_t{1} << (59 - kSequenceShift);

// What stands in a key above its id, so that nobody guesses it.
uint64_t some_sequence() {
  uint64_t number = 0;
  sdk::random_bytes({reinterpret_cast<uint8_t *>(&number), sizeof number});
  return (number % kMaxSequence) << kSequenceShift;
}

}  // namespace

// ---- keys ----

Result<uint64_t> Regions::new_key(const fi_mr_attr &attr, uint64_t flags) {
  if (!provider_keys_) {
    if (attr.requested_key > UINT32_MAX)
      return fail(FI_EKEYREJECTED,
                  "memory registration: key %#llx: keys of cxi have 32 bits "
                  "(domain_attr.mr_key_size)",
                  (unsigned long long)attr.requested_key);
    return attr.requested_key;
  }
  if (optimized && !optimized_ids_.all() && (flags & FI_RMA_EVENT) == 0) {
    size_t id = 0;
    while (optimized_ids_[id]) ++id;
    optimized_ids_.set(id);
    return kProviderKey | kOptimizedKey | id | some_sequence();
  }
  return kProviderKey | next_id_++ | some_sequence();
}

// What has no events, and no place of its own. Hardware knows neither the rights of a part of a LAC
// nor what is registered of it: there one key would reach all memory of the process.
bool Regions::may_be_cached(const fi_mr_attr &attr, uint64_t flags,
                            const sdk::HmemPlace &place) const {
  const iovec &memory = attr.mr_iov[0];
  const uint64_t end = reinterpret_cast<uintptr_t>(memory.iov_base) + memory.iov_len;
  return provider_keys_ && key_cache && domain_.device().facts().is_software && !match_events &&
         (flags & FI_RMA_EVENT) == 0 && !place && memory.iov_len != 0 && end >> kCachedBits == 0 &&
         !domain_.has_vector_keys() && (attr.access & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0;
}

Result<uint64_t> Regions::cached_key_of(const iovec &memory) const {
  const auto start = reinterpret_cast<uintptr_t>(memory.iov_base);
  WEFT_TRY(const weft::cxi::Memory seen,
           domain_.lni().map(start, memory.iov_len, Lni::kRead | Lni::kWrite | Lni::kRemote));
  domain_.lni().unmap(seen);
  return cached_key(seen.lac, start, optimized);
}

void Regions::leave(const Region &region) {
  if (region.is_cached_)
    --cached_;
  else if (has_key(region.access_))
    give_key(region.c_key_);
  descriptors_.erase(&region);
}

void Regions::give_key(uint64_t key) {
  regions_.erase(key);
  if ((key & (kProviderKey | kOptimizedKey)) == (kProviderKey | kOptimizedKey))
    optimized_ids_.reset(key & 0xffff);
}

// A region is reached in all VNIs of its endpoint. An attribute with keys may name a vector of the
// domain, but no peer: that would take FI_DIRECTED_RECV (fi_av.3).
Result<void> Regions::check_auth_key(const fi_mr_attr &attr) const {
  if (!domain_.has_vector_keys() || (attr.auth_key_size == 0 && attr.auth_key == nullptr))
    return {};
  fi_mr_auth_key key{};
  if (attr.auth_key_size != sizeof key || attr.auth_key == nullptr)
    return fail(
        FI_EINVAL,
        "memory registration: with FI_AV_AUTH_KEY an auth_key is a struct fi_mr_auth_key of "
        "%zu bytes, not %zu at %p",
        sizeof key, attr.auth_key_size, static_cast<const void *>(attr.auth_key));
  std::memcpy(&key, attr.auth_key, sizeof key);
  if (key.av == nullptr || !sdk::Av::is_mine(&key.av->fid, FI_CLASS_AV, domain_.instance()) ||
      &sdk::Av::from(key.av)->engine() != &domain_.engine())
    return fail(FI_EINVAL, "memory registration: auth_key names no address vector of the domain");
  if (key.src_addr != FI_ADDR_UNSPEC)
    return fail(FI_EINVAL,
                "memory registration: auth_key names a peer: cxi opens regions to all peers in the "
                "VNIs of their endpoint; make src_addr FI_ADDR_UNSPEC");
  return {};
}

Result<fid_mr *> Regions::open(const fi_mr_attr &attr, uint64_t flags) {
  const DeviceMemory *const devices = domain_.devices();
  sdk::RegistrationLimits limits{.iov_limit = 1};
  if (devices != nullptr) limits.flags |= FI_HMEM_DEVICE_ONLY;
  WEFT_CHECK(sdk::check_registration(attr, flags, limits));
  WEFT_CHECK(check_auth_key(attr));
  sdk::HmemPlace region_place;
  if (devices != nullptr) {
    WEFT_TRY(region_place, devices->hmem().check(attr, flags));
  }
  Region *region = nullptr;
  {
    const sdk::Guard guard(domain_.engine().lock());
    const bool is_cached = may_be_cached(attr, flags, region_place);
    WEFT_TRY(const uint64_t key, is_cached ? cached_key_of(attr.mr_iov[0]) : new_key(attr, flags));
    const bool is_named = !is_cached && has_key(attr.access);
    if (is_named && regions_.contains(key))
      return fail(FI_ENOKEY, "memory registration: key %#llx is in use", (unsigned long long)key);
    region = new (std::nothrow) Region(domain_, attr, flags, key, region_place);
    if (region == nullptr) {
      if (is_named) give_key(key);
      return fail(FI_ENOMEM, "memory registration: no memory");
    }
    region->is_cached_ = is_cached;
    if (is_cached)
      ++cached_;
    else if (is_named)
      regions_.emplace(key, region);
    if (devices != nullptr) descriptors_.insert(region);
  }
  if (auto published = region->publish(domain_.base()); !published) {
    const sdk::Guard guard(domain_.engine().lock());
    leave(*region);
    delete region;
    return tl::unexpected(published.error());
  }
  domain_.shared().children.fetch_add(1);
  return region->c();
}

// ---- a region ----

std::optional<sdk::HmemPlace> Regions::place_of(const void *desc, const void *address,
                                                size_t length) const {
  if (!descriptors_.contains(desc)) return std::nullopt;
  return static_cast<const Region *>(desc)->place_of(address, length);
}

std::optional<sdk::HmemPlace> Region::place_of(const void *address, size_t length) const {
  const uint64_t offset =
      reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(memory_.iov_base);
  if (offset > memory_.iov_len || length > memory_.iov_len - offset) return std::nullopt;
  sdk::HmemPlace place = place_;
  place.bytes -= std::min<uint64_t>(offset, place.bytes);
  return place;
}

Region::Region(Domain &domain, const fi_mr_attr &attr, uint64_t flags, uint64_t key,
               const sdk::HmemPlace &place)
    : Object(domain.instance(), FI_CLASS_MR, attr.context),
      domain_(domain),
      memory_(attr.mr_iov[0]),
      access_(attr.access),
      flags_(flags),
      c_key_(key),
      place_(place) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<Region>());
  c()->mem_desc = this;
  c()->key = key;
}

bool Region::has_events() const {
  const sdk::RxContext &rx = endpoint_->receiver();
  return remote_write_ != nullptr || remote_read_ != nullptr || rx.remote_write != nullptr ||
         rx.remote_read != nullptr;
}

Entry Region::entry() const {
  const bool is_optimized = region_at(c_key_, true, domain_.regions().optimized).is_optimized;
  Entry entry{.buffer_id = id_,
              .memory = mapped_,
              .start = reinterpret_cast<uintptr_t>(memory_.iov_base),
              .length = memory_.iov_len,
              .match_bits = is_optimized ? 0 : c_key_ & ~kProviderKey,
              .ignore_bits = is_window_ ? kCachedAddress : 0};
  entry.unlink_disable = true;
  entry.comm_disable = !has_events() && !endpoint_->control_portals().has_match_events();
  entry.op_put = (access_ & FI_REMOTE_WRITE) != 0;
  entry.op_get = (access_ & FI_REMOTE_READ) != 0;
  return entry;
}

// Which one the NIC raises. Where there are two, for the region and for its endpoint, the other one
// counts by events.
sdk::Cntr *Region::counter_of(bool write) const {
  const sdk::RxContext &rx = endpoint_->receiver();
  sdk::Cntr *const own = write ? remote_write_ : remote_read_;
  sdk::Cntr *const counter = own != nullptr ? own : write ? rx.remote_write : rx.remote_read;
  return counter != nullptr && counter->store() != nullptr ? counter : nullptr;
}

void Region::append(Entry entry) {
  const auto raise = [&](sdk::Cntr *counter) {
    entry.counter =
        counter != nullptr ? &static_cast<NicCounter &>(*counter->store()).counter() : nullptr;
    entry.counts_bytes = counter != nullptr && counter->counts_bytes();
  };
  Control &control = endpoint_->control_portals();
  const bool is_optimized = write_portal_ != nullptr;
  Portal &writes = is_optimized ? *write_portal_ : control.writes();
  Portal *const reads = is_optimized ? read_portal_.get() : &control.reads();
  raise(nic_write_ = counter_of(true));
  if (entry.op_put || entry.op_get) control.append(writes, entry);
  raise(nic_read_ = counter_of(false));
  if (entry.op_get && reads != nullptr) control.append(*reads, entry);
}

// Where it may have entries.
std::vector<Portal *> Region::portals() const {
  Control &control = endpoint_->control_portals();
  std::vector<Portal *> all{&control.writes(), &control.reads()};
  for (Portal *const own : {write_portal_.get(), read_portal_.get()})
    if (own != nullptr) all.push_back(own);
  return all;
}

void Region::withdraw(uint16_t id) {
  Control &control = endpoint_->control_portals();
  for (Portal *const portal : portals()) {
    if (control.has_match_events()) {
      control.unlink(*portal, id);
      continue;
    }
    portal->unlink(List::kPriority, id);
    portal->invalidate(List::kPriority, id);
  }
  if (control.has_match_events() && !await_peers(id)) return;
  while (control.read_events()) {  // what has been told of it is still to be counted
  }
  control.remove(id);
}

// FI_CXI_MR_MATCH_EVENTS: what peers have begun ends well. False: one of them is stuck.
bool Region::await_peers(uint16_t id) {
  Control &control = endpoint_->control_portals();
  const uint64_t end = sdk::now_ns() + kPatienceNs;
  while (control.is_in_use(id) && sdk::now_ns() < end) {
    if (control.read_events()) continue;
    domain_.poll_device();
    std::this_thread::yield();
  }
  if (!control.is_in_use(id)) return true;
  WEFT_WARN(instance(), FI_LOG_MR,
            "fi_close: key %#llx: a peer has begun to use the region and has not ended in %d s; it "
            "is cut off",
            (unsigned long long)c_key_, int(kPatienceNs / 1'000'000'000));
  for (Portal *const portal : portals()) portal->invalidate(List::kPriority, id);
  while (control.read_events()) {
  }
  control.abandon(id);
  return false;
}

Result<weft::cxi::Memory> Region::map(unsigned access) {
  const auto start = reinterpret_cast<uintptr_t>(memory_.iov_base);
  if (place_) return domain_.lni().map_device(start, memory_.iov_len, access, place_);
  return domain_.lni().map(start, memory_.iov_len, access);
}

// ---- cached keys ----

Result<void> Region::link_cached() {
  WEFT_CHECK(endpoint_->open_window(c_key_ & ~kCachedAddress));
  const bool writes = access_ & FI_REMOTE_WRITE, reads = access_ & FI_REMOTE_READ;
  WEFT_TRY(mapped_, map(Lni::kRemote | (reads ? Lni::kRead : 0) | (writes ? Lni::kWrite : 0)));
  linked_ = true;
  return {};
}

Result<Region *> Region::open_window(Domain &domain, CxiEndpoint &endpoint, uint64_t key) {
  const iovec everything{nullptr, SIZE_MAX};
  fi_mr_attr attr{};
  attr.mr_iov = &everything;
  attr.iov_count = 1;
  attr.access = FI_REMOTE_READ | FI_REMOTE_WRITE;
  auto *const window = new (std::nothrow) Region(domain, attr, 0, key, {});
  if (window == nullptr) return fail(FI_ENOMEM, "no memory for the entry of cached keys");
  window->is_window_ = window->enabled_ = true;
  window->endpoint_ = &endpoint;
  window->mapped_ = {.number = weft::cxi::Memory::kWholeLac, .lac = uint8_t(key & 7)};
  if (auto linked = window->link(); !linked) {
    window->close_window();
    return tl::unexpected(linked.error());
  }
  return window;
}

void Region::close_window() {
  unlink();
  delete this;
}

Result<void> Region::link() {
  if (!enabled_ || linked_ || endpoint_ == nullptr || !endpoint_->enabled()) return {};
  if (is_cached_) return link_cached();
  if ((access_ & (FI_REMOTE_READ | FI_REMOTE_WRITE)) == 0) return {};  // nobody reaches it
  Control &control = endpoint_->control_portals();
  const bool writes = access_ & FI_REMOTE_WRITE, reads = access_ & FI_REMOTE_READ;
  if (!is_window_) {
    WEFT_TRY(mapped_, map((reads ? Lni::kRead : 0) | (writes ? Lni::kWrite : 0)));
  }
  WEFT_TRY(id_, control.add(*this));
  linked_ = true;
  if (const RegionAt at = region_at(c_key_, true, domain_.regions().optimized); at.is_optimized) {
    WEFT_TRY(write_portal_, open_portal(at.index));
    if (reads) {
      WEFT_TRY(read_portal_, open_portal(region_at(c_key_, false, true).index));
    }
  }
  append(entry());
  if (!writes) return control.linked("a memory region");
  // Writes with remote CQ data are told of.
  WEFT_TRY(solicited_id_, control.add(*this));
  is_solicited_ = true;
  Entry solicited = entry();
  solicited.buffer_id = solicited_id_;
  solicited.match_bits = (c_key_ & ~kProviderKey) | kSolicited;
  solicited.comm_disable = false;
  solicited.op_get = false;
  control.append(control.writes(), solicited);
  return control.linked("a memory region");
}

// The new entry stands behind the old one until that goes, so peers find one at all times.
void Region::refresh() {
  if (!linked_ || is_cached_ || !has_events()) return;
  auto id = endpoint_->control_portals().add(*this);
  if (!id) return;
  const uint16_t old = std::exchange(id_, *id);
  old_ = {.id = old, .write = nic_write_, .read = nic_read_};
  append(entry());
  const auto linked = endpoint_->control_portals().linked("what counts at a memory region");
  if (linked) return withdraw(old);
  WEFT_WARN(instance(), FI_LOG_MR, "%s", linked.error().text.c_str());
  withdraw(std::exchange(id_, old));
  nic_write_ = old_.write;
  nic_read_ = old_.read;
  old_ = {};
}

Result<std::unique_ptr<Portal>> Region::open_portal(Index index) {
  WEFT_TRY(std::unique_ptr<Portal> portal,
           domain_.lni().portal({.match_events = endpoint_->control_portals().has_match_events(),
                                 .no_rendezvous = true},
                                endpoint_->control_portals().events()));
  WEFT_CHECK(endpoint_->ports().map(*portal, index));
  portal->set_state(PortalState::kEnabled, kIgnoreDrops);
  return portal;
}

void Region::unlink() {
  if (!linked_) return;
  linked_ = false;
  if (is_cached_) return domain_.lni().unmap(mapped_);
  withdraw(id_);
  if (std::exchange(is_solicited_, false)) withdraw(solicited_id_);
  write_portal_.reset();
  read_portal_.reset();
  if (!is_window_) domain_.lni().unmap(mapped_);
  nic_write_ = nic_read_ = nullptr;
  old_ = {};
}

// What the NIC has counted is only told. A fetching atomic it has counted as a write.
void Region::count(bool write, const Event &event) {
  const bool is_write_entry = event.type != EventType::kGet;
  sdk::Cntr *by_nic = nullptr;
  if (write == is_write_entry && event.buffer_id == id_)
    by_nic = write ? nic_write_ : nic_read_;
  else if (write == is_write_entry && event.buffer_id == old_.id)
    by_nic = write ? old_.write : old_.read;
  sdk::Cntr *const own = write ? remote_write_ : remote_read_;
  sdk::Cntr *const of_endpoint =
      endpoint_->receiver().remote_counter(write ? FI_REMOTE_WRITE : FI_REMOTE_READ);
  for (sdk::Cntr *const counter : {own, of_endpoint}) {
    if (counter == nullptr) continue;
    if (counter != by_nic) {
      counter->add_events(1, event.mlength);
    } else {
      counter->look();
      by_nic = nullptr;
    }
  }
}

// What peers did here, where somebody counts it, or wants remote CQ data.
void Region::on_window(const Event &event) {
  if (event.rc != Rc::kOk) return;
  const bool fetches = event.type == EventType::kFetchAtomic;
  const bool reads = event.type == EventType::kGet || fetches;
  const bool writes = event.type != EventType::kGet;
  if (reads) count(false, event);
  if (writes) count(true, event);
  if (event.type == EventType::kPut && event.match_bits & kSolicited && is_solicited_)
    endpoint_->on_remote_data(event);
}

int Region::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  if (fid->fclass == FI_CLASS_EP) {
    if (flags & ~sdk::Mr::kBindFlags) return -FI_EBADFLAGS;
    if (!is_mine(fid, fid->fclass, instance())) return -FI_EINVAL;
    uint64_t number;
    if (const int rc = sdk::endpoint_number(domain_.shared(), fid, number); rc != 0) return rc;
    const sdk::Guard guard(domain_.engine().lock());
    if (enabled_) return -FI_EOPBADSTATE;
    CxiEndpoint *const endpoint = domain_.find(number);
    if (endpoint_ != nullptr && endpoint_ != endpoint) return -FI_EBUSY;
    if (endpoint_ == nullptr) endpoint->add(*this);
    endpoint_ = endpoint;
    return 0;
  }
  if (!sdk::Cntr::is_mine(fid, FI_CLASS_CNTR, instance())) return -FI_EINVAL;
  if (flags == 0 || flags & ~sdk::Mr::kBindFlags) return -FI_EBADFLAGS;
  sdk::Cntr *const cntr = sdk::Cntr::from(fid);
  if (&cntr->domain() != &domain_.shared()) return -FI_EINVAL;
  const sdk::Guard guard(domain_.engine().lock());
  const bool write = flags & FI_REMOTE_WRITE, read = flags & FI_REMOTE_READ;
  if ((write && remote_write_ != nullptr) || (read && remote_read_ != nullptr)) return -FI_EBUSY;
  if (const int rc = leave_cache(); rc != 0) return rc;
  if (write) remote_write_ = cntr;
  if (read) remote_read_ = cntr;
  cntr->users.fetch_add(size_t(write) + size_t(read));
  refresh();
  return 0;
}

// What is counted by itself needs a key of its own. Peers may have the other one already.
int Region::leave_cache() {
  if (!is_cached_) return 0;
  if (enabled_) return -FI_EOPBADSTATE;
  Regions &regions = domain_.regions();
  const auto key = regions.new_key({}, flags_ | FI_RMA_EVENT);
  if (!key) return -key.error().code;
  --regions.cached_;
  is_cached_ = false;
  c_key_ = c()->key = *key;
  regions.regions_.emplace(c_key_, this);
  return 0;
}

int Region::control(int command, void *) {
  return command == FI_ENABLE ? enable() : -FI_ENOSYS;
}

// fi_mr_enable. An endpoint that is not enabled yet opens it later.
int Region::enable() {
  const sdk::Guard guard(domain_.engine().lock());
  if (endpoint_ == nullptr) return -FI_EOPBADSTATE;
  if (enabled_) return 0;
  enabled_ = true;
  if (auto linked = link(); !linked) {
    WEFT_WARN(instance(), FI_LOG_MR, "fi_mr_enable: %s", linked.error().text.c_str());
    unlink();
    enabled_ = false;
    return -linked.error().code;
  }
  return 0;
}

int Region::close() {
  {
    const sdk::Guard guard(domain_.engine().lock());
    unlink();
    if (endpoint_ != nullptr) endpoint_->remove(*this);
    domain_.regions().leave(*this);
  }
  retire();
  if (sdk::Eq *const eq = domain_.memory().eq) eq->forget(base());
  if (remote_write_ != nullptr) remote_write_->users.fetch_sub(1);
  if (remote_read_ != nullptr) remote_read_->users.fetch_sub(1);
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

}  // namespace weft::cxi
