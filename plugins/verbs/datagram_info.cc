// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/datagram_info.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/progress/progress.h>

#include <algorithm>

#include "plugins/verbs/datagram_name.h"

namespace weft::verbs {
namespace {

constexpr std::string_view kSuffix = "-dgram";
constexpr std::string_view kNamePrefix = "fi_addr_ib_ud://";

struct AskedNames {
  uint32_t format = FI_ADDR_IB_UD;
  sdk::Address source = DatagramName{}.address();  // any
  sdk::Address dest;                               // none
};

// Names of datagram endpoints are those of queue pairs, so a host is none.
Result<AskedNames> asked_names(const sdk::GetinfoQuery &query) {
  AskedNames asked;
  const fi_info *const hints = query.hints;
  if (hints != nullptr && hints->addr_format != FI_FORMAT_UNSPEC) asked.format = hints->addr_format;
  if (asked.format != FI_ADDR_IB_UD && asked.format != FI_ADDR_STR)
    return fail(FI_ENODATA, "verbs: names of datagram endpoints are FI_ADDR_IB_UD");
  const auto read = [&](uint32_t format, const void *bytes, size_t size) -> Result<sdk::Address> {
    WEFT_TRY(const sdk::Address address, sdk::read_address(format, bytes, size));
    if (address.format() == FI_ADDR_IB_UD) return address;
    return fail(FI_ENODATA, "verbs: %s is no name of a datagram endpoint",
                address.to_string().c_str());
  };
  if (hints != nullptr && hints->src_addr != nullptr) {
    WEFT_TRY(asked.source, read(asked.format, hints->src_addr, hints->src_addrlen));
  }
  if (hints != nullptr && hints->dest_addr != nullptr) {
    WEFT_TRY(asked.dest, read(asked.format, hints->dest_addr, hints->dest_addrlen));
  }
  if (query.node == nullptr) return asked;
  const std::string_view node = query.node;
  if (!node.starts_with(kNamePrefix))
    return fail(FI_ENODATA,
                "verbs: a datagram endpoint cannot be found by the host \"%s\", only by its name "
                "(%s..., fi_getname)",
                query.node, kNamePrefix.data());
  WEFT_TRY((query.flags & FI_SOURCE ? asked.source : asked.dest),
           read(FI_ADDR_STR, node.data(), node.size() + 1));
  return asked;
}

Result<void> fill(fi_info &info, const DeviceFacts &facts, const AskedNames &asked,
                  const sdk::GetinfoQuery &query, const Sizes &sizes) {
  const uint64_t caps = datagram_caps(facts);
  info.caps = caps | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SHARED_AV;
  info.mode = FI_MSG_PREFIX;
  info.addr_format = asked.format;
  WEFT_CHECK(sdk::set_info_address(info.src_addr, info.src_addrlen, asked.format, asked.source));
  if (asked.dest.size() != 0)
    WEFT_CHECK(sdk::set_info_address(info.dest_addr, info.dest_addrlen, asked.format, asked.dest));
  WEFT_CHECK(fill_common(info, facts, query));
  info.domain_attr->caps |= FI_SHARED_AV;
  WEFT_CHECK(sdk::set_string(info.domain_attr->name, datagram_domain(facts)));

  fi_tx_attr &tx = *info.tx_attr;
  tx.caps = caps & (FI_MSG | FI_SEND | FI_MULTICAST);
  tx.mode = FI_MSG_PREFIX;
  tx.op_flags =
      FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | (caps & FI_MULTICAST);
  tx.msg_order = FI_ORDER_SAS;
  tx.comp_order = FI_ORDER_STRICT;
  tx.inject_size = std::min(facts.max_datagram_inline, facts.mtu);
  tx.size = sdk::offered_size(std::min(sizes.tx, facts.max_queue_entries),
                              sdk::tx_hints(query.hints).size, facts.max_queue_entries);
  tx.iov_limit = std::min({sizes.tx_iov, facts.max_sges, sdk::kIovLimit});

  fi_rx_attr &rx = *info.rx_attr;
  rx.caps = caps & (FI_MSG | FI_RECV | FI_SOURCE | FI_MULTICAST);
  rx.mode = FI_MSG_PREFIX;
  rx.op_flags = FI_COMPLETION;
  rx.msg_order = FI_ORDER_SAS;
  rx.comp_order = FI_ORDER_STRICT | FI_ORDER_DATA;
  rx.size = sdk::offered_size(std::min(sizes.rx, facts.max_queue_entries),
                              sdk::rx_hints(query.hints).size, facts.max_queue_entries);
  rx.iov_limit = std::min({sizes.rx_iov, facts.max_sges, sdk::kIovLimit});

  fi_ep_attr &ep = *info.ep_attr;
  ep.type = FI_EP_DGRAM;
  ep.protocol = FI_PROTO_IB_UD;
  ep.protocol_version = 1;
  ep.max_msg_size = facts.mtu;
  ep.msg_prefix_size = kDatagramHeader;
  ep.tx_ctx_cnt = 1;
  ep.rx_ctx_cnt = 1;
  info.domain_attr->max_ep_srx_ctx = 0;
  return {};
}

}  // namespace

uint64_t datagram_caps(const DeviceFacts &facts) {
  const bool groups = facts.has_multicast && !facts.addresses.empty();
  return kDatagramCaps | (groups ? FI_MULTICAST : 0);
}

Result<void> add_datagram_infos(sdk::InfoList &list, const sdk::GetinfoQuery &query,
                                const std::vector<DeviceFacts> &all, const Sizes &sizes) {
  WEFT_TRY(const AskedNames asked, asked_names(query));
  bool found = false;
  for (const DeviceFacts &facts : all) {
    if (!facts.has_datagrams || !facts.port_active) continue;
    WEFT_TRY(fi_info *const info, list.add());
    WEFT_CHECK(fill(*info, facts, asked, query, sizes));
    found = true;
  }
  if (found) return {};
  return fail(FI_ENODATA,
              "verbs: no device with an active port has datagrams: `rdma link` shows "
              "the ports; iWARP has none");
}

std::string datagram_domain(const DeviceFacts &facts) {
  return facts.name + std::string(kSuffix);
}

std::string_view device_of_domain(std::string_view domain) {
  if (domain.ends_with(kSuffix)) domain.remove_suffix(kSuffix.size());
  return domain;
}

}  // namespace weft::verbs
