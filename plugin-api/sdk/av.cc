// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/av.h>

#include <weft/sdk/domain.h>
#include <weft/sdk/eq.h>
#include <weft/sdk/ops.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <climits>
#include <new>
#include <string>
#include <utility>

#include "av_file.h"

namespace weft::sdk {
namespace {

const sockaddr_in &in(const SockAddr &address) {
  return *reinterpret_cast<const sockaddr_in *>(address.c());
}
const sockaddr_in6 &in6(const SockAddr &address) {
  return *reinterpret_cast<const sockaddr_in6 *>(address.c());
}

uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= UINT64_C(0xd6e8feb86659fd93);
  x ^= x >> 32;
  x *= UINT64_C(0xd6e8feb86659fd93);
  return x ^ x >> 32;
}

// All bits are good: places come from the high ones, marks from the low ones.
uint64_t hash_of(const SockAddr &address) {
  if (address.family() == AF_INET)
    return mix(uint64_t(in(address).sin_addr.s_addr) << 16 | in(address).sin_port);
  const sockaddr_in6 &a = in6(address);
  uint64_t half[2];
  std::memcpy(half, &a.sin6_addr, sizeof half);
  return mix(mix(mix(half[0]) + half[1]) + (uint64_t(a.sin6_scope_id) << 16 | a.sin6_port));
}

// What an application gave as a peer: an address that one can send to.
Result<SockAddr> check_peer(Result<SockAddr> address) {
  if (address && (address->is_any() || address->port() == 0))
    return fail(FI_EADDRNOTAVAIL, "%s names no peer: a peer has an address and a port",
                address->to_string().c_str());
  return address;
}

}  // namespace

// The reverse index: a hash table with linear probing of indices into the vector, where the
// addresses are, and a byte of hash for each, so that few are looked at in vain. At most 4/5 of the
// places are in use, 8/15 after growing: 6.3 to 9.4 bytes per entry, less than 16 while it grows.
// An address that stands in the vector more than once is here with its lowest index, and marked.
class Av::Reverse {
 public:
  explicit Reverse(const Av &av) : av_(av) {}

  // Room for so many more; after it as many add() cannot fail.
  void reserve(size_t more) {
    if (used_ + more <= count_ / 5 * 4) return;
    if (!resize(used_ + more)) throw std::bad_alloc();
  }

  uint32_t find(const SockAddr &address) const {
    if (used_ == 0) return kNone;
    const Place &place = places_[search(address, hash_of(address))];
    return place.mark != 0 ? place.index() : kNone;
  }

  // False: the address was there.
  bool add(uint32_t index, const SockAddr &address) {
    const uint64_t hash = hash_of(address);
    Place &place = places_[search(address, hash)];
    if (place.mark != 0) {
      place.mark |= kTwice;
      place.set_index(std::min(place.index(), index));
      return false;
    }
    place.mark = mark_of(hash);
    place.set_index(index);
    ++used_;
    return true;
  }

  // Before the vector forgets the address.
  void remove(uint32_t index, const SockAddr &address) {
    size_t hole = search(address, hash_of(address));
    if (places_[hole].mark == 0 || places_[hole].index() != index) return;
    if (places_[hole].mark & kTwice) {
      for (uint32_t other = index + 1; other < av_.end_; ++other) {
        if (!av_.holds(other, address)) continue;
        places_[hole].set_index(other);
        return;
      }
    }
    // Those behind move up, so that no search ends too early.
    for (size_t at = next(hole); places_[at].mark != 0; at = next(at)) {
      const size_t home = home_of(hash_of(*av_.get(places_[at].index())));
      const bool stays = hole <= at ? hole < home && home <= at : hole < home || home <= at;
      if (stays) continue;
      places_[hole] = places_[at];
      hole = at;
    }
    places_[hole].mark = 0;
    --used_;
    if (count_ > kFewest && used_ < count_ / 8) resize(used_);  // if it fails it stays large
  }

 private:
  static constexpr uint8_t kTwice = 0x80;
  static constexpr size_t kFewest = 64;

