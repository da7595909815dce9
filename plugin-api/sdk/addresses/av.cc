// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/addresses/av.h>

#include <weft/sdk/objects/domain.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/objects/ops.h>

#include <memory>
#include <string>
#include <utility>

#include "address_codec.h"
#include "av_file.h"
#include "av_reverse.h"  // ~Av destroys it
#include "av_view.h"     // likewise
#include "plugin-api/sdk/objects/exported.h"
#include "plugin-api/sdk/objects/peer.h"

namespace weft::sdk {
namespace {

constexpr size_t kMaxName = 256;  // bytes of an endpoint's name, in any format

// FI_PEER: the vector is one beside another provider's, and of the same kind.
Result<void> take_owners(fi_av_attr &attr, void *context) {
  WEFT_TRY(fid_peer_av *const owner, peer_av(context));
  fi_av_attr its{};
  if (const int rc = owner->owner_ops->query(owner, &its); rc != 0)
    return fail(-rc, "fi_av_open: FI_PEER: the owner does not say what its vector is");
  if (attr.type != FI_AV_UNSPEC && its.type != FI_AV_UNSPEC && raw(attr.type) != raw(its.type))
    return fail(FI_EINVAL, "fi_av_open: FI_PEER: fi_av_attr.type %d: the owner's vector has %d",
                raw(attr.type), raw(its.type));
  if (its.type != FI_AV_UNSPEC) attr.type = its.type;
  if (attr.rx_ctx_bits == 0) attr.rx_ctx_bits = its.rx_ctx_bits;
  attr.count = its.count;
  attr.flags &= ~uint64_t(FI_PEER);
  return {};
}

}  // namespace

// ---- opening and closing ----

Av::Av(DomainContext &domain, uint32_t addr_format, uint32_t native, const fi_av_attr &attr,
       void *context, Av *origin)
    : Object(domain.instance, FI_CLASS_AV, context),
      domain_(domain),
      addr_format_(addr_format),
      native_(native),
      map_(raw(attr.type) == FI_AV_MAP),
      async_(attr.flags & FI_EVENT),
      read_only_(attr.flags & FI_READ),
      symmetric_(attr.flags & FI_SYMMETRIC),
      only_ids_(attr.flags & FI_AV_USER_ID),
      index_mask_(attr.rx_ctx_bits == 0 ? ~fi_addr_t(0) : ~fi_addr_t(0) >> attr.rx_ctx_bits),
      rx_ctx_shift_(64 - unsigned(attr.rx_ctx_bits == 0 ? 1 : attr.rx_ctx_bits)),
      has_ids_(only_ids_),
      found_once_(origin != nullptr),
      origin_(origin) {
  fill_tables(*this);
}

Av::~Av() {
  for (Chunk *chunk : chunks_) destroy(chunk);
}

Result<Av *> Av::open(DomainContext &domain, uint32_t addr_format, fi_av_attr *attr, void *context,
                      std::string_view domain_name, uint32_t native) {
  fi_av_attr defaults{};
  if (attr == nullptr) attr = &defaults;
  if (attr->flags & FI_PEER) WEFT_CHECK(take_owners(*attr, context));
  const int type = raw(attr->type);
  if (type != FI_AV_UNSPEC && type != FI_AV_MAP && type != FI_AV_TABLE)
    return fail(FI_EINVAL, "fi_av_attr.type %d: use FI_AV_TABLE, FI_AV_MAP or FI_AV_UNSPEC", type);
  constexpr uint64_t kFlags = FI_EVENT | FI_READ | FI_SYMMETRIC | FI_AV_USER_ID;
  if (attr->flags & ~kFlags)
    return fail(FI_EBADFLAGS,
                "fi_av_attr.flags %#llx: only FI_EVENT, FI_READ, FI_SYMMETRIC, FI_PEER and "
                "FI_AV_USER_ID are known",
                (unsigned long long)attr->flags);
  if (attr->flags & FI_AV_USER_ID && !domain.user_ids)
    return fail(FI_EBADFLAGS,
                "fi_av_attr.flags has FI_AV_USER_ID, but fi_domain was called without it in "
                "domain_attr->caps or caps");
  // An index takes 32 of the 64 bits of an fi_addr_t.
  if (attr->rx_ctx_bits < 0 || attr->rx_ctx_bits > 32)
    return fail(FI_EINVAL, "fi_av_attr.rx_ctx_bits is %d; 0 to 32 can be reserved",
                attr->rx_ctx_bits);
  if (!is_address_format(addr_format))
    return fail(FI_EINVAL, "an address vector of format %u, whose addresses nobody can read",
                addr_format);
  if (codec_of(addr_format) != nullptr || addr_format == FI_SOCKADDR_IP) native = addr_format;
  if (attr->name != nullptr && domain.av_keys != nullptr)
    return fail(FI_ENOSYS,
                "fi_av_attr.name is \"%s\": a vector that processes share cannot have keys "
                "(FI_AV_AUTH_KEY); open one without a name",
                attr->name);
  if (attr->name == nullptr && attr->flags & FI_READ)
    return fail(FI_EINVAL, "fi_av_attr.flags has FI_READ, but there is no name of what to read");

  std::unique_ptr<Av, void (*)(Av *)> av(new Av(domain, addr_format, native, *attr, context),
                                         [](Av *object) { delete object; });
  uint64_t map_addr = reinterpret_cast<uintptr_t>(attr->map_addr);
  if (attr->name != nullptr) {
    WEFT_TRY(std::string path, AvFile::path_of(domain_name, attr->name));
    WEFT_TRY(av->file_, AvFile::open({.path = std::move(path),
                                      .addr_format = addr_format,
                                      .native = native,
                                      .map_addr = map_addr,
                                      .read_only = av->read_only_}));
    WEFT_CHECK(av->synchronize());
    if (map_addr == 0) map_addr = reinterpret_cast<uintptr_t>(av->file_->names());
  }
  WEFT_CHECK(av->publish(domain.fid));
  domain.children.fetch_add(1, std::memory_order_relaxed);
  if (type == FI_AV_UNSPEC) attr->type = FI_AV_TABLE;
  if (attr->name != nullptr) attr->map_addr = reinterpret_cast<void *>(uintptr_t(map_addr));
  return av.release();
}

int open_av(DomainContext &domain, uint32_t addr_format, fi_av_attr *attr, fid_av **av,
            void *context, std::string_view domain_name, uint32_t native) {
  if (av == nullptr) return -FI_EINVAL;
  return finish(domain.instance, FI_LOG_AV,
                Av::open(domain, addr_format, attr, context, domain_name, native), av);
}

uint32_t native_format(const fi_info &info) {
  uint32_t format = info.addr_format;
  for (const auto &[address, length] :
       {std::pair(info.src_addr, info.src_addrlen), std::pair(info.dest_addr, info.dest_addrlen)}) {
    if (codec_of(format) != nullptr || address == nullptr) continue;
    if (const auto known = read_address(format, address, length)) format = known->format();
  }
  const bool of_ip = format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6;
  return codec_of(format) == nullptr || of_ip ? uint32_t(FI_SOCKADDR_IP) : format;
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

int Av::control(int command, void *arg) {
  return command == FI_EXPORT_FID ? export_fid(*this, arg) : -FI_ENOSYS;
}

void Av::query(fi_av_attr &attr) {
  const Guard guard(domain_.engine->lock());
  attr = {};
  attr.type = map_ ? FI_AV_MAP : FI_AV_TABLE;
  attr.count = count_;
  if (index_mask_ != ~fi_addr_t(0)) attr.rx_ctx_bits = 64 - int(rx_ctx_shift_);
  attr.flags = (async_ ? FI_EVENT : 0) | (read_only_ ? FI_READ : 0) |
               (symmetric_ ? FI_SYMMETRIC : 0) | (only_ids_ ? FI_AV_USER_ID : 0);
}

fi_addr_t Av::address_of(fid_ep &endpoint) {
  char name[kMaxName];
  size_t length = sizeof name;
  if (fi_getname(&endpoint.fid, name, &length) != 0 || length > sizeof name)
    return FI_ADDR_NOTAVAIL;
  const auto address = read_address(addr_format_, name, length);
  if (!address) return FI_ADDR_NOTAVAIL;
  const Guard guard(domain_.engine->lock());
  const uint32_t index = find(*address);
  return index != kNone ? reported(index) : FI_ADDR_NOTAVAIL;
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

// ---- the other ops ----

int Av::remove(fi_addr_t *fi_addr, size_t count, uint64_t flags) {
  const uint64_t known = domain_.av_keys != nullptr ? FI_AUTH_KEY : 0;
  if (flags & ~known) return -FI_EBADFLAGS;
  if (read_only_) return -FI_EACCES;
  if (count != 0 && fi_addr == nullptr) return -FI_EINVAL;
  if (flags & FI_AUTH_KEY) return remove_keys(fi_addr, count);
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
      rc = -FI_EINVAL;  // the other entries are removed all the same
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
  const uint64_t known = domain_.av_keys != nullptr ? FI_AUTH_KEY : 0;
  if (flags & ~known) return -FI_EBADFLAGS;
  if (!only_ids_) return -FI_EINVAL;  // fi_av.3: only for vectors opened with FI_AV_USER_ID
  if (flags & FI_AUTH_KEY) return set_key_id(fi_addr, user_id);
  Guard guard(domain_.engine->lock());
  const uint32_t index = index_of(fi_addr);
  if (index == kNone) return -FI_EINVAL;
  {
    const auto alone = hold_views();
    ids(index / kChunk)[index % kChunk] = user_id;
  }
  if (views_ != nullptr)
    for (Av *view : views_->list) view->rename(index, user_id);
  return 0;
}

// ---- shared vectors ----

// The file is damaged: it says something that cannot be true. The entries that the vector has stay
// usable. The file is not touched.
void Av::give_up(const Error &error) {
  WEFT_WARN(instance(), FI_LOG_AV,
            "%s; nothing can be inserted any more: close the vector and open it anew",
            error.text.c_str());
  damaged_file_ = std::move(file_);  // the application may still read the names
}

// Reads into the vector what other processes wrote. FI_EAGAIN: one of them is writing. Any other
// error: the file is damaged.
Result<void> Av::synchronize() {
  WEFT_CHECK(file_->lock(AvFile::kRead));
  const EndOfWriting end{*this};
  return catch_up();
}

Result<void> Av::catch_up() {
  // Users are told of each change, and may ask about others. They get what was read so far.
  struct Reading {
    bool &flag;
    explicit Reading(bool &flag) : flag(flag) { flag = true; }
    ~Reading() { flag = false; }
  } const reading(catching_up_);
  WEFT_TRY(const AvFile::Counters counters, file_->counters());
  const uint32_t from = file_->rewritten() ? 0 : file_->seen_end();
  WEFT_CHECK(
      file_->read(from, counters.end, [this](uint32_t index, const std::optional<Address> &theirs) {
        const std::optional<Address> mine = index < end_ ? get(index) : std::nullopt;
        if (mine == theirs) return;
        if (mine) clear(index);
        if (theirs) set(index, *theirs);
      }));
  file_->seen(counters);
  return {};
}

Result<void> Av::begin_writing() {
  if (damaged_file_ != nullptr)
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
