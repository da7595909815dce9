// SPDX-License-Identifier: BSD-2-Clause
//
// Operations that start later: when a counter reaches a threshold, when a device writes a value
// (flag FI_TRIGGER), or from a domain's deferred work queue. See fi_trigger(3).
//
// Example:
//    #include <rdma/fi_endpoint.h>
//    // Sends when 4 messages have arrived. `later` and `iov` must stay until the completion.
//    static ssize_t send_later(struct fid_ep *ep, struct fid_cntr *arrived, struct iovec *iov,
//                              fi_addr_t next, struct fi_triggered_context2 *later) {
//      later->event_type = FI_TRIGGER_THRESHOLD;
//      later->trigger.threshold.cntr = arrived;
//      later->trigger.threshold.threshold = 4;
//      struct fi_msg msg = {0};
//      msg.msg_iov = iov;
//      msg.iov_count = 1;
//      msg.addr = next;
//      msg.context = later;
//      return fi_sendmsg(ep, &msg, FI_TRIGGER);
//    }
//
// Not for waiting on the host: fi_cntr_wait.

#ifndef FI_TRIGGER_H
#define FI_TRIGGER_H

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What starts a triggered operation.
enum fi_trigger_event {
  FI_TRIGGER_THRESHOLD,  // a counter reaches a value
  FI_TRIGGER_XPU,        // a host or device writes given values to given places
};

// What a deferred work item does: which member of fi_deferred_work::op is set.
enum fi_op_type {
  FI_OP_RECV,            // msg
  FI_OP_SEND,            // msg
  FI_OP_TRECV,           // tagged
  FI_OP_TSEND,           // tagged
  FI_OP_READ,            // rma
  FI_OP_WRITE,           // rma
  FI_OP_ATOMIC,          // atomic
  FI_OP_FETCH_ATOMIC,    // fetch_atomic
  FI_OP_COMPARE_ATOMIC,  // compare_atomic
  FI_OP_CNTR_SET,        // cntr
  FI_OP_CNTR_ADD         // cntr
};

// Start once the counter's value is at least `threshold`.
struct fi_trigger_threshold {
  struct fid_cntr *cntr;
  size_t threshold;
};

// Out: one store that the device makes to start the operation.
struct fi_trigger_var {
  enum fi_datatype datatype;  // FI_UINT8 to FI_UINT64
  int count;                  // elements; more than 1: value.data
  void *addr;                 // where to store
  union {
    uint8_t val8;
    uint16_t val16;
    uint32_t val32;
    uint64_t val64;
    uint8_t *data;  // the application's buffer of count * size of datatype bytes
  } value;          // what to store
};

struct fi_trigger_xpu {
  int count;                 // in: how many `var` holds; out: how many must be written, in order
  enum fi_hmem_iface iface;  // who will write; the local buffers must belong to the same
  union {
    uint64_t reserved;
    int cuda;
    int ze;
  } device;
  struct fi_trigger_var *var;  // FI_OPT_XPU_TRIGGER tells how many are needed
};

// What the work items of a deferred work queue do. The flags are those of the matching *msg call.
struct fi_op_msg {
  struct fid_ep *ep;
  struct fi_msg msg;
  uint64_t flags;
};

struct fi_op_tagged {
  struct fid_ep *ep;
  struct fi_msg_tagged msg;
  uint64_t flags;
};

struct fi_op_rma {
  struct fid_ep *ep;
  struct fi_msg_rma msg;
  uint64_t flags;
};

struct fi_op_atomic {
  struct fid_ep *ep;
  struct fi_msg_atomic msg;
  uint64_t flags;
};

struct fi_op_fetch_atomic {
  struct fid_ep *ep;
  struct fi_msg_atomic msg;
  struct fi_msg_fetch fetch;
  uint64_t flags;
};

struct fi_op_compare_atomic {
  struct fid_ep *ep;
  struct fi_msg_atomic msg;
  struct fi_msg_fetch fetch;
  struct fi_msg_compare compare;
  uint64_t flags;
};

// Set `cntr` to `value`, or add it.
struct fi_op_cntr {
  struct fid_cntr *cntr;
  uint64_t value;
};

// The context of an operation with FI_TRIGGER, in place of struct fi_context and as large. The
// application leaves it alone until the operation completes; the provider may change it.
struct fi_triggered_context {
  enum fi_trigger_event event_type;
  union {
    struct fi_trigger_threshold threshold;
    struct fi_trigger_xpu xpu;
    void *internal[3];
  } trigger;
};

// Likewise where the provider asks for FI_CONTEXT2: as large as struct fi_context2.
struct fi_triggered_context2 {
  enum fi_trigger_event event_type;
  union {
    struct fi_trigger_threshold threshold;
    struct fi_trigger_xpu xpu;
    void *internal[7];
  } trigger;
};

// The argument of fi_control on a domain with FI_QUEUE_WORK, FI_CANCEL_WORK or FI_FLUSH_WORK
// (the last cancels everything that waits for triggering_cntr, or all with a NULL argument).
// It and what `op` points to must stay valid until the work completes or is cancelled.
struct fi_deferred_work {
  struct fi_context2 context;  // for the provider

  uint64_t threshold;  // start when triggering_cntr, successes and errors, reaches it
  struct fid_cntr *triggering_cntr;
  struct fid_cntr *completion_cntr;  // plus 1 when done; NULL for counter operations

  enum fi_op_type op_type;

  union {
    struct fi_op_msg *msg;
    struct fi_op_tagged *tagged;
    struct fi_op_rma *rma;
    struct fi_op_atomic *atomic;
    struct fi_op_fetch_atomic *fetch_atomic;
    struct fi_op_compare_atomic *compare_atomic;
    struct fi_op_cntr *cntr;
  } op;
};

#ifdef __cplusplus
}
#endif

#endif  // FI_TRIGGER_H
