// SPDX-License-Identifier: BSD-2-Clause
//
// Queues and counters that report what became of asynchronous work: event queues (connections,
// memory registration, address insertion), completion queues and counters (data transfers), and the
// wait and poll sets that combine them.
//
// Example:
//    static ssize_t reap(struct fid_cq *cq, struct fi_cq_tagged_entry *done, size_t count) {
//      ssize_t n = fi_cq_read(cq, done, count);
//      if (n == -FI_EAVAIL) {
//        struct fi_cq_err_entry failed = {0};
//        fi_cq_readerr(cq, &failed, 0);
//        return -failed.err;
//      }
//      return n;  // -FI_EAGAIN: nothing yet
//    }
//
// Not for opening completion queues and counters: those belong to a domain, see fi_domain.h.
// Timeouts are milliseconds, a negative one is forever.
// Man pages: fi_eq(3), fi_cq(3), fi_cntr(3), fi_poll(3).

#ifndef FI_EQ_H
#define FI_EQ_H

#include <poll.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#ifdef __cplusplus
extern "C" {
#endif

// --- Wait sets ---

// What a thread blocks on; fi_control(FI_GETWAIT) hands it out.
enum fi_wait_obj {
  FI_WAIT_NONE,        // blocking reads are not allowed
  FI_WAIT_UNSPEC,      // the provider chooses and keeps it to itself
  FI_WAIT_SET,         // a wait set; deprecated
  FI_WAIT_FD,          // one file descriptor
  FI_WAIT_MUTEX_COND,  // struct fi_mutex_cond; deprecated
  FI_WAIT_YIELD,       // busy waiting that gives the processor away
  FI_WAIT_POLLFD,      // struct fi_wait_pollfd
};

struct fi_wait_attr {
  enum fi_wait_obj wait_obj;
  uint64_t flags;
};

struct fi_ops_wait {
  size_t size;
  int (*wait)(struct fid_wait *waitset, int timeout);
};

struct fid_wait {
  struct fid fid;
  struct fi_ops_wait *ops;
};

struct fi_mutex_cond {
  pthread_mutex_t *mutex;
  pthread_cond_t *cond;
};

struct fi_wait_pollfd {
  uint64_t change_index;  // changes whenever the set of descriptors does
  size_t nfds;            // in: room in `fd`; out: how many there are
  struct pollfd *fd;
};

// --- Poll sets ---

struct fi_poll_attr {
  uint64_t flags;
};

struct fi_ops_poll {
  size_t size;
  int (*poll)(struct fid_poll *pollset, void **context, int count);
  int (*poll_add)(struct fid_poll *pollset, struct fid *event_fid, uint64_t flags);
  int (*poll_del)(struct fid_poll *pollset, struct fid *event_fid, uint64_t flags);
};

struct fid_poll {
  struct fid fid;
  struct fi_ops_poll *ops;
};

// --- Event queues ---

struct fi_eq_attr {
  size_t size;     // events it should hold; 0: the provider's default
  uint64_t flags;  // FI_WRITE: fi_eq_write() is allowed; FI_AFFINITY: signaling_vector counts
  enum fi_wait_obj wait_obj;
  int signaling_vector;
  struct fid_wait *wait_set;  // with FI_WAIT_SET
};

// Events, each with the entry that fi_eq_read() stores.
enum {
  FI_NOTIFY,         // struct fi_eq_entry
  FI_CONNREQ,        // struct fi_eq_cm_entry
  FI_CONNECTED,      // struct fi_eq_cm_entry
  FI_SHUTDOWN,       // struct fi_eq_cm_entry
  FI_MR_COMPLETE,    // struct fi_eq_entry
  FI_AV_COMPLETE,    // struct fi_eq_entry
  FI_JOIN_COMPLETE,  // struct fi_eq_entry
};

struct fi_eq_entry {
  fid_t fid;
  void *context;
  uint64_t data;
};

struct fi_eq_err_entry {
  fid_t fid;
  void *context;
  uint64_t data;
  int err;         // FI_E*, positive
  int prov_errno;  // for fi_eq_strerror()
  void *err_data;  // valid until the queue is read again, where err_data_size was 0 on input
  size_t err_data_size;
};

// A member of open length is C; both compilers have it in C++ as well, under pedantic protest.
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc99-extensions"
#endif
struct fi_eq_cm_entry {
  fid_t fid;
  struct fi_info *info;  // of a connection request: the reader releases it with fi_freeinfo()
  __extension__ uint8_t data[];  // what the peer passed along; the length read says how much
};
#ifdef __clang__
#pragma clang diagnostic pop
#endif

struct fi_ops_eq {
  size_t size;
  ssize_t (*read)(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, uint64_t flags);
  ssize_t (*readerr)(struct fid_eq *eq, struct fi_eq_err_entry *buf, uint64_t flags);
  ssize_t (*write)(struct fid_eq *eq, uint32_t event, const void *buf, size_t len, uint64_t flags);
  ssize_t (*sread)(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, int timeout,
                   uint64_t flags);
  const char *(*strerror)(struct fid_eq *eq, int prov_errno, const void *err_data, char *buf,
                          size_t len);
};

struct fid_eq {
  struct fid fid;
  struct fi_ops_eq *ops;
};

// --- Completion queues ---

// Which entry a queue delivers; each one is the beginning of the next.
enum fi_cq_format {
  FI_CQ_FORMAT_UNSPEC,
  FI_CQ_FORMAT_CONTEXT,  // struct fi_cq_entry
  FI_CQ_FORMAT_MSG,      // struct fi_cq_msg_entry
  FI_CQ_FORMAT_DATA,     // struct fi_cq_data_entry
  FI_CQ_FORMAT_TAGGED,   // struct fi_cq_tagged_entry
};

struct fi_cq_entry {
  void *op_context;
};

struct fi_cq_msg_entry {
  void *op_context;
  uint64_t flags;  // what completed: FI_SEND, FI_RECV, FI_RMA, ...
  size_t len;      // bytes received
};

struct fi_cq_data_entry {
  void *op_context;
  uint64_t flags;
  size_t len;
  void *buf;      // where a FI_MULTI_RECV message was put
  uint64_t data;  // with FI_REMOTE_CQ_DATA in flags
};

struct fi_cq_tagged_entry {
  void *op_context;
  uint64_t flags;
  size_t len;
  void *buf;
  uint64_t data;
  uint64_t tag;
};

struct fi_cq_err_entry {
  void *op_context;
  uint64_t flags;
  size_t len;
  void *buf;
  uint64_t data;
  uint64_t tag;
  size_t olen;     // bytes that did not fit
  int err;         // FI_E*, positive
  int prov_errno;  // for fi_cq_strerror()
  void *err_data;  // valid until the queue is read again, where err_data_size was 0 on input
  size_t err_data_size;
  fi_addr_t src_addr;  // of a failed receive on an endpoint with FI_SOURCE
};

enum fi_cq_wait_cond {
  FI_CQ_COND_NONE,
  FI_CQ_COND_THRESHOLD,  // `cond` is a size_t: how many entries are worth waking up for
};

struct fi_cq_attr {
  size_t size;     // entries it should hold; 0: the provider's default
  uint64_t flags;  // FI_AFFINITY: signaling_vector counts
  enum fi_cq_format format;
  enum fi_wait_obj wait_obj;
  int signaling_vector;
  enum fi_cq_wait_cond wait_cond;
  struct fid_wait *wait_set;  // with FI_WAIT_SET
};

struct fi_ops_cq {
  size_t size;
  ssize_t (*read)(struct fid_cq *cq, void *buf, size_t count);
  ssize_t (*readfrom)(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr);
  ssize_t (*readerr)(struct fid_cq *cq, struct fi_cq_err_entry *buf, uint64_t flags);
  ssize_t (*sread)(struct fid_cq *cq, void *buf, size_t count, const void *cond, int timeout);
  ssize_t (*sreadfrom)(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr,
                       const void *cond, int timeout);
  int (*signal)(struct fid_cq *cq);
  const char *(*strerror)(struct fid_cq *cq, int prov_errno, const void *err_data, char *buf,
                          size_t len);
};

struct fid_cq {
  struct fid fid;
  struct fi_ops_cq *ops;
};

// --- Counters ---

enum fi_cntr_events {
  FI_CNTR_EVENTS_COMP,   // completed operations
  FI_CNTR_EVENTS_BYTES,  // bytes transferred
};

struct fi_cntr_attr {
  enum fi_cntr_events events;
  enum fi_wait_obj wait_obj;
  struct fid_wait *wait_set;  // with FI_WAIT_SET
  uint64_t flags;
};

struct fi_ops_cntr {
  size_t size;
  uint64_t (*read)(struct fid_cntr *cntr);
  uint64_t (*readerr)(struct fid_cntr *cntr);
  int (*add)(struct fid_cntr *cntr, uint64_t value);
  int (*set)(struct fid_cntr *cntr, uint64_t value);
  int (*wait)(struct fid_cntr *cntr, uint64_t threshold, int timeout);
  int (*adderr)(struct fid_cntr *cntr, uint64_t value);
  int (*seterr)(struct fid_cntr *cntr, uint64_t value);
};

struct fid_cntr {
  struct fid fid;
  struct fi_ops_cntr *ops;
};

// --- Calls ---

// Whether blocking on the wait objects of `fids` is safe now: 0, or -FI_EAGAIN where something is
// to be read first.
static inline int fi_trywait(struct fid_fabric *fabric, struct fid **fids, int count) {
  return fabric->ops->trywait(fabric, fids, count);
}

static inline int fi_wait(struct fid_wait *waitset, int timeout) {
  return waitset->ops->wait(waitset, timeout);
}

// Makes progress; the contexts of queues and counters that have something, and how many.
static inline int fi_poll(struct fid_poll *pollset, void **context, int count) {
  return pollset->ops->poll(pollset, context, count);
}

static inline int fi_poll_add(struct fid_poll *pollset, struct fid *event_fid, uint64_t flags) {
  return pollset->ops->poll_add(pollset, event_fid, flags);
}

static inline int fi_poll_del(struct fid_poll *pollset, struct fid *event_fid, uint64_t flags) {
  return pollset->ops->poll_del(pollset, event_fid, flags);
}

static inline int fi_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq,
                             void *context) {
  return fabric->ops->eq_open(fabric, attr, eq, context);
}

