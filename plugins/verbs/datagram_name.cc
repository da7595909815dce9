// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/datagram_name.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace weft::verbs {
namespace {

constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};  // ::ffff:a.b.c.d

bool is_mapped(const ibv_gid &gid) {
  return std::equal(std::begin(kMapped), std::end(kMapped), gid.raw);
}
bool is_link_local(const ibv_gid &gid) {
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}
bool same_kind(const ibv_gid &a, const ibv_gid &b) {
  return is_mapped(a) == is_mapped(b) && is_link_local(a) == is_link_local(b);
}

// RoCE v2 over IPv4 has a header of IPv4 at the end of the 40 bytes. What stands before it has no
// meaning, so it is the checksum that tells.
bool is_ipv4_header(std::span<const uint8_t, 20> header) {
  if (header[0] != 0x45) return false;
  uint32_t sum = 0;
  for (size_t i = 0; i < header.size(); i += 2) sum += uint32_t(header[i] << 8 | header[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

}  // namespace

bool DatagramName::is_ipv4() const {
  return is_mapped(gid);
}

bool DatagramName::is_group() const {
  const bool multicast = is_ipv4() ? (gid.raw[12] & 0xf0) == 0xe0 : gid.raw[0] == 0xff;
  return multicast && queue_pair == kGroupQueuePair;
}

DatagramName DatagramName::of(const sdk::Address &address) {
  DatagramName name{};
  std::memcpy(&name, address.data(), std::min(sizeof name, address.size()));
  return name;
}

sdk::Address DatagramName::address() const {
  return sdk::Address::of(FI_ADDR_IB_UD, this, sizeof *this);
}

std::optional<DatagramName> DatagramName::of_sender(const ibv_wc &wc, DatagramHeader header) {
  DatagramName name{};
  name.queue_pair = wc.src_qp;
  name.lid = wc.slid;
  name.service_level = wc.sl;
  if ((wc.wc_flags & IBV_WC_GRH) == 0) return name;
  if (const auto ip = header.last<20>(); is_ipv4_header(ip)) {
    std::memcpy(name.gid.raw, kMapped, sizeof kMapped);
    std::memcpy(name.gid.raw + sizeof kMapped, ip.data() + 12, 4);
    return name;
  }
  if (header[0] >> 4 != 6) return {};
  std::memcpy(name.gid.raw, header.data() + 8, sizeof name.gid.raw);
  return name;
}

uint8_t routable_gid_index(const std::vector<ibv_gid_entry> &table) {
  const auto find = [&](bool ipv4) {
    return std::ranges::find_if(table, [&](const ibv_gid_entry &entry) {
      return entry.gid_type == IBV_GID_TYPE_ROCE_V2 && is_mapped(entry.gid) == ipv4 &&
             !is_link_local(entry.gid);
    });
  };
  for (const bool ipv4 : {true, false})
    if (const auto found = find(ipv4); found != table.end()) return uint8_t(found->gid_index);
  return table.empty() ? 0 : uint8_t(table.front().gid_index);
}

uint8_t source_gid_index(const std::vector<ibv_gid_entry> &table, uint8_t own,
                         const ibv_gid &dest) {
  const auto at_own = std::ranges::find(table, own, &ibv_gid_entry::gid_index);
  if (at_own == table.end() || same_kind(at_own->gid, dest)) return own;
  for (const ibv_gid_entry &entry : table)
    if (entry.gid_type == at_own->gid_type && same_kind(entry.gid, dest))
      return uint8_t(entry.gid_index);
  return own;
}

uint8_t group_source_index(const std::vector<ibv_gid_entry> &table, uint8_t own,
                           const DatagramName &group) {
  const auto at_own = std::ranges::find(table, own, &ibv_gid_entry::gid_index);
  if (at_own == table.end() || is_mapped(at_own->gid) == group.is_ipv4()) return own;
  for (const ibv_gid_entry &entry : table)
    if (entry.gid_type == at_own->gid_type && is_mapped(entry.gid) == group.is_ipv4())
      return uint8_t(entry.gid_index);
  return own;
}

}  // namespace weft::verbs
