// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/channel.h"

#include <cstdint>

#include "plugins/verbs/nonblocking.h"

namespace weft::verbs {
namespace {

sdk::Address address_of(const sockaddr *address) {
  return sdk::read_address(FI_SOCKADDR, address).value_or(sdk::Address());
}

}  // namespace

sdk::Address local_address(rdma_cm_id &id) {
  return address_of(rdma_get_local_addr(&id));
}
sdk::Address peer_address(rdma_cm_id &id) {
  return address_of(rdma_get_peer_addr(&id));
}

Channel::Channel(sdk::Engine &engine, rdma_event_channel *channel)
    : engine_(engine), channel_(channel) {
  sdk::Guard guard(engine_.lock());
  engine_.add(*this, channel_->fd, EPOLLIN, EPOLLIN);
}

Channel::~Channel() {
  {
    sdk::Guard guard(engine_.lock());
    engine_.remove(*this);
  }
  rdma_destroy_event_channel(channel_);
}

Result<std::unique_ptr<Channel>> Channel::open(sdk::Engine &engine) {
  rdma_event_channel *const channel = rdma_create_event_channel();
  if (channel == nullptr)
    return fail(errno,
                "fi_fabric: rdma_create_event_channel: %s: is the kernel module rdma_ucm loaded, "
                "and may this user open /dev/infiniband/rdma_cm?",
                strerror(errno));
  if (!make_nonblocking(channel->fd)) {
    const int error = errno;
    rdma_destroy_event_channel(channel);
    return fail(error, "fi_fabric: fcntl of an event channel: %s", strerror(error));
  }
  return std::unique_ptr<Channel>(new Channel(engine, channel));
}

Result<rdma_cm_id *> Channel::make_id(ChannelUser &user, rdma_port_space space) {
  rdma_cm_id *id = nullptr;
  if (rdma_create_id(channel_, &id, &user, space) == 0) return id;
  return fail(errno, "rdma_create_id: %s", strerror(errno));
}

void Channel::on_event(uint32_t) {
  rdma_cm_event *event = nullptr;
  char data[UINT8_MAX];
  while (rdma_get_cm_event(channel_, &event) == 0) {
    ChannelEvent copy{.type = event->event, .status = event->status, .id = event->id, .data = {}};
    if (event->event == RDMA_CM_EVENT_MULTICAST_JOIN) copy.group = event->param.ud.ah_attr;
    const rdma_conn_param &param = event->param.conn;
    if (event->event != RDMA_CM_EVENT_MULTICAST_JOIN && param.private_data != nullptr &&
        param.private_data_len != 0) {
      std::memcpy(data, param.private_data, param.private_data_len);
      copy.data = {data, param.private_data_len};
    }
    rdma_cm_id *const named = event->listen_id != nullptr ? event->listen_id : event->id;
    auto *const user = static_cast<ChannelUser *>(named->context);
    rdma_ack_cm_event(event);
    engine_.had_input();
    user->on_event(copy);
  }
}

}  // namespace weft::verbs
