// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/double/double.h"

#include <stdexcept>

#include "plugins/verbs/double/cm.h"
#include "plugins/verbs/double/objects.h"
#include "plugins/verbs/double/transport.h"

namespace weft::verbs_double {

namespace {

Call checked_call(std::string_view name) {
  const std::optional<Call> call = call_named(name);
  if (!call) {
    throw std::invalid_argument("\"" + std::string(name) +
                                "\" (a call to count or to fail): see the names in calls.h");
  }
  return *call;
}

}  // namespace

const std::string &Device::name() const {
  return adapter_.options.name;
}

void Device::set_port_state(ibv_port_state state) {
  const Entry entry(adapter_.world);
  const bool was = adapter_.port == IBV_PORT_ACTIVE;
  adapter_.port = state;
  const bool is = state == IBV_PORT_ACTIVE;
  if (was == is) return;
  raise_for_port(adapter_, is ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
  if (is) return retry_unanswered(adapter_.world);
  look_again(adapter_);
}

void Device::remove() {
  const Entry entry(adapter_.world);
  if (adapter_.removed) return;
  adapter_.removed = true;
  raise_for_port(adapter_, IBV_EVENT_DEVICE_FATAL);
  for (const auto &[number, qp] : adapter_.qps) fail_queue_pair(*qp);
  adapter_.world.cm->on_removed(adapter_);
}

void Device::vanish(bool gone) {
  const Entry entry(adapter_.world);
  adapter_.vanished = gone;
  if (!gone) return retry_unanswered(adapter_.world);
  look_again(adapter_);
  if (adapter_.world.is_over_time()) adapter_.world.cm->expire(/*all=*/false);
}

void Device::silence(uint32_t qp_num) {
  const Entry entry(adapter_.world);
  const auto found = adapter_.qps.find(qp_num);
  if (found == adapter_.qps.end()) {
    throw std::invalid_argument("queue pair " + std::to_string(qp_num) + " (to be silent): none");
  }
  found->second->is_silent = true;
  wake_peers(*found->second);
}

void Device::break_queue_pair(uint32_t qp_num) {
  const Entry entry(adapter_.world);
  const auto found = adapter_.qps.find(qp_num);
  if (found == adapter_.qps.end()) {
    throw std::invalid_argument("queue pair " + std::to_string(qp_num) + " (to break): none");
  }
  fail_queue_pair(*found->second);
  raise(found->second->context_of, IBV_EVENT_QP_FATAL, found->second->ibv());
}

void Device::deliver(uint32_t qp_num, const ForgedDatagram &forged) {
  const Entry entry(adapter_.world);
  const auto found = adapter_.qps.find(qp_num);
  if (found != adapter_.qps.end()) deliver_forged(*found->second, forged);
}

void Device::tell(const Device &peer, size_t which, const ForgedEvent &forged) {
  const Entry entry(adapter_.world);
  Cm &cm = *adapter_.world.cm;
  std::vector<CmSide *> sides;
  for (const auto &[serial, side] : cm.sides) {
    const bool is_its = side->adapter == &adapter_ && peer.adapter_.has(side->dst);
    if (is_its && side->id != nullptr) sides.push_back(side.get());
  }
  if (sides.empty()) return;
  QueuedEvent event;
  event.type = forged.type;
  event.status = forged.status;
  event.data = forged.data;
  cm.tell(*sides[which % sides.size()], std::move(event));
}

void Device::break_completion_queue(ibv_cq *cq) {
  const Entry entry(adapter_.world);
  of(cq).broken = true;
  raise(of(cq).context_of, IBV_EVENT_CQ_ERR, cq);
}

Network::Network(const NetworkOptions &options) : world_(std::make_unique<World>(options)) {}

Network::~Network() = default;

Device &Network::add(const DeviceOptions &options) {
  const Entry entry(*world_);
  auto adapter =
      std::make_unique<Adapter>(*world_, options, static_cast<int>(world_->adapters.size()));
  for (const SocketAddress &address : adapter->addresses) {
    if (world_->adapter_of(address) != nullptr) {
      throw std::invalid_argument("an address of " + options.name +
                                  " (device of a network): another device has it");
    }
  }
  world_->adapters.push_back(std::move(adapter));
  return world_->adapters.back()->device;
}

bool Network::step() {
  const std::lock_guard lock(world_->mutex);
  return world_->step();
}

size_t Network::run() {
  const std::lock_guard lock(world_->mutex);
  size_t steps = 0;
  while (world_->step()) ++steps;
  return steps;
}

void Network::expire_timers() {
  const std::lock_guard lock(world_->mutex);
  world_->timers_expire = true;
  for (const std::unique_ptr<Adapter> &adapter : world_->adapters) {
    for (const auto &[number, qp] : adapter->qps) {
      if (qp->waits_in != nullptr) stop_waiting(*qp);
    }
  }
  retry_unanswered(*world_);
  world_->cm->expire(/*all=*/true);
  world_->run();
  world_->timers_expire = false;
}

void Network::fail(const CallFault &fault) {
  const std::lock_guard lock(world_->mutex);
  const Call call = checked_call(fault.call);
  const uint64_t from = world_->faults.made[static_cast<size_t>(call)] + fault.at;
  world_->faults.calls.push_back({call, fault.error, from, from + fault.count});
}

void Network::fail(const CompletionFault &fault) {
  const std::lock_guard lock(world_->mutex);
  world_->faults.completions.push_back({fault});
}

void Network::fail(const DatagramFaults &fault) {
  const std::lock_guard lock(world_->mutex);
  world_->faults.datagrams = fault;
}

void Network::clear_faults() {
  const std::lock_guard lock(world_->mutex);
  world_->faults.calls.clear();
  world_->faults.completions.clear();
  world_->faults.datagrams = {};
}

uint64_t Network::calls(std::string_view call) const {
  const std::lock_guard lock(world_->mutex);
  return world_->faults.made[static_cast<size_t>(checked_call(call))];
}

std::string Network::open_objects() const {
  const std::lock_guard lock(world_->mutex);
  std::string text;
  for (const auto &[kind, count] : world_->open) {
    if (count == 0 || kind.empty()) continue;
    if (!text.empty()) text += ", ";
    text += std::to_string(count) + " " + std::string(kind);
  }
  return text;
}

std::vector<std::string> Network::complaints() const {
  const std::lock_guard lock(world_->mutex);
  return world_->complaints;
}

}  // namespace weft::verbs_double
