// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/engine.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "plugins/cxi/soft/amo.h"
#include "plugins/cxi/soft/counter.h"
#include "plugins/cxi/soft/event_ring.h"
#include "plugins/cxi/soft/lni.h"
#include "plugins/cxi/soft/portal.h"
#include "plugins/cxi/soft/queues.h"

namespace weft::cxi {
namespace {

bool is_atomic(Op op) {
  return op == Op::kAtomic || op == Op::kFetchAtomic;
}
bool brings_bytes(Op op) {
  return op == Op::kGet || op == Op::kFetchAtomic;
}

}  // namespace

struct Engine::Landing {
  SoftPortal *portal;  // null: it has ended
  SoftPortal::Arrival arrival;
  uint32_t landed = 0;
};

// The bytes of a Get, at the target.
struct Engine::Loan {
  SoftPortal *portal;  // null: it has ended
  SoftPortal::Arrival arrival;
};

void RequestForm::write(const Packet &packet, uint8_t *at) const {
  const RequestHeader header{.match_bits = packet.match_bits,
                             .header_data = packet.header_data,
                             .remote_offset = packet.remote_offset,
                             .initiator = packet.initiator,
                             .length = packet.length,
                             .source = packet.source,
                             .vni = packet.vni,
                             .rendezvous = packet.op == Op::kRendezvousPut,
                             .rendezvous_id = packet.rendezvous_id};
  std::memcpy(at, &header, sizeof header);
}

Engine::Engine(Outside &outside, uint64_t seed) : outside_(outside), seed_(seed) {
  static const RequestForm usual;
  request_form_ = &usual;
}
Engine::~Engine() = default;

Result<std::unique_ptr<Lni>> Engine::open(Nid nid, const Service &service,
                                          std::shared_ptr<Pool> pool) {
  const EngineGuard guard(lock);
  if (pool == nullptr) pool = std::shared_ptr<Pool>(&outside_.pool(nid), [](Pool *) {});
  auto lni = std::make_unique<SoftLni>(*this, nid, service, std::move(pool));
  ++nids_[nid];
  return lni;
}

void Engine::add_endpoint(SoftEndpoint &endpoint) {
  endpoints_[key_of(endpoint.nid(), endpoint.vni(), endpoint.pid())] = &endpoint;
  ++vnis_[{endpoint.nid(), endpoint.vni()}];
}

void Engine::remove_endpoint(SoftEndpoint &endpoint) {
  endpoints_.erase(key_of(endpoint.nid(), endpoint.vni(), endpoint.pid()));
  const auto vni = vnis_.find({endpoint.nid(), endpoint.vni()});
  if (--vni->second == 0) vnis_.erase(vni);
}

SoftEndpoint *Engine::find(Nid nid, Vni vni, Pid pid) const {
  const auto found = endpoints_.find(key_of(nid, vni, pid));
  return found != endpoints_.end() ? found->second : nullptr;
}

// ---- operations ----

Operation *Engine::new_operation() {
  if (free_.empty()) {
    if (operations_.size() >> kSlotBits != 0) return nullptr;
    auto operation = std::unique_ptr<Operation>(new (std::nothrow) Operation);
    if (operation == nullptr) return nullptr;
    operation->slot = operations_.size();
    free_.push_back(operation.get());
    operations_.push_back(std::move(operation));
  }
  Operation *const operation = free_.back();
  free_.pop_back();
  return operation;
}

void Engine::give_back(Operation &operation) {
  operation.token = 0;
  operation.lni = nullptr;
  operation.queue = nullptr;
  operation.portal = nullptr;
  operation.is_fence = operation.is_rendezvous_get = operation.has_bytes = false;
  operation.landed = Rc::kOk;
  free_.push_back(&operation);
}

template <class F>
void Engine::visit_in_flight(F visit) {
  for (const std::unique_ptr<Operation> &operation : operations_) visit(*operation);
}

void Engine::forget(const SoftLni &lni) {
  std::erase_if(later_, [&](const Operation *one) { return one->lni == &lni; });
  visit_in_flight([&](Operation &one) {
    if (one.lni == &lni) give_back(one);
  });
}

void Engine::forget(const EventQueue &eq) {
  visit_in_flight([&](Operation &one) {
    if (one.transfer.eq == &eq) one.transfer.eq = nullptr;
  });
}

void Engine::forget(const SoftCounter &counter) {
  std::erase(fired_, &counter);
  visit_in_flight([&](Operation &one) {
    if (one.transfer.counter == &counter) one.transfer.counter = nullptr;
  });
}

void Engine::forget(const Portal &portal) {
  for (auto &[number, landing] : landings_) {
    if (landing.portal != &portal) continue;
    landing.portal->abandon(landing.arrival);
    landing.portal = nullptr;
  }
  for (auto &[number, loan] : loans_) {
    if (loan.portal != &portal) continue;
    loan.portal->abandon(loan.arrival);
    loan.portal = nullptr;
  }
  // The Gets that the NIC itself makes for its messages.
  std::erase_if(later_, [&](const Operation *one) { return one->portal == &portal; });
  visit_in_flight([&](Operation &one) {
    if (one.portal == &portal) give_back(one);
  });
}

void Engine::forget(const Asker &asker) {
  std::erase_if(late_, [&](const auto &one) { return one.first == &asker; });
  for (SoftPortal *const portal : std::vector(waiting_)) portal->forget(asker);
}

void Engine::cancel(const Portal &portal, List list, uint16_t buffer_id) {
  const auto is_it = [&](const SoftPortal *of, const SoftPortal::Arrival &arrival) {
    return of == &portal && arrival.hit.list == list && arrival.entry.buffer_id == buffer_id;
  };
  for (auto &[number, landing] : landings_)
    if (is_it(landing.portal, landing.arrival)) landing.arrival.hit.rc = Rc::kMstCancelled;
  for (auto &[number, loan] : loans_)
    if (is_it(loan.portal, loan.arrival)) loan.arrival.hit.rc = Rc::kMstCancelled;
}

void Engine::forget(const SoftTransmitQueue &queue) {
  visit_in_flight([&](Operation &one) {
    if (one.queue == &queue) give_back(one);
  });
}

// What must hold here before anything leaves. `source`: where its bytes are.
Rc Engine::check_local(const Operation &operation, const sdk::HmemPlace *&source) const {
  const Transfer &t = operation.transfer;
  const MemoryMap &memory = operation.lni->memory();
  const size_t size = is_atomic(t.op) ? amo_size(t.amo_type) : 0;
  if (is_atomic(t.op) && size == 0) return Rc::kAmoInvalOp;
  if (t.op == Op::kFetchAtomic)
    if (const Rc rc = memory.check(t.result_memory, t.result, size, Lni::kWrite); rc != Rc::kOk)
      return rc;
  if (t.op == Op::kGet) return memory.check(t.memory, t.local, t.length, Lni::kWrite);
  if (is_atomic(t.op) && t.length != size) return Rc::kAmoLength;
  if (t.inline_bytes == nullptr)
    return memory.check(t.memory, t.local, t.length, Lni::kRead, source);
  const uint32_t most = t.restricted ? kMaxInline : kMaxInlineUnrestricted;
  return t.length <= most ? Rc::kOk : Rc::kNoSpace;
}

void Engine::start(Operation &operation) {
  operation.token = uint64_t{++operation.uses} << kSlotBits | operation.slot;
  const Transfer &t = operation.transfer;
  const sdk::HmemPlace *source = nullptr;
  Reply reply{.token = operation.token, .rc = check_local(operation, source)};
  if (reply.rc != Rc::kOk) return finish(operation, reply);
  Packet packet{.op = t.op,
                .vni = t.vni,
                .source = operation.lni->nid(),
                .to = t.to,
                .token = operation.token,
                .match_bits = t.match_bits,
                .header_data = t.header_data,
                .remote_offset = t.remote_offset,
                .initiator = t.initiator,
                .length = t.length,
                .eager_length = t.eager_length,
                .rendezvous_id = t.rendezvous_id,
                .restricted = t.restricted,
                .flush = t.flush,
                .is_answer = t.is_answer,
                .amo_op = t.amo_op,
                .amo_type = t.amo_type,
                .cswap = t.cswap,
                .pcie = t.pcie,
                .operand2 = {t.operand2[0], t.operand2[1]},
                .place = source,
                .asker = this};
  if (t.op != Op::kGet)
    packet.bytes =
        t.inline_bytes != nullptr ? t.inline_bytes : reinterpret_cast<const void *>(t.local);
  if (find(t.to.nid, t.vni, t.to.pid) != nullptr) {
    reply = serve(packet);
    if (reply.rc != Rc::kNone) finish(operation, reply);
    return;
  }
  reply.rc = outside_.send(packet);
  if (reply.rc != Rc::kOk) finish(operation, reply);
}

// R10.
void Engine::finish(Operation &operation, const Reply &reply) {
  const Transfer &t = operation.transfer;
  Rc rc = reply.rc;
  uint32_t mlength = reply.mlength;
  if (rc == Rc::kOk && operation.has_bytes) {
    rc = operation.landed;
    mlength = std::min(mlength, t.length);
  } else if (rc == Rc::kOk && brings_bytes(t.op)) {
    const bool is_get = t.op == Op::kGet;
    const void *const bytes = is_get ? reply.bytes : reply.fetched;
    const uint32_t brought = bytes != nullptr ? std::min(mlength, t.length) : 0;
    const size_t size = is_get ? brought : amo_size(t.amo_type);
    const uint64_t at = is_get ? t.local : t.result;
    // It may have been unmapped since.
    rc = operation.lni->memory().write(is_get ? t.memory : t.result_memory, at, bytes, reply.place,
                                       size);
    mlength = uint32_t(size);
  }
  if (auto *const counter = static_cast<SoftCounter *>(t.counter);
      counter != nullptr && (rc == Rc::kOk || t.counts_failures))
    counter->count(rc == Rc::kOk, rc == Rc::kOk && t.counts_bytes ? mlength : 1, t.writes_back);
  if (t.eq != nullptr && (!t.success_disable || rc != Rc::kOk)) {
    static_cast<EventRing *>(t.eq)->post(
        {.type = brings_bytes(t.op) ? EventType::kReply : EventType::kAck,
         .rc = rc,
         .list = reply.list,
         .rendezvous = operation.is_rendezvous_get,
         .user_ptr = t.user_ptr,
         .portal = operation.portal,
         .mlength = mlength});
  }
  if (t.high_rate) operation.lni->pool().count(Telemetry::kHighRateAcks);
  SoftTransmitQueue *const queue = operation.queue;
  give_back(operation);
  if (queue != nullptr) queue->done();
}

// ---- packets ----

// R1.
Reply Engine::serve(const Packet &packet) {
  Reply reply{.token = packet.token};
  if (SoftEndpoint *const endpoint = find(packet.to.nid, packet.vni, packet.to.pid)) {
    if (SoftPortal *const portal = endpoint->at(packet.to.index)) return portal->serve(packet);
    reply.rc = Rc::kPtlteNotFound;
  } else if (vnis_.contains({packet.to.nid, packet.vni})) {
    reply.rc = Rc::kPtlteNotFound;
  } else {
    reply.rc = nids_.contains(packet.to.nid) ? Rc::kVniNotFound : Rc::kUndeliverable;
  }
  return reply;
}

Reply Engine::on_packet(const Packet &packet) {
  const EngineGuard guard(lock);
  const Reply reply = serve(packet);
  settle();
  return reply;
}

// Null: nobody waits for it.
Operation *Engine::in_flight(uint64_t token) {
  const uint64_t slot = slot_of(token);
  if (slot >= operations_.size() || token == 0) return nullptr;
  Operation *const operation = operations_[slot].get();
  return operation->token == token ? operation : nullptr;
}

void Engine::on_reply(const Reply &reply) {
  const EngineGuard guard(lock);
  Operation *const operation = in_flight(reply.token);
  if (operation == nullptr) return;
  SoftTransmitQueue *const queue = operation->queue;
  finish(*operation, reply);
  if (queue != nullptr) queue->run();  // a fence may have waited for it
  settle();
}

// ---- bytes in pieces ----

Engine::Begun Engine::on_head(const Packet &packet) {
  const EngineGuard guard(lock);
  SoftEndpoint *const endpoint = find(packet.to.nid, packet.vni, packet.to.pid);
  SoftPortal *const portal = endpoint != nullptr ? endpoint->at(packet.to.index) : nullptr;
  if (portal == nullptr) return {.reply = serve(packet)};
  if (packet.op != Op::kPut && packet.op != Op::kRendezvousPut) return {};
  Landing landing{.portal = portal, .arrival = {}};
  if (std::optional<Reply> refused = portal->begin(packet, landing.arrival)) {
    settle();
    return {.reply = refused};
  }
  if (!SoftPortal::can_land(landing.arrival)) return {};
  landings_.emplace(++last_landing_, std::move(landing));
  return {.reply = std::nullopt, .landing = last_landing_};
}

void Engine::on_bytes(uint64_t number, std::span<const uint8_t> bytes) {
  const EngineGuard guard(lock);
  const auto found = landings_.find(number);
  if (found == landings_.end()) return;
  Landing &landing = found->second;
  const auto count = uint32_t(bytes.size());
  if (landing.portal != nullptr)
    landing.portal->land(landing.arrival, landing.landed, bytes.data(), count);
  landing.landed += count;
}

Reply Engine::on_end(uint64_t number, bool whole) {
  const EngineGuard guard(lock);
  const auto node = landings_.extract(number);
  if (node.empty()) return {.rc = Rc::kMstCancelled};
  Landing &landing = node.mapped();
  if (!whole) landing.arrival.hit.rc = Rc::kMstCancelled;
  if (landing.portal == nullptr)
    return {.token = landing.arrival.packet.token, .rc = Rc::kMstCancelled};
  const Reply reply = landing.portal->end(landing.arrival);
  settle();
  return reply;
}

Reply Engine::on_get(const Packet &packet, uint64_t &number) {
  const EngineGuard guard(lock);
  number = 0;
  SoftEndpoint *const endpoint = find(packet.to.nid, packet.vni, packet.to.pid);
  SoftPortal *const portal = endpoint != nullptr ? endpoint->at(packet.to.index) : nullptr;
  if (portal == nullptr) return serve(packet);
  Loan loan{.portal = portal, .arrival = {}};
  if (const std::optional<Reply> refused = portal->begin(packet, loan.arrival)) {
    settle();
    return *refused;
  }
  const SoftPortal::Hit &hit = loan.arrival.hit;
  Reply reply{.token = packet.token, .rc = hit.rc, .list = hit.list, .mlength = hit.mlength};
  if (hit.rc != Rc::kOk || hit.mlength == 0) {
    reply = portal->end(loan.arrival);
    settle();
    return reply;
  }
  number = ++last_loan_;
  loans_.emplace(number, std::move(loan));
  return reply;
}

bool Engine::read_loan(uint64_t number, uint32_t offset, std::span<uint8_t> out) {
  const EngineGuard guard(lock);
  const auto found = loans_.find(number);
  if (found == loans_.end() || found->second.portal == nullptr) return false;
  return found->second.portal->copy_out(found->second.arrival, offset, out);
}

void Engine::end_loan(uint64_t number, bool whole) {
  const EngineGuard guard(lock);
  const auto node = loans_.extract(number);
  if (node.empty() || node.mapped().portal == nullptr) return;
  Loan &loan = node.mapped();
  if (!whole) loan.arrival.hit.rc = Rc::kMstCancelled;
  (void)loan.portal->end(loan.arrival);
  settle();
}

bool Engine::read_source(uint64_t token, uint32_t offset, std::span<uint8_t> out) {
  const EngineGuard guard(lock);
  Operation *const operation = in_flight(token);
  if (operation == nullptr) return false;
  const Transfer &t = operation->transfer;
  if (offset > t.length || out.size() > t.length - offset) return false;
  if (t.inline_bytes == nullptr)
    return operation->lni->memory().read(t.memory, t.local + offset, out.data(), out.size()) ==
           Rc::kOk;
  std::memcpy(out.data(), static_cast<const uint8_t *>(t.inline_bytes) + offset, out.size());
  return true;
}

void Engine::on_reply_bytes(uint64_t token, uint32_t offset, std::span<const uint8_t> bytes) {
  const EngineGuard guard(lock);
  Operation *const operation = in_flight(token);
  if (operation == nullptr || operation->transfer.op != Op::kGet) return;
  const Transfer &t = operation->transfer;
  operation->has_bytes = true;
  if (operation->landed != Rc::kOk || offset >= t.length) return;
  const auto count = uint32_t(std::min<size_t>(bytes.size(), t.length - offset));
  operation->landed =
      operation->lni->memory().write(t.memory, t.local + offset, bytes.data(), nullptr, count);
}

void Engine::fired(SoftCounter &counter) {
  if (counter.queued_) return;
  counter.queued_ = true;
  fired_.push_back(&counter);
}

// ---- puts that wait ----

void Engine::set_waiting(SoftPortal &portal, bool waits) {
  const auto at = std::ranges::find(waiting_, &portal);
  if (waits == (at != waiting_.end())) return;
  if (waits)
    waiting_.push_back(&portal);
  else
    waiting_.erase(at);
  if (has_waiting_.exchange(!waiting_.empty(), std::memory_order_relaxed) == waiting_.empty())
    outside_.on_waiting(!waiting_.empty());
}

void Engine::try_waiting() {
  const EngineGuard guard(lock);
  settle();
}

void Engine::answer_late(Asker &asker, const Reply &reply) {
  late_.emplace_back(&asker, reply);
}

// Of an operation of this process.
void Engine::on_late(const Reply &reply) {
  Operation *const operation = in_flight(reply.token);
  if (operation == nullptr) return;
  SoftTransmitQueue *const queue = operation->queue;
  finish(*operation, reply);
  if (queue != nullptr) queue->run();  // a fence may have waited for it
}

void Engine::settle() {
  if (!waiting_.empty())
    for (SoftPortal *const portal : std::vector(waiting_)) portal->try_waiting();
  while (!fired_.empty() || !later_.empty() || !late_.empty()) {
    if (!late_.empty()) {
      const auto [asker, reply] = late_.front();
      late_.pop_front();
      asker->on_late(reply);
      continue;
    }
    if (!fired_.empty()) {
      SoftCounter *const counter = fired_.front();
      fired_.pop_front();
      counter->queued_ = false;
      counter->fire();
      continue;
    }
    Operation *const operation = later_.front();
    later_.pop_front();
    start(*operation);
  }
}

}  // namespace weft::cxi
