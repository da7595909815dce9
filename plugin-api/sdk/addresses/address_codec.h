// SPDX-License-Identifier: BSD-2-Clause
// AddressCodec: what the SDK knows of a format of addresses. There is one for each format that an
// Address can have. A new format is a codec more in codec_of() and in the list of address.cc, with
// its checks and its text in a file of its family.
//
// Example:
//    inline size_t bytes_of(uint32_t format) {
//      const AddressCodec *codec = codec_of(format);
//      return codec != nullptr ? codec->size : 0;
//    }
//
// Not for FI_SOCKADDR, FI_SOCKADDR_IP and FI_ADDR_STR: they stand for several formats.
#ifndef WEFT_SDK_ADDRESSES_ADDRESS_CODEC_H
#define WEFT_SDK_ADDRESSES_ADDRESS_CODEC_H

#include <weft/sdk/addresses/address.h>
#include <weft/sdk/addresses/host_name.h>

#include <optional>
#include <string>
#include <string_view>

namespace weft::sdk {

struct AddressCodec {
  uint32_t format;
  std::string_view name;  // before "://" in strings
  size_t size;            // of the native form
  size_t host_at, host_size;
  // What an address vector and its file keep. All other bytes are the family, or 0. For
  // FI_SOCKADDR_IN6, whose scope has its own place there: without the scope.
  size_t packed_at, packed_size;
  // Whether `bytes` are an address, but for length and family. Clears what has no meaning, so that
  // equal addresses have equal bytes.
  Result<void> (*settle)(unsigned char *bytes);
  bool (*names_peer)(const unsigned char *bytes);
  // Clears what does not tell endpoints apart. Null: everything does.
  void (*identify)(unsigned char *bytes);
  std::string (*text)(const Address &address);  // what follows "name://"
  // The other way round; `bytes` are 0, but for the family. settle() follows. Null: by
  // parse_address_string.
  Result<void> (*parse)(std::string_view text, unsigned char *bytes);
};

// An address without what does not tell endpoints apart: equal for two addresses of one endpoint.
Address identity(const Address &address);

// For the codecs: a field of an address.
template <class T>
T load(const void *bytes, size_t at) {
  T value;
  std::memcpy(&value, static_cast<const unsigned char *>(bytes) + at, sizeof value);
  return value;
}
template <class T>
void store(void *bytes, size_t at, T value) {
  std::memcpy(static_cast<unsigned char *>(bytes) + at, &value, sizeof value);
}

// A number of at most `most`: 0x and hexadecimal digits, or digits of the given base.
std::optional<uint64_t> parse_number(std::string_view text, uint64_t most, int base = 10);
// "name=number" pairs with & between them; `take` says whether it knows the name and the number is
// not too large for it.
template <class Take>
bool parse_keys(std::string_view text, Take take) {
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(pair.size() == text.size() ? pair.size() : pair.size() + 1);
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) return false;
    const auto number = parse_number(pair.substr(equals + 1), UINT64_MAX);
    if (!number || !take(pair.substr(0, equals), *number)) return false;
  }
  return true;
}

// ---- the codecs (address_ip.cc, address_ib.cc, address_cxi.cc, address_host.cc) ----

extern const AddressCodec kIpv4Codec, kIpv6Codec, kIbCodec, kIbUdCodec, kCxiCodec, kHostCodec;

inline const AddressCodec *codec_of(uint32_t format) {  // null: there is none
  switch (format) {
    case FI_SOCKADDR_IN:
      return &kIpv4Codec;
    case FI_SOCKADDR_IN6:
      return &kIpv6Codec;
    case FI_SOCKADDR_IB:
      return &kIbCodec;
    case FI_ADDR_IB_UD:
      return &kIbUdCodec;
    case FI_ADDR_CXI:
      return &kCxiCodec;
    case kHostName:
      return &kHostCodec;
    default:
      return nullptr;
  }
}

}  // namespace weft::sdk

#endif
