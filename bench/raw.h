// SPDX-License-Identifier: BSD-2-Clause
//
// The comparison: one non-blocking TCP socket with TCP_NODELAY. Each message is a 16-byte header
// and the payload. The process spins on the socket and does no more than a program must that knows
// its traffic. It has the same operations as the fabric transport, so the same patterns run over
// it.
//
// Example (statements):
//     Watch watch(nullptr);
//     Spec spec{.size = 64};
//     Arena arena(spec);
//     RawTransport transport(dial("host", 47747, 10.0), &watch);
//     transport.begin(arena, spec);
//     transport.post_receive(arena.rx(0), 64);
//
// Per message it makes one send (header and payload are adjacent, nothing is copied) and one recv,
// which asks for exactly the rest of the message and puts it into its final place. Streams of small
// messages are received many at a time into a staging buffer and copied from there. With Spec::more
// the messages of a window leave in gathered writes.
#ifndef WEFT_BENCH_RAW_H
#define WEFT_BENCH_RAW_H

#include <sys/uio.h>

#include <vector>

#include "bench.h"
#include "control.h"

namespace weft::bench {

class RawTransport {
 public:
  static constexpr bool kHasRma = false;

  // Takes a connected socket.
  RawTransport(Fd socket, Watch *watch);

  void begin(Arena &arena, const Spec &spec);

  // For the patterns.
  void post_receive(Slot &slot, size_t size);
  void send(Slot &slot, size_t size, bool more);
  int progress();
  void slow_check() { watch_->check_call(); }
  uint64_t received() const { return received_; }

 private:
  struct Header {
    uint32_t magic;
    uint32_t number;
    uint64_t size;
  };
  static constexpr uint32_t kMagic = 0x77617277;
  static constexpr size_t kStaging = 64 * 1024;
  // Up to here a stream is received through the staging buffer: the copy costs less than a call.
  static constexpr size_t kStagedLimit = 8 * 1024;

  int progress_direct();
  int progress_staged();
  // Hands out the whole messages that the staging buffer holds.
  [[gnu::always_inline]] inline int take_staged();
  // Bytes read, 0 when there are none; throws when the peer has closed.
  size_t receive(void *data, size_t size);
  void finish(Slot &slot);
  // `error`: an errno, or 0 if the peer has closed the connection.
  [[noreturn, gnu::noinline]] void receive_failed(int error);
  void check_header(const Header &header, const Slot &slot);
  [[noreturn, gnu::noinline]] void out_of_step(const Header &header, const Slot &slot) const;
  void write_out();

  Fd socket_;
  Watch *watch_;
  bool staged_ = false;
  // Posted receives, oldest at head_ % size; a power of two entries.
  std::vector<Slot *> posted_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
  size_t have_ = 0;  // Bytes of the current message that have arrived, header included.
  std::vector<char> staging_;
  size_t staging_begin_ = 0;
  size_t staging_end_ = 0;
  std::vector<iovec> gather_;
  uint32_t send_number_ = 0;
  uint32_t receive_number_ = 0;
  uint64_t received_ = 0;
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_RAW_H
