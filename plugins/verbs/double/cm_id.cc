// SPDX-License-Identifier: BSD-2-Clause
// Event channels and identifiers: made, moved, bound, listening, ended.
#include <algorithm>

#include "plugins/verbs/double/cm.h"

namespace weft::verbs_double {

CmId::CmId(World &the_world, std::shared_ptr<CmSide> the_side, CmChannel *given, void *user_context)
    : rdma_cm_id{}, world(the_world), counted(the_world, "rdma_cm_id"), side(std::move(the_side)) {
  if (given == nullptr) own_channel = std::make_unique<CmChannel>(the_world);
  CmChannel &used = given != nullptr ? *given : *own_channel;
  channel = &used;
  ++used.ids;
  context = user_context;
  ps = side->ps;
  qp_type = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
  side->id = this;
}

CmId::~CmId() {
  --of(channel).ids;
}

Context &Cm::context_of(Adapter &adapter) {
  if (!adapter.cm_context) {
    adapter.cm_context = std::make_unique<Context>(adapter, /*is_of_cm=*/true);
    adapter.cm_context->default_pd = std::make_unique<Pd>(*adapter.cm_context);
  }
  return *adapter.cm_context;
}

void show_device(CmId &id) {
  const CmSide &side = *id.side;
  if (side.adapter != nullptr) {
    Context &context = id.world.cm->context_of(*side.adapter);
    id.verbs = context.ibv();
    if (id.pd == nullptr) id.pd = context.default_pd.get();
    id.port_num = 1;
  }
  id.route.addr.src_storage = side.src.storage;
  id.route.addr.dst_storage = side.dst.storage;
}

namespace {

// Ends the identifier. Events of it that the program has must be acknowledged before.
void end_id(Entry &entry, CmId &id) {
  Cm &cm = *id.world.cm;
  id.world.wait(
      entry.lock(), [&] { return id.events_acknowledged >= id.events_taken; },
      "rdma_destroy_id: events of the identifier were not acknowledged");
  if (id.qp != nullptr) id.world.complain("rdma_destroy_id: its queue pair is left");
  const uint64_t serial = id.side->serial;
  for (QueuedEvent &event : of(id.channel).queue.take([&](const QueuedEvent &queued) {
         return queued.side == serial;
       })) {
    if (CmSide *child = cm.find(event.child); child != nullptr && event.child != 0) {
      const std::shared_ptr<CmSide> kept = cm.sides[event.child];
      cm.close(*kept);
    }
  }
  const std::shared_ptr<CmSide> kept = id.side;
  cm.close(*kept);
  delete &id;
}

}  // namespace

}  // namespace weft::verbs_double

using namespace weft::verbs_double;

