// SPDX-License-Identifier: BSD-2-Clause
// Address: the address of an endpoint in any of OFI's formats, as a value. Whoever passes addresses
// on (address vectors, layers, protocols) needs no more; what the bytes mean is the business of the
// provider, and of the format's codec (sdk/address_codec.h).
//
// Example:
//    int getname(const Address &own, uint32_t addr_format, void *addr, size_t *addrlen) {
//      return write_address(own, addr_format, addr, addrlen);  // fi_getname
//    }
//    weft::Result<Address> peer_of(const fi_info &info) {
//      WEFT_TRY(const Address peer, read_address(info.addr_format, info.dest_addr,
//                                                info.dest_addrlen));
//      if (peer.names_peer()) return peer;
//      return weft::fail(FI_EADDRNOTAVAIL, "%s names no peer", peer.to_string().c_str());
//    }
//
// The formats are FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_SOCKADDR_IB, FI_ADDR_IB_UD, FI_ADDR_CXI and
// kHostName. FI_SOCKADDR and FI_SOCKADDR_IP stand for several; the bytes tell which one it is.
// FI_ADDR_STR is another spelling of all of them:
//
// - fi_sockaddr_in://10.0.0.1:7471, fi_sockaddr_in6://[fe80::1%eth0]:7471
// - fi_sockaddr_ib://[GID]:PKEY:PS:SCOPE. PS is bits 16 to 31 of the service id.
//   ?sid=N, mask=N, scope=N and flow=N say what these leave open.
// - fi_addr_ib_ud://GID:QPN/LID/PKEY/SL, in hexadecimal; ?service=N where there is one
// - fi_addr_cxi://0xNNNNNNNN, the NIC's address and the PID; ?vni=N where there is one
// - fi_shm://NAME or fi_ns://NAME: kHostName, within a host (host_name.h)
// What stands before the question mark is what libfabric 1.17 prints (fi_tostr). fi_getinfo.3 has
// only the general form.
//
// Not for names (sock_addr.h resolves them), and not for sockets' system calls: SockAddr is.
#ifndef WEFT_SDK_ADDRESSES_ADDRESS_H
#define WEFT_SDK_ADDRESSES_ADDRESS_H

