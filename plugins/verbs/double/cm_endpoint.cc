// SPDX-License-Identifier: BSD-2-Clause
// rdma_create_ep(3): an identifier whose calls wait for their events, resolved or bound.
#include "plugins/verbs/double/cm.h"

using namespace weft::verbs_double;

extern "C" {

int rdma_create_ep(rdma_cm_id **result, rdma_addrinfo *info, ibv_pd *pd, ibv_qp_init_attr *wanted) {
  rdma_cm_id *id = nullptr;
  const auto ps = static_cast<rdma_port_space>(info->ai_port_space);
  if (rdma_create_id(nullptr, &id, nullptr, ps) != 0) return -1;
  const auto give_up = [id] {
    const int error = errno;
    rdma_destroy_ep(id);
    return failed(error);
  };
  if ((info->ai_flags & RAI_PASSIVE) != 0) {
    if (rdma_bind_addr(id, info->ai_src_addr) != 0) return give_up();
    *result = id;
    return 0;
  }
  constexpr int kTimeout = 2000;
  if (rdma_resolve_addr(id, info->ai_src_addr, info->ai_dst_addr, kTimeout) != 0) return give_up();
  if (rdma_resolve_route(id, kTimeout) != 0) return give_up();
  if (wanted != nullptr && rdma_create_qp(id, pd, wanted) != 0) return give_up();
  *result = id;
  return 0;
}

void rdma_destroy_ep(rdma_cm_id *id) {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

}  // extern "C"