  struct Place {
    uint8_t mark;  // 0: free
    unsigned char bytes[4];
    uint32_t index() const {
      uint32_t value;
      std::memcpy(&value, bytes, sizeof value);
      return value;
    }
    void set_index(uint32_t value) { std::memcpy(bytes, &value, sizeof value); }
  };
  static_assert(sizeof(Place) == 5);

  static uint8_t mark_of(uint64_t hash) { return uint8_t(1 + hash % 127); }
  size_t home_of(uint64_t hash) const {
    return size_t(static_cast<unsigned __int128>(hash) * count_ >> 64);
  }
  size_t next(size_t at) const { return at + 1 == count_ ? 0 : at + 1; }
  // Where the address is, or the free place where it belongs.
  size_t search(const SockAddr &address, uint64_t hash) const {
    const uint8_t mark = mark_of(hash);
    size_t at = home_of(hash);
    while (places_[at].mark != 0 &&
           ((places_[at].mark & ~kTwice) != mark || !av_.holds(places_[at].index(), address)))
      at = next(at);
    return at;
  }

  bool resize(size_t entries) {
    const size_t count = std::max(kFewest, entries + entries / 8 * 7);
    std::unique_ptr<Place[]> old(new (std::nothrow) Place[count]());
    if (old == nullptr) return false;
    old.swap(places_);
    const size_t before = std::exchange(count_, count);
    for (size_t i = 0; i < before; ++i) {
      if (old[i].mark == 0) continue;
      size_t at = home_of(hash_of(*av_.get(old[i].index())));
      while (places_[at].mark != 0) at = next(at);
      places_[at] = old[i];
    }
    return true;
  }

  const Av &av_;
  std::unique_ptr<Place[]> places_;
  size_t count_ = 0, used_ = 0;  // places, and the places in use
};

// ---- entries ----

void Av::destroy(Chunk *chunk) {
  if (chunk == nullptr) return;
  if (chunk->wide)
    delete static_cast<Wide *>(chunk);
  else
    delete static_cast<Narrow *>(chunk);
}

// The same as *get(index) == address, in less time: a search asks this of many.
bool Av::holds(uint32_t index, const SockAddr &address) const {
  const Chunk *chunk = chunks_[index / kChunk];
  if (chunk == nullptr) return false;
  const uint32_t place = index % kChunk;
  const auto is_v4 = [&](const auto &slot) {
    return slot.tag == kV4 && std::memcmp(slot.ip, &in(address).sin_addr, sizeof(in_addr)) == 0 &&
           std::memcmp(slot.port, &in(address).sin_port, sizeof slot.port) == 0;
  };
  if (!chunk->wide)
    return address.family() == AF_INET && is_v4(static_cast<const Narrow *>(chunk)->slots[place]);
  const Slot6 &slot = static_cast<const Wide *>(chunk)->slots[place];
  if (address.family() == AF_INET) return is_v4(slot);
  return slot.tag >= kV6 && std::memcmp(slot.ip, &in6(address).sin6_addr, sizeof slot.ip) == 0 &&
         std::memcmp(slot.port, &in6(address).sin6_port, sizeof slot.port) == 0 &&
         in6(address).sin6_scope_id == (slot.tag == kV6 ? 0 : chunk->scopes[slot.tag - kScope]);
}

uint8_t Av::scope_tag(Wide &chunk, uint32_t scope) {
  if (scope == 0) return kV6;
  auto &scopes = chunk.scopes;
  const auto tag_at = [](size_t n) { return uint8_t(kScope + n); };
  if (const auto it = std::ranges::find(scopes, scope); it != scopes.end())
    return tag_at(size_t(it - scopes.begin()));
  if (scopes.size() == 256 - kScope) {
    // Most of them are of entries that were removed: there are more of them than slots.
    std::vector<uint32_t> live;
    live.reserve(kChunk);
    for (Slot6 &slot : chunk.slots) {
      if (slot.tag < kScope) continue;
      const uint32_t its = scopes[slot.tag - kScope];
      const size_t n = size_t(std::ranges::find(live, its) - live.begin());
      if (n == live.size()) live.push_back(its);
      slot.tag = tag_at(n);
    }
    scopes.swap(live);
  }
  scopes.push_back(scope);
  return tag_at(scopes.size() - 1);
}

