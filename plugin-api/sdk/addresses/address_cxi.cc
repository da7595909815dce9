// SPDX-License-Identifier: BSD-2-Clause
// The codec of FI_ADDR_CXI: a word with the PID (9 bits), the NIC's address (20) and three unused
// bits; the VNI (2 bytes), which counts with FI_AV_AUTH_KEY only; and two bytes that are padding to
// hardware, where NICs in software have a mark of their host (0: none). It does not tell endpoints
// apart, but addresses that two hosts have made.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "address_codec.h"

namespace weft::sdk {
namespace {

constexpr uint32_t kAnyPid = 511;  // of an endpoint that is still to get one
constexpr size_t kVni = 4, kHost = 6, kSize = 8;

Result<void> settle_cxi(unsigned char *bytes) {
  if (const auto word = load<uint32_t>(bytes, 0); word >> 29 != 0)
    return fail(FI_EINVAL, "the unused bits of the FI_ADDR_CXI address 0x%08x are not 0", word);
  return {};
}

void identify_cxi(unsigned char *bytes) {
  store(bytes, kHost, uint16_t(0));
}

bool cxi_names_peer(const unsigned char *bytes) {
  return (load<uint32_t>(bytes, 0) & 0x1ff) != kAnyPid;
}

std::string cxi_text(const Address &address) {
  char text[48];
  size_t size =
      size_t(std::snprintf(text, sizeof text, "0x%08x", load<uint32_t>(address.data(), 0)));
  char separator = '?';
  for (const auto &[name, at] : {std::pair("vni", kVni), {"host", kHost}}) {
    const auto value = load<uint16_t>(address.data(), at);
    if (value == 0) continue;
    size += size_t(std::snprintf(text + size, sizeof text - size, "%c%s=%u",
                                 std::exchange(separator, '&'), name, unsigned(value)));
  }
  return text;
}

Result<void> parse_cxi(std::string_view text, unsigned char *bytes) {
  const size_t end = std::min(text.find('?'), text.size());
  const auto word = parse_number(text.substr(0, end), UINT32_MAX);
  const bool known = parse_keys(text.substr(std::min(end + 1, text.size())),
                                [&](std::string_view key, uint64_t value) {
                                  const bool is_vni = key == "vni";
                                  if (value > UINT16_MAX || (!is_vni && key != "host"))
                                    return false;
                                  store(bytes, is_vni ? kVni : kHost, uint16_t(value));
                                  return true;
                                });
  if (!word || !known)
    return fail(FI_EINVAL,
                "address \"fi_addr_cxi://%.*s\" is none: it should look like "
                "fi_addr_cxi://0x00001201 or fi_addr_cxi://0x00001201?vni=1",
                int(std::min<size_t>(text.size(), 200)), text.data());
  store(bytes, 0, uint32_t(*word));
  return {};
}

}  // namespace

const AddressCodec kCxiCodec{.format = FI_ADDR_CXI,
                             .name = "fi_addr_cxi",
                             .size = kSize,
                             .host_at = 0,
                             .host_size = 0,
                             .packed_at = 0,
                             .packed_size = kSize,
                             .settle = settle_cxi,
                             .names_peer = cxi_names_peer,
                             .identify = identify_cxi,
                             .text = cxi_text,
                             .parse = parse_cxi};

}  // namespace weft::sdk
