// SPDX-License-Identifier: BSD-2-Clause
// Operations for a fid that supports none. All members of its fi_ops are set, so that callers need
// not check them.
//
// Example:
//    int close_mine(struct fid *fid);
//    fi_ops ops = {.size = sizeof(fi_ops),
//                  .close = close_mine,
//                  .bind = weft::no_bind,
//                  .control = weft::no_control,
//                  .ops_open = weft::no_ops_open,
//                  .tostr = weft::plain_tostr,
//                  .ops_set = weft::no_ops_set};
//
// Not for objects of plugins: the SDK has such operations of its own.
#ifndef WEFT_CORE_API_NO_OPS_H
#define WEFT_CORE_API_NO_OPS_H

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <cstdio>

namespace weft {

inline int no_bind(struct fid *, struct fid *, uint64_t) {
  return -FI_ENOSYS;
}
inline int no_control(struct fid *, int, void *) {
  return -FI_ENOSYS;
}
inline int no_ops_open(struct fid *, const char *, uint64_t, void **, void *) {
  return -FI_ENOSYS;
}
inline int no_ops_set(struct fid *, const char *, uint64_t, void *, void *) {
  return -FI_ENOSYS;
}
inline int plain_tostr(const struct fid *fid, char *buf, size_t len) {
  std::snprintf(buf, len, "fid: %p\n", static_cast<const void *>(fid));
  return 0;
}

}  // namespace weft

#endif