Av::Wide *Av::widen(uint32_t number) {
  Chunk *&chunk = chunks_[number];
  if (chunk != nullptr && chunk->wide) return static_cast<Wide *>(chunk);
  auto wide = std::make_unique<Wide>();
  if (chunk != nullptr) {
    const auto *narrow = static_cast<Narrow *>(chunk);
    for (uint32_t i = 0; i < kChunk; ++i) {
      std::memcpy(wide->slots[i].ip, narrow->slots[i].ip, sizeof narrow->slots[i].ip);
      std::memcpy(wide->slots[i].port, narrow->slots[i].port, sizeof narrow->slots[i].port);
      wide->slots[i].tag = narrow->slots[i].tag;
    }
    wide->used = chunk->used;
    wide->low = chunk->low;
    wide->ids = std::move(chunk->ids);
    destroy(chunk);
  }
  chunk = wide.get();
  return wide.release();
}

uint32_t Av::lowest_free() {
  for (; room_from_ < room_.size(); ++room_from_) {
    if (room_[room_from_] == 0) continue;
    const uint32_t number =
        uint32_t(room_from_ * 64) + uint32_t(std::countr_zero(room_[room_from_]));
    Chunk *chunk = chunks_[number];
    if (chunk == nullptr) return number * kChunk;
    while (tag_of(number * kChunk + chunk->low) != kFree) ++chunk->low;
    return number * kChunk + chunk->low;
  }
  return uint32_t(chunks_.size()) * kChunk;
}

// The entry must be free. Throws bad_alloc, then nothing happened. Users are told last: they may
// report what came from this address at once.
void Av::set(uint32_t index, const SockAddr &address, const fi_addr_t *id) {
  const uint32_t number = index / kChunk, place = index % kChunk;
  if (reverse_ != nullptr) reverse_->reserve(1);
  while (number >= chunks_.size()) {
    const size_t at = chunks_.size();
    if (room_.size() <= at / 64) room_.push_back(0);
    chunks_.push_back(nullptr);
    room_[at / 64] |= uint64_t(1) << at % 64;
    room_from_ = std::min(room_from_, at / 64);
  }
  const bool v6 = address.family() == AF_INET6;
  if (v6) {
    widen(number);
  } else if (chunks_[number] == nullptr) {
    chunks_[number] = new Narrow;
  }
  Chunk *const chunk = chunks_[number];
  if (id != nullptr) ids(number);  // the memory for them, before anything has happened
  if (v6) {
    Wide *wide = static_cast<Wide *>(chunk);
    const uint8_t tag = scope_tag(*wide, in6(address).sin6_scope_id);
    Slot6 &slot = wide->slots[place];
    std::memcpy(slot.ip, &in6(address).sin6_addr, sizeof slot.ip);
    std::memcpy(slot.port, &in6(address).sin6_port, sizeof slot.port);
    slot.tag = tag;
  } else {
    const auto fill = [&](auto &slot) {
      std::memcpy(slot.ip, &in(address).sin_addr, 4);
      std::memcpy(slot.port, &in(address).sin_port, sizeof slot.port);
      slot.tag = kV4;
    };
    if (chunk->wide)
      fill(static_cast<Wide *>(chunk)->slots[place]);
    else
      fill(static_cast<Narrow *>(chunk)->slots[place]);
  }
  if (id != nullptr) ids(number)[place] = *id;
  if (place == chunk->low) ++chunk->low;
  if (++chunk->used == kChunk) room_[number / 64] &= ~(uint64_t(1) << number % 64);
  end_ = std::max(end_, index + 1);
  ++count_;
  if (reverse_ != nullptr && !reverse_->add(index, address)) twice_ = true;
  for (size_t i = 0; i < av_users_.size(); ++i)
    if (av_users_[i].second) av_users_[i].first->on_av_inserted(index, address);
}

