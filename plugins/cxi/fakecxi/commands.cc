// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/fakecxi/commands.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "plugins/cxi/soft/amo.h"

namespace weft::cxi {
namespace {

constexpr unsigned kCommandSlot = 32, kFirstSlot = 8;
constexpr size_t kPage = 4096, kCommandPlace = 64;

bool is_atomic_op(Op op) {
  return op == Op::kAtomic || op == Op::kFetchAtomic;
}

}  // namespace

int FakeCommandQueue::open(FakeLni &owner, const abi::CommandQueueOptions &options) {
  using O = abi::CommandQueueOptions;
  if (options.count < 8 || options.count > 65536) return -EINVAL;
  lni = &owner;
  const Profile profile = owner.profile(options.lcid);
  if (options.flags & O::kTriggers) {
    auto made = owner.lni->trigger_queue(profile);
    if (!made) return -made.error().code;
    triggers = std::move(*made);
  } else if (options.flags & O::kTransmit) {
    auto made = owner.lni->transmit_queue(SIZE_MAX, profile);
    if (!made) return -made.error().code;
    transmits = std::move(*made);
  }
  size = options.count;
  size32 = 2 * options.count;
  memory_.resize((options.count + 2) * kCommandPlace);
  page_.resize(2 * kPage);
  const auto aligned = [](std::vector<uint8_t> &bytes, uintptr_t to) {
    return reinterpret_cast<uint8_t *>((reinterpret_cast<uintptr_t>(bytes.data()) + to - 1) &
                                       ~(to - 1));
  };
  commands = aligned(memory_, kCommandPlace);
  doorbell = reinterpret_cast<uint64_t *>(aligned(page_, kPage));
  for (unsigned i = 0; i != 3; ++i)
    low_latency[i] = reinterpret_cast<uint8_t *>(doorbell) + (i + 1) * size_t{1024};
  put(commands, QueueStatus::read, kFirstSlot / 2);
  put(commands, QueueStatus::rc, uint64_t(Rc::kOk));
  read32 = write32 = told32 = kFirstSlot;
  World::the().add_register(doorbell, *this);
  return 0;
}

FakeCommandQueue::~FakeCommandQueue() {
  if (doorbell != nullptr) World::the().remove_register(doorbell);
}

void FakeCommandQueue::rung(uint64_t value) {
  const unsigned end = unsigned(value & 0xffff) * 2;
  bool goes_on = true;
  while (goes_on && read_ != end) {
    const uint8_t *const command = commands + size_t{read_} * kCommandSlot;
    goes_on = execute(command);
    if (!goes_on) break;
    read_ += 1u << get(command, CommandHead::size);
    if (read_ >= size32) read_ = kFirstSlot;
  }
  if (transmits != nullptr) transmits->flush();
  lni->device->device->push();
  __atomic_store_n(reinterpret_cast<uint16_t *>(commands), uint16_t(read_ / 2), __ATOMIC_RELEASE);
}

bool FakeCommandQueue::execute(const uint8_t *command) {
  const auto kind = CommandKind(get(command, CommandHead::kind));
  if (transmits == nullptr && triggers == nullptr) {
    on_target(command);
    return true;
  }
  switch (kind) {
    case CommandKind::kInline:
      if (transmits != nullptr) on_inline(command);
      return true;
    case CommandKind::kDma:
      if (transmits != nullptr) on_dma(command);
      return true;
    case CommandKind::kCounter:
      return on_counter(command);
    case CommandKind::kQueue:
      if (transmits != nullptr) on_queue(command);
      return true;
  }
  return true;
}

// ---- transfers ----

void FakeCommandQueue::post(const Transfer &transfer) {
  transmits->post(transfer);  // as many as the ring has are taken
}

template <class Word>
void FakeCommandQueue::take_flags(const uint8_t *word, Transfer &t) const {
  t.success_disable = get(word, Word::success_disable) != 0;
  t.restricted = get(word, Word::restricted) != 0;
  t.flush = get(word, Word::flush) != 0;
  t.counts_bytes = get(word, Word::ct_bytes) != 0;
  if (get(word, Word::ct_ack) != 0 || get(word, Word::ct_reply) != 0)
    t.counter = lni->counters.at(unsigned(get(word, Word::ct)));
  t.eq = lni->event_queues.at(unsigned(get(word, Word::eq)));
  t.initiator = 0;
}

void FakeCommandQueue::take_amo_op(uint64_t op, Transfer &t) const {
  t.amo_op = AmoOp(op);
  const int fadd = lni->device->device->facts().amo_remap_to_pcie_fadd;
  if (t.op != Op::kFetchAtomic || fadd < 0 || op != uint64_t(fadd)) return;
  t.pcie = true;
  t.amo_op = AmoOp::kSum;
}

void FakeCommandQueue::on_inline(const uint8_t *command) {
  const auto op = DmaOp(get(command, CommandHead::op));
  if (op == DmaOp::kNone) return;
  if (op == DmaOp::kState) {
    std::memcpy(state_.data(), command, state_.size());
    return;
  }
  const uint8_t *const state = state_.data();
  Transfer t;
  take_flags<InlineState>(state, t);
  t.initiator = uint32_t(get(state, InlineState::initiator));
  t.user_ptr = get(state, InlineState::user_ptr);
  const FabricPlace place = place_of(uint32_t(get(command, InlinePut::address)),
                                     uint8_t(get(state, InlineState::index_low)));
  t.to = {place.nid, place.pid, place.index};
  const size_t bytes = get(command, InlinePut::bytes);
  uint64_t operand[2] = {};
  if (op == DmaOp::kSmallMessage) {
    t.match_bits = get(command, InlineMessage::match_bits);
    t.header_data = get(command, InlineMessage::header_data);
    t.user_ptr = get(command, InlineMessage::user_ptr);
    t.inline_bytes = command + InlineMessage::kBytes;
    t.length = uint32_t(bytes - InlineMessage::kBytes);
    return post(t);
  }
  t.remote_offset = get(command, InlinePut::remote_offset);
  if (op == DmaOp::kPut) {
    t.inline_bytes = command + InlinePut::kBytes;
    t.length = uint32_t(bytes - InlinePut::kBytes);
    return post(t);
  }
  t.op = Op(op);
  if (!is_atomic_op(t.op)) return;
  if (bytes == SmallAmo::kBytes) {
    take_amo_op(get(command, SmallAmo::amo_op), t);
    t.amo_type = AmoType(get(command, SmallAmo::amo_type));
    operand[0] = get(command, SmallAmo::operand);
  } else {
    take_amo_op(get(command, InlineAmo::amo_op), t);
    t.amo_type = AmoType(get(command, InlineAmo::amo_type));
    t.cswap = Cswap(get(command, InlineAmo::cswap));
    operand[0] = get(command, InlineAmo::operand_low);
    operand[1] = get(command, InlineAmo::operand_high);
    t.operand2[0] = get(command, InlineAmo::operand2_low);
    t.operand2[1] = get(command, InlineAmo::operand2_high);
    const FakeLni::Place result =
        lni->find(unsigned(get(state, InlineState::write_lac)), get(command, InlineAmo::result), 1);
    t.result_memory = result.memory;
    t.result = result.address;
  }
  t.inline_bytes = operand;
  t.length = uint32_t(amo_size(t.amo_type));
  post(t);
}

Transfer FakeCommandQueue::dma_of(const uint8_t *command) const {
  Transfer t;
  t.op = Op(get(command, CommandHead::op));
  take_flags<Dma>(command, t);
  const FabricPlace place =
      place_of(uint32_t(get(command, Dma::address)), uint8_t(get(command, Dma::index_low)));
  t.to = {place.nid, place.pid, place.index};
  t.remote_offset = get(command, Dma::remote_offset);
  t.length = uint32_t(get(command, Dma::length));
  const FakeLni::Place local =
      lni->find(unsigned(get(command, Dma::lac)), get(command, Dma::local), t.length);
  t.memory = local.memory;
  t.local = local.address;
  if (is_atomic_op(t.op)) {
    t.initiator = uint32_t(get(command, DmaAmo::initiator));
    t.match_bits = get(command, DmaAmo::match_bits);
    t.header_data = get(command, DmaAmo::header_data);
    t.user_ptr = get(command, DmaAmo::user_ptr);
    take_amo_op(get(command, DmaAmo::amo_op), t);
    t.amo_type = AmoType(get(command, DmaAmo::amo_type));
    t.cswap = Cswap(get(command, DmaAmo::cswap));
    t.operand2[0] = get(command, DmaAmo::operand2_low);
    t.operand2[1] = get(command, DmaAmo::operand2_high);
    const FakeLni::Place result =
        lni->find(unsigned(get(command, DmaAmo::write_lac)), get(command, DmaAmo::result), 1);
    t.result_memory = result.memory;
    t.result = result.address;
    return t;
  }
  t.initiator = uint32_t(get(command, FullDma::initiator));
  t.match_bits = get(command, FullDma::match_bits);
  t.header_data = get(command, FullDma::header_data);
  t.user_ptr = get(command, FullDma::user_ptr);
  t.eager_length = uint32_t(get(command, FullDma::eager_length));
  t.rendezvous_id = uint8_t(get(command, FullDma::rendezvous_id));
  return t;
}

void FakeCommandQueue::on_dma(const uint8_t *command) {
  const auto op = DmaOp(get(command, CommandHead::op));
  if (op < DmaOp::kPut || op > DmaOp::kFetchAtomic) return;
  post(dma_of(command));
}

void FakeCommandQueue::on_queue(const uint8_t *command) {
  switch (QueueOp(get(command, CommandHead::op))) {
    case QueueOp::kFence:
      transmits->fence();
      return;
    case QueueOp::kProfile:
      transmits->set_profile(lni->profile(unsigned(get(command, QueueCommand::profile))));
      return;
    case QueueOp::kNone:
      return;
  }
}

// ---- counters ----

bool FakeCommandQueue::on_counter(const uint8_t *command) {
  using C = CounterCommand;
  const auto op = CounterOp(get(command, C::op));
  if (op >= CounterOp::kTriggerDma) return on_trigger(command, op);
  cxi::Counter *const counter = lni->counters.at(unsigned(get(command, C::ct)));
  if (counter == nullptr) return true;
  const auto part = [&](Field flag, Field value) {
    return get(command, flag) != 0 ? std::optional(get(command, value)) : std::nullopt;
  };
  switch (op) {
    case CounterOp::kSet:
      counter->set(part(C::sets_success, C::success), part(C::sets_failure, C::failure));
      break;
    case CounterOp::kGet:
      counter->request_write_back();
      break;
    case CounterOp::kAdd:
      if (const auto success = part(C::sets_success, C::success)) counter->add(*success);
      if (const auto failure = part(C::sets_failure, C::failure)) counter->add_failure(*failure);
      break;
    case CounterOp::kCancel:
      counter->cancel();
      break;
    default:
      break;
  }
  return true;
}

bool FakeCommandQueue::on_trigger(const uint8_t *command, CounterOp op) {
  using C = CounterCommand;
  Trigger trigger;
  trigger.counter = lni->counters.at(unsigned(get(command, C::trigger_ct)));
  trigger.threshold = get(command, C::threshold);
  trigger.value = get(command, C::success);
  if (triggers == nullptr || trigger.counter == nullptr) return true;
  switch (op) {
    case CounterOp::kTriggerSet:
      trigger.kind =
          get(command, C::sets_success) != 0 ? Trigger::Kind::kSet : Trigger::Kind::kWriteBack;
      trigger.target = lni->counters.at(unsigned(get(command, C::ct)));
      break;
    case CounterOp::kTriggerAdd:
      trigger.kind = Trigger::Kind::kAdd;
      trigger.target = lni->counters.at(unsigned(get(command, C::ct)));
      break;
    case CounterOp::kTriggerEvent:
      trigger.kind = Trigger::Kind::kEvent;
      trigger.eq = lni->event_queues.at(unsigned(get(command, C::eq)));
      break;
    default:
      trigger.transfer = dma_of(command + C::kBytes);
      break;
  }
  // Without a place for it the queue stands still.
  return triggers->post(trigger) == 0;
}

// ---- portals ----

void FakeCommandQueue::on_target(const uint8_t *command) {
  using T = TargetCommand;
  if (CommandKind(get(command, CommandHead::kind)) != CommandKind::kQueue) return;
  cxi::Portal *const portal = lni->portals.at(unsigned(get(command, T::portal)));
  if (portal == nullptr) return;
  const auto op = TargetOp(get(command, CommandHead::op));
  switch (op) {
    case TargetOp::kAppend:
      return on_append(command, *portal);
    case TargetOp::kUnlink:
      return portal->unlink(List(get(command, T::list)), uint16_t(get(command, T::buffer_id)));
    case TargetOp::kSetState:
      return portal->set_state(PortalState(get(command, StateCommand::state)),
                               uint32_t(get(command, StateCommand::drops)));
    case TargetOp::kSearch:
    case TargetOp::kSearchAndDelete:
      return portal->search({.buffer_id = uint16_t(get(command, T::buffer_id)),
                             .match_id = uint32_t(get(command, T::match_id)),
                             .match_bits = get(command, T::match_bits),
                             .ignore_bits = get(command, T::ignore_bits),
                             .once = get(command, T::use_once) != 0},
                            op == TargetOp::kSearchAndDelete);
  }
}

void FakeCommandQueue::on_append(const uint8_t *command, cxi::Portal &portal) {
  using T = TargetCommand;
  const uint64_t length = get(command, T::length);
  // One may be mapped in part: its start says where, and its use how far.
  const auto lac = unsigned(get(command, T::lac));
  FakeLni::Place place = lni->find(lac, get(command, T::start), length);
  if (place.memory.number == FakeLni::kNone)
    place = lni->find(lac, get(command, T::start), std::min<uint64_t>(length, 1));
  Entry entry{.buffer_id = uint16_t(get(command, T::buffer_id)),
              .memory = place.memory,
              .start = place.address,
              .length = length,
              .match_id = uint32_t(get(command, T::match_id)),
              .match_bits = get(command, T::match_bits),
              .ignore_bits = get(command, T::ignore_bits),
              .min_free = get(command, T::min_free)};
  entry.op_put = get(command, T::op_put) != 0;
  entry.op_get = get(command, T::op_get) != 0;
  entry.manage_local = get(command, T::manage_local) != 0;
  entry.use_once = get(command, T::use_once) != 0;
  entry.no_truncate = get(command, T::no_truncate) != 0;
  entry.unexpected_header_disable = get(command, T::unexpected_disable) != 0;
  entry.link_disable = get(command, T::link_disable) != 0;
  entry.unlink_disable = get(command, T::unlink_disable) != 0;
  entry.comm_disable = get(command, T::comm_disable) != 0;
  entry.success_disable = get(command, T::success_disable) != 0;
  if (get(command, T::ct_comm) != 0)
    entry.counter = lni->counters.at(unsigned(get(command, T::ct)));
  entry.counts_bytes = get(command, T::ct_bytes) != 0;
  entry.counts_overflow = get(command, T::ct_overflow) != 0;
  entry.restart_sequence = get(command, T::restart) != 0;
  portal.append(List(get(command, T::list)), entry);
}

}  // namespace weft::cxi
