// SPDX-License-Identifier: BSD-2-Clause
// Patience: whether output may wait for the next progress, which saves a system call per message,
// or must go at once, because its application is about to compute. Nobody says so beforehand; what
// happened before tells: how soon progress came after output that had company.
//
//   patience.may_wait() ? stage() : send_at_once();
//   patience.posted(now);        // it could have waited, or does
//   patience.progressed(now);    // what was posted since the last time goes out now
//
// It begins without patience, if it is not told otherwise. A few bursts in a row that progress
// followed within microseconds make it patient; the first that it did not ends that, and the more
// often that happens the more bursts it wants to see. It knows no clock: progress without a burst
// (pending()) costs nothing. One for all that shares the progress. It is not for output that nobody
// waits for: that goes at once anyway.
#ifndef WEFT_SDK_PATIENCE_H
#define WEFT_SDK_PATIENCE_H

#include <algorithm>
#include <cstdint>

namespace weft::sdk {

class Patience {
 public:
  // `patient`: of whom it expects the best, until the first miss.
  explicit Patience(bool patient = false) : patient_(patient) {}

  static constexpr uint64_t kSoonNs = 50'000;                    // how late progress may come
  static constexpr uint32_t kFirstProof = 8, kMostProof = 1024;  // bursts
  static constexpr uint32_t kForgive = 256;  // good bursts before a miss that counts for nothing

  bool may_wait() const { return patient_; }
  bool pending() const { return since_ != 0; }
  // Of what waits, the first counts; of what went out, the last: sending is not idling.
  bool wants_time() const { return since_ == 0 || !patient_; }
  void posted(uint64_t now_ns) {
    if (wants_time()) since_ = now_ns;
  }
  // All that waited went out by itself, because it was enough.
  void sent() {
    if (patient_) since_ = 0;
  }
  void progressed(uint64_t now_ns) {
    const bool soon = now_ns - since_ <= kSoonNs;
    since_ = 0;
    if (!soon) {
      // One miss among very many good bursts is the scheduler's; more than that are the program's
      // way.
      if (patient_) proof_ = good_ < kForgive ? std::min(4 * proof_, kMostProof) : kFirstProof;
      patient_ = false;
      good_ = 0;
    } else if (++good_ >= proof_ && !patient_) {
      patient_ = true;
      good_ = 0;
    }
  }

 private:
  uint64_t since_ = 0;  // 0: nothing that had company was posted since the last progress
  uint64_t good_ = 0;   // bursts in a row
  uint32_t proof_ = kFirstProof;
  bool patient_;
};

}  // namespace weft::sdk

#endif
