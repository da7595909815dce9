/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The boundary between the core and the YAML reader (config/, weft-config.so), which the core opens
 * only where there is a file to read. One file in, typed entries out; merging files, environment
 * and API is the core's business.
 *
 *     weft_policy *p = NULL;
 *     if (reader->read_policy("/etc/weft/10-site.yaml", text, size, on_diagnostic, ctx, &p) == 0) {
 * ...; reader->free_policy(p); }
 *
 * Private to one release of weft: the core and the reader are shipped together, so this is no
 * plugin ABI.
 */
#ifndef WEFT_CONFIG_H
#define WEFT_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <weft/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_CONFIG_VERSION 2 /* both sides must have been built with the same */
#define WEFT_CONFIG_SYMBOL "weft_config_query"

/* Where something stands. line and column count from 1; 0: unknown. `file` lives as long as the
 * policy. */
typedef struct weft_where {
  const char *file;
  uint32_t line, column;
} weft_where;

enum { WEFT_DIAG_ERROR = 1, WEFT_DIAG_WARNING = 2 };
typedef void (*weft_diag_fn)(void *arg, uint32_t severity, const weft_where *where,
                             const char *text);

typedef struct weft_name { /* enable, disable, use, path */
  const char *name;
  weft_where where;
} weft_name;

/* One entry of providers.rank. Match members that are NULL match all; all given must match. Globs:
 * * ? [..]. */
typedef struct weft_rank_rule {
  const char *provider, *netdev, *subnet /* CIDR */, *ep_type /* msg|rdm|dgram */, *hostname,
      *executable;
  uint32_t has_rank, has_enable;
  int32_t rank;
  uint32_t enable;
  weft_where where;
} weft_rank_rule;

typedef struct weft_setting {     /* params.unit.key, or of a stack element (unit NULL) */
  const char *unit, *key, *value; /* lists joined by commas */
  weft_where where;
} weft_setting;

typedef struct weft_stack_element {
  uint32_t kind;                /* WEFT_KIND_... */
  uint32_t skip_if_unavailable; /* on_unavailable: skip (default: fail) */
  const char *name;
  const weft_setting *params;
  size_t param_count;
  weft_where where;
} weft_stack_element;

typedef struct weft_stack { /* from the application down to the wire */
  const char *name;
  const weft_stack_element *elements;
  size_t element_count;
  weft_where where;
} weft_stack;

/* One file. An absent key has count 0 and has_... 0. */
typedef struct weft_policy {
  uint32_t struct_size;
  uint32_t has_enable; /* 1: `enable` is an allow-list, even if empty */
  const weft_name *enable, *disable, *use, *plugin_path,
      *final_keys; /* final: dotted keys, "providers.disable" */
  size_t enable_count, disable_count, use_count, plugin_path_count, final_key_count;
  const weft_rank_rule *ranks;
  size_t rank_count;
  const weft_stack *stacks;
  size_t stack_count;
  const weft_setting *params;
  size_t param_count;
  /* plugins: {unprobed: allow|deny, probe_budget_ms: N} */
  uint32_t has_unprobed, unprobed_allow, has_probe_budget_ms, probe_budget_ms;
  weft_where unprobed_where, probe_budget_where;
  /* control: allow|deny */
  uint32_t has_control, control_allow;
  weft_where control_where;
  uint32_t has_use; /* 1: `use` replaces weaker ones, even if empty */
  weft_where use_where;
} weft_policy;

typedef struct weft_manifest_unit {
  uint32_t kind, needs_ep, offers_ep, maturity, security, version;
  int32_t rank;
  uint32_t reserved;
  const char *name, *ofi_name, *summary;
  const char *const *devices;
  size_t device_count;
  const weft_param *params; /* struct_size set; strings owned by the manifest */
  size_t param_count;
} weft_manifest_unit;

/* plugins.d/NAME.yaml: what a descriptor says, so that discovery runs without dlopen. */
typedef struct weft_manifest {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor, min_core_minor, reserved;
  const char *name, *vendor, *version, *license, *support, *library /* relative to the manifest */,
      *arch /* "x86_64" */;
  const weft_manifest_unit *units;
  size_t unit_count;
} weft_manifest;

typedef struct weft_config_reader {
  uint32_t version; /* WEFT_CONFIG_VERSION */
  uint32_t struct_size;
  /* 0 and *out, or -FI_EINVAL after at least one WEFT_DIAG_ERROR (all errors of the file are
   * reported, not only the first); then *out is NULL or what could be read all the same, of which
   * nothing counts but its names can be checked. `path` is for messages only; the text is what is
   * read. */
  int32_t (*read_policy)(const char *path, const char *text, size_t size, weft_diag_fn diag,
                         void *arg, weft_policy **out);
  void (*free_policy)(weft_policy *policy);
  int32_t (*read_manifest)(const char *path, const char *text, size_t size, weft_diag_fn diag,
                           void *arg, weft_manifest **out);
  void (*free_manifest)(weft_manifest *manifest);
} weft_config_reader;

typedef const weft_config_reader *(*weft_config_query_fn)(void);

#ifdef __cplusplus
}
#endif

#endif
