// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/info.h"

#include <arpa/inet.h>
#include <rdma/fi_cxi_ext.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/addresses/auth.h>
#include <weft/sdk/progress/progress.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plugins/cxi/soft/network.h"
#include "plugins/cxi/sources.h"
#include "plugins/cxi/vector_keys.h"

namespace weft::cxi {
namespace {

constexpr uint64_t kDomainCaps = FI_LOCAL_COMM | FI_REMOTE_COMM;
constexpr uint64_t kTxCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ |
                             FI_WRITE | FI_FENCE | FI_NAMED_RX_CTX | FI_TRIGGER | FI_COLLECTIVE;
constexpr uint64_t kRxCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ |
                             FI_REMOTE_WRITE | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE |
                             FI_SOURCE_ERR | FI_RMA_EVENT | FI_AV_USER_ID | FI_COLLECTIVE;
constexpr uint64_t kAccessCaps = FI_RMA | FI_ATOMIC;
constexpr uint64_t kTxFlags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE |
                              FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
constexpr size_t kMaxRegions = 65535;
constexpr uint64_t kTagFormat = UINT64_C(0xaaaaaaaaaaaaaaaa) >> 16;  // FI_TAG_GENERIC of 48 bits

std::optional<uint64_t> number(const char *text, uint64_t most) {
  if (text == nullptr || *text == '\0' || *text == '-') return std::nullopt;
  char *end = nullptr;
  errno = 0;
  const unsigned long long value = std::strtoull(text, &end, 0);
  if (errno != 0 || *end != '\0' || value > most) return std::nullopt;
  return value;
}

// "02:00:00:0n:nn:nn": the NIC's address in the low 20 bits.
std::optional<Nid> nid_of_mac(const char *text) {
  unsigned b[6];
  int end = 0;
  if (std::sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%n", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5],
                  &end) != 6 ||
      text[end] != '\0')
    return std::nullopt;
  return Nid((b[3] << 16 | b[4] << 8 | b[5]) & kMaxNid);
}

// A NIC, and the mark of its host, if it is one of ours.
struct Place {
  Nid nid = 0;
  uint16_t host = 0;
};

// The names and addresses of NICs in 127.0.0.0/8 mean something on this host alone.
Result<Place> place_of(const char *node, const std::vector<DeviceFacts> &devices) {
  in_addr address{};
  const bool is_ip = ::inet_pton(AF_INET, node, &address) == 1;
  const uint32_t ip = is_ip ? ntohl(address.s_addr) : 0;
  for (const DeviceFacts &one : devices)
    if (one.name == node || (is_ip && one.ip == ip)) return Place{one.nid, one.host};
  if (const auto value = number(node, kMaxNid)) return Place{Nid(*value)};
  if (const auto mac = nid_of_mac(node)) return Place{*mac};
  if (is_ip && reaches_other_hosts(ip)) return Place{Nid(ip & kMaxNid)};
  if (is_ip) return fail(FI_ENODATA, "cxi: no NIC of this host is known as %s", node);
  return fail(
      FI_ENODATA,
      "cxi: node \"%s\" is no NIC: give its name (cxi0), its address (0x1), its MAC, or the "
      "IPv4 address of a NIC in software",
      node);
}

Result<Pid> pid_of(const char *service) {
  if (service == nullptr) return kAnyPid;
  const auto value = number(service, kMaxPid);
  if (!value)
    return fail(FI_EINVAL, "cxi: service \"%s\" is no PID: 0 to %u", service, unsigned(kMaxPid));
  return Pid(*value);
}

Result<void> set_own(AskedPlaces &asked, const Place &own, Pid pid,
                     const std::vector<DeviceFacts> &devices) {
  asked.own_pid = pid;
  if (own.nid == 0) return {};
  const auto device = std::ranges::find(devices, own.nid, &DeviceFacts::nid);
  if (device == devices.end() || (own.host != 0 && own.host != device->host))
    return fail(FI_ENODATA, "cxi: no NIC of this host has the address 0x%x", own.nid);
  asked.device = device->name;
  return {};
}

// The protocol that only those get who ask for it.
bool asks_for_rnr(const fi_info *hints) {
  return hints != nullptr && hints->ep_attr != nullptr &&
         hints->ep_attr->protocol == FI_PROTO_CXI_RNR;
}

// The values from before FI_ADDR_CXI and FI_PROTO_CXI were libfabric's (fi_cxi.7, FI_CXI_COMPAT).
bool asks_for_older(const fi_info *hints) {
  return hints != nullptr &&
         (hints->addr_format == FI_ADDR_OPX ||
          (hints->ep_attr != nullptr && hints->ep_attr->protocol == FI_PROTO_OPX));
}

// Memory modes mean something only where peers reach memory.
bool uses_regions(const fi_info *hints) {
  return hints == nullptr || hints->caps == 0 || (hints->caps & kAccessCaps) != 0;
}

// A way to use a NIC.
struct Kind {
  bool provider_keys = false;  // of regions
  bool on_demand = false;      // paging: the memory of a region need not be there yet
  bool vector_keys = false;    // several authorization keys, of the address vector
};

// FI_AV_AUTH_KEY, or more than one key.
bool asks_for_vector_keys(const sdk::GetinfoQuery &query) {
  const fi_info *const hints = query.hints;
  if (hints == nullptr || hints->domain_attr == nullptr) return false;
  return has_vector_keys(*hints, query.api_version) ||
         (sdk::has_auth_keys(query.api_version) && hints->domain_attr->max_ep_auth_key > 1);
}

// What was asked for, if there is such a class.
uint32_t offered_class(uint32_t wanted, uint32_t usual) {
  return wanted != FI_TC_UNSPEC && traffic_of(wanted) ? wanted : usual;
}

void fill_domain(fi_domain_attr &domain, const sdk::GetinfoQuery &query, const Kind &kind) {
  const fi_domain_attr none{};
  const fi_info *const hints = query.hints;
  const fi_domain_attr &wanted =
      hints != nullptr && hints->domain_attr != nullptr ? *hints->domain_attr : none;
  domain.caps = kDomainCaps | FI_AV_USER_ID;
  domain.threading = FI_THREAD_SAFE;
  domain.tclass = offered_class(wanted.tclass, FI_TC_UNSPEC);
  domain.control_progress = sdk::offered_progress(wanted.control_progress);
  domain.data_progress = sdk::offered_progress(wanted.data_progress);
  domain.resource_mgmt = FI_RM_ENABLED;
  domain.av_type = FI_AV_UNSPEC;
  if (uses_regions(hints))
    domain.mr_mode = FI_MR_ENDPOINT | (kind.on_demand ? 0 : int(FI_MR_ALLOCATED)) |
                     (kind.provider_keys ? int(FI_MR_PROV_KEY) : 0);
  domain.mr_key_size = kind.provider_keys ? sizeof(uint64_t) : sizeof(uint32_t);
  domain.mr_iov_limit = 1;
  domain.mr_cnt = kMaxRegions;
  domain.cq_data_size = sizeof(uint64_t);
  domain.cq_cnt = 1 << 16;
  domain.ep_cnt = kMaxPid + 1;
  domain.tx_ctx_cnt = kMaxPid + 1;
  domain.rx_ctx_cnt = kMaxPid + 1;
  domain.cntr_cnt = 1 << 16;
  domain.max_ep_tx_ctx = 1;
  domain.max_ep_rx_ctx = 1;
  domain.max_cntr_value = Counter::kMaxSuccess;
  domain.max_err_cntr_value = Counter::kMaxFailure;
  domain.auth_key_size = kAuthKeySize;
  domain.max_ep_auth_key = kind.vector_keys ? VectorKeys::kLimit : 1;
}

Result<void> fill(fi_info &info, const DeviceFacts &facts, const AskedPlaces &asked,
                  const sdk::GetinfoQuery &query, const Settings &settings, const Kind &kind) {
  const bool rnr = asks_for_rnr(query.hints);
  const bool older = asks_for_older(query.hints) || settings.compat == Settings::Compat::kAlways;
  // A message that has to be sent again comes behind those after it.
  const uint64_t order = rnr ? kOrder & ~uint64_t(FI_ORDER_SAS) : kOrder;
  const uint64_t caps = kind.vector_keys ? ~kOneVniCaps : ~uint64_t{0};
  // Not unasked: it makes a domain look at each address.
  const uint64_t asked_caps = query.hints != nullptr ? query.hints->caps & FI_HMEM : 0;
  info.caps = (caps & (kTxCaps | kRxCaps | kDomainCaps)) | asked_caps;
  info.addr_format = older ? FI_ADDR_OPX : FI_ADDR_CXI;
  WEFT_CHECK(sdk::set_info_address(info.src_addr, info.src_addrlen, FI_ADDR_CXI,
                                   address_of({facts.nid, asked.own_pid}, facts.host)));
  if (asked.dest)
    WEFT_CHECK(sdk::set_info_address(info.dest_addr, info.dest_addrlen, FI_ADDR_CXI,
                                     address_of(*asked.dest, asked.dest_host)));

  fi_tx_attr &tx = *info.tx_attr;
  tx.caps = (caps & kTxCaps) | asked_caps;
  tx.op_flags = kTxFlags;
  tx.msg_order = order;
  tx.inject_size = rnr ? 0 : kInjectSize;
  tx.size = sdk::offered_size(settings.tx_size, sdk::tx_hints(query.hints).size, kMaxTxSize);
  tx.iov_limit = 1;
  tx.rma_iov_limit = 1;
  tx.tclass = offered_class(sdk::tx_hints(query.hints).tclass, FI_TC_BEST_EFFORT);

  fi_rx_attr &rx = *info.rx_attr;
  rx.caps = (caps & kRxCaps) | asked_caps;
  rx.op_flags = FI_COMPLETION | FI_MULTI_RECV;
  rx.msg_order = order;
  rx.size = sdk::offered_size(settings.rx_size, sdk::rx_hints(query.hints).size, kMaxRxSize);
  rx.iov_limit = 1;

  fi_ep_attr &ep = *info.ep_attr;
  ep.type = FI_EP_RDM;
  ep.protocol = rnr ? FI_PROTO_CXI_RNR : older ? FI_PROTO_OPX : FI_PROTO_CXI;
  ep.protocol_version = 1;
  ep.max_msg_size = kMaxMessageSize;
  ep.max_order_raw_size = ep.max_order_war_size = ep.max_order_waw_size = SIZE_MAX;
  ep.mem_tag_format = rnr ? kTagFormat >> 8 : kTagFormat;
  ep.tx_ctx_cnt = 1;
  ep.rx_ctx_cnt = 1;
  ep.auth_key_size = kAuthKeySize;

  fill_domain(*info.domain_attr, query, kind);
  if (asked.key) WEFT_CHECK(put_auth_key(info, *asked.key));
  WEFT_CHECK(sdk::set_string(info.domain_attr->name, facts.name));
  WEFT_CHECK(sdk::set_string(info.fabric_attr->name, "cxi"));
  info.fabric_attr->prov_version = FI_VERSION(1, 0);
  info.fabric_attr->api_version = query.api_version;
  return {};
}

}  // namespace

