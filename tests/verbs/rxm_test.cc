// SPDX-License-Identifier: BSD-2-Clause
// rxm over queue pairs: what the device decides, and rdm_test.cc does not know.
#include <rdma/fi_atomic.h>

#include "tests/verbs/rxm_exchange.h"

namespace weft::conformance {
namespace {

TEST(RxmOverVerbs, DevicesOfEachKindTalk) {
  for (const char *node : {kAddress, kPlain, kSmall}) {
    SCOPED_TRACE(node);
    Peer a(PeerOptions{.node = node}), b;
    const fi_addr_t to_b = a.insert(b), to_a = b.insert(a);
    for (uint64_t tag = 0; tag < 300; ++tag) {
      exchange(a, b, to_b, tag * 37 % 500, tag);
      exchange(b, a, to_a, tag * 53 % 500, tag);
    }
    for (const size_t size : {16384, 16385, 65536, 65537, 1000000}) {
      exchange(a, b, to_b, size, 1);
      exchange(b, a, to_a, size, 2);
    }
  }
}

// A large message goes from the memory of one application to that of the other. Memory that the
// application did not register is registered for the one message.
TEST(RxmOverVerbs, LargeMessagesAreNotCopied) {
  Peer a, b;
  const fi_addr_t to = a.insert(b);
  exchange(a, b, to, 1000000, 1);
  const uint64_t before = network().calls("ibv_reg_mr");
  exchange(a, b, to, 1000000, 2);
  EXPECT_EQ(network().calls("ibv_reg_mr") - before, 2u);
}

// A peer sends what the receiver has posted buffers for, and closes at once.
TEST(RxmOverVerbs, MessagesSentBeforeTheEndArrive) {
  for (const char *node : {kAddress, kPlain}) {
    constexpr size_t kCount = 20;
    Peer b(PeerOptions{.node = node});
    {
      Peer a;
      const fi_addr_t to = a.insert(b);
      exchange(a, b, to, 3000, 1000);
      for (size_t i = 0; i < kCount; ++i) {
        const Bytes out = content(3000, unsigned(i));
        must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to, i, mark(i)));
        EXPECT_EQ(wait(a, mark(i), {&a}).err, 0);
      }
    }
    for (size_t i = 0; i < kCount; ++i) {
      Bytes in(3000);
      must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, i, 0, mark(i)));
      EXPECT_EQ(wait(b, mark(i), {&b}).err, 0);
      EXPECT_EQ(in, content(3000, unsigned(i))) << i;
    }
  }
}

}  // namespace
}  // namespace weft::conformance
