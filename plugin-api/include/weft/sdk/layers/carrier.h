// SPDX-License-Identifier: BSD-2-Clause
// What a layer may ask of the endpoints beneath it beyond the C API, if their provider has it: one
// that puts its own packets into them (rxm, rxd), and one that chooses among them (link).
//
// Example:
//    #include <weft/sdk/unit/log.h>
//    void identify(const weft_instance *instance, fid_ep *ep, fi_addr_t number) {
//      void *ops = nullptr;  // before fi_enable
//      if (fi_open_ops(&ep->fid, WEFT_CARRIER_OPS, 0, &ops, nullptr) == 0)
//        static_cast<weft_carrier_ops *>(ops)->identify(ep, number);
//      else
//        WEFT_INFO(instance, FI_LOG_EP_CTRL, "the provider has no " WEFT_CARRIER_OPS);
//    }
//
// Not for applications. A layer must also work without it: it then trusts what its peers' packets
// say of themselves.
#ifndef WEFT_SDK_LAYERS_CARRIER_H
#define WEFT_SDK_LAYERS_CARRIER_H

#include <rdma/fi_endpoint.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_CARRIER_OPS "weft_carrier_1"

// Of an endpoint. A domain whose connected endpoints have them answers as well, so that a layer
// knows it before it connects. A provider that has only the first of these says so by the size.
typedef struct weft_carrier_ops {
  size_t size;
  // fi_cq_readfrom reports `source` for everything that arrives at this endpoint, also where
  // receives are shared. A message whose frame has a tag in the provider's own header (libfabric
  // 1.17 to 1.19 send such to rxm over tcp) is taken, and completes with FI_TAGGED and the tag.
  int (*identify)(struct fid_ep *ep, fi_addr_t source);
  // Registers memory of the layer's own: for the peer of this endpoint alone, under a key that
  // nobody can guess. Counters of the endpoint (FI_REMOTE_READ, FI_REMOTE_WRITE) count accesses to
  // the application's regions only, not to these. fi_close ends it.
  int (*expose)(struct fid_ep *ep, const struct iovec *iov, uint64_t access, struct fid_mr **mr);
  // From now on messages of the peer wait in its stream, and leave shared receives to other peers.
  // With `held` 0 they do not wait any more.
  int (*hold)(struct fid_ep *ep, int held);
  // Further flags that calls of an identified endpoint take: WEFT_CARRIER_MARKS, WEFT_CARRIER_LATER
  // (fi_sendmsg, fi_writemsg), WEFT_CARRIER_UNASKED (fi_readmsg, too).
  uint64_t flags;
} weft_carrier_ops;

// Marks, of which a call has at most one: the layer's application takes a message (FI_MSG,
// FI_TAGGED) or a write (FI_RMA) for complete as soon as the operation is. If that is lost with the
// connection, though the operation had completed, an error entry tells so, with the endpoint's
// context and FI_SEND | FI_MSG, FI_SEND | FI_TAGGED or FI_WRITE | FI_RMA. Of a completed operation
// without a mark nothing is told: the layer's own packets, and parts of what is not over yet.
#define WEFT_CARRIER_MARKS (FI_MSG | FI_TAGGED | FI_RMA)

// Of an injected message (fi_sendmsg): the layer is likely to send another one to this peer before
// it next reads a queue. The message may wait for that one, to leave with it. If the layer reads a
// queue first, the message leaves then; if it makes no more calls, within 10 ms.
#define WEFT_CARRIER_LATER FI_ATOMIC

// Of an operation: if it has a completion, that is the layer's, and the application wants none. So
// nobody may read a queue, and what waits for that leaves within 10 ms all the same.
#define WEFT_CARRIER_UNASKED FI_COLLECTIVE

// Of a domain with connected endpoints, for a layer whose endpoints consist of several of them.
#define WEFT_REGION_OPS "weft_region_1"

typedef struct weft_region_ops {
  size_t size;
  // The endpoint belongs to this group, which is not 0; before fi_connect or fi_accept. A layer
  // that uses groups puts every endpoint of the domain into one.
  int (*join_group)(struct fid_ep *ep, uint64_t group);
  // From now on peers of the endpoints in this group reach the region, and nobody else.
  int (*confine)(struct fid_mr *mr, uint64_t group);
} weft_region_ops;

// The fi_control() command that makes a domain one that lends regions from another domain of the
// same provider, the argument: the layer opens a domain beneath each context of a scalable
// endpoint, and the application knows one. 0 or -FI_E...
#define WEFT_JOIN_DOMAIN (-0x77656676)

