// SPDX-License-Identifier: BSD-2-Clause
// RandomProgram: what must be true of completions.
#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "plugins/cxi/test_random_program.h"

namespace weft::conformance::rdm {

void RandomProgram::read(Endpoint &endpoint, size_t most) {
  endpoint.node->progress();
  claim(endpoint);
  for (fid_cq *const cq : {endpoint.node->tx_cq.get(), endpoint.node->rx_cq.get()}) {
    if (cq == nullptr) continue;
    for (size_t i = 0; i < most && !has_failed(); ++i) {
      const auto done = poll(cq);
      if (!done) break;
      on_done(endpoint, *done);
    }
  }
  read_joined(*endpoint.nic);
}

// The endpoints of a NIC share its event queue.
void RandomProgram::read_joined(Nic &nic) {
  const auto find = [&](const fid *group) -> Member * {
    for (const auto &endpoint : endpoints_)
      for (Member &member : endpoint->members)
        if (&member.mc->fid == group) return &member;
    return nullptr;  // it has left
  };
  uint32_t event = 0;
  fi_eq_entry entry{};
  for (;;) {
    const ssize_t rc = fi_eq_read(nic.owner->eq, &event, &entry, sizeof entry, 0);
    if (rc == -FI_EAGAIN) return;
    if (rc == -FI_EAVAIL) {
      fi_eq_err_entry error{};
      must(fi_eq_readerr(nic.owner->eq, &error, 0));
      if (Member *const member = find(error.fid)) {
        EXPECT_TRUE(member->group->broken) << "joining: " << fi_strerror(error.err);
      }
      continue;
    }
    must(rc);
    if (Member *const member = find(entry.fid)) member->joined = true;
  }
}

void RandomProgram::on_done(Endpoint &endpoint, const Completion &done) {
  const auto found = endpoint.operations.find(done.context);
  ASSERT_NE(found, endpoint.operations.end())
      << "a completion of nothing, flags " << std::hex << done.flags << ", error " << done.err;
  Operation &operation = *found->second;
  switch (operation.kind) {
    case Kind::kReceive:
      on_received(operation, done);
      return drop(operation);
    case Kind::kMulti:
      if (done.err != FI_ECANCELED) on_received(operation, done);
      if (done.err == FI_ECANCELED || done.flags & FI_MULTI_RECV) drop(operation);
      return;
    case Kind::kPeek:
      return on_peeked(endpoint, operation, done);
    case Kind::kSend: {
      Message &message = messages_.at(operation.message);
      message.sent = true;
      message.failed = done.err != 0;
      if (done.err != 0) {
        EXPECT_FALSE(message.to->is_alive())
            << "a send of " << message.size << " bytes: " << fi_strerror(done.err) << " "
            << done.prov_errno;
      }
      return drop(operation);
    }
    case Kind::kCollective:
      on_reduced(operation, done);
      return drop(operation);
    default:
      on_accessed(operation, done);
      return drop(operation);
  }
}

void RandomProgram::on_received(Operation &operation, const Completion &done) {
  if (done.err == FI_ECANCELED) {
    EXPECT_TRUE(operation.cancelled) << "a receive is cancelled that nobody has cancelled";
    return;
  }
  // A buffer for many messages may end without one.
  if (operation.kind == Kind::kMulti && (done.flags & FI_RECV) == 0 && done.err == 0) return;
  const auto found = messages_.find(done.data);
  ASSERT_NE(found, messages_.end()) << "nobody has sent message " << done.data << ", error "
                                    << done.err << ", " << done.len << " bytes";
  Message &message = found->second;
  ASSERT_EQ(message.to, operation.endpoint);
  ASSERT_FALSE(message.gone) << "message " << done.data << " has come twice";
  ASSERT_EQ(message.tagged, operation.tagged);
  message.gone = true;
  message.receive = operation.order;
  // A message that does not fit into what is left of a buffer for many goes to the next receive.
  message.has_no_turn = operation.claims || operation.kind == Kind::kMulti;
  if (operation.tagged) {
    EXPECT_EQ(message.tag | operation.ignore, operation.tag | operation.ignore);
  }
  if (operation.flags & FI_DISCARD) return;
  const bool fits = message.size <= operation.bytes.size();
  if (done.err != 0) {
    if (done.err == FI_ETRUNC && (!fits || operation.kind == Kind::kMulti)) return;
    EXPECT_FALSE(message.from->is_alive()) << "a receive: " << fi_strerror(done.err) << " of "
                                           << message.size << " bytes, " << done.prov_errno;
    return;
  }
  ASSERT_TRUE(fits) << message.size << " bytes in " << operation.bytes.size();
  ASSERT_EQ(done.len, message.size);
  const uint8_t *const bytes = operation.kind == Kind::kMulti
                                   ? static_cast<const uint8_t *>(done.buf)
                                   : operation.bytes.data();
  const std::vector<uint8_t> expected = pattern(message.size, unsigned(done.data));
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), bytes))
      << "the bytes of message " << done.data << ", " << message.size << " of them";
}