void Av::clear(uint32_t index) {
  for (size_t i = 0; i < av_users_.size(); ++i) av_users_[i].first->on_av_removed(index);
  if (reverse_ != nullptr) reverse_->remove(index, *get(index));
  const uint32_t number = index / kChunk, place = index % kChunk;
  Chunk *chunk = chunks_[number];
  if (chunk->wide)
    static_cast<Wide *>(chunk)->slots[place].tag = kFree;
  else
    static_cast<Narrow *>(chunk)->slots[place].tag = kFree;
  if (chunk->ids != nullptr) chunk->ids[place] = without_id(index);
  chunk->low = std::min(chunk->low, uint8_t(place));
  room_[number / 64] |= uint64_t(1) << number % 64;
  room_from_ = std::min(room_from_, size_t(number / 64));
  --count_;
  if (--chunk->used != 0) return;
  chunks_[number] = nullptr;
  destroy(chunk);
}

fi_addr_t *Av::ids(uint32_t number) {
  Chunk &chunk = *chunks_[number];
  if (chunk.ids == nullptr) {
    chunk.ids.reset(new fi_addr_t[kChunk]);
    for (uint32_t i = 0; i < kChunk; ++i) chunk.ids[i] = without_id(number * kChunk + i);
    has_ids_ = true;
  }
  return chunk.ids.get();
}

// 0 or FI_E...: the address at the lowest free index, in the shared file too.
int Av::add(const SockAddr &address, const fi_addr_t *id, uint32_t &index) {
  index = lowest_free();
  if (index >= (file_ != nullptr ? AvFile::kMaxEntries : kNone - kChunk)) return FI_ENOSPC;
  int error = 0;
  try {
    set(index, address, id);
    if (file_ == nullptr) return 0;
    if (const auto written = file_->write(index, address); !written) error = written.error().code;
  } catch (const std::bad_alloc &) {
    error = FI_ENOMEM;
  }
  if (error != 0 && index < end_ && tag_of(index) != kFree) clear(index);
  return error;
}

uint32_t Av::find(const SockAddr &address) {
  if (file_ != nullptr) refresh();
  if (reverse_ == nullptr) {
    auto reverse = std::make_unique<Reverse>(*this);
    reverse->reserve(count_);
    for (uint32_t index = 0; index < end_; ++index)
      if (const auto there = get(index); there && !reverse->add(index, *there)) twice_ = true;
    reverse_ = std::move(reverse);
  }
  return reverse_->find(address);
}

void Av::add_user(AvUser &user, bool wants_inserts) {
  av_users_.emplace_back(&user, wants_inserts);
}

void Av::remove_user(AvUser &user) {
  std::erase_if(av_users_, [&](const auto &entry) { return entry.first == &user; });
}

// ---- opening and closing ----

Av::Av(DomainContext &domain, uint32_t addr_format, const fi_av_attr &attr, void *context)
    : Object(domain.instance, FI_CLASS_AV, context),
      domain_(domain),
      addr_format_(addr_format),
      map_(raw(attr.type) == FI_AV_MAP),
      async_(attr.flags & FI_EVENT),
      read_only_(attr.flags & FI_READ),
      only_ids_(attr.flags & FI_AV_USER_ID),
      index_mask_(attr.rx_ctx_bits == 0 ? ~fi_addr_t(0) : ~fi_addr_t(0) >> attr.rx_ctx_bits),
      has_ids_(only_ids_) {
  fill_tables(*this);
}

Av::~Av() {
  for (Chunk *chunk : chunks_) destroy(chunk);
}

