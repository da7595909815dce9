// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/settings.h"

#include <algorithm>

#include "plugins/shm/provider.h"

namespace weft::shm {

Settings Settings::from(const weft_instance *instance) {
  const sdk::Params<ShmProvider> params(instance);
  Settings s;
  s.tx_size = size_t(params.integer("tx_size"));
  s.rx_size = size_t(params.integer("rx_size"));
  s.geometry.lines = std::clamp(std::bit_floor(uint32_t(params.size("ring_size") / kLine)),
                                Geometry::kLeastLines, Geometry::kMostLines);
  s.geometry.bytes = std::clamp(std::bit_floor(uint32_t(params.size("buffer_size"))),
                                Geometry::kLeastBytes, Geometry::kMostBytes);
  s.max_saved_per_peer = uint64_t(params.size("max_saved_per_peer"));
  s.max_saved = uint64_t(params.size("max_saved"));
  s.max_unnamed_peers = size_t(params.integer("max_unnamed_peers"));
  s.close_linger_ns = uint64_t(params.integer("close_linger_ms")) * 1'000'000u;
  s.cma_size = uint64_t(params.size("cma_size"));
  s.disable_cma = params.flag("disable_cma");
  s.other_users = params.flag("other_users");
  return s;
}

}  // namespace weft::shm
