/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * weft plugin ABI 1.0: what the core and a plugin file say to each other.
 *
 * A plugin is a shared object that exports one symbol, weft_plugin_query(). The core reads the
 * plugin's descriptor through it, checks it, and then asks its units (providers, layers, hooks) for
 * what a stack needs.
 *
 * Example:
 *    extern const weft_unit my_provider;
 *    static const weft_unit *const units[] = {&my_provider};
 *    static const weft_plugin_desc desc = {
 *        .magic = WEFT_DESC_MAGIC, .struct_size = sizeof desc,
 *        .abi_major = WEFT_ABI_MAJOR, .abi_minor = WEFT_ABI_MINOR, .min_core_minor = 0,
 *        .name = "frobco", .vendor = "Frobco Inc.", .version = "1.0.0", .license = "BSD-2-Clause",
 *        .units = units, .unit_count = 1};
 *    WEFT_EXPORT const weft_plugin_desc *weft_plugin_query(const weft_offer *offer,
 *                                                          weft_error *why) {
 *      (void)offer, (void)why;
 *      return &desc;
 *    }
 *
 * This header is plain C11 and is not meant to be programmed against by hand in C++: weft/sdk/
 * generates these tables from classes. It is no place for behaviour: it fixes layouts, names and
 * promises only (docs/ABI.md).
 *
 * Rules that hold for every struct here
 *  - The first member (after `magic`, where there is one) is `struct_size`, set by the side that
 *    fills the struct.
 *  - Structs grow at their end only. A reader touches a member only if it ends within the writer's
 *    struct_size.
 *  - In a capability word an unknown bit of the low half may be ignored, one of the high half must
 *    be understood.
 *  - Names ending in _core are owned by the core, _plugin by the plugin, _app by the application. A
 *    pointer is valid for the duration of the call unless its comment says otherwise.
 *  - Functions return 0 or -FI_E... (rdma/fi_errno.h) and put the reason in words into `why`.
 *  - No C++ exception crosses.
 */
#ifndef WEFT_PLUGIN_H
#define WEFT_PLUGIN_H

#include <rdma/fabric.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_ABI_MAJOR 1     /* incompatible changes */
#define WEFT_ABI_MINOR 0     /* members appended */
#define WEFT_ABI_MAJOR_MIN 1 /* oldest major this core still loads */

#define WEFT_OFFER_MAGIC 0x4f544657u    /* "WFTO" */
#define WEFT_DESC_MAGIC 0x44544657u     /* "WFTD" */
#define WEFT_UNIT_MAGIC 0x55544657u     /* "WFTU" */
#define WEFT_FID_MAGIC 0x46544657u      /* "WFTF" */
#define WEFT_INSTANCE_MAGIC 0x49544657u /* "WFTI" */

#if defined(__GNUC__)
#define WEFT_EXPORT __attribute__((visibility("default")))
#else
#define WEFT_EXPORT
#endif

/* Why something failed, in words: "cause (place): remedy". Filled by the side that returns a
 * negative code; `text` is always NUL-terminated. 512 bytes. */
typedef struct weft_error {
  uint32_t struct_size;
  int32_t code; /* the same -FI_E... that the function returned */
  char text[504];
} weft_error;

/* ---- values of parameters ---- */

enum {
  WEFT_TYPE_BOOL = 1, /* weft_value.number is 0 or 1; accepts 0/1 yes/no true/false on/off */
  WEFT_TYPE_INT = 2,  /* weft_value.number, signed */
  WEFT_TYPE_SIZE =
      3, /* weft_value.number in bytes, not negative; accepts K M G suffixes (binary) */
  WEFT_TYPE_STRING = 4, /* weft_value.string */
  WEFT_TYPE_LIST = 5    /* weft_value.string: the entries joined by commas */
};

/* A parameter that a unit declares. Environment name: FI_<UNIT>_<NAME> in capitals; YAML: params:
 * {unit: {name: value}}. */
typedef struct weft_param {
  uint32_t struct_size;
  uint32_t type;    /* WEFT_TYPE_... */
  const char *name; /* lower case, a-z 0-9 _ */
  const char
      *default_value; /* as text, parsed like any other value; NULL: none (number 0, string NULL) */
  const char *help;   /* one sentence, with the unit of measure */
  int64_t minimum, maximum; /* inclusive, INT and SIZE only; both 0: no limits */
} weft_param;

