// SPDX-License-Identifier: BSD-2-Clause
// Datagrams: address handles, the global route header in front of what is received, groups.
#include <arpa/inet.h>

#include <algorithm>

#include "plugins/verbs/double/objects.h"
#include "plugins/verbs/double/transport.h"

namespace weft::verbs_double {

namespace {

constexpr size_t kGrhSize = sizeof(ibv_grh);
constexpr uint8_t kUdpProtocol = 17;
constexpr uint8_t kBthHeader = 0x1b;

bool is_ipv4(const ibv_gid &gid) {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(std::begin(kPrefix), std::end(kPrefix), gid.raw);
}

bool is_group(const ibv_gid &gid) {
  return is_ipv4(gid) ? (gid.raw[12] & 0xf0) == 0xe0 : gid.raw[0] == 0xff;
}

size_t bytes_of(ibv_mtu mtu) {
  return size_t{128} << mtu;
}

// The 40 bytes in front of a datagram. For RoCE v2 over IPv4 they end with the header of IPv4; the
// 20 bytes before it have no meaning.
std::vector<uint8_t> route_header(const ibv_gid &from, const ibv_gid &to, size_t size,
                                  const ibv_ah_attr &ah) {
  std::vector<uint8_t> bytes(kGrhSize, 0xdb);
  if (is_ipv4(from)) {
    uint8_t *header = bytes.data() + 20;
    const uint16_t length = htons(static_cast<uint16_t>(size + 40));
    std::fill_n(header, 20, uint8_t{0});
    header[0] = 0x45;
    header[1] = ah.grh.traffic_class;
    std::memcpy(header + 2, &length, sizeof length);
    header[8] = ah.grh.hop_limit;
    header[9] = kUdpProtocol;
    std::memcpy(header + 12, from.raw + 12, 4);
    std::memcpy(header + 16, to.raw + 12, 4);
    uint32_t sum = 0;
    for (size_t i = 0; i < 20; i += 2) sum += static_cast<uint32_t>(header[i] << 8 | header[i + 1]);
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    const uint16_t checksum = htons(static_cast<uint16_t>(~sum));
    std::memcpy(header + 10, &checksum, sizeof checksum);
    return bytes;
  }
  ibv_grh header = {};
  header.version_tclass_flow = htonl(6U << 28 | static_cast<uint32_t>(ah.grh.traffic_class) << 20 |
                                     (ah.grh.flow_label & 0xfffff));
  header.paylen = htons(static_cast<uint16_t>(size));
  header.next_hdr = kBthHeader;
  header.hop_limit = ah.grh.hop_limit;
  header.sgid = from;
  header.dgid = to;
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

bool can_receive(const Qp &receiver) {
  if (!receiver.adapter.is_reachable() || receiver.is_silent) return false;
  const ibv_qp_state state = receiver.state();
  return receiver.init.qp_type == IBV_QPT_UD && (state == IBV_QPS_RTR || state == IBV_QPS_RTS ||
                                                 state == IBV_QPS_SQD || state == IBV_QPS_SQE);
}

// `wc` says who sent it; a header only where it says so (IBV_WC_GRH).
void place_datagram(Qp &receiver, ibv_wc wc, std::span<const uint8_t> header,
                    std::span<const uint8_t> bytes, bool solicited) {
  RecvWqe receive;
  Srq *srq = receiver.srq;
  if (!take_receive(srq != nullptr ? srq->rq : receiver.rq, srq, receive)) return;  // it is lost
  wc.opcode = IBV_WC_RECV;
  wc.byte_len = static_cast<uint32_t>(kGrhSize + bytes.size());
  const Pd *pd = srq != nullptr ? &srq->pd_of : receiver.pd_of;
  std::vector<Piece> pieces;
  if (!resolve(receiver.adapter, pd, receive.sges, IBV_ACCESS_LOCAL_WRITE, pieces)) {
    wc.status = IBV_WC_LOC_PROT_ERR;
  } else if (size_of(pieces) < wc.byte_len) {
    wc.status = IBV_WC_LOC_LEN_ERR;
  } else {
    if ((wc.wc_flags & IBV_WC_GRH) != 0) scatter(pieces, 0, header);
    if (!bytes.empty()) scatter(pieces, kGrhSize, bytes);
  }
  arrive(receiver, srq, receive, wc, solicited);
  if (wc.status != IBV_WC_SUCCESS) fail_queue_pair(receiver);
}

void receive_datagram(Qp &sender, Qp &receiver, const SendWqe &wqe,
                      std::span<const uint8_t> bytes) {
  if (!can_receive(receiver) || receiver.attr.qkey != wqe.remote_qkey) return;
  ibv_wc wc = {};
  wc.src_qp = sender.number();
  wc.slid = sender.adapter.options.infiniband ? sender.adapter.lid : 0;
  wc.sl = wqe.ah.sl;
  if (has_immediate(wqe.opcode)) {
    wc.imm_data = wqe.imm;
    wc.wc_flags |= IBV_WC_WITH_IMM;
  }
  std::vector<uint8_t> header;
  if (wqe.ah.is_global != 0) {
    wc.wc_flags |= IBV_WC_GRH;
    const ibv_gid &from = sender.adapter.gids[wqe.ah.grh.sgid_index].gid;
    header = route_header(from, wqe.ah.grh.dgid, bytes.size(), wqe.ah);
  }
  place_datagram(receiver, wc, header, bytes, (wqe.flags & IBV_SEND_SOLICITED) != 0);
}

// To whom a datagram goes. A group has all members but the sender... it, too, if it is one.
std::vector<Qp *> receivers_of(const Qp &sender, const SendWqe &wqe) {
  std::vector<Qp *> receivers;
  World &world = sender.world;
  if (wqe.ah.is_global != 0 && is_group(wqe.ah.grh.dgid)) {
    if (wqe.remote_qpn != kGroupQp) return receivers;
    for (const std::unique_ptr<Adapter> &adapter : world.adapters) {
      const auto group = adapter->groups.find({wqe.ah.grh.dgid});
      if (group == adapter->groups.end()) continue;
      receivers.insert(receivers.end(), group->second.begin(), group->second.end());
    }
    return receivers;
  }
  const Adapter *adapter = world.adapter_of(wqe.ah);
  if (adapter == nullptr) return receivers;
  const auto found = adapter->qps.find(wqe.remote_qpn);
  if (found != adapter->qps.end()) receivers.push_back(found->second);
  return receivers;
}

}  // namespace

void deliver_forged(Qp &receiver, const ForgedDatagram &forged) {
  if (!can_receive(receiver)) return;
  ibv_wc wc = {};
  wc.src_qp = forged.source;
  wc.slid = forged.lid;
  wc.sl = forged.service_level;
  if (forged.has_immediate) wc.wc_flags |= IBV_WC_WITH_IMM;
  if (forged.has_route) wc.wc_flags |= IBV_WC_GRH;
  place_datagram(receiver, wc, forged.header, forged.bytes, false);
}

void execute_datagram(Qp &qp, SendWqe &wqe) {
  std::vector<uint8_t> bytes;
  if (!gather(qp, wqe, bytes)) return finish(wqe, IBV_WC_LOC_PROT_ERR);
  if (wqe.ah_pd != qp.pd_of) return finish(wqe, IBV_WC_LOC_QP_OP_ERR);
  if (bytes.size() > bytes_of(qp.adapter.options.mtu)) return finish(wqe, IBV_WC_LOC_LEN_ERR);
  finish(wqe, IBV_WC_SUCCESS);  // it has left; whether it arrives is another matter
  if (!qp.adapter.is_reachable() || qp.is_silent) return;
  const DatagramFaults &faults = qp.world.faults.datagrams;
  for (Qp *receiver : receivers_of(qp, wqe)) {
    if (bytes.size() > bytes_of(receiver->adapter.options.mtu)) continue;
    if (faults.lost > 0 && qp.world.chance(faults.lost)) continue;
    receive_datagram(qp, *receiver, wqe, bytes);
    if (faults.duplicated > 0 && qp.world.chance(faults.duplicated)) {
      receive_datagram(qp, *receiver, wqe, bytes);
    }
  }
}

}  // namespace weft::verbs_double

using namespace weft::verbs_double;

extern "C" {

ibv_ah *ibv_create_ah(ibv_pd *ibv, ibv_ah_attr *attr) {
  Pd &pd = of(ibv);
  Adapter &adapter = pd.context_of.adapter;
  const Entry entry(adapter.world, Call::k_ibv_create_ah);
  if (entry.error() != 0) return no_object(entry.error());
  if (adapter.removed) return no_object(EIO);
  if (attr->port_num != 1) return no_object(EINVAL);
  if (!adapter.options.infiniband && attr->is_global == 0) return no_object(EINVAL);
  if (attr->is_global != 0 && attr->grh.sgid_index >= adapter.gids.size()) return no_object(EINVAL);
  if (adapter.ahs >= adapter.options.limits.max_ah) return no_object(ENOMEM);
  auto *ah = new Ah(pd);
  ah->context = pd.context;
  ah->pd = ibv;
  ah->attr = *attr;
  ++pd.users;
  ++adapter.ahs;
  return ah;
}

int ibv_destroy_ah(ibv_ah *ibv) {
  Ah &ah = of(ibv);
  Adapter &adapter = ah.pd_of.context_of.adapter;
  const Entry entry(adapter.world, Call::k_ibv_destroy_ah);
  if (entry.error() != 0) return entry.error();
  --ah.pd_of.users;
  --adapter.ahs;
  delete &ah;
  return 0;
}

int ibv_init_ah_from_wc(ibv_context *ibv, uint8_t port, ibv_wc *wc, ibv_grh *grh,
                        ibv_ah_attr *attr) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_init_ah_from_wc);
  if (entry.error() != 0) return failed(entry.error());
  *attr = {};
  attr->dlid = wc->slid;
  attr->sl = wc->sl;
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;
  ibv_gid from = {};
  ibv_gid to = {};
  const auto *bytes = reinterpret_cast<const uint8_t *>(grh);
  attr->is_global = 1;
  if (bytes[0] >> 4 == 6) {
    from = grh->sgid;
    to = grh->dgid;
    const uint32_t first = ntohl(grh->version_tclass_flow);
    attr->grh.flow_label = first & 0xfffff;
    attr->grh.traffic_class = static_cast<uint8_t>(first >> 20 & 0xff);
  } else if (bytes[20] == 0x45) {
    from.raw[10] = from.raw[11] = to.raw[10] = to.raw[11] = 0xff;
    std::memcpy(from.raw + 12, bytes + 32, 4);
    std::memcpy(to.raw + 12, bytes + 36, 4);
    attr->grh.traffic_class = bytes[21];
  } else {
    return failed(EPROTONOSUPPORT);
  }
  attr->grh.dgid = from;
  attr->grh.hop_limit = 0xff;
  for (const ibv_gid_entry &mine : context.adapter.gids) {
    if (std::memcmp(mine.gid.raw, to.raw, sizeof to.raw) != 0) continue;
    attr->grh.sgid_index = static_cast<uint8_t>(mine.gid_index);
    return 0;
  }
  return is_group(to) ? 0 : failed(ENOENT);
}

