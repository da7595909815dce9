// SPDX-License-Identifier: BSD-2-Clause
// Accesses: what a weft peer does with our memory: reads, writes and atomics are checked and
// executed, and answered. It keeps the writes of which more data are to come.
//
// Example:
//    // A frame of the peer. False: the conversation is over.
//    inline bool take(Accesses &accesses, const wire::FrameReader &frames) {
//      if (frames.kind() == wire::FrameKind::kRead)
//        return accesses.read(frames.id(), frames.vectors());
//      return accesses.write(frames.write(), frames.vectors(), frames.payload());
//    }
//
// Not for our own accesses to the peer (operations.h).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_ACCESSES_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_ACCESSES_H

#include <cstdint>
#include <span>

#include "plugins/rxd/protocol/weft/answers.h"
#include "plugins/rxd/protocol/weft/link.h"

namespace weft::rxd {

class Accesses {
 public:
  Accesses(Link &link, Answers &answers) : link_(link), answers_(answers) {}
  Accesses(const Accesses &) = delete;
  Accesses &operator=(const Accesses &) = delete;

  // Whether writes are arriving.
  bool waits() const { return writes_ != nullptr; }

  // ---- frames; false: the conversation is over ----
  bool read(uint32_t id, const wire::VectorView &view);
  bool write(const wire::WriteFrame &f, const wire::VectorView &view,
             std::span<const uint8_t> payload);
  bool atomic(const wire::AtomicFrame &f, const wire::VectorView &view,
              std::span<const uint8_t> payload);
  // More data of a write.
  Remote *find(uint32_t id) const {
    for (Remote *r = writes_; r != nullptr; r = r->next)
      if (r->id == id) return r;
    return nullptr;
  }
  bool take(Remote &r, const wire::DataFrame &f, std::span<const uint8_t> payload);
  // All of it has come, or it has failed.
  bool finish(Remote &r, uint16_t status);

  // ---- the end ----
  void end_copies();
  void clear();

 private:
  bool keep(const wire::WriteFrame &f, std::span<const RmaVector> vectors,
            std::span<const uint8_t> payload);
  // All data of a write are in their place: 0, or FI_E...
  uint16_t report(std::span<const RmaVector> vectors, uint64_t length, bool has_data,
                  uint64_t data);

  Link &link_;
  Answers &answers_;
  Remote *writes_ = nullptr;
};

}  // namespace weft::rxd

#endif
