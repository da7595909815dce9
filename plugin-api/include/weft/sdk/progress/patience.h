// SPDX-License-Identifier: BSD-2-Clause
// Patience: whether output may wait for the next progress, which saves a system call per message,
// or must go at once, because its application is about to compute. It learns this from how soon
// progress came after earlier bursts, that is, output with more than one message.
//
// Example:
//    void send(Patience &patience, uint64_t now, void (*stage)(), void (*flush)()) {
//      patience.may_wait() ? stage() : flush();
//      patience.posted(now);  // it could have waited, or does
//    }
//    void progress(Patience &patience, uint64_t now) {
//      if (patience.pending()) patience.progressed(now);  // all output since the last time is out
//    }
//
// It begins without patience, if it is not told otherwise. A few bursts in a row that progress
// followed within microseconds make it patient. A burst that progress did not follow ends that, and
// each time it then needs more bursts. One miss after hundreds of good bursts counts for nothing:
// the host of a virtual machine may take the CPU for a moment, and nothing says so. (Without this,
// the rate of small messages falls to a tenth there.) Where the scheduler says that it took the CPU
// (interruptions.h), half as many good bursts are enough, and the next proof is no longer than the
// last. It has no clock. Progress without a burst costs nothing. One serves all objects that share
// the progress. Output that no caller waits for may wait only where somebody else sends it in the
// end (Engine::flush_later).
#ifndef WEFT_SDK_PROGRESS_PATIENCE_H
#define WEFT_SDK_PROGRESS_PATIENCE_H

#include <algorithm>
#include <cstdint>

namespace weft::sdk {

class Patience {
 public:
  // `patient`: output may wait until the first miss.
  explicit Patience(bool patient = false) : patient_(patient) {}

  static constexpr uint64_t kSoonNs = 50'000;  // how late progress may come
  static constexpr uint32_t kForgive = 256;    // good bursts before a miss that counts for nothing
  static constexpr uint32_t kExcuse = 128;     // the same for one with an interruption
  // Bursts. A program that computes after fewer than kForgive of them never gives the longest
  // proof.
  static constexpr uint32_t kFirstProof = 8, kMostProof = kForgive + 32;

  bool may_wait() const { return patient_; }
  bool pending() const { return since_ != 0; }
  // While output waits, the time of its first message counts; else that of the last message,
  // because an application that sends is not idle.
  bool wants_time() const { return since_ == 0 || !patient_; }
  void posted(uint64_t now_ns) {
    if (wants_time()) since_ = now_ns;
  }
  // So much output waited that all of it went out.
  void sent() {
    if (patient_) since_ = 0;
  }
  bool is_late(uint64_t now_ns) const { return now_ns - since_ > kSoonNs; }
  // `interrupted`: the thread has lost its CPU in between.
  void progressed(uint64_t now_ns, bool interrupted = false) {
    const bool late = is_late(now_ns);
    since_ = 0;
    if (!late) {
      if (++good_ < proof_ || patient_) return;
      patient_ = true;
      good_ = 0;
    } else if (patient_ && good_ >= (interrupted ? kExcuse : kForgive)) {
      good_ = 0;
      proof_ = kFirstProof;
    } else if (patient_ || !interrupted) {
      if (patient_ && !interrupted) proof_ = std::min(4 * proof_, kMostProof);
      patient_ = false;
      good_ = 0;
    }
  }

 private:
  uint64_t since_ = 0;  // 0: no burst since the last progress
  uint64_t good_ = 0;   // bursts in a row
  uint32_t proof_ = kFirstProof;
  bool patient_;
};

}  // namespace weft::sdk

#endif
