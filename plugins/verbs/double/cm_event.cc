// SPDX-License-Identifier: BSD-2-Clause
// Events of the connection manager on their way to the program, and what librdmacm does then.
#include "plugins/verbs/double/cm.h"
#include "plugins/verbs/double/transport.h"
#include "plugins/verbs/double/waiting.h"

namespace weft::verbs_double {

namespace {

// The route as librdmacm shows it: one path.
void show_route(CmId &id) {
  const CmSide &side = *id.side;
  const Adapter *target = id.world.adapter_of(side.dst);
  id.path = {};
  id.path.sgid = side.src.gid();
  id.path.dgid = side.dst.gid();
  if (side.adapter->options.infiniband) {
    id.path.sgid = side.adapter->gids[0].gid;
    if (target != nullptr) id.path.dgid = target->gids[0].gid;
    id.path.slid = htobe16(side.adapter->lid);
    if (target != nullptr) id.path.dlid = htobe16(target->lid);
  }
  id.path.reversible = 1;
  id.path.numb_path = 1;
  id.path.pkey = 0xffff;
  id.path.mtu = static_cast<uint8_t>(side.adapter->options.mtu);
  id.path.hop_limit = 64;
  id.route.path_rec = &id.path;
  id.route.num_paths = 1;
}

// A request that is fetched becomes an identifier.
CmId *make_child(World &world, CmId &listener, uint64_t serial) {
  const auto found = world.cm->sides.find(serial);
  if (found == world.cm->sides.end()) return nullptr;
  CmChannel *channel = listener.is_synchronous() ? nullptr : &of(listener.channel);
  auto *child = new CmId(world, found->second, channel, listener.context);
  child->ps = listener.ps;
  child->qp_type = listener.qp_type;
  show_device(*child);
  show_route(*child);
  return child;
}

// The reply is here: the queue pair starts to work, and the other end hears that.
void establish(CmId &id, rdma_cm_event_type &type) {
  if (id.qp == nullptr || id.side->state != CmState::kResponded) return;
  Qp &qp = of(id.qp);
  connect_queue_pair(*id.side, qp);
  qp.is_unread = !qp.adapter.options.features.reads_first;
  id.side->state = CmState::kConnected;
  CmMessage ready;
  ready.kind = CmMessage::Kind::kReady;
  ready.from = id.side->serial;
  ready.to = id.side->peer;
  id.world.cm->send(std::move(ready));
  type = RDMA_CM_EVENT_ESTABLISHED;
}

void fill(CmEvent &event, CmId &id, const QueuedEvent &queued) {
  if (queued.is_ud) {
    event.param.ud = queued.ud;
    if (queued.type == RDMA_CM_EVENT_ESTABLISHED && id.side->adapter != nullptr) {
      if (const Adapter *target = id.world.adapter_of(id.side->dst); target != nullptr) {
        event.param.ud.ah_attr = path_to(*id.side->adapter, id.side->src, *target, id.side->dst);
      }
    }
    event.param.ud.private_data = event.data.empty() ? nullptr : event.data.data();
    event.param.ud.private_data_len = static_cast<uint8_t>(event.data.size());
    if (queued.context != nullptr) event.param.ud.private_data = queued.context;
  } else {
    event.param.conn = queued.conn;
    event.param.conn.private_data = event.data.empty() ? nullptr : event.data.data();
    event.param.conn.private_data_len = static_cast<uint8_t>(event.data.size());
  }
}

}  // namespace

std::unique_ptr<CmEvent> fetch(World &world, const QueuedEvent &queued) {
  CmSide *side = world.cm->find(queued.side);
  if (side == nullptr || side->id == nullptr) return nullptr;
  CmId &id = *side->id;
  auto event = std::make_unique<CmEvent>();
  event->event = queued.type;
  event->status = queued.status;
  event->data = queued.data;
  event->id = &id;
  switch (queued.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      show_device(id);
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      show_route(id);
      break;
    case RDMA_CM_EVENT_CONNECT_REQUEST: {
      --side->requests;
      CmId *child = make_child(world, id, queued.child);
      if (child == nullptr) return nullptr;
      event->id = child;
      event->listen_id = &id;
      break;
    }
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      establish(id, event->event);
      break;
    case RDMA_CM_EVENT_REJECTED:
      if (id.qp != nullptr) fail_queue_pair(of(id.qp));
      break;
    case RDMA_CM_EVENT_MULTICAST_JOIN:
      attach_joined(id, queued.group);
      break;
    default:
      break;
  }
  fill(*event, *side->id, queued);
  event->counts_for = &id;
  ++id.events_taken;
  ++world.open["rdma_cm_event"];
  return event;
}

void end_event(CmId &id) {
  if (rdma_cm_event *event = std::exchange(id.event, nullptr)) rdma_ack_cm_event(event);
}

int complete(CmId &id) {
  if (!id.is_synchronous()) return 0;
  end_event(id);
  rdma_cm_event *event = nullptr;
  if (rdma_get_cm_event(id.channel, &event) != 0) return -1;
  id.event = event;
  if (event->status == 0) return 0;
  const int status = event->status;
  return failed(event->event == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED : status < 0 ? -status : EIO);
}

}  // namespace weft::verbs_double