#include <rdma/fabric.h>
#include <sys/socket.h>
#include <weft/result.h>

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace weft::sdk {

class Address {
 public:
  static constexpr size_t kMaxSize = 48;

  Address() = default;  // none: FI_FORMAT_UNSPEC, no bytes

  // One of the six formats, so FI_SOCKADDR_IN where it was read as FI_SOCKADDR.
  uint32_t format() const { return format_; }
  size_t size() const { return size_; }  // bytes at data(); 0: no address
  const void *data() const { return bytes_; }

  // The bytes that name the host: of an IP address, or a GID. Empty for the others.
  std::span<const uint8_t> host() const;
  // What tells the endpoints of a host apart: the port of IP, or the lowest 16 bits of the service
  // id of FI_SOCKADDR_IB. The others have none: an error, and port() is 0.
  bool has_port() const { return port_at() != 0; }
  uint16_t port() const;
  Result<Address> with_port(uint16_t port) const;

  // Whether an endpoint can send to it: it names a host, and an endpoint there.
  bool names_peer() const;
  bool is_any() const;  // of a socket format: the host is left open; no address: true
  bool is_loopback() const;
  // Whether the first `bits` bits of the hosts are the same; false for different formats.
  bool same_prefix(const Address &other, unsigned bits) const;

  // For logs: "10.0.0.1:7471", "[fe80::1%eth0]:7471", "unspecified"; else as format_address_string.
  std::string to_string() const;

  bool operator==(const Address &other) const {
    if (format_ != other.format_ || size_ != other.size_) return false;
    if (size_ == 16) return word(0) == other.word(0);  // FI_SOCKADDR_IN
    return std::memcmp(bytes_, other.bytes_, size_) == 0;
  }
  // By format, host, scope and the rest.
  std::strong_ordering operator<=>(const Address &other) const;
  // All its bits are good.
  size_t hash() const {
    size_t hash = mix(word(0));
    if (size_ == 16) return hash;
    for (size_t at = 8; at < size_; at += 8) hash = mix(hash + word(at));
    return hash;
  }

  // For codecs and address vectors, from bytes that are valid and in their only form: unused bytes
  // are 0.
  static Address of(uint32_t format, const void *bytes, size_t size) {
    Address address(format, size);
    std::memcpy(address.bytes_, bytes, size);
    return address;
  }
  // From the port and the address of a sockaddr_in, as they stand there. One word is written at
  // once: to read it right after its pieces were written would stall the processor.
  static Address ipv4(const unsigned char *port_and_ip) {
    uint16_t port;
    uint32_t ip;
    std::memcpy(&port, port_and_ip, sizeof port);
    std::memcpy(&ip, port_and_ip + sizeof port, sizeof ip);
    constexpr bool kLittle = std::endian::native == std::endian::little;
    const uint64_t word = uint64_t(AF_INET) << (kLittle ? 0 : 48) |
                          uint64_t(port) << (kLittle ? 16 : 32) |
                          uint64_t(ip) << (kLittle ? 32 : 0);
    Address address(FI_SOCKADDR_IN, 16);
    std::memcpy(address.bytes_, &word, sizeof word);
    return address;
  }
  // The same for a sockaddr_in6; the port and the address stand together.
  static Address ipv6(const unsigned char *port_and_ip, uint32_t scope) {
    uint16_t port;
    std::memcpy(&port, port_and_ip, sizeof port);
    constexpr bool kLittle = std::endian::native == std::endian::little;
    const uint64_t word = uint64_t(AF_INET6) << (kLittle ? 0 : 48) | uint64_t(port)
                                                                         << (kLittle ? 16 : 32);
    Address address(FI_SOCKADDR_IN6, 28);
    std::memcpy(address.bytes_, &word, sizeof word);
    std::memcpy(address.bytes_ + 8, port_and_ip + sizeof port, 16);
    std::memcpy(address.bytes_ + 24, &scope, sizeof scope);
    return address;
  }

 private:
  Address(uint32_t format, size_t size) : format_(format), size_(uint32_t(size)) {}
  size_t port_at() const {
    return format_ == FI_SOCKADDR_IN || format_ == FI_SOCKADDR_IN6 ? 2
           : format_ == FI_SOCKADDR_IB                             ? 30
                                                                   : 0;
  }
  uint64_t word(size_t at) const {
    uint64_t value;
    std::memcpy(&value, bytes_ + at, sizeof value);
    return value;
  }
  static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
  }

  uint32_t format_ = FI_FORMAT_UNSPEC;
  uint32_t size_ = 0;
  alignas(8) unsigned char bytes_[kMaxSize] = {};  // 0 behind `size_`
};

struct AddressHash {
  size_t operator()(const Address &address) const { return address.hash(); }
};

// ---- OFI's forms ----

// Whether addresses of the format can be read and written, which includes FI_SOCKADDR,
// FI_SOCKADDR_IP and FI_ADDR_STR.
bool is_address_format(uint32_t addr_format);
// Bytes of an address in fi_av_insert's array, which begins at `address`. Where the format stands
// for several, the family tells; an unknown family counts as a sockaddr. Not for FI_ADDR_STR.
size_t native_size(uint32_t addr_format, const void *address);

// An address that an application or a peer passed in. Without a length (fi_connect) it is trusted
// to be complete. Host names in strings are not looked up: an address is an address. An error says
// what is wrong: the length, the family, a field out of range, a reserved field.
Result<Address> read_address(uint32_t addr_format, const void *address, size_t length = SIZE_MAX);
// FI_ADDR_STR of an address: "fi_sockaddr_in://10.0.0.1:7471".
std::string format_address_string(const Address &address);
// Bytes that write_address needs.
size_t address_length(const Address &address, uint32_t addr_format);
// The semantics of fi_getname and fi_getpeer: copies up to *length bytes, puts the needed length
// there, and returns 0, or -FI_ETOOSMALL if the address was cut.
int write_address(const Address &address, uint32_t addr_format, void *buffer, size_t *length);
// src_addr or dest_addr of an fi_info.
Result<void> set_info_address(void *&member, size_t &length, uint32_t addr_format,
                              const Address &address);

}  // namespace weft::sdk

#endif
