// SPDX-License-Identifier: BSD-2-Clause
// The functions of libibverbs and librdmacm that the double defines, by name: each can be counted
// and made to fail.
//
// Example (statements):
//    const std::optional<Call> call = call_named("ibv_reg_mr");  // Call::k_ibv_reg_mr
//    const std::string_view name = name_of(*call);               // "ibv_reg_mr"
//
// Functions that cannot fail, such as those for texts, are not here.
#ifndef WEFT_PLUGINS_VERBS_DOUBLE_CALLS_H
#define WEFT_PLUGINS_VERBS_DOUBLE_CALLS_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

// clang-format off
#define WEFT_VERBS_CALLS(X) \
  X(ibv_get_device_list) X(ibv_open_device) X(ibv_close_device) X(ibv_query_device) X(ibv_query_device_ex) \
  X(ibv_query_port) X(ibv_query_gid) X(ibv_query_gid_ex) X(ibv_query_gid_table) X(ibv_query_pkey) X(ibv_get_pkey_index) \
  X(ibv_get_async_event) \
  X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_reg_mr) X(ibv_reg_dmabuf_mr) X(ibv_rereg_mr) X(ibv_dereg_mr) \
  X(ibv_create_comp_channel) X(ibv_destroy_comp_channel) X(ibv_create_cq) X(ibv_resize_cq) X(ibv_destroy_cq) \
  X(ibv_get_cq_event) X(ibv_poll_cq) X(ibv_req_notify_cq) \
  X(ibv_create_srq) X(ibv_create_srq_ex) X(ibv_modify_srq) X(ibv_query_srq) X(ibv_get_srq_num) X(ibv_destroy_srq) X(ibv_post_srq_recv) \
  X(ibv_open_xrcd) X(ibv_close_xrcd) \
  X(ibv_create_qp) X(ibv_create_qp_ex) X(ibv_open_qp) X(ibv_modify_qp) X(ibv_query_qp) X(ibv_destroy_qp) \
  X(ibv_post_send) X(ibv_post_recv) \
  X(ibv_create_ah) X(ibv_init_ah_from_wc) X(ibv_destroy_ah) X(ibv_attach_mcast) X(ibv_detach_mcast) \
  X(rdma_create_event_channel) X(rdma_create_id) X(rdma_destroy_id) X(rdma_migrate_id) X(rdma_bind_addr) \
  X(rdma_resolve_addr) X(rdma_resolve_route) X(rdma_listen) X(rdma_connect) X(rdma_establish) X(rdma_accept) \
  X(rdma_reject) X(rdma_disconnect) X(rdma_notify) X(rdma_create_qp) X(rdma_create_qp_ex) X(rdma_init_qp_attr) \
  X(rdma_get_cm_event) X(rdma_get_devices) X(rdma_set_option) X(rdma_getaddrinfo) \
  X(rdma_join_multicast) X(rdma_leave_multicast)
// clang-format on

namespace weft::verbs_double {

enum class Call : uint8_t {
#define WEFT_VERBS_CALL(name) k_##name,
  WEFT_VERBS_CALLS(WEFT_VERBS_CALL)
#undef WEFT_VERBS_CALL
      kCount
};

inline constexpr size_t kCalls = static_cast<size_t>(Call::kCount);

inline constexpr std::string_view kCallNames[kCalls] = {
#define WEFT_VERBS_CALL(name) #name,
    WEFT_VERBS_CALLS(WEFT_VERBS_CALL)
#undef WEFT_VERBS_CALL
};

inline std::string_view name_of(Call call) {
  return kCallNames[static_cast<size_t>(call)];
}

inline std::optional<Call> call_named(std::string_view name) {
  for (size_t i = 0; i < kCalls; ++i) {
    if (kCallNames[i] == name) return static_cast<Call>(i);
  }
  return std::nullopt;
}

}  // namespace weft::verbs_double

#endif
