// SPDX-License-Identifier: BSD-2-Clause
// The codec of kHostName: the name of an endpoint within its host, with zeros behind it. In text it
// is fi_shm://NAME. fi_ns://NAME is the same name, of which an application says that it is complete
// (fi_shm.7).
#include <algorithm>

#include "address_codec.h"

namespace weft::sdk {
namespace {

bool is_part_of_name(unsigned char c) {
  return c >= 0x20 && c != 0x7f;
}

// The last byte is always a zero, so that the bytes are a string in C.
Result<void> settle_host(unsigned char *bytes) {
  unsigned char *const last = bytes + kHostNameSize - 1;
  unsigned char *const end = std::find(bytes, last, 0);
  if (*end != 0)
    return fail(FI_EINVAL, "a name within a host has at most %zu bytes", kHostNameSize - 1);
  if (!std::all_of(bytes, end, is_part_of_name))
    return fail(FI_EINVAL, "a name within a host has no control characters");
  std::fill(end, bytes + kHostNameSize, uint8_t(0));
  return {};
}

bool host_names_peer(const unsigned char *bytes) {
  return bytes[0] != 0;
}

std::string host_text(const Address &address) {
  return static_cast<const char *>(address.data());
}

Result<void> parse_host(std::string_view text, unsigned char *bytes) {
  if (text.size() >= kHostNameSize)
    return fail(FI_EINVAL,
                "the name \"%.*s\" is too long: a name within a host has at most %zu bytes",
                int(std::min<size_t>(text.size(), 200)), text.data(), kHostNameSize - 1);
  text.copy(reinterpret_cast<char *>(bytes), text.size());
  return {};
}

}  // namespace

const AddressCodec kHostCodec{.format = kHostName,
                              .name = "fi_shm",
                              .size = kHostNameSize,
                              .host_at = 0,
                              .host_size = 0,
                              .packed_at = 0,
                              .packed_size = kHostNameSize,
                              .settle = settle_host,
                              .names_peer = host_names_peer,
                              .identify = nullptr,
                              .text = host_text,
                              .parse = parse_host};

}  // namespace weft::sdk
