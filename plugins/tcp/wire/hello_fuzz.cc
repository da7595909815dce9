// SPDX-License-Identifier: BSD-2-Clause
// The private data of FI_EP_RDM endpoints, and a peer link that any sequence of events drives.
// Input: a byte for the length of the hello, the hello, then one byte per event.
#include <algorithm>
#include <vector>

#include "peer_link.h"
#include "rdm_message.h"
#include "tests/fuzz/check.h"

using namespace weft::tcp;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const size_t length = std::min<size_t>(data[0], size - 1);
  const std::vector<uint8_t> bytes(data + 1, data + 1 + length);
  const auto hello = parse_hello(bytes);
  if (hello) {
    const auto again = encode_hello(*hello);
    FUZZ_CHECK(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
    FUZZ_CHECK(kind_of_answer(answer_to(hello->version)) ==
               (hello->version == 0 ? EndpointKind::kRdm0 : EndpointKind::kRdm1));
  } else {
    FUZZ_CHECK(text(hello.error()) != nullptr);
  }

  using State = PeerLink::State;
  using Next = PeerLink::Next;
  PeerLink link;
  uint64_t now = 0;
  for (size_t i = 1 + length; i < size; ++i) {
    const State before = link.state();
    const uint8_t argument = data[i] >> 3;
    switch (data[i] & 7) {
      case 0: {
        const Next next = link.want(now, 50'000'000);
        FUZZ_CHECK((next == Next::kConnect) == (before == State::kIdle));
        FUZZ_CHECK(next != Next::kFail);
        break;
      }
      case 1: {
        const auto order = argument % 3 == 0   ? std::strong_ordering::less
                           : argument % 3 == 1 ? std::strong_ordering::equal
                                               : std::strong_ordering::greater;
        const auto decision = link.on_request(order, argument);
        FUZZ_CHECK(!decision.drop_attempt || before == State::kAttempt);
        FUZZ_CHECK(!decision.challenge || (before == State::kUp && !decision.accept));
        FUZZ_CHECK(decision.accept || link.state() == before);
        FUZZ_CHECK(!decision.accept || decision.second || link.state() == State::kUp);
        break;
      }
      case 2:
        if (before == State::kAttempt) link.on_accepted(argument);
        break;
      case 3:
      case 4:
      case 5: {
        const auto refusal = static_cast<PeerLink::Refusal>((data[i] & 7) - 3);
        const Next next = link.on_refused(now, refusal, argument != 0);
        FUZZ_CHECK(before == State::kAttempt || next == Next::kNothing);
        FUZZ_CHECK(next != Next::kWait ||
                   (link.state() == State::kBackoff && link.retry_at() > now));
        FUZZ_CHECK(next != Next::kFail || link.state() == State::kIdle);
        break;
      }
      case 6:
        now = std::max(now, link.retry_at());
        FUZZ_CHECK((link.on_retry(now, argument != 0) == Next::kConnect) ==
                   (before == State::kBackoff && argument != 0));
        break;
      default:
        link.on_lost();
        FUZZ_CHECK(link.state() != State::kUp);
    }
  }
  return 0;
}
