// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/fuzz/application.h"

#include <rdma/fi_atomic.h>
#include <weft/sdk/layers/carrier.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/verbs/endpoint.h"

namespace weft::verbs::fuzz {
namespace {

constexpr size_t kRoom = 2048, kShown = 512, kInject = 64;
constexpr uint8_t kUntouched = 0x5a, kQuiet = 0x71;
constexpr uint64_t kReceived = FI_RECV | FI_MSG;
constexpr uint64_t kWritten = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;

using Phase = Connection::Phase;

uint8_t byte_of(size_t message, size_t at) {
  return uint8_t(message * 31 + at * 7 + (at >> 8));
}

}  // namespace

// ---- life ----

Application::Application(TestNode &node, const Settings &settings, const Choices &choices,
                         const char *address)
    : side_(node, settings), choices_(choices) {
  open_queues(address);
  FUZZ_CHECK(fi_passive_ep(side_.fabric, side_.info, &side_.pep, nullptr) == 0);
  FUZZ_CHECK(fi_pep_bind(side_.pep, &side_.eq->fid, 0) == 0 && fi_listen(side_.pep) == 0);
  sockaddr_in name{};
  size_t size = sizeof name;
  FUZZ_CHECK(fi_getname(&side_.pep->fid, &name, &size) == 0);
  name_ = sdk::read_address(FI_SOCKADDR_IN, &name, size).value();
  constexpr uint64_t kRights[] = {
      FI_REMOTE_READ | FI_REMOTE_WRITE,  // the one for what peers may do
      FI_REMOTE_READ, FI_SEND | FI_RECV | FI_READ | FI_WRITE};
  for (size_t i = 0; i < std::size(kRights); ++i) {
    uint8_t *const bytes = memory_.lend(kShown, kQuiet);
    fid_mr *region = nullptr;
    FUZZ_CHECK(fi_mr_reg(side_.domain, bytes, kShown, kRights[i], 0, 0, 0, &region, nullptr) == 0);
    regions_.push_back(region);
    shown_.push_back({reinterpret_cast<uintptr_t>(bytes), fi_mr_key(region)});
    if (i != 0) quiet_[i - 1] = bytes;
  }
}

void Application::open_queues(const char *address) {
  fi_info hints{};
  fi_domain_attr domain_attr{};
  domain_attr.control_progress = domain_attr.data_progress = FI_PROGRESS_MANUAL;
  hints.domain_attr = &domain_attr;
  hints.mode = FI_RX_CQ_DATA;
  hints.addr_format = FI_SOCKADDR_IN;
  side_.open({.node = address, .service = "0", .flags = FI_SOURCE, .hints = &hints});
  receives_cq_ = side_.cq;
  fi_cq_attr attr{};
  attr.format = FI_CQ_FORMAT_DATA;
  attr.wait_obj = FI_WAIT_NONE;
  if (choices_.two_queues) FUZZ_CHECK(fi_cq_open(side_.domain, &attr, &receives_cq_, nullptr) == 0);
  if (choices_.shares_receives)
    FUZZ_CHECK(fi_srx_context(side_.domain, nullptr, &srx_, nullptr) == 0);
}

Application::~Application() {
  while (!connections_.empty()) close(*connections_.begin()->second);
  for (fi_info *const request : requests_) free_info(request);
  if (srx_ != nullptr) FUZZ_CHECK(fi_close(&srx_->fid) == 0);
  if (receives_cq_ != side_.cq) FUZZ_CHECK(fi_close(&receives_cq_->fid) == 0);
  for (fid_mr *const region : regions_) FUZZ_CHECK(fi_close(&region->fid) == 0);
  for (const uint8_t *const bytes : quiet_)
    FUZZ_CHECK(std::all_of(bytes, bytes + kShown, [](uint8_t b) { return b == kQuiet; }),
               "a peer wrote where it may not");
}

Connection &Application::open(fi_info *info) {
  auto connection = std::make_unique<Connection>();
  connection->identity = ++opened_;
  if (choices_.small_queues != 0) info->tx_attr->size = info->rx_attr->size = choices_.small_queues;
  info->ep_attr->rx_ctx_cnt = srx_ != nullptr ? size_t(FI_SHARED_CONTEXT) : 1;
  if (fi_endpoint(side_.domain, info, &connection->ep, nullptr) != 0) {  // a device is gone
    connection->phase = Phase::kEnded;
    return *(connections_[connection->identity] = std::move(connection));
  }
  fid_ep *const ep = connection->ep;
  void *ops = nullptr;
  FUZZ_CHECK(fi_open_ops(&ep->fid, WEFT_CARRIER_OPS, 0, &ops, nullptr) == 0);
  static_cast<weft_carrier_ops *>(ops)->identify(ep, connection->identity);
  FUZZ_CHECK(fi_ep_bind(ep, &side_.eq->fid, 0) == 0);
  const uint64_t selective = choices_.selective ? FI_SELECTIVE_COMPLETION : 0;
  FUZZ_CHECK(fi_ep_bind(ep, &side_.cq->fid, FI_TRANSMIT | selective) == 0);
  FUZZ_CHECK(fi_ep_bind(ep, &receives_cq_->fid, FI_RECV) == 0);
  if (srx_ != nullptr) FUZZ_CHECK(fi_ep_bind(ep, &srx_->fid, 0) == 0);
  FUZZ_CHECK(fi_enable(ep) == 0);
  return *(connections_[connection->identity] = std::move(connection));
}

std::vector<Connection *> Application::connections() const {
  std::vector<Connection *> all;
  for (const auto &[identity, connection] : connections_) all.push_back(connection.get());
  return all;
}

uint32_t Application::number_of(const Connection &connection) {
  return connection.ep != nullptr ? Endpoint::from(connection.ep)->qp_num() : 0;
}

void Application::close(Connection &connection) {
  if (connection.ep != nullptr) FUZZ_CHECK(fi_close(&connection.ep->fid) == 0);
  if (connection.other != nullptr) connection.other->other = nullptr;
  // What the queue has told already may still be read. The memory is the application's.
  for (auto &[context, op] : ops_) {
    if (op->connection != &connection) continue;
    for (const Piece &piece : op->pieces) memory_.take_back(piece.bytes);
    op->pieces.clear();
    op->closed = true;
    op->connection = nullptr;
  }
  connections_.erase(connection.identity);
}

// ---- connections ----

void Application::connect(Connection &connection, const sdk::Address &peer, std::string_view data) {
  if (connection.ep == nullptr || connection.phase != Phase::kIdle) return;
  if (fi_connect(connection.ep, peer.data(), data.data(), data.size()) == 0)
    connection.phase = Phase::kConnecting;
}

bool Application::is_first_from(const sdk::Address &host) const {
  if (requests_.empty()) return false;
  const fi_info &info = *requests_.front();
  const auto peer = sdk::read_address(info.addr_format, info.dest_addr, info.dest_addrlen);
  return peer && std::ranges::equal(peer->host(), host.host());
}

Connection *Application::answer(uint8_t how, std::string_view data) {
  if (requests_.empty()) return nullptr;
  fi_info *const request = requests_.front();
  requests_.pop_front();
  Connection *connection = nullptr;
  switch (how % 4) {
    case 0:
    case 1:
      connection = &open(request);
      if (connection->ep == nullptr) break;
      connection->phase = Phase::kConnecting;
      if (how % 8 == 5) receive_whole(*connection);
      if (fi_accept(connection->ep, data.data(), data.size()) != 0)
        connection->phase = Phase::kEnded;
      break;
    case 2:
      FUZZ_CHECK(fi_reject(side_.pep, request->handle, data.data(), data.size()) == 0);
      break;
    default:
      FUZZ_CHECK(fi_close(request->handle) == 0);
  }
  free_info(request);
  return connection;
}

void Application::shut_down(Connection &connection) {
  if (connection.ep != nullptr) fi_shutdown(connection.ep, 0);
}

Connection *Application::connection_of(const struct fid *fid) {
  for (const auto &[identity, connection] : connections_)
    if (connection->ep != nullptr && &connection->ep->fid == fid) return connection.get();
  return nullptr;
}

bool Application::read_events(size_t most) {
  bool any = false;
  for (; most != 0; --most) {
    const auto event = side_.event();
    if (!event) return any;
    any = true;
    told(*event);
  }
  return any;
}

void Application::told(const TestEvent &event) {
  if (event.type == FI_CONNREQ) {
    FUZZ_CHECK(event.fid == &side_.pep->fid && event.info != nullptr && event.data.size() <= 55);
    requests_.push_back(event.info);
    FUZZ_CHECK(requests_.size() <= kBacklog, "a crowd of requests");
    return;
  }
  if (event.fid == &side_.pep->fid) {
    FUZZ_CHECK(event.err == FI_ENODEV);
    return;
  }
  Connection *const connection = connection_of(event.fid);
  FUZZ_CHECK(connection != nullptr, "an event of an endpoint that is closed");
  FUZZ_CHECK(event.data.size() <= 55);
  if (event.err != 0) {
    FUZZ_CHECK(event.err > 0 && connection->phase == Phase::kConnecting);
    connection->phase = Phase::kEnded;
  } else if (event.type == FI_CONNECTED) {
    FUZZ_CHECK(connection->phase == Phase::kConnecting);
    connection->phase = Phase::kConnected;
  } else {
    FUZZ_CHECK(event.type == FI_SHUTDOWN && connection->phase == Phase::kConnected);
    connection->phase = Phase::kEnded;
    if (connection->other != nullptr) FUZZ_CHECK(excused_, "an honest connection ends");
  }
}

// ---- operations ----

Application::Piece Application::lend(size_t size, uint8_t fill) {
  Piece piece{memory_.lend(size, fill), size, nullptr};
  if (size == 0) return piece;
  // Registered until the end, so that a device that comes late finds it.
  if (fi_mr_reg(side_.domain, piece.bytes, size, FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0, 0, 0,
                &piece.region, nullptr) == 0)
    regions_.push_back(piece.region);
  return piece;
}

Application::Op &Application::begin(Connection *connection, bool receives, size_t length,
                                    size_t pieces) {
  auto made = std::make_unique<Op>();
  Op &op = *made;
  ops_[&op] = std::move(made);
  op.connection = connection;
  op.receives = receives;
  op.length = length;
  for (size_t left = length; pieces != 0; --pieces) {
    const size_t some = pieces == 1 ? left : left / 2;
    op.pieces.push_back(lend(some, kUntouched));
    left -= some;
  }
  return op;
}

std::vector<iovec> Application::vectors(const Op &op) const {
  std::vector<iovec> all;
  for (const Piece &piece : op.pieces) all.push_back({piece.bytes, piece.size});
  return all;
}

std::vector<void *> Application::descriptors(const Op &op) const {
  std::vector<void *> all;
  for (const Piece &piece : op.pieces)
    all.push_back(piece.region != nullptr ? fi_mr_desc(piece.region) : nullptr);
  return all;
}

// It was not started, or has ended.
void Application::forget(Op &op) {
  for (const Piece &piece : op.pieces) memory_.take_back(piece.bytes);
  ops_.erase(&op);
}

void Application::post(Op &op) {
  const auto iov = vectors(op);
  auto desc = descriptors(op);
  fi_msg msg{};
  msg.msg_iov = iov.data();
  msg.desc = desc.data();
  msg.iov_count = iov.size();
  msg.context = &op;
  fid_ep *const ep = srx_ != nullptr ? srx_ : op.connection->ep;
  if (fi_recvmsg(ep, &msg, FI_COMPLETION) != 0) forget(op);
}

void Application::receive(Connection *connection, weft::fuzz::Input &in) {
  if (srx_ != nullptr || connection == nullptr || connection->ep == nullptr) {
    if (srx_ != nullptr) post(begin(nullptr, true, kRoom, 1));
    return;
  }
  if (connection->other != nullptr) return receive_whole(*connection);
  const size_t pieces = in.byte() % 4;
  post(begin(connection, true, pieces == 0 ? 0 : in.number(2) % (kRoom + 1), pieces));
}

void Application::receive_whole(Connection &connection) {
  post(begin(srx_ != nullptr ? nullptr : &connection, true, kRoom, 1));
}

void Application::transfer(Connection &connection, weft::fuzz::Input &in, Shown remote) {
  if (connection.ep == nullptr) return;
  const uint8_t kind = connection.other != nullptr ? 0 : in.byte();
  const uint8_t how = in.byte();
  const bool injects = (how & 3) == 3, fetches = kind % 8 == 7, reads = kind % 8 == 6;
  size_t length = in.number(2) % (injects ? kInject : kRoom + 1);
  if (fetches) length = sizeof(uint64_t);
  Op &op = begin(&connection, false, length, fetches ? 1 : (how >> 2 & 3) + 1);
  op.wanted = !choices_.selective || (how & 0x80);
  const auto iov = vectors(op);
  auto desc = descriptors(op);
  const size_t number = connection.sent.size();
  size_t at = 0;
  for (const Piece &piece : op.pieces)
    for (size_t i = 0; i < piece.size; ++i) piece.bytes[i] = byte_of(number, at++);
  uint64_t flags = op.wanted ? FI_COMPLETION : 0;
  if (injects && !fetches && !reads) flags |= FI_INJECT;
  if (how & 0x10) flags |= FI_MORE;
  if (how & 0x20) flags |= FI_FENCE;
  if (how & 0x40) flags |= FI_DELIVERY_COMPLETE;
  if (connection.other != nullptr || kind & 0x80) flags |= FI_REMOTE_CQ_DATA;
  const bool was_ended = connection.phase == Phase::kEnded;
  ssize_t rc;
  if (kind % 8 < 4) {
    op.flags = FI_SEND | FI_MSG;
    fi_msg msg{iov.data(), desc.data(), iov.size(), 0, &op, number};
    rc = fi_sendmsg(connection.ep, &msg, flags);
  } else if (fetches) {
    op.flags = FI_ATOMIC | FI_READ;
    const uint64_t operand = how;
    rc = fi_fetch_atomic(connection.ep, &operand, 1, nullptr, op.pieces[0].bytes, desc[0], 0,
                         remote.address & ~UINT64_C(7), remote.key, FI_UINT64, FI_SUM, &op);
    op.wanted = !choices_.selective;
  } else {
    op.flags = FI_RMA | (reads ? FI_READ : FI_WRITE);
    if (reads) flags &= ~uint64_t(FI_REMOTE_CQ_DATA);
    const fi_rma_iov target{remote.address, length, remote.key};
    fi_msg_rma msg{iov.data(), desc.data(), iov.size(), 0, &target, 1, &op, number};
    rc = reads ? fi_readmsg(connection.ep, &msg, flags) : fi_writemsg(connection.ep, &msg, flags);
  }
  if (rc != 0) return forget(op);
  FUZZ_CHECK(!was_ended, "an endpoint without a connection sends");
  if (connection.other != nullptr) connection.sent.push_back(length);
  if (!(flags & FI_INJECT)) return;
  for (const Piece &piece : op.pieces) memory_.take_back(piece.bytes);
  op.pieces.clear();
}

void Application::cancel(weft::fuzz::Input &in) {
  if (ops_.empty()) return;
  Op &op = *std::next(ops_.begin(), in.byte() % ops_.size())->second;
  if (op.connection == nullptr || op.connection->ep == nullptr) return;
  if (fi_cancel(&op.connection->ep->fid, &op) == 0) op.cancelled = true;
}

// ---- completions ----

bool Application::read_completions(size_t most) {
  bool any = false;
  for (; most != 0; --most) {
    const bool one = read_completion(side_.cq);
    const bool other = receives_cq_ != side_.cq && read_completion(receives_cq_);
    if (!one && !other) break;
    any = true;
  }
  return any;
}

bool Application::read_completion(fid_cq *cq) {
  fi_cq_data_entry entry{};
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  const ssize_t n = fi_cq_readfrom(cq, &entry, 1, &source);
  if (n == -FI_EAGAIN) return false;
  if (n == 1) {
    completed(entry, source);
    return true;
  }
  fi_cq_err_entry error{};
  FUZZ_CHECK(n == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) == 1);
  char text[128];
  FUZZ_CHECK(fi_cq_strerror(cq, error.prov_errno, nullptr, text, sizeof text) != nullptr);
  failed(error);
  return true;
}

