// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/random_peer.h"

#include <poll.h>
#include <rdma/fi_tagged.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "tests/conformance/harness.h"
#include "tests/conformance/unconnected.h"

namespace weft::conformance {

std::vector<uint8_t> message_of(const Stamp &stamp, size_t size, bool is_tagged) {
  const uint64_t word = stamp.word();
  std::vector<uint8_t> bytes = pattern(size, unsigned(word ^ word >> 29));
  if (!is_tagged && size >= kStampBytes) std::memcpy(bytes.data(), &word, kStampBytes);
  return bytes;
}

Options all_that_is_offered(const Options &options) {
  Options all = options;
  for (const uint64_t more : {FI_RMA, FI_ATOMIC}) {
    Options with_more = all;
    with_more.caps |= more;
    if (more == FI_ATOMIC && options.type == FI_EP_MSG) continue;  // a device has only some
    if (find_info(with_more)) all = with_more;
  }
  return all;
}

struct RandomPeer::Receive {
  Partner *from = nullptr;  // of a connection
  unsigned slot = 0;
  bool is_tagged = false, is_closed = false;
  std::vector<uint8_t> bytes;
};

struct RandomPeer::Echo {
  bool is_tagged = false;
  uint64_t tag = 0;
  unsigned slot = 0;
  std::vector<uint8_t> bytes;
};

struct RandomPeer::Partner {
  unsigned slot = 0;
  Handle<fid_ep> connection;
  bool is_connected = false;
  fi_addr_t at = FI_ADDR_UNSPEC;
  size_t under_way = 0;
  std::deque<std::unique_ptr<Echo>> waiting;
};

// What both kinds of endpoints need.
struct PeerSide {
  std::unique_ptr<unconnected::Node> node;
  std::unique_ptr<Side> side;  // without an endpoint of its own
  std::unique_ptr<Listener> listener;
  Application &app() const {
    return node ? static_cast<Application &>(*node) : static_cast<Application &>(*side);
  }
};

RandomPeer::RandomPeer(const Options &options, int socket)
    : options_(all_that_is_offered(options)),
      socket_(socket),
      memory_(kPeerMemory),
      side_(std::make_unique<PeerSide>()) {
  if (options_.type == FI_EP_MSG) {
    side_->side = std::make_unique<Side>(options_);
    side_->side->open(options_info(options_, nullptr, FI_SOURCE).get());
    side_->listener = std::make_unique<Listener>(*side_->side);
  } else {
    side_->node = std::make_unique<unconnected::Node>(options_);
  }
  if (options_.caps & FI_RMA)
    side_->app().expose(memory_.data(), memory_.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 7);
  if (options_.type == FI_EP_MSG) return;
  for (size_t i = 0; i < kPeerReceives; ++i) {
    post(nullptr, false);
    if (options_.caps & FI_TAGGED) post(nullptr, true);
  }
}

RandomPeer::~RandomPeer() {
  // In the order that the API asks for.
  side_->app().regions.clear();
  side_->listener.reset();
  partners_.clear();
  side_.reset();
}

void RandomPeer::obey() {
  while (can_hear(socket_)) {
    rounds_in_vain_ = 0;
    switch (hear(socket_)) {
      case kMeet: {
        Application &app = side_->app();
        tell_text(socket_, side_->listener ? side_->listener->address() : app.name());
        tell(socket_, app.base_of(memory_.data()));
        tell(socket_, app.regions.empty() ? 0 : fi_mr_key(app.regions.front()));
        break;
      }
      case kInsert: {
        const auto slot = unsigned(hear(socket_));
        Partner &partner = partners_[slot];
        partner.slot = slot;
        partner.at = side_->node->insert(hear_text(socket_));
        partner.is_connected = true;
        tell(socket_, 1);
        break;
      }
      case kRemove: {
        // Operations toward it may be under way, so the entry stays.
        const auto slot = unsigned(hear(socket_));
        Partner &partner = partners_[slot];
        partner.waiting.clear();
        partner.is_connected = false;
        break;
      }
      default:
        is_leaving_ = true;
    }
  }
}

void RandomPeer::read_events() {
  if (!side_->side) return;
  while (std::optional<Event> event = poll_eq(side_->side->eq)) {
    rounds_in_vain_ = 0;
    if (event->type == FI_CONNREQ) {
      uint32_t slot = 0;
      if (event->data.size() < sizeof slot) throw std::runtime_error("no number of the endpoint");
      std::memcpy(&slot, event->data.data(), sizeof slot);
      Partner &partner = partners_[slot];
      partner.slot = slot;
      Side &side = *side_->side;
      side.make_endpoint(event->info.get());
      partner.connection = std::move(side.ep);
      for (size_t i = 0; i < kPeerReceives; ++i) post(&partner, false);
      const int rc = fi_accept(partner.connection, nullptr, 0);
      if (rc != 0) partner.connection.reset();  // it has left meanwhile
      continue;
    }
    // An event of an endpoint that is closed by now has nobody.
    const auto found = std::find_if(partners_.begin(), partners_.end(), [&](const auto &entry) {
      return entry.second.connection && &entry.second.connection.get()->fid == event->fid;
    });
    if (found == partners_.end()) continue;
    Partner &partner = found->second;
    if (event->err == 0 && event->type == FI_CONNECTED) {
      partner.is_connected = true;
      continue;
    }
    partner.is_connected = false;
    partner.waiting.clear();
    partner.connection.reset();
    for (auto &[context, receive] : receives_)
      if (receive->from == &partner) receive->is_closed = true;
  }
}

void RandomPeer::post(Partner *partner, bool is_tagged) {
  auto receive = std::make_unique<Receive>();
  receive->from = partner;
  receive->slot = partner != nullptr ? partner->slot : 0;
  receive->is_tagged = is_tagged;
  receive->bytes.resize(room_for_messages(*side_->app().info));
  uint8_t *const at = receive->bytes.data();
  const size_t size = receive->bytes.size();
  fid_ep *const ep = partner != nullptr ? partner->connection.get() : side_->app().ep.get();
  const auto call = [&] {
    return is_tagged ? fi_trecv(ep, at, size, nullptr, FI_ADDR_UNSPEC, 0, ~UINT64_C(0) >> 16,
                                receive.get())
                     : fi_recv(ep, at, size, nullptr, FI_ADDR_UNSPEC, receive.get());
  };
  const Deadline deadline;
  ssize_t rc;
  while ((rc = call()) == -FI_EAGAIN && !deadline.passed()) {
    // A connection may have ended: then there is an event.
    fi_cq_read(side_->app().tx_cq, nullptr, 0);
    fi_cq_read(side_->app().rx_cq, nullptr, 0);
  }
  if (rc != 0 && partner != nullptr) return;  // its end comes as an event
  must(rc);
  receives_.emplace(receive.get(), std::move(receive));
}

void RandomPeer::answer(Receive &receive, size_t size, uint64_t tag) {
  auto echo = std::make_unique<Echo>();
  echo->is_tagged = receive.is_tagged;
  echo->tag = tag;
  echo->bytes.assign(receive.bytes.begin(), receive.bytes.begin() + ptrdiff_t(size));
  if (receive.from != nullptr) {
    echo->slot = receive.slot;
  } else {
    if (!receive.is_tagged) {
      if (size < kStampBytes) throw std::runtime_error("a message without a stamp");
      std::memcpy(&tag, echo->bytes.data(), kStampBytes);
    }
    echo->slot = Stamp::of(tag).slot;
  }
  const auto partner = partners_.find(echo->slot);
  if (partner == partners_.end() || !partner->second.is_connected) return;
  partner->second.waiting.push_back(std::move(echo));
}

void RandomPeer::read_completions(fid_cq *cq) {
  while (const std::optional<Done> done = poll_cq(cq)) {
    rounds_in_vain_ = 0;
    if (const auto echo = sent_.find(done->context); echo != sent_.end()) {
      --partners_[echo->second->slot].under_way;
      sent_.erase(echo);
      continue;
    }
    const auto found = receives_.find(done->context);
    if (found == receives_.end())
      throw std::runtime_error("a completion of nothing, or a second one, with the error " +
                               std::to_string(done->err));
    const std::unique_ptr<Receive> receive = std::move(found->second);
    receives_.erase(found);
    if (receive->is_closed) continue;
    if (receive->from != nullptr && !receive->from->connection) continue;
    if (done->err == 0) answer(*receive, done->len, done->tag);
    // A partner that closed in the middle of a message, or a connection that ended.
    if (done->err == 0 || receive->from == nullptr) post(receive->from, receive->is_tagged);
  }
}

void RandomPeer::send_answers(Partner &partner) {
  // Those of an endpoint that is closed are dropped.
  while (partner.is_connected && !partner.waiting.empty()) {
    std::unique_ptr<Echo> &echo = partner.waiting.front();
    fid_ep *const ep = partner.connection ? partner.connection.get() : side_->app().ep.get();
    uint8_t *const at = echo->bytes.data();
    const size_t size = echo->bytes.size();
    const ssize_t rc = echo->is_tagged
                           ? fi_tsend(ep, at, size, nullptr, partner.at, echo->tag, echo.get())
                           : fi_send(ep, at, size, nullptr, partner.at, echo.get());
    if (rc == -FI_EAGAIN) return;
    if (rc == 0) {
      ++partner.under_way;
      sent_.emplace(echo.get(), std::move(echo));
    } else if (rc == -FI_EINTR) {
      throw std::runtime_error("a send was disturbed by a signal");
    }
    partner.waiting.pop_front();  // refused: the partner has left
    rounds_in_vain_ = 0;
  }
}

bool RandomPeer::step() {
  ++rounds_in_vain_;
  obey();
  read_events();
  read_completions(side_->app().rx_cq);
  read_completions(side_->app().tx_cq);
  bool is_busy = false;
  for (auto &[slot, partner] : partners_) {
    send_answers(partner);
    is_busy = is_busy || (partner.is_connected && !partner.waiting.empty());
  }
  return !is_leaving_ || is_busy;
}

// ---- its process ----

namespace {

// Null: the others leave no room on its NIC.
std::unique_ptr<RandomPeer> open_peer(const Options &options, int socket) {
  try {
    return std::make_unique<RandomPeer>(options, socket);
  } catch (const std::runtime_error &error) {
    const bool is_short =
        std::string(error.what()).find(error_text(-FI_ENOSPC)) != std::string::npos;
    if (!is_short || !is_matched_by_a_nic(options.type)) throw;
    return nullptr;
  }
}

void be_a_random_peer(const Options &options, int socket) {
  pollfd start{socket, POLLIN, 0};
  ::poll(&start, 1, -1);  // it may be the last of several lives
  if (hear(socket) != 1) return;
  std::unique_ptr<RandomPeer> peer = open_peer(options, socket);
  if (peer == nullptr) {
    hear(socket);
    return tell_text(socket, "");
  }
  while (peer->step()) {
    if (!peer->is_idle()) continue;
    pollfd p{socket, POLLIN, 0};
    ::poll(&p, 1, 1);  // gives its processor away
  }
  peer.reset();
  tell(socket, 0);
}

}  // namespace

PeerProcess::PeerProcess(const Options &options) : options_(options) {
  if (has_devices_inside()) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets_) != 0)
      throw std::runtime_error("socketpair");
    return;
  }
  child_ = std::make_unique<Child>([&](int socket) { be_a_random_peer(options, socket); });
}

