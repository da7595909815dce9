// SPDX-License-Identifier: BSD-2-Clause
// The provider shm: its parameters, and what fi_getinfo tells of it.
//
// Example:
//    #include <weft/sdk/unit.h>
//    static_assert(sdk::Provider<ShmProvider>);
//
// Not for what an endpoint does: endpoint.h.
#ifndef WEFT_PLUGINS_SHM_PROVIDER_H
#define WEFT_PLUGINS_SHM_PROVIDER_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/unit.h>
#include <weft/sdk/unit/params.h>

#include <atomic>
#include <memory>

#include "plugins/shm/settings.h"

namespace weft::shm {

namespace parameters {
inline constexpr weft_param kAll[] = {
    sdk::int_param("tx_size", "1024", "default of tx_attr.size: operations in flight per endpoint",
                   1, kMaxQueue),
    sdk::int_param("rx_size", "1024", "default of rx_attr.size: receives expected per endpoint", 1,
                   kMaxQueue),
    sdk::size_param("ring_size", "32K",
                    "bytes of the ring for records to a peer, of each direction; rounded down to a "
                    "power of two",
                    4096, 1 << 20),
    sdk::size_param(
        "buffer_size", "128K",
        "bytes for payloads to a peer, of each direction; rounded down to a power of two. "
        "A quarter of it, and at most 16K, is sent before the receiver asks for it",
        16384, 1 << 24),
    sdk::size_param("max_saved_per_peer", "32M",
                    "bytes of one peer's messages that are saved until a receive is posted; beyond "
                    "that its ring is not read",
                    0, INT64_MAX),
    sdk::size_param("max_saved", "512M",
                    "the same for all peers of an endpoint; those that are not in its address "
                    "vector get half of it",
                    0, INT64_MAX),
    sdk::int_param("max_unnamed_peers", "1024",
                   "peers of an endpoint that are not in its address vector", 1, 1000000),
    sdk::int_param("close_linger_ms", "1000",
                   "milliseconds that fi_close, and exit() without it, wait for peers to make room "
                   "for injected data",
                   0, 600000),
    sdk::size_param("cma_size", "16M",
                    "bytes from which on a message or an access is copied once, by "
                    "process_vm_readv; shorter ones come in parts through the shared memory, which "
                    "is faster as long as they fit into caches",
                    0, INT64_MAX),
    sdk::bool_param("disable_cma", "0",
                    "copy messages of any length twice, and never by process_vm_readv"),
    sdk::bool_param("other_users", "0",
                    "processes of other users of this host may be peers; all of their endpoints "
                    "must allow it"),
    sdk::yield_after_param("1024"),
};
}  // namespace parameters

class ShmProvider {
 public:
  static constexpr sdk::UnitInfo info{
      .name = "shm",
      .summary = "messages, remote memory access and atomics between processes of one host",
      .version = FI_VERSION(1, 0),
      .offers_ep = WEFT_EP_BIT(FI_EP_RDM),
      .rank = 20,
      .maturity = WEFT_MATURITY_EXPERIMENTAL,
      .security = WEFT_SECURITY_ROBUST,
      .params = parameters::kAll,
  };

  explicit ShmProvider(const weft_instance *instance)
      : instance_(instance), settings_(Settings::from(instance)) {}

  Result<sdk::InfoList> getinfo(const sdk::GetinfoQuery &query);
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);
  Result<void> explain(const sdk::LineSink &line);

 private:
  const weft_instance *instance_;
  const Settings settings_;
  // The number in the next endpoint's name, of all fabrics.
  const std::shared_ptr<std::atomic<unsigned>> next_number_ =
      std::make_shared<std::atomic<unsigned>>(0);
};

}  // namespace weft::shm

#endif
