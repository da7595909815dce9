// SPDX-License-Identifier: BSD-2-Clause
// One tagged message between two applications over rxm, checked at both ends.
//
// Example:
//    inline void ping_pong(Peer &a, Peer &b) {
//      exchange(a, b, a.insert(b), /*size=*/1000, /*tag=*/1);
//      exchange(b, a, b.insert(a), /*size=*/1000, /*tag=*/2);
//    }
//
// Not for messages that may fail.
#ifndef WEFT_TESTS_VERBS_RXM_EXCHANGE_H
#define WEFT_TESTS_VERBS_RXM_EXCHANGE_H

#include "plugins/rxm/test_peer.h"
#include "tests/verbs/network.h"

namespace weft::conformance {

// To a receive that waits. `patient`: the sender may have to find out first that its connection is
// gone, and its peer too: then it sends again.
inline void exchange(Peer &a, Peer &b, fi_addr_t to, size_t size, uint64_t tag,
                     bool patient = false) {
  const Bytes out = content(size, unsigned(tag));
  Bytes in(size);
  must(fi_trecv(b.ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, tag, 0, &in));
  int err;
  const Deadline deadline;
  do {
    ssize_t rc = -FI_EAGAIN;
    ASSERT_TRUE(until({&a, &b}, [&] {
      rc = fi_tsend(a.ep, out.data(), size, nullptr, to, tag, &a);
      return rc != -FI_EAGAIN;
    }));
    must(rc);
    err = wait(a, &a, {&a, &b}).err;
  } while (patient && err != 0 && !deadline.passed());
  EXPECT_EQ(err, 0) << fi_strerror(err);
  EXPECT_EQ(wait(b, &in, {&a, &b}).err, 0);
  EXPECT_EQ(in, out);
}

}  // namespace weft::conformance

#endif
