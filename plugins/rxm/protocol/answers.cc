// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/answers.h"

#include <utility>

namespace weft::rxm {

namespace {

// A stranger gets this fraction of Settings::max_controls and Settings::owed_limit.
constexpr size_t kStrangersPart = 16;
constexpr size_t kKeptResult = 256;  // bytes of result memory that a Control keeps in the pool

size_t part_of(const Connection &c) {
  return c.peer().is_stranger() ? kStrangersPart : 1;
}

}  // namespace

Control *Answers::take(Connection &c, PacketType type, uint64_t id) {
  Control *const control = pool_.take();
  if (control == nullptr) return nullptr;
  control->kind = Token::Kind::kControl;
  control->connection = &c;
  ++c.answers.count_;
  control->next = nullptr;
  control->told = false;
  control->more.clear();
  control->owed = 0;
  control->length = kHeaderSize;
  control->header = header_of(type, 0);
  control->header.message = id;
  return control;
}

Control *Answers::make(Connection &c, PacketType type, uint64_t id) {
  return c.answers.count_ < settings_.max_controls / part_of(c) ? take(c, type, id) : nullptr;
}

void Answers::free(Control &control) {
  AnswerQueue &queue = control.connection->answers;
  --queue.count_;
  queue.owed_ -= control.owed;
  if (control.more.capacity() > kKeptResult) std::vector<uint8_t>().swap(control.more);
  pool_.give(&control);
}

int Answers::queue(Connection &c, Control &control) {
  AnswerQueue &queue = c.answers;
  control.owed = control.more.size();
  queue.owed_ += control.owed;
  const bool too_much = queue.owed_ > settings_.owed_limit / part_of(c);
  if (!too_much && c.state() == State::kConnected && queue.empty()) {
    const ssize_t rc = send(c, control);
    if (rc == 0) return 0;
    if (rc != -FI_EAGAIN) {
      free(control);
      return int(-rc);
    }
    sender_.block(c);
  }
  if (c.state() == State::kEnded) {
    free(control);
    return 0;
  }
  (queue.first_ != nullptr ? queue.last_->next : queue.first_) = &control;
  queue.last_ = &control;
  return too_much ? kTooMuch : 0;
}

bool Answers::ask_to_part(Connection &c) {
  Control *const control = take(c, PacketType::kPart, 0);
  if (control == nullptr) return false;
  control->header.control_data = uint64_t(Parting::kAsk);
  if (send(c, *control) == 0) return true;
  free(*control);
  return false;
}

ssize_t Answers::flush(Connection &c) {
  AnswerQueue &queue = c.answers;
  while (queue.first_ != nullptr) {
    Control *const control = queue.first_;
    const bool sends = !control->told || c.may_be_told();  // now its level is known
    if (const ssize_t rc = sends ? send(c, *control) : 0; rc != 0) return rc;
    queue.first_ = control->next;
    if (!sends) free(*control);
  }
  return 0;
}

void Answers::drop(Connection &c) {
  while (Control *const control = c.answers.first_) {
    c.answers.first_ = control->next;
    free(*control);
  }
}

ssize_t Answers::send(Connection &c, Control &control) {
  control.header.connection = c.peer_slot();
  const iovec iov[2] = {{&control.header, control.length},
                        {control.more.data(), control.more.size()}};
  const size_t total = control.length + control.more.size();
  const size_t count = control.more.empty() ? 1 : 2;
  if (total > settings_.inject_limit) return sender_.send(c, iov, count, FI_COMPLETION, &control);
  uint64_t flags = FI_INJECT;
  if (control.told && sender_.tells(c)) flags |= Carrier::kLater;
  const ssize_t rc = sender_.send(c, iov, count, flags, nullptr);
  // flush() reads control.next afterwards: the pool has not handed the object out again by then.
  if (rc == 0) free(control);
  return rc;
}

}  // namespace weft::rxm
