// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/provider.h"

#include <rdma/fi_domain.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "plugins/udp/endpoint.h"
#include "plugins/udp/fabric.h"
#include "plugins/udp/socket.h"

namespace weft::udp {
namespace {

// The address that the kernel would send from, by its routing table. Nothing is sent.
std::optional<sdk::SockAddr> route_source(const sdk::SockAddr &dest) {
  const UniqueFd fd(::socket(dest.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return {};
  sdk::SockAddr to = dest;
  if (to.port() == 0) to.set_port(9);  // some kernels connect to no port 0
  if (::connect(fd.get(), to.c(), to.size()) != 0) return {};
  std::optional<sdk::SockAddr> source = socket_name(fd.get());
  if (source) source->set_port(0);
  return source;
}

// "10.1.0.0/16", "fe80::/64"
std::string network_of(const sdk::Interface &interface) {
  const sdk::SockAddr &a = interface.address;
  const bool v4 = a.family() == AF_INET;
  unsigned char ip[sizeof(in6_addr)] = {};
  const size_t offset = v4 ? offsetof(sockaddr_in, sin_addr) : offsetof(sockaddr_in6, sin6_addr);
  std::memcpy(ip, reinterpret_cast<const char *>(a.c()) + offset, v4 ? 4 : 16);
  for (unsigned bit = interface.prefix; bit < (v4 ? 32u : 128u); ++bit)
    ip[bit / 8] &= uint8_t(~(0x80u >> (bit % 8)));
  sockaddr_in in{};
  in.sin_family = AF_INET;
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  std::memcpy(&in.sin_addr, ip, 4);
  std::memcpy(&in6.sin6_addr, ip, 16);
  return (v4 ? sdk::SockAddr(in) : sdk::SockAddr(in6)).ip() + "/" +
         std::to_string(interface.prefix);
}

bool same_ip(const sdk::SockAddr &a, const sdk::SockAddr &b) {
  return a.same_prefix(b, a.family() == AF_INET ? 32 : 128);
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

Result<sdk::InterfaceRanking> UdpProvider::interfaces() const {
  WEFT_TRY(const std::vector<sdk::Interface> facts, sdk::list_interfaces());
  WEFT_TRY(const sdk::InterfaceFilter filter, sdk::InterfaceFilter::parse(settings_.interfaces));
  return sdk::rank_interfaces(facts, filter);
}

Result<std::vector<UdpProvider::Path>> UdpProvider::paths(const sdk::GetinfoQuery &query) const {
  const fi_info *hints = query.hints;
  const uint32_t format = hints != nullptr ? hints->addr_format : uint32_t(FI_FORMAT_UNSPEC);
  if (format != FI_FORMAT_UNSPEC && !sdk::is_socket_format(format))
    return fail(FI_ENODATA,
                "hints.addr_format %u: udp has FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6 and "
                "FI_ADDR_STR",
                format);
  const int family = sdk::family_of(format);
  WEFT_TRY(const sdk::InterfaceRanking ranking, interfaces());
  if (ranking.used.empty()) return fail(FI_ENODATA, "%s", ranking.nothing.c_str());

  std::vector<sdk::SockAddr> sources, dests;
  if (query.node != nullptr || query.service != nullptr) {
    const bool is_source = query.flags & FI_SOURCE;
    WEFT_TRY(auto found, sdk::resolve(query.node, query.service,
                                      {.family = family,
                                       .numeric = (query.flags & FI_NUMERICHOST) != 0,
                                       .local = is_source}));
    (is_source ? sources : dests) = std::move(found);
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
  const auto add = [&](const sdk::SockAddr &source, const sdk::SockAddr &dest) {
    if (family != AF_UNSPEC && source.family() != family) return;
    if (source.is_any()) {
      if (source.port() == 0 && dest.size() == 0) return;  // every interface has its own entry
      // Whichever it leaves by, it must fit.
      unsigned mtu = 0;
      for (const sdk::RankedInterface &i : ranking.used)
        if (i.interface.mtu != 0 && (mtu == 0 || i.interface.mtu < mtu)) mtu = i.interface.mtu;
      paths.push_back({"udp", "UDP-IP", source, dest, mtu});
      return;
    }
    for (const sdk::RankedInterface &i : ranking.used) {
      // 127.0.0.2 is no interface's address, yet every host has it.
      const bool is_its = same_ip(i.interface.address, source) ||
                          (source.is_loopback() && i.interface.address.is_loopback() &&
                           i.interface.address.family() == source.family());
      if (!is_its) continue;
      paths.push_back({i.interface.name, network_of(i.interface), source, dest, i.interface.mtu});
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
      } else if (const auto source = route_source(dest)) {
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

Result<void> UdpProvider::add_info(sdk::InfoList &list, const Path &path,
                                   const sdk::GetinfoQuery &query) const {
  constexpr uint64_t kDomainCaps = FI_LOCAL_COMM | FI_REMOTE_COMM;
  const fi_info *hints = query.hints;
  WEFT_TRY(fi_info *const info, list.add());
  info->caps = kTransmitCaps | kReceiveCaps | kDomainCaps;
  const uint32_t format = hints != nullptr ? hints->addr_format : uint32_t(FI_FORMAT_UNSPEC);
  info->addr_format =
      format == FI_FORMAT_UNSPEC || format == FI_SOCKADDR_IP ? sdk::format_of(path.source) : format;
  WEFT_CHECK(
      sdk::set_info_address(info->src_addr, info->src_addrlen, info->addr_format, path.source));
  if (path.dest.size() != 0)
    WEFT_CHECK(
        sdk::set_info_address(info->dest_addr, info->dest_addrlen, info->addr_format, path.dest));

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
  WEFT_TRY(const std::vector<Path> found, paths(query));
  for (const Path &path : found) WEFT_CHECK(add_info(list, path, query));
  return list;
}

Result<fid_fabric *> UdpProvider::fabric(const fi_fabric_attr &attr, void *context) {
  return Fabric::open(instance_, settings_, attr, context);
}

Result<void> UdpProvider::explain(const sdk::LineSink &line) {
  WEFT_TRY(const sdk::InterfaceRanking ranking, interfaces());
  for (const sdk::RankedInterface &i : ranking.used)
    line("%s, datagrams of up to %zu bytes", i.text().c_str(),
         largest_datagram(i.interface.address.family(), i.interface.mtu));
  for (const sdk::RankedInterface &i : ranking.left_out) line("%s", i.text().c_str());
  if (ranking.used.empty()) line("%s", ranking.nothing.c_str());
  return {};
}

}  // namespace weft::udp

namespace {
constexpr weft::sdk::PluginInfo plugin{.name = "udp",
                                       .vendor = "The weft authors",
                                       .version = WEFT_VERSION,
                                       .license = "BSD-2-Clause"};
}
WEFT_PLUGIN(plugin, weft::udp::UdpProvider)
