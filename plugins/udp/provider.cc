// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/provider.h"

#include <sys/socket.h>
#include <weft/sdk/ip/software.h>

#include <algorithm>
#include <vector>

#include "plugins/udp/datagram_socket.h"
#include "plugins/udp/domain.h"
#include "plugins/udp/endpoint.h"
#include "plugins/udp/fabric.h"
#include "plugins/udp/socket.h"

namespace weft::udp {
namespace {

// Bytes of received datagrams that the kernel lets a socket keep. It reports twice the size asked
// for, because it counts its own overhead.
size_t receive_buffer(const Settings &settings) {
  const Result<UniqueFd> fd = open_socket(AF_INET, settings);
  int size = 0;
  socklen_t length = sizeof size;
  if (!fd || ::getsockopt(fd->get(), SOL_SOCKET, SO_RCVBUF, &size, &length) != 0) return 0;
  return size_t(size) / 2;
}

}  // namespace

size_t largest_datagram(int family, unsigned mtu) {
  const bool v4 = family != AF_INET6;
  const size_t headers = v4 ? 28 : 48, most = v4 ? 65507 : 65487;
  if (mtu == 0) return most;
  return std::min(most, mtu > headers ? mtu - headers : 0);
}

Result<std::unique_ptr<UdpProvider>> UdpProvider::create(const weft_instance *instance) {
  return std::unique_ptr<UdpProvider>(new UdpProvider(instance));
}

Result<void> UdpProvider::add_info(sdk::InfoList &list, const sdk::IpPath &path,
                                   const sdk::GetinfoQuery &query) const {
  const fi_info *hints = query.hints;
  const uint64_t hmem = hints != nullptr ? hints->caps & uint64_t(FI_HMEM) : 0;
  WEFT_TRY(fi_info *const info, list.add());
  WEFT_CHECK(sdk::fill_software_info(*info, path, query,
                                     {.type = FI_EP_DGRAM,
                                      .version = UdpProvider::info.version,
                                      .transmit_caps = kTransmitCaps | hmem,
                                      .receive_caps = kReceiveCaps | hmem}));

  // An endpoint may be opened for longer datagrams than the interface carries at once: rxd's stock
  // peers send such (WEFT_DATAGRAM_FRAGMENTS).
  const unsigned mtu = query.flags & WEFT_GETINFO_OPENING ? 0 : path.mtu;
  const size_t carried = largest_datagram(path.source.family(), mtu);
  size_t max_msg_size = std::min(carried, kUsualSize);
  if (hints != nullptr && hints->ep_attr != nullptr && hints->ep_attr->max_msg_size > max_msg_size)
    max_msg_size = carried;

  fi_tx_attr &tx = *info->tx_attr;
  tx.op_flags =
      FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_MULTICAST;
  tx.msg_order = FI_ORDER_NONE;
  tx.comp_order = FI_ORDER_STRICT;
  tx.inject_size = max_msg_size;
  tx.size = settings_.tx_size;
  tx.iov_limit = sdk::kIovLimit;

  fi_rx_attr &rx = *info->rx_attr;
  rx.op_flags = FI_COMPLETION;
  rx.msg_order = FI_ORDER_NONE;
  rx.comp_order = FI_ORDER_STRICT;
  rx.size = settings_.rx_size;
  rx.iov_limit = sdk::kIovLimit;

  fi_ep_attr &ep = *info->ep_attr;
  ep.protocol = FI_PROTO_UDP;
  ep.max_msg_size = max_msg_size;
  info->domain_attr->max_ep_stx_ctx = info->domain_attr->ep_cnt;
  return {};
}

// Datagram sockets, for who asks for them. A call is a datagram, so the largest that is carried may
// be sent.
Result<void> UdpProvider::add_socket(sdk::InfoList &list, const sdk::IpPath &path,
                                     const sdk::GetinfoQuery &query) const {
  WEFT_TRY(fi_info *const info, list.add());
  WEFT_CHECK(sdk::fill_software_info(*info, path, query,
                                     {.type = FI_EP_DGRAM,
                                      .version = UdpProvider::info.version,
                                      .transmit_caps = FI_MSG | FI_SEND,
                                      .receive_caps = FI_MSG | FI_RECV}));
  info->tx_attr->op_flags = FI_COMPLETION | FI_INJECT;
  info->rx_attr->op_flags = FI_COMPLETION;
  info->tx_attr->comp_order = info->rx_attr->comp_order = FI_ORDER_STRICT;
  info->tx_attr->size = settings_.tx_size;
  info->rx_attr->size = settings_.rx_size;
  info->tx_attr->iov_limit = info->rx_attr->iov_limit = DatagramSocket::kIovLimit;
  sdk::set_type(*info->ep_attr, sdk::kSockDgram);
  info->ep_attr->protocol = FI_PROTO_UDP;
  info->ep_attr->max_msg_size = info->tx_attr->inject_size =
      largest_datagram(path.source.family(), path.mtu);
  return {};
}

Result<sdk::InfoList> UdpProvider::getinfo(const sdk::GetinfoQuery &query) {
  sdk::InfoList list(instance_->core);
  if (query.flags & FI_PROV_ATTR_ONLY) {
    WEFT_CHECK(add_info(list, {"udp", "UDP-IP", sdk::SockAddr::any(AF_INET), {}, 0}, query));
    return list;
  }
  if (query.hints != nullptr && (query.hints->caps & FI_HMEM) != 0) {
    if (const auto hmem = hmem_->open(); !hmem)
      return fail(hmem.error().code, "udp: %s", hmem.error().text.c_str());
  }
  WEFT_TRY(const std::vector<sdk::IpPath> found,
           sdk::ip_paths(query, {"udp", "UDP-IP", settings_.interfaces}));
  if (sdk::asks_for(query.hints, sdk::kSockDgram)) {
    for (const sdk::IpPath &path : found) WEFT_CHECK(add_socket(list, path, query));
    return list;
  }
  for (const sdk::IpPath &path : found) WEFT_CHECK(add_info(list, path, query));
  const size_t buffered = receive_buffer(settings_);
  for (fi_info *info = list.front(); info != nullptr; info = info->next)
    info->rx_attr->total_buffered_recv = buffered;
  return list;
}

Result<fid_fabric *> UdpProvider::fabric(const fi_fabric_attr &attr, void *context) {
  return Fabric::open(instance_, settings_, attr, context, hmem_);
}

Result<void> UdpProvider::explain(const sdk::LineSink &line) {
  return sdk::explain_interfaces(settings_.interfaces, line);
}

}  // namespace weft::udp

namespace {
constexpr weft::sdk::PluginInfo plugin{.name = "udp",
                                       .vendor = "The weft authors",
                                       .version = WEFT_VERSION,
                                       .license = "BSD-2-Clause"};
}
WEFT_PLUGIN(plugin, weft::udp::UdpProvider)