void RandomProgram::on_peeked(Endpoint &endpoint, Operation &operation, const Completion &done) {
  if (done.err != 0) {
    EXPECT_EQ(done.err, FI_ENOMSG) << fi_strerror(done.err);
    return drop(operation);
  }
  const auto found = messages_.find(done.data);
  ASSERT_NE(found, messages_.end()) << "nobody has sent message " << done.data;
  ASSERT_FALSE(found->second.gone) << "message " << done.data << " has come already";
  EXPECT_EQ(done.len, found->second.size);
  if (operation.flags & FI_CLAIM) return claim_later(endpoint, operation, found->second.size);
  if (operation.flags & FI_DISCARD) found->second.gone = found->second.has_no_turn = true;
  drop(operation);
}

void RandomProgram::on_accessed(Operation &operation, const Completion &done) {
  Region &region = *operation.region;
  if (done.err != 0) {
    EXPECT_FALSE(region.is_open) << "an access to a region: " << fi_strerror(done.err) << " "
                                 << done.prov_errno;
  }
  if (operation.kind == Kind::kAtomic) {
    ++region.sum;
    if (!region.is_open) return;
    return;
  }
  Lane &lane = region.lanes[operation.lane];
  lane.busy = false;
  if (!region.is_open || done.err != 0) return;
  const uint8_t *const there = region.memory.data() + 8 + operation.lane * kLane;
  if (operation.kind == Kind::kWrite) {
    lane.known = true;
    lane.bytes = operation.bytes;
    if (operation.delivers) {
      EXPECT_TRUE(std::equal(lane.bytes.begin(), lane.bytes.end(), there)) << "a write";
    }
  } else if (lane.known) {
    EXPECT_TRUE(std::equal(lane.bytes.begin(), lane.bytes.end(), operation.bytes.begin()))
        << "a read";
  }
}

void RandomProgram::on_reduced(Operation &operation, const Completion &done) {
  if (done.err != 0) {
    EXPECT_TRUE(operation.group->broken) << "a collective: " << fi_strerror(done.err);
    return;
  }
  if (operation.wanted == 0) return;
  uint64_t result;
  std::memcpy(&result, operation.bytes.data() + 8, 8);
  EXPECT_EQ(result, operation.wanted);
}

// ---- the end ----

bool RandomProgram::is_all_done() {
  for (auto &[number, message] : messages_) {
    if (message.gone || message.failed || !message.in_order) continue;
    if (message.from->is_alive() && message.to->is_alive()) return false;
  }
  for (const auto &endpoint : endpoints_)
    for (auto &[context, operation] : endpoint->operations)
      if (!operation->is_deferred && operation->group == nullptr &&
          operation->kind != Kind::kMulti && operation->kind != Kind::kReceive &&
          (operation->kind != Kind::kSend || messages_.at(operation->message).to->is_alive()))
        return false;
  return true;
}

// Receives for any message. Those for some of them make room: in the queue, and in a NIC with few
// list entries, which one endpoint may keep from another.
void RandomProgram::offer_receives(Endpoint &endpoint) {
  cancel_some(endpoint);
  for (const bool tagged : {false, true}) {
    if (endpoint.receives[tagged] >= 3) continue;
    const size_t before = endpoint.receives[tagged];
    receive(endpoint, tagged, true);
    if (endpoint.receives[tagged] == before) break;
  }
}

// Every message between two that live comes to its end, where there are receives for all.
void RandomProgram::drain() {
  for (Nic &nic : nics_) must(fi_control(&nic.owner->domain->fid, FI_FLUSH_WORK, nullptr));
  const Deadline deadline;
  while (!is_all_done() && !has_failed()) {
    if (deadline.passed()) break;
    for (const auto &endpoint : endpoints_) {
      if (!endpoint->is_alive()) continue;
      offer_receives(*endpoint);
      read(*endpoint, 100);
    }
  }
  for (auto &[number, message] : messages_) {
    if (message.gone || message.failed || !message.in_order || has_failed()) continue;
    EXPECT_FALSE(message.from->is_alive() && message.to->is_alive())
        << "message " << number << " of " << message.size << " bytes, tagged " << message.tagged
        << ": its send has" << (message.sent ? "" : " not") << " completed, and it has not come";
  }
  if (!has_failed()) {
    EXPECT_TRUE(is_all_done()) << "operations have not completed";
  }
  for (const auto &endpoint : endpoints_)
    for (const auto &region : endpoint->regions) {
      uint64_t sum;
      std::memcpy(&sum, region->memory.data(), 8);
      if (region->is_sum_known) {
        EXPECT_EQ(sum, region->sum) << "atomic operations";
      }
    }
  check_order();
}

// Of two messages that nothing but their number tells apart the first has got the older receive.
void RandomProgram::check_order() {
  std::map<std::tuple<const Endpoint *, const Endpoint *, bool, uint64_t>, uint64_t> last;
  for (uint64_t number = 1; number <= last_message_; ++number) {
    const auto found = messages_.find(number);
    if (found == messages_.end()) continue;
    const Message &one = found->second;
    if (!one.in_order || one.has_no_turn || one.receive == 0) continue;
    uint64_t &before = last[{one.from, one.to, one.tagged, one.tagged ? one.tag : 0}];
    EXPECT_LE(before, one.receive) << "message " << number << " has overtaken another one";
    before = one.receive;
  }
}

}  // namespace weft::conformance::rdm
