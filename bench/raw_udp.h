// SPDX-License-Identifier: BSD-2-Clause
//
// The comparison for datagrams: a connected, non-blocking UDP socket on which the process spins. A
// message of up to 1472 bytes is one datagram. A longer one leaves by as few calls as the kernel
// allows: the kernel cuts it into datagrams of 1472 bytes (UDP_SEGMENT) and joins them again at the
// receiver (UDP_GRO), straight into their final place. There is no acknowledgement and no
// retransmission: after a lost datagram the measurement fails at its deadline. So the socket's
// buffer must hold a window.
//
// Example:
//     void meet(RawUdpTransport &transport, Control &control) {
//       control.send({{"port", transport.port()}});
//       const nlohmann::json theirs = control.receive(10.0);
//       transport.connect("127.0.0.1", theirs.value("port", uint16_t{0}));
//     }
#ifndef WEFT_BENCH_RAW_UDP_H
#define WEFT_BENCH_RAW_UDP_H

#include <string>
#include <vector>

#include "bench.h"
#include "control.h"

namespace weft::bench {

class RawUdpTransport {
 public:
  static constexpr bool kHasRma = false;

  // Binds to a numeric address, any port.
  RawUdpTransport(const std::string &host, Watch *watch);
  uint16_t port() const { return local_port(socket_.get()); }
  void connect(const std::string &host, uint16_t port);

  void begin(Arena &arena, const Spec &spec);

  // For the patterns.
  void post_receive(Slot &slot, size_t size);
  void send(Slot &slot, size_t size, bool more);
  int progress();
  void slow_check() { watch_->check_call(); }
  uint64_t received() const { return received_; }

 private:
  static constexpr size_t kDatagram = 1472;
  static constexpr size_t kCall = 44 * kDatagram;  // Bytes of one call: below 64 KiB.

  Fd socket_;
  Watch *watch_;
  // Posted receives, oldest at head_ % size; a power of two entries.
  std::vector<Slot *> posted_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
  size_t have_ = 0;  // Bytes of the current message that have arrived.
  uint64_t received_ = 0;
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_RAW_UDP_H
