// SPDX-License-Identifier: BSD-2-Clause
// The objects of libibverbs as the double has them: each begins with the struct of the public
// header, which is what the program sees.
//
// Example:
//    // The queue pair behind the pointer that a program has.
//    uint32_t number_of(ibv_qp *qp) { return of(qp).qp_base.qp_num; }
//
// What happens to them is in the files of their names; transport.h moves the data.
#ifndef WEFT_PLUGINS_VERBS_DOUBLE_OBJECTS_H
#define WEFT_PLUGINS_VERBS_DOUBLE_OBJECTS_H

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "plugins/verbs/double/event_queue.h"
#include "plugins/verbs/double/world.h"

namespace weft::verbs_double {

inline constexpr uint32_t kGroupQp =
    0xffffff;  // the destination of what is sent to a multicast group

struct Pd;

struct Context : verbs_context {
  Context(Adapter &the_adapter, bool is_of_cm);
  ~Context();
  ibv_context *ibv() { return &context; }

  Adapter &adapter;
  World &world;
  Counted counted;
  bool of_cm;  // the one that librdmacm opened; Network::open_objects() leaves its objects out
  EventQueue<ibv_async_event> async;
  std::unique_ptr<Pd> default_pd;  // of librdmacm, for queue pairs without one
};

struct Pd : ibv_pd {
  explicit Pd(Context &opened)
      : ibv_pd{opened.ibv(), 0},
        context_of(opened),
        counted(opened.world, opened.of_cm ? "" : "ibv_pd") {}
  Context &context_of;
  Counted counted;
  int users = 0;
};

struct Mr : ibv_mr {
  explicit Mr(Pd &domain) : ibv_mr{}, pd_of(&domain), counted(domain.context_of.world, "ibv_mr") {}
  Pd *pd_of;
  Counted counted;
  uint8_t *host = nullptr;  // where iova is in the memory of the process
  uint64_t iova = 0;
  unsigned access_flags = 0;
  void *mapping = nullptr;  // of a dmabuf
  size_t mapping_size = 0;
};

struct Ah : ibv_ah {
  explicit Ah(Pd &domain) : ibv_ah{}, pd_of(domain), counted(domain.context_of.world, "ibv_ah") {}
  Pd &pd_of;
  Counted counted;
  ibv_ah_attr attr = {};
};

struct Cq;

struct CompChannel : ibv_comp_channel {
  explicit CompChannel(Context &opened)
      : ibv_comp_channel{opened.ibv(), -1, 0}, counted(opened.world, "ibv_comp_channel") {}
  Counted counted;
  EventQueue<Cq *> events;
};

struct Completion {
  ibv_wc wc = {};
  bool solicited = false;
  Qp *owner = nullptr;      // whose entries become free when this is polled
  uint32_t send_slots = 0;  // how many
  uint32_t recv_slots = 0;
  Srq *srq = nullptr;  // to which `recv_slots` belong, if not to the owner
};

enum class Armed { kNo, kSolicited, kNext };

struct Cq : ibv_cq {
  explicit Cq(Context &opened)
      : ibv_cq{}, context_of(opened), counted(opened.world, opened.of_cm ? "" : "ibv_cq") {}
  Context &context_of;
  Counted counted;
  std::deque<Completion> entries;
  Armed armed = Armed::kNo;
  bool broken = false;  // it was full when a completion came
  int users = 0;
  uint32_t events_taken = 0;  // by ibv_get_cq_event()
  uint32_t async_taken = 0;
};

struct RecvWqe {
  uint64_t wr_id = 0;
  std::vector<ibv_sge> sges;
};

// Posted receives, of a queue pair or shared, and the queue pairs whose messages wait for one.
struct RecvQueue {
  std::deque<RecvWqe> posted;
  std::vector<Qp *> waiting;
  uint32_t used = 0;  // posted, or not yet polled
};

struct Xrcd : ibv_xrcd {
  explicit Xrcd(Context &opened)
      : ibv_xrcd{opened.ibv()}, adapter(opened.adapter), counted(opened.world, "ibv_xrcd") {}
  Adapter &adapter;
  Counted counted;
  int users = 0;
};

struct Srq : ibv_srq {
  Srq(Pd &domain, const ibv_srq_attr &wanted)
      : ibv_srq{}, pd_of(domain), counted(domain.context_of.world, "ibv_srq"), attr(wanted) {}
  Pd &pd_of;
  Counted counted;
  ibv_srq_attr attr;
  RecvQueue rq;
  uint32_t number = 0;
  Xrcd *xrcd = nullptr;  // of an XRC receive queue
  Cq *cq = nullptr;
  int users = 0;
  uint32_t async_taken = 0;
};

struct SendWqe {
  uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  unsigned flags = 0;
  uint32_t imm = 0;
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
  uint32_t remote_srqn = 0;
  Pd *ah_pd = nullptr;
  ibv_ah_attr ah = {};
  uint32_t remote_qpn = 0;
  uint32_t remote_qkey = 0;
  bool is_inline = false;
  std::vector<uint8_t> inline_data;
  std::vector<ibv_sge> sges;
  bool executed = false;
  ibv_wc_status status = IBV_WC_SUCCESS;
  uint32_t byte_len = 0;
};

struct Qp : ibv_qp_ex {
  Qp(Context &opened, const ibv_qp_init_attr_ex &wanted);