/* The value that site, user, environment and stack gave a parameter, parsed and checked by the
 * core. */
typedef struct weft_value {
  uint32_t struct_size;
  uint32_t type;       /* WEFT_TYPE_... */
  uint32_t is_default; /* 1: nobody set it */
  uint32_t reserved;
  int64_t number;          /* BOOL, INT, SIZE */
  const char *string_core; /* STRING, LIST; NULL if there is none; lives as long as the instance */
  const char *origin_core; /* where it was set: "/etc/weft/10-site.yaml:12:3", "environment
                              FI_TCP_...", "default" */
} weft_value;

/* ---- what the core gives ---- */

typedef struct weft_unit weft_unit;
typedef struct weft_instance weft_instance;
typedef struct weft_provider weft_provider;
typedef struct weft_fid_header weft_fid_header;
typedef struct weft_hook_link weft_hook_link;

/* Services of the core. All are thread-safe; the table lives as long as the process. */
typedef struct weft_core_services {
  uint32_t struct_size;
  uint32_t reserved;

  /* struct fi_info lists cross the boundary in both directions: these allocate, copy (one entry,
   * next = NULL) and free (the whole list) them. info_alloc gives an entry with all sub-structures
   * present and zero. NULL: no memory. Names and addresses that a plugin hangs on an entry come
   * from malloc. */
  struct fi_info *(*info_alloc)(void);
  struct fi_info *(*info_dup)(const struct fi_info *info);
  void (*info_free)(struct fi_info *info);

  /* Log, in the terms of fi_log.3: level is enum fi_log_level, subsys enum fi_log_subsys. `text` is
   * a finished line without a newline. log_enabled answers 1 or 0. `instance` names the source;
   * NULL: the core itself. */
  int32_t (*log_enabled)(const weft_instance *instance, int32_t level, int32_t subsys);
  void (*log)(const weft_instance *instance, int32_t level, int32_t subsys, const char *func,
              int32_t line, const char *text);

  /* Objects. A plugin calls object_opened for every fid it makes (header filled, op tables full)
   * before anybody else sees the fid; the core records it and attaches the hooks that its parent
   * has and those of the stack. `parent` is NULL for a fabric. object_closing is called from
   * fi_close once it is certain to succeed and before the memory is freed: hook links of the object
   * are gone when it returns. */
  int32_t (*object_opened)(struct fid *fid, struct fid *parent, weft_error *why);
  void (*object_closing)(struct fid *fid);

  /* Whether the element of `instance` would offer `info` to an application that passed it as hints
   * to fi_getinfo: applications change what they got before they open objects with it. Parts that
   * are NULL and members that are 0 say nothing; addresses, names, handle and nic are not looked
   * at. A plugin calls it with what each opening call gets. -FI_EINVAL and `why`: the attribute,
   * its value, what is possible. */
  int32_t (*check_info)(const weft_instance *instance, uint32_t api_version,
                        const struct fi_info *info, weft_error *why);
} weft_core_services;

/* The first thing a plugin ever sees. */
typedef struct weft_offer {
  uint32_t magic; /* WEFT_OFFER_MAGIC */
  uint32_t struct_size;
  uint16_t abi_major, abi_minor; /* of the core */
  uint16_t abi_major_min;        /* oldest major that the core accepts */
  uint16_t reserved;
  uint64_t core_caps; /* WEFT_CORE_CAP_... */
  const weft_core_services *core;
  const char *core_version;
} weft_offer;

#define WEFT_CORE_CAP_HOOKS (UINT64_C(1) << 0) /* the core attaches hooks in place */

/* One element of a composed stack, as its unit sees it. Lives from create/wrap until after destroy
 * returned.
 *
 * `stack` names the providers and layers from the wire up, without hooks: "tcp;ofi_rxm". Where a
 * layer stands over several providers, these are in brackets, in the order of wrap's array, with a
 * plus between them: "(shm+tcp;ofi_rxm);link" is link over shm and over rxm over tcp. Brackets may
 * stand in brackets. Each unit has its ofi_name. fabric_attr.prov_name has the same form: for a
 * layer that asks, the inner provider's part; for a program, what it knows ("tcp", although `local`
 * made "(shm+tcp);link" of it). A label of the site, if the program asked by it, is in both.
 *
 * `place` counts the elements, hooks too, from the application down. Behind a layer come all
 * elements of its first inner provider, then all of the second, and so on. So it is a number of its
 * own for each element of a stack, and in a chain the distance from the application. */
