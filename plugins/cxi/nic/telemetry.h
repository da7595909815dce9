// SPDX-License-Identifier: BSD-2-Clause
// Telemetry: what a NIC counts of its own, for all processes that use it (fi_cxi.7, cntr_read and
// FI_CXI_TELEMETRY). The numbers and names are a Cassini's.
//
// Example:
//    // Which of them an application means.
//    inline bool is_of_short_packets(unsigned number) {
//      const auto which = telemetry_of(number);
//      return which == Telemetry::kRestrictedPackets;
//    }
//
// A Cassini has some hundred more. Not for what the provider counts: counters.h.
#ifndef WEFT_PLUGINS_CXI_NIC_TELEMETRY_H
#define WEFT_PLUGINS_CXI_NIC_TELEMETRY_H

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace weft::cxi {

// Of requests that a NIC gets, but for kHighRateAcks, which is of those that it has sent.
enum class Telemetry : uint8_t {
  kSuccess,
  kFailure,
  kPuts,
  kRendezvousPuts,
  kGets,
  kAtomics,
  kFetchingAtomics,
  kPlecHits,  // requests for a region without events and counters
  kUnrestrictedPackets,
  kRestrictedPackets,
  kHostFetches,  // values that an atomic brought back
  kFlushes,
  kHighRateAcks,
};

struct TelemetryName {
  unsigned number;
  std::string_view name;
};
inline constexpr TelemetryName kTelemetry[] = {
    {992, "lpe_success_cntr"},
    {993, "lpe_fail_cntr"},
    {997, "lpe_put_cmds"},
    {998, "lpe_rendezvous_put_cmds"},
    {999, "lpe_get_cmds"},
    {1000, "lpe_amo_cmds"},
    {1001, "lpe_famo_cmds"},
    {1047, "lpe_plec_hits"},
    {1175, "ixe_rx_ptl_unrestricted_pkt"},
    {1178, "ixe_rx_ptl_restricted_pkt"},
    {1304, "ixe_dmawr_cpu_ftch_amo_reqs"},
    {1305, "ixe_dmawr_flush_reqs"},
    {1582, "hni_hrp_ack"},
};
inline constexpr size_t kTelemetryCount = std::size(kTelemetry);
static_assert(kTelemetryCount == size_t(Telemetry::kHighRateAcks) + 1);

inline std::optional<Telemetry> telemetry_of(unsigned number) {
  for (size_t i = 0; i < kTelemetryCount; ++i)
    if (kTelemetry[i].number == number) return Telemetry(i);
  return std::nullopt;
}
inline std::optional<Telemetry> telemetry_of(std::string_view name) {
  for (size_t i = 0; i < kTelemetryCount; ++i)
    if (kTelemetry[i].name == name) return Telemetry(i);
  return std::nullopt;
}

}  // namespace weft::cxi

#endif
