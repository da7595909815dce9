// SPDX-License-Identifier: BSD-2-Clause
// Parts of vectors of memory.
//
// Example:
//    void copy(const iovec *iov, size_t count, uint8_t *bytes, uint64_t n) {
//      gather(bytes, iov, count, 100, n);   // n bytes from offset 100 of the vectors
//      scatter(iov, count, 100, bytes, n);  // the opposite
//      iovec parts[kIovLimit];
//      size_t k = slice(iov, count, 100, n, parts);  // k vectors, which are these n bytes
//      (void)k;
//    }
//
// What lies beyond the vectors' end is left out.
#ifndef WEFT_SDK_MEMORY_IOV_H
#define WEFT_SDK_MEMORY_IOV_H

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::sdk {

// Vectors of memory in one operation, local or remote (iov_limit, rma_iov_limit).
inline constexpr size_t kIovLimit = 4;

// Calls visit(uint8_t *, size_t) for each piece of [offset, offset + n) of the vectors.
template <class F>
void pieces(const iovec *iov, size_t count, uint64_t offset, uint64_t n, F visit) {
  for (size_t i = 0; i < count && n != 0; ++i) {
    if (offset >= iov[i].iov_len) {
      offset -= iov[i].iov_len;
      continue;
    }
    const auto k = size_t(std::min<uint64_t>(n, iov[i].iov_len - offset));
    visit(static_cast<uint8_t *>(iov[i].iov_base) + offset, k);
    offset = 0;
    n -= k;
  }
}

inline void gather(void *out, const iovec *iov, size_t count, uint64_t offset, uint64_t n) {
  auto *to = static_cast<uint8_t *>(out);
  pieces(iov, count, offset, n, [&](const uint8_t *at, size_t k) {
    std::memcpy(to, at, k);
    to += k;
  });
}

inline void scatter(const iovec *iov, size_t count, uint64_t offset, const void *in, uint64_t n) {
  auto *from = static_cast<const uint8_t *>(in);
  pieces(iov, count, offset, n, [&](uint8_t *at, size_t k) {
    std::memcpy(at, from, k);
    from += k;
  });
}

// Writes the vectors of these n bytes to `out`, which has room for `count`.
inline size_t slice(const iovec *iov, size_t count, uint64_t offset, uint64_t n, iovec *out) {
  size_t made = 0;
  pieces(iov, count, offset, n, [&](uint8_t *at, size_t k) { out[made++] = {at, k}; });
  return made;
}

// The same, with the descriptors of the vectors; `desc` may be null, then `desc_out` gets nulls.
inline size_t slice(const iovec *iov, void *const *desc, size_t count, uint64_t offset, uint64_t n,
                    iovec *out, void **desc_out) {
  size_t made = 0;
  for (size_t i = 0; i < count && n != 0; ++i) {
    if (offset >= iov[i].iov_len) {
      offset -= iov[i].iov_len;
      continue;
    }
    const auto k = size_t(std::min<uint64_t>(n, iov[i].iov_len - offset));
    desc_out[made] = desc != nullptr ? desc[i] : nullptr;
    out[made++] = {static_cast<uint8_t *>(iov[i].iov_base) + offset, k};
    offset = 0;
    n -= k;
  }
  return made;
}

}  // namespace weft::sdk

#endif