struct weft_instance {
  uint32_t magic; /* WEFT_INSTANCE_MAGIC */
  uint32_t struct_size;
  const weft_core_services *core;
  const weft_unit *unit;
  void *plugin_state; /* what init() of the plugin returned */
  const char *stack;  /* the whole stack, in OFI's notation */
  uint32_t place;     /* 0: outermost, next to the application */
  uint32_t hook_slot; /* hooks only: index into weft_fid_header.links; the same for all instances of
                         a unit */
  const weft_value
      *params; /* in the order of unit->params; the stride of this array is params->struct_size */
  uint32_t param_count;
  uint32_t reserved;
};

/* ---- providers and layers ---- */

/* A flag of getinfo that the core adds to those of fi_getinfo.3: somebody names the providers of
 * this stack, in FI_PROVIDER, in prov_name of the hints, or in a stack of the configuration.
 * Without it a provider may hold back what no program should get by accident. Layers pass it on. */
#define WEFT_GETINFO_NAMED (UINT64_C(1) << 0)
/* A flag of getinfo: nobody asks, the hints are an info with which something is being opened
 * (check_info). A layer that offers itself only to who asks for it answers all the same, and passes
 * the flag on. */
#define WEFT_GETINFO_OPENING (UINT64_C(1) << 63)

/* A provider: what getinfo and fabric need. `self` belongs to the plugin. */
typedef struct weft_provider_ops {
  uint32_t struct_size;
  uint32_t reserved;

  /* Everything that could be opened for this node, service and flags (fi_getinfo.3), best first, as
   * entries from core->info_alloc/info_dup that the caller frees. `hints` may be NULL and is advice
   * only: it helps to resolve addresses (src_addr, dest_addr, addr_format, ep type) and to leave
   * out costly work. The core filters the answer by the hints and narrows it, with a reason for
   * each rejection: an offer states the most that the unit can do. prov_name is set by the core. No
   * match: -FI_ENODATA and `why`. -FI_ENODEV: whatever is asked, this host has no interface or
   * device that the settings allow; the core says so on stderr where the configuration asks for the
   * provider. */
  int32_t (*getinfo)(void *self, uint32_t api_version, const char *node, const char *service,
                     uint64_t flags, const struct fi_info *hints, struct fi_info **info_plugin,
                     weft_error *why);

  /* Opens a fabric (fi_fabric.3). */
  int32_t (*fabric)(void *self, struct fi_fabric_attr *attr, struct fid_fabric **fabric,
                    void *context_app, weft_error *why);

  /* Says in lines of text what the unit found on this machine and how it decided ("eth0 10.0.0.2:
   * routable, first"). NULL: nothing to say. */
  int32_t (*explain)(void *self, void (*line)(void *arg, const char *text), void *arg,
                     weft_error *why);

  /* Called once, when no fabric is open any more. */
  void (*destroy)(void *self);
} weft_provider_ops;

struct weft_provider {
  const weft_provider_ops *ops;
  void *self;
};

typedef struct weft_provider_unit {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t (*create)(const weft_instance *instance, weft_provider *provider_plugin, weft_error *why);
} weft_provider_unit;

/* A layer is a function of the providers beneath it. `inner_core` is an array of them, in the order
 * in which the stack names them; inner_count is from weft_unit.inner_min to inner_max. The array
 * lives until the layer's destroy has returned. The getinfo of an inner provider filters by the
 * hints that the layer passes, as fi_getinfo does; where there are several, its errors say which
 * one they come from: "branch 2 (tcp;ofi_rxm): ...". */
typedef struct weft_layer_unit {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t (*wrap)(const weft_instance *instance, const weft_provider *inner_core,
                  uint32_t inner_count, weft_provider *provider_plugin, weft_error *why);
} weft_layer_unit;

/* ---- objects ---- */

/* Sits directly in front of every struct fid that a plugin makes: header = (weft_fid_header *)fid
 * - 1. Its size is frozen for ABI major 1. The plugin fills magic, struct_size, instance; the core
 * the rest. */
struct weft_fid_header {
  uint32_t magic; /* WEFT_FID_MAGIC */
  uint32_t struct_size;
  const weft_instance *instance;
  struct fid *parent_core; /* object it was opened from */
  weft_hook_link *
      *links_core;   /* by hook slot; NULL while no hook ever was attached to this object */
  void *record_core; /* the core's own record */
  uint64_t id_core;  /* unique in this process, never reused, from 1 */
  uint64_t reserved[2];
};

