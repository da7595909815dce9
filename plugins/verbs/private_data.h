// SPDX-License-Identifier: BSD-2-Clause
// The private data of connection messages: a byte with the length, and then the application's
// parameter. The connection manager pads what it delivers with zeros. In a request between native
// InfiniBand addresses the RDMA IP CM header stands in front; between addresses of IP the kernel
// writes it, and nobody here sees it.
//
// Example (statements):
//    const PrivateData sent(std::string_view("hello"));  // sent.bytes() go to rdma_connect
//    const std::string_view got = read_private_data(sent.bytes().data(), sent.bytes().size());
//
// Not for what a layer puts into the parameter.
#ifndef WEFT_PLUGINS_VERBS_PRIVATE_DATA_H
#define WEFT_PLUGINS_VERBS_PRIVATE_DATA_H

#include <rdma/fabric.h>
#include <weft/sdk/addresses/address.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace weft::verbs {

inline constexpr size_t kPrivateDataSize = 55;  // FI_OPT_CM_DATA_SIZE
inline constexpr size_t kIpHeaderSize = 36;

class PrivateData {
 public:
  // What does not fit is left out (fi_cm.3, NOTES).
  explicit PrivateData(std::string_view parameter) {
    const size_t n = std::min(parameter.size(), kPrivateDataSize);
    bytes_[0] = uint8_t(n);
    if (n != 0) std::memcpy(bytes_.data() + 1, parameter.data(), n);
  }
  std::span<const uint8_t> bytes() const { return {bytes_.data(), size_t(bytes_[0]) + 1}; }

 private:
  std::array<uint8_t, kPrivateDataSize + 1> bytes_{};
};

// Whether requests between such addresses have the RDMA IP CM header of the program.
inline bool has_ip_header(const sdk::Address &address) {
  return address.format() == FI_SOCKADDR_IB;
}

// The private data of a request.
class RequestData {
 public:
  RequestData(const PrivateData &data, const sdk::Address &source, const sdk::Address &dest) {
    if (has_ip_header(source)) {
      const uint16_t port = source.port();
      bytes_[2] = uint8_t(port >> 8);
      bytes_[3] = uint8_t(port);
      put(bytes_.data() + 4, source.host());
      put(bytes_.data() + 20, dest.host());
      size_ = kIpHeaderSize;
    }
    put(bytes_.data() + size_, data.bytes());
    size_ += data.bytes().size();
  }
  std::span<const uint8_t> bytes() const { return {bytes_.data(), size_}; }

 private:
  static void put(uint8_t *at, std::span<const uint8_t> bytes) {
    std::copy(bytes.begin(), bytes.end(), at);
  }
  std::array<uint8_t, kIpHeaderSize + 1 + kPrivateDataSize> bytes_{};
  size_t size_ = 0;
};

// What stands behind the header in the delivered bytes of a request to `local`.
inline std::string_view behind_ip_header(std::string_view delivered, const sdk::Address &local) {
  if (has_ip_header(local)) delivered.remove_prefix(std::min(kIpHeaderSize, delivered.size()));
  return delivered;
}

// The parameter in delivered bytes; empty: there is none, or a length that cannot be.
inline std::string_view read_private_data(const void *bytes, size_t size) {
  if (bytes == nullptr || size == 0) return {};
  const auto *const at = static_cast<const char *>(bytes);
  const size_t n = uint8_t(at[0]);
  if (n > kPrivateDataSize || n > size - 1) return {};
  return {at + 1, n};
}

}  // namespace weft::verbs

#endif