Result<Av *> Av::open(DomainContext &domain, uint32_t addr_format, fi_av_attr *attr, void *context,
                      std::string_view domain_name) {
  fi_av_attr defaults{};
  if (attr == nullptr) attr = &defaults;
  const int type = raw(attr->type);
  if (type != FI_AV_UNSPEC && type != FI_AV_MAP && type != FI_AV_TABLE)
    return fail(FI_EINVAL, "fi_av_attr.type %d: use FI_AV_TABLE, FI_AV_MAP or FI_AV_UNSPEC", type);
  constexpr uint64_t kFlags = FI_EVENT | FI_READ | FI_SYMMETRIC | FI_AV_USER_ID;
  if (attr->flags & ~kFlags)
    return fail(FI_EBADFLAGS,
                "fi_av_attr.flags %#llx: only FI_EVENT, FI_READ, FI_SYMMETRIC and FI_AV_USER_ID "
                "are known",
                (unsigned long long)attr->flags);
  if (attr->flags & FI_AV_USER_ID && !domain.user_ids)
    return fail(FI_EBADFLAGS,
                "fi_av_attr.flags has FI_AV_USER_ID, but fi_domain was called without it in "
                "domain_attr->caps or caps");
  // An index has 32 bits; an fi_addr_t has room for as many more.
  if (attr->rx_ctx_bits < 0 || attr->rx_ctx_bits > 32)
    return fail(FI_EINVAL, "fi_av_attr.rx_ctx_bits is %d; 0 to 32 can be reserved",
                attr->rx_ctx_bits);
  if (!is_socket_format(addr_format))
    return fail(FI_EINVAL, "an address vector of format %u, which is none of sockets", addr_format);
  if (attr->name == nullptr && attr->flags & FI_READ)
    return fail(FI_EINVAL, "fi_av_attr.flags has FI_READ, but there is no name of what to read");

  std::unique_ptr<Av, void (*)(Av *)> av(new Av(domain, addr_format, *attr, context),
                                         [](Av *object) { delete object; });
  uint64_t map_addr = reinterpret_cast<uintptr_t>(attr->map_addr);
  if (attr->name != nullptr) {
    WEFT_TRY(std::string path, AvFile::path_of(domain_name, attr->name));
    WEFT_TRY(av->file_, AvFile::open({.path = std::move(path),
                                      .addr_format = addr_format,
                                      .map_addr = map_addr,
                                      .read_only = av->read_only_}));
    WEFT_CHECK(av->synchronize());
    if (map_addr == 0) map_addr = av->file_->map_addr();
  }
  WEFT_CHECK(av->publish(domain.fid));
  domain.children.fetch_add(1, std::memory_order_relaxed);
  if (type == FI_AV_UNSPEC) attr->type = FI_AV_TABLE;
  if (attr->name != nullptr) attr->map_addr = reinterpret_cast<void *>(uintptr_t(map_addr));
  return av.release();
}

int open_av(DomainContext &domain, uint32_t addr_format, fi_av_attr *attr, fid_av **av,
            void *context, std::string_view domain_name) {
  if (av == nullptr) return -FI_EINVAL;
  return finish(domain.instance, FI_LOG_AV,
                Av::open(domain, addr_format, attr, context, domain_name), av);
}

int Av::close() {
  {
    Guard guard(domain_.engine->lock());
    if (!av_users_.empty() || users.load() != 0) return -FI_EBUSY;
  }
  retire();
  // Events of the vector stay in the queue (fi_av.3).
  if (eq_ != nullptr) eq_->users.fetch_sub(1);
  domain_.children.fetch_sub(1, std::memory_order_relaxed);
  delete this;
  return 0;
}

int Av::bind(struct fid *fid, uint64_t flags) {
  if (!Eq::is_mine(fid, FI_CLASS_EQ, instance())) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  Guard guard(domain_.engine->lock());
  if (eq_ != nullptr) return -FI_EBUSY;
  eq_ = Eq::from(fid);
  eq_->users.fetch_add(1);
  return 0;
}

// ---- inserting ----

int Av::check_insert(size_t count, const fi_addr_t *fi_addr, uint64_t flags, const void *context) {
  const uint64_t known = FI_MORE | FI_SYNC_ERR | (domain_.user_ids ? FI_AV_USER_ID : 0);
  if (flags & ~known) return -FI_EBADFLAGS;
  // There fi_av_set_user_id says them (fi_av.3).
  if (flags & FI_AV_USER_ID && only_ids_) return -FI_EINVAL;
  if (flags & FI_SYNC_ERR && async_) return -FI_EBADFLAGS;
  if (read_only_) return -FI_EACCES;
  if (count > INT_MAX) return -FI_EINVAL;  // more than can be returned
  if (count != 0 && flags & FI_SYNC_ERR && context == nullptr) return -FI_EINVAL;
  // Without the array the application would not get the addresses of an FI_AV_MAP, nor pass ids.
  if (count != 0 && fi_addr == nullptr && (map_ || flags & FI_AV_USER_ID)) return -FI_EINVAL;
  if (async_) {
    Guard guard(domain_.engine->lock());
    if (eq_ == nullptr) return -FI_ENOEQ;
  }
  return 0;
}