// Bytes stored, -FI_EAGAIN, or -FI_EAVAIL where fi_eq_readerr() has to be called. FI_PEEK leaves
// the event in the queue.
static inline ssize_t fi_eq_read(struct fid_eq *eq, uint32_t *event, void *buf, size_t len,
                                 uint64_t flags) {
  return eq->ops->read(eq, event, buf, len, flags);
}

static inline ssize_t fi_eq_readerr(struct fid_eq *eq, struct fi_eq_err_entry *buf,
                                    uint64_t flags) {
  return eq->ops->readerr(eq, buf, flags);
}

static inline ssize_t fi_eq_write(struct fid_eq *eq, uint32_t event, const void *buf, size_t len,
                                  uint64_t flags) {
  return eq->ops->write(eq, event, buf, len, flags);
}

static inline ssize_t fi_eq_sread(struct fid_eq *eq, uint32_t *event, void *buf, size_t len,
                                  int timeout, uint64_t flags) {
  return eq->ops->sread(eq, event, buf, len, timeout, flags);
}

static inline const char *fi_eq_strerror(struct fid_eq *eq, int prov_errno, const void *err_data,
                                         char *buf, size_t len) {
  return eq->ops->strerror(eq, prov_errno, err_data, buf, len);
}

// Entries stored (of the queue's format), -FI_EAGAIN, or -FI_EAVAIL where fi_cq_readerr() has to be
// called. Drives progress where that is manual.
static inline ssize_t fi_cq_read(struct fid_cq *cq, void *buf, size_t count) {
  return cq->ops->read(cq, buf, count);
}

