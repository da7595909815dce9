// SPDX-License-Identifier: BSD-2-Clause
// The codecs of FI_SOCKADDR_IB (struct sockaddr_ib of the kernel) and FI_ADDR_IB_UD (the name of a
// datagram endpoint of verbs). The layouts stand here, so that the SDK needs no header of
// rdma-core; a test compares them where that header is installed.
#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "address_codec.h"
#include "address_ib.h"

namespace weft::sdk {
namespace {

int shown(std::string_view text) {  // for %.*s
  return int(std::min<size_t>(text.size(), 200));
}

std::string gid_text(const void *gid) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid, text, sizeof text);
  return text;
}

bool parse_gid(std::string_view text, unsigned char *gid) {
  char terminated[INET6_ADDRSTRLEN];
  if (text.size() >= sizeof terminated) return false;
  terminated[text.copy(terminated, text.size())] = '\0';
  return inet_pton(AF_INET6, terminated, gid) == 1;
}

bool any_bit(const unsigned char *bytes, size_t size) {
  return std::any_of(bytes, bytes + size, [](unsigned char c) { return c != 0; });
}

// Takes what stands before `end`, and `end`; all of it where there is none.
std::string_view take_until(std::string_view &rest, char end) {
  const std::string_view taken = rest.substr(0, rest.find(end));
  rest.remove_prefix(std::min(taken.size() + 1, rest.size()));
  return taken;
}

// ---- FI_SOCKADDR_IB ----

Result<void> settle_ib(unsigned char *) {
  return {};  // every field may have any value
}

bool ib_names_peer(const unsigned char *bytes) {
  return any_bit(bytes + ib::kGid, 16) && load<uint64_t>(bytes, ib::kService) != 0;
}

std::string ib_text(const Address &address) {
  const void *bytes = address.data();
  const uint64_t service = be64toh(load<uint64_t>(bytes, ib::kService));
  const uint64_t mask = be64toh(load<uint64_t>(bytes, ib::kServiceMask));
  const uint64_t scope = be64toh(load<uint64_t>(bytes, ib::kScope));
  const uint32_t flow = ntohl(load<uint32_t>(bytes, ib::kFlow));
  const uint64_t port_space = service >> 16 & 0xffff;
  char text[128];
  std::snprintf(text, sizeof text, ":0x%x:0x%" PRIx64 ":0x%" PRIx64,
                unsigned(ntohs(load<uint16_t>(bytes, ib::kPartition))), port_space, scope & 0xffff);
  std::string result =
      "[" + gid_text(static_cast<const unsigned char *>(bytes) + ib::kGid) + "]" + text;
  char separator = '?';
  const auto add = [&](const char *key, uint64_t value, uint64_t usual) {
    if (value == usual) return;
    std::snprintf(text, sizeof text, "%c%s=0x%" PRIx64, separator, key, value);
    result += text;
    separator = '&';
  };
  add("sid", service, port_space << 16);
  add("mask", mask, 0);
  add("scope", scope, scope & 0xffff);
  add("flow", flow, 0);
  return result;
}

Result<void> parse_ib(std::string_view text, unsigned char *bytes) {
  const auto wrong = [text](const char *what) {
    return fail(FI_EINVAL,
                "address \"fi_sockaddr_ib://%.*s\" %s: it should look like "
                "fi_sockaddr_ib://[fe80::1]:0xffff:0x106:0x0?sid=0x1061d2f",
                shown(text), text.data(), what);
  };
  std::string_view rest = text;
  std::string_view fields = take_until(rest, '?');
  const size_t end = fields.find(']');
  if (fields.empty() || fields.front() != '[' || end == std::string_view::npos ||
      !parse_gid(fields.substr(1, end - 1), bytes + ib::kGid))
    return wrong("has no GID in brackets");
  fields.remove_prefix(end + 1);
  if (!fields.empty() && fields.front() != ':') return wrong("goes on strangely after the ]");
  if (!fields.empty()) fields.remove_prefix(1);
  uint64_t values[3] = {0xffff, 0, 0};  // partition key, port space, scope
  for (uint64_t &value : values) {
    if (fields.empty()) break;
    const auto number = parse_number(take_until(fields, ':'), 0xffff);
    if (!number) return wrong("has a field that is no number from 0 to 0xffff");
    value = *number;
  }
  if (!fields.empty()) return wrong("has too many fields");
  uint64_t service = values[1] << 16, mask = 0, scope = values[2], flow = 0;
  const bool known = parse_keys(rest, [&](std::string_view key, uint64_t value) {
    if (key == "flow") return flow = value, value <= UINT32_MAX;
    uint64_t *const place = key == "sid"     ? &service
                            : key == "mask"  ? &mask
                            : key == "scope" ? &scope
                                             : nullptr;
    if (place != nullptr) *place = value;
    return place != nullptr;
  });
  if (!known) return wrong("has another key than sid, mask, scope and flow, or no number for it");
  store(bytes, ib::kPartition, htons(uint16_t(values[0])));
  store(bytes, ib::kFlow, htonl(uint32_t(flow)));
  store(bytes, ib::kService, htobe64(service));
  store(bytes, ib::kServiceMask, htobe64(mask));
  store(bytes, ib::kScope, htobe64(scope));
  return {};
}

// ---- FI_ADDR_IB_UD ----

