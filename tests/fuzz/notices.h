// SPDX-License-Identifier: BSD-2-Clause
// Notices: what the application of a fuzz target was told of under FI_BUFFERED_RECV (fi_msg.3,
// "Buffered Receives"), and has not claimed or discarded yet.
//
// Example (statements):
//    Notices notices;
//    char bytes[] = "a message";
//    fi_recv_context context{};
//    const fi_cq_tagged_entry entry{&context, FI_RECV | FI_MSG, sizeof bytes, bytes, 0, 0};
//    notices.add(entry, /*source=*/2, /*min=*/0);
//    // Later; the bytes must be as they were.
//    const Notice notice = notices.take(0);
//    FUZZ_CHECK(notice.source == 2, "a message of another sender");
//
// The provider must leave the bytes alone until then: they are compared with a copy, and a notice's
// address must not be used for another message meanwhile. Not for what the message should be: the
// fuzz target knows.
#ifndef WEFT_TESTS_FUZZ_NOTICES_H
#define WEFT_TESTS_FUZZ_NOTICES_H

#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/fuzz/world.h"

namespace weft::fuzz {

struct Notice {
  fi_recv_context *context = nullptr;
  bool tagged = false, more = false;  // more: the rest has to be claimed
  uint64_t flags = 0, data = 0, tag = 0;
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  uint8_t who = 0;    // for the caller
  size_t length = 0;  // of the whole message
  const uint8_t *buf = nullptr;
  std::vector<uint8_t> bytes;  // that were there
};

class Notices {
 public:
  // A completion that tells of a message. `min`: FI_OPT_BUFFERED_MIN.
  Notice &add(const fi_cq_tagged_entry &e, fi_addr_t source, size_t min) {
    Notice n{.context = static_cast<fi_recv_context *>(e.op_context),
             .tagged = (e.flags & FI_TAGGED) != 0,
             .more = (e.flags & FI_MORE) != 0,
             .flags = e.flags,
             .data = e.data,
             .tag = e.tag,
             .source = source,
             .length = e.len,
             .buf = static_cast<const uint8_t *>(e.buf)};
    FUZZ_CHECK((e.flags & (FI_RECV | FI_CLAIM)) == FI_RECV, "a notice with other flags");
    FUZZ_CHECK(!has(n.context), "a notice is used for two messages");
    const size_t here = n.more ? min : n.length;
    FUZZ_CHECK(here <= n.length, "a short message comes in two parts");
    if (here != 0) n.bytes.assign(n.buf, n.buf + here);
    all_.push_back(std::move(n));
    return all_.back();
  }
  bool has(const void *context) const {
    return std::ranges::any_of(all_, [context](const Notice &n) { return n.context == context; });
  }
  // One of them, which the application is about to claim or discard.
  Notice take(size_t which) {
    const auto at = all_.begin() + ptrdiff_t(which % all_.size());
    Notice n = std::move(*at);
    all_.erase(at);
    FUZZ_CHECK(n.bytes.empty() || std::memcmp(n.buf, n.bytes.data(), n.bytes.size()) == 0,
               "the bytes of a notice were changed");
    return n;
  }
  // The call has to be made again.
  void put_back(Notice n) { all_.push_back(std::move(n)); }
  void clear() { all_.clear(); }
  bool empty() const { return all_.empty(); }
  size_t size() const { return all_.size(); }

 private:
  std::vector<Notice> all_;
};

}  // namespace weft::fuzz

#endif