// next() gives each address in turn, as a Result.
template <class Next>
int Av::insert_all(size_t count, fi_addr_t *fi_addr, uint64_t flags, void *context, Next next) {
  size_t done = 0;
  std::string first;  // why, of the addresses that failed
  {
    Guard guard(domain_.engine->lock());
    if (const auto ready = begin_writing(); !ready) {
      WEFT_WARN(instance(), FI_LOG_AV, "%s", ready.error().text.c_str());
      return -ready.error().code;
    }
    const EndOfWriting end{*this};
    for (size_t i = 0; i < count; ++i) {
      const Result<SockAddr> address = check_peer(next());
      uint32_t index = kNone;
      const fi_addr_t *id = flags & FI_AV_USER_ID ? &fi_addr[i] : nullptr;
      const int error = address ? add(*address, id, index) : address.error().code;
      if (flags & FI_SYNC_ERR) static_cast<int *>(context)[i] = error;
      if (error == 0) {
        ++done;
        if (fi_addr != nullptr) fi_addr[i] = index;
        continue;
      }
      if (fi_addr != nullptr) fi_addr[i] = FI_ADDR_NOTAVAIL;
      if (async_)
        eq_->push_error(
            {.fid = base(), .context = context, .data = i, .err = error, .prov_errno = error});
      if (first.empty()) {
        char text[128];
        first = address ? address->to_string() + ": " + strerror_into(error, text, sizeof text)
                        : address.error().text;
      }
    }
    if (async_) eq_->push(FI_AV_COMPLETE, base(), done, context);
  }
  if (done != count)
    WEFT_WARN(instance(), FI_LOG_AV, "%zu of %zu addresses were not inserted; %s", count - done,
              count, first.c_str());
  return async_ ? 0 : int(done);
}

int Av::insert(const void *addr, size_t count, fi_addr_t *fi_addr, uint64_t flags, void *context) {
  if (const int rc = check_insert(count, fi_addr, flags, context); rc != 0) return rc;
  if (count != 0 && addr == nullptr) return -FI_EINVAL;
  const char *at = static_cast<const char *>(addr);
  return insert_all(count, fi_addr, flags, context, [&]() -> Result<SockAddr> {
    const char *element = at;
    if (addr_format_ == FI_ADDR_STR) {
      at += sizeof(char *);
      const char *text;
      std::memcpy(&text, element, sizeof text);
      return read_address(addr_format_, text);
    }
    // Where the family says how long an address is, one of an unknown family is as long as the
    // format's struct.
    size_t size = sizeof(sockaddr_in);
    static_assert(sizeof(sockaddr_in) == sizeof(sockaddr));
    if (addr_format_ == FI_SOCKADDR_IN6) {
      size = sizeof(sockaddr_in6);
    } else if (addr_format_ != FI_SOCKADDR_IN) {
      sa_family_t family;
      std::memcpy(&family, element, sizeof family);
      if (family == AF_INET6) size = sizeof(sockaddr_in6);
    }
    at += size;
    return read_address(addr_format_, element, size);
  });
}

int Av::insertsvc(const char *node, const char *service, fi_addr_t *fi_addr, uint64_t flags,
                  void *context) {
  if (const int rc = check_insert(1, fi_addr, flags, context); rc != 0) return rc;
  if (node == nullptr) return -FI_EINVAL;  // the service is that of a node
  if (service != nullptr && std::strstr(node, "://") != nullptr) return -FI_EINVAL;
  // The resolver may take its time: without the lock.
  const auto found = resolve(node, service, {.family = family_of(addr_format_)});
  return insert_all(1, fi_addr, flags, context, [&]() -> Result<SockAddr> {
    if (!found) return tl::unexpected(found.error());
    return found->front();
  });
}

