// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/transfers/match.h"

#include <sys/random.h>
#include <time.h>

namespace weft::sdk {
namespace {

// What a peer cannot guess. Before the kernel has randomness, the clock has to do.
void draw(uint64_t (&factors)[2]) {
  if (getrandom(factors, sizeof factors, GRND_NONBLOCK) == ssize_t(sizeof factors)) return;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  for (uint64_t &factor : factors) {
    factor = uint64_t(now.tv_sec) * 1'000'000'007 + uint64_t(now.tv_nsec);
    factor ^= reinterpret_cast<uintptr_t>(&factor) << 20;
    factor *= UINT64_C(0xd1342543de82ef95);
    factor ^= factor >> 29;
    factor *= UINT64_C(0xaf251af3b0f025b5);
  }
}

}  // namespace

Matcher::Matcher() {
  uint64_t factors[2];
  draw(factors);
  exact_.set_seed(factors[0], factors[1]);
  by_source_.set_seed(factors[0], factors[1]);
  by_tag_.set_seed(factors[0], factors[1]);
}

void Matcher::index_posted() {
  posted_indexed_ = true;
  for (Posted *p = posted_list_.front(); p != nullptr; p = posted_list_.next(*p)) index(*p);
}

void Matcher::index_arrived() {
  arrived_indexed_ = true;
  for (Arrived *m = arrived_list_.front(); m != nullptr; m = arrived_list_.next(*m)) index(*m);
}

void Matcher::index_by_source() {
  // Messages of one source stand in order of arrival, so all are inserted anew in that order.
  by_source_.clear();
  for (Arrived *m = arrived_list_.front(); m != nullptr; m = arrived_list_.next(*m))
    by_source_.insert(*m);
}

}  // namespace weft::sdk
