// SPDX-License-Identifier: BSD-2-Clause
// Makes the descriptors of rdma-core's objects such that reading an event does not block: handlers
// of an engine must not.
//
// Example:
//    inline bool prepare(const ibv_comp_channel &channel) {
//      return make_nonblocking(channel.fd);  // false: errno says why
//    }
//
// Not for sockets: those are made so.
#ifndef WEFT_PLUGINS_VERBS_NONBLOCKING_H
#define WEFT_PLUGINS_VERBS_NONBLOCKING_H

#include <fcntl.h>
#include <infiniband/verbs.h>

namespace weft::verbs {

inline bool make_nonblocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

}  // namespace weft::verbs

#endif
