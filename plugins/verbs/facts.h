// SPDX-License-Identifier: BSD-2-Clause
// Facts of a device with one port, and the fi_info that follows from them.
//
// Example:
//    inline Result<void> offer(sdk::InfoList &list, const DevicePath &path,
//                              const sdk::GetinfoQuery &query) {
//      WEFT_TRY(fi_info *const info, list.add());
//      return fill_message_info(*info, path, query, Sizes{});
//    }
//
// Functions of this file are pure: they open no device. device.h collects the facts.
#ifndef WEFT_PLUGINS_VERBS_FACTS_H
#define WEFT_PLUGINS_VERBS_FACTS_H

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/ip/paths.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/transfers/atomic.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft::verbs {

enum class Transport : uint8_t { kInfiniBand, kRoce, kIwarp };

// What the parameters ask for; a device may have less.
struct Sizes {
  size_t tx = 384, rx = 384;  // operations per endpoint
  size_t inline_size = 256;   // bytes
  size_t tx_iov = 4, rx_iov = 4;
};

struct DeviceFacts {
  std::string name;  // "mlx5_0", "rxe0"
  std::string driver, firmware;
  uint32_t vendor = 0, part = 0, hardware_version = 0;
  std::optional<fi_pci_attr> pci;
  Transport transport = Transport::kRoce;
  uint8_t port = 1;
  bool port_active = false;
  size_t mtu = 0;           // bytes of a packet's payload
  uint64_t speed = 0;       // bits per second, 0: unknown
  uint64_t gid_prefix = 0;  // of the first GID, host order
  uint64_t gid_interface = 0;
  uint16_t lid = 0;
  std::vector<sdk::SockAddr> addresses;  // port 0

  uint64_t max_message_size = 0;
  size_t max_queue_pairs = 0, max_queue_entries = 0, max_sges = 0;
  size_t max_read_sges = sdk::kIovLimit;  // of a read; one on iWARP
  size_t max_cqs = 0, max_cq_entries = 0;
  size_t max_regions = 0;
  size_t max_shared_queues = 0, max_shared_entries = 0, max_shared_sges = 0;
  size_t max_inline = 0;           // bytes that a queue pair took with all of the sizes asked for
  size_t max_datagram_inline = 0;  // the same of one for datagrams
  bool has_datagrams = false;      // it has unreliable datagrams
  bool has_dmabuf = false;         // registers dma-bufs
  bool has_multicast = false;      // of datagrams
  bool has_xrc = false;            // extended reliable connections
  bool has_atomics = false;        // 64-bit fetch-and-add and compare-and-swap, in host order
};

// The atomics that devices have (ibv_post_send(3)): one element of 64 bits.
bool has_atomic(sdk::AtomicKind kind, int datatype, int op);

// The capabilities of FI_EP_MSG over such a device.
uint64_t message_caps(const DeviceFacts &facts);

// A device, a local address on it, and the address of the peer that is asked for, or none.
struct DevicePath {
  DeviceFacts facts;
  sdk::Address source, dest;
};

// One entry for FI_EP_MSG. Names, addresses and limits.
Result<void> fill_message_info(fi_info &info, const DevicePath &path,
                               const sdk::GetinfoQuery &query, const Sizes &sizes);

// The same for endpoints of XRC (FI_PROTO_RDMA_CM_IB_XRC).
Result<void> fill_xrc_info(fi_info &info, const DevicePath &path, const sdk::GetinfoQuery &query,
                           const Sizes &sizes);
inline bool is_xrc(const fi_info &info) {
  return info.ep_attr != nullptr && info.ep_attr->protocol == FI_PROTO_RDMA_CM_IB_XRC;
}

// What the entries of all types of endpoints share: the domain, the fabric and the NIC.
Result<void> fill_common(fi_info &info, const DeviceFacts &facts, const sdk::GetinfoQuery &query);

// The name of the fabric: devices with the same one may reach each other.
std::string fabric_name(const DeviceFacts &facts);

// Bits per second of a port: codes of ibv_port_attr (ibv_query_port.3). 0: unknown codes.
uint64_t link_speed(uint8_t active_width, uint8_t active_speed);

// "0000:3b:00.1"; nothing for any other text.
std::optional<fi_pci_attr> parse_pci(const std::string &text);

}  // namespace weft::verbs

#endif