namespace {

// A row of nodes: addresses that follow one another, or names whose number at the end goes up.
class Nodes {
 public:
  // Resolves all names, which may take its time.
  static Result<Nodes> of(const char *node, size_t count, int family) {
    Nodes nodes;
    if (const auto first = SockAddr::from_ip(node)) {
      nodes.first_ = *first;
      return nodes;
    }
    if (count == 1) {
      nodes.resolved_.push_back(first_of(node, family));
      return nodes;
    }
    const std::string_view name = node;
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    const std::string_view number = name.substr(digits);
    uint64_t start = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), start);
    if (number.empty() || error != std::errc() || start > UINT64_MAX - count)
      return fail(FI_EINVAL,
                  "node %.200s: to count %zu nodes up it must be an address or end in a number",
                  node, count);
    for (size_t i = 0; i < count; ++i) {
      std::string text = std::to_string(start + i);
      if (text.size() < number.size()) text.insert(0, number.size() - text.size(), '0');
      nodes.resolved_.push_back(
          first_of((std::string(name.substr(0, digits)) + text).c_str(), family));
    }
    return nodes;
  }

  Result<SockAddr> at(size_t i) const {
    if (!resolved_.empty()) return resolved_[i];
    const bool v6 = first_.family() == AF_INET6;
    sockaddr_in6 a6{};
    sockaddr_in a4{};
    unsigned char *ip;
    size_t size;
    if (v6) {
      a6 = in6(first_);
      ip = a6.sin6_addr.s6_addr;
      size = 16;
    } else {
      a4 = in(first_);
      ip = reinterpret_cast<unsigned char *>(&a4.sin_addr);
      size = 4;
    }
    uint64_t carry = i;
    for (size_t byte = size; byte-- > 0 && carry != 0;) {
      carry += ip[byte];
      ip[byte] = uint8_t(carry);
      carry >>= 8;
    }
    if (carry != 0)
      return fail(FI_EINVAL, "there is no address %zu places after %s", i, first_.ip().c_str());
    return v6 ? SockAddr(a6) : SockAddr(a4);
  }

 private:
  static Result<SockAddr> first_of(const char *name, int family) {
    auto found = resolve(name, nullptr, {.family = family});
    if (!found) return tl::unexpected(found.error());
    return found->front();
  }

  SockAddr first_;
  std::vector<Result<SockAddr>> resolved_;
};

Result<uint16_t> port_of(const char *service) {
  WEFT_TRY(const std::vector<SockAddr> found, resolve(nullptr, service, {.local = true}));
  return found.front().port();
}

}  // namespace

int Av::insertsym(const char *node, size_t nodecnt, const char *service, size_t svccnt,
                  fi_addr_t *fi_addr, uint64_t flags, void *context) {
  if (node == nullptr || service == nullptr) return -FI_EINVAL;
  size_t count;
  if (__builtin_mul_overflow(nodecnt, svccnt, &count)) return -FI_EINVAL;
  if (const int rc = check_insert(count, fi_addr, flags, context); rc != 0) return rc;
  const int family = family_of(addr_format_);
  const auto port = port_of(service);
  const auto nodes = Nodes::of(node, nodecnt, family);
  for (const Error *error : {port ? nullptr : &port.error(), nodes ? nullptr : &nodes.error()}) {
    if (error == nullptr) continue;
    WEFT_WARN(instance(), FI_LOG_AV, "%s", error->text.c_str());
    return -FI_EINVAL;
  }
  size_t at_node = 0, at_service = 0;
  return insert_all(count, fi_addr, flags, context, [&]() -> Result<SockAddr> {
    const size_t number = at_node, up = at_service;
    if (++at_service == svccnt) ++at_node, at_service = 0;
    Result<SockAddr> address = nodes->at(number);
    if (!address) return address;
    if (family != AF_UNSPEC && address->family() != family)
      return fail(FI_EINVAL, "address %s is not of the vector's family", address->ip().c_str());
    if (up > size_t(UINT16_MAX - *port))
      return fail(FI_EINVAL, "there is no port %zu places after %u", up, unsigned(*port));
    address->set_port(uint16_t(*port + up));
    return address;
  });
}

// ---- the other ops ----

