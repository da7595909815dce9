// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/group/group.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "plugins/coll/schedule/parts.h"

namespace weft::coll {
namespace {

constexpr uint16_t kVersion = 5;  // of what members say, and of the schedules
static_assert(kSequences >= 2 * Group::kWindow);

void put_word(uint8_t *at, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) at[i] = uint8_t(value >> (8 * i));
}
uint64_t get_word(const uint8_t *at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= uint64_t{at[i]} << (8 * i);
  return value;
}

// Ranks at distances of powers of two, in both directions.
template <class F>
void for_neighbours(uint32_t rank, uint32_t size, F see) {
  for (uint32_t distance = 1; distance < size; distance *= 2) {
    see(wrap(uint64_t{rank} + distance, size));
    if (2 * distance != size) see(wrap(uint64_t{rank} + size - distance, size));
  }
}

}  // namespace

void Group::Hello::write(uint8_t *at) const {
  put_word(at, membership, 8);
  put_word(at + 8, table, 8);
  put_word(at + 16, number, 4);
  put_word(at + 20, version, 2);
  put_word(at + 22, one_host, 2);
  put_word(at + 24, cpus.count, 2);
  put_word(at + 26, cpus.first, 2);
}

Group::Hello Group::Hello::read(const uint8_t *at) {
  return {
      .membership = get_word(at, 8),
      .table = get_word(at + 8, 8),
      .number = uint32_t(get_word(at + 16, 4)),
      .version = uint16_t(get_word(at + 20, 2)),
      .one_host = uint16_t(get_word(at + 22, 2)),
      .cpus = {.count = uint16_t(get_word(at + 24, 2)), .first = uint16_t(get_word(at + 26, 2))}};
}

Group::Group(uint32_t number, GroupPlace place, const GroupLimits &limits, const Choice &choice,
             Carrier &carrier)
    : number_(number),
      place_(std::move(place)),
      limits_(limits),
      choice_(choice),
      carrier_(carrier) {}

// ---- operations ----

Operation &Group::take(uint64_t now) {
  if (spare_.empty()) spare_.emplace_back();
  active_.splice(active_.end(), spare_, spare_.begin());
  Operation &operation = active_.back();
  operation.group = this;
  operation.active = true;
  operation.is_join = false;
  operation.since = operation.news = now;
  return operation;
}

void Group::join(uint64_t now) {
  state_ = State::kJoining;
  hello_.resize(Hello::kSize);
  hellos_.resize(size_t{Hello::kSize} * size());
  Hello{.membership = place_.membership,
        .table = choice_.hash(),
        .number = number_,
        .version = kVersion,
        .one_host = place_.one_host,
        .cpus = place_.cpus}
      .write(hello_.data());
  const Task task{.coll = FI_ALLGATHER,
                  .algorithm = Algorithm::kBruck,
                  .rank = rank(),
                  .size = size(),
                  .count = Hello::kSize};
  Operation &operation = take(now);
  operation.is_join = true;
  operation.prepare({.operand = hello_.data(), .result = hellos_.data()}, task);
  advance(operation);
}

int Group::start(uint64_t now, const Call &call) {
  if (state_ == State::kFailed) return -FI_ENOTCONN;
  if (state_ != State::kJoined) return -FI_EAGAIN;
  if (!active_.empty() && next_ - active_.front().sequence >= kWindow) return -FI_EAGAIN;
  Task task = call.task;
  task.rank = rank();
  task.size = size();
  task.placement = placement_;
  task.in_place = task.coll == FI_ALLREDUCE && call.operand == call.result;
  choice_.choose(task);
  Operation &operation = take(now);
  if (const int rc = operation.prepare(call, task); rc != 0) {
    operation.active = false;
    spare_.splice(spare_.end(), active_, std::prev(active_.end()));
    return rc;
  }
  operation.sequence = next_++;
  advance(operation);
  return 0;
}

void Group::advance(Operation &operation) {
  while (operation.active && operation.under_way == 0) {
    if (operation.failure != Failure::kNone) return end(operation);
    operation.run(operation.round.steps);
    if (operation.next == operation.schedule->rounds()) return end(operation);
    begin_round(operation);
  }
}

