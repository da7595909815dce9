/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The boundary between the core and the YAML reader (config/, weft-config.so), which the core opens
 * only where there is a file to read. The reader turns one file into typed entries; the core merges
 * files, environment and API.
 *
 * Example:
 *     static int32_t check(const weft_config_reader *reader, const char *text, size_t size,
 *                          weft_diag_fn on_diagnostic, void *arg) {
 *       weft_policy *policy = NULL;
 *       int32_t rc = reader->read_policy("/etc/weft/10-site.yaml", text, size, on_diagnostic, arg,
 *                                        &policy);
 *       reader->free_policy(policy);
 *       return rc;
 *     }
 *
 * Private to one build of weft: the core and the reader are shipped together, so this is no plugin
 * ABI, and it is not installed.
 */
#ifndef WEFT_CONFIG_H
#define WEFT_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <weft/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_CONFIG_VERSION 6 /* both sides must have been built with the same */
#define WEFT_CONFIG_SYMBOL "weft_config_query"

/* A place in a file. line and column count from 1; 0: unknown. */
typedef struct weft_where {
  const char *file;
  uint32_t line, column;
} weft_where;

enum { WEFT_DIAG_ERROR = 1, WEFT_DIAG_WARNING = 2 };
typedef void (*weft_diag_fn)(void *arg, uint32_t severity, const weft_where *where,
                             const char *text);

typedef struct weft_policy weft_policy; /* what one file says: the C++ type of config/policy.h */

typedef struct weft_manifest_unit {
  uint32_t kind, needs_ep, offers_ep, maturity, security, version;
  int32_t rank;
  uint32_t inner_min, inner_max;
  uint32_t reserved;
  const char *name, *ofi_name, *summary, *device_remedy;
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
  /* 0 and *out, or -FI_EINVAL after at least one WEFT_DIAG_ERROR. All errors of the file are
   * reported, not only the first. After an error *out is NULL or what could be read: it must not be
   * applied, but its names can be checked. `path` is for messages and origins only; the function
   * reads the text, not the file. */
  int32_t (*read_policy)(const char *path, const char *text, size_t size, weft_diag_fn diag,
                         void *arg, weft_policy **out);
  void (*free_policy)(weft_policy *policy);
  int32_t (*read_manifest)(const char *path, const char *text, size_t size, weft_diag_fn diag,
                           void *arg, weft_manifest **out);
  void (*free_manifest)(weft_manifest *manifest);
  size_t policy_size; /* sizeof(weft_policy) in the reader; the core compares it with its own */
} weft_config_reader;

typedef const weft_config_reader *(*weft_config_query_fn)(void);

#ifdef __cplusplus
}
#endif

#endif
