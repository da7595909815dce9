// SPDX-License-Identifier: BSD-2-Clause
// Tally: what an actor of a stateful fuzz target did, in all inputs of a run. It is printed at the
// end of the run where the environment has WEFT_FUZZ_TALLY.
//
// Example:
//    inline Tally thief("thief");  // one per actor of the fuzz target
//    inline void on_answer(bool accept) { ++(accept ? thief.accepted : thief.refused); }
//
// Not for checks: what must not happen is a FUZZ_CHECK.
#ifndef WEFT_TESTS_FUZZ_TALLY_H
#define WEFT_TESTS_FUZZ_TALLY_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace weft::fuzz {

class Tally {
 public:
  explicit Tally(const char *actor) : actor_(actor) {}
  Tally(const Tally &) = delete;
  Tally &operator=(const Tally &) = delete;
  ~Tally() {
    if (std::getenv("WEFT_FUZZ_TALLY") == nullptr) return;
    const auto n = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    std::fprintf(stderr, "%s: %llu attempts, %llu accepted, %llu refused, %llu messages told\n",
                 actor_, n(attempts), n(accepted), n(refused), n(told));
  }

  uint64_t attempts = 0;  // connections that it asked for, or that it was asked for
  uint64_t accepted = 0, refused = 0;
  uint64_t told = 0;  // messages of it, or by way of it, that an application got

 private:
  const char *const actor_;
};

}  // namespace weft::fuzz

#endif
