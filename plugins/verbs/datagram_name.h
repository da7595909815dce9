// SPDX-License-Identifier: BSD-2-Clause
// Names of datagram endpoints (FI_ADDR_IB_UD) as values: which queue pair, behind which GID or LID.
//
// Example:
//    // Where the sender of a datagram can be reached, if what stands in front of it says so.
//    inline std::optional<sdk::Address> sender(const ibv_wc &wc, const DatagramHeader &header) {
//      const auto name = DatagramName::of_sender(wc, header);
//      if (!name) return {};
//      return name->address();
//    }
//
// A GID whose interface is 0 stands for none: the LID counts, and datagrams have no global route
// header. Not for address handles.
#ifndef WEFT_PLUGINS_VERBS_DATAGRAM_NAME_H
#define WEFT_PLUGINS_VERBS_DATAGRAM_NAME_H

#include <infiniband/verbs.h>
#include <weft/sdk/addresses/address.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace weft::verbs {

inline constexpr size_t kDatagramHeader = 40;  // bytes in front of a message: FI_MSG_PREFIX
inline constexpr uint32_t kGroupQueuePair = 0xffffff;
using DatagramHeader = std::span<const uint8_t, kDatagramHeader>;

struct DatagramName {
  ibv_gid gid;
  uint32_t queue_pair;
  uint16_t lid, partition_key, service;
  uint8_t service_level, padding[5];

  static DatagramName of(const sdk::Address &address);
  // Of the sender of a datagram: as much as a completion and the header say. Nothing where the
  // header has no route that we understand: a peer chooses its bytes.
  static std::optional<DatagramName> of_sender(const ibv_wc &wc, DatagramHeader header);

  sdk::Address address() const;
  bool has_gid() const { return gid.global.interface_id != 0; }
  bool is_ipv4() const;   // the GID is ::ffff:a.b.c.d
  bool is_group() const;  // a multicast GID, and the queue pair number of groups
};
static_assert(sizeof(DatagramName) == 32);

// The entry of a port's table of GIDs that peers in other networks reach: of RoCE v2 with an
// address of IPv4, else with a global one of IPv6. Without one: the first entry, as on InfiniBand.
uint8_t routable_gid_index(const std::vector<ibv_gid_entry> &table);
// The entry of a port's table of GIDs from which a datagram to `dest` leaves: `own`, where both are
// of the same kind (IPv4, link-local, other), else the first one of that kind, else `own`.
uint8_t source_gid_index(const std::vector<ibv_gid_entry> &table, uint8_t own, const ibv_gid &dest);

// The same for datagrams to a group: of the family of the group.
uint8_t group_source_index(const std::vector<ibv_gid_entry> &table, uint8_t own,
                           const DatagramName &group);

}  // namespace weft::verbs

#endif
