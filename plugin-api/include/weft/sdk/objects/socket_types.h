// SPDX-License-Identifier: BSD-2-Clause
// Socket endpoints (fi_endpoint.3, SOCKET ENDPOINTS): FI_EP_SOCK_STREAM and FI_EP_SOCK_DGRAM, which
// the API had until 2.0. Its header has no names for them any more, but programs that were built
// before ask for them by their numbers.
//
// Example:
//    bool is_wanted(const fi_info *hints) {
//      return hints != nullptr && hints->ep_attr != nullptr &&
//             type_of(*hints->ep_attr) == kSockStream;
//    }
//
// The enum has no such values, so nothing reads or writes them as one.
#ifndef WEFT_SDK_OBJECTS_SOCKET_TYPES_H
#define WEFT_SDK_OBJECTS_SOCKET_TYPES_H

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

namespace weft::sdk {

inline constexpr int kSockStream = 4, kSockDgram = 5;

inline int type_of(const fi_ep_attr &attr) {
  int type;
  std::memcpy(&type, &attr.type, sizeof type);
  return type;
}
inline void set_type(fi_ep_attr &attr, int type) {
  static_assert(sizeof attr.type == sizeof type);
  std::memcpy(&attr.type, &type, sizeof type);
}
inline bool asks_for(const fi_info *hints, int type) {
  return hints != nullptr && hints->ep_attr != nullptr && type_of(*hints->ep_attr) == type;
}

// What a call of a socket endpoint returns for an errno of the system.
inline ssize_t socket_error(int error) {
  if (error == EWOULDBLOCK || error == ENOBUFS) return -FI_EAGAIN;
  return error == EPIPE ? -FI_ESHUTDOWN : -error;
}

// The calls of fi_msg.3 that socket endpoints have, as two: E::transmit(iov, count, dest, flags)
// and E::receive(iov, count, flags). They return bytes, or -FI_E....
template <class E>
class SocketOps {
 public:
  static constexpr size_t kIovLimit = 16;

  ssize_t send(const void *buf, size_t len, void *, fi_addr_t dest, void *) {
    const iovec one{const_cast<void *>(buf), len};
    return put(&one, 1, dest, 0);
  }
  ssize_t sendv(const struct iovec *iov, void **, size_t count, fi_addr_t dest, void *) {
    return put(iov, count, dest, 0);
  }
  ssize_t sendmsg(const struct fi_msg *msg, uint64_t flags) {
    if (msg == nullptr) return -FI_EINVAL;
    if (flags & ~uint64_t(FI_MORE | FI_INJECT | FI_COMPLETION)) return -FI_EBADFLAGS;
    return put(msg->msg_iov, msg->iov_count, msg->addr, flags);
  }
  ssize_t inject(const void *buf, size_t len, fi_addr_t dest) {
    const iovec one{const_cast<void *>(buf), len};
    return put(&one, 1, dest, 0);
  }
  ssize_t recv(void *buf, size_t len, void *, fi_addr_t, void *) {
    const iovec one{buf, len};
    return take(&one, 1, 0);
  }
  ssize_t recvv(const struct iovec *iov, void **, size_t count, fi_addr_t, void *) {
    return take(iov, count, 0);
  }
  ssize_t recvmsg(const struct fi_msg *msg, uint64_t flags) {
    if (msg == nullptr) return -FI_EINVAL;
    if (flags & ~uint64_t(FI_PEEK | FI_MORE | FI_COMPLETION)) return -FI_EBADFLAGS;
    return take(msg->msg_iov, msg->iov_count, flags);
  }

 private:
  E &self() { return static_cast<E &>(*this); }
  static bool valid(const iovec *iov, size_t count) {
    if (count > kIovLimit || (iov == nullptr && count != 0)) return false;
    for (size_t i = 0; i < count; ++i)
      if (iov[i].iov_base == nullptr && iov[i].iov_len != 0) return false;
    return true;
  }
  ssize_t put(const iovec *iov, size_t count, fi_addr_t dest, uint64_t flags) {
    return valid(iov, count) ? self().transmit(iov, count, dest, flags) : -FI_EINVAL;
  }
  ssize_t take(const iovec *iov, size_t count, uint64_t flags) {
    return valid(iov, count) ? self().receive(iov, count, flags) : -FI_EINVAL;
  }
};

}  // namespace weft::sdk

#endif
