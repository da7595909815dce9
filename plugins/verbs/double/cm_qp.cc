// SPDX-License-Identifier: BSD-2-Clause
// Queue pairs of identifiers: the connection manager takes them through their states.
#include "plugins/verbs/double/cm.h"
#include "plugins/verbs/double/transport.h"

namespace weft::verbs_double {

namespace {

constexpr uint8_t kAckTimeout = 14;  // 67 ms

uint8_t gid_index(const Adapter &adapter, const SocketAddress &address) {
  for (const ibv_gid_entry &entry : adapter.gids) {
    const ibv_gid wanted = address.gid();
    if (std::memcmp(entry.gid.raw, wanted.raw, sizeof wanted.raw) == 0) {
      return static_cast<uint8_t>(entry.gid_index);
    }
  }
  return 0;
}

// The values for the state that `attr.qp_state` names. Returns their mask, 0 if there are none yet.
int attributes_for(const CmSide &side, ibv_qp_type type, ibv_qp_attr &attr) {
  const bool is_ud = type == IBV_QPT_UD;
  const bool is_connecting = side.remote_qpn != 0;
  attr.pkey_index = 0;
  attr.port_num = 1;
  attr.qkey = RDMA_UDP_QKEY;
  attr.qp_access_flags = 0;
  if (is_connecting) {
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (side.responder_resources > 0) {
      attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    }
  }
  switch (attr.qp_state) {
    case IBV_QPS_INIT:
      return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
             (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    case IBV_QPS_RTR: {
      if (is_ud) return IBV_QP_STATE;
      const Adapter *target = side.adapter->world.adapter_of(side.dst);
      if (!is_connecting || target == nullptr) return 0;
      attr.ah_attr = path_to(*side.adapter, side.src, *target, side.dst);
      attr.path_mtu = std::min(side.adapter->options.mtu, target->options.mtu);
      attr.dest_qp_num = side.remote_qpn;
      attr.rq_psn = 0;
      attr.max_dest_rd_atomic = side.responder_resources;
      attr.min_rnr_timer = 0;
      return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             (type == IBV_QPT_XRC_SEND ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    }
    case IBV_QPS_RTS:
      attr.sq_psn = 0;
      if (is_ud) return IBV_QP_STATE | IBV_QP_SQ_PSN;
      if (!is_connecting) return 0;
      attr.timeout = kAckTimeout;
      attr.retry_cnt = side.retry_count;
      attr.rnr_retry = side.rnr_retry_count;
      attr.max_rd_atomic = side.initiator_depth;
      return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
             (type == IBV_QPT_XRC_RECV
                  ? 0
                  : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    default:
      return 0;
  }
}

int step_to(CmSide &side, Qp &qp, ibv_qp_state state) {
  ibv_qp_attr attr = {};
  attr.qp_state = state;
  const int mask = attributes_for(side, qp.init.qp_type, attr);
  return mask == 0 ? EINVAL : change_qp(qp, attr, mask);
}

int create_for(CmId &id, ibv_qp_init_attr_ex &wanted) {
  if (id.verbs == nullptr || id.qp != nullptr) return EINVAL;
  if (wanted.qp_type != IBV_QPT_XRC_RECV) {
    if (wanted.pd == nullptr) wanted.pd = id.pd;
    if (wanted.pd->context != id.verbs) return EINVAL;
  }
  int error = 0;
  Qp *qp = make_qp(of(id.verbs), wanted, error);
  if (qp == nullptr) return error;
  wanted.cap = qp->init.cap;
  if (wanted.qp_type != IBV_QPT_XRC_RECV) id.pd = wanted.pd;
  id.qp = qp->ibv();
  return start_queue_pair(*id.side, *qp);
}

}  // namespace

ibv_ah_attr path_to(const Adapter &from, const SocketAddress &src, const Adapter &to,
                    const SocketAddress &dst) {
  ibv_ah_attr attr = {};
  attr.port_num = 1;
  if (from.options.infiniband) {
    attr.dlid = to.lid;
    return attr;
  }
  attr.is_global = 1;
  attr.grh.dgid = dst.gid();
  attr.grh.sgid_index = gid_index(from, src);
  attr.grh.hop_limit = 64;
  return attr;
}

int start_queue_pair(CmSide &side, Qp &qp) {
  if (const int error = step_to(side, qp, IBV_QPS_INIT); error != 0) return error;
  if (qp.init.qp_type != IBV_QPT_UD) return 0;
  if (const int error = step_to(side, qp, IBV_QPS_RTR); error != 0) return error;
  return step_to(side, qp, IBV_QPS_RTS);
}

void connect_queue_pair(CmSide &side, Qp &qp) {
  // In the error state already, if the program or a device's end was faster.
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    if (step_to(side, qp, state) != 0) return;
  }
}

}  // namespace weft::verbs_double

using namespace weft::verbs_double;

extern "C" {

int rdma_create_qp(rdma_cm_id *ibv, ibv_pd *pd, ibv_qp_init_attr *wanted) {
  CmId &id = of(ibv);
  const Entry entry(id.world, Call::k_rdma_create_qp);
  if (entry.error() != 0) return failed(entry.error());
  ibv_qp_init_attr_ex whole = {};
  std::memcpy(&whole, wanted, sizeof *wanted);  // it begins with the same fields
  whole.comp_mask = IBV_QP_INIT_ATTR_PD;
  whole.pd = pd;
  if (const int error = create_for(id, whole); error != 0) return failed(error);
  wanted->cap = whole.cap;
  return 0;
}

int rdma_create_qp_ex(rdma_cm_id *ibv, ibv_qp_init_attr_ex *wanted) {
  CmId &id = of(ibv);
  const Entry entry(id.world, Call::k_rdma_create_qp_ex);
  if (entry.error() != 0) return failed(entry.error());
  if ((wanted->comp_mask & ~(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD)) != 0) {
    return failed(EINVAL);
  }
  ibv_qp_init_attr_ex whole = *wanted;
  if ((wanted->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) whole.pd = nullptr;
  if ((wanted->comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0) whole.xrcd = nullptr;
  if (const int error = create_for(id, whole); error != 0) return failed(error);
  wanted->cap = whole.cap;
  return 0;
}

void rdma_destroy_qp(rdma_cm_id *ibv) {
  CmId &id = of(ibv);
  Entry entry(id.world);
  if (id.qp == nullptr) return id.world.complain("rdma_destroy_qp: the identifier has none");
  for (auto &[key, members] : of(id.qp).adapter.groups) std::erase(members, &of(id.qp));
  std::erase_if(of(id.qp).adapter.groups, [](const auto &group) { return group.second.empty(); });
  ibv_qp *qp = std::exchange(id.qp, nullptr);
  end_qp(entry, of(qp));
}

int rdma_init_qp_attr(rdma_cm_id *ibv, ibv_qp_attr *attr, int *mask) {
  CmId &id = of(ibv);
  const Entry entry(id.world, Call::k_rdma_init_qp_attr);
  if (entry.error() != 0) return failed(entry.error());
  if (id.side->adapter == nullptr) return failed(EINVAL);
  const ibv_qp_state state = attr->qp_state;
  *attr = {};
  attr->qp_state = state;
  *mask = attributes_for(*id.side, id.qp_type, *attr);
  return *mask == 0 ? failed(EINVAL) : 0;
}

}  // extern "C"
