// SPDX-License-Identifier: BSD-2-Clause
// Link: a connection to another process: its socket, its stream, and the bytes on their way out.
//
// Example:
//    // What has come is taken, and answered. False: it is over.
//    inline bool serve(Link &link) { return link.read() && link.write(); }
//
// It may be without a socket at first: then what is sent waits in its stream. All but the stream's
// send() is for one thread at a time. Not for who is at the other end: neighbours.h, hosts.h.
#ifndef WEFT_PLUGINS_CXI_SOFT_LINK_H
#define WEFT_PLUGINS_CXI_SOFT_LINK_H

#include <sys/epoll.h>
#include <sys/types.h>
#include <weft/sdk/progress/unique_fd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "plugins/cxi/soft/call.h"
#include "plugins/cxi/soft/peer_stream.h"

namespace weft::cxi {

class Link {
 public:
  explicit Link(Engine &engine) : stream(engine) {}
  ~Link() { hang_up(); }
  Link(const Link &) = delete;
  Link &operator=(const Link &) = delete;

  // False: `epoll` has no room for it.
  bool open(sdk::UniqueFd fd, int epoll);
  bool is_open() const { return fd_.get() >= 0; }
  // Nothing wakes for it any more, and the other end hears that it is over. To close it is not
  // enough: a child after fork() may have it, too. Of the child itself it is not the connection.
  void hang_up();
  bool read();   // false: it is over
  bool write();  // false: it is over
  // Whether it waits for nothing but input.
  bool is_quiet() const { return watched_ == EPOLLIN; }
  // Whether it reads no more for now, because its stream does not want it.
  bool is_stopped() const { return (watched_ & EPOLLIN) == 0; }
  bool is_idle() const { return begin_ == end_ && stream.is_idle(); }  // as the stream's
  // Whether all that is to be written are a few acknowledgements.
  bool has_only_acks() const { return begin_ == end_ && stream.has_only_acks(); }
  int fd() const { return fd_.get(); }

  PeerStream stream;
  // ---- for Neighbours ----
  std::string name;                    // of whom we have called; empty: the other one has
  bool is_far = false;                 // it is of another host
  std::optional<Call::Target> target;  // to be called
  bool has_input = false;              // by the last read()
  bool is_marked = false;              // it has output
  bool is_late = false;                // it has answers that may wait
  bool has_moved = false;              // bytes, in either direction, since the last tick
  unsigned quiet_ticks = 0;            // without any
  // Of another host: its NIC, and whether this process calls it for what it has to say by itself.
  Nid there = 0;
  bool is_own = false;
  enum class Turn : uint8_t { kNone, kWaits, kHas } turn = Turn::kNone;  // to call
  // The connection in the other direction with the same ends, and whether answers have gone along
  // with its questions. What both ends know of the pair; `key` 0: nothing.
  Link *partner = nullptr;
  bool is_carried = false;
  unsigned ticks_alone = 0;  // since such a partner has ended
  uint64_t key = 0, ends = 0;
  Rc why = Rc::kUndeliverable;  // when it is over: what becomes of what is under way

 private:
  void watch(bool output);

  sdk::UniqueFd fd_;
  pid_t process_ = 0;  // that has opened it
  int epoll_ = -1;
  uint32_t watched_ = 0;
  // Made, and not written: from `begin_` to `end_`.
  std::unique_ptr<uint8_t[]> made_;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace weft::cxi

#endif
