// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/fetches.h"

#include <rdma/fi_errno.h>
#include <weft/sdk/memory/iov.h>

#include <algorithm>
#include <utility>

namespace weft::rxm {

int Fetches::expose(RxMessage &m, Target &target) {
  const Connection &c = *m.connection;
  const sdk::Receive &r = *m.receive;
  for (size_t i = 0; i < r.count; ++i) {
    if (r.iov[i].iov_len == 0) continue;
    int err = 0;
    RmaVector &vector = target.vectors[target.count];
    Registration *const made = carrier_.expose(*c.link(), r.iov[i], FI_REMOTE_WRITE, vector, err);
    if (made == nullptr) {
      if (c.level() == 0) return err;
      // A weft peer writes nothing, and says so: only this receive has failed.
      conceal(m);
      m.failed = true;
      m.err = err;
      target.vectors[0] = {0, 0, kInvalidKey};
      target.count = 1;
      break;
    }
    m.registrations[m.exposed++] = made;
    vector.length = r.iov[i].iov_len;
    ++target.count;
  }
  m.received = wanted(m);
  return 0;
}

// Of one vector of the sender. 0: the carrier reads it.
ssize_t Fetches::read_vector(RxMessage &m, const RmaVector &from) {
  const Connection &c = *m.connection;
  const sdk::Receive &r = *m.receive;
  iovec iov[sdk::kIovLimit];
  void *desc[sdk::kIovLimit];
  const size_t count =
      sdk::slice(r.iov, r.desc(), r.count, m.received, size_t(from.length), iov, desc);
  for (size_t i = 0; i < count; ++i)
    if (desc[i] != nullptr) desc[i] = carrier_.inner_descriptor(desc[i]);
  if (c.state() != State::kConnected) return -FI_EAGAIN;
  ++m.tokens;
  const ssize_t rc = carrier_.read(*c.link(), iov, desc, count, &from, 1, FI_COMPLETION, &m);
  if (rc != 0) --m.tokens;
  return rc;
}

Fetches::Outcome Fetches::read(RxMessage &m) {
  const uint64_t want = wanted(m);
  while (m.received < want) {
    const RmaVector &vector = m.vectors[m.next_vector];
    const uint64_t n = std::min<uint64_t>(vector.length, want - m.received);
    if (n != 0) {
      const ssize_t rc = read_vector(m, {vector.address, n, vector.key});
      if (rc == -FI_EAGAIN) {
        m.waits = true;
        waiting_.push_back(&m);
        return {Step::kWaits};
      }
      if (is_link_error(rc)) return {Step::kLost, int(-rc)};
      if (rc != 0) {  // of this receive only: no memory, or it cannot be registered
        m.failed = true;
        if (m.err == 0) m.err = int(-rc);
        m.received = want;
        break;
      }
      m.received += n;
    }
    ++m.next_vector;
  }
  return {m.tokens == 0 ? Step::kAll : Step::kWaits};
}

Fetches::Outcome Fetches::on_read(RxMessage &m, int err) {
  --m.tokens;
  if (err != 0 && m.err == 0) m.err = err;
  if (m.tokens != 0) return {Step::kWaits};
  if (m.over && m.peeks) {
    m.over = false;
    return {Step::kPeekOver};
  }
  if (m.over) {
    m.received = 0;
    return {Step::kOver};
  }
  if (m.err != 0 && !m.failed) return {Step::kLost, m.err};
  return {m.received == wanted(m) && !m.waits ? Step::kAll : Step::kWaits};
}

bool Fetches::begin_peek(RxMessage &m, void *to, size_t n) {
  sdk::Receive *const r = firsts_.take();
  if (r == nullptr) return false;
  r->iov[0] = {to, n};
  r->count = 1;
  r->length = n;
  m.receive = r;
  m.peeks = true;
  return true;
}

void Fetches::end_peek(RxMessage &m) {
  firsts_.give(std::exchange(m.receive, nullptr));
  stop_waiting(m);
  m.peeks = false;
  m.received = 0;
  m.next_vector = 0;
}

void Fetches::stop_waiting(RxMessage &m) {
  if (std::exchange(m.waits, false)) std::erase(waiting_, &m);
}

}  // namespace weft::rxm
