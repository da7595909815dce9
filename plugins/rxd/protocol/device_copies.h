// SPDX-License-Identifier: BSD-2-Clause
// DeviceCopies: bytes of devices (FI_HMEM) on their way into datagrams, and out of them. A copy by
// a device takes microseconds however short it is. So there is one for many datagrams, into or out
// of a part of the host's memory that the device knows, and it is under way while other datagrams
// are sent and read.
//
// Example:
//    #include "plugins/rxd/protocol/core.h"
//    // A datagram of a message whose receive is in memory of a device.
//    inline void take(Core &core, Incoming &m, uint64_t offset, std::span<const uint8_t> payload) {
//      DeviceCopies &copies = *core.copies();
//      if (m.landing == nullptr) m.landing = copies.landing_of(m);
//      if (m.landing == nullptr) return;  // it is short, or the host's: copy it at once
//      (void)copies.put(*m.landing, offset, payload);
//      m.arrived += payload.size();
//      if (m.arrived != m.message.length) return;
//      if (copies.lands(*m.landing)) copies.settle();  // or later
//      m.err = copies.end(m.landing);
//    }
//
// A Core with FI_HMEM has one. Where it has no part left it copies at once. Not for short payload
// (kShort): hmem_gather(), hmem_scatter().
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_DEVICE_COPIES_H
#define WEFT_PLUGINS_RXD_PROTOCOL_DEVICE_COPIES_H

#include <sys/uio.h>
#include <weft/sdk/memory/hmem_pipe.h>
#include <weft/sdk/memory/pool.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace weft::rxd {

class Core;
struct Answer;
struct Incoming;
struct Remote;
struct TxOp;

// Copies that were started for somebody.
struct Copies {
  uint32_t under_way = 0;
  bool failed = false;
};

// What is sent of an operation, or of a region that a peer reads. Datagrams that are sent again are
// copied again.
struct Ahead {
  struct Part {
    uint8_t *bytes = nullptr;
    uint64_t begin = 0, end = 0;
    Copies copies;
  };
  const TxOp *op = nullptr;  // of one of these
  const Answer *answer = nullptr;
  uint64_t sent = 0;  // bytes, at least once
  std::array<Part, 2> parts;
  size_t now = 0;  // of `parts`; the other one follows it

  Part &first() { return parts[now]; }
  Part &second() { return parts[1 - now]; }
};

// What arrives for a receive, a read or a region that a peer writes to. Datagrams that follow each
// other are collected; two such runs, because datagrams may overtake each other.
struct Landing {
  struct Run {
    uint8_t *bytes = nullptr;
    uint64_t begin = 0;
    size_t length = 0;
  };
  Incoming *message = nullptr;  // of one of these
  TxOp *read = nullptr;
  Remote *write = nullptr;
  std::array<Run, 2> runs;
  size_t last = 0;  // of `runs`: it has grown last
  Copies copies;
  uint16_t status = 0;      // FI_E...
  bool waits = false;       // all has come; the conversation ends it when the copies are done
  Landing *next = nullptr;  // another one that waits
};

class DeviceCopies {
 public:
  static constexpr size_t kPart = size_t{256} << 10;
  static constexpr size_t kParts = 32;
  static constexpr size_t kFirst = size_t{64} << 10;  // nothing is sent before these have come
  static constexpr size_t kShort = size_t{16} << 10;  // is copied at once

  DeviceCopies(Core &core, const sdk::Hmem &hmem);
  ~DeviceCopies() { settle(); }
  DeviceCopies(const DeviceCopies &) = delete;
  DeviceCopies &operator=(const DeviceCopies &) = delete;

  // Whether any of it is memory of a device.
  bool finds(const iovec *iov, size_t count) const;
  // Waits for all copies that are under way.
  void settle();
  size_t in_use() const { return aheads_.in_use() + landings_.in_use(); }

  // ---- sends ----
  // Starts the first copy. Null: they are made at once, by fetch_now().
  Ahead *ahead_of(const TxOp &op);
  Ahead *ahead_of(const Answer &answer);
  // Vectors of [offset, offset + n), and starts to copy what follows, up to `limit`. They must stay
  // until pass(). 0: it has none. -FI_EIO: a device has failed.
  ssize_t fetch(Ahead &ahead, uint64_t offset, uint64_t n, uint64_t limit, iovec *iov);
  // So much is wanted now: starts to copy what follows.
  void go_on(Ahead &ahead, uint64_t limit);
  // The carrier has these bytes, or lost them. It may need their memory until a flush.
  void pass(Ahead &ahead, uint64_t end);
  void end(Ahead *&ahead);
  // Copies the vectors to one place, which is good until the next flush, and makes one of them.
  // -FI_EIO, or 1.
  ssize_t fetch_now(iovec *iov, size_t count, size_t n);

  // ---- what arrives ----
  // Null: it is short, or of the host; or there is no memory.
  Landing *landing_of(Incoming &message);
  Landing *landing_of(TxOp &read);
  Landing *landing_of(Remote &write);
  // FI_E...: a device has failed, or a region is closed.
  uint16_t put(Landing &landing, uint64_t offset, std::span<const uint8_t> bytes);
  // All has come. Whether copies are under way still.
  bool lands(Landing &landing);
  // Nothing of it is under way any more when this returns its status.
  uint16_t end(Landing *&landing);

 private:
  struct Copy {
    Copies *of;
    sdk::HmemPlace place;
    uint8_t *part = nullptr;  // which is free after it
  };
  uint8_t *take();
  bool start(Copies &of, const sdk::HmemPlace &place, void *to, const void *from, size_t n);
  bool is_ready(Ahead::Part &part) {
    if (part.copies.under_way != 0) settle();
    return !part.copies.failed;
  }
  Ahead *ahead_of(const TxOp *op, const Answer *answer, uint64_t length);
  bool has_spare() const { return free_.size() + sent_.size() > kParts / 4; }
  void fill(const Ahead &ahead, Ahead::Part &part, uint64_t begin, uint64_t n);
  void release(Ahead::Part &part);
  Landing *make(Incoming *message, TxOp *read, Remote *write);
  Landing::Run *run_at(Landing &landing, uint64_t offset);
  void launch(Landing &landing, Landing::Run &run);

  Core &core_;
  const sdk::Hmem &hmem_;
  sdk::HmemStaging staging_;
  std::vector<uint8_t *> free_;  // parts; used from the end: that memory is in the cache
  std::vector<uint8_t *> sent_;  // are free after a flush
  std::vector<Copy> under_way_;
  std::vector<uint8_t> scratch_;  // of fetch_now()
  sdk::Pool<Ahead> aheads_{SIZE_MAX, 4};
  sdk::Pool<Landing> landings_{SIZE_MAX, 4};
};

}  // namespace weft::rxd

#endif