PeerProcess::~PeerProcess() {
  inside_.reset();
  for (const int socket : sockets_)
    if (socket >= 0) ::close(socket);
}

void PeerProcess::advance() {
  if (child_ || is_over_) return;
  if (!inside_ && can_hear(sockets_[1]) && hear(sockets_[1]) == 1)
    inside_ = std::make_unique<RandomPeer>(options_, sockets_[1]);
  if (inside_ && !inside_->step()) {
    inside_.reset();
    is_over_ = true;
    tell(sockets_[1], 0);
  }
}

uint64_t PeerProcess::hear_number() {
  const Deadline deadline;
  while (!child_ && !can_hear(socket()) && !deadline.passed()) advance();
  return hear(socket());
}

std::string PeerProcess::hear_text() {
  const Deadline deadline;
  while (!child_ && !can_hear(socket()) && !deadline.passed()) advance();
  return conformance::hear_text(socket());
}

Introduction PeerProcess::meet() {
  tell(socket(), RandomPeer::kMeet);
  Introduction where;
  where.address = hear_text();
  if (where.address.empty()) return where;
  where.base = hear_number();
  where.key = hear_number();
  return where;
}

void PeerProcess::insert(unsigned slot, const std::string &address) {
  tell(socket(), RandomPeer::kInsert);
  tell(socket(), slot);
  tell_text(socket(), address);
  hear_number();
}

void PeerProcess::remove(unsigned slot) {
  tell(socket(), RandomPeer::kRemove);
  tell(socket(), slot);
}

void PeerProcess::kill() {
  if (child_) {
    child_->kill();
  } else {
    inside_.reset();
    is_over_ = true;
  }
}

void PeerProcess::leave() {
  tell(socket(), RandomPeer::kLeave);
  EXPECT_EQ(hear_number(), 0u);
  if (child_) child_->join();
}

}  // namespace weft::conformance
