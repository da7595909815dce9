// SPDX-License-Identifier: BSD-2-Clause
//
// What a dynamically loaded provider library shows to the core: its entry point, the descriptor
// that the entry point returns, and the calls that define and read its parameters.
// See fi_provider(3).
//
// Example:
//    static int acme_getinfo(uint32_t version, const char *node, const char *service,
//                            uint64_t flags, const struct fi_info *hints, struct fi_info **info);
//    static int acme_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
//                           void *context);
//    static void acme_cleanup(void);
//    static struct fi_provider *acme_of_library(void) {  // FI_EXT_INI of libacme-fi.so returns it
//      static struct fi_provider me;
//      me.version = FI_VERSION(1, 0);
//      me.fi_version = FI_VERSION(2, 6);
//      me.name = "acme";
//      me.getinfo = acme_getinfo;
//      me.fabric = acme_fabric;
//      me.cleanup = acme_cleanup;
//      return &me;
//    }
//
// Not for applications (they use fi_getinfo and fi_getparams of fabric.h).

#ifndef FI_PROV_H
#define FI_PROV_H

#include <rdma/fabric.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A provider library is a file whose name ends in "-" FI_LIB_SUFFIX, e.g. libacme-fi.so.
#define FI_LIB_EXTENSION "fi"
#define FI_LIB_SUFFIX FI_LIB_EXTENSION ".so"

// One provider. The library owns it; it must stay valid and unchanged until `cleanup` returns.
struct fi_provider {
  uint32_t version;           // of the provider itself, FI_VERSION(major, minor)
  uint32_t fi_version;        // newest API version that it implements
  struct fi_context context;  // for the core's use; the provider leaves it zero
  const char *name;           // as in fi_fabric_attr::prov_name, e.g. "tcp"
  // Appends what it can offer as a list in *info, or fails with -FI_ENODATA. `version` is the
  // API version that the application asked for. The other arguments are those of fi_getinfo(3).
  int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                 const struct fi_info *hints, struct fi_info **info);
  // Opens a fabric that `getinfo` reported, as fi_fabric(3) does.
  int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
  // Called once when the core shuts down; releases all that the provider holds globally.
  void (*cleanup)(void);
};

// The one symbol that a provider library exports. Returns its descriptor, or NULL where the
// provider cannot run here. The declaration gives it C linkage in C++ as well.
struct fi_provider *fi_prov_ini(void);

// Begins the definition of fi_prov_ini so that it is exported whatever -fvisibility says.
#define FI_EXT_INI \
  __attribute__((visibility("default"), EXTERNALLY_VISIBLE)) struct fi_provider *fi_prov_ini(void)

// Declares the parameter `param_name` of `provider`, which a user sets as
// FI_<PROVIDER>_<PARAM_NAME>; a NULL provider stands for the core. The help text is a printf
// format and is copied. 0 or a negative errno.
int fi_param_define(const struct fi_provider *provider, const char *param_name,
                    enum fi_param_type type, const char *help_string_fmt, ...);

// Reads a declared parameter into *value, whose type follows the declared one: char *, int,
// int as 0 or 1, size_t. The string stays the library's. -FI_ENODATA: not set; -FI_ENOENT: never
// declared; -FI_EINVAL: the text does not fit the type. *value changes on success only.
int fi_param_get(struct fi_provider *provider, const char *param_name, void *value);

static inline int fi_param_get_str(struct fi_provider *provider, const char *param_name,
                                   char **value) {
  return fi_param_get(provider, param_name, value);
}

static inline int fi_param_get_int(struct fi_provider *provider, const char *param_name,
                                   int *value) {
  return fi_param_get(provider, param_name, value);
}

static inline int fi_param_get_bool(struct fi_provider *provider, const char *param_name,
                                    int *value) {
  return fi_param_get(provider, param_name, value);
}

static inline int fi_param_get_size_t(struct fi_provider *provider, const char *param_name,
                                      size_t *value) {
  return fi_param_get(provider, param_name, value);
}

#ifdef __cplusplus
}
#endif

#endif  // FI_PROV_H