std::unique_ptr<Application::Op> Application::end(void *context) {
  const auto at = ops_.find(context);
  FUZZ_CHECK(at != ops_.end(), "an operation ends that is none, or a second time");
  auto op = std::move(at->second);
  ops_.erase(at);
  return op;
}

void Application::completed(const fi_cq_data_entry &entry, fi_addr_t source) {
  const auto op = end(entry.op_context);
  if (op->receives) {
    if (!op->closed) arrived(*op, entry, source);
  } else {
    FUZZ_CHECK(op->wanted, "a completion that nobody asked for");
    FUZZ_CHECK(entry.flags == op->flags);
    FUZZ_CHECK(op->closed || entry.len == op->length);
  }
  for (const Piece &piece : op->pieces) memory_.take_back(piece.bytes);
}

void Application::arrived(const Op &op, const fi_cq_data_entry &entry, fi_addr_t source) {
  const bool written = entry.flags == kWritten;
  FUZZ_CHECK(written || (entry.flags & ~uint64_t(FI_REMOTE_CQ_DATA)) == kReceived);
  FUZZ_CHECK(!op.cancelled && (written || entry.len <= op.length));
  size_t at = 0;
  for (const Piece &piece : op.pieces)
    for (size_t i = 0; i < piece.size; ++i, ++at)
      if (written || at >= entry.len)
        FUZZ_CHECK(piece.bytes[i] == kUntouched, "bytes behind a message are written");
  const auto from = connections_.find(source);
  if (op.connection != nullptr) FUZZ_CHECK(source == op.connection->identity);
  if (from == connections_.end()) {  // closed meanwhile
    FUZZ_CHECK(source == FI_ADDR_NOTAVAIL || source <= opened_, "a message of nobody");
    return;
  }
  Connection &here = *from->second;
  if (here.other == nullptr) return;
  // Of an honest peer.
  const size_t number = here.arrived++;
  FUZZ_CHECK(number < here.other->sent.size(), "a message that an honest peer has not sent");
  FUZZ_CHECK(entry.flags == (kReceived | FI_REMOTE_CQ_DATA) && entry.data == number);
  FUZZ_CHECK(entry.len == here.other->sent[number]);
  for (size_t i = 0; i < entry.len; ++i)
    FUZZ_CHECK(op.pieces[0].bytes[i] == byte_of(number, i), "an honest message is damaged");
}

