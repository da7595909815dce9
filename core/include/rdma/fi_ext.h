// SPDX-License-Identifier: BSD-2-Clause
//
// Extensions beyond the portable API: options of single providers, handing objects of the
// application to the library (fi_import), custom logging and memory monitors.
// See fi_provider(3), fi_mr(3), fi_efa(7).
//
// Example:
//    static int my_enabled(const struct fi_provider *prov, enum fi_log_level level,
//                          enum fi_log_subsys subsys, uint64_t flags);
//    static int my_ready(const struct fi_provider *prov, enum fi_log_level level,
//                        enum fi_log_subsys subsys, uint64_t flags, uint64_t *showtime);
//    static void my_log(const struct fi_provider *prov, enum fi_log_level level,
//                       enum fi_log_subsys subsys, const char *func, int line, const char *msg);
//    static int log_here(void) {
//      static struct fi_ops_log ops = {
//          .size = sizeof ops, .enabled = my_enabled, .ready = my_ready, .log = my_log};
//      static struct fid_logging mine;
//      mine.ops = &ops;
//      return fi_import_log(FI_VERSION(2, 6), 0, &mine);
//    }
//
// Not for objects that providers lend to each other: providers/fi_peer.h.

#ifndef FI_EXT_H
#define FI_EXT_H

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Options of one provider are negative. Each provider has a 12-bit code of its own in bits 16 to
// 27 and numbers its options upward from minus that.
#define FI_PROV_SPECIFIC_EFA (0xefa << 16)
#define FI_PROV_SPECIFIC_TCP (0x7cb << 16)

// Endpoint options of the efa provider, for fi_setopt and fi_getopt. See fi_efa(7).
enum {
  FI_OPT_EFA_RNR_RETRY = -FI_PROV_SPECIFIC_EFA,    // size_t: retries if the receiver is not ready
  FI_OPT_EFA_EMULATED_READ,                        // bool, get: reads are emulated
  FI_OPT_EFA_EMULATED_WRITE,                       // bool, get: writes are emulated
  FI_OPT_EFA_EMULATED_ATOMICS,                     // bool, get: atomics are emulated
  FI_OPT_EFA_USE_DEVICE_RDMA,                      // bool: use the device's RDMA
  FI_OPT_EFA_SENDRECV_IN_ORDER_ALIGNED_128_BYTES,  // bool: aligned 128-byte pieces land in order
  FI_OPT_EFA_WRITE_IN_ORDER_ALIGNED_128_BYTES,     // bool: likewise for writes
  FI_OPT_EFA_HOMOGENEOUS_PEERS,                    // bool: all peers are alike, ask none
  FI_OPT_EFA_USE_UNSOLICITED_WRITE_RECV,           // bool: writes with data need no posted receive
};

// ---- handing objects over: fi_peer(3) ----

// The argument of fi_control(FI_EXPORT_FID).
struct fi_fid_export {
  struct fid **fid;  // out: the exported object
  uint64_t flags;
  void *context;
};

static inline int fi_export_fid(struct fid *fid, uint64_t flags, struct fid **expfid,
                                void *context) {
  struct fi_fid_export request;
  request.fid = expfid;
  request.flags = flags;
  request.context = context;
  return fi_control(fid, FI_EXPORT_FID, &request);
}

static inline int fi_import_fid(struct fid *fid, struct fid *expfid, uint64_t flags) {
  return fid->ops->bind(fid, expfid, flags);
}

// ---- memory monitor: import one into the object that fi_open calls "mr_cache"; fi_mr(3) ----

struct fid_mem_monitor;

// The application's side: the library tells which ranges it wants to hear of.
struct fi_ops_mem_monitor {
  size_t size;
  int (*start)(struct fid_mem_monitor *monitor);
  void (*stop)(struct fid_mem_monitor *monitor);
  int (*subscribe)(struct fid_mem_monitor *monitor, const void *addr, size_t len);
  void (*unsubscribe)(struct fid_mem_monitor *monitor, const void *addr, size_t len);
  // Whether the range still maps to the memory that it had when subscribed.
  bool (*valid)(struct fid_mem_monitor *monitor, const void *addr, size_t len);
};

// The library's side: call `notify` before the mapping of a range changes.
struct fi_ops_mem_notify {
  size_t size;
  void (*notify)(struct fid_mem_monitor *monitor, const void *addr, size_t len);
};

struct fid_mem_monitor {
  struct fid fid;                         // fclass FI_CLASS_MEM_MONITOR
  struct fi_ops_mem_monitor *export_ops;  // set by the application
  struct fi_ops_mem_notify *import_ops;   // set by the library on import
};

// ---- logging: import one into the object that fi_open calls "logging"; fi_provider(3) ----

// A flag to `enabled` and `ready`: FI_LOG_PROV already rules this provider out.
#define FI_LOG_PROV_FILTERED (1ULL << 0)

// A NULL member leaves the library's own behaviour.
struct fi_ops_log {
  size_t size;  // fi_import_log sets it
  int (*enabled)(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys,
                 uint64_t flags);
  int (*ready)(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys,
               uint64_t flags, uint64_t *showtime);
  // `msg` is the formatted text.
  void (*log)(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys,
              const char *func, int line, const char *msg);
};

struct fid_logging {
  struct fid fid;  // fclass FI_CLASS_LOG
  struct fi_ops_log *ops;
};

// fi_open of the named object, fi_import_fid of `fid` into it, and close of the handle.
static inline int fi_import(uint32_t version, const char *name, void *attr, size_t attr_len,
                            uint64_t flags, struct fid *fid, void *context) {
  struct fid *target;
  int ret = fi_open(version, name, attr, attr_len, flags, &target, context);
  if (ret != FI_SUCCESS) return ret;
  ret = fi_import_fid(target, fid, flags);
  fi_close(target);
  return ret;
}

// Sends the library's log lines to log_fid->ops from now on; the last import counts. The fid gets
// its operations: fi_close(&log_fid->fid) ends the import and frees nothing.
static inline int fi_import_log(uint32_t version, uint64_t flags, struct fid_logging *log_fid) {
  log_fid->fid.fclass = FI_CLASS_LOG;
  log_fid->ops->size = sizeof(struct fi_ops_log);
  return fi_import(version, "logging", NULL, 0, flags, &log_fid->fid, log_fid);
}

#ifdef __cplusplus
}
#endif

#endif  // FI_EXT_H