int Av::remove(fi_addr_t *fi_addr, size_t count, uint64_t flags) {
  if (flags != 0) return -FI_EBADFLAGS;
  if (read_only_) return -FI_EACCES;
  if (count != 0 && fi_addr == nullptr) return -FI_EINVAL;
  Guard guard(domain_.engine->lock());
  if (const auto ready = begin_writing(); !ready) {
    WEFT_WARN(instance(), FI_LOG_AV, "%s", ready.error().text.c_str());
    return -ready.error().code;
  }
  const EndOfWriting end{*this};
  int rc = 0;
  for (size_t i = 0; i < count; ++i) {
    const fi_addr_t address = fi_addr[i] & index_mask_;
    if (address >= end_ || tag_of(uint32_t(address)) == kFree) {
      rc = -FI_EINVAL;  // the others are removed all the same
      continue;
    }
    clear(uint32_t(address));
    if (file_ == nullptr) continue;
    if (const auto written = file_->write(uint32_t(address), std::nullopt); !written) {
      WEFT_WARN(instance(), FI_LOG_AV, "%s", written.error().text.c_str());
      rc = -written.error().code;
    }
  }
  return rc;
}

int Av::lookup(fi_addr_t fi_addr, void *addr, size_t *addrlen) {
  if (addrlen == nullptr || (addr == nullptr && *addrlen != 0)) return -FI_EINVAL;
  Guard guard(domain_.engine->lock());
  const uint32_t index = index_of(fi_addr);
  if (index == kNone) return -FI_EINVAL;
  write_address(*get(index), addr_format_, addr, addrlen);  // what does not fit is cut (fi_av.3)
  return 0;
}

const char *Av::straddr(const void *addr, char *buf, size_t *len) {
  if (len == nullptr) return buf;
  const auto address = read_address(addr_format_, addr);
  const std::string text = address ? format_address_string(*address) : "not an address";
  if (buf != nullptr && *len != 0) buf[text.copy(buf, *len - 1)] = '\0';
  *len = text.size() + 1;
  return buf;
}

int Av::set_user_id(fi_addr_t fi_addr, fi_addr_t user_id, uint64_t flags) {
  if (flags != 0) return -FI_EBADFLAGS;
  if (!only_ids_) return -FI_EINVAL;  // of vectors opened with FI_AV_USER_ID (fi_av.3)
  Guard guard(domain_.engine->lock());
  const uint32_t index = index_of(fi_addr);
  if (index == kNone) return -FI_EINVAL;
  ids(index / kChunk)[index % kChunk] = user_id;
  return 0;
}

// ---- shared vectors ----

void Av::refresh() {
  if (!file_->changed()) return;
  // FI_EAGAIN: another process writes for longer than a reader waits. The copy stays as it is until
  // the next call.
  if (const auto done = synchronize(); !done && done.error().code != FI_EAGAIN)
    give_up(done.error());
}

// The file says something that cannot be true. What is in the vector can be used; the file is left
// alone.
void Av::give_up(const Error &error) {
  WEFT_WARN(instance(), FI_LOG_AV,
            "%s; nothing can be inserted any more: close the vector and open it anew",
            error.text.c_str());
  file_.reset();
  lost_file_ = true;
}

// Makes the vector what the file says. An error but FI_EAGAIN: the file is damaged.
Result<void> Av::synchronize() {
  WEFT_CHECK(file_->lock(AvFile::kRead));
  const EndOfWriting end{*this};
  return catch_up();
}

Result<void> Av::catch_up() {
  WEFT_TRY(const AvFile::Counters counters, file_->counters());
  const uint32_t from = file_->rewritten() ? 0 : file_->seen_end();
  WEFT_CHECK(file_->read(
      from, counters.end, [this](uint32_t index, const std::optional<SockAddr> &theirs) {
        const std::optional<SockAddr> mine = index < end_ ? get(index) : std::nullopt;
        if (mine == theirs) return;
        if (mine) clear(index);
        if (theirs) set(index, *theirs);
      }));
  file_->seen(counters);
  return {};
}

Result<void> Av::begin_writing() {
  if (lost_file_)
    return fail(FI_EIO, "the shared address vector was found damaged before: close it");
  if (file_ == nullptr) return {};
  WEFT_CHECK(file_->lock(AvFile::kWrite));
  if (!file_->changed()) return {};
  Result<void> done;
  try {
    done = catch_up();
  } catch (...) {
    file_->unlock();
    throw;
  }
  if (done) return {};
  file_->unlock();
  give_up(done.error());
  return fail(FI_EIO, "the shared address vector is damaged");
}

void Av::end_writing() {
  if (file_ != nullptr) file_->unlock();
}

}  // namespace weft::sdk