void Application::failed(const fi_cq_err_entry &entry) {
  FUZZ_CHECK(entry.err > 0);
  if (entry.op_context == nullptr) {
    FUZZ_CHECK(entry.err == FI_EOVERRUN && loses_);
    return;
  }
  const auto op = end(entry.op_context);
  FUZZ_CHECK(bool(entry.flags & FI_RECV) == op->receives);
  for (const Piece &piece : op->pieces) memory_.take_back(piece.bytes);
  if (op->connection == nullptr || op->cancelled) return;
  if (op->connection->other != nullptr) FUZZ_CHECK(excused_, "an honest operation fails");
  // What a device has refused leaves the connection as it was.
  if (entry.prov_errno != IBV_WC_GENERAL_ERR) op->connection->failed = true;
}

void Application::check_settled() const {
  for (const auto &[identity, connection] : connections_) {
    FUZZ_CHECK(connection->phase != Phase::kConnected || !connection->failed,
               "a connection that has failed goes on");
  }
  for (const auto &[context, op] : ops_)
    FUZZ_CHECK(loses_ || op->connection == nullptr || !op->wanted ||
                   op->connection->phase != Phase::kEnded,
               "an operation never ends");
}

bool Application::is_delivered() const {
  for (const auto &[identity, connection] : connections_)
    if (connection->other != nullptr && connection->arrived != connection->other->sent.size())
      return false;
  return excused_ || std::ranges::none_of(ops_, [](const auto &one) {
           const Op &op = *one.second;
           return op.connection != nullptr && op.connection->other != nullptr && op.wanted &&
                  !op.receives;
         });
}

void Application::break_queue(verbs_double::Device &device) {
  device.break_completion_queue(CompletionQueue::of(*sdk::Cq::from(side_.cq)).c());
  excused_ = loses_ = true;
}

}  // namespace weft::verbs::fuzz
