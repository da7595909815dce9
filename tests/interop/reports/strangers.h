// SPDX-License-Identifier: BSD-2-Clause
// Two applications of which neither knows the other, for reports about address vectors and about
// peers that come and go.
//
// Example:
//     TEST(Example, AStrangersMessageArrives) {
//       Strangers pair{Options()};
//       const fi_addr_t b = pair.a.insert(pair.b.name());
//       std::vector<uint8_t> out = pattern(8, 1);
//       pair.post([&] { return fi_tsend(pair.a.ep, out.data(), 8, nullptr, b, 1, &out); });
//       EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
//     }
//
// Applications that know each other are rdm::Net (rdm_harness.h).
#ifndef WEFT_TESTS_INTEROP_REPORTS_STRANGERS_H
#define WEFT_TESTS_INTEROP_REPORTS_STRANGERS_H

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {

struct Strangers : Driver {
  explicit Strangers(const Options &options) : a(options), b(options) {}
  void progress() override {
    a.progress();
    b.progress();
  }

  Node a, b;

 private:
  std::optional<Completion> next(fid_cq *cq) override { return poll(cq); }  // with its source
};

}  // namespace weft::conformance::rdm

#endif
