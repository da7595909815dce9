// SPDX-License-Identifier: BSD-2-Clause
// Inlet: datagrams from a socket into posted receives, without a copy where the target can be named
// before the read.
//
// Example:
//    // Counts the bytes that come. All calls need the engine's lock.
//    class Counter final : public InletSink {
//     public:
//      Counter(sdk::Engine &engine, Inlet::Scratch &scratch, Counters &counters)
//          : inlet_(*this, engine, queue_, scratch, counters, /*offload=*/true) {}
//      void open(UniqueFd socket) {
//        inlet_.open(std::move(socket), /*names_sources=*/true);
//        inlet_.listen();
//      }
//      void post(const iovec &memory) {
//        queue_.post(&memory, 1, /*context=*/nullptr, /*flags=*/0);
//        inlet_.on_posted();  // the socket is read while something is posted
//      }
//      size_t bytes = 0;
//
//     private:
//      uint32_t index_of(const sdk::SockAddr &) override { return sdk::Av::kNone; }
//      void on_received(sdk::PostedRecv &receive, size_t placed, size_t, uint32_t,
//                       const sdk::SockAddr &) override {
//        bytes += placed;
//        queue_.release(&receive);
//      }
//      void on_writable() override {}
//      void on_socket_error(int) override {}
//      void on_network_error(const NetworkError &, std::span<const char>) override {}
//
//      sdk::RecvQueue queue_{64};
//      Inlet inlet_;
//    };
//
// While datagrams come one by one, a read is one recvfrom. When the last read found several, it is
// one recvmmsg. A run of datagrams of one size, as senders with segmentation offload make it, turns
// UDP_GRO on. Then a read returns up to 64 KiB in segments. If the receives have room for segments
// of the last size, the kernel scatters the segments into them. Segments of another size, or beyond
// the receives, are copied and held until there are receives. UDP_GRO is never turned off: messages
// that the kernel has joined already could not be separated any more.
//
// Not for completions, and it takes no lock.
#ifndef WEFT_PLUGINS_UDP_INLET_H
#define WEFT_PLUGINS_UDP_INLET_H

#include <sys/socket.h>
#include <sys/uio.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/transfers/recv_queue.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "plugins/udp/arrivals.h"
#include "plugins/udp/counters.h"
#include "plugins/udp/settings.h"
#include "plugins/udp/socket.h"

namespace weft::udp {

class InletSink {
 public:
  // The sender's index for completions. Called once per message of the kernel.
  virtual uint32_t index_of(const sdk::SockAddr &source) = 0;
  // A datagram of `length` bytes came, and the first `placed` bytes are in `receive`, which is off
  // the queue. The sink releases it.
  virtual void on_received(sdk::PostedRecv &receive, size_t placed, size_t length, uint32_t index,
                           const sdk::SockAddr &source) = 0;
  // The socket has room for output again; only after want_output(true).
  virtual void on_writable() = 0;
  virtual void on_socket_error(int error) = 0;
  // The network's error for a datagram that was sent; only after tell_errors().
  virtual void on_network_error(const NetworkError &error, std::span<const char> datagram) = 0;

 protected:
  ~InletSink() = default;
};

class Inlet final : public sdk::Handler {
 public:
  static constexpr size_t kBatch = 32;      // datagrams per read
  static constexpr size_t kSlices = 64;     // receives that one joined message is scattered into
  static constexpr size_t kJoined = 65536;  // bytes of a joined message, at most
  static constexpr size_t kAreas = 16;      // joined messages per read
  // Bytes of control data of one message: the size of its segments, and where it came.
  static constexpr size_t kControl = CMSG_SPACE(sizeof(int)) + Arrivals::kControl;

  // Memory for the time of one read, shared by all inlets of a domain.
  struct Scratch {
    std::array<mmsghdr, kBatch> messages;
    std::array<sdk::SockAddr, kBatch> sources;
    std::array<iovec, kAreas *(sdk::kIovLimit + 1) + kSlices> iov;
    alignas(cmsghdr) std::array<char, kBatch * kControl> control;
    // For joined messages without room in receives: kAreas of kJoined bytes, of which only touched
    // pages take memory. Allocated with UDP_GRO.
    std::unique_ptr<char[]> areas;
  };

  Inlet(InletSink &sink, sdk::Engine &engine, sdk::RecvQueue &queue, Scratch &scratch,
        Counters &counters, bool offload)
      : sink_(sink),
        engine_(engine),
        queue_(queue),
        scratch_(scratch),
        counters_(counters),
        may_join_(offload) {}
  ~Inlet() { close(); }

  // All calls need the engine's lock.
  void open(UniqueFd fd, bool names_sources);
  // Whether sources are read from now on. Without them the index is Av::kNone.
  void name_sources(bool named) { names_ = named; }
  void listen();  // starts to read the socket
  void close();
  int fd() const { return fd_.get(); }
  void want_output(bool wanted);
  void on_posted() {
    if (!held_.empty()) deliver_held();
    if (!listening_) resume();
  }
  bool joins() const { return joins_; }
  // `name`: of the socket.
  std::optional<sdk::SockAddr> next_arrival(const sdk::SockAddr &name) {
    arrivals_.want(fd_.get(), name);
    return arrivals_.next();
  }
  Result<void> tell_errors();
  // A call outside of the inlet returned an error of the socket: the error queue has something.
  void on_stale_error() { has_errors_ = true; }

  // ---- Handler ----
  void on_event(uint32_t events) override;

 private:
  // A message that waits for receives: datagrams of `segment` bytes; the last may be shorter.
  struct Held {
    std::vector<char> bytes;
    size_t at = 0;
    size_t segment = 0;
    sdk::SockAddr source;
    bool is_empty_datagram = false;
  };

  void pause();
  void resume();
  void update();
  void read();
  void read_one();
  void read_noted();
  void read_many();
  void read_joined();
  void read_errors();
  void watch_run(size_t count);
  void start_joining(size_t segment);
  void adapt(size_t asked, ssize_t got);
  bool is_empty(int error);
  size_t segment_of(const msghdr &message, size_t length) const;
  void deliver(size_t placed, size_t length, uint32_t index, const sdk::SockAddr &source);
  void hold(const iovec *iov, size_t count, size_t skip, size_t length, size_t segment,
            const sdk::SockAddr &source);
  void deliver_held();
  uint32_t index_of(const sdk::SockAddr &source);
  void *name_buffer(size_t i);

  InletSink &sink_;
  sdk::Engine &engine_;
  sdk::RecvQueue &queue_;
  Scratch &scratch_;
  Counters &counters_;
  UniqueFd fd_;
  bool names_ = false;
  bool open_ = false;       // known to the engine
  bool listening_ = false;  // asks the engine for input
  bool wants_output_ = false;
  bool tells_errors_ = false;
  bool has_errors_ = false;  // the error queue is to be read
  bool may_join_;            // may turn UDP_GRO on
  bool joins_ = false;       // it is on
  bool joined_ = false;      // the last reads found joined messages
  unsigned singles_ = 0;     // reads since the last joined message
  size_t expect_ = 1;        // datagrams to ask for
  size_t segment_ = 0;       // expected segment size
  std::deque<Held> held_;
  Arrivals arrivals_;
};

}  // namespace weft::udp

#endif
