// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/fuzz/liar.h"

#include <algorithm>
#include <iterator>

#include "plugins/verbs/channel.h"
#include "plugins/verbs/nonblocking.h"

namespace weft::verbs::fuzz {
namespace {

constexpr size_t kMostLinks = 12;
constexpr uint8_t kNoQueuePair = 1, kNeverReady = 2, kPatient = 4;

rdma_conn_param param_of(std::string_view data, uint8_t how) {
  rdma_conn_param param{};
  param.private_data = data.data();
  param.private_data_len = uint8_t(data.size());
  param.responder_resources = how & 8 ? 0 : RDMA_MAX_RESP_RES;
  param.initiator_depth = how & 16 ? 0 : RDMA_MAX_INIT_DEPTH;
  param.retry_count = 7;
  param.rnr_retry_count = how & kPatient ? 7 : how >> 5 & 3;
  param.qp_num = how >> 3;
  return param;
}

}  // namespace

Liar::Liar(const sdk::Address &local) : channel_(rdma_create_event_channel()) {
  bytes_.fill('L');
  FUZZ_CHECK(channel_ != nullptr && make_nonblocking(channel_->fd), "a liar without a channel");
  FUZZ_CHECK(rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) == 0);
  FUZZ_CHECK(rdma_bind_addr(listener_, c_address(local)) == 0 && rdma_listen(listener_, 16) == 0);
  name_ = local_address(*listener_);
  domain_ = ibv_alloc_pd(listener_->verbs);
  queue_ = ibv_create_cq(listener_->verbs, 60'000, nullptr, nullptr, 0);
  region_ = ibv_reg_mr(domain_, bytes_.data(), bytes_.size(),
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC);
  FUZZ_CHECK(queue_ != nullptr && region_ != nullptr);
}

Liar::~Liar() {
  while (!links_.empty()) end(links_.front().id);
  while (!requests_.empty()) end(requests_.front());
  rdma_destroy_id(listener_);
  ibv_dereg_mr(region_);
  ibv_destroy_cq(queue_);
  ibv_dealloc_pd(domain_);
  rdma_destroy_event_channel(channel_);
}

void Liar::end(rdma_cm_id *id) {
  std::erase_if(links_, [id](const Link &link) { return link.id == id; });
  std::erase(requests_, id);
  if (id->qp != nullptr) rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

Liar::Link *Liar::link(uint8_t which) {
  if (links_.empty()) return nullptr;
  return &*std::next(links_.begin(), ptrdiff_t(which % links_.size()));
}

void Liar::give_queue_pair(const Link &link) {
  if (link.how & kNoQueuePair) return;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = queue_;
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = 64,
              .max_recv_wr = 64,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 64};
  rdma_create_qp(link.id, domain_, &init);  // not where the device is gone
}

void Liar::call(const sdk::Address &target, std::string_view data, uint8_t how) {
  if (links_.size() >= kMostLinks) return;
  rdma_cm_id *id = nullptr;
  FUZZ_CHECK(rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) == 0);
  links_.push_back({id, std::string(data), how});
  // From its device, if that is there.
  if (rdma_resolve_addr(id, c_address(name_.with_port(0).value()), c_address(target), 1000) != 0)
    end(id);
}

void Liar::answer(std::string_view data, uint8_t how) {
  if (requests_.empty() || links_.size() >= kMostLinks) return;
  rdma_cm_id *const id = requests_.front();
  requests_.pop_front();
  links_.push_back({id, {}, how});
  give_queue_pair(links_.back());
  rdma_conn_param param = param_of(data, how);
  if (rdma_accept(id, &param) != 0) end(id);
}

void Liar::refuse(std::string_view data) {
  if (requests_.empty()) return;
  rdma_reject(requests_.front(), data.data(), uint8_t(data.size()));
  end(requests_.front());
}

void Liar::leave(uint8_t which, uint8_t how) {
  Link *const left = link(which);
  if (left == nullptr) return;
  ibv_qp_attr attr{};
  attr.qp_state = how & 4 ? IBV_QPS_RESET : IBV_QPS_ERR;
  if (how & 1) rdma_disconnect(left->id);
  if (how & 2 && left->id->qp != nullptr) ibv_modify_qp(left->id->qp, &attr, IBV_QP_STATE);
  if ((how & 3) == 0) end(left->id);
}

