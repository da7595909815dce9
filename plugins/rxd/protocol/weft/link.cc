// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/link.h"

#include <rdma/fi_errno.h>

#include <cstdio>

namespace weft::rxd {

bool Link::violated(const char *what) {
  char text[200];
  std::snprintf(text, sizeof text, "the connection with %s ends: it sent %s",
                peer.address.to_string().c_str(), what);
  core.counters().violations.add_alone();
  core.upper().warn_of_peer(text);
  core.lose(peer, FI_ECONNRESET, true);
  return false;
}

bool Link::no_memory(const char *what) {
  core.upper().warn_of_peer(what);
  core.lose(peer, FI_ENOMEM, true);
  return false;
}

}  // namespace weft::rxd