// The fi_control() command by which a layer says, before anybody reads there, that it reads the
// queues and counters of a domain, or an event queue, with a lock of its own held (no argument). A
// read that finds nothing then never leaves the processor to others: who reads the layer's own
// queue does, without the lock. And an error entry of such a domain is written whole: below API
// 1.20 an application's entry is shorter, a layer's is not. 0, or -FI_E..., which changes nothing
// for the layer.
#define WEFT_READ_BY_LAYER (-0x77656678)

// The fi_control() command that tells a layer with many queues of one domain how to ask a
// completion queue whether it has something (argument: a weft_queue). 0, or -FI_E...: only a read
// tells.
#define WEFT_QUEUE (-0x77656677)

typedef struct weft_queue {
  // What has_entries takes: where others stand between, not the queue that fi_control was called
  // with.
  struct fid_cq *cq;
  // Whether fi_cq_read would find something, without the progress that it makes otherwise. 0 or 1.
  int (*has_entries)(struct fid_cq *cq);
} weft_queue;

// Of a domain with datagram endpoints; the calls take an endpoint of that domain.
#define WEFT_DATAGRAM_OPS "weft_datagram_1"

// weft_datagram_ops.properties
enum {
  // When a send without FI_MORE has returned, its memory and that of all earlier sends is no longer
  // read. Exceptions are -FI_EBADFLAGS, and -FI_EINVAL for pointers and counts: such a call changes
  // nothing.
  WEFT_DATAGRAM_SENT_AT_ONCE = 1 << 0,
  // The network fragments: an endpoint may be opened with a max_msg_size above that of the
  // fi_info, up to what the network can carry in fragments.
  WEFT_DATAGRAM_FRAGMENTS = 1 << 1,
  // A datagram that no posted receive waits for is lost: nothing else holds it.
  WEFT_DATAGRAM_ONLY_POSTED = 1 << 2,
  // The network checks every datagram from end to end by a CRC of 32 bits or more, and drops what
  // was damaged.
  WEFT_DATAGRAM_CHECKED = 1 << 3,
};

typedef struct weft_datagram_ops {
  size_t size;
  // From now on the transmit queue also tells what the network says of datagrams that were sent:
  // an error entry without a context, with FI_SEND, err FI_ECONNREFUSED (no socket has the port),
  // src_addr the destination, err_data as many bytes of the datagram as came back. The network's
  // message may be forged: believe it only if these bytes prove that its sender saw the datagram.
  int (*tell_unreachable)(struct fid_ep *ep);
  // An endpoint with FI_SOURCE reads the source of each datagram, which costs time. With `named` 0
  // it stops that until the next call: fi_cq_readfrom says FI_ADDR_NOTAVAIL for datagrams that it
  // reads meanwhile. -FI_EOPNOTSUPP: without FI_SOURCE, or with FI_SOURCE_ERR, or the provider
  // always does what the endpoint's capabilities say.
  int (*name_sources)(struct fid_ep *ep, int named);
  uint64_t properties;  // WEFT_DATAGRAM_...
  // Bytes of the datagrams that rxd of stock libfabric uses over this network; both ends must use
  // the same. 0: not known, so nobody should speak its protocol here.
  size_t stock_rxd_datagram;
  // At which addresses of this host datagrams come to an endpoint that is bound to all of them, as
  // fi_getname writes them. It is noted from the first call on, for some datagrams after each call.
  // 0: one that came, each only once; -FI_EAGAIN: none since then, as yet. Null, or absent by
  // `size`: the provider does not know.
  int (*next_arrival)(struct fid_ep *ep, void *address, size_t *length);
} weft_datagram_ops;

// Of an endpoint whose peers are processes of its host, for a layer that reaches others in another
// way (link).
#define WEFT_LOCAL_OPS "weft_local_1"

typedef struct weft_local_ops {
  size_t size;
  // Whether the peer, of the address vector, can be reached: it listens, and may talk to this
  // process. From then on it is connected, so that what is sent to it arrives or fails. 0;
  // -FI_EAGAIN: it cannot be told now; another -FI_E...: it cannot be reached.
  int (*reach)(struct fid_ep *ep, fi_addr_t peer);
  // A number that rises whenever a peer of the endpoint that could be reached is gone: its endpoint
  // closed, or its process ended. It is read atomically, by any thread, until fi_close.
  const uint64_t *(*losses)(struct fid_ep *ep);
} weft_local_ops;

#endif