void Liar::send(weft::fuzz::Input &in, std::span<const Shown> shown) {
  constexpr ibv_wr_opcode kCodes[] = {IBV_WR_SEND,
                                      IBV_WR_SEND_WITH_IMM,
                                      IBV_WR_RDMA_WRITE,
                                      IBV_WR_RDMA_WRITE_WITH_IMM,
                                      IBV_WR_RDMA_READ,
                                      IBV_WR_ATOMIC_CMP_AND_SWP,
                                      IBV_WR_ATOMIC_FETCH_AND_ADD};
  const Link *const over = link(in.byte());
  const uint8_t code = in.byte(), how = in.byte(), where = in.byte();
  if (over == nullptr || over->id->qp == nullptr) return;
  const uint32_t length = in.number(2) % 3000;
  ibv_sge piece{reinterpret_cast<uintptr_t>(bytes_.data()) + 8u * (how >> 5), length,
                region_->lkey};
  ibv_send_wr work{}, *bad;
  work.sg_list = &piece;
  work.num_sge = how & 16 ? 0 : 1;
  work.opcode = kCodes[code % std::size(kCodes)];
  work.send_flags = (how & 7) | (how & 8 ? IBV_SEND_INLINE : 0);  // fence, signalled, solicited
  Shown target{.address = in.number(4), .key = in.number(4)};
  if (where < 224 && !shown.empty()) {
    target = shown[where % shown.size()];
    target.address += in.number(2) % 600 - (where & 128 ? 300 : 0);
  }
  if (work.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP && work.opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD) {
    piece.length = sizeof(uint64_t);
    work.wr.atomic = {.remote_addr = target.address & ~(where & 64 ? UINT64_C(0) : UINT64_C(7)),
                      .compare_add = length,
                      .swap = code,
                      .rkey = uint32_t(target.key)};
  } else {
    work.wr.rdma = {.remote_addr = target.address, .rkey = uint32_t(target.key)};
  }
  if (code & 1) work.imm_data = htonl(in.number(4));
  ibv_post_send(over->id->qp, &work, &bad);
}

void Liar::receive(weft::fuzz::Input &in) {
  const Link *const over = link(in.byte());
  const size_t count = in.byte() % 8;
  ibv_sge piece{reinterpret_cast<uintptr_t>(bytes_.data()), in.number(2) % 4096, region_->lkey};
  ibv_recv_wr work{}, *bad;
  work.sg_list = &piece;
  work.num_sge = 1;
  for (size_t i = 0; i < count && over != nullptr && over->id->qp != nullptr; ++i)
    ibv_post_recv(over->id->qp, &work, &bad);
}

void Liar::run() {
  rdma_cm_event *event = nullptr;
  while (rdma_get_cm_event(channel_, &event) == 0) {
    const rdma_cm_event_type type = event->event;
    rdma_cm_id *const id = event->id;
    rdma_ack_cm_event(event);
    if (id != listener_) on_event(type, id);
  }
  ibv_wc some[16];
  while (ibv_poll_cq(queue_, std::size(some), some) != 0) {
  }
}

void Liar::on_event(rdma_cm_event_type type, rdma_cm_id *id) {
  if (type == RDMA_CM_EVENT_CONNECT_REQUEST) return requests_.push_back(id);
  const auto at = std::ranges::find(links_, id, &Link::id);
  if (at == links_.end()) return;
  rdma_conn_param param = param_of(at->data, at->how);
  switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      give_queue_pair(*at);
      if (rdma_resolve_route(id, 1000) != 0) end(id);
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (rdma_connect(id, &param) != 0) end(id);
      return;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:  // it has no queue pair
      if (!(at->how & kNeverReady)) rdma_establish(id);
      return;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_REJECTED:
      return end(id);
    default:
      return;
  }
}

}  // namespace weft::verbs::fuzz