Result<void> settle_ib_ud(unsigned char *bytes) {
  const auto number = load<uint32_t>(bytes, ib_ud::kQueuePair);
  if (number > 0xffffff)
    return fail(FI_EINVAL,
                "queue pair number %#x of an FI_ADDR_IB_UD address has more than 24 bits", number);
  if (bytes[ib_ud::kServiceLevel] > 15)
    return fail(FI_EINVAL, "service level %u of an FI_ADDR_IB_UD address: 0 to 15 exist",
                unsigned(bytes[ib_ud::kServiceLevel]));
  if (any_bit(bytes + ib_ud::kPadding, ib_ud::kSize - ib_ud::kPadding))
    return fail(FI_EINVAL, "the padding of an FI_ADDR_IB_UD address is not 0");
  return {};
}

// Without an interface identifier in the GID the LID counts.
bool ib_ud_names_peer(const unsigned char *bytes) {
  return load<uint32_t>(bytes, ib_ud::kQueuePair) != 0 &&
         (any_bit(bytes + ib_ud::kGid + 8, 8) || load<uint16_t>(bytes, ib_ud::kLid) != 0);
}

// The queue pair, and what leads to it. A datagram says no more of its sender.
void ib_ud_identify(unsigned char *bytes) {
  const auto lid = load<uint16_t>(bytes, ib_ud::kLid);
  std::memset(bytes + ib_ud::kLid, 0, ib_ud::kSize - ib_ud::kLid);
  if (!any_bit(bytes + ib_ud::kGid + 8, 8)) store(bytes, ib_ud::kLid, lid);
}

std::string ib_ud_text(const Address &address) {
  const auto *bytes = static_cast<const unsigned char *>(address.data());
  char text[64];
  std::snprintf(text, sizeof text, ":%x/%x/%x/%x", load<uint32_t>(bytes, ib_ud::kQueuePair),
                unsigned(load<uint16_t>(bytes, ib_ud::kLid)),
                unsigned(load<uint16_t>(bytes, ib_ud::kPartition)),
                unsigned(bytes[ib_ud::kServiceLevel]));
  std::string result = gid_text(bytes + ib_ud::kGid) + text;
  const auto service = load<uint16_t>(bytes, ib_ud::kService);
  if (service != 0) {
    std::snprintf(text, sizeof text, "?service=0x%x", unsigned(service));
    result += text;
  }
  return result;
}

Result<void> parse_ib_ud(std::string_view text, unsigned char *bytes) {
  const auto wrong = [text](const char *what) {
    return fail(FI_EINVAL,
                "address \"fi_addr_ib_ud://%.*s\" %s: it should look like "
                "fi_addr_ib_ud://fe80::1:11/4/ffff/0 (GID:QPN/LID/PKEY/SL, in hexadecimal)",
                shown(text), text.data(), what);
  };
  std::string_view rest = text;
  std::string_view fields = take_until(rest, '?');
  std::string_view gid = take_until(fields, '/');
  const size_t colon = gid.rfind(':');
  if (colon == std::string_view::npos) return wrong("has no queue pair number");
  const auto number = parse_number(gid.substr(colon + 1), UINT32_MAX, 16);
  if (!number) return wrong("has no queue pair number");
  gid = gid.substr(0, colon);
  if (gid.size() > 1 && gid.front() == '[' && gid.back() == ']')
    gid = gid.substr(1, gid.size() - 2);
  if (!parse_gid(gid, bytes + ib_ud::kGid)) return wrong("has no GID");
  uint64_t values[3] = {0, 0xffff, 0};  // LID, partition key, service level
  for (uint64_t &value : values) {
    if (fields.empty()) break;
    const auto field =
        parse_number(take_until(fields, '/'), &value == &values[2] ? 0xff : 0xffff, 16);
    if (!field) return wrong("has a field that is no number of its size");
    value = *field;
  }
  if (!fields.empty()) return wrong("has too many fields");
  uint64_t service = 0;
  const bool known = parse_keys(rest, [&](std::string_view key, uint64_t value) {
    service = value;
    return key == "service" && value <= UINT16_MAX;
  });
  if (!known) return wrong("has another key than service, or no 16-bit number for it");
  store(bytes, ib_ud::kQueuePair, uint32_t(*number));
  store(bytes, ib_ud::kLid, uint16_t(values[0]));
  store(bytes, ib_ud::kPartition, uint16_t(values[1]));
  store(bytes, ib_ud::kService, uint16_t(service));
  store(bytes, ib_ud::kServiceLevel, uint8_t(values[2]));
  return {};
}

}  // namespace

const AddressCodec kIbCodec{.format = FI_SOCKADDR_IB,
                            .name = "fi_sockaddr_ib",
                            .size = ib::kSize,
                            .host_at = ib::kGid,
                            .host_size = 16,
                            .packed_at = ib::kPartition,
                            .packed_size = ib::kSize - ib::kPartition,
                            .settle = settle_ib,
                            .names_peer = ib_names_peer,
                            .identify = nullptr,
                            .text = ib_text,
                            .parse = parse_ib};

const AddressCodec kIbUdCodec{.format = FI_ADDR_IB_UD,
                              .name = "fi_addr_ib_ud",
                              .size = ib_ud::kSize,
                              .host_at = ib_ud::kGid,
                              .host_size = 16,
                              .packed_at = 0,
                              .packed_size = ib_ud::kPadding,
                              .settle = settle_ib_ud,
                              .names_peer = ib_ud_names_peer,
                              .identify = ib_ud_identify,
                              .text = ib_ud_text,
                              .parse = parse_ib_ud};

}  // namespace weft::sdk
