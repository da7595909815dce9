// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/addresses/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "address_codec.h"
#include "address_ib.h"
#include "weft/sdk/ip/sock_addr.h"
#include "weft/sdk/unit/info_list.h"

namespace weft::sdk {
namespace {

const AddressCodec *const kCodecs[] = {&kIpv4Codec, &kIpv6Codec, &kIbCodec,
                                       &kIbUdCodec, &kCxiCodec,  &kHostCodec};

const AddressCodec *codec_of_family(sa_family_t family) {
  return family == AF_INET     ? &kIpv4Codec
         : family == AF_INET6  ? &kIpv6Codec
         : family == kFamilyIb ? &kIbCodec
                               : nullptr;
}

bool is_native_socket_format(uint32_t format) {
  return format == FI_SOCKADDR || format == FI_SOCKADDR_IP || format == FI_SOCKADDR_IN ||
         format == FI_SOCKADDR_IN6 || format == FI_SOCKADDR_IB;
}

const char *name_of(uint32_t format) {
  return format == FI_SOCKADDR_IN    ? "IPv4"
         : format == FI_SOCKADDR_IN6 ? "IPv6"
         : format == FI_SOCKADDR_IP  ? "IPv4 or IPv6"
                                     : "InfiniBand";
}

bool allows(uint32_t addr_format, const AddressCodec &codec) {
  return addr_format == codec.format || addr_format == FI_SOCKADDR ||
         (addr_format == FI_SOCKADDR_IP && codec.format != FI_SOCKADDR_IB);
}

// The codec of a native address; reads no further than its family.
Result<const AddressCodec *> find_codec(uint32_t addr_format, const void *address, size_t length) {
  if (!is_native_socket_format(addr_format)) {
    if (const AddressCodec *codec = codec_of(addr_format)) return codec;
    return fail(FI_EINVAL,
                "addresses of format %u cannot be used: use FI_SOCKADDR, FI_SOCKADDR_IN, "
                "FI_SOCKADDR_IN6, FI_SOCKADDR_IP, FI_SOCKADDR_IB, FI_ADDR_IB_UD, FI_ADDR_CXI or "
                "FI_ADDR_STR",
                addr_format);
  }
  if (length < sizeof(sa_family_t))
    return fail(FI_EINVAL, "no socket address in %zu bytes", length);
  const auto family = load<sa_family_t>(address, 0);
  const AddressCodec *codec = codec_of_family(family);
  if (codec == nullptr)
    return fail(FI_EINVAL, "a socket address of family %u: AF_INET, AF_INET6 and AF_IB can be used",
                unsigned(family));
  if (!allows(addr_format, *codec))
    return fail(FI_EINVAL, "an %s address is no %s address, as its format says",
                name_of(codec->format), name_of(addr_format));
  return codec;
}

// `bytes` as many as the codec says.
Result<Address> settle(const AddressCodec &codec, unsigned char *bytes) {
  WEFT_CHECK(codec.settle(bytes));
  return Address::of(codec.format, bytes, codec.size);
}

Result<Address> read_string(std::string_view text) {
  const size_t end = text.find("://");
  const std::string_view scheme = text.substr(0, end);
  const std::string_view name = scheme == "fi_ns" ? kHostCodec.name : scheme;
  const auto it = std::ranges::find_if(
      kCodecs, [&](const AddressCodec *c) { return c->name == name && c->parse != nullptr; });
  if (it == std::end(kCodecs)) {  // of IP, or unknown
    WEFT_TRY(const SockAddr address, read_sock_string(text));
    return Address(address);
  }
  const AddressCodec &codec = **it;
  alignas(8) unsigned char bytes[Address::kMaxSize] = {};
  if (codec.format == FI_SOCKADDR_IB) store(bytes, 0, kFamilyIb);
  WEFT_CHECK(codec.parse(end == std::string_view::npos ? std::string_view() : text.substr(end + 3),
                         bytes));
  return settle(codec, bytes);
}

}  // namespace

// ---- for codecs ----

std::optional<uint64_t> parse_number(std::string_view text, uint64_t most, int base) {
  if (text.starts_with("0x")) {
    text.remove_prefix(2);
    base = 16;
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

// ---- Address ----

std::span<const uint8_t> Address::host() const {
  const AddressCodec *codec = codec_of(format_);
  if (codec == nullptr) return {};
  return {bytes_ + codec->host_at, codec->host_size};
}

uint16_t Address::port() const {
  return has_port() ? ntohs(load<uint16_t>(bytes_, port_at())) : 0;
}

Result<Address> Address::with_port(uint16_t port) const {
  if (!has_port())
    return fail(FI_EINVAL, "address %s has no port: its format has none", to_string().c_str());
  Address address = *this;
  store(address.bytes_, port_at(), htons(port));
  return address;
}

bool Address::names_peer() const {
  const AddressCodec *codec = codec_of(format_);
  return codec != nullptr && codec->names_peer(bytes_);
}

bool Address::is_any() const {
  const std::span<const uint8_t> all = host();
  return (size_ == 0 || is_native_socket_format(format_)) &&
         std::ranges::all_of(all, [](uint8_t c) { return c == 0; });
}

bool Address::is_loopback() const {
  if (format_ == FI_SOCKADDR_IN) return bytes_[kIpv4Codec.host_at] == 127;
  if (format_ != FI_SOCKADDR_IN6) return false;
  return std::memcmp(host().data(), &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

bool Address::same_prefix(const Address &other, unsigned bits) const {
  const std::span<const uint8_t> a = host(), b = other.host();
  if (format_ != other.format_ || a.empty() || bits > a.size() * 8) return false;
  const size_t whole = bits / 8;
  if (std::memcmp(a.data(), b.data(), whole) != 0) return false;
  if (bits % 8 == 0) return true;
  const unsigned mask = 0xffu << (8 - bits % 8) & 0xffu;
  return ((a[whole] ^ b[whole]) & mask) == 0;
}

std::string Address::to_string() const {
  if (size_ == 0) return "unspecified";
  if (format_ == FI_SOCKADDR_IN || format_ == FI_SOCKADDR_IN6)
    return SockAddr::from(*this)->to_string();
  return format_address_string(*this);
}

std::strong_ordering Address::operator<=>(const Address &other) const {
  if (auto order = format_ <=> other.format_; order != 0) return order;
  if (format_ == FI_SOCKADDR_IN || format_ == FI_SOCKADDR_IN6)
    return *SockAddr::from(*this) <=> *SockAddr::from(other);
  const std::span<const uint8_t> a = host(), b = other.host();
  if (a.size() != 0)
    if (const int order = std::memcmp(a.data(), b.data(), a.size()); order != 0) return order <=> 0;
  return std::memcmp(bytes_, other.bytes_, size_) <=> 0;
}

// ---- OFI's forms ----

bool is_address_format(uint32_t addr_format) {
  return addr_format == FI_ADDR_STR || is_native_socket_format(addr_format) ||
         codec_of(addr_format) != nullptr;
}

size_t native_size(uint32_t addr_format, const void *address) {
  if (const AddressCodec *codec = codec_of(addr_format)) return codec->size;
  const AddressCodec *codec = codec_of_family(load<sa_family_t>(address, 0));
  return codec != nullptr && allows(addr_format, *codec) ? codec->size : sizeof(sockaddr);
}

Address identity(const Address &address) {
  const AddressCodec *const codec = codec_of(address.format());
  if (codec == nullptr || codec->identify == nullptr) return address;
  unsigned char bytes[Address::kMaxSize];
  std::memcpy(bytes, address.data(), address.size());
  codec->identify(bytes);
  return Address::of(address.format(), bytes, address.size());
}

Result<Address> read_address(uint32_t addr_format, const void *address, size_t length) {
  if (address == nullptr) return fail(FI_EINVAL, "an address is missing (it is null)");
  if (addr_format == FI_ADDR_STR) {
    const char *text = static_cast<const char *>(address);
    // memchr and not strnlen, which may not be asked for SIZE_MAX bytes.
    const void *end = length == SIZE_MAX ? text + std::strlen(text) : std::memchr(text, 0, length);
    return read_string(
        {text, end != nullptr ? size_t(static_cast<const char *>(end) - text) : length});
  }
  WEFT_TRY(const AddressCodec *codec, find_codec(addr_format, address, length));
  if (length < codec->size)
    return fail(FI_EINVAL, "an address of format %.*s in %zu bytes: it takes %zu",
                int(codec->name.size()), codec->name.data(), length, codec->size);
  alignas(8) unsigned char bytes[Address::kMaxSize];
  std::memcpy(bytes, address, codec->size);
  return settle(*codec, bytes);
}

std::string format_address_string(const Address &address) {
  const AddressCodec *codec = codec_of(address.format());
  if (codec == nullptr) return "fi_sockaddr://";
  return std::string(codec->name) + "://" + codec->text(address);
}

size_t address_length(const Address &address, uint32_t addr_format) {
  return addr_format == FI_ADDR_STR ? format_address_string(address).size() + 1 : address.size();
}

int write_address(const Address &address, uint32_t addr_format, void *buffer, size_t *length) {
  if (length == nullptr) return -FI_EINVAL;
  const size_t room = buffer != nullptr ? *length : 0;
  if (addr_format != FI_ADDR_STR) {
    *length = address.size();
    if (room != 0) std::memcpy(buffer, address.data(), std::min<size_t>(room, *length));
  } else {
    const std::string text = format_address_string(address);
    *length = text.size() + 1;
    if (room != 0) {
      const size_t copied = text.copy(static_cast<char *>(buffer), room - 1);
      static_cast<char *>(buffer)[copied] = '\0';
    }
  }
  return room < *length ? -FI_ETOOSMALL : 0;
}

Result<void> set_info_address(void *&member, size_t &length, uint32_t addr_format,
                              const Address &address) {
  if (addr_format != FI_ADDR_STR)
    return set_address(member, length, address.data(), address.size());
  const std::string text = format_address_string(address);
  return set_address(member, length, text.c_str(), text.size() + 1);
}

}  // namespace weft::sdk
