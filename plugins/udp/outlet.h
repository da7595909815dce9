// SPDX-License-Identifier: BSD-2-Clause
// Outlet: datagrams on their way into a socket. One alone goes out by one system call; those that
// are announced with FI_MORE are collected, and leave by one sendmmsg, in which neighbours with one
// destination and one size are a single message that the kernel cuts up (UDP_SEGMENT).
//
//   Outlet outlet(sink, scratch, stats, offload);
//   outlet.open(fd);
//   if (!(flags & FI_MORE) && outlet.empty()) return outlet.send(peer, iov, count);   // 0, -errno
//   if (Datagram *d = outlet.next()) { d->to = peer; ...; outlet.push(copy); }   // while !full()
//   int rc = outlet.flush();                     // 0, or -FI_EAGAIN: the socket takes no more
//   outlet.keep();                               // from now on it has copies of what is left
//
// Segments that do not fit the route's MTU, and devices that cannot cut, are found out by the
// kernel's answer, and sent as they were. It knows no endpoint, takes no lock, and makes no
// progress by itself.
#ifndef WEFT_PLUGINS_UDP_OUTLET_H
#define WEFT_PLUGINS_UDP_OUTLET_H

#include <rdma/fi_endpoint.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <weft/sdk/address.h>
#include <weft/sdk/iov.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "plugins/udp/settings.h"

namespace weft::udp {

struct Datagram {
  sdk::SockAddr to;
  iovec iov[sdk::kIovLimit];
  uint32_t count = 0;
  bool report = false;
  size_t length = 0;
  void *context = nullptr;
  // A copy of the bytes, when iov is not the application's memory any more. Kept for the next one.
  std::unique_ptr<char[]> copy{};
  size_t copy_size = 0;
};

class OutletSink {
 public:
  // `error`: 0, or the socket's errno. `datagram` is about to be forgotten.
  virtual void on_sent(const Datagram &datagram, int error) = 0;
  // After expect_errors(): a call was answered with what belongs to an earlier datagram, perhaps.
  virtual void on_stale_error() {}

 protected:
  ~OutletSink() = default;
};

class Outlet {
 public:
  static constexpr size_t kCapacity = 64;
  // Bytes of the datagrams of one message to the kernel: what IPv4 and IPv6 can carry.
  static constexpr size_t kMaxGroup = 65000;

  // What a flush needs while it lasts; shared by all outlets of a domain.
  struct Scratch {
    std::array<mmsghdr, kCapacity> messages;
    std::array<size_t, kCapacity> datagrams;  // of each message
    std::array<iovec, kCapacity * sdk::kIovLimit> iov;
    alignas(cmsghdr) std::array<char, kCapacity * CMSG_SPACE(sizeof(uint16_t))> control;
  };

  Outlet(OutletSink &sink, Scratch &scratch, Stats &stats, bool offload)
      : sink_(sink), scratch_(scratch), stats_(stats), largest_segment_(offload ? SIZE_MAX : 0) {}

  void open(int fd);
  // The socket keeps errors of datagrams that left long ago, and answers the next call with them.
  void expect_errors() { stale_errors_ = true; }

  // At once: 0 or -errno.
  int send(const sdk::SockAddr &to, const iovec *iov, size_t count);

  bool empty() const { return head_ == tail_; }
  bool full() const { return tail_ - head_ == kCapacity; }
  size_t size() const { return tail_ - head_; }

  // The place of the next datagram, to be filled in but for `copy`; null: no memory. Not while
  // full().
  Datagram *next();
  // Takes what was filled in; the sink will hear of it. `copy`: its bytes are the caller's again
  // when this returns. False: no memory.
  bool push(bool copy);
  // What fits goes out, oldest first. Datagrams that fail are reported and do not hold up others.
  // 0: empty now; -FI_EAGAIN.
  int flush();
  // The same; but the newest is the caller's, who is told its fate by the result: 0, -errno, or
  // -FI_EAGAIN: it was not sent and is not in here any more.
  int flush_with_last();
  // Whatever is left is read from copies from now on. What there is no memory for is dropped, with
  // an error.
  void keep();
  // Forgets, without a word, what it has no copy of: for the end, when the memory may be gone.
  void forget_borrowed();

 private:
  Datagram &at(size_t i) { return (*ring_)[i % kCapacity]; }
  size_t group_at(size_t first);
  size_t build();
  bool give_up_segments(size_t group, int error);
  int run(const Datagram *own, int &own_error);
  static bool is_copy(const Datagram &datagram);
  static bool copy_into(Datagram &datagram);

  OutletSink &sink_;
  Scratch &scratch_;
  Stats &stats_;
  int fd_ = -1;
  bool stale_errors_ = false;
  // Comes into being with the first FI_MORE.
  std::unique_ptr<std::array<Datagram, kCapacity>> ring_;
  size_t head_ = 0, tail_ = 0;
  size_t largest_segment_;   // that the kernel was not seen to refuse
  size_t singly_until_ = 0;  // datagrams before this place go one by one
  size_t suspect_ = 0;  // a segment size that was refused: if one alone passes, it was the size
};

}  // namespace weft::udp

#endif
