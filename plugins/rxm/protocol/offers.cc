// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/offers.h"

#include <rdma/fi_errno.h>
#include <weft/sdk/memory/iov.h>

namespace weft::rxm {

ssize_t Offers::describe(const Connection &c, TxOp &op) {
  if (op.vector_count != 0) return 0;  // in an attempt that got -FI_EAGAIN
  RmaVector vectors[kMaxVectors];
  uint8_t count = 0;
  for (size_t i = 0; i < std::max<size_t>(op.count, 1); ++i) {
    iovec iov = i < op.count ? op.iov[i] : iovec{};
    if (iov.iov_len == 0 && (op.length != 0 || i != 0)) continue;
    const size_t length = iov.iov_len;
    // Memory of 0 bytes cannot be registered: register a byte of the header instead.
    if (length == 0) iov = {&op.header, 1};
    int err = 0;
    if (settings_.rendezvous_write) {
      // Once the peer has been asked for room, a failure here could only end the connection.
      if (settings_.descriptors && length != 0 && op.desc[i] == nullptr) {
        Registration *const r = carrier_.enlist(iov, op.desc[i], err);
        if (err != 0) {
          conceal(op);
          return -err;
        }
        if (r != nullptr) {
          op.registrations[op.exposed++] = r;
          op.enlisted |= uint8_t(1 << i);
        }
      }
      vectors[count++] = {0, length, kInvalidKey};
      continue;
    }
    Registration *r = carrier_.expose(*c.link(), iov, FI_REMOTE_READ, vectors[count], err);
    if (r == nullptr) {
      conceal(op);
      return -err;
    }
    op.registrations[op.exposed++] = r;
    vectors[count++].length = length;
  }
  encode_vectors({vectors, count}, op.wire);
  op.vector_count = count;
  return 0;
}

void Offers::conceal(TxOp &op) {
  while (op.exposed != 0) carrier_.conceal(*op.registrations[--op.exposed]);
  for (size_t i = 0; op.enlisted != 0; ++i, op.enlisted >>= 1)
    if (op.enlisted & 1) op.desc[i] = nullptr;
}

void Offers::aim(TxOp &op, std::span<const RmaVector> target) {
  uint64_t room = 0;
  for (const RmaVector &vector : target) room += vector.length;
  std::ranges::copy(target, op.vectors);
  op.vector_count = uint8_t(target.size());
  op.writing = true;
  op.written = 0;
  op.target = std::min<uint64_t>(room, op.length);
  op.next_vector = 0;
}

ssize_t Offers::write(const Connection &c, TxOp &op) {
  void *const *const descriptors = op.descriptors(settings_.descriptors);
  while (op.written < op.target) {
    const RmaVector &vector = op.vectors[op.next_vector];
    const uint64_t n = std::min<uint64_t>(vector.length, op.target - op.written);
    if (n != 0) {
      iovec iov[sdk::kIovLimit];
      void *desc[sdk::kIovLimit];
      const size_t count = sdk::slice(op.iov, descriptors, op.count, op.written, n, iov, desc);
      const RmaVector to{vector.address, n, vector.key};
      const uint64_t mark = op.written + n == op.target && !waits(c, op) ? op.mark() : 0;
      ++op.tokens;
      const ssize_t rc =
          carrier_.write(*c.link(), iov, desc, count, &to, 1, 0, FI_COMPLETION | mark, &op);
      if (rc != 0) --op.tokens;
      if (rc == -FI_EAGAIN) waiting_.push_back(&op);
      if (rc != 0) return rc;
      op.written += n;
    }
    ++op.next_vector;
  }
  return 0;
}

}  // namespace weft::rxm
