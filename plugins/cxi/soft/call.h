// SPDX-License-Identifier: BSD-2-Clause
// Call: the way from a process to one of another host that has an address, until they may speak.
//
// Example:
//    // Who has PID 5 of VNI 10 on the NIC 0x10204, for ours with 10.1.2.3.
//    inline Call some_call() {
//      return Call({.from = 0x0a010203, .door = 24711, .vni = 10, .to = {0x10204, 5, 0}}, 5000);
//    }
//
// It goes to the door of the other NIC, a port that all processes of that host share (hosts.h).
// Whichever hears it says at which port the owner listens, or that it is the owner itself. Where
// one does not answer, because it is stopped or has just ended, the call goes to the door again:
// the kernel there gives it to any of them. Not for what is said afterwards.
#ifndef WEFT_PLUGINS_CXI_SOFT_CALL_H
#define WEFT_PLUGINS_CXI_SOFT_CALL_H

#include <weft/sdk/progress/unique_fd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "plugins/cxi/nic/words.h"
#include "plugins/cxi/soft/frame.h"

namespace weft::cxi {

class Call {
 public:
  using Clock = std::chrono::steady_clock;
  struct Target {
    uint32_t from = 0;  // our NIC's IPv4 address
    uint16_t door = 0;
    Vni vni = 0;
    Address to;
    uint64_t key = 0;  // what we tell that host
  };
  enum class State : uint8_t { kWaits, kWelcome, kFailed };

  Call(const Target &target, unsigned timeout_ms);

  // Goes on as far as it can. The socket is watched by `epoll`, with `data`.
  State advance(Clock::time_point now, int epoll, void *data);
  // Whether it has something to do that its socket does not tell.
  bool is_due(Clock::time_point now) const { return now >= next_try_ || now >= end_; }

  const Target &target() const { return target_; }
  // Nothing wakes for it any more; closing is not enough where a child after fork() has it, too.
  void unwatch();
  // ---- of one that is welcome ----
  sdk::UniqueFd take();
  std::string name() const;  // no two processes of the network have the same
  uint64_t peer_key() const { return peer_key_; }
  // ---- of one that has failed ----
  Rc why() const { return why_; }
  const std::string &text() const { return text_; }  // empty: nobody is there

 private:
  State start(Clock::time_point now, int epoll, void *data);
  void close();
  State fail_with(Rc why, std::string text = "");
  State on_error(int code);
  State on_answer();
  std::string place() const;

  const Target target_;
  const Clock::time_point end_;
  uint16_t port_;
  Clock::time_point next_try_;
  Clock::duration pause_;
  unsigned hops_ = 0;
  sdk::UniqueFd fd_;
  int epoll_ = -1;
  bool has_said_ = false;
  std::array<uint8_t, kHelloSize> answer_;
  size_t have_ = 0;
  uint16_t owner_port_ = 0;
  uint64_t peer_key_ = 0;
  Rc why_ = Rc::kUndeliverable;
  std::string text_;
};

}  // namespace weft::cxi

#endif
