/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The layout of every struct in weft/plugin.h as ABI 1.0 fixed it, for machines with 64-bit
 * pointers (LP64): offset, size and type of each member, and the value of each constant. Compiled
 * as C11 and as C++20.
 *
 * Frozen. A line here changes with a new ABI major only. A minor adds lines: for members appended
 * to a struct, whose own size line then grows (weft_fid_header never does), and for new structs and
 * constants. See docs/ABI.md.
 */
#ifndef WEFT_TESTS_ABI_PLUGIN_LAYOUT_H
#define WEFT_TESTS_ABI_PLUGIN_LAYOUT_H

#include <weft/plugin.h>

#ifdef __cplusplus
#include <type_traits>
#define FROZEN(condition, text) static_assert(condition, text)
#define FROZEN_IS(type, member, ...) std::is_same_v<decltype(type::member), __VA_ARGS__>
#else
#define FROZEN(condition, text) _Static_assert(condition, text)
#define FROZEN_IS(type, member, ...) \
  __builtin_types_compatible_p(__typeof__(((type *)0)->member), __VA_ARGS__)
#endif

#define FROZEN_SIZE(type, bytes) FROZEN(sizeof(type) == (bytes), "the size of " #type " changed")
#define FROZEN_MEMBER(type, member, offset, bytes, ...)                                        \
  FROZEN(offsetof(type, member) == (offset), #type "." #member " moved");                      \
  FROZEN(sizeof(((type *)0)->member) == (bytes), "the size of " #type "." #member " changed"); \
  FROZEN(FROZEN_IS(type, member, __VA_ARGS__), "the type of " #type "." #member " changed")
#define FROZEN_VALUE(name, value) FROZEN((name) == (value), "the value of " #name " changed")

/* clang-format off */
FROZEN_VALUE(WEFT_ABI_MAJOR, 1);
FROZEN_VALUE(WEFT_OFFER_MAGIC, 0x4f544657u);
FROZEN_VALUE(WEFT_DESC_MAGIC, 0x44544657u);
FROZEN_VALUE(WEFT_UNIT_MAGIC, 0x55544657u);
FROZEN_VALUE(WEFT_FID_MAGIC, 0x46544657u);
FROZEN_VALUE(WEFT_INSTANCE_MAGIC, 0x49544657u);
FROZEN_VALUE(WEFT_CORE_CAP_HOOKS, 1);
FROZEN_VALUE(WEFT_MAX_UNITS, 64);
FROZEN_VALUE(WEFT_MAX_HOOK_SLOTS, 32);
FROZEN_VALUE(WEFT_MAX_INNER, 16);
FROZEN_VALUE(WEFT_GETINFO_NAMED, 1);
FROZEN(sizeof(WEFT_QUERY_SYMBOL) == sizeof("weft_plugin_query"), "WEFT_QUERY_SYMBOL changed");
FROZEN(sizeof(WEFT_COUNTERS_OPS) == sizeof("weft_counters_1"), "WEFT_COUNTERS_OPS changed");
FROZEN(sizeof(WEFT_HOOK_COUNTERS_OPS) == sizeof("weft_counters_1:"), "WEFT_HOOK_COUNTERS_OPS changed");
FROZEN_VALUE(WEFT_EP_BIT(FI_EP_MSG), 2);
FROZEN_VALUE(WEFT_EP_BIT(FI_EP_DGRAM), 4);
FROZEN_VALUE(WEFT_EP_BIT(FI_EP_RDM), 8);
FROZEN_VALUE(WEFT_TYPE_BOOL, 1);
FROZEN_VALUE(WEFT_TYPE_INT, 2);
FROZEN_VALUE(WEFT_TYPE_SIZE, 3);
FROZEN_VALUE(WEFT_TYPE_STRING, 4);
FROZEN_VALUE(WEFT_TYPE_LIST, 5);
FROZEN_VALUE(WEFT_KIND_PROVIDER, 1);
FROZEN_VALUE(WEFT_KIND_LAYER, 2);
FROZEN_VALUE(WEFT_KIND_HOOK, 3);
FROZEN_VALUE(WEFT_MATURITY_STABLE, 1);
FROZEN_VALUE(WEFT_MATURITY_BETA, 2);
FROZEN_VALUE(WEFT_MATURITY_EXPERIMENTAL, 3);
FROZEN_VALUE(WEFT_SECURITY_NO_NETWORK, 1);
FROZEN_VALUE(WEFT_SECURITY_ROBUST, 2);
FROZEN_VALUE(WEFT_SECURITY_TRUSTED_PEERS, 3);

FROZEN_SIZE(weft_error, 512);
FROZEN_MEMBER(weft_error, struct_size, 0, 4, uint32_t);
FROZEN_MEMBER(weft_error, code, 4, 4, int32_t);
FROZEN_MEMBER(weft_error, text, 8, 504, char[504]);

FROZEN_SIZE(weft_param, 48);
FROZEN_MEMBER(weft_param, struct_size, 0, 4, uint32_t);
FROZEN_MEMBER(weft_param, type, 4, 4, uint32_t);
FROZEN_MEMBER(weft_param, name, 8, 8, const char *);
FROZEN_MEMBER(weft_param, default_value, 16, 8, const char *);
FROZEN_MEMBER(weft_param, help, 24, 8, const char *);
FROZEN_MEMBER(weft_param, minimum, 32, 8, int64_t);
FROZEN_MEMBER(weft_param, maximum, 40, 8, int64_t);

FROZEN_SIZE(weft_value, 40);
FROZEN_MEMBER(weft_value, struct_size, 0, 4, uint32_t);
FROZEN_MEMBER(weft_value, type, 4, 4, uint32_t);
FROZEN_MEMBER(weft_value, is_default, 8, 4, uint32_t);
FROZEN_MEMBER(weft_value, reserved, 12, 4, uint32_t);
FROZEN_MEMBER(weft_value, number, 16, 8, int64_t);
FROZEN_MEMBER(weft_value, string_core, 24, 8, const char *);
FROZEN_MEMBER(weft_value, origin_core, 32, 8, const char *);

FROZEN_SIZE(weft_core_services, 72);
FROZEN_MEMBER(weft_core_services, struct_size, 0, 4, uint32_t);
FROZEN_MEMBER(weft_core_services, reserved, 4, 4, uint32_t);
FROZEN_MEMBER(weft_core_services, info_alloc, 8, 8, struct fi_info * (*)(void));
FROZEN_MEMBER(weft_core_services, info_dup, 16, 8, struct fi_info * (*)(const struct fi_info *info));
FROZEN_MEMBER(weft_core_services, info_free, 24, 8, void (*)(struct fi_info *info));
FROZEN_MEMBER(weft_core_services, log_enabled, 32, 8, int32_t (*)(const weft_instance *instance, int32_t level, int32_t subsys));
FROZEN_MEMBER(weft_core_services, log, 40, 8, void (*)(const weft_instance *instance, int32_t level, int32_t subsys, const char *func, int32_t line, const char *text));
FROZEN_MEMBER(weft_core_services, object_opened, 48, 8, int32_t (*)(struct fid *fid, struct fid *parent, weft_error *why));
FROZEN_MEMBER(weft_core_services, object_closing, 56, 8, void (*)(struct fid *fid));
FROZEN_MEMBER(weft_core_services, check_info, 64, 8, int32_t (*)(const weft_instance *instance, uint32_t api_version, const struct fi_info *info, weft_error *why));

FROZEN_SIZE(weft_offer, 40);
FROZEN_MEMBER(weft_offer, magic, 0, 4, uint32_t);
FROZEN_MEMBER(weft_offer, struct_size, 4, 4, uint32_t);
FROZEN_MEMBER(weft_offer, abi_major, 8, 2, uint16_t);
FROZEN_MEMBER(weft_offer, abi_minor, 10, 2, uint16_t);
FROZEN_MEMBER(weft_offer, abi_major_min, 12, 2, uint16_t);
FROZEN_MEMBER(weft_offer, reserved, 14, 2, uint16_t);
FROZEN_MEMBER(weft_offer, core_caps, 16, 8, uint64_t);
FROZEN_MEMBER(weft_offer, core, 24, 8, const weft_core_services *);
FROZEN_MEMBER(weft_offer, core_version, 32, 8, const char *);

FROZEN_SIZE(weft_instance, 64);
FROZEN_MEMBER(weft_instance, magic, 0, 4, uint32_t);
FROZEN_MEMBER(weft_instance, struct_size, 4, 4, uint32_t);
FROZEN_MEMBER(weft_instance, core, 8, 8, const weft_core_services *);
FROZEN_MEMBER(weft_instance, unit, 16, 8, const weft_unit *);
FROZEN_MEMBER(weft_instance, plugin_state, 24, 8, void *);
FROZEN_MEMBER(weft_instance, stack, 32, 8, const char *);
FROZEN_MEMBER(weft_instance, place, 40, 4, uint32_t);
FROZEN_MEMBER(weft_instance, hook_slot, 44, 4, uint32_t);
FROZEN_MEMBER(weft_instance, params, 48, 8, const weft_value *);
FROZEN_MEMBER(weft_instance, param_count, 56, 4, uint32_t);
FROZEN_MEMBER(weft_instance, reserved, 60, 4, uint32_t);

FROZEN_SIZE(weft_provider_ops, 40);
FROZEN_MEMBER(weft_provider_ops, struct_size, 0, 4, uint32_t);
FROZEN_MEMBER(weft_provider_ops, reserved, 4, 4, uint32_t);
FROZEN_MEMBER(weft_provider_ops, getinfo, 8, 8, int32_t (*)(void *self, uint32_t api_version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints, struct fi_info **info_plugin, weft_error *why));
FROZEN_MEMBER(weft_provider_ops, fabric, 16, 8, int32_t (*)(void *self, struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context_app, weft_error *why));
FROZEN_MEMBER(weft_provider_ops, explain, 24, 8, int32_t (*)(void *self, void (*line)(void *arg, const char *text), void *arg, weft_error *why));
FROZEN_MEMBER(weft_provider_ops, destroy, 32, 8, void (*)(void *self));

FROZEN_SIZE(weft_provider, 16);
FROZEN_MEMBER(weft_provider, ops, 0, 8, const weft_provider_ops *);
FROZEN_MEMBER(weft_provider, self, 8, 8, void *);

FROZEN_SIZE(weft_provider_unit, 16);
FROZEN_MEMBER(weft_provider_unit, struct_size, 0, 4, uint32_t);
FROZEN_MEMBER(weft_provider_unit, reserved, 4, 4, uint32_t);
FROZEN_MEMBER(weft_provider_unit, create, 8, 8, int32_t (*)(const weft_instance *instance, weft_provider *provider_plugin, weft_error *why));

FROZEN_SIZE(weft_layer_unit, 16);
FROZEN_MEMBER(weft_layer_unit, struct_size, 0, 4, uint32_t);
FROZEN_MEMBER(weft_layer_unit, reserved, 4, 4, uint32_t);
FROZEN_MEMBER(weft_layer_unit, wrap, 8, 8, int32_t (*)(const weft_instance *instance, const weft_provider *inner_core, uint32_t inner_count, weft_provider *provider_plugin, weft_error *why));

FROZEN_SIZE(weft_fid_header, 64);
FROZEN_MEMBER(weft_fid_header, magic, 0, 4, uint32_t);
FROZEN_MEMBER(weft_fid_header, struct_size, 4, 4, uint32_t);
FROZEN_MEMBER(weft_fid_header, instance, 8, 8, const weft_instance *);
FROZEN_MEMBER(weft_fid_header, parent_core, 16, 8, struct fid *);
FROZEN_MEMBER(weft_fid_header, links_core, 24, 8, weft_hook_link **);
FROZEN_MEMBER(weft_fid_header, record_core, 32, 8, void *);
FROZEN_MEMBER(weft_fid_header, id_core, 40, 8, uint64_t);
FROZEN_MEMBER(weft_fid_header, reserved, 48, 16, uint64_t[2]);

FROZEN_SIZE(weft_op_tables, 144);
FROZEN_MEMBER(weft_op_tables, struct_size, 0, 4, uint32_t);
FROZEN_MEMBER(weft_op_tables, reserved, 4, 4, uint32_t);
FROZEN_MEMBER(weft_op_tables, fid, 8, 8, const struct fi_ops *);
FROZEN_MEMBER(weft_op_tables, fabric, 16, 8, const struct fi_ops_fabric *);
FROZEN_MEMBER(weft_op_tables, domain, 24, 8, const struct fi_ops_domain *);
FROZEN_MEMBER(weft_op_tables, mr, 32, 8, const struct fi_ops_mr *);
FROZEN_MEMBER(weft_op_tables, ep, 40, 8, const struct fi_ops_ep *);
FROZEN_MEMBER(weft_op_tables, cm, 48, 8, const struct fi_ops_cm *);
FROZEN_MEMBER(weft_op_tables, msg, 56, 8, const struct fi_ops_msg *);
FROZEN_MEMBER(weft_op_tables, rma, 64, 8, const struct fi_ops_rma *);
FROZEN_MEMBER(weft_op_tables, tagged, 72, 8, const struct fi_ops_tagged *);
FROZEN_MEMBER(weft_op_tables, atomic, 80, 8, const struct fi_ops_atomic *);
FROZEN_MEMBER(weft_op_tables, collective, 88, 8, const struct fi_ops_collective *);
FROZEN_MEMBER(weft_op_tables, cq, 96, 8, const struct fi_ops_cq *);
FROZEN_MEMBER(weft_op_tables, eq, 104, 8, const struct fi_ops_eq *);
FROZEN_MEMBER(weft_op_tables, cntr, 112, 8, const struct fi_ops_cntr *);
FROZEN_MEMBER(weft_op_tables, av, 120, 8, const struct fi_ops_av *);
FROZEN_MEMBER(weft_op_tables, wait, 128, 8, const struct fi_ops_wait *);
FROZEN_MEMBER(weft_op_tables, poll, 136, 8, const struct fi_ops_poll *);

FROZEN_SIZE(weft_hook_link, 168);
FROZEN_MEMBER(weft_hook_link, struct_size, 0, 4, uint32_t);
FROZEN_MEMBER(weft_hook_link, slot, 4, 4, uint32_t);
FROZEN_MEMBER(weft_hook_link, hook_state, 8, 8, void *);
FROZEN_MEMBER(weft_hook_link, object_state, 16, 8, void *);
FROZEN_MEMBER(weft_hook_link, next, 24, 144, weft_op_tables);

FROZEN_SIZE(weft_hook_unit, 48);
FROZEN_MEMBER(weft_hook_unit, struct_size, 0, 4, uint32_t);
FROZEN_MEMBER(weft_hook_unit, reserved, 4, 4, uint32_t);
FROZEN_MEMBER(weft_hook_unit, overlay, 8, 8, const weft_op_tables *);
FROZEN_MEMBER(weft_hook_unit, create, 16, 8, int32_t (*)(const weft_instance *instance, void **hook_state_plugin, weft_error *why));
FROZEN_MEMBER(weft_hook_unit, destroy, 24, 8, void (*)(void *hook_state));
FROZEN_MEMBER(weft_hook_unit, attach, 32, 8, int32_t (*)(void *hook_state, struct fid *fid, void **object_state_plugin, weft_error *why));
FROZEN_MEMBER(weft_hook_unit, release, 40, 8, void (*)(void *hook_state, void *object_state));

FROZEN_SIZE(weft_unit, 136);
FROZEN_MEMBER(weft_unit, magic, 0, 4, uint32_t);
FROZEN_MEMBER(weft_unit, struct_size, 4, 4, uint32_t);
FROZEN_MEMBER(weft_unit, kind, 8, 4, uint32_t);
FROZEN_MEMBER(weft_unit, version, 12, 4, uint32_t);
FROZEN_MEMBER(weft_unit, caps, 16, 8, uint64_t);
FROZEN_MEMBER(weft_unit, name, 24, 8, const char *);
FROZEN_MEMBER(weft_unit, ofi_name, 32, 8, const char *);
FROZEN_MEMBER(weft_unit, summary, 40, 8, const char *);
FROZEN_MEMBER(weft_unit, needs_ep, 48, 4, uint32_t);
FROZEN_MEMBER(weft_unit, inner_min, 52, 4, uint32_t);
FROZEN_MEMBER(weft_unit, inner_max, 56, 4, uint32_t);
FROZEN_MEMBER(weft_unit, offers_ep, 60, 4, uint32_t);
FROZEN_MEMBER(weft_unit, rank, 64, 4, int32_t);
FROZEN_MEMBER(weft_unit, maturity, 68, 4, uint32_t);
FROZEN_MEMBER(weft_unit, security, 72, 4, uint32_t);
FROZEN_MEMBER(weft_unit, device_count, 76, 4, uint32_t);
FROZEN_MEMBER(weft_unit, devices, 80, 8, const char *const *);
FROZEN_MEMBER(weft_unit, params, 88, 8, const weft_param *const *);
FROZEN_MEMBER(weft_unit, param_count, 96, 4, uint32_t);
FROZEN_MEMBER(weft_unit, reserved, 100, 4, uint32_t);
FROZEN_MEMBER(weft_unit, provider, 104, 8, const weft_provider_unit *);
FROZEN_MEMBER(weft_unit, layer, 112, 8, const weft_layer_unit *);
FROZEN_MEMBER(weft_unit, hook, 120, 8, const weft_hook_unit *);
FROZEN_MEMBER(weft_unit, device_remedy, 128, 8, const char *);

FROZEN_SIZE(weft_plugin_desc, 104);
FROZEN_MEMBER(weft_plugin_desc, magic, 0, 4, uint32_t);
FROZEN_MEMBER(weft_plugin_desc, struct_size, 4, 4, uint32_t);
FROZEN_MEMBER(weft_plugin_desc, abi_major, 8, 2, uint16_t);
FROZEN_MEMBER(weft_plugin_desc, abi_minor, 10, 2, uint16_t);
FROZEN_MEMBER(weft_plugin_desc, min_core_minor, 12, 2, uint16_t);
FROZEN_MEMBER(weft_plugin_desc, reserved, 14, 2, uint16_t);
FROZEN_MEMBER(weft_plugin_desc, caps, 16, 8, uint64_t);
FROZEN_MEMBER(weft_plugin_desc, required_core_caps, 24, 8, uint64_t);
FROZEN_MEMBER(weft_plugin_desc, name, 32, 8, const char *);
FROZEN_MEMBER(weft_plugin_desc, vendor, 40, 8, const char *);
FROZEN_MEMBER(weft_plugin_desc, version, 48, 8, const char *);
FROZEN_MEMBER(weft_plugin_desc, license, 56, 8, const char *);
FROZEN_MEMBER(weft_plugin_desc, support, 64, 8, const char *);
FROZEN_MEMBER(weft_plugin_desc, units, 72, 8, const weft_unit *const *);
FROZEN_MEMBER(weft_plugin_desc, unit_count, 80, 4, uint32_t);
FROZEN_MEMBER(weft_plugin_desc, reserved2, 84, 4, uint32_t);
FROZEN_MEMBER(weft_plugin_desc, init, 88, 8, int32_t (*)(const weft_offer *offer, void **state_plugin, weft_error *why));
FROZEN_MEMBER(weft_plugin_desc, fini, 96, 8, void (*)(void *state_plugin));

FROZEN_SIZE(weft_counter, 16);
FROZEN_MEMBER(weft_counter, name, 0, 8, const char *);
FROZEN_MEMBER(weft_counter, value, 8, 8, uint64_t);

FROZEN_SIZE(weft_counters_ops, 24);
FROZEN_MEMBER(weft_counters_ops, size, 0, 8, size_t);
FROZEN_MEMBER(weft_counters_ops, read, 8, 8, size_t (*)(struct fid *fid, weft_counter *counters, size_t count));
FROZEN_MEMBER(weft_counters_ops, describe, 16, 8, const char *(*)(struct fid *fid, size_t index));
/* clang-format on */

#endif
