// SPDX-License-Identifier: BSD-2-Clause
// Connecting, accepting, rejecting, disconnecting.
#include <algorithm>

#include "plugins/verbs/double/cm.h"
#include "plugins/verbs/double/transport.h"

namespace weft::verbs_double {

namespace {

bool is_datagram(const CmSide &side) {
  return side.ps == RDMA_PS_UDP || side.ps == RDMA_PS_IPOIB;
}

// Reads and atomics: 255 is "as many as the device can".
int resources(const CmSide &side, uint8_t wanted, uint8_t &result) {
  const auto limit = static_cast<uint8_t>(std::min(side.adapter->options.limits.max_rd_atom, 254));
  if (wanted != RDMA_MAX_RESP_RES && wanted > limit) return EINVAL;
  result = std::min(wanted, limit);
  return 0;
}

std::vector<uint8_t> data_of(const void *data, size_t size) {
  const auto *bytes = static_cast<const uint8_t *>(data);
  return data == nullptr ? std::vector<uint8_t>() : std::vector<uint8_t>(bytes, bytes + size);
}

rdma_conn_param without_data(const rdma_conn_param *param) {
  rdma_conn_param result = {};
  if (param == nullptr) {
    constexpr uint8_t kMaxRetries = 7;
    result.responder_resources = result.initiator_depth = RDMA_MAX_RESP_RES;
    result.retry_count = result.rnr_retry_count = kMaxRetries;
    return result;
  }
  result = *param;
  result.private_data = nullptr;
  result.private_data_len = 0;
  result.retry_count = std::min<uint8_t>(param->retry_count, 7);
  result.rnr_retry_count = std::min<uint8_t>(param->rnr_retry_count, 7);
  return result;
}

void send_to_peer(CmSide &side, CmMessage::Kind kind, QueuedEvent event = {}) {
  CmMessage message;
  message.kind = kind;
  message.from = side.serial;
  message.to = side.peer;
  message.event = std::move(event);
  message.event.is_ud = is_datagram(side);
  side.adapter->world.cm->send(std::move(message));
}

int check_data(const void *data, size_t size, size_t limit) {
  return data != nullptr && size > limit ? EINVAL : 0;
}

int request(CmId &id, const rdma_conn_param *param) {
  CmSide &side = *id.side;
  if (side.state != CmState::kRouteResolved) return EINVAL;
  const size_t limit = is_datagram(side) ? kLookupData : request_room(side);
  QueuedEvent event;
  event.conn = without_data(param);
  if (param != nullptr) {
    if (const int error = check_data(param->private_data, param->private_data_len, limit)) {
      return error;
    }
    event.data = data_of(param->private_data, param->private_data_len);
    // The version of the header is the kernel's.
    if (side.src.family() == AF_IB && !event.data.empty()) event.data[0] = 0;
  }
  for (uint8_t *count : {&event.conn.responder_resources, &event.conn.initiator_depth}) {
    if (const int error = resources(side, *count, *count); error != 0) return error;
  }
  if (id.qp != nullptr) {
    event.conn.qp_num = id.qp->qp_num;
    event.conn.srq = id.qp->srq != nullptr ? 1 : 0;
  }
  side.responder_resources = event.conn.responder_resources;
  side.initiator_depth = event.conn.initiator_depth;
  side.retry_count = event.conn.retry_count;
  side.state = CmState::kConnecting;
  send_to_peer(side, CmMessage::Kind::kRequest, std::move(event));
  return 0;
}

int accept_lookup(CmId &id, const rdma_conn_param *param) {
  CmSide &side = *id.side;
  QueuedEvent event;
  if (param != nullptr) {
    if (check_data(param->private_data, param->private_data_len, kAnswerData) != 0) return EINVAL;
    event.data = data_of(param->private_data, param->private_data_len);
    event.ud.qp_num = param->qp_num;
  }
  if (id.qp != nullptr) event.ud.qp_num = id.qp->qp_num;
  event.ud.qkey = RDMA_UDP_QKEY;
  side.state = CmState::kConnected;
  send_to_peer(side, CmMessage::Kind::kReply, std::move(event));
  return 0;
}

int accept(CmId &id, const rdma_conn_param *param) {
  CmSide &side = *id.side;
  if (side.state != CmState::kRequested) return EINVAL;
  if (is_datagram(side)) return accept_lookup(id, param);
  QueuedEvent event;
  const rdma_conn_param &asked = side.request.conn;
  event.conn = without_data(param);
  if (param == nullptr) {
    event.conn.responder_resources = asked.initiator_depth;
    event.conn.initiator_depth = asked.responder_resources;
    event.conn.rnr_retry_count = asked.rnr_retry_count;
  } else {
    if (check_data(param->private_data, param->private_data_len, kReplyData) != 0) return EINVAL;
    event.data = data_of(param->private_data, param->private_data_len);
  }
  for (uint8_t *count : {&event.conn.responder_resources, &event.conn.initiator_depth}) {
    const uint8_t limit = param == nullptr ? uint8_t{RDMA_MAX_RESP_RES} : *count;
    if (const int error = resources(side, limit, *count); error != 0) return error;
  }
  event.conn.responder_resources = std::min(event.conn.responder_resources, asked.initiator_depth);
  event.conn.initiator_depth = std::min(event.conn.initiator_depth, asked.responder_resources);
  side.responder_resources = event.conn.responder_resources;
  side.initiator_depth = event.conn.initiator_depth;
  if (id.qp != nullptr) {
    event.conn.qp_num = id.qp->qp_num;
    event.conn.srq = id.qp->srq != nullptr ? 1 : 0;
    connect_queue_pair(side, of(id.qp));
  }
  side.state = CmState::kAccepted;
  send_to_peer(side, CmMessage::Kind::kReply, std::move(event));
  return 0;
}

int reject(CmId &id, const void *data, uint8_t size) {
  CmSide &side = *id.side;
  if (side.state != CmState::kRequested) return EINVAL;
  if (check_data(data, size, kRejectData) != 0) return EINVAL;
  QueuedEvent event;
  event.data = data_of(data, size);
  event.status = kByConsumer;
  side.state = CmState::kClosed;
  send_to_peer(side, CmMessage::Kind::kReject, std::move(event));
  return 0;
}

int disconnect(CmId &id) {
  CmSide &side = *id.side;
  if (id.qp != nullptr) fail_queue_pair(of(id.qp));
  switch (side.state) {
    case CmState::kAccepted:
    case CmState::kConnected:
      side.state = CmState::kDisconnecting;
      send_to_peer(side, CmMessage::Kind::kDisconnect);
      return 0;
    case CmState::kLeft: {
      side.state = CmState::kClosed;
      send_to_peer(side, CmMessage::Kind::kDisconnected);
      CmMessage late;
      late.to = side.serial;
      late.event.type = RDMA_CM_EVENT_TIMEWAIT_EXIT;
      side.adapter->world.cm->send(std::move(late));
      return 0;
    }
    default:
      return EINVAL;
  }
}

}  // namespace

}  // namespace weft::verbs_double

