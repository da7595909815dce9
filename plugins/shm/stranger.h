// SPDX-License-Identifier: BSD-2-Clause
// Stranger: a process that has connected and has not said yet who it is. It is private to the
// endpoint, of which only peers.cc and endpoint_life.cc need it whole.
#ifndef WEFT_PLUGINS_SHM_STRANGER_H
#define WEFT_PLUGINS_SHM_STRANGER_H

#include <utility>

#include "plugins/shm/endpoint.h"

namespace weft::shm {

struct Endpoint::Stranger final : Watched {
  Stranger(sdk::UniqueFd fd, const Process &who)
      : Watched(What::kStranger), socket(std::move(fd)), process(who) {}
  sdk::UniqueFd socket;
  const Process process;
};

}  // namespace weft::shm

#endif
