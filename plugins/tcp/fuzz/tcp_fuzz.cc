// SPDX-License-Identifier: BSD-2-Clause
// The tcp provider as a whole: an application with several endpoints, a friend that runs the same
// code, and strangers that send anything, over sockets of one process in simulated time.
//
// Input: bytes of settings, then commands. FI_EP_RDM: one endpoint each for us and the friend, in
// each other's address vectors. FI_EP_MSG: we listen; the friend and strangers connect; our
// endpoints have their own receives or a shared context. Unconnected endpoints without a shared
// context may have FI_BUFFERED_RECV or FI_VARIABLE_MSG. The checks are in application.h. At the
// end all operations between friends have ended, their messages have arrived, all objects close,
// and no descriptor is left.
//
// Unconnected endpoints may have a thief and a relay about them (actors.h, world_actors.cc), and an
// auth_key, which these have not. WEFT_FUZZ_TALLY=1 prints what both did.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "core/base/info.h"
#include "plugins/tcp/fuzz/sockets.h"
#include "plugins/tcp/fuzz/world.h"

namespace weft::tcp::fuzz {

World::World(Input &in) : in_(in) {
  const uint8_t how = in.u8(), sizes = in.u8();
  reset_network(how);
  msg_ = how & 1;
  shared_ = how & 2;
  set_send_buffer(how & 4 ? 4608 : 0);
  settings_.connect_timeout_ns = 200'000'000'000;  // longer than a run
  settings_.handshake_timeout_ns = 100'000'000;
  settings_.close_linger_ms = 20;
  settings_.backlog = 4096;
  settings_.max_handshakes = 8;
  settings_.tx_size = 16;
  settings_.rx_size = 32;
  settings_.max_saved_size = 256;
  settings_.max_saved_per_peer = how & 8 ? 4096 : 65536;
  settings_.max_saved = how & 8 ? 8192 : 262144;
  settings_.max_connections = how & 0x10 ? 2 : 0;
  settings_.max_unnamed_peers = 2 + (how >> 6);
  us_.host = kOwnHost;
  them_.host = kFriendHost;
  us_.cq_size = 2u << (sizes & 7);
  them_.cq_size = 256;
  if (!msg_ && sizes & 0x60) {
    static constexpr size_t kLimits[] = {0, 64, 128, 200, 256, 1000, 5000, 20000};
    const uint8_t kind = in.u8();
    const size_t limit = kLimits[kind & 7];
    const size_t min =
        std::array{size_t(0), std::min<size_t>(1, limit), limit / 2, limit}[kind >> 3 & 3];
    const Buffered buffered{.on = true, .variable = (kind & 0x20) != 0, .limit = limit, .min = min};
    if (sizes & 0x20 && !shared_) us_.buffered = buffered;
    if (sizes & 0x40) them_.buffered = buffered;
  }
  const bool acted = !msg_ && (sizes & 0x88) == 0x88;
  us_.keyed = them_.keyed = friendship_.keyed = acted && how & 0x20;
  set_process(1000);
  us_.open(settings_, msg_, shared_);
  if (msg_) {
    must(fi_passive_ep(us_.fabric, us_.info, &us_.pep, nullptr));
    must(fi_pep_bind(us_.pep, &us_.eq->fid, 0));
    must(fi_listen(us_.pep));
  } else {
    us_.make(us_.info);
  }
  set_process(2000);
  them_.open(settings_, msg_, false);
  for (uint8_t i = 0; i < 3; ++i)
    strangers_.push_back(std::make_unique<Stranger>(kFirstStranger + i));
  if (msg_) {
    calling_ = &them_.make(them_.info);
    const sockaddr_in at = us_.name(&us_.pep->fid);
    must(fi_connect(calling_->ep, &at, "friend", 6));
    for (int i = 0; i < 6; ++i) {
      read_events(us_);
      read_events(them_);
    }
    accepts_ = 0xff;
  } else {
    befriend(*us_.endpoints[0], them_.make(them_.info));
    for (const auto &s : strangers_) {
      const sockaddr_in at = address_of(s->host(), Stranger::kPort);
      fi_addr_t addr = FI_ADDR_UNSPEC;
      if (sizes & 0x10) FUZZ_CHECK(fi_av_insert(us_.av, &at, 1, &addr, 0, nullptr) == 1);
      stranger_addrs_.push_back(addr);
    }
    for (const auto &e : us_.endpoints) e->strict = settings_.max_connections == 0;
    for (const auto &e : them_.endpoints) e->strict = settings_.max_connections == 0;
  }
  known_.key = fi_mr_key(us_.open_region->mr);
  if (acted) let_act();
}

World::~World() {
  relay_.reset();
  thief_.reset();
  strangers_.clear();
  them_.close();
  us_.close();
}

void World::befriend(Endpoint &a, Endpoint &b) {
  for (auto [one, other, node, there] :
       {std::tuple{&a, &b, &us_, &them_}, std::tuple{&b, &a, &them_, &us_}}) {
    one->other = other;
    one->number = node == &us_ ? 0 : 1;
    one->friendship = &friendship_;
    one->target = there->region.get();
    if (node->av != nullptr) {
      const sockaddr_in at = there->name(&other->ep->fid);
      FUZZ_CHECK(fi_av_insert(node->av, &at, 1, &one->other_addr, 0, nullptr) == 1);
    }
  }
}

// One of our endpoints or of the friend's, as often.
Endpoint *World::some(uint8_t which) {
  Node &node = which & 1 ? us_ : them_;
  if (node.endpoints.empty()) return nullptr;
  Endpoint *e = node.endpoints[(which >> 1) % node.endpoints.size()].get();
  return e->ep != nullptr ? e : nullptr;
}

void World::connect_stranger(Stranger &s) {
  const uint8_t how = in_.u8();
  if (msg_) {
    std::array<uint8_t, kMaxConnectSize> bytes;
    const uint8_t private_data[] = {how};
    const size_t n = encode_connect(ConnectType::kRequest, private_data, bytes);
    s.connect(us_.name(&us_.pep->fid), s.host(),
              {bytes.begin(), bytes.begin() + ptrdiff_t(how & 1 ? n : how % (n + 1))});
  } else {
    Endpoint *e = us_.endpoints[0].get();
    if (e->ep == nullptr) return;
    const sockaddr_in at = us_.name(&e->ep->fid);
    // It names its own port, ours, any, or the friend's, and comes from its host or the friend's.
    // Or it says that it is a context of the friend, which has none.
    uint8_t from = s.host();
    uint16_t port = Stranger::kPort;
    unsigned place = 0;
    if ((how & 3) == 1) port = ntohs(at.sin_port);
    if ((how & 3) == 2) port = in_.u16();
    if ((how & 3) == 3 && thief_ == nullptr) {  // which does so itself
      Endpoint *other = them_.endpoints[0].get();
      if (other->ep == nullptr) return;
      from = kFriendHost;
      port = ntohs(them_.name(&other->ep->fid).sin_port);
      if (how & 0x40) place = 1 + in_.u8() % 31;
      port = uint16_t(port + place);
      // Before the friend has connected, an impostor cannot be distinguished from it.
      if (place == 0 &&
          std::ranges::none_of(friendship_.messages, [](const Message &m) { return m.arrived; }))
        friendship_.excused = true;
    }
    auto first = Stranger::hello(how & 4 ? 0 : 1, how & 0x20 ? kSaysWhenFull : 0, port,
                                 process_at(uint32_t(how >> 4) + 2000 * (how >> 3 & 1), place));
    if (how == 0xff) first[in_.u8() % first.size()] = in_.u8();
    s.connect(at, from, std::move(first));
  }
  s.flush(SIZE_MAX);
}

void World::talk(Stranger &s) {
  switch (in_.u8() % 12) {
    case 0:
      return connect_stranger(s);
    case 1:
      return s.flush(in_.u8());
    case 2:
      s.raw(in_);
      return s.flush(SIZE_MAX);
    case 3:
      return s.read_all();
    case 4: {
      const uint8_t how = in_.u8();
      if (how & 1) s.shut_down();
      if (how & 2) s.hang_up();
      if (how & 4) s.stop_listening();
      return;
    }
    case 5:
      s.listen();
      return s.accept(in_);
    case 6:
      return s.frame(in_, msg_ ? EndpointKind::kMsg : EndpointKind::kRdm1, known_);
    default:
      s.frame(in_, msg_ ? EndpointKind::kMsg : EndpointKind::kRdm1, known_);
      return s.flush(SIZE_MAX);
  }
}

void World::answer(fi_info *request, bool is_friend) {
  if (!(accepts_ & 1) && !is_friend) {
    must(fi_reject(us_.pep, request->handle, nullptr, 0));
    return;
  }
  if (us_.endpoints.size() >= 6) return;  // closed with the passive endpoint
  if (shared_) request->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  Endpoint &e = us_.make(request);
  must(fi_accept(e.ep, nullptr, 0));
  if (is_friend && calling_ != nullptr) befriend(e, *std::exchange(calling_, nullptr));
}

void World::read_events(Node &node) {
  if (node.eq == nullptr) return;
  alignas(fi_eq_cm_entry) uint8_t bytes[sizeof(fi_eq_cm_entry) + 256];
  auto &entry = *reinterpret_cast<fi_eq_cm_entry *>(bytes);
  uint32_t event = 0;
  const ssize_t n = fi_eq_read(node.eq, &event, bytes, sizeof bytes, 0);
  if (n == -FI_EAVAIL) {
    fi_eq_err_entry error{};
    fi_eq_readerr(node.eq, &error, 0);
  }
  if (n < ssize_t(sizeof(fi_eq_cm_entry)) || event != FI_CONNREQ) return;
  const std::string data(reinterpret_cast<char *>(entry.data), size_t(n) - sizeof(fi_eq_cm_entry));
  answer(entry.info, data == "friend");
  free_info(entry.info);
}

void World::remove_or_insert(uint8_t which) {
  if (us_.av == nullptr) return;
  for (const auto &e : us_.endpoints) {
    while (e->buffered.on && e->drain(1)) {  // what is in the queue has the old names
    }
    ++e->names;
  }
  const size_t i = which % strangers_.size();
  fi_addr_t &addr = stranger_addrs_[i];
  if (addr != FI_ADDR_UNSPEC) {
    must(fi_av_remove(us_.av, &addr, 1, 0));
    addr = FI_ADDR_UNSPEC;
  } else {
    const sockaddr_in at = address_of(strangers_[i]->host(), Stranger::kPort);
    FUZZ_CHECK(fi_av_insert(us_.av, &at, 1, &addr, 0, nullptr) == 1);
  }
}

void World::close_region(uint8_t which) {
  if (which & 1) {
    us_.open_region = us_.make_region();
    known_.key = fi_mr_key(us_.open_region->mr);
  } else {
    // The friend may be using the region.
    friendship_.excused = true;
    us_.region = us_.make_region();
    for (const auto &e : us_.endpoints) e->region = us_.region.get();
    for (const auto &e : them_.endpoints) e->target = us_.region.get();
  }
}

void World::post_to_stranger(Endpoint &e, bool message) {
  fi_addr_t to = FI_ADDR_UNSPEC;
  if (e.unconnected) to = stranger_addrs_[in_.u8() % stranger_addrs_.size()];
  if (e.unconnected && to == FI_ADDR_UNSPEC) return;
  if (!e.unconnected && e.other != nullptr) return;
  if (message) return e.send(in_, false, to);
  e.access(in_, false, to, 0, 1);
  for (const auto &[context, op] : e.ops)
    if (op->kind == Posted::kRead) known_.read_length = op->length;
}

void World::disturb(uint8_t which) {
  Endpoint *e = some(which);
  switch (which >> 5) {
    case 0:
      return reopen(which & 1 ? us_ : them_);
    case 1:
      if (e == nullptr || e->unconnected) return;
      friendship_.excused |= e->other != nullptr;
      fi_shutdown(e->ep, 0);
      return;
    default:
      return close_region(which);
  }
}

void World::step() {
  const uint8_t command = in_.u8();
  if (command >= 128 && thief_ != nullptr && command & 0x40) return act(command);
  if (command >= 128) return talk(*strangers_[(command & 0x7f) % strangers_.size()]);
  const uint8_t which = in_.u8();
  Endpoint *e = some(which);
  switch (command % 20) {
    case 0:
    case 1:
    case 2:
      if (e != nullptr && e->buffered.on && command % 20 != 0) {
        const uint8_t how = in_.u8();
        e->settle_told(how >> 2, in_.length(), how & 1, how & 2);
      } else if (e != nullptr) {
        e->post_recv(in_);
      }
      return;
    case 3:
    case 4:
    case 5:
      if (e != nullptr && e->other != nullptr) e->send(in_, true, e->other_addr);
      return;
    case 6:
    case 7:
      if (e != nullptr && which & 1) post_to_stranger(*e, command % 20 == 6);
      return;
    case 8:
      if (e != nullptr && e->other != nullptr && e->target != nullptr)
        e->access(in_, true, e->other_addr, 0, fi_mr_key(e->target->mr));
      return;
    case 9: {
      if (e == nullptr || e->receives->ops.empty()) return;
      auto at = e->receives->ops.begin();
      std::advance(at, in_.u8() % e->receives->ops.size());
      return e->cancel(at->first);
    }
    case 10:
    case 11:
      if (e != nullptr) e->drain(1 + (which >> 4));
      return;
    case 12:
      us_.drain(1 << (which & 7));
      return;
    case 13:
      them_.drain(1 << (which & 7));
      return;
    case 14:
      if (e != nullptr) e->look(in_);
      return;
    case 15: {
      if (e == nullptr) return;
      size_t bytes = in_.u8();
      fi_setopt(&e->receiver()->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &bytes, sizeof bytes);
      return;
    }
    case 16:
      accepts_ = which;
      read_events(us_);
      return read_events(them_);
    case 17:
      pass_time(uint64_t(which) * 1'000'000u);
      return;
    case 18:
      return disturb(which);
    default:
      return remove_or_insert(which);
  }
}

void World::run() {
  for (int i = 0; i < 400 && !in_.over(); ++i) {
    step();
    look();
  }
}

namespace {

// One bit for each of the first 64.
uint64_t open_descriptors() {
  uint64_t open = 0;
  for (int fd = 0; fd < 64; ++fd) open |= uint64_t(fcntl(fd, F_GETFD) >= 0) << fd;
  return open;
}

}  // namespace
}  // namespace weft::tcp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace weft::tcp::fuzz;
  const uint64_t before = open_descriptors();
  {
    Input in(data, size);
    World world(in);
    world.run();
    world.settle();
  }
  FUZZ_CHECK(open_descriptors() == before);
  return 0;
}