ibv_ah *ibv_create_ah_from_wc(ibv_pd *pd, ibv_wc *wc, ibv_grh *grh, uint8_t port) {
  ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return nullptr;
  return ibv_create_ah(pd, &attr);
}

int ibv_attach_mcast(ibv_qp *ibv, const ibv_gid *gid, uint16_t) {
  Qp &qp = of(ibv);
  const Entry entry(qp.world, Call::k_ibv_attach_mcast);
  if (entry.error() != 0) return entry.error();
  const DeviceOptions &options = qp.adapter.options;
  if (!options.features.multicast) return EOPNOTSUPP;
  if (qp.adapter.removed) return EIO;
  if (qp.init.qp_type != IBV_QPT_UD || !is_group(*gid)) return EINVAL;
  auto &groups = qp.adapter.groups;
  const auto known = groups.find({*gid});
  if (known == groups.end() && groups.size() >= static_cast<size_t>(options.limits.max_mcast_grp)) {
    return ENOMEM;
  }
  std::vector<Qp *> &members = groups[{*gid}];
  if (std::find(members.begin(), members.end(), &qp) != members.end()) return 0;
  if (members.size() >= static_cast<size_t>(options.limits.max_mcast_qp_attach)) return ENOMEM;
  members.push_back(&qp);
  return 0;
}

int ibv_detach_mcast(ibv_qp *ibv, const ibv_gid *gid, uint16_t) {
  Qp &qp = of(ibv);
  const Entry entry(qp.world, Call::k_ibv_detach_mcast);
  if (entry.error() != 0) return entry.error();
  const auto group = qp.adapter.groups.find({*gid});
  if (group == qp.adapter.groups.end() || std::erase(group->second, &qp) == 0) return EINVAL;
  if (group->second.empty()) qp.adapter.groups.erase(group);
  return 0;
}

}  // extern "C"
