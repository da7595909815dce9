// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/provider.h"

#include <rdma/fi_domain.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "plugins/udp/endpoint.h"
#include "plugins/udp/fabric.h"
#include "plugins/udp/socket.h"

namespace weft::udp {
namespace {

// Bytes that a socket keeps until they are received, as the kernel grants them: it counts its own
// needs in, and doubles for them what was asked.
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
  constexpr uint64_t kDomainCaps = FI_LOCAL_COMM | FI_REMOTE_COMM;
  const fi_info *hints = query.hints;
  WEFT_TRY(fi_info *const info, list.add());
  info->caps = kTransmitCaps | kReceiveCaps | kDomainCaps;
  WEFT_CHECK(sdk::set_path(*info, path, hints));

  const size_t carried = largest_datagram(path.source.family(), path.mtu);
  size_t max_msg_size = std::min(carried, kUsualSize);
  if (hints != nullptr && hints->ep_attr != nullptr && hints->ep_attr->max_msg_size > max_msg_size)
    max_msg_size = carried;

  fi_tx_attr &tx = *info->tx_attr;
  tx.caps = kTransmitCaps;
  tx.op_flags =
      FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_MULTICAST;
  tx.msg_order = FI_ORDER_NONE;
  tx.comp_order = FI_ORDER_STRICT;
  tx.inject_size = max_msg_size;
  tx.size = settings_.tx_size;
  tx.iov_limit = kIovLimit;

  fi_rx_attr &rx = *info->rx_attr;
  rx.caps = kReceiveCaps;
  rx.op_flags = FI_COMPLETION;
  rx.msg_order = FI_ORDER_NONE;
  rx.comp_order = FI_ORDER_STRICT;
  rx.size = settings_.rx_size;
  rx.iov_limit = kIovLimit;

  fi_ep_attr &ep = *info->ep_attr;
  ep.type = FI_EP_DGRAM;
  ep.protocol = FI_PROTO_UDP;
  ep.max_msg_size = max_msg_size;
  ep.tx_ctx_cnt = 1;
  ep.rx_ctx_cnt = 1;

  fi_domain_attr &domain = *info->domain_attr;
  WEFT_CHECK(sdk::set_string(domain.name, path.domain));
  domain.threading = FI_THREAD_SAFE;
  // Manual progress costs nothing; the thread of automatic progress is for those who ask.
  const fi_domain_attr *wanted = hints != nullptr ? hints->domain_attr : nullptr;
  const auto progress = [](enum fi_progress p) {
    return p == FI_PROGRESS_AUTO ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
  };
  domain.control_progress =
      progress(wanted != nullptr ? wanted->control_progress : FI_PROGRESS_UNSPEC);
  domain.data_progress = progress(wanted != nullptr ? wanted->data_progress : FI_PROGRESS_UNSPEC);
  domain.resource_mgmt = FI_RM_ENABLED;
  domain.av_type = FI_AV_UNSPEC;  // either
  const int mr_mode = wanted != nullptr ? wanted->mr_mode : 0;
  domain.mr_mode = mr_mode == FI_MR_BASIC || mr_mode == FI_MR_SCALABLE ? mr_mode : 0;
  domain.mr_key_size = sizeof(uint64_t);
  domain.cq_cnt = 65536;
  domain.ep_cnt = 65536;
  domain.tx_ctx_cnt = 65536;
  domain.rx_ctx_cnt = 65536;
  domain.max_ep_tx_ctx = 1;
  domain.max_ep_rx_ctx = 1;
  domain.cntr_cnt = 65536;
  domain.mr_iov_limit = 1;
  domain.mr_cnt = SIZE_MAX;
  domain.caps = kDomainCaps;
  domain.max_cntr_value = UINT64_MAX;
  domain.max_err_cntr_value = UINT64_MAX;

  WEFT_CHECK(sdk::set_string(info->fabric_attr->name, path.fabric));
  info->fabric_attr->prov_version = UdpProvider::info.version;
  info->fabric_attr->api_version = query.api_version;
  return {};
}

Result<sdk::InfoList> UdpProvider::getinfo(const sdk::GetinfoQuery &query) {
  sdk::InfoList list(instance_->core);
  if (query.flags & FI_PROV_ATTR_ONLY) {
    WEFT_CHECK(add_info(list, {"udp", "UDP-IP", sdk::SockAddr::any(AF_INET), {}, 0}, query));
    return list;
  }
  WEFT_TRY(const std::vector<sdk::IpPath> found,
           sdk::ip_paths(query, {"udp", "UDP-IP", settings_.interfaces}));
  for (const sdk::IpPath &path : found) WEFT_CHECK(add_info(list, path, query));
  const size_t buffered = receive_buffer(settings_);
  for (fi_info *info = list.front(); info != nullptr; info = info->next)
    info->rx_attr->total_buffered_recv = buffered;
  return list;
}

Result<fid_fabric *> UdpProvider::fabric(const fi_fabric_attr &attr, void *context) {
  return Fabric::open(instance_, settings_, attr, context);
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
