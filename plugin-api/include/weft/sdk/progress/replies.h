// SPDX-License-Identifier: BSD-2-Clause
// Replies: whether an application replies at once to a peer's messages, so that what the peer is to
// be told of them (an acknowledgement) may wait and leave with the reply.
//
// Example:
//    void acknowledge(Replies &replies, uint64_t pass, void (*stage)(), void (*send)()) {
//      replies.told(pass);
//      replies.expected() ? stage() : send();
//    }
//    void post(Replies &replies, uint64_t pass, void (*flush)()) {
//      replies.sent(pass);
//      flush();  // with what was staged
//    }
//
// A pass is one progress of the engine (Engine::passes). A message to the peer in the pass that has
// told it something, which is before the application reads a queue again, is a reply. After two in
// a row another one is expected, until a pass ends without. One for each peer. It does not send
// what waits in vain: see Engine::flush_later. Not for output of the application itself:
// patience.h.
#ifndef WEFT_SDK_PROGRESS_REPLIES_H
#define WEFT_SDK_PROGRESS_REPLIES_H

#include <cstdint>

namespace weft::sdk {

class Replies {
 public:
  bool expected() const { return count_ == kExpected; }
  // The peer is told something, perhaps not for the first time in this pass.
  void told(uint64_t pass) {
    if (told_ != kNever && told_ != pass) count_ = 0;
    told_ = pass;
  }
  // A message goes to the peer.
  void sent(uint64_t pass) {
    if (told_ == kNever) return;
    if (told_ != pass) {
      count_ = 0;
    } else if (count_ < kExpected) {
      ++count_;
    }
    told_ = kNever;
  }

 private:
  static constexpr uint64_t kNever = ~UINT64_C(0);
  static constexpr uint8_t kExpected = 2;

  uint64_t told_ = kNever;  // the last pass that told something no message has followed
  uint8_t count_ = 0;       // replies in a row
};

}  // namespace weft::sdk

#endif