using namespace weft::verbs_double;

extern "C" {

int rdma_connect(rdma_cm_id *ibv, rdma_conn_param *param) {
  CmId &id = of(ibv);
  {
    const Entry entry(id.world, Call::k_rdma_connect);
    const int error = entry.error() != 0 ? entry.error() : request(id, param);
    if (error != 0) return failed(error);
  }
  return complete(id);
}

int rdma_accept(rdma_cm_id *ibv, rdma_conn_param *param) {
  CmId &id = of(ibv);
  {
    const Entry entry(id.world, Call::k_rdma_accept);
    const int error = entry.error() != 0 ? entry.error() : accept(id, param);
    if (error != 0) return failed(error);
    if (id.ps != RDMA_PS_TCP) return 0;  // nothing comes back
  }
  return complete(id);
}

int rdma_establish(rdma_cm_id *ibv) {
  CmId &id = of(ibv);
  const Entry entry(id.world, Call::k_rdma_establish);
  if (entry.error() != 0) return failed(entry.error());
  if (id.qp != nullptr || id.side->state != CmState::kResponded) return failed(EINVAL);
  id.side->state = CmState::kConnected;
  send_to_peer(*id.side, CmMessage::Kind::kReady);
  return 0;
}

int rdma_reject(rdma_cm_id *ibv, const void *data, uint8_t size) {
  CmId &id = of(ibv);
  const Entry entry(id.world, Call::k_rdma_reject);
  const int error = entry.error() != 0 ? entry.error() : reject(id, data, size);
  return error != 0 ? failed(error) : 0;
}

int rdma_reject_ece(rdma_cm_id *, const void *, uint8_t) {
  return failed(ENOSYS);
}

int rdma_notify(rdma_cm_id *ibv, ibv_event_type event) {
  CmId &id = of(ibv);
  const Entry entry(id.world, Call::k_rdma_notify);
  if (entry.error() != 0) return failed(entry.error());
  if (event != IBV_EVENT_COMM_EST) return failed(EINVAL);
  if (id.side->state != CmState::kAccepted) return failed(EISCONN);
  id.side->state = CmState::kConnected;
  id.world.cm->tell(*id.side, RDMA_CM_EVENT_ESTABLISHED, 0);
  return 0;
}

int rdma_disconnect(rdma_cm_id *ibv) {
  CmId &id = of(ibv);
  {
    const Entry entry(id.world, Call::k_rdma_disconnect);
    const int error = entry.error() != 0 ? entry.error() : disconnect(id);
    if (error != 0) return failed(error);
    if (id.side->state == CmState::kClosed) return 0;  // the other end was first
  }
  return complete(id);
}

int rdma_set_local_ece(rdma_cm_id *, ibv_ece *) {
  return failed(ENOSYS);
}

int rdma_get_remote_ece(rdma_cm_id *, ibv_ece *) {
  return failed(ENOSYS);
}

}  // extern "C"
