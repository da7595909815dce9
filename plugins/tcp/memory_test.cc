// SPDX-License-Identifier: BSD-2-Clause
// What becomes of a connection when there is no memory.
#include <rdma/fi_errno.h>

#include <string>

#include "plugin-api/sdk/testing/test_allocations.h"
#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

// Less than the provider allocates for the first answers, and more than text in a log.
constexpr size_t kSome = 512;

// Acknowledgements have no number: a later one would be taken for the one that is missing.
TEST(TcpMemory, WithoutAnAcknowledgementTheConnectionEnds) {
  Pair pair;
  std::vector<uint8_t> out = pattern(8, 1), in(8);
  iovec iov{out.data(), out.size()};
  const auto send = [&](void *context) {
    const fi_msg message{.msg_iov = &iov, .iov_count = 1, .context = context};
    return fi_sendmsg(pair.a.ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
  };
  for (int i = 0; i < 2; ++i) must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
  must(send(&out));
  testing::internal::CaptureStderr();
  fi_cq_tagged_entry entry{};
  {
    const sdk::NoMoreMemory no_more(kSome);
    ssize_t n = -FI_EAGAIN;
    for (const Deadline deadline; n == -FI_EAGAIN && !deadline.passed();)
      n = fi_cq_read(pair.b.rx_cq, &entry, 1);
    EXPECT_EQ(n, 1) << "the message itself has come";
  }
  EXPECT_EQ(in, out);
  if (send(&iov) == 0) {
    EXPECT_NE(pair.wait(pair.a.tx_cq).err, 0);
  }
  EXPECT_NE(pair.wait(pair.a.tx_cq).err, 0) << "an acknowledgement of the second message";
  EXPECT_EQ(pair.wait_event(pair.b.eq, FI_SHUTDOWN).type, uint32_t(FI_SHUTDOWN));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("acknowledge what came from "), log.npos) << log;
}

}  // namespace
}  // namespace weft::conformance
