// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/outlet.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace weft::udp {
namespace {

bool is_full(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

msghdr message_to(const sdk::SockAddr &to, const iovec *iov, size_t count) {
  msghdr message{};
  message.msg_name = const_cast<sockaddr *>(to.c());
  message.msg_namelen = to.size();
  message.msg_iov = const_cast<iovec *>(iov);
  message.msg_iovlen = count;
  return message;
}

}  // namespace

void Outlet::open(int fd) {
  fd_ = fd;
  int none = 0;
  socklen_t size = sizeof none;
  // Kernels before 4.18 do not know the option.
  if (getsockopt(fd, SOL_UDP, UDP_SEGMENT, &none, &size) != 0) largest_segment_ = 0;
}

int Outlet::send(const sdk::SockAddr &to, const iovec *iov, size_t count) {
  const auto send = [&] {
    if (count == 1)
      return ::sendto(fd_, iov->iov_base, iov->iov_len, MSG_NOSIGNAL, to.c(), to.size());
    const msghdr message = message_to(to, iov, count);
    return ::sendmsg(fd_, &message, MSG_NOSIGNAL);
  };
  ssize_t n = send();
  if (n >= 0) return 0;
  if (stale_errors_ && !is_full(errno)) {
    n = send();
    const int error = errno;
    sink_.on_stale_error();
    if (n >= 0) return 0;
    errno = error;
  }
  return is_full(errno) ? -FI_EAGAIN : -errno;
}

bool Outlet::copy_into(Datagram &d) {
  if (d.copy_size < d.length) {
    d.copy.reset(new (std::nothrow) char[d.length]);
    d.copy_size = d.copy != nullptr ? d.length : 0;
    if (d.copy == nullptr) return false;
  }
  char *to = d.copy.get();
  for (uint32_t i = 0; i < d.count; ++i) {
    if (d.iov[i].iov_len != 0) std::memcpy(to, d.iov[i].iov_base, d.iov[i].iov_len);
    to += d.iov[i].iov_len;
  }
  d.iov[0] = {d.copy.get(), d.length};
  d.count = 1;
  return true;
}

Datagram *Outlet::next() {
  if (ring_ == nullptr) {
    ring_.reset(new (std::nothrow) std::array<Datagram, kCapacity>);
    if (ring_ == nullptr) return nullptr;
  }
  return &at(tail_);
}

bool Outlet::push(bool copy) {
  if (copy && !copy_into(at(tail_))) return false;
  ++tail_;
  return true;
}

// The number of datagrams from `first` on that can be one message for the kernel to cut: they have
// one destination and one length; the last may be shorter.
size_t Outlet::group_at(size_t first) {
  const Datagram &lead = at(first);
  const size_t segment = lead.length;
  if (segment == 0 || segment > largest_segment_ || first < singly_until_) return 1;
  size_t n = 1;
  for (size_t bytes = segment; first + n != tail_; ++n) {
    const Datagram &next = at(first + n);
    if (next.length == 0 || next.length > segment || bytes + next.length > kMaxGroup ||
        next.to != lead.to)
      break;
    bytes += next.length;
    if (next.length < segment) return n + 1;
  }
  return n;
}

// Builds the messages for all queued datagrams, and returns their number.
size_t Outlet::build() {
  constexpr size_t kControl = CMSG_SPACE(sizeof(uint16_t));
  size_t messages = 0, vectors = 0;
  for (size_t i = head_; i != tail_; ++messages) {
    const size_t n = group_at(i);
    iovec *const iov = &scratch_.iov[vectors];
    const Datagram &lead = at(i);
    for (size_t k = 0; k < n; ++k) {
      const Datagram &d = at(i + k);
      std::copy_n(d.iov, d.count, &scratch_.iov[vectors]);
      vectors += d.count;
    }
    msghdr &message = scratch_.messages[messages].msg_hdr;
    message = message_to(lead.to, iov, size_t(&scratch_.iov[vectors] - iov));
    if (n > 1) {
      char *const control = &scratch_.control[messages * kControl];
      message.msg_control = control;
      message.msg_controllen = kControl;
      cmsghdr header{};
      header.cmsg_level = SOL_UDP;
      header.cmsg_type = UDP_SEGMENT;
      header.cmsg_len = CMSG_LEN(sizeof(uint16_t));
      std::memset(control, 0, kControl);
      std::memcpy(control, &header, sizeof header);
      const auto segment = uint16_t(lead.length);
      std::memcpy(CMSG_DATA(reinterpret_cast<cmsghdr *>(control)), &segment, sizeof segment);
    }
    scratch_.datagrams[messages] = n;
    i += n;
  }
  return messages;
}

// The kernel refused to cut a message: its datagrams go again, one by one. If the first of them
// passes, the size was the reason.
bool Outlet::give_up_segments(size_t group, int error) {
  if (group == 1) return false;
  switch (error) {
    case EIO:  // the device cannot compute checksums
    case EOPNOTSUPP:
      largest_segment_ = 0;
      break;
    case EINVAL:  // larger than the route's MTU, or another reason
    case EMSGSIZE:
      suspect_ = at(head_).length;
      break;
    default:
      return false;
  }
  singly_until_ = head_ + group;
  return true;
}

int Outlet::run(const Datagram *own, int &own_error) {
  size_t again = SIZE_MAX;  // the datagram that was tried twice
  while (head_ != tail_) {
    const size_t messages = build();
    int sent;
    if (messages == 1) {
      sent = ::sendmsg(fd_, &scratch_.messages[0].msg_hdr, MSG_NOSIGNAL) < 0 ? -1 : 1;
    } else {
      sent = ::sendmmsg(fd_, scratch_.messages.data(), unsigned(messages), MSG_NOSIGNAL);
    }
    const int error = errno;
    if (sent <= 0 && is_full(error)) return -FI_EAGAIN;
    if (sent <= 0 && stale_errors_ && again != head_) {
      again = head_;
      sink_.on_stale_error();
      continue;
    }
    if (sent <= 0 && give_up_segments(scratch_.datagrams[0], error)) continue;
    const int result = sent > 0 ? 0 : error;
    if (result == 0 && suspect_ != 0) {
      if (scratch_.datagrams[0] == 1 && at(head_).length == suspect_)
        largest_segment_ = std::min(largest_segment_, suspect_ - 1);
      suspect_ = 0;
    }
    for (int i = 0; i < std::max(sent, 1); ++i) {
      if (result == 0 && scratch_.datagrams[size_t(i)] > 1) counters_.segmented_sends.add_alone();
      for (size_t k = scratch_.datagrams[size_t(i)]; k != 0; --k) {
        const Datagram &d = at(head_++);
        if (&d == own) {
          own_error = result;
        } else {
          sink_.on_sent(d, result);
        }
      }
    }
  }
  return 0;
}

int Outlet::flush() {
  int unused = 0;
  return run(nullptr, unused);
}

int Outlet::flush_with_last() {
  int own_error = 0;
  if (run(&at(tail_ - 1), own_error) == 0) return -own_error;
  --tail_;
  return -FI_EAGAIN;
}

bool Outlet::is_copy(const Datagram &d) {
  return d.length == 0 || (d.copy != nullptr && d.count == 1 && d.iov[0].iov_base == d.copy.get());
}

void Outlet::keep() {
  size_t kept = head_;
  for (size_t i = head_; i != tail_; ++i) {
    Datagram &d = at(i);
    if (!is_copy(d) && !copy_into(d)) {
      sink_.on_sent(d, ENOMEM);
      continue;
    }
    if (kept != i) std::swap(at(kept), d);
    ++kept;
  }
  tail_ = kept;
}

void Outlet::forget_borrowed() {
  size_t kept = head_;
  for (size_t i = head_; i != tail_; ++i) {
    if (!is_copy(at(i))) continue;
    if (kept != i) std::swap(at(kept), at(i));
    ++kept;
  }
  tail_ = kept;
}

}  // namespace weft::udp