using namespace weft::verbs_double;

extern "C" {

int rdma_get_cm_event(rdma_event_channel *ibv, rdma_cm_event **event) {
  CmChannel &channel = of(ibv);
  if (const Entry entry(channel.world, Call::k_rdma_get_cm_event); entry.error() != 0) {
    return failed(entry.error());
  }
  *event = nullptr;
  while (*event == nullptr) {  // an event of a request that was given up is none
    const int result = wait_for_event(channel.world, channel.queue, [&](const QueuedEvent &queued) {
      *event = fetch(channel.world, queued).release();
    });
    if (result != 0) return result;
  }
  return 0;
}

int rdma_ack_cm_event(rdma_cm_event *ibv) {
  if (ibv == nullptr) return failed(EINVAL);
  auto *event = static_cast<CmEvent *>(ibv);
  World &world = event->counts_for->world;
  const Entry entry(world);
  ++event->counts_for->events_acknowledged;
  --world.open["rdma_cm_event"];
  world.acknowledged.notify_all();
  delete event;
  return 0;
}

int rdma_get_request(rdma_cm_id *listener, rdma_cm_id **id) {
  CmId &listening = of(listener);
  if (!listening.is_synchronous()) return failed(EINVAL);
  if (complete(listening) != 0) return -1;
  if (listening.event->event != RDMA_CM_EVENT_CONNECT_REQUEST) return failed(EINVAL);
  *id = listening.event->id;
  (*id)->event = listening.event;
  listening.event = nullptr;
  return 0;
}

const char *rdma_event_str(rdma_cm_event_type event) {
  static constexpr const char *kNames[] = {
      "RDMA_CM_EVENT_ADDR_RESOLVED",   "RDMA_CM_EVENT_ADDR_ERROR",
      "RDMA_CM_EVENT_ROUTE_RESOLVED",  "RDMA_CM_EVENT_ROUTE_ERROR",
      "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
      "RDMA_CM_EVENT_CONNECT_ERROR",   "RDMA_CM_EVENT_UNREACHABLE",
      "RDMA_CM_EVENT_REJECTED",        "RDMA_CM_EVENT_ESTABLISHED",
      "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
      "RDMA_CM_EVENT_MULTICAST_JOIN",  "RDMA_CM_EVENT_MULTICAST_ERROR",
      "RDMA_CM_EVENT_ADDR_CHANGE",     "RDMA_CM_EVENT_TIMEWAIT_EXIT"};
  const auto index = static_cast<size_t>(event);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN EVENT";
}

}  // extern "C"