extern "C" {

rdma_event_channel *rdma_create_event_channel() {
  World *world = World::current();
  if (world == nullptr) return no_object(ENODEV);
  const Entry entry(*world, Call::k_rdma_create_event_channel);
  if (entry.error() != 0) return no_object(entry.error());
  auto channel = std::make_unique<CmChannel>(*world);
  if (channel->fd < 0) return no_object(EMFILE);
  ++world->open["rdma_event_channel"];
  return channel.release();
}

void rdma_destroy_event_channel(rdma_event_channel *ibv) {
  CmChannel &channel = of(ibv);
  const Entry entry(channel.world);
  if (channel.ids > 0) {
    channel.world.complain("rdma_destroy_event_channel: identifiers use it");
    return;  // the libraries would leave them with a dangling pointer
  }
  --channel.world.open["rdma_event_channel"];
  delete &channel;
}

int rdma_create_id(rdma_event_channel *channel, rdma_cm_id **id, void *context,
                   rdma_port_space ps) {
  World *world = World::current();
  if (world == nullptr) return failed(ENODEV);
  const Entry entry(*world, Call::k_rdma_create_id);
  if (entry.error() != 0) return failed(entry.error());
  if (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP && ps != RDMA_PS_IPOIB && ps != RDMA_PS_IB) {
    return failed(EPROTONOSUPPORT);
  }
  CmChannel *given = channel != nullptr ? &of(channel) : nullptr;
  *id = new CmId(*world, world->cm->make_side(ps), given, context);
  return 0;
}

int rdma_destroy_id(rdma_cm_id *ibv) {
  CmId &id = of(ibv);
  end_event(id);
  Entry entry(id.world, Call::k_rdma_destroy_id);
  if (entry.error() != 0) return failed(entry.error());
  end_id(entry, id);
  return 0;
}

int rdma_migrate_id(rdma_cm_id *ibv, rdma_event_channel *channel) {
  CmId &id = of(ibv);
  end_event(id);
  Entry entry(id.world, Call::k_rdma_migrate_id);
  if (entry.error() != 0) return failed(entry.error());
  id.world.wait(
      entry.lock(), [&] { return id.events_acknowledged >= id.events_taken; },
      "rdma_migrate_id: events of the identifier were not acknowledged");
  std::unique_ptr<CmChannel> own;
  if (channel == nullptr) own = std::make_unique<CmChannel>(id.world);
  CmChannel &target = channel != nullptr ? of(channel) : *own;
  CmChannel &source = of(id.channel);
  const uint64_t serial = id.side->serial;
  for (QueuedEvent &event :
       source.queue.take([&](const QueuedEvent &queued) { return queued.side == serial; })) {
    target.queue.push(std::move(event));
  }
  --source.ids;
  ++target.ids;
  id.channel = &target;
  id.own_channel = std::move(own);
  return 0;
}

int rdma_bind_addr(rdma_cm_id *ibv, sockaddr *address) {
  CmId &id = of(ibv);
  const Entry entry(id.world, Call::k_rdma_bind_addr);
  if (entry.error() != 0) return failed(entry.error());
  if (id.side->state != CmState::kIdle) return failed(EINVAL);
  const SocketAddress wanted = SocketAddress::of(address);
  if (wanted.family() == AF_UNSPEC) return failed(EAFNOSUPPORT);
  if (const int error = id.world.cm->bind(*id.side, wanted); error != 0) return failed(error);
  show_device(id);
  return 0;
}

int rdma_listen(rdma_cm_id *ibv, int backlog) {
  CmId &id = of(ibv);
  const Entry entry(id.world, Call::k_rdma_listen);
  if (entry.error() != 0) return failed(entry.error());
  CmSide &side = *id.side;
  if (side.state == CmState::kIdle) {
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    const SocketAddress address = SocketAddress::of(reinterpret_cast<sockaddr *>(&any));
    if (const int error = id.world.cm->bind(side, address); error != 0) return failed(error);
    show_device(id);
  }
  if (side.state != CmState::kBound) return failed(EINVAL);
  constexpr int kDefaultBacklog = 1024;
  side.backlog = backlog > 0 ? backlog : kDefaultBacklog;
  side.state = CmState::kListening;
  return 0;
}

int rdma_set_option(rdma_cm_id *ibv, int level, int name, void *value, size_t size) {
  CmId &id = of(ibv);
  const Entry entry(id.world, Call::k_rdma_set_option);
  if (entry.error() != 0) return failed(entry.error());
  if (level != RDMA_OPTION_ID) return failed(ENOSYS);
  const bool takes_int = name == RDMA_OPTION_ID_REUSEADDR || name == RDMA_OPTION_ID_AFONLY;
  if (size != (takes_int ? sizeof(int) : sizeof(uint8_t))) return failed(EINVAL);
  switch (name) {
    case RDMA_OPTION_ID_TOS:
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      id.side->reuses_address = *static_cast<const int *>(value) != 0;
      return 0;
    case RDMA_OPTION_ID_AFONLY:
      id.side->only_its_family = *static_cast<const int *>(value) != 0;
      return 0;
    default:
      return failed(ENOSYS);
  }
}

__be16 rdma_get_src_port(rdma_cm_id *id) {
  return htobe16(of(id).side->src.port());
}

__be16 rdma_get_dst_port(rdma_cm_id *id) {
  return htobe16(of(id).side->dst.port());
}

ibv_context **rdma_get_devices(int *count) {
  if (count != nullptr) *count = 0;
  World *world = World::current();
  if (world == nullptr) return no_object(ENODEV);
  const Entry entry(*world, Call::k_rdma_get_devices);
  if (entry.error() != 0) return no_object(entry.error());
  std::vector<ibv_context *> contexts;
  for (const std::unique_ptr<Adapter> &adapter : world->adapters) {
    if (!adapter->removed) contexts.push_back(world->cm->context_of(*adapter).ibv());
  }
  auto **list = new ibv_context *[contexts.size() + 1]();
  std::copy(contexts.begin(), contexts.end(), list);
  if (count != nullptr) *count = static_cast<int>(contexts.size());
  return list;
}

void rdma_free_devices(ibv_context **list) {
  delete[] list;
}

}  // extern "C"
