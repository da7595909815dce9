// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/provider.h"

#include <weft/sdk/auth.h>

#include <rdma/fi_domain.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "plugins/tcp/endpoint.h"
#include "plugins/tcp/fabric.h"
#include "plugins/tcp/socket.h"
#include "plugins/tcp/unconnected_endpoint.h"

namespace weft::tcp {
namespace {

// The address that the kernel would send from, by its routing table. Nothing is sent.
std::optional<sdk::SockAddr> route_source(const sdk::SockAddr &dest) {
  const int fd = ::socket(dest.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  sdk::SockAddr to = dest;
  if (to.port() == 0) to.set_port(9);  // connect(2) of some kernels refuses port 0
  std::optional<sdk::SockAddr> source;
  if (::connect(fd, to.c(), to.size()) == 0) source = socket_name(fd);
  ::close(fd);
  if (source) source->set_port(0);
  return source;
}

std::string network_name(const sdk::Interface &interface) {
  const sdk::SockAddr &a = interface.address;
  if (a.family() == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, a.c(), sizeof v4);
    const uint32_t mask =
        interface.prefix == 0 ? 0 : ~uint32_t(0) << (32 - std::min(interface.prefix, 32u));
    v4.sin_addr.s_addr &= htonl(mask);
    return sdk::SockAddr(v4).ip() + "/" + std::to_string(interface.prefix);
  }
  sockaddr_in6 v6;
  std::memcpy(&v6, a.c(), sizeof v6);
  for (unsigned bit = interface.prefix; bit < 128; ++bit)
    v6.sin6_addr.s6_addr[bit / 8] &= uint8_t(~(0x80u >> (bit % 8)));
  v6.sin6_scope_id = 0;
  return sdk::SockAddr(v6).ip() + "/" + std::to_string(interface.prefix);
}

bool same_ip(const sdk::SockAddr &a, const sdk::SockAddr &b) {
  return a.same_prefix(b, a.family() == AF_INET ? 32 : 128);
}

}  // namespace

Result<std::unique_ptr<TcpProvider>> TcpProvider::create(const weft_instance *instance) {
  return std::unique_ptr<TcpProvider>(new TcpProvider(instance));
}

Result<sdk::InterfaceRanking> TcpProvider::interfaces() const {
  WEFT_TRY(const std::vector<sdk::Interface> facts, sdk::list_interfaces());
  WEFT_TRY(const sdk::InterfaceFilter filter, sdk::InterfaceFilter::parse(settings_.interfaces));
  return sdk::rank_interfaces(facts, filter);
}

Result<std::vector<TcpProvider::Path>> TcpProvider::paths(const sdk::GetinfoQuery &query) const {
  const fi_info *hints = query.hints;
  const uint32_t format = hints != nullptr ? hints->addr_format : uint32_t(FI_FORMAT_UNSPEC);
  if (format != FI_FORMAT_UNSPEC && !sdk::is_socket_format(format))
    return fail(FI_ENODATA,
                "hints.addr_format %u: tcp has FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6 and "
                "FI_ADDR_STR",
                format);
  const int family = sdk::family_of(format);
  WEFT_TRY(const sdk::InterfaceRanking ranking, interfaces());
  if (ranking.used.empty()) return fail(FI_ENODATA, "%s", ranking.nothing.c_str());

  std::vector<sdk::SockAddr> sources, dests;
  if (query.node != nullptr || query.service != nullptr) {
    const bool source = query.flags & FI_SOURCE;
    WEFT_TRY(auto found, sdk::resolve(query.node, query.service,
                                      {.family = family,
                                       .numeric = (query.flags & FI_NUMERICHOST) != 0,
                                       .local = source}));
    (source ? sources : dests) = std::move(found);
  }
  if (hints != nullptr && hints->src_addr != nullptr && sources.empty()) {
    WEFT_TRY(const sdk::SockAddr address,
             sdk::read_address(format, hints->src_addr, hints->src_addrlen));
    sources.push_back(address);
  }
  if (hints != nullptr && hints->dest_addr != nullptr && dests.empty()) {
    WEFT_TRY(const sdk::SockAddr address,
             sdk::read_address(format, hints->dest_addr, hints->dest_addrlen));
    dests.push_back(address);
  }

  std::vector<Path> paths;
  std::string why_not;
  const auto add = [&](sdk::SockAddr source, const sdk::SockAddr &dest) {
    if (family != AF_UNSPEC && source.family() != family) return;
    if (source.is_any() && source.port() == 0 && dest.size() == 0)
      return;  // every interface has its own entry
    if (source.is_any()) {
      paths.push_back({"tcp", "TCP-IP", source, dest});
      return;
    }
    for (const sdk::RankedInterface &i : ranking.used) {
      if (!same_ip(i.interface.address, source)) continue;
      paths.push_back({i.interface.name, network_name(i.interface), source, dest});
      return;
    }
    // 127.0.0.2 is no interface's address, yet every host has it.
    for (const sdk::RankedInterface &i : ranking.used) {
      if (!i.interface.address.is_loopback() || !source.is_loopback() ||
          i.interface.address.family() != source.family())
        continue;
      paths.push_back({i.interface.name, network_name(i.interface), source, dest});
      return;
    }
    why_not = "no interface that may be used has the address " + source.ip();
    for (const sdk::RankedInterface &i : ranking.left_out)
      if (same_ip(i.interface.address, source)) why_not = i.text();
  };
  if (!dests.empty()) {
    for (const sdk::SockAddr &dest : dests) {
      if (!sources.empty()) {
        for (const sdk::SockAddr &source : sources)
          if (source.family() == dest.family()) add(source, dest);
        continue;
      }
      if (auto source = route_source(dest)) {
        add(*source, dest);
      } else {
        why_not = "there is no route to " + dest.ip();
      }
    }
  } else if (!sources.empty()) {
    for (const sdk::SockAddr &source : sources) add(source, {});
  } else {
    for (const sdk::RankedInterface &i : ranking.used) add(i.interface.address, {});
  }
  if (paths.empty())
    return fail(
        FI_ENODATA, "%s",
        why_not.empty() ? "no interface has an address of the wanted family" : why_not.c_str());
  return paths;
}

Result<void> TcpProvider::add_info(sdk::InfoList &list, const Path &path, enum fi_ep_type type,
                                   const sdk::GetinfoQuery &query) const {
  const bool connected = type == FI_EP_MSG;
  const fi_info *hints = query.hints;
  WEFT_TRY(fi_info *const info, list.add());
  // A message that was only announced is fetched when it is wanted: what is behind it may be done,
  // and complete, first.
  const uint64_t order = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAW | FI_ORDER_SAW | FI_ORDER_SAS |
                         FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW |
                         (connected ? FI_ORDER_RAS | FI_ORDER_WAS : 0);
  constexpr uint64_t kDomainCaps = FI_LOCAL_COMM | FI_REMOTE_COMM;
  const uint64_t transmit_caps = connected ? kTransmitCaps : kRdmTransmitCaps;
  const uint64_t receive_caps = connected ? kReceiveCaps : kRdmReceiveCaps;
  info->caps = transmit_caps | receive_caps | kDomainCaps;
  const uint32_t format = hints != nullptr ? hints->addr_format : uint32_t(FI_FORMAT_UNSPEC);
  info->addr_format =
      format == FI_FORMAT_UNSPEC || format == FI_SOCKADDR_IP ? sdk::format_of(path.source) : format;
  WEFT_CHECK(
      sdk::set_info_address(info->src_addr, info->src_addrlen, info->addr_format, path.source));
  if (path.dest.size() != 0)
    WEFT_CHECK(
        sdk::set_info_address(info->dest_addr, info->dest_addrlen, info->addr_format, path.dest));

  fi_tx_attr &tx = *info->tx_attr;
  tx.caps = transmit_caps;
  tx.op_flags = FI_COMPLETION | FI_INJECT | kLevelFlags;
  tx.msg_order = order;
  tx.comp_order = FI_ORDER_NONE;  // a read completes behind the sends that were posted after it
  tx.inject_size = kInjectSize;
  tx.size = settings_.tx_size;
  tx.iov_limit = sdk::kIovLimit;
  tx.rma_iov_limit = kMaxRmaVectors;

  fi_rx_attr &rx = *info->rx_attr;
  rx.caps = receive_caps;
  rx.op_flags = FI_COMPLETION | FI_MULTI_RECV;
  rx.msg_order = order;
  rx.comp_order = connected ? FI_ORDER_STRICT : FI_ORDER_NONE;
  rx.size = settings_.rx_size;
  rx.iov_limit = sdk::kIovLimit;

  fi_ep_attr &ep = *info->ep_attr;
  ep.type = type;
  ep.protocol = connected ? FI_PROTO_SOCK_TCP : FI_PROTO_XNET;
  ep.max_msg_size = kMaxMessageSize;
  ep.max_order_raw_size = kMaxMessageSize;
  ep.max_order_waw_size = kMaxMessageSize;
  ep.tx_ctx_cnt = 1;
  ep.rx_ctx_cnt = 1;
  if (!connected) ep.protocol_version = kRdmVersion;
  // Every bit a field of its own. The same as FI_TAG_BITS to who knows that; others count the bits.
  if (!connected) ep.mem_tag_format = 0xaaaaaaaaaaaaaaaa;

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
  // Nothing is needed. Random keys are safer than chosen ones, so an application that can live with
  // them gets them.
  const int mr_mode = wanted != nullptr ? wanted->mr_mode : 0;
  if (mr_mode == FI_MR_BASIC || mr_mode == FI_MR_SCALABLE) {
    domain.mr_mode = mr_mode;
  } else {
    domain.mr_mode = mr_mode & FI_MR_PROV_KEY;
  }
  ep.auth_key_size = domain.auth_key_size = sdk::kMaxAuthKey;
  domain.mr_key_size = sizeof(uint64_t);
  domain.cq_data_size = sizeof(uint64_t);
  domain.cq_cnt = 65536;
  domain.ep_cnt = 65536;
  domain.tx_ctx_cnt = 65536;
  domain.rx_ctx_cnt = 65536;
  domain.max_ep_tx_ctx = 1;
  domain.max_ep_rx_ctx = 1;
  domain.max_ep_srx_ctx = 65536;
  domain.cntr_cnt = 65536;
  domain.mr_iov_limit = 1;
  domain.mr_cnt = SIZE_MAX;
  domain.caps = kDomainCaps;
  domain.max_cntr_value = UINT64_MAX;
  domain.max_err_cntr_value = UINT64_MAX;

  WEFT_CHECK(sdk::set_string(info->fabric_attr->name, path.fabric));
  info->fabric_attr->prov_version = TcpProvider::info.version;
  info->fabric_attr->api_version = query.api_version;
  return {};
}

Result<sdk::InfoList> TcpProvider::getinfo(const sdk::GetinfoQuery &query) {
  sdk::InfoList list(instance_->core);
  if (query.flags & FI_PROV_ATTR_ONLY) {
    const bool unconnected = query.hints != nullptr && query.hints->ep_attr != nullptr &&
                             query.hints->ep_attr->type == FI_EP_RDM;
    WEFT_CHECK(add_info(list, {"tcp", "TCP-IP", sdk::SockAddr::any(AF_INET), {}},
                        unconnected ? FI_EP_RDM : FI_EP_MSG, query));
    return list;
  }
  WEFT_TRY(const std::vector<Path> found, paths(query));
  for (enum fi_ep_type type : {FI_EP_MSG, FI_EP_RDM})
    for (const Path &path : found) WEFT_CHECK(add_info(list, path, type, query));
  return list;
}

Result<fid_fabric *> TcpProvider::fabric(const fi_fabric_attr &attr, void *context) {
  return Fabric::open(instance_, settings_, attr, context);
}

Result<void> TcpProvider::explain(const sdk::LineSink &line) {
  WEFT_TRY(const sdk::InterfaceRanking ranking, interfaces());
  for (const sdk::RankedInterface &i : ranking.used) line("%s", i.text().c_str());
  for (const sdk::RankedInterface &i : ranking.left_out) line("%s", i.text().c_str());
  if (ranking.used.empty()) line("%s", ranking.nothing.c_str());
  return {};
}

}  // namespace weft::tcp

namespace {
constexpr weft::sdk::PluginInfo plugin{.name = "tcp",
                                       .vendor = "The weft authors",
                                       .version = WEFT_VERSION,
                                       .license = "BSD-2-Clause"};
}
WEFT_PLUGIN(plugin, weft::tcp::TcpProvider)
