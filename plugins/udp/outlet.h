// SPDX-License-Identifier: BSD-2-Clause
// Outlet: sends datagrams. A single one goes out by one system call. Those with FI_MORE are
// collected and leave by one sendmmsg. In it, neighbours with one destination and one size are a
// single message that the kernel cuts into datagrams (UDP_SEGMENT).
//
// Example:
//    #include <rdma/fi_errno.h>
//    // Sends a datagram. `more`: others follow soon, and its memory stays as it is until then.
//    inline int send(Outlet &outlet, const sdk::SockAddr &to, const iovec &bytes, bool more) {
//      if (!more && outlet.empty()) return outlet.send(to, &bytes, 1);
//      if (outlet.full() && outlet.flush() != 0) {
//        outlet.keep();  // copies the earlier ones: their memory is free again
//        return -FI_EAGAIN;
//      }
//      Datagram *d = outlet.next();
//      if (d == nullptr) return -FI_ENOMEM;
//      d->to = to;
//      d->iov[0] = bytes;
//      d->count = 1;
//      d->length = bytes.iov_len;
//      d->report = false;
//      outlet.push(/*copy=*/false);
//      if (more) return 0;
//      const int rc = outlet.flush_with_last();
//      if (rc == -FI_EAGAIN) outlet.keep();
//      return rc;
//    }
//
// If the kernel refuses to cut, because of the route's MTU or the device, the datagrams are sent
// one by one. Not for completions; it takes no lock, and makes no progress by itself.
#ifndef WEFT_PLUGINS_UDP_OUTLET_H
#define WEFT_PLUGINS_UDP_OUTLET_H

#include <rdma/fi_endpoint.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/memory/iov.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "plugins/udp/counters.h"

namespace weft::udp {

struct Datagram {
  sdk::SockAddr to;
  iovec iov[sdk::kIovLimit];
  uint32_t count = 0;
  bool report = false;
  size_t length = 0;
  void *context = nullptr;
  // A copy of the bytes, when iov is not the application's memory any more. Kept for the next
  // datagram.
  std::unique_ptr<char[]> copy{};
  size_t copy_size = 0;
};

class OutletSink {
 public:
  // `error`: 0, or the socket's errno. `datagram` is valid during the call only.
  virtual void on_sent(const Datagram &datagram, int error) = 0;
  // After expect_errors(): a call returned an error that may belong to an earlier datagram.
  virtual void on_stale_error() {}

 protected:
  ~OutletSink() = default;
};

class Outlet {
 public:
  static constexpr size_t kCapacity = 64;
  // At most so many bytes of datagrams in one message to the kernel: IPv4 and IPv6 can carry it.
  static constexpr size_t kMaxGroup = 65000;

  // Memory for the time of one flush, shared by all outlets of a domain.
  struct Scratch {
    std::array<mmsghdr, kCapacity> messages;
    std::array<size_t, kCapacity> datagrams;  // of each message
    std::array<iovec, kCapacity * sdk::kIovLimit> iov;
    alignas(cmsghdr) std::array<char, kCapacity * CMSG_SPACE(sizeof(uint16_t))> control;
  };

  Outlet(OutletSink &sink, Scratch &scratch, Counters &counters, bool offload)
      : sink_(sink),
        scratch_(scratch),
        counters_(counters),
        largest_segment_(offload ? SIZE_MAX : 0) {}

  void open(int fd);
  // The socket reports errors of earlier datagrams: the next call returns them.
  void expect_errors() { stale_errors_ = true; }

  // Sends at once: 0 or -errno.
  int send(const sdk::SockAddr &to, const iovec *iov, size_t count);

  bool empty() const { return head_ == tail_; }
  bool full() const { return tail_ - head_ == kCapacity; }
  size_t size() const { return tail_ - head_; }

  // The place of the next datagram. Fill in all but `copy`. Null: no memory. Not while full().
  Datagram *next();
  // Queues the datagram in next(); the sink gets its result. `copy`: the caller may reuse its bytes
  // at once. False: no memory.
  bool push(bool copy);
  // Sends as much as the socket takes, oldest first. Failed datagrams are reported and do not delay
  // others. 0: empty now; -FI_EAGAIN: some are left.
  int flush();
  // The same, but the result is that of the newest datagram: 0 or -errno. -FI_EAGAIN: it was not
  // sent and is no longer queued.
  int flush_with_last();
  // Copies all queued datagrams. Without memory for a copy, the datagram is dropped and reported.
  void keep();
  // Drops datagrams without a copy, and does not report them: at the end their memory may be gone.
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
  Counters &counters_;
  int fd_ = -1;
  bool stale_errors_ = false;
  // Allocated with the first FI_MORE.
  std::unique_ptr<std::array<Datagram, kCapacity>> ring_;
  size_t head_ = 0, tail_ = 0;
  size_t largest_segment_;   // above it the kernel has refused to cut
  size_t singly_until_ = 0;  // datagrams before this place go one by one
  // A segment size that the kernel refused. If one such datagram passes alone, the size was the
  // reason.
  size_t suspect_ = 0;
};

}  // namespace weft::udp

#endif