std::optional<TrafficClass> traffic_of(uint32_t tclass) {
  switch (tclass) {
    case FI_TC_UNSPEC:
    case FI_TC_BEST_EFFORT:
      return TrafficClass::kBestEffort;
    case FI_TC_LOW_LATENCY:
      return TrafficClass::kLowLatency;
    case FI_TC_DEDICATED_ACCESS:
      return TrafficClass::kDedicated;
    case FI_TC_BULK_DATA:
      return TrafficClass::kBulk;
    default:
      return std::nullopt;
  }
}

Result<void> check_compat(const fi_info *hints, const Settings &settings) {
  if (settings.compat == Settings::Compat::kNever && asks_for_older(hints))
    return fail(FI_ENODATA, "cxi: FI_ADDR_OPX and FI_PROTO_OPX are off (FI_CXI_COMPAT=0)");
  if (settings.compat == Settings::Compat::kAlways && asks_for_rnr(hints))
    return fail(FI_ENODATA, "cxi: FI_CXI_COMPAT=2 has no FI_PROTO_CXI_RNR");
  return {};
}

Result<AskedPlaces> asked_places(const sdk::GetinfoQuery &query,
                                 const std::vector<DeviceFacts> &devices) {
  AskedPlaces asked;
  const fi_info *const hints = query.hints;
  const auto from_hints = [&](const void *address, size_t length) -> Result<sdk::Address> {
    const uint32_t format =
        hints->addr_format == FI_ADDR_STR ? uint32_t(FI_ADDR_STR) : uint32_t(FI_ADDR_CXI);
    if (hints->addr_format != FI_FORMAT_UNSPEC && hints->addr_format != format &&
        hints->addr_format != FI_ADDR_OPX)
      return fail(FI_ENODATA, "cxi: its addresses are of the format FI_ADDR_CXI");
    WEFT_TRY(const sdk::Address read, sdk::read_address(format, address, length));
    if (read.format() != FI_ADDR_CXI)
      return fail(FI_ENODATA, "cxi: %s is no address of cxi", read.to_string().c_str());
    return read;
  };
  if (query.flags & FI_SOURCE) {
    if (query.node == nullptr && query.service == nullptr)
      return fail(FI_EINVAL, "cxi: FI_SOURCE needs a node or a service");
    WEFT_TRY(asked.own_pid, pid_of(query.service));
    if (query.node != nullptr) {
      WEFT_TRY(const Place own, place_of(query.node, devices));
      WEFT_CHECK(set_own(asked, own, asked.own_pid, devices));
    }
  } else if (query.node != nullptr) {
    WEFT_TRY(const Place place, place_of(query.node, devices));
    WEFT_TRY(const Pid pid, pid_of(query.service));
    asked.dest = Peer{place.nid, pid == kAnyPid ? Pid(0) : pid};
    asked.dest_host = place.host;
  } else if (query.service != nullptr) {
    WEFT_TRY(asked.own_pid, pid_of(query.service));
  }
  if (hints == nullptr) return asked;
  WEFT_TRY(asked.key, auth_key_of(*hints, query.api_version));
  if (hints->src_addr != nullptr && !(query.flags & FI_SOURCE)) {
    WEFT_TRY(const sdk::Address own, from_hints(hints->src_addr, hints->src_addrlen));
    const Peer peer = peer_of(own);
    WEFT_CHECK(set_own(asked, {peer.nid, host_of(own)}, peer.pid, devices));
  }
  if (hints->dest_addr != nullptr && !asked.dest) {
    WEFT_TRY(const sdk::Address dest, from_hints(hints->dest_addr, hints->dest_addrlen));
    asked.dest = peer_of(dest);
    asked.dest_host = host_of(dest);
  }
  return asked;
}

