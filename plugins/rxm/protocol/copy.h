// SPDX-License-Identifier: BSD-2-Clause
// Parts of vectors of memory.
//
//   gather(bytes, iov, count, offset, n);          // n bytes from `offset` of the vectors
//   scatter(iov, count, offset, bytes, n);         // the opposite
//   size_t k = slice(iov, count, offset, n, out);  // vectors that are these n bytes
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_COPY_H
#define WEFT_PLUGINS_RXM_PROTOCOL_COPY_H

#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace weft::rxm {

// Calls visit(char *, size_t) for each piece of [offset, offset + n).
template <class F>
void pieces(const iovec *iov, size_t count, uint64_t offset, uint64_t n, F visit) {
  for (size_t i = 0; i < count && n != 0; ++i) {
    if (offset >= iov[i].iov_len) {
      offset -= iov[i].iov_len;
      continue;
    }
    const auto k = size_t(std::min<uint64_t>(n, iov[i].iov_len - offset));
    visit(static_cast<char *>(iov[i].iov_base) + offset, k);
    offset = 0;
    n -= k;
  }
}

inline void gather(void *out, const iovec *iov, size_t count, uint64_t offset, uint64_t n) {
  auto *to = static_cast<char *>(out);
  pieces(iov, count, offset, n, [&](const char *at, size_t k) {
    std::memcpy(to, at, k);
    to += k;
  });
}

inline void scatter(const iovec *iov, size_t count, uint64_t offset, const void *in, uint64_t n) {
  auto *from = static_cast<const char *>(in);
  pieces(iov, count, offset, n, [&](char *at, size_t k) {
    std::memcpy(at, from, k);
    from += k;
  });
}

inline size_t slice(const iovec *iov, size_t count, uint64_t offset, uint64_t n, iovec *out) {
  size_t made = 0;
  pieces(iov, count, offset, n, [&](char *at, size_t k) { out[made++] = {at, k}; });
  return made;
}

}  // namespace weft::rxm

#endif
