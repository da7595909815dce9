// SPDX-License-Identifier: BSD-2-Clause
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "tests/conformance/random_program.h"

namespace weft::conformance {
namespace {

using State = RandomSlot::State;

constexpr size_t kMostEntries = 4;

size_t entry_bytes(enum fi_cq_format format) {
  switch (format) {
    case FI_CQ_FORMAT_MSG:
      return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
      return sizeof(fi_cq_data_entry);
    default:
      return sizeof(fi_cq_tagged_entry);
  }
}

struct Entries {  // of any format
  alignas(fi_cq_tagged_entry) uint8_t bytes[kMostEntries * sizeof(fi_cq_tagged_entry)] = {};
};

}  // namespace

// After a read said `n`.
void RandomProgram::take(fid_cq *cq, ssize_t n, const uint8_t *entries) {
  const size_t bytes = entry_bytes(options_.tx_cq.format);
  for (ssize_t i = 0; i < n; ++i) {
    fi_cq_tagged_entry entry{};
    std::memcpy(&entry, entries + size_t(i) * bytes, bytes);
    Done done;
    done.context = entry.op_context;
    done.flags = entry.flags;
    done.len = entry.len;
    done.tag = entry.tag;
    model_.completed(done);
  }
  if (n != -FI_EAVAIL) return;
  fi_cq_err_entry error{};
  const ssize_t m = calls_("fi_cq_readerr", [&] { return fi_cq_readerr(cq, &error, 0); });
  ASSERT_EQ(m, 1) << "fi_cq_read says -FI_EAVAIL";
  Done done;
  done.context = error.op_context;
  done.flags = error.flags;
  done.err = error.err;
  model_.completed(done);
}

// False: nothing was there.
bool RandomProgram::read(fid_cq *cq) {
  Entries entries;
  const size_t count = 1 + below(kMostEntries);
  const ssize_t n = calls_(
      "fi_cq_read", [&] { return fi_cq_read(cq, entries.bytes, count); }, int64_t(count));
  EXPECT_TRUE(n == -FI_EAGAIN || n == -FI_EAVAIL || (n > 0 && n <= ssize_t(count)))
      << "fi_cq_read: " << error_text(n);
  take(cq, n, entries.bytes);
  return n != -FI_EAGAIN;
}

void RandomProgram::on_event(ssize_t n, uint32_t type, const fi_eq_cm_entry &entry) {
  struct fid *fid = entry.fid;
  bool is_error = false;
  if (n == -FI_EAVAIL) {
    fi_eq_err_entry error{};
    ASSERT_GE(calls_("fi_eq_readerr", [&] { return fi_eq_readerr(app_.eq, &error, 0); }), 0);
    fid = error.fid;
    is_error = true;
  }
  for (const auto &slot : model_.slots) {
    if (!slot->ep || &slot->ep.get()->fid != fid) continue;
    if (!is_error && type == FI_CONNECTED) {
      ASSERT_EQ(slot->state, State::kConnecting);
      slot->state = State::kOpen;
      return;
    }
    const bool is_dead = model_.is_dead(slot->to->index, slot->life);
    ASSERT_TRUE(is_dead) << "the connection to a living peer ends, event " << type;
    ASSERT_NE(slot->state, State::kEnded) << "it ends twice";
    slot->state = State::kEnded;
    return;
  }
  FAIL() << "an event of nothing, " << type;
}

bool RandomProgram::read_event() {
  if (!app_.eq) return false;
  alignas(fi_eq_cm_entry) char buffer[sizeof(fi_eq_cm_entry) + 256] = {};
  uint32_t type = 0;
  const ssize_t n =
      calls_("fi_eq_read", [&] { return fi_eq_read(app_.eq, &type, buffer, sizeof buffer, 0); });
  if (n == -FI_EAGAIN) return false;
  EXPECT_TRUE(n == -FI_EAVAIL || n >= ssize_t(sizeof(fi_eq_cm_entry))) << error_text(n);
  on_event(n, type, *reinterpret_cast<const fi_eq_cm_entry *>(buffer));
  return true;
}

void RandomProgram::read_all() {
  for (const auto &process : processes_)
    for (Host &host : model_.hosts)
      if (host.is_alive && host.process == process.get()) process->advance();
  while (read_event() && !::testing::Test::HasFailure()) {
  }
  for (fid_cq *cq : {tx_cq_.get(), rx_cq_.get()})
    while (cq != nullptr && !::testing::Test::HasFailure() && read(cq)) {
    }
}

// One blocking call. Without a timeout, signals end it if nothing else does.
void RandomProgram::block() {
  static constexpr int kTimeouts[] = {0, 1, 5};
  const bool is_endless = calls_.is_interrupting() && one_in(2);
  const int timeout = is_endless ? -1 : kTimeouts[below(std::size(kTimeouts))];
  const auto is_nothing = [&](ssize_t rc) {
    return rc == -FI_EINTR || (timeout >= 0 && (rc == -FI_EAGAIN || rc == -FI_ETIMEDOUT));
  };
  const size_t choice = below(4);
  if (choice == 0 && wait_set_) {
    const ssize_t rc = calls_.blocking(
        "fi_wait", [&] { return fi_wait(wait_set_, timeout); }, timeout);
    EXPECT_TRUE(rc == 0 || is_nothing(rc)) << "fi_wait: " << error_text(rc);
    return;
  }
  if (choice == 1 && app_.eq) {
    alignas(fi_eq_cm_entry) char buffer[sizeof(fi_eq_cm_entry) + 256] = {};
    uint32_t type = 0;
    const ssize_t n = calls_.blocking(
        "fi_eq_sread",
        [&] { return fi_eq_sread(app_.eq, &type, buffer, sizeof buffer, timeout, 0); }, timeout);
    if (is_nothing(n)) return;
    EXPECT_TRUE(n == -FI_EAVAIL || n >= ssize_t(sizeof(fi_eq_cm_entry))) << error_text(n);
    on_event(n, type, *reinterpret_cast<const fi_eq_cm_entry *>(buffer));
    return;
  }
  Slot *const slot = some_slot();
  if (choice == 2 && has_counters_ && slot != nullptr && slot->counter) {
    fid_cntr *const counter = slot->counter;
    const uint64_t value = calls_("fi_cntr_read", [&] { return fi_cntr_read(counter); });
    const int rc = int(calls_.blocking(
        "fi_cntr_wait", [&] { return fi_cntr_wait(counter, value + 1 + below(3), timeout); },
        timeout));
    EXPECT_TRUE(rc == 0 || rc == -FI_EAVAIL || is_nothing(rc))
        << "fi_cntr_wait: " << error_text(rc);
    return;
  }
  const bool is_tx = one_in(2);
  const enum fi_wait_obj wait = is_tx ? tx_wait_ : rx_wait_;
  if (wait == FI_WAIT_NONE || wait == FI_WAIT_SET) return;
  fid_cq *const cq = is_tx || !rx_cq_ ? tx_cq_ : rx_cq_;
  Entries entries;
  const size_t count = 1 + below(kMostEntries);
  const ssize_t n = calls_.blocking(
      "fi_cq_sread", [&] { return fi_cq_sread(cq, entries.bytes, count, nullptr, timeout); },
      timeout);
  EXPECT_TRUE(n > 0 || n == -FI_EAVAIL || is_nothing(n)) << "fi_cq_sread: " << error_text(n);
  take(cq, n, entries.bytes);
}

void RandomProgram::until(const char *what, const std::function<bool()> &predicate) {
  const Deadline deadline;
  while (!::testing::Test::HasFailure()) {
    read_all();
    if (predicate()) return;
    if (one_in(4)) block();
    for (const auto &slot : model_.slots) {
      // What a peer has sent before its end is read first, and needs receives.
      if (slot->state == State::kEnded && slot->receives[0] == 0) receive(*slot, false);
      if (slot->state != State::kOpen) continue;
      for (const bool is_tagged : {false, true})
        if (slot->receives[is_tagged] <
            slot->echoes[0][is_tagged] + slot->echoes[1][is_tagged] + (is_tagged ? 0 : 1))
          receive(*slot, is_tagged);
    }
    if (deadline.passed()) {
      ADD_FAILURE() << what << " never comes; under way are" << model_.describe();
      return;
    }
  }
}

}  // namespace weft::conformance
