// SPDX-License-Identifier: BSD-2-Clause
// Node: one process in the simulated world of the stateful fuzz target, with its objects of the tcp
// provider.
//
// Example:
//    inline void run(const Settings &settings) {
//      Node us;
//      us.host = 1;
//      us.cq_size = 64;
//      us.open(settings, /*msg=*/false, /*wants_shared=*/false);
//      Endpoint &endpoint = us.make(us.info);
//      endpoint.post_any();
//      us.drain(16);
//      us.close();
//    }
//
// Not for what the endpoints do: application.h.
#ifndef WEFT_PLUGINS_TCP_FUZZ_NODE_H
#define WEFT_PLUGINS_TCP_FUZZ_NODE_H

#include <netinet/in.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/plugin.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/tcp/fuzz/application.h"
#include "plugins/tcp/settings.h"

namespace weft::tcp::fuzz {

struct Node {
  weft_instance instance{};
  uint8_t host = 0;
  bool connected = false;  // FI_EP_MSG
  bool keyed = false;      // has the friends' auth_key
  size_t cq_size = 0;
  Buffered buffered;  // of its endpoints
  fi_info *info = nullptr;
  fid_fabric *fabric = nullptr;
  fid_domain *domain = nullptr;
  fid_av *av = nullptr;
  fid_eq *eq = nullptr;
  fid_pep *pep = nullptr;
  Receives shared;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::unique_ptr<Region> region, open_region;

  void open(const Settings &settings, bool msg, bool wants_shared);
  void close();
  std::unique_ptr<Region> make_region();
  Endpoint &make(const fi_info *from);
  sockaddr_in name(struct fid *fid) const;
  void drain(int calls);
};

inline void must(int rc) {
  FUZZ_CHECK(rc == 0);
}

}  // namespace weft::tcp::fuzz

#endif
