// SPDX-License-Identifier: BSD-2-Clause
//
// Asking a provider for its variables (settings, states, counts) and events, through a profile
// object on an endpoint or a domain. See fi_profile(3).
//
// Example:
//    #include <rdma/fi_endpoint.h>
//    static uint64_t unexpected_messages(struct fid_ep *ep) {
//      struct fid_profile *profile;
//      uint64_t waiting = 0;
//      if (fi_profile_open(&ep->fid, 0, &profile, NULL) == 0) {
//        fi_profile_read_u64(profile, FI_VAR_UNEXP_MSG_CNT, &waiting);
//        fi_profile_close(profile);
//      }
//      return waiting;
//    }
//
// Not for measuring time: that is what the hooks profile and trace are for.

#ifndef FI_PROFILE_H
#define FI_PROFILE_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

// Where the type of a variable or of an event's data is looked up.
enum fi_profile_type {
  fi_primitive_type,  // enum fi_datatype
  fi_defined_type,    // enum fi_type
};

// One variable or event. The provider owns the strings.
struct fi_profile_desc {
  uint32_t id;                        // the same name has the same id
  enum fi_profile_type datatype_sel;  // which member of `datatype` counts
  union {
    enum fi_datatype primitive;
    enum fi_type defined;
  } datatype;
  uint64_t flags;
  size_t size;  // bytes of the data
  const char *name;
  const char *desc;  // for people
};

// Variables that more than one provider may have. Those of a single provider have other numbers.
enum {
  FI_VAR_UNEXP_MSG_CNT,    // uint64_t: messages that wait for a receive
  FI_VAR_UNEXP_MSG_QUEUE,  // struct fi_cq_err_entry for each of them
  FI_VAR_MSG_QUEUE_CNT,    // uint64_t: messages queued
  FI_VAR_CONNECTION_CNT,   // uint64_t: connections that are open
  FI_VAR_CONN_REQUEST,     // uint64_t: connection requests
  FI_VAR_CONN_ACCEPT,      // uint64_t: connections accepted
  FI_VAR_CONN_REJECT,      // uint64_t: connections rejected
  FI_VAR_OFI_MEM,          // uint64_t: bytes that the provider has allocated
};

// Likewise events.
enum {
  FI_EVENT_UNEXP_MSG_RECVD,    // a message came for which no receive is posted
  FI_EVENT_UNEXP_MSG_MATCHED,  // such a message met its receive
};

struct fid_profile;

struct fi_profile_ops {
  size_t size;
  void (*reset)(struct fid_profile *prof_fid, uint64_t flags);
  ssize_t (*query_vars)(struct fid_profile *prof_fid, struct fi_profile_desc *varlist,
                        size_t *count);
  ssize_t (*query_events)(struct fid_profile *prof_fid, struct fi_profile_desc *eventlist,
                          size_t *count);
  // *size: in, bytes at `data`; out, bytes of the value.
  ssize_t (*read_var)(struct fid_profile *prof_fid, uint32_t var_id, void *data, size_t *size);
  int (*reg_callback)(struct fid_profile *prof_fid, uint32_t event_id,
                      int (*callback)(struct fid_profile *prof_fid, struct fi_profile_desc *event,
                                      void *param, size_t size, void *context),
                      void *context);
  void (*start_reads)(struct fid_profile *prof_fid, uint64_t flags);
  void (*end_reads)(struct fid_profile *prof_fid, uint64_t flags);
};

struct fid_profile {
  struct fid fid;  // fclass FI_CLASS_PROFILE
  struct fi_profile_ops *ops;
};

// Opens the profile of an endpoint or a domain; -FI_ENOSYS where the provider has none.
static inline int fi_profile_open(struct fid *fid, uint64_t flags, struct fid_profile **prof_fid,
                                  void *context) {
  return FI_CHECK_OP(fid->ops, struct fi_ops, ops_open)
             ? fi_open_ops(fid, "fi_profile_ops", flags, (void **)prof_fid, context)
             : -FI_ENOSYS;
}

static inline int fi_profile_close(struct fid_profile *prof_fid) {
  return fi_close(&prof_fid->fid);
}

// Sets the counting variables back to their start.
static inline void fi_profile_reset(struct fid_profile *prof_fid, uint64_t flags) {
  if (FI_CHECK_OP(prof_fid->ops, struct fi_profile_ops, reset))
    prof_fid->ops->reset(prof_fid, flags);
}

// Lists the variables. *count: in, room in `varlist`; out, how many there are. With a NULL list
// only *count is set. Returns how many were listed, or a negative errno.
static inline ssize_t fi_profile_query_vars(struct fid_profile *prof_fid,
                                            struct fi_profile_desc *varlist, size_t *count) {
  return FI_CHECK_OP(prof_fid->ops, struct fi_profile_ops, query_vars)
             ? prof_fid->ops->query_vars(prof_fid, varlist, count)
             : -FI_ENOSYS;
}

// Lists the events in the same way.
static inline ssize_t fi_profile_query_events(struct fid_profile *prof_fid,
                                              struct fi_profile_desc *eventlist, size_t *count) {
  return FI_CHECK_OP(prof_fid->ops, struct fi_profile_ops, query_events)
             ? prof_fid->ops->query_events(prof_fid, eventlist, count)
             : -FI_ENOSYS;
}

// Reads a variable whose type is FI_UINT64; -FI_EINVAL if there is no such variable.
static inline ssize_t fi_profile_read_u64(struct fid_profile *prof_fid, uint32_t var_id,
                                          uint64_t *data) {
  size_t size = sizeof(*data);
  return FI_CHECK_OP(prof_fid->ops, struct fi_profile_ops, read_var)
             ? prof_fid->ops->read_var(prof_fid, var_id, data, &size)
             : -FI_ENOSYS;
}

// Calls `callback` on each such event, on the thread that makes progress: it must not block, and
// of the provider it may only read variables. `param` has `size` bytes or is NULL.
static inline int fi_profile_register_callback(struct fid_profile *prof_fid, uint32_t event_id,
                                               int (*callback)(struct fid_profile *prof_fid,
                                                               struct fi_profile_desc *event,
                                                               void *param, size_t size,
                                                               void *context),
                                               void *context) {
  return FI_CHECK_OP(prof_fid->ops, struct fi_profile_ops, reg_callback)
             ? prof_fid->ops->reg_callback(prof_fid, event_id, callback, context)
             : -FI_ENOSYS;
}

// What is read between these two belongs to one moment.
static inline void fi_profile_start_reads(struct fid_profile *prof_fid, uint64_t flags) {
  if (FI_CHECK_OP(prof_fid->ops, struct fi_profile_ops, start_reads))
    prof_fid->ops->start_reads(prof_fid, flags);
}

static inline void fi_profile_end_reads(struct fid_profile *prof_fid, uint64_t flags) {
  if (FI_CHECK_OP(prof_fid->ops, struct fi_profile_ops, end_reads))
    prof_fid->ops->end_reads(prof_fid, flags);
}

#ifdef __cplusplus
}
#endif

#endif  // FI_PROFILE_H