// What is copied locally comes first: later it would push out of the cache what the transfers have
// left there (alltoall of 1 MiB, 2 processes: 0.87 of the time). Sends come before receives: others
// wait for them, and no post of theirs looks for messages.
void Group::begin_round(Operation &operation) {
  Round &round = operation.round;
  round.clear();
  operation.schedule->round(operation.next++, round);
  operation.flights.clear();
  operation.flights.resize(round.transfers.size());
  operation.run(round.before);
  for (const bool sends : {true, false})
    for (size_t i = 0; i < round.transfers.size(); ++i)
      if (round.transfers[i].sends == sends)
        post(operation, operation.flights[i], round.transfers[i]);
}

void Group::post(Operation &operation, Flight &flight, const Transfer &transfer) {
  flight.operation = &operation;
  flight.sends = transfer.sends;
  flight.rank = transfer.peer;
  flight.peer = place_.peers[transfer.peer];
  flight.bytes = transfer.slice.bytes != 0 ? operation.bytes_of(transfer.slice) : nullptr;
  flight.length = transfer.slice.bytes;
  if (operation.is_join)
    flight.tag =
        join_tag(place_.membership, transfer.sends ? transfer.peer : rank(), transfer.label);
  else if (transfer.sends)
    flight.tag = data_tag(numbers_[transfer.peer], number_, operation.sequence, transfer.label);
  else
    flight.tag = data_tag(number_, numbers_[transfer.peer], operation.sequence, transfer.label);
  flight.under_way = !carrier_.post(flight);
  operation.under_way += flight.under_way;
}

void Group::on_done(uint64_t now, Flight &flight, Failure failure, size_t length) {
  Operation &operation = *flight.operation;
  flight.under_way = false;
  --operation.under_way;
  operation.news = now;
  if (failure == Failure::kNone && !flight.sends && length != flight.length)
    failure = Failure::kMismatch;
  if (failure != Failure::kNone && operation.failure == Failure::kNone) fail(failure, flight.rank);
  advance(operation);
}

void Group::end(Operation &operation) {
  operation.active = false;
  Ended one{.token = operation.call.token,
            .is_join = operation.is_join,
            .failure = operation.failure,
            .culprit = culprit_,
            .bytes = operation.call.task.bytes()};
  operation.kept.clear();
  const auto at =
      std::ranges::find_if(active_, [&](const Operation &o) { return &o == &operation; });
  spare_.splice(spare_.begin(), active_, at);
  if (one.is_join) end_join(one);
  carrier_.ended(*this, one);
}

void Group::end_join(Ended &one) {
  if (one.failure == Failure::kNone) {
    numbers_.resize(size());
    std::vector<Hello> all;
    for (uint32_t i = 0; i < size(); ++i) {
      const Hello hello = Hello::read(hellos_.data() + size_t{Hello::kSize} * i);
      all.push_back(hello);
      numbers_[i] = hello.number;
      if (hello.membership == place_.membership && hello.table == choice_.hash() &&
          hello.version == kVersion && hello.number != 0 && hello.number < kNumbers)
        continue;
      one.failure = Failure::kMismatch;
      one.culprit = i;
    }
    placement_ = placement_of(all);
  }
  state_ = one.failure == Failure::kNone ? State::kJoined : State::kFailed;
  broken_by_ = one.failure;
  hello_ = {};
  hellos_ = {};
}

Placement Group::placement_of(const std::vector<Hello> &all) const {
  std::unordered_map<uint16_t, uint64_t> counts;  // by the first one
  bool known = true;
  for (const Hello &hello : all) {
    if (hello.one_host != 1) return Placement::kHosts;
    known = known && hello.cpus.count != 0;
    uint64_t &count = counts[hello.cpus.first];
    count = std::max(count, uint64_t{hello.cpus.count});
  }
  uint64_t cpus = 0;
  for (const auto &[first, count] : counts) cpus += count;
  return known ? placement_on(cpus, size()) : Placement::kHost;
}

