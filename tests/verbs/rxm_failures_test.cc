// SPDX-License-Identifier: BSD-2-Clause
// rxm over queue pairs that fail: what is lost is the peer's that it is about, and nothing else.
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include <cstdlib>
#include <cstring>

#include "tests/verbs/rxm_exchange.h"

namespace weft::conformance {
namespace {

bool has_limit() {
  return std::getenv("FI_OFI_RXM_MAX_CONNECTIONS") != nullptr;
}

// ---- peers that go away ----

// Nothing answers at one address any more. What goes there fails; the other peer does not notice;
// and when the host is back, the next message finds it.
TEST(RxmOverVerbsFailures, APeerThatVanishesCostsItsOwnOperationsOnly) {
  if (has_limit()) GTEST_SKIP() << "a connection that parts waits for a host that is gone";
  for (const size_t size : {100, 30'000, 200'000}) {
    SCOPED_TRACE(size);
    Peer a, b(PeerOptions{.node = kOther}), c;
    const fi_addr_t to_b = a.insert(b), to_c = a.insert(c);
    exchange(a, b, to_b, 1000, 1);
    exchange(a, c, to_c, 1000, 1);
    device(kOther).vanish();
    const Bytes out = content(size, 1);
    must(fi_tsend(a.ep, out.data(), size, nullptr, to_b, 2, mark(2)));
    for (uint64_t tag = 0; tag < 20; ++tag) exchange(a, c, to_c, 5000, tag);
    const Entry lost = wait(a, mark(2), {&a, &c});
    EXPECT_NE(lost.err, 0);
    EXPECT_NE(lost.err, FI_EINVAL);
    exchange(a, c, to_c, 300'000, 3);
    device(kOther).vanish(false);
    exchange(a, b, to_b, 1000, 4, /*patient=*/true);
    exchange(a, b, to_b, 300'000, 5);
  }
}

// A device is taken out of its host. Its endpoint's operations fail, and those of its peers to it.
TEST(RxmOverVerbsFailures, ADeviceThatGoesAwayFailsItsOwnEndpointOnly) {
  if (has_limit()) GTEST_SKIP() << "a connection that parts waits for a device that is gone";
  Peer a, b;
  {
    Peer gone(PeerOptions{.node = kMortal});
    const fi_addr_t to_gone = a.insert(gone), to_b = a.insert(b), back = gone.insert(a);
    exchange(a, gone, to_gone, 1000, 1);
    exchange(gone, a, back, 1000, 1);
    exchange(a, b, to_b, 1000, 1);
    const Bytes out = content(300'000, 1);
    must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to_gone, 2, mark(2)));
    must(fi_tsend(gone.ep, out.data(), out.size(), nullptr, back, 2, mark(3)));
    for (int i = 0; i < 100; ++i) {
      a.progress();
      gone.progress();
    }
    device(kMortal).remove();
    // Nobody tells the peer: it finds out with the next packet. Then what waits for an answer
    // fails.
    must(fi_tsend(a.ep, out.data(), 100, nullptr, to_gone, 4, mark(5)));
    EXPECT_NE(wait(a, mark(5), {&a, &gone}).err, 0);
    EXPECT_NE(wait(a, mark(2), {&a, &gone}).err, 0);
    EXPECT_NE(wait(gone, mark(3), {&a, &gone}).err, 0);
    // Later ones fail too, at once or when the connection cannot be made.
    const ssize_t rc = fi_tsend(gone.ep, out.data(), 100, nullptr, back, 3, mark(4));
    if (rc == 0) {
      EXPECT_NE(wait(gone, mark(4), {&a, &gone}).err, 0);
    }
    exchange(a, b, to_b, 300'000, 2);
  }
  exchange(a, b, a.insert(b), 300'000, 3);
}

// One completion with an error ends the connection. The next operation makes another.
TEST(RxmOverVerbsFailures, AConnectionThatBreaksIsMadeAgain) {
  if (has_limit()) GTEST_SKIP() << "another connection may be parting, and would get the error";
  for (const ibv_wc_status status :
       {IBV_WC_RETRY_EXC_ERR, IBV_WC_REM_OP_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_FATAL_ERR}) {
    SCOPED_TRACE(status);
    Peer a, b, c;
    const fi_addr_t to_b = a.insert(b), to_c = a.insert(c);
    exchange(a, b, to_b, 1000, 1);
    exchange(a, c, to_c, 1000, 1);
    network().fail(verbs_double::CompletionFault{.status = status});
    const Bytes out = content(1000, 1);
    must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to_b, 2, mark(2)));
    EXPECT_NE(wait(a, mark(2), {&a, &b}).err, 0);
    exchange(a, c, to_c, 1000, 3);
    exchange(a, b, to_b, 1000, 4, /*patient=*/true);
  }
}

// Software iWARP: the port that the device chose for a connection is one of TCP's already.
TEST(RxmOverVerbsFailures, APortInUseIsNotTheApplicationsProblem) {
  Peer a, b;
  const uint64_t connections = network().calls("rdma_connect");
  for (const uint64_t at : {1, 2})
    network().fail({.call = "rdma_connect", .error = EADDRINUSE, .at = at});
  exchange(a, b, a.insert(b), 1000, 1);
  EXPECT_EQ(network().calls("rdma_connect"), connections + 3);
}

// ---- memory that cannot be registered ----

// The sender's memory, or the receiver's: that operation fails, and the connection goes on.
TEST(RxmOverVerbsFailures, AFailedRegistrationFailsItsOperationOnly) {
  Peer a, b;
  const fi_addr_t to = a.insert(b);
  exchange(a, b, to, 1'000'000, 1);
  const uint64_t connections = network().calls("rdma_connect");
  for (const uint64_t at : {1, 2}) {
    SCOPED_TRACE(at == 1 ? "sender" : "receiver");
    const Bytes out = content(1'000'000, 2);
    Bytes in(out.size());
    network().fail({.call = "ibv_reg_mr", .error = ENOMEM, .at = at});
    must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 2, 0, &in));
    const ssize_t rc = fi_tsend(a.ep, out.data(), out.size(), nullptr, to, 2, &a);
    if (at == 1) {
      if (rc == 0) {
        EXPECT_EQ(wait(a, &a, {&a, &b}).err, FI_ENOMEM);
      } else {
        EXPECT_EQ(rc, -FI_ENOMEM);
      }
      must(fi_cancel(&b.ep->fid, &in));
      EXPECT_EQ(wait(b, &in, {&a, &b}).err, FI_ECANCELED);
    } else {
      must(rc);
      EXPECT_EQ(wait(b, &in, {&a, &b}).err, FI_ENOMEM);
      EXPECT_EQ(wait(a, &a, {&a, &b}).err, 0);  // as when a receive is too short
    }
    exchange(a, b, to, 1'000'000, 3);
    exchange(b, a, b.insert(a), 1'000'000, 4);
  }
  EXPECT_EQ(network().calls("rdma_connect"), connections);
}

// ---- closing ----

// Injected messages are the library's, also where the device takes no data with a request.
TEST(RxmOverVerbsFailures, InjectedMessagesArriveAfterTheSenderClosed) {
  for (const char *node : {kAddress, kPlain, kSmall}) {
    SCOPED_TRACE(node);
    constexpr size_t kCount = 10;  // no more than are posted anywhere
    Peer b(PeerOptions{.node = node});
    {
      Peer a(PeerOptions{.node = node});
      const fi_addr_t to = a.insert(b);
      exchange(a, b, to, 1000, 1000);
      for (uint64_t i = 0; i < kCount; ++i) {
        ssize_t rc;
        do {
          rc = fi_tinject(a.ep, &i, sizeof i, to, i);
          a.progress();
          if (rc == -FI_EAGAIN) b.progress();
        } while (rc == -FI_EAGAIN);
        must(rc);
      }
    }
    for (uint64_t i = 0; i < kCount; ++i) {
      uint64_t in = 0;
      must(fi_trecv(b.ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, i, 0, mark(i)));
      EXPECT_EQ(wait(b, mark(i), {&b}).err, 0);
      EXPECT_EQ(in, i);
    }
  }
}

// Peers part when there are more connections than wanted (FI_OFI_RXM_MAX_CONNECTIONS), and an
// answer may be on its way then. Nothing is lost.
TEST(RxmOverVerbsFailures, NothingIsLostWhenPeersPart) {
  for (const char *node : {kAddress, kPlain}) {
    SCOPED_TRACE(node);
    Peer a(PeerOptions{.node = node});
    std::vector<std::unique_ptr<Peer>> peers;
    for (int i = 0; i < 4; ++i) peers.push_back(std::make_unique<Peer>(PeerOptions{.node = node}));
    for (uint64_t tag = 0; tag < 40; ++tag) {
      Peer &b = *peers[tag % peers.size()];
      const fi_addr_t to = a.insert(b), back = b.insert(a);
      exchange(a, b, to, 200'000, tag);
      exchange(b, a, back, 200'000, tag);
      exchange(a, b, to, 30, tag);
    }
  }
}

}  // namespace
}  // namespace weft::conformance