/* The op tables of an object; a NULL pointer means the object's class has no such table. */
typedef struct weft_op_tables {
  uint32_t struct_size;
  uint32_t reserved;
  const struct fi_ops *fid;
  const struct fi_ops_fabric *fabric;
  const struct fi_ops_domain *domain;
  const struct fi_ops_mr *mr;
  const struct fi_ops_ep *ep;
  const struct fi_ops_cm *cm;
  const struct fi_ops_msg *msg;
  const struct fi_ops_rma *rma;
  const struct fi_ops_tagged *tagged;
  const struct fi_ops_atomic *atomic;
  const struct fi_ops_collective *collective;
  const struct fi_ops_cq *cq;
  const struct fi_ops_eq *eq;
  const struct fi_ops_cntr *cntr;
  const struct fi_ops_av *av;
  const struct fi_ops_wait *wait;
  const struct fi_ops_poll *poll;
} weft_op_tables;

/* ---- hooks ---- */

/* What ties one hook to one object. An op of the hook finds it by the slot of its instance.
 *
 * Example:
 *     static int32_t my_close(struct fid *fid, uint32_t slot) {
 *       weft_hook_link *link = ((weft_fid_header *)fid - 1)->links_core[slot];
 *       return link->next.fid->close(fid);
 *     }
 *
 * `next` holds full tables. A link stays valid until the object is closed, also after a detach, so
 * a thread that is inside the hook while it is detached comes out unharmed. After a forwarded
 * fi_close returned 0, link and object are gone. */
struct weft_hook_link {
  uint32_t struct_size;
  uint32_t slot;
  void *hook_state;   /* from weft_hook_unit.create */
  void *object_state; /* from weft_hook_unit.attach */
  weft_op_tables next;
};

/* A hook interposes on op tables in place: the object and its fid stay the same. An op that no hook
 * names costs nothing. */
typedef struct weft_hook_unit {
  uint32_t struct_size;
  uint32_t reserved;
  /* The ops the hook wants, sparse: in each table NULL members are left alone. Set each table's
   * `size`. */
  const weft_op_tables *overlay;
  int32_t (*create)(const weft_instance *instance, void **hook_state_plugin, weft_error *why);
  void (*destroy)(void *hook_state);
  /* An object comes under the hook. 0: yes; 1: leave this object alone; negative: failed (logged,
   * object goes on without). Optional (NULL: every object whose tables the overlay touches). */
  int32_t (*attach)(void *hook_state, struct fid *fid, void **object_state_plugin, weft_error *why);
  /* The object is closed or will never be hooked again: free object_state. No call can be inside
   * any more. Optional. */
  void (*release)(void *hook_state, void *object_state);
} weft_hook_unit;

/* ---- the descriptor ---- */

enum { WEFT_KIND_PROVIDER = 1, WEFT_KIND_LAYER = 2, WEFT_KIND_HOOK = 3 };
enum { WEFT_MATURITY_STABLE = 1, WEFT_MATURITY_BETA = 2, WEFT_MATURITY_EXPERIMENTAL = 3 };
enum {
  WEFT_SECURITY_NO_NETWORK = 1,   /* takes no bytes from outside the process */
  WEFT_SECURITY_ROBUST = 2,       /* built to withstand untrusted peers */
  WEFT_SECURITY_TRUSTED_PEERS = 3 /* for closed networks only */
};

#define WEFT_EP_BIT(type) (UINT32_C(1) << (type)) /* type: FI_EP_MSG, FI_EP_DGRAM, FI_EP_RDM */