  Context &context_of;
  Adapter &adapter;
  World &world;
  Counted counted;
  ibv_qp_init_attr_ex init;
  ibv_qp_attr attr = {};
  Pd *pd_of = nullptr;  // null for an XRC target, which has none
  Cq *send_cq = nullptr;
  Cq *recv_cq = nullptr;
  Srq *srq = nullptr;
  Xrcd *xrcd = nullptr;

  std::deque<SendWqe> sq;
  uint32_t sq_used = 0;        // posted, or no completion behind it was polled
  uint32_t sq_unsignaled = 0;  // of these: done without a completion
  RecvQueue rq;
  std::deque<Completion> arrivals;  // receives that the device has filled but not reported
  RecvQueue *waits_in = nullptr;
  bool is_ready = false;       // in World::ready
  bool is_silent = false;      // it does not answer
  bool told_last_wqe = false;  // IBV_EVENT_QP_LAST_WQE_REACHED
  bool told_drained = false;
  bool told_established = false;
  bool is_unread = false;      // Features::reads_first: its peer waits for a second request
  bool is_unanswered = false;  // its peer does not answer; only time helps
  uint32_t async_taken = 0;
  int opened_times = 0;  // ibv_open_qp()

  uint32_t number() const { return qp_base.qp_num; }
  ibv_qp_state state() const { return attr.qp_state; }
  bool is_connected_type() const { return init.qp_type != IBV_QPT_UD; }
  ibv_qp *ibv() { return &qp_base; }
};

inline Context &of(ibv_context *context) {
  return static_cast<Context &>(*verbs_get_ctx(context));
}
inline Pd &of(ibv_pd *pd) {
  return static_cast<Pd &>(*pd);
}
inline Mr &of(ibv_mr *mr) {
  return static_cast<Mr &>(*mr);
}
inline Ah &of(ibv_ah *ah) {
  return static_cast<Ah &>(*ah);
}
inline CompChannel &of(ibv_comp_channel *channel) {
  return static_cast<CompChannel &>(*channel);
}
inline Cq &of(ibv_cq *cq) {
  return static_cast<Cq &>(*cq);
}
inline Srq &of(ibv_srq *srq) {
  return static_cast<Srq &>(*srq);
}
inline Xrcd &of(ibv_xrcd *xrcd) {
  return static_cast<Xrcd &>(*xrcd);
}
inline Qp &of(ibv_qp *qp) {
  return static_cast<Qp &>(*reinterpret_cast<ibv_qp_ex *>(qp));  // qp_base is its first member
}

// device.cc: an asynchronous event for the program that opened the context.
void raise(Context &context, ibv_event_type type, ibv_qp *qp);
void raise(Context &context, ibv_event_type type, ibv_cq *cq);
void raise(Context &context, ibv_event_type type, ibv_srq *srq);
void raise_for_port(Adapter &adapter, ibv_event_type type);

// memory.cc: the memory behind work requests.
struct Piece {
  uint8_t *memory;
  size_t size;
};
// False if a key is unknown, of another protection domain, beyond its region or without `access`.
bool resolve(Adapter &adapter, const Pd *pd, std::span<const ibv_sge> sges, unsigned access,
             std::vector<Piece> &pieces);
// The memory behind a remote key, or null.
uint8_t *remote_memory(Adapter &adapter, const Pd *pd, uint64_t address, uint64_t size,
                       uint32_t rkey, unsigned access);
size_t size_of(std::span<const Piece> pieces);
void scatter(std::span<const Piece> pieces, size_t skip, std::span<const uint8_t> bytes);

// cq.cc: a completion enters its queue.
void push(Cq &cq, const Completion &completion);
void forget(Cq &cq, Qp &qp, bool removes);

// The functions behind the entries of ibv_context::ops and verbs_context.
int poll_cq(ibv_cq *cq, int count, ibv_wc *wc);
int req_notify_cq(ibv_cq *cq, int solicited_only);
int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad);
int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad);
int post_srq_recv(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad);
ibv_srq *create_srq_ex(ibv_context *context, ibv_srq_init_attr_ex *wanted);
int get_srq_num(ibv_srq *srq, uint32_t *number);
ibv_xrcd *open_xrcd(ibv_context *context, ibv_xrcd_init_attr *wanted);
int close_xrcd(ibv_xrcd *xrcd);
ibv_qp *create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *wanted);
ibv_qp *open_qp(ibv_context *context, ibv_qp_open_attr *wanted);

// qp.cc, for the connection manager; the lock is held.
Qp *make_qp(Context &context, ibv_qp_init_attr_ex &wanted, int &error);
int change_qp(Qp &qp, const ibv_qp_attr &attr, int mask);
int end_qp(Entry &entry, Qp &qp);

// srq.cc: takes the next receive, which may reach the limit of a shared queue.
bool take_receive(RecvQueue &rq, Srq *srq, RecvWqe &receive);
// Whoever waits for a receive in this queue tries again.
void wake(RecvQueue &rq);
// post.cc: checks and queues receives.
int post_receives(RecvQueue &rq, uint32_t max_wr, uint32_t max_sge, ibv_recv_wr *wr,
                  ibv_recv_wr **bad);

}  // namespace weft::verbs_double

#endif