// ---- failures ----

void Group::fail(Failure why, uint32_t culprit) {
  if (broken_by_ != Failure::kNone) return;
  broken_by_ = why;
  culprit_ = culprit;
  for_neighbours(rank(), size(), [&](uint32_t to) {
    if (why != Failure::kGone || to != culprit) tell(to, PacketType::kAbort);
  });
  state_ = State::kFailed;
  // Some end here, which takes them out of the list.
  std::vector<Operation *> failed;
  for (Operation &operation : active_) {
    operation.failure = why;
    failed.push_back(&operation);
    for (Flight &flight : operation.flights)
      if (flight.under_way && !flight.sends) carrier_.cancel(flight);
  }
  for (Operation *const operation : failed) advance(*operation);
}

void Group::tell(uint32_t to, PacketType type) {
  tell(to, type, numbers_.empty() ? 0 : numbers_[to]);
}

// A member that asks and does not read gets no second answer while the first one is under way.
void Group::tell(uint32_t to, PacketType type, uint32_t number) {
  if (!told_.emplace(to, type).second) return;
  carrier_.tell(*this, to,
                {.type = type,
                 .why = broken_by_ == Failure::kCanceled ? Failure::kGone : broken_by_,
                 .from_rank = rank(),
                 .culprit = culprit_,
                 .from = number_,
                 .to = number,
                 .membership = place_.membership});
}

void Group::on_told(uint32_t to, PacketType type, bool reached) {
  told_.erase({to, type});
  if (!reached) fail(Failure::kGone, to);
}

void Group::leave() {
  if (active_.empty()) {
    state_ = State::kFailed;
    broken_by_ = Failure::kCanceled;
    return;
  }
  fail(Failure::kCanceled, rank());
}

// Any member may say what it likes of itself, and nobody of another.
bool Group::is_from_member(const Packet &packet, const std::string &source) const {
  return packet.membership == place_.membership && packet.from_rank < size() &&
         carrier_.is_at(place_.peers[packet.from_rank], source);
}

bool Group::is_told_by(const Packet &packet, const std::string &source) const {
  if (!is_from_member(packet, source)) return false;
  return state_ == State::kJoining ||
         (!numbers_.empty() && numbers_[packet.from_rank] == packet.from);
}

bool Group::on_packet(const Packet &packet, const std::string &source) {
  if (!is_from_member(packet, source)) return false;
  switch (packet.type) {
    case PacketType::kProbe:
      if (broken_by_ != Failure::kNone) tell(packet.from_rank, PacketType::kAbort);
      break;
    case PacketType::kGone:
      fail(Failure::kGone, packet.from_rank);
      break;
    case PacketType::kAbort:
      if (packet.culprit < size() && packet.why != Failure::kNone) fail(packet.why, packet.culprit);
      break;
  }
  return true;
}

// ---- time ----

uint64_t Group::deadline() const {
  uint64_t first = UINT64_MAX;
  for (const Operation &operation : active_) {
    first = std::min(first, operation.news + limits_.probe);
    if (limits_.deadline != 0) first = std::min(first, operation.since + limits_.deadline);
  }
  return active_.empty() ? 0 : first;
}

void Group::on_time(uint64_t now) {
  if (broken_by_ != Failure::kNone) {
    for (Operation &operation : active_) operation.news = now;
    return;
  }
  for (Operation &operation : active_) {
    if (limits_.deadline != 0 && now - operation.since >= limits_.deadline) {
      // Those that are waited for are to blame.
      const auto late = std::ranges::find_if(
          operation.flights, [](const Flight &one) { return one.under_way && !one.sends; });
      return fail(Failure::kTimeout, late != operation.flights.end() ? late->rank : rank());
    }
    if (now - operation.news < limits_.probe) continue;
    operation.news = now;
    probe(operation);
  }
}

void Group::probe(Operation &operation) {
  for (const Flight &flight : operation.flights)
    if (flight.under_way && !flight.sends) tell(flight.rank, PacketType::kProbe);
}

}  // namespace weft::coll