static inline ssize_t fi_cq_readfrom(struct fid_cq *cq, void *buf, size_t count,
                                     fi_addr_t *src_addr) {
  return cq->ops->readfrom(cq, buf, count, src_addr);
}

static inline ssize_t fi_cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *buf,
                                    uint64_t flags) {
  return cq->ops->readerr(cq, buf, flags);
}

static inline ssize_t fi_cq_sread(struct fid_cq *cq, void *buf, size_t count, const void *cond,
                                  int timeout) {
  return cq->ops->sread(cq, buf, count, cond, timeout);
}

static inline ssize_t fi_cq_sreadfrom(struct fid_cq *cq, void *buf, size_t count,
                                      fi_addr_t *src_addr, const void *cond, int timeout) {
  return cq->ops->sreadfrom(cq, buf, count, src_addr, cond, timeout);
}

// Makes a thread that is blocked in fi_cq_sread() return.
static inline int fi_cq_signal(struct fid_cq *cq) {
  return cq->ops->signal(cq);
}

static inline const char *fi_cq_strerror(struct fid_cq *cq, int prov_errno, const void *err_data,
                                         char *buf, size_t len) {
  return cq->ops->strerror(cq, prov_errno, err_data, buf, len);
}

static inline uint64_t fi_cntr_read(struct fid_cntr *cntr) {
  return cntr->ops->read(cntr);
}

static inline uint64_t fi_cntr_readerr(struct fid_cntr *cntr) {
  return cntr->ops->readerr(cntr);
}

static inline int fi_cntr_add(struct fid_cntr *cntr, uint64_t value) {
  return cntr->ops->add(cntr, value);
}

static inline int fi_cntr_adderr(struct fid_cntr *cntr, uint64_t value) {
  if (!FI_CHECK_OP(cntr->ops, struct fi_ops_cntr, adderr)) return -FI_ENOSYS;
  return cntr->ops->adderr(cntr, value);
}

static inline int fi_cntr_set(struct fid_cntr *cntr, uint64_t value) {
  return cntr->ops->set(cntr, value);
}

static inline int fi_cntr_seterr(struct fid_cntr *cntr, uint64_t value) {
  if (!FI_CHECK_OP(cntr->ops, struct fi_ops_cntr, seterr)) return -FI_ENOSYS;
  return cntr->ops->seterr(cntr, value);
}

// 0 once the counter has reached `threshold`, -FI_ETIMEDOUT, or -FI_EAVAIL after an error.
static inline int fi_cntr_wait(struct fid_cntr *cntr, uint64_t threshold, int timeout) {
  return cntr->ops->wait(cntr, threshold, timeout);
}

#ifdef __cplusplus
}
#endif

#endif  // FI_EQ_H
