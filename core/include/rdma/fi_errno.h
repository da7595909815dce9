// SPDX-License-Identifier: BSD-2-Clause
//
// Error numbers of the fabric calls.
//
// A call that fails returns the negative of one of these; error entries of queues (fi_cq_err_entry,
// fi_eq_err_entry) carry it positive in `err`. Numbers below FI_ERRNO_OFFSET are those of the
// operating system's <errno.h>, the others are OFI's own.
//
// Example:
//    #include <rdma/fi_endpoint.h>
//    #include <stdio.h>
//    static void enable(struct fid_ep *ep) {
//      int ret = fi_enable(ep);
//      if (ret) fprintf(stderr, "fi_enable: %s\n", fi_strerror(-ret));
//    }
//
// Not for provider specific codes (`prov_errno`): fi_cq_strerror() and fi_eq_strerror() explain
// those. Man page: fi_errno(3).

#ifndef FI_ERRNO_H
#define FI_ERRNO_H

#include <errno.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FI_SUCCESS 0

#define FI_EPERM EPERM
#define FI_ENOENT ENOENT
#define FI_EINTR EINTR
#define FI_EIO EIO
#define FI_E2BIG E2BIG
#define FI_EBADF EBADF
#define FI_EAGAIN EAGAIN  // no room or nothing there now: make progress and try again
#define FI_ENOMEM ENOMEM
#define FI_EACCES EACCES
#define FI_EFAULT EFAULT
#define FI_EBUSY EBUSY  // the object is still referenced by another one
#define FI_ENODEV ENODEV
#define FI_EINVAL EINVAL
#define FI_EMFILE EMFILE
#define FI_ENOSPC ENOSPC
#define FI_ENOSYS ENOSYS  // the provider lacks this call
#define FI_EWOULDBLOCK EWOULDBLOCK
#define FI_ENOMSG ENOMSG
#define FI_ENODATA ENODATA  // fi_getinfo: no provider fits the hints
#define FI_EPROTO EPROTO
#define FI_EOVERFLOW EOVERFLOW
#define FI_EMSGSIZE EMSGSIZE
#define FI_ENOPROTOOPT ENOPROTOOPT  // fi_getopt, fi_setopt: no such option here
#define FI_EOPNOTSUPP EOPNOTSUPP
#define FI_EADDRINUSE EADDRINUSE
#define FI_EADDRNOTAVAIL EADDRNOTAVAIL
#define FI_ENETDOWN ENETDOWN
#define FI_ENETUNREACH ENETUNREACH
#define FI_ECONNABORTED ECONNABORTED
#define FI_ECONNRESET ECONNRESET
#define FI_ENOBUFS ENOBUFS
#define FI_EISCONN EISCONN
#define FI_ENOTCONN ENOTCONN
#define FI_ESHUTDOWN ESHUTDOWN
#define FI_ETIMEDOUT ETIMEDOUT
#define FI_ECONNREFUSED ECONNREFUSED
#define FI_EHOSTDOWN EHOSTDOWN
#define FI_EHOSTUNREACH EHOSTUNREACH
#define FI_EALREADY EALREADY
#define FI_EINPROGRESS EINPROGRESS
#define FI_EREMOTEIO EREMOTEIO
#define FI_ECANCELED ECANCELED  // fi_cancel() took the operation back, or its endpoint went away
#define FI_EKEYREJECTED EKEYREJECTED

// OFI's own numbers start here.
#define FI_ERRNO_OFFSET 256

enum {
  FI_EOTHER = FI_ERRNO_OFFSET,  // nothing more exact is known
  FI_ETOOSMALL = 257,  // the caller's buffer cannot hold the answer; its length says what is needed
  FI_EOPBADSTATE = 258,    // the object's state forbids the call, such as binding after enabling
  FI_EAVAIL = 259,         // an error entry waits: fetch it with fi_cq_readerr() or fi_eq_readerr()
  FI_EBADFLAGS = 260,      // a flag is unknown or makes no sense for the call
  FI_ENOEQ = 261,          // an event queue is needed and none is bound
  FI_EDOMAIN = 262,        // the objects belong to different domains
  FI_ENOCQ = 263,          // a completion queue is needed and none is bound
  FI_ECRC = 264,           // a checksum did not match
  FI_ETRUNC = 265,         // the message was longer than the buffer
  FI_ENOKEY = 266,         // the memory key is absent or already taken
  FI_ENOAV = 267,          // an address vector is needed and none is bound
  FI_EOVERRUN = 268,       // a queue overflowed and lost entries
  FI_ENORX = 269,          // the receiver had no buffer posted
  FI_ENOMR = 270,          // no more memory can be registered
  FI_EFIREWALLADDR = 271,  // the address lies behind a firewall and cannot be connected to
  FI_ERRNO_MAX
};

// The English text of `errnum` (positive or negative). Static storage: the caller frees nothing.
const char *fi_strerror(int errnum);

#ifdef __cplusplus
}
#endif

#endif  // FI_ERRNO_H
