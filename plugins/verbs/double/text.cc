// SPDX-License-Identifier: BSD-2-Clause
// Texts and rates: what libibverbs says in words.
#include <infiniband/verbs.h>

#include <cstddef>
#include <iterator>

namespace weft::verbs_double {

namespace {

const char *text_at(const char *const *texts, size_t count, int index) {
  return index >= 0 && static_cast<size_t>(index) < count ? texts[index] : "unknown";
}

struct Rate {
  ibv_rate rate;
  int multiple;  // of 2.5 Gbit/s
  int mbps;
};

constexpr Rate kRates[] = {{IBV_RATE_2_5_GBPS, 1, 2500},    {IBV_RATE_5_GBPS, 2, 5000},
                           {IBV_RATE_10_GBPS, 4, 10000},    {IBV_RATE_20_GBPS, 8, 20000},
                           {IBV_RATE_30_GBPS, 12, 30000},   {IBV_RATE_40_GBPS, 16, 40000},
                           {IBV_RATE_60_GBPS, 24, 60000},   {IBV_RATE_80_GBPS, 32, 80000},
                           {IBV_RATE_120_GBPS, 48, 120000}, {IBV_RATE_100_GBPS, 40, 103125},
                           {IBV_RATE_200_GBPS, 80, 206250}};

}  // namespace

}  // namespace weft::verbs_double

using namespace weft::verbs_double;

extern "C" {

const char *ibv_wc_status_str(ibv_wc_status status) {
  static constexpr const char *kTexts[] = {"success",
                                           "local length error",
                                           "local QP operation error",
                                           "local EE context operation error",
                                           "local protection error",
                                           "Work Request Flushed Error",
                                           "memory management operation error",
                                           "bad response error",
                                           "local access error",
                                           "remote invalid request error",
                                           "remote access error",
                                           "remote operation error",
                                           "transport retry counter exceeded",
                                           "RNR retry counter exceeded",
                                           "local RDD violation error",
                                           "remote invalid RD request",
                                           "aborted error",
                                           "invalid EE context number",
                                           "invalid EE context state",
                                           "fatal error",
                                           "response timeout error",
                                           "general error",
                                           "TM error",
                                           "TM software rendezvous"};
  return text_at(kTexts, std::size(kTexts), static_cast<int>(status));
}

const char *ibv_node_type_str(ibv_node_type type) {
  static constexpr const char *kTexts[] = {"unknown",           "InfiniBand channel adapter",
                                           "InfiniBand switch", "InfiniBand router",
                                           "iWARP NIC",         "usNIC",
                                           "usNIC UDP",         "unspecified"};
  return text_at(kTexts, std::size(kTexts), static_cast<int>(type));
}

const char *ibv_port_state_str(ibv_port_state state) {
  static constexpr const char *kTexts[] = {
      "no state change (NOP)", "down", "init", "armed", "active", "defer"};
  return text_at(kTexts, std::size(kTexts), static_cast<int>(state));
}

const char *ibv_event_type_str(ibv_event_type event) {
  static constexpr const char *kTexts[] = {"CQ error",
                                           "local work queue catastrophic error",
                                           "invalid request local work queue error",
                                           "local access violation work queue error",
                                           "communication established",
                                           "send queue drained",
                                           "path migrated",
                                           "path migration request error",
                                           "local catastrophic error",
                                           "port active",
                                           "port error",
                                           "LID change",
                                           "P_Key change",
                                           "SM change",
                                           "SRQ catastrophic error",
                                           "SRQ limit reached",
                                           "last WQE reached",
                                           "client reregistration",
                                           "GID table change",
                                           "WQ fatal"};
  return text_at(kTexts, std::size(kTexts), static_cast<int>(event));
}

int ibv_rate_to_mult(ibv_rate rate) {
  for (const Rate &known : kRates) {
    if (known.rate == rate) return known.multiple;
  }
  return -1;
}

ibv_rate mult_to_ibv_rate(int multiple) {
  for (const Rate &known : kRates) {
    if (known.multiple == multiple) return known.rate;
  }
  return IBV_RATE_MAX;
}

int ibv_rate_to_mbps(ibv_rate rate) {
  for (const Rate &known : kRates) {
    if (known.rate == rate) return known.mbps;
  }
  return -1;
}

ibv_rate mbps_to_ibv_rate(int mbps) {
  for (const Rate &known : kRates) {
    if (known.mbps == mbps) return known.rate;
  }
  return IBV_RATE_MAX;
}

int ibv_fork_init() {
  return 0;
}

ibv_fork_status ibv_is_fork_initialized() {
  return IBV_FORK_UNNEEDED;
}

}  // extern "C"
