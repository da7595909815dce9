// SPDX-License-Identifier: BSD-2-Clause
// Buffers: memory that the NIC fills with messages, one behind the other, until they are read:
// overflow buffers for what comes before its receive, request buffers for what software matches.
//
// Example:
//    // The bytes of a message have been copied out.
//    inline void done(Buffers &buffers, const Event &message) {
//      buffers.release(message.start, message.mlength);
//    }
//
// A buffer that is full goes back to the NIC when all of its bytes were released; meanwhile another
// one takes its place, so there are as many as messages wait. All calls are with the endpoint's
// lock held. Not for what is in them.
#ifndef WEFT_PLUGINS_CXI_BUFFERS_H
#define WEFT_PLUGINS_CXI_BUFFERS_H

#include <weft/sdk/memory/lazy_array.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "plugins/cxi/ports.h"

namespace weft::cxi {

struct BufferOptions {
  List list = List::kOverflow;
  uint16_t first_id = 0;  // buffer_id of the first; the others follow
  size_t size = 0;        // bytes of each
  size_t linked = 0;      // how many the NIC has
  size_t cached = 0;      // how many more are kept; 0: all
  size_t longest = 0;     // bytes of the longest message: with less room a buffer is full
};

class Buffers {
 public:
  Buffers(const Ports &ports, const BufferOptions &options) : ports_(ports), options_(options) {}
  ~Buffers();
  Buffers(const Buffers &) = delete;
  Buffers &operator=(const Buffers &) = delete;

  // Gives the NIC as many as it is to have; `one`: or one. False: there is no memory.
  bool link(Portal &portal, bool one = false);
  // Does it have the right number?
  bool is_short() const { return linked_ < options_.linked; }
  // The NIC has filled it, up to `end`. link() follows.
  void on_full(uint16_t buffer_id, uint64_t end);
  // The NIC has no place for it.
  void on_refused(uint16_t buffer_id);
  void release(uint64_t start, uint64_t bytes);

 private:
  struct Buffer {
    sdk::LazyArray<uint8_t> bytes;
    uint16_t id = 0;
    bool is_linked = false;
    uint64_t filled = UINT64_MAX;  // bytes, once it is full
    uint64_t released = 0;
    uint64_t start() const { return reinterpret_cast<uintptr_t>(bytes.get()); }
  };
  Buffer *take();
  void settle(Buffer &buffer);
  void let_go(Buffer &buffer);  // of its memory

  const Ports &ports_;
  const BufferOptions options_;
  std::vector<std::unique_ptr<Buffer>> buffers_;  // by id; null: the number is free
  std::map<uint64_t, Buffer *> by_start_;
  std::vector<Buffer *> idle_;
  size_t linked_ = 0;
};

}  // namespace weft::cxi

#endif
