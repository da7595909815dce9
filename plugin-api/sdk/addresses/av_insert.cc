// SPDX-License-Identifier: BSD-2-Clause
// fi_av_insert, fi_av_insertsvc and fi_av_insertsym. Each gives its addresses to insert_all().
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/addresses/host_name.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/objects/domain.h>
#include <weft/sdk/objects/eq.h>

#include <charconv>
#include <climits>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "av_file.h"

namespace weft::sdk {
namespace {

// Whether the text of a name within a host stands here, and no pointer to one (fi_av.3). Programs
// pass what fi_getname has given them, because stock's shm takes that. No pointer looks so.
bool is_name(const char *element) {
  return std::memcmp(element, "fi_shm://", sizeof(char *)) == 0 ||
         std::memcmp(element, "fi_ns://", sizeof(char *)) == 0;
}

bool is_ip(uint32_t format) {
  return format == FI_SOCKADDR_IP || format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6;
}

}  // namespace

// An error unless the address is one that an endpoint can send to.
Result<Address> Av::check_peer(Result<Address> address) const {
  if (!address) return address;
  if (address->format() != native_ && !(native_ == FI_SOCKADDR_IP && is_ip(address->format())))
    return fail(FI_EINVAL, "address %s is not of the format that the provider can send to (%u)",
                address->to_string().c_str(), native_);
  if (!address->names_peer())
    return fail(FI_EADDRNOTAVAIL, "%s names no peer: a peer has an address and %s",
                address->to_string().c_str(),
                address->format() == FI_ADDR_IB_UD ? "a queue pair number"
                : address->format() == FI_ADDR_CXI ? "a PID"
                                                   : "a port");
  const int rc = domain_.check_peer != nullptr ? domain_.check_peer(domain_, *address) : 0;
  if (rc == 0) return address;
  char text[128];
  return fail(-rc, "%s is refused: %s", address->to_string().c_str(),
              strerror_into(-rc, text, sizeof text));
}

int Av::check_insert(size_t count, const fi_addr_t *fi_addr, uint64_t flags, const void *context) {
  const bool keyed = domain_.av_keys != nullptr;
  const uint64_t known =
      FI_MORE | FI_SYNC_ERR | (domain_.user_ids ? FI_AV_USER_ID : 0) | (keyed ? FI_AUTH_KEY : 0);
  if (flags & ~known) return -FI_EBADFLAGS;
  // Such a vector gets its ids by fi_av_set_user_id (fi_av.3).
  if (flags & FI_AV_USER_ID && (only_ids_ || keyed)) return -FI_EINVAL;
  if (keyed && count != 0 && (!(flags & FI_AUTH_KEY) || fi_addr == nullptr)) {
    WEFT_WARN(
        instance(), FI_LOG_AV,
        "fi_av_insert: in a domain with FI_AV_AUTH_KEY an address has a key: pass FI_AUTH_KEY "
        "in flags, and what fi_av_insert_auth_key returned in fi_addr");
    return -FI_EINVAL;
  }
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

// Inserts what `count` calls of next() return, each a Result<Address>.
template <class Next>
int Av::insert_all(size_t count, fi_addr_t *fi_addr, uint64_t flags, void *context, Next next) {
  size_t done = 0;
  std::string first;  // why the first address that failed did so
  {
    Guard guard(domain_.engine->lock());
    if (const auto ready = begin_writing(); !ready) {
      WEFT_WARN(instance(), FI_LOG_AV, "%s", ready.error().text.c_str());
      return -ready.error().code;
    }
    const EndOfWriting end{*this};
    for (size_t i = 0; i < count; ++i) {
      Result<Address> address = check_peer(next());
      if (flags & FI_AUTH_KEY) address = with_key(address, fi_addr[i]);
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
  return insert_all(count, fi_addr, flags, context, [&]() -> Result<Address> {
    const char *element = at;
    if (addr_format_ == FI_ADDR_STR) {
      if (native_ == kHostName && is_name(element)) {
        at += std::strlen(element) + 1;
        return read_address(addr_format_, element);
      }
      at += sizeof(char *);
      const char *text;
      std::memcpy(&text, element, sizeof text);
      return read_address(addr_format_, text);
    }
    const size_t size = native_size(addr_format_, element);
    at += size;
    return read_address(addr_format_, element, size);
  });
}

int Av::insertsvc(const char *node, const char *service, fi_addr_t *fi_addr, uint64_t flags,
                  void *context) {
  if (const int rc = check_insert(1, fi_addr, flags, context); rc != 0) return rc;
  if (node == nullptr) return -FI_EINVAL;  // a service alone names no peer
  if (service != nullptr && std::strstr(node, "://") != nullptr) return -FI_EINVAL;
  if (!is_ip(native_)) {
    // fi_av.3 lets the node be an FI_ADDR_STR. Names of other networks than IP are not resolved.
    if (std::strstr(node, "://") == nullptr) return -FI_ENOSYS;
    return insert_all(1, fi_addr, flags, context, [&] { return read_address(FI_ADDR_STR, node); });
  }
  // The resolver may be slow, so the engine's lock is not held.
  const auto found = resolve(node, service, {.family = family_of(addr_format_)});
  return insert_all(1, fi_addr, flags, context, [&]() -> Result<Address> {
    if (!found) return tl::unexpected(found.error());
    return Address(found->front());
  });
}

namespace {

// The nodes of fi_av_insertsym: consecutive addresses (10.0.0.1, 10.0.0.2), or names that end in
// consecutive numbers (node08, node09, node10).
class Nodes {
 public:
  // Resolves all names, which may be slow.
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
      std::memcpy(&a6, first_.c(), sizeof a6);
      ip = a6.sin6_addr.s6_addr;
      size = 16;
    } else {
      std::memcpy(&a4, first_.c(), sizeof a4);
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
  if (!is_ip(native_)) return -FI_ENOSYS;
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
  return insert_all(count, fi_addr, flags, context, [&]() -> Result<Address> {
    const size_t number = at_node, up = at_service;
    if (++at_service == svccnt) ++at_node, at_service = 0;
    Result<SockAddr> address = nodes->at(number);
    if (!address) return tl::unexpected(std::move(address).error());
    if (family != AF_UNSPEC && address->family() != family)
      return fail(FI_EINVAL, "address %s is not of the vector's family", address->ip().c_str());
    if (up > size_t(UINT16_MAX - *port))
      return fail(FI_EINVAL, "there is no port %zu places after %u", up, unsigned(*port));
    address->set_port(uint16_t(*port + up));
    return Address(*address);
  });
}

}  // namespace weft::sdk
