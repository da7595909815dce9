// SPDX-License-Identifier: BSD-2-Clause
// The connection manager: what librdmacm and the kernel behind it do, over the network of the
// double.
//
// Example:
//    // How an identifier reports that its address was resolved.
//    void tell_resolved(CmId &id) {
//      CmMessage message;
//      message.kind = CmMessage::Kind::kEvent;
//      message.to = id.side->serial;
//      message.event.type = RDMA_CM_EVENT_ADDR_RESOLVED;
//      id.world.cm->send(std::move(message));
//    }
//
// An identifier that a program has is a `CmId`. Its end of a connection is a `CmSide`, which can
// live without an identifier: a request that nobody has fetched yet. Sides exchange messages; the
// world delivers them, those between two sides in order. As in librdmacm, some steps happen when
// the program fetches an event: the queue pair of the active side works from then on.
//
// Not for iWARP.
#ifndef WEFT_PLUGINS_VERBS_DOUBLE_CM_H
#define WEFT_PLUGINS_VERBS_DOUBLE_CM_H

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "plugins/verbs/double/event_queue.h"
#include "plugins/verbs/double/objects.h"
#include "plugins/verbs/double/world.h"

namespace weft::verbs_double {

struct CmId;

// Sizes of private data as IP addresses leave them, and as they are delivered, zeros behind.
inline constexpr size_t kRequestData = 56;
inline constexpr size_t kIbRequestData = 92;  // of AF_IB: the program writes the kernel's header
inline constexpr size_t kReplyData = 196;
inline constexpr size_t kRejectData = 148;
inline constexpr size_t kLookupData = 180;
inline constexpr size_t kAnswerData = 136;

inline constexpr int kNoListener = 8;     // reasons of a reject: the service id is unknown
inline constexpr int kTimedOut = 4;       // the other end gave up
inline constexpr int kByConsumer = 28;    // rdma_reject()
inline constexpr int kLookupRefused = 2;  // the status of a refused lookup of a datagram service

enum class CmState {
  kIdle,
  kBound,
  kAddrQuery,
  kAddrResolved,
  kRouteQuery,
  kRouteResolved,
  kListening,
  kConnecting,  // the request is out
  kResponded,   // the reply is here
  kRequested,   // a request is here
  kAccepted,    // the reply is out
  kConnected,
  kDisconnecting,  // rdma_disconnect() here
  kLeft,           // rdma_disconnect() there
  kClosed
};

// An event before the program fetches it.
struct QueuedEvent {
  uint64_t side = 0;
  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_RESOLVED;
  int status = 0;
  std::vector<uint8_t> data;
  rdma_conn_param conn = {};  // without its data
  uint64_t child = 0;         // of a request
  rdma_ud_param ud = {};
  bool is_ud = false;
  void *context = nullptr;  // of a multicast join
  ibv_gid group = {};
};

struct CmChannel : rdma_event_channel {
  explicit CmChannel(World &the_world) : rdma_event_channel{-1}, world(the_world) {
    fd = queue.fd();
  }
  World &world;
  int ids = 0;
  EventQueue<QueuedEvent> queue;
};

struct CmSide {
  uint64_t serial = 0;
  uint64_t peer = 0;
  uint64_t listener = 0;
  CmId *id = nullptr;
  Adapter *adapter = nullptr;
  CmState state = CmState::kIdle;
  rdma_port_space ps = RDMA_PS_TCP;
  SocketAddress src, dst;
  bool owns_port = false;
  bool reuses_address = false;
  bool only_its_family = false;
  int backlog = 0;
  int requests = 0;     // not fetched
  QueuedEvent request;  // of a passive side: what the other end asked for
  uint32_t remote_qpn = 0;
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t retry_count = 0;
  uint8_t rnr_retry_count = 0;
};

struct CmGroup {
  SocketAddress address;
  ibv_gid gid;
  void *context;
  bool attached;
};

struct CmId : rdma_cm_id {
  CmId(World &the_world, std::shared_ptr<CmSide> the_side, CmChannel *given, void *user_context);
  ~CmId();

