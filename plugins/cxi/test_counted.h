// SPDX-License-Identifier: BSD-2-Clause
// What tests of cxi over the C API share: options, the setting that they run under, and what a NIC
// counts of its own.
//
// Example:
//    // How many long messages have reached the NIC of an application since it was asked last.
//    inline uint64_t long_messages(weft::conformance::rdm::Counted &counted) {
//      return counted(weft::conformance::rdm::kRendezvousPuts);
//    }
//
// A NIC counts for all processes of the host: the runtime folder of a test is its own.
#ifndef WEFT_PLUGINS_CXI_TEST_COUNTED_H
#define WEFT_PLUGINS_CXI_TEST_COUNTED_H

#include <rdma/fi_cxi_ext.h>

#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {

// Counters of a Cassini, by their numbers (nic/telemetry.h).
inline constexpr unsigned kRendezvousPuts = 998, kPlecHits = 1047, kUnrestricted = 1175,
                          kRestricted = 1178, kHostFetches = 1304, kFlushes = 1305,
                          kHighRateAcks = 1582;

inline Options with(uint64_t caps) {
  Options options;
  options.caps |= caps;
  return options;
}

// What the environment asks for, under which ctest runs the programs again.
inline bool is_over_libcxi() {
  return std::getenv("FI_CXI_LIBCXI") != nullptr;
}
inline bool software_matches() {
  const char *const mode = std::getenv("FI_CXI_RX_MATCH_MODE");
  return mode != nullptr && std::string_view(mode) == "software";
}

// A variable of the environment has a wrong value: stderr says why, and cxi goes on without it.
inline void expect_told(std::string_view reason) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(find_info());
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find(reason), std::string::npos) << told;
}

// The counters of a NIC, since this was made or told.
class Counted {
 public:
  explicit Counted(fid_domain *domain) : domain_(domain) {
    must(fi_open_ops(&domain->fid, FI_CXI_DOM_OPS_6, 0, reinterpret_cast<void **>(&ops_), nullptr));
  }
  uint64_t operator()(unsigned number) {
    uint64_t value = 0;
    timespec when{};
    must(ops_->cntr_read(&domain_->fid, number, &value, &when));
    EXPECT_NE(when.tv_sec, 0);
    const uint64_t before = std::exchange(last_[number], value);
    return value - before;
  }

 private:
  fid_domain *const domain_;
  fi_cxi_dom_ops *ops_ = nullptr;
  std::map<unsigned, uint64_t> last_;
};

}  // namespace weft::conformance::rdm

#endif
