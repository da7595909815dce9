// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/libcxi/queues.h"

#include <algorithm>
#include <bit>

#include "plugins/cxi/libcxi/counter.h"
#include "plugins/cxi/libcxi/event_queue.h"

namespace weft::cxi {
namespace {

// An operation has up to 32 slots of 32 bytes; most have fewer.
constexpr size_t kCommandsPerOperation = 4, kFewestCommands = 64, kMostCommands = size_t{1} << 16;
constexpr unsigned kTriggerCommands = 4096;
constexpr unsigned kSeldom = 2;  // the NIC tells what it has read now and then, and when it is done

int names_of(LibcxiLni &lni, const Transfer &t, TransferNames &names) {
  const bool fetches = t.op == Op::kFetchAtomic;
  names.ct = LibcxiCounter::number_of(t.counter);
  names.eq = t.eq != nullptr ? static_cast<const LibcxiEventQueue *>(t.eq)->number() : uint16_t{0};
  names.remote_offset = t.remote_offset;
  if (const int fadd = lni.device().facts.amo_remap_to_pcie_fadd; fadd >= 0)
    names.pcie_op = AmoOp(fadd);
  Mappings::Place place;
  // What is not mapped is the NIC's to refuse: it has no such address.
  const auto find = [&](const Memory &memory, uint64_t address, uint64_t length) {
    const int rc = lni.mappings().find(memory, address, length, place);
    return rc == -FI_EINVAL ? 0 : rc;
  };
  if (fetches) {
    if (const int rc = find(t.result_memory, t.result, 1); rc != 0) return rc;
    names.result_lac = place.lac;
    names.result = place.address;
  }
  if (is_inline(t)) return 0;
  // Inline bytes that have no place in the command are in some memory of the process.
  static constexpr Memory kOfTheProcess{.number = Mappings::kAll};
  const bool elsewhere = t.inline_bytes != nullptr;
  const uint64_t address = elsewhere ? reinterpret_cast<uintptr_t>(t.inline_bytes) : t.local;
  if (const int rc = find(elsewhere ? kOfTheProcess : t.memory, address, t.length); rc != 0)
    return rc;
  names.lac = place.lac;
  names.local = place.address;
  if (t.op != Op::kRendezvousPut) return 0;
  if (const int rc = find(t.memory, t.remote_offset, t.length); rc != 0) return rc;
  names.remote_offset = place.address;
  return 0;
}

}  // namespace

// ---- transfers ----

Result<std::unique_ptr<LibcxiTransmitQueue>> LibcxiTransmitQueue::open(LibcxiLni &lni, size_t depth,
                                                                       const Profile &profile) {
  std::unique_ptr<LibcxiTransmitQueue> queue(new LibcxiTransmitQueue(lni));
  WEFT_TRY(const unsigned number, lni.lcid(profile, false));
  const size_t places =
      std::clamp(std::bit_ceil(depth * kCommandsPerOperation), kFewestCommands, kMostCommands);
  const abi::CommandQueueOptions options{.count = unsigned(places),
                                         .policy = kSeldom,
                                         .flags = abi::CommandQueueOptions::kTransmit,
                                         .lcid = number};
  WEFT_TRY(queue->queue_,
           HardwareQueue::open(lni.library(), lni.handle(), options, CommandRing::Use::kTransmit));
  return queue;
}

int LibcxiTransmitQueue::post(const Transfer &transfer) {
  const std::lock_guard guard(mutex_);
  if (!queue_->ring().has_room()) return -FI_EAGAIN;
  TransferNames names;
  if (const int rc = names_of(lni_, transfer, names); rc != 0) return rc;
  writer_.write(queue_->ring(), transfer, names);
  return 0;
}

uint8_t *LibcxiTransmitQueue::add_queue_command(QueueOp op, CommandSize aligned) {
  uint8_t *const command = queue_->ring().add(aligned);
  put(command, CommandHead::kind, uint64_t(CommandKind::kQueue));
  put(command, CommandHead::size, uint64_t(CommandSize::k64));
  put(command, CommandHead::op, uint64_t(op));
  return command;
}

int LibcxiTransmitQueue::fence() {
  const std::lock_guard guard(mutex_);
  if (!queue_->ring().has_room()) return -FI_EAGAIN;
  add_queue_command(QueueOp::kFence, CommandSize::k64);
  return 0;
}

// The command begins at a multiple of 128 bytes, and one that does nothing is the other half.
Result<void> LibcxiTransmitQueue::set_profile(const Profile &profile) {
  WEFT_TRY(const unsigned number, lni_.lcid(profile, false));
  const std::lock_guard guard(mutex_);
  while (!queue_->ring().has_room()) queue_->ring().ring();
  uint8_t *const command = add_queue_command(QueueOp::kProfile, CommandSize::k128);
  put(command, QueueCommand::profile, number);
  uint8_t *const nothing = command + QueueCommand::kBytes;
  put(nothing, CommandHead::kind, uint64_t(CommandKind::kQueue));
  put(nothing, CommandHead::size, uint64_t(CommandSize::k64));
  return {};
}

void LibcxiTransmitQueue::flush() {
  const std::lock_guard guard(mutex_);
  queue_->ring().ring();
}

// ---- triggered commands ----

Result<std::unique_ptr<LibcxiTriggerQueue>> LibcxiTriggerQueue::open(LibcxiLni &lni,
                                                                     const Profile &profile) {
  std::unique_ptr<LibcxiTriggerQueue> queue(new LibcxiTriggerQueue(lni));
  WEFT_TRY(const unsigned number, lni.lcid(profile, true));
  const abi::CommandQueueOptions options{
      .count = kTriggerCommands,
      .policy = kSeldom,
      .flags = abi::CommandQueueOptions::kTransmit | abi::CommandQueueOptions::kTriggers,
      .lcid = number};
  WEFT_TRY(queue->queue_,
           HardwareQueue::open(lni.library(), lni.handle(), options, CommandRing::Use::kTriggers));
  return queue;
}

// The hardware stands still without a place for a triggered command, and tells nobody. Half of what
// is left may go before the next look.
bool LibcxiTriggerQueue::take_one() {
  if (budget_ == 0) {
    abi::ResourceUse use{};
    const size_t most = lni_.service().max_triggered;
    if (lni_.library().get_svc_rsrc_use(lni_.device().handle, lni_.service().id, &use) != 0 ||
        use.in_use[abi::kTriggered] >= most)
      return false;
    budget_ = (most - use.in_use[abi::kTriggered] + 1) / 2;
  }
  --budget_;
  return true;
}

// What the NIC counts it writes back by a command of its own, behind the transfer: at the count
// that the transfer makes of the counter. That of an earlier transfer will do, which has not ended
// or was taken back. Where the counter starts the transfer, too, it is taken back with that.
int LibcxiTriggerQueue::post(const Trigger &trigger) {
  const Transfer &t = trigger.transfer;
  if (trigger.kind != Trigger::Kind::kTransfer || !t.writes_back || t.counter == nullptr) {
    const std::lock_guard guard(mutex_);
    return add(trigger, 1);
  }
  const bool is_own = t.counter == trigger.counter;
  const uint64_t now = is_own ? trigger.threshold : t.counter->success() + t.counter->failure();
  auto &counter = static_cast<LibcxiCounter &>(*t.counter);
  if (!is_own && counter.is_written_back_behind(now)) {
    const std::lock_guard guard(mutex_);
    return add(trigger, 1);
  }
  Trigger writes;
  writes.kind = Trigger::Kind::kWriteBack;
  writes.counter = writes.target = t.counter;
  writes.threshold = now + 1;
  const std::lock_guard guard(mutex_);
  if (const int rc = add(trigger, 2); rc != 0) return rc;
  if (!is_own) counter.note_write_back(writes.threshold);
  return add(writes, 0);
}

// `places`: to take for it and what follows it.
int LibcxiTriggerQueue::add(const Trigger &trigger, unsigned places) {
  TransferNames names;
  const bool transfers = trigger.kind == Trigger::Kind::kTransfer;
  if (transfers)
    if (const int rc = names_of(lni_, trigger.transfer, names); rc != 0) return rc;
  // Full: it stands still, since others have taken what was left.
  for (unsigned i = 0; i != places; ++i)
    if (!queue_->ring().has_room() || !take_one()) return -FI_ENOSPC;
  using C = CounterCommand;
  uint8_t *const command = queue_->ring().add(transfers ? CommandSize::k128 : CommandSize::k64);
  put(command, C::kind, uint64_t(CommandKind::kCounter));
  put(command, C::trigger_ct, LibcxiCounter::number_of(trigger.counter));
  put(command, C::threshold, std::min(trigger.threshold, C::threshold.max()));
  switch (trigger.kind) {
    case Trigger::Kind::kTransfer:
      put(command, C::op, uint64_t(CounterOp::kTriggerDma));
      write_dma(command + C::kBytes, trigger.transfer, names);
      break;
    case Trigger::Kind::kSet:
      put(command, C::op, uint64_t(CounterOp::kTriggerSet));
      put(command, C::ct, LibcxiCounter::number_of(trigger.target));
      put(command, C::sets_success, 1);
      put(command, C::success, trigger.value);
      break;
    case Trigger::Kind::kAdd:
      put(command, C::op, uint64_t(CounterOp::kTriggerAdd));
      put(command, C::ct, LibcxiCounter::number_of(trigger.target));
      put(command, C::sets_success, 1);
      put(command, C::success, trigger.value);
      break;
    case Trigger::Kind::kWriteBack:  // a counter that is set is written back: here nothing is set
      put(command, C::op, uint64_t(CounterOp::kTriggerSet));
      put(command, C::ct, LibcxiCounter::number_of(trigger.target));
      break;
    case Trigger::Kind::kEvent:
      put(command, C::op, uint64_t(CounterOp::kTriggerEvent));
      put(command, C::eq, static_cast<const LibcxiEventQueue *>(trigger.eq)->number());
      break;
  }
  queue_->ring().ring();
  return 0;
}

size_t LibcxiTriggerQueue::pending() const {
  const std::lock_guard guard(mutex_);
  unsigned count = 0;
  lni_.library().cmdq_ack_counter(queue_->handle(), &count);
  return count;
}

}  // namespace weft::cxi
