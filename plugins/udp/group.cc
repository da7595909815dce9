// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/group.h"

#include <weft/sdk/objects/ops.h>

#include <memory>
#include <utility>

#include "plugins/udp/endpoint.h"
#include "plugins/udp/fabric.h"
#include "plugins/udp/socket.h"

namespace weft::udp {

Group::Group(Endpoint &ep, const sdk::SockAddr &address, bool sends, size_t number, void *context)
    : Object(ep.instance(), FI_CLASS_MC, context),
      ep_(ep),
      address_(address),
      sends_(sends),
      number_(number) {
  sdk::fill_tables(*this);
  c()->fi_addr = kGroupBase + number;
}

Result<Group *> Group::open(Endpoint &ep, const sdk::SockAddr &group, bool sends, bool receives,
                            size_t number, void *context) {
  std::unique_ptr<Group, void (*)(Group *)> made(new Group(ep, group, sends, number, context),
                                                 [](Group *g) {
                                                   g->leave();
                                                   delete g;
                                                 });
  if (receives) WEFT_CHECK(made->enter());
  WEFT_CHECK(made->publish(ep.base()));
  return made.release();
}

Result<void> Group::enter() {
  const sdk::SockAddr &local = ep_.name();
  if (local.is_any() && local.port() == address_.port()) {
    WEFT_CHECK(join_group(ep_.socket(), address_, local));
  } else {
    const Settings &settings = ep_.domain().fabric().settings();
    WEFT_TRY(UniqueFd fd, open_socket(address_.family(), settings));
    WEFT_CHECK(bind_to_group(fd.get(), address_));
    WEFT_CHECK(join_group(fd.get(), address_, local));
    inlet_ =
        std::make_unique<Inlet>(ep_.sink(), ep_.domain().engine(), ep_.posted(),
                                ep_.domain().inlet_scratch(), ep_.counters(), settings.offload);
    inlet_->open(std::move(fd), ep_.names_sources());
    inlet_->listen();
  }
  is_member_ = true;
  return {};
}

void Group::leave() {
  if (!is_member_) return;
  if (inlet_ == nullptr) leave_group(ep_.socket(), address_, ep_.name());
  inlet_.reset();  // membership ends with its socket
  is_member_ = false;
}

int Group::close() {
  retire();
  sdk::Guard guard(ep_.lock());
  leave();
  ep_.forget(*this);
  delete this;
  return 0;
}

}  // namespace weft::udp