struct weft_unit {
  uint32_t magic; /* WEFT_UNIT_MAGIC */
  uint32_t struct_size;
  uint32_t kind;    /* WEFT_KIND_... */
  uint32_t version; /* FI_VERSION(major, minor) of the unit, shown as fabric_attr.prov_version */
  uint64_t caps;
  const char *name;      /* a-z 0-9 - _, unique among units: "tcp", "rxm" */
  const char *ofi_name;  /* what stock libfabric calls it in FI_PROVIDER and prov_name: "ofi_rxm";
                            NULL: same as name */
  const char *summary;   /* one sentence */
  uint32_t needs_ep;     /* layers: WEFT_EP_BITs of which each inner provider must offer one */
  uint32_t inner_min;    /* layers: how many inner providers it takes, 1 to WEFT_MAX_INNER; */
  uint32_t inner_max;    /* most layers take exactly one. Other units: both 0 */
  uint32_t offers_ep;    /* WEFT_EP_BITs offered above */
  int32_t rank;          /* higher is preferred; 500 is usual for a network provider */
  uint32_t maturity;     /* WEFT_MATURITY_... */
  uint32_t security;     /* WEFT_SECURITY_... */
  uint32_t device_count; /* 0: needs no device */
  /* Any one present makes the unit applicable: "pci:1fc9:*", "path:/dev/infiniband/uverbs*",
   * "netdev:hsn*". */
  const char *const *devices;
  const weft_param *const *params;
  uint32_t param_count;
  uint32_t reserved;
  const weft_provider_unit *provider; /* exactly one of the three, by kind */
  const weft_layer_unit *layer;
  const weft_hook_unit *hook;
  /* What the user does where none of `devices` is present, one sentence: "load frobco.ko". NULL:
   * the core's own words. */
  const char *device_remedy;
};

typedef struct weft_plugin_desc {
  uint32_t magic; /* WEFT_DESC_MAGIC */
  uint32_t struct_size;
  uint16_t abi_major, abi_minor; /* that the plugin was built for */
  uint16_t min_core_minor;       /* the least minor of the core that it can work with */
  uint16_t reserved;
  uint64_t caps;               /* none defined in 1.0 */
  uint64_t required_core_caps; /* WEFT_CORE_CAP_... that must be offered */
  const char *name;            /* of the package */
  const char *vendor;
  const char *version;
  const char *license; /* SPDX expression */
  const char *support; /* where to get help: URL or mail; may be NULL */
  const weft_unit *const *units;
  uint32_t unit_count; /* 1 to WEFT_MAX_UNITS */
  uint32_t reserved2;
  /* May do work and may fail; has the probe's time budget. Optional. `offer` is the one query()
   * saw. */
  int32_t (*init)(const weft_offer *offer, void **state_plugin, weft_error *why);
  /* Explicit shutdown of the core, in reverse order of init. Never called at process exit.
   * Optional. */
  void (*fini)(void *state_plugin);
} weft_plugin_desc;

#define WEFT_MAX_UNITS 64
#define WEFT_MAX_HOOK_SLOTS 32
#define WEFT_MAX_INNER 16 /* inner providers of one layer */

#define WEFT_QUERY_SYMBOL "weft_plugin_query"

/* Pure: no threads, files, logs, allocation. NULL with `why` filled: the plugin declines this core.
 */
typedef const weft_plugin_desc *(*weft_plugin_query_fn)(const weft_offer *offer, weft_error *why);
WEFT_EXPORT const weft_plugin_desc *weft_plugin_query(const weft_offer *offer, weft_error *why);

/* ---- counters ---- */

/* fi_open_ops(&fabric->fid, WEFT_COUNTERS_OPS, 0, (void **)&ops, NULL): what a provider or layer
 * counted since the fabric was opened: rejected connections, bad frames, and so on. `weft stats`
 * shows the counters of every plugin that answers. They only grow. A thread of the core may ask
 * until object_closing returns: so object_closing is not called with a lock held that read() takes.
 *
 * A hook leaves this name to the object. It answers, on the fabrics that it is on, to
 * WEFT_HOOK_COUNTERS_OPS with its unit's name behind it ("weft_counters_1:fault"): what this hook
 * counted on all objects of its stack. */
#define WEFT_COUNTERS_OPS "weft_counters_1"
#define WEFT_HOOK_COUNTERS_OPS WEFT_COUNTERS_OPS ":"
typedef struct weft_counter {
  const char *name; /* "connections_rejected_version"; lives as long as the fabric or the hook */
  uint64_t value;
} weft_counter;
typedef struct weft_counters_ops {
  size_t size;
  /* Writes up to `count` counters and returns how many there are. */
  size_t (*read)(struct fid *fid, weft_counter *counters, size_t count);
  /* A line that says what the counter with this place in read() counts, for people; NULL: there is
   * none. Lives as long as the counter's name. */
  const char *(*describe)(struct fid *fid, size_t index);
} weft_counters_ops;

#ifdef __cplusplus
}
#endif

#endif
