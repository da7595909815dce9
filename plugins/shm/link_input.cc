// SPDX-License-Identifier: BSD-2-Clause
// What a link takes: messages, their parts, and answers.
#include <algorithm>
#include <cerrno>

#include "plugins/shm/endpoint.h"
#include "plugins/shm/link.h"

namespace weft::shm {

// False: the record stays, because there is no room for it here; or the link is over.
bool Link::take_next(const Head &head) {
  if (head.type == uint8_t(Type::kMessage) && (head.flags & ~kTagged) == 0 &&
      head.size <= kMostContent && take_short(head)) [[likely]]
    return true;
  if (head.size > kMostContent) return violated("a record that is longer than any");
  uint8_t content[kMostContent];
  in_.read(head.size, content);
  const auto record = parse(head, {content, head.size}, in_.geometry());
  if (!record) return violated(text_of(record.error()));
  if (!take(*record)) {
    stalled_ = !over_;
    return false;
  }
  if (over_) return false;
  if (in_.take(lines_of(head.size), record->bytes())) wake();
  return true;
}

// A message that is all content, and has a receive: without a detour. False: nothing has happened.
bool Link::take_short(const Head &head) {
  sdk::Receiver &receiver = endpoint_.receiver();
  if (receiver.is_full()) return false;
  const bool tagged = (head.flags & kTagged) != 0;
  const sdk::Message message{
      .tagged = tagged, .source = peer_.source, .tag = tagged ? head.tag : 0, .length = head.size};
  sdk::Receive *const receive = receiver.match(message);
  if (receive == nullptr) return false;
  const size_t n = std::min<size_t>(head.size, receive->length);
  if (receive->count == 1) {
    in_.read(n, static_cast<uint8_t *>(receive->iov[0].iov_base));
  } else {
    uint8_t content[kMostContent];
    in_.read(n, content);
    sdk::scatter(receive->iov, receive->count, 0, content, n);
  }
  receiver.complete(*receive, message, n, 0);
  if (in_.take(lines_of(head.size), 0)) wake();
  return true;
}

bool Link::take(const Record &record) {
  switch (record.type) {
    case Type::kMessage:
      return take_message(record);
    case Type::kDone:
      return take_done(record);
    case Type::kPull:
      return take_pull(record);
    case Type::kData:
      return take_data(record);
    case Type::kWrite:
      return take_write(record);
    case Type::kRead:
      return take_read(record);
    case Type::kAtomic:
      return take_atomic(record);
  }
  return violated("a record of an unknown type");
}

// ---- messages ----

bool Link::take_message(const Record &record) {
  sdk::Receiver &receiver = endpoint_.receiver();
  if (receiver.is_full() || owes_too_much()) return false;
  const bool tagged = record.has(kTagged);
  const sdk::Message message{.tagged = tagged,
                             .has_data = record.has(kHasData),
                             .source = peer_.source,
                             .tag = tagged ? record.tag : 0,
                             .data = record.data,
                             .length = record.length};
  sdk::Receive *const receive = receiver.match(message);
  if (receive == nullptr) return save(message, record);
  place_message(*receive, message, record);
  return true;
}

void Link::place_message(sdk::Receive &receive, const sdk::Message &message, const Record &record) {
  if (record.has(kElsewhere))
    return fetch(receive, message, record.id, record.vectors, record.vector_count);
  const auto n = size_t(std::min<uint64_t>(record.length, receive.length));
  copy_out(record, 0, n, receive.iov, receive.count);
  endpoint_.receiver().complete(receive, message, n, 0);
  if (record.has(kAckTaken | kAckPlaced)) answer(record.id, 0);
}

// `n` bytes of the payload from `at` on, which is here.
void Link::copy_out(const Record &record, uint64_t at, uint64_t n, const iovec *iov, size_t count) {
  if (!record.has(kInBytes)) return sdk::scatter(iov, count, 0, record.inline_payload + at, n);
  uint64_t done = 0;
  in_.visit_bytes(size_t(at), size_t(n), [&](const uint8_t *from, size_t k) {
    sdk::scatter(iov, count, done, from, k);
    done += k;
  });
}

bool Link::save(const sdk::Message &message, const Record &record) {
  const uint64_t bytes = record.has(kElsewhere) ? 0 : record.length;
  Saved *const saved = endpoint_.save(*this, bytes);
  if (saved == nullptr) return false;
  saved->message = message;
  saved->id = record.id;
  saved->is_far = record.has(kElsewhere);
  saved->is_awaited = record.has(kAckPlaced);
  saved->vector_count = record.vector_count;
  std::copy_n(record.vectors, record.vector_count, saved->vectors);
  if (bytes != 0) {
    const iovec own{saved->bytes(), size_t(bytes)};
    copy_out(record, 0, bytes, &own, 1);
  }
  endpoint_.receiver().save(*saved);
  if (record.has(kAckTaken) && !record.has(kAckPlaced | kElsewhere)) answer(record.id, 0);
  return true;
}

void Link::fetch(sdk::Receive &receive, const sdk::Message &message, uint64_t id,
                 const FarVector *vectors, size_t count) {
  const uint64_t wanted = std::min<uint64_t>(message.length, receive.length);
  if (wanted == 0 || copies(wanted)) {
    int error = 0;
    if (wanted != 0) {
      error = read_far(process_.pid, receive.iov, receive.count, vectors, count, wanted);
      // If it is gone, another process may have had its number.
      if (!has_peer()) error = FI_ECONNRESET;
    }
    endpoint_.receiver().complete(receive, message, error == 0 ? size_t(wanted) : 0, error);
    return answer(id, uint16_t(error));
  }
  Fetch *const fetch = is_gone_ || over_ ? nullptr : endpoint_.fetches().take();
  if (fetch == nullptr) {
    const int error = is_gone_ || over_ ? FI_ECONNRESET : FI_ENOMEM;
    endpoint_.receiver().complete(receive, message, 0, error);
    return answer(id, uint16_t(error));
  }
  ++fetching_;
  fetch->link = this;
  fetch->receive = &receive;
  fetch->message = message;
  fetch->far_id = id;
  fetch->wanted = wanted;
  fetch->asked = fetch->arrived = 0;
  ask_for_parts(*fetch);
}

// ---- parts ----

void Link::ask_for_parts(Fetch &fetch) {
  const size_t part = in_.geometry().most_payload();
  while (fetch.asked < fetch.wanted && fetch.asked - fetch.arrived < kParts * part) {
    const uint64_t n = std::min<uint64_t>(part, fetch.wanted - fetch.asked);
    owe({.type = Type::kPull,
         .length = uint32_t(n),
         .tag = fetch.id(),
         .id = fetch.far_id,
         .offset = fetch.asked});
    fetch.asked += n;
  }
}

// `n` bytes of the next payload, to the vectors from `at` on.
void Link::scatter_bytes(const iovec *iov, size_t count, uint64_t at, uint64_t n) {
  in_.visit_bytes(0, size_t(n), [&](const uint8_t *from, size_t k) {
    sdk::scatter(iov, count, at, from, k);
    at += k;
  });
}

void Link::end_fetch(Fetch &fetch, uint16_t status) {
  sdk::Receive *const receive = fetch.receive;
  const sdk::Message message = fetch.message;
  const uint64_t id = fetch.far_id, arrived = fetch.arrived;
  Region regions[kMostVectors];
  std::copy_n(fetch.regions, kMostVectors, regions);
  const size_t region_count = fetch.region_count;
  endpoint_.fetches().give(fetch);
  --fetching_;
  if (receive == nullptr) return end_write(regions, region_count, message, id, status);
  endpoint_.receiver().complete(*receive, message, size_t(arrived), status);
  answer(id, status);
}

bool Link::take_pull(const Record &record) {
  if (owes_too_much()) return false;
  const Operation *const op = endpoint_.operations().find(record.id);
  const bool is_far = op != nullptr && op->link == this && op->is_flying &&
                      (op->kind == Operation::Kind::kSend || op->kind == Operation::Kind::kWrite);
  if (!is_far || record.offset > op->length || record.length > op->length - record.offset)
    return violated("a request for what was not offered");
  owe({.type = Type::kData,
       .length = uint32_t(record.length),
       .tag = record.tag,
       .id = record.id,
       .offset = record.offset});
  return true;
}

bool Link::take_data(const Record &record) {
  if (!record.has(kForFetch)) {
    Operation *const op = endpoint_.operations().find(record.tag);
    if (op == nullptr || op->link != this || !op->is_flying)
      return violated("data that was not asked for");
    return take_part(*op, record);
  }
  Fetch *const fetch = endpoint_.fetches().find(record.tag);
  // Parts that were asked for may come after another one has failed.
  if (fetch == nullptr || fetch->link != this) return true;
  if (record.status != 0) {
    end_fetch(*fetch, uint16_t(error_of(record.status)));
    return true;
  }
  const uint64_t due =
      std::min<uint64_t>(in_.geometry().most_payload(), fetch->wanted - fetch->arrived);
  if (record.length != due) return violated("a part of another length than was asked for");
  uint16_t status = 0;
  if (fetch->receive != nullptr) {
    scatter_bytes(fetch->receive->iov, fetch->receive->count, fetch->arrived, due);
  } else {
    iovec iov[kMostPieces];
    const ssize_t found = endpoint_.resolve(fetch->regions, fetch->region_count, FI_REMOTE_WRITE,
                                            fetch->arrived, due, iov, kMostPieces);
    if (found < 0) status = uint16_t(-found);
    if (found > 0) scatter_bytes(iov, size_t(found), 0, due);
  }
  if (status != 0) {
    end_fetch(*fetch, status);
    return true;
  }
  fetch->arrived += due;
  if (fetch->arrived == fetch->wanted) {
    end_fetch(*fetch, 0);
  } else {
    ask_for_parts(*fetch);
  }
  return true;
}

bool Link::take_done(const Record &record) {
  Operation *const op = endpoint_.operations().find(record.tag);
  if (op == nullptr || op->link != this || !op->is_flying)
    return violated("an answer to what was not asked");
  if (record.status == kInParts && op->kind == Operation::Kind::kRead && !op->in_parts) {
    reads_in_parts_ = op->in_parts = true;
    op->asked = op->answered = 0;
    ask_for_parts(*op);
    return true;
  }
  flying_.remove(*op);
  endpoint_.finish(*op, error_of(record.status));
  return true;
}

}  // namespace weft::shm