Result<void> add_infos(sdk::InfoList &list, const DeviceFacts &facts, const AskedPlaces &asked,
                       const sdk::GetinfoQuery &query, const Settings &settings) {
  const fi_info *const hints = query.hints;
  const int mode =
      hints != nullptr && hints->domain_attr != nullptr ? hints->domain_attr->mr_mode : 0;
  const auto add = [&](const Kind &kind) -> Result<void> {
    WEFT_TRY(fi_info *const info, list.add());
    return fill(*info, facts, asked, query, settings, kind);
  };
  // Without hints all kinds; else the best that fits.
  const bool all = hints == nullptr || (hints->caps == 0 && mode == 0);
  if (!all) {
    const bool on_demand = settings.force_odp || (settings.odp && !(mode & FI_MR_ALLOCATED));
    return add({uses_regions(hints) && (mode & FI_MR_PROV_KEY) != 0, on_demand,
                asks_for_vector_keys(query)});
  }
  for (const bool vector_keys : {false, true}) {
    if (!vector_keys && asks_for_vector_keys(query)) continue;
    for (const bool on_demand : {false, true}) {
      if (on_demand ? !settings.odp && !settings.force_odp : settings.force_odp) continue;
      for (const bool provider_keys : {true, false})
        WEFT_CHECK(add({provider_keys, on_demand, vector_keys}));
    }
  }
  return {};
}

}  // namespace weft::cxi