  World &world;
  Counted counted;
  std::shared_ptr<CmSide> side;
  std::unique_ptr<CmChannel> own_channel;  // of an identifier without one: its calls wait
  ibv_sa_path_rec path = {};
  uint32_t events_taken = 0;
  uint32_t events_acknowledged = 0;
  std::vector<CmGroup> groups;

  bool is_synchronous() const { return own_channel != nullptr; }
};

// The event that a program has.
struct CmEvent : rdma_cm_event {
  CmEvent() : rdma_cm_event{} {}
  std::vector<uint8_t> data;
  CmId *counts_for = nullptr;
};

struct CmMessage {
  enum class Kind { kEvent, kRequest, kReply, kReady, kReject, kDisconnect, kDisconnected };
  Kind kind = Kind::kEvent;
  uint64_t from = 0;
  uint64_t to = 0;
  const Adapter *origin = nullptr;  // send() sets it
  QueuedEvent event;  // of kEvent; of others: private data, parameters, and the reason as status
};

struct Cm {
  explicit Cm(World &the_world) : world(the_world) {}

  World &world;
  uint64_t next_serial = 1;
  uint16_t next_port = 40960;
  std::map<uint64_t, std::shared_ptr<CmSide>> sides;
  std::deque<CmMessage> messages;

  std::shared_ptr<CmSide> make_side(rdma_port_space ps);
  CmSide *find(uint64_t serial) const;

  // Messages: send() queues one, deliver() lets the one in `turn` arrive, or one before it between
  // the same sides.
  void send(CmMessage message);
  size_t count() const { return messages.size(); }
  void deliver(size_t turn);
  // An event for whoever has the side's identifier.
  void tell(CmSide &side, QueuedEvent event);
  void tell(CmSide &side, rdma_cm_event_type type, int status);
  // Waiting for answers ends: everywhere, or where none can come.
  void expire(bool all);
  void on_removed(Adapter &adapter);
  // The side is given up by its program.
  void close(CmSide &side);

  // Addresses. They return 0 or an errno.
  int bind(CmSide &side, const SocketAddress &address);
  CmSide *listener_for(rdma_port_space ps, const SocketAddress &address) const;
  Context &context_of(Adapter &adapter);

 private:
  bool is_port_free(const CmSide &side, const SocketAddress &address) const;
  bool is_cut(const CmSide &side) const;
  void on_request(const CmMessage &message);
  void on_reply(CmSide &side, const CmMessage &message);
  void on_reject(CmSide &side, const CmMessage &message);
  void on_disconnect(CmSide &side);
  void end_connection(CmSide &side, int status);
  void on_lost(const CmMessage &message);
};

// Private data of a request from such an address.
inline size_t request_room(const CmSide &side) {
  return side.src.family() == AF_IB ? kIbRequestData : kRequestData;
}

inline CmId &of(rdma_cm_id *id) {
  return static_cast<CmId &>(*id);
}
inline CmChannel &of(rdma_event_channel *channel) {
  return static_cast<CmChannel &>(*channel);
}

// cm_event.cc: what a program sees of a side; called when its device is known.
void show_device(CmId &id);
// The event as the program gets it, with what librdmacm does before.
std::unique_ptr<CmEvent> fetch(World &world, const QueuedEvent &queued);
// For synchronous identifiers: waits for the event of the call. Returns 0, or -1 with errno.
int complete(CmId &id);
// The event that such a call has left in the identifier is acknowledged.
void end_event(CmId &id);

// cm_group.cc: the queue pair of the identifier receives what comes for a group that it has joined.
void attach_joined(CmId &id, const ibv_gid &gid);

// cm_qp.cc: the states of a queue pair that belongs to an identifier.
int start_queue_pair(CmSide &side, Qp &qp);     // to INIT, or to RTS for datagrams
void connect_queue_pair(CmSide &side, Qp &qp);  // to RTS
ibv_ah_attr path_to(const Adapter &from, const SocketAddress &src, const Adapter &to,
                    const SocketAddress &dst);

}  // namespace weft::verbs_double

#endif
