// SPDX-License-Identifier: BSD-2-Clause
// What two ends of a connection say to each other.
#include <algorithm>

#include "plugins/verbs/double/cm.h"

namespace weft::verbs_double {

namespace {

CmMessage answer_to(const CmMessage &message, CmMessage::Kind kind, int status) {
  CmMessage answer;
  answer.kind = kind;
  answer.from = message.to;
  answer.to = message.from;
  answer.event.status = status;
  answer.event.is_ud = message.event.is_ud;
  return answer;
}

}  // namespace

std::shared_ptr<CmSide> Cm::make_side(rdma_port_space ps) {
  auto side = std::make_shared<CmSide>();
  side->serial = next_serial++;
  side->ps = ps;
  sides[side->serial] = side;
  return side;
}

CmSide *Cm::find(uint64_t serial) const {
  const auto found = sides.find(serial);
  return found == sides.end() ? nullptr : found->second.get();
}

void Cm::send(CmMessage message) {
  if (const CmSide *from = find(message.from); from != nullptr) message.origin = from->adapter;
  messages.push_back(std::move(message));
}

void Cm::deliver(size_t turn) {
  const auto first = std::find_if(messages.begin(), messages.end(), [&](const CmMessage &message) {
    return message.from == messages[turn].from && message.to == messages[turn].to;
  });
  const CmMessage message = std::move(*first);
  messages.erase(first);

  CmSide *from = find(message.from);
  CmSide *to = find(message.to);
  if (message.kind == CmMessage::Kind::kEvent) {
    if (to != nullptr) tell(*to, message.event);
    return;
  }
  if (message.kind == CmMessage::Kind::kRequest) {
    const Adapter *target = from != nullptr ? world.adapter_of(from->dst) : nullptr;
    if (from == nullptr) return;
    const bool is_cut =
        target == nullptr || !target->is_reachable() || !from->adapter->is_reachable();
    return is_cut ? on_lost(message) : on_request(message);
  }
  if (to == nullptr) {  // its program has gone
    if (message.kind == CmMessage::Kind::kDisconnect && from != nullptr) end_connection(*from, 0);
    return;
  }
  const bool has_left = message.origin == nullptr || message.origin->is_reachable();
  if (!has_left || is_cut(*to)) return on_lost(message);
  switch (message.kind) {
    case CmMessage::Kind::kReply:
      return on_reply(*to, message);
    case CmMessage::Kind::kReady:
      if (to->state != CmState::kAccepted) return;
      to->state = CmState::kConnected;
      return tell(*to, RDMA_CM_EVENT_ESTABLISHED, 0);
    case CmMessage::Kind::kReject:
      return on_reject(*to, message);
    case CmMessage::Kind::kDisconnect:
      return on_disconnect(*to);
    default:
      if (to->state == CmState::kDisconnecting) end_connection(*to, 0);
      return;
  }
}

bool Cm::is_cut(const CmSide &side) const {
  const CmSide *peer = find(side.peer);
  return !side.adapter->is_reachable() || (peer != nullptr && !peer->adapter->is_reachable());
}

// A message that does not arrive: its sender gives up when its time is over.
void Cm::on_lost(const CmMessage &message) {
  CmSide *from = find(message.from);
  if (from == nullptr || !world.is_over_time()) return;
  if (message.kind == CmMessage::Kind::kDisconnect) return end_connection(*from, -ETIMEDOUT);
  if (from->state != CmState::kConnecting && from->state != CmState::kAccepted) return;
  from->state = CmState::kClosed;
  tell(*from, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
}

void Cm::on_request(const CmMessage &message) {
  CmSide &from = *find(message.from);
  CmSide *listener = listener_for(from.ps, from.dst);
  if (listener == nullptr || listener->requests >= listener->backlog) {
    CmMessage answer = answer_to(message, CmMessage::Kind::kReject,
                                 listener == nullptr ? kNoListener : kByConsumer);
    answer.from = 0;
    answer.event.data.resize(kRejectData);
    return send(std::move(answer));
  }
  const std::shared_ptr<CmSide> child = make_side(from.ps);
  child->state = CmState::kRequested;
  child->peer = from.serial;
  child->listener = listener->serial;
  child->adapter = world.adapter_of(from.dst);
  child->src = from.dst;
  child->dst = from.src;
  child->request = message.event;
  child->remote_qpn = message.event.conn.qp_num;
  child->retry_count = message.event.conn.retry_count;
  child->rnr_retry_count = message.event.conn.rnr_retry_count;
  from.peer = child->serial;
  ++listener->requests;
  QueuedEvent event = message.event;
  event.type = RDMA_CM_EVENT_CONNECT_REQUEST;
  event.child = child->serial;
  event.data.resize(event.is_ud ? kLookupData : request_room(from));
  // The resources that one end has are what the other end may use.
  std::swap(event.conn.responder_resources, event.conn.initiator_depth);
  tell(*listener, std::move(event));
}

void Cm::on_reply(CmSide &side, const CmMessage &message) {
  if (side.state != CmState::kConnecting) return;
  QueuedEvent event = message.event;
  if (event.is_ud) {
    side.state = CmState::kConnected;
    event.type = RDMA_CM_EVENT_ESTABLISHED;
    event.data.resize(kAnswerData);
    return tell(side, std::move(event));
  }
  side.state = CmState::kResponded;
  side.remote_qpn = event.conn.qp_num;
  side.rnr_retry_count = event.conn.rnr_retry_count;
  side.initiator_depth = event.conn.responder_resources;
  side.responder_resources = event.conn.initiator_depth;
  event.type = RDMA_CM_EVENT_CONNECT_RESPONSE;
  event.data.resize(kReplyData);
  std::swap(event.conn.responder_resources, event.conn.initiator_depth);
  tell(side, std::move(event));
}

void Cm::on_reject(CmSide &side, const CmMessage &message) {
  const bool was_open = side.state == CmState::kConnecting || side.state == CmState::kRequested ||
                        side.state == CmState::kAccepted || side.state == CmState::kResponded;
  if (!was_open) return;
  side.state = CmState::kClosed;
  QueuedEvent event = message.event;
  if (event.is_ud) {
    event.type = RDMA_CM_EVENT_UNREACHABLE;
    event.status = kLookupRefused;
    event.data.resize(kAnswerData);
    return tell(side, std::move(event));
  }
  event.type = RDMA_CM_EVENT_REJECTED;
  event.data.resize(kRejectData);
  tell(side, std::move(event));
}

void Cm::on_disconnect(CmSide &side) {
  switch (side.state) {
    case CmState::kAccepted:
    case CmState::kResponded:
    case CmState::kConnected:
      side.state = CmState::kLeft;
      return tell(side, RDMA_CM_EVENT_DISCONNECTED, 0);
    case CmState::kDisconnecting: {  // both ends leave
      CmMessage answer;
      answer.kind = CmMessage::Kind::kDisconnected;
      answer.from = side.serial;
      answer.to = side.peer;
      send(std::move(answer));
      return end_connection(side, 0);
    }
    default:
      return;
  }
}

// An end that has left is told so, once.
void Cm::end_connection(CmSide &side, int status) {
  if (side.state != CmState::kDisconnecting) return;
  side.state = CmState::kClosed;
  tell(side, RDMA_CM_EVENT_DISCONNECTED, status);
  CmMessage late;
  late.to = side.serial;
  late.event.type = RDMA_CM_EVENT_TIMEWAIT_EXIT;
  send(std::move(late));
}

void Cm::tell(CmSide &side, QueuedEvent event) {
  event.side = side.serial;
  if (event.type == RDMA_CM_EVENT_ADDR_RESOLVED) side.state = CmState::kAddrResolved;
  if (event.type == RDMA_CM_EVENT_ROUTE_RESOLVED) side.state = CmState::kRouteResolved;
  if (event.type == RDMA_CM_EVENT_ADDR_ERROR) side.state = CmState::kBound;
  if (event.type == RDMA_CM_EVENT_ROUTE_ERROR) side.state = CmState::kAddrResolved;
  if (side.id != nullptr) of(side.id->channel).queue.push(std::move(event));
}

void Cm::tell(CmSide &side, rdma_cm_event_type type, int status) {
  QueuedEvent event;
  event.type = type;
  event.status = status;
  event.is_ud = side.ps != RDMA_PS_TCP && side.ps != RDMA_PS_IB;
  tell(side, std::move(event));
}

void Cm::expire(bool all) {
  for (const auto &[serial, side] : sides) {
    if (side->adapter == nullptr || (!all && !is_cut(*side))) continue;
    if (side->state == CmState::kDisconnecting) end_connection(*side, -ETIMEDOUT);
    if (side->state == CmState::kConnecting || side->state == CmState::kAccepted) {
      side->state = CmState::kClosed;
      tell(*side, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
    }
  }
}

void Cm::on_removed(Adapter &adapter) {
  for (const auto &[serial, side] : sides) {
    if (side->adapter == &adapter) tell(*side, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
  }
}

void Cm::close(CmSide &side) {
  const auto tell_peer = [&](CmMessage::Kind kind, int status) {
    CmMessage message;
    message.kind = kind;
    message.from = side.serial;
    message.to = side.peer;
    message.event.status = status;
    message.event.is_ud = side.request.is_ud;
    send(std::move(message));
  };
  switch (side.state) {
    case CmState::kRequested:
      tell_peer(CmMessage::Kind::kReject, kByConsumer);
      break;
    case CmState::kConnecting:
    case CmState::kResponded:
      if (side.peer != 0) tell_peer(CmMessage::Kind::kReject, kTimedOut);
      break;
    case CmState::kAccepted:
    case CmState::kConnected:
      if (side.ps == RDMA_PS_TCP) tell_peer(CmMessage::Kind::kDisconnect, 0);
      break;
    case CmState::kLeft:
      tell_peer(CmMessage::Kind::kDisconnected, 0);
      break;
    default:
      break;
  }
  side.state = CmState::kClosed;
  side.id = nullptr;
  sides.erase(side.serial);  // messages that it sent are still on their way
}

}  // namespace weft::verbs_double
