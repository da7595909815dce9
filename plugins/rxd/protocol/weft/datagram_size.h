// SPDX-License-Identifier: BSD-2-Clause
// DatagramSize: how large the datagrams to a peer may be. It begins with what every path carries,
// and says which larger sizes to probe (docs/rxd-protocol.md, section 8, "Path MTU").
//
// Example:
//    void probe(uint32_t bytes);  // sends a datagram of that size
//    // An operation begins that is larger than a datagram.
//    inline void begin(DatagramSize &size, uint64_t now) {
//      if (const uint32_t bytes = size.start(now); bytes != 0) probe(bytes);
//    }
//    inline void on_timer(DatagramSize &size, uint64_t now) {
//      if (const uint32_t bytes = size.due(now); bytes != 0) probe(bytes);
//    }
//
// Times in ns. It sends nothing, and does not know how full a datagram is.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_DATAGRAM_SIZE_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_DATAGRAM_SIZE_H

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace weft::rxd {

class DatagramSize {
 public:
  // The size that needs no probe, and the largest one that both ends take.
  DatagramSize(uint32_t first, uint32_t largest)
      : bytes_(std::min(first, largest)), first_(bytes_), largest_(largest) {}

  uint32_t bytes() const { return bytes_; }  // now
  // When due() has something to say; 0: never.
  uint64_t deadline() const { return at_; }

  // Larger datagrams are worth while. The size to probe now; 0: none.
  uint32_t start(uint64_t now) {
    if (probe_ != 0 || at_ != 0 || largest_ <= bytes_) return 0;
    probed_ = largest_;
    tries_ = 0;
    return next(now);
  }
  // The size to probe, if its time has come; 0: none.
  uint32_t due(uint64_t now) { return at_ != 0 && now >= at_ ? next(now) : 0; }
  // The peer has received a probe. True: bytes() is another one now.
  bool answered(uint32_t bytes) {
    if (at_ == 0 || bytes != probed_) return false;
    at_ = 0;
    probe_ = kFound;
    bytes_ = probed_;
    return true;
  }
  // The path may have shrunk. True: bytes() is the first one again, and start() probes once more.
  bool fall_back() {
    if (bytes_ <= first_) return false;
    bytes_ = first_;
    probe_ = 0;
    return true;
  }

 private:
  static constexpr uint64_t kPause = 20'000'000;
  static constexpr uint8_t kTries = 3;
  static constexpr uint32_t kSizes[] = {0, 8972, 4052};  // 0: the largest that both ends take
  static constexpr uint8_t kNone = std::size(kSizes), kFound = UINT8_MAX;

  uint32_t next(uint64_t now) {
    at_ = 0;
    if (probe_ >= kNone) return 0;
    if (tries_ == kTries) {
      tries_ = 0;
      do {
        if (++probe_ >= kNone) return 0;
        probed_ = kSizes[probe_];
      } while (probed_ >= largest_ || probed_ <= bytes_);
    }
    ++tries_;
    at_ = now + kPause;
    return probed_;
  }

  uint64_t at_ = 0;
  uint32_t bytes_;
  const uint32_t first_, largest_;
  uint32_t probed_ = 0;
  uint8_t probe_ = 0;  // of kSizes; kNone: no other one is tried
  uint8_t tries_ = 0;
};

}  // namespace weft::rxd

#endif
