// SPDX-License-Identifier: BSD-2-Clause
// The peers of an endpoint: who they are, and how the links to them begin and end.
#include <sys/epoll.h>
#include <unistd.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/memory/room.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "plugins/shm/barrier.h"
#include "plugins/shm/endpoint.h"
#include "plugins/shm/stranger.h"

namespace weft::shm {
namespace {

constexpr size_t kMostStrangers = 64;
constexpr size_t kMostLinksOfPeer = 4;
constexpr int kEvents = 64;
// From so many links on, new ones are a quarter as large.
constexpr size_t kManyLinks = 64;

}  // namespace

// ---- who they are ----

Peer *Endpoint::find_or_add(const sdk::Address &name) {
  std::unique_ptr<Peer> &peer = peers_[name];
  if (peer != nullptr) return peer.get();
  peer = std::make_unique<Peer>(name);
  peer->source = next_unnamed();
  return peer.get();
}

uint32_t Endpoint::next_unnamed() {
  return sdk::Matcher::kFirstUnnamed + (next_unnamed_++ & 0x3fffffff);
}

Peer *Endpoint::peer_at(uint32_t index) {
  if (Peer *const known = table_.at(index)) return known;
  const auto entry = av()->address(index);
  if (!entry) return nullptr;
  Peer *const peer = find_or_add(*entry);
  table_.set(index, peer);
  peer->indices.push_back(index);
  if (!peer->is_named()) {
    const uint32_t before = std::exchange(peer->source, sdk::Av::entry_of(index));
    receiver().rename_source(before, peer->source);
  }
  return peer;
}

void Endpoint::on_av_inserted(uint32_t index, const sdk::Address &address) {
  try {
    if (peers_.contains(address)) peer_at(index);
  } catch (const std::bad_alloc &) {
    // It stays unnamed until the application sends to it.
  }
}

void Endpoint::on_av_removed(uint32_t index) {
  Peer *const peer = table_.at(index);
  if (peer == nullptr) return;
  table_.set(index, nullptr);
  std::erase(peer->indices, index);
  const uint32_t entry = sdk::Av::entry_of(index);
  if (peer->source != entry) return;
  peer->source = peer->indices.empty()
                     ? next_unnamed()
                     : sdk::Av::entry_of(*std::ranges::min_element(peer->indices));
  receiver().rename_source(entry, peer->source);
}

// ---- links ----

Geometry Endpoint::geometry() const {
  Geometry geometry = settings().geometry;
  if (links_.size() >= kManyLinks) {
    geometry.lines = std::max(geometry.lines / 4, Geometry::kLeastLines);
    geometry.bytes = std::max(geometry.bytes / 4, Geometry::kLeastBytes);
  }
  return geometry;
}

Result<void> Endpoint::check_process(const Process &process) const {
  if (process.uid == geteuid() || settings().other_users) return {};
  return fail(FI_EACCES,
              "process %d belongs to user %u, and this one to user %u: set FI_SHM_OTHER_USERS in "
              "both to let them talk",
              int(process.pid), unsigned(process.uid), unsigned(geteuid()));
}

Result<void> Endpoint::connect(Peer &peer) {
  if (peer.links >= kMostLinksOfPeer)
    return fail(FI_EAGAIN, "%s has %zu links that have not ended", peer.name.to_string().c_str(),
                kMostLinksOfPeer);
  auto connected = connect_to(peer.name);
  if (!connected) {
    if (connected.error().code != FI_EAGAIN)
      WEFT_INFO_SPARSE(instance(), FI_LOG_EP_CTRL, "%s", connected.error().text.c_str());
    return tl::unexpected(connected.error());
  }
  const auto process = process_of(connected->get());
  if (!process) return fail(FI_EACCES, "SO_PEERCRED: %s", strerror(errno));
  if (const auto allowed = check_process(*process); !allowed) {
    WEFT_WARN_SPARSE(instance(), FI_LOG_EP_CTRL, "%s is not used: %s",
                     peer.name.to_string().c_str(), allowed.error().text.c_str());
    return allowed;
  }
  const Geometry size = geometry();
  WEFT_TRY(const sdk::UniqueFd fd, PairMemory::make(size));
  WEFT_TRY(PairMemory memory, PairMemory::map(fd.get(), size));
  const auto hello = encode_hello(
      {.name = name_,
       .geometry = size,
       .probe = {.address = uint64_t(reinterpret_cast<uintptr_t>(&probe_)), .value = probe_},
       .has_barriers = can_do_barriers()});
  if (const int rc = send_packet(connected->get(), hello, fd.get()); rc != 0)
    return fail(rc == -EAGAIN ? FI_EAGAIN : FI_ECONNREFUSED, "%s does not listen: %s",
                peer.name.to_string().c_str(), strerror(-rc));
  add_link(peer, Link::Side::kAsks, std::move(*connected), *process, std::move(memory), size);
  counters().links_made.add();
  return {};
}

// ---- for a layer that has another way (weft/sdk/layers/carrier.h) ----

int Endpoint::reach(fi_addr_t address) {
  const sdk::Guard guard(lock());
  if (!enabled()) return -FI_EOPBADSTATE;
  const uint32_t index = av()->peer_of(address);
  if (index == sdk::Av::kNone) return -FI_EINVAL;
  Peer *const peer = peer_at(index);
  if (peer->link != nullptr) return 0;
  const auto connected = connect(*peer);
  return connected ? 0 : -connected.error().code;
}

int Endpoint::ops_open(const char *name, uint64_t flags, void **ops, void *) {
  static const weft_local_ops local = {
      sizeof local,
      [](struct fid_ep *ep, fi_addr_t peer) -> int {
        try {
          return from(ep)->reach(peer);
        } catch (const std::bad_alloc &) {
          return -FI_ENOMEM;
        }
      },
      [](struct fid_ep *ep) -> const uint64_t * {
        static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
        return reinterpret_cast<const uint64_t *>(&from(ep)->losses_);
      }};
  if (name == nullptr || ops == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (std::string_view(name) != WEFT_LOCAL_OPS) return -FI_ENOSYS;
  *ops = const_cast<weft_local_ops *>(&local);
  return 0;
}

Link *Endpoint::add_link(Peer &peer, Link::Side side, sdk::UniqueFd socket, const Process &process,
                         PairMemory memory, const Geometry &geometry) {
  sdk::have_room(buried_, links_.size() + 1);  // so that bury() cannot fail
  auto link = std::make_unique<Link>(*this, peer, side, std::move(socket), process,
                                     std::move(memory), geometry);
  links_.push_back(std::move(link));
  Link *const added = links_.back().get();
  ++peer.links;
  if (peer.link == nullptr) peer.link = added;
  watch(added->socket(), added);
  return added;
}

void Endpoint::watch(int fd, Watched *what) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.ptr = what;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    WEFT_WARN_SPARSE(instance(), FI_LOG_EP_CTRL,
                     "epoll_ctl: %s: threads that wait are not woken by a peer", strerror(errno));
}

void Endpoint::let_go(Link &link) {
  if (link.socket() >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link.socket(), nullptr);
  if (link.peer().link != &link) return;
  link.peer().link = nullptr;
  losses_.fetch_add(1, std::memory_order_release);
}

void Endpoint::bury(Link &link) {
  buried_.push_back(&link);
}

// When no link is on the stack.
void Endpoint::clean_up() {
  gone_.clear();
  for (Link *const link : std::exchange(buried_, {})) {
    std::erase(hot_, link);
    Peer &peer = link->peer();
    --peer.links;
    std::erase_if(links_, [link](const auto &one) { return one.get() == link; });
  }
  std::erase_if(peers_, [](const auto &entry) {
    const Peer &peer = *entry.second;
    return peer.links == 0 && peer.saved == 0 && peer.indices.empty();
  });
}

// ---- those that ask ----

void Endpoint::look_at_sockets() {
  epoll_event events[kEvents];
  const int n = epoll_wait(epoll_.get(), events, kEvents, 0);
  for (int i = 0; i < n; ++i) {
    auto *const watched = static_cast<Watched *>(events[i].data.ptr);
    if (watched == nullptr) {
      accept_strangers();
    } else if (watched->what == Watched::What::kLink) {
      static_cast<Link *>(watched)->on_socket();
    } else {
      hear(*static_cast<Stranger *>(watched));
    }
  }
  if (!gone_.empty() || !buried_.empty()) clean_up();
}

void Endpoint::accept_strangers() {
  for (int n = 0; n < kEvents; ++n) {
    sdk::UniqueFd socket = accept_from(listener_.get());
    if (socket.get() < 0) {
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        WEFT_WARN_SPARSE(instance(), FI_LOG_EP_CTRL,
                         "peers wait for a link: accept: %s: see `ulimit -n`", strerror(errno));
      return;
    }
    const auto process = process_of(socket.get());
    const auto allowed = process ? check_process(*process) : Result<void>();
    if (!process || !allowed) {
      counters().strangers_refused.add();
      if (!allowed)
        WEFT_WARN_SPARSE(instance(), FI_LOG_EP_CTRL, "a link is refused: %s",
                         allowed.error().text.c_str());
      continue;
    }
    sdk::have_room(gone_, gone_.size() + strangers_.size() + 1);
    if (strangers_.size() >= kMostStrangers) drop(*strangers_.front());
    strangers_.push_back(std::make_unique<Stranger>(std::move(socket), *process));
    Stranger &stranger = *strangers_.back();
    watch(stranger.socket.get(), &stranger);
    hear(stranger);
  }
}

void Endpoint::hear(Stranger &stranger) {
  if (stranger.socket.get() < 0) return;
  uint8_t packet[kMostPacket];
  sdk::UniqueFd memory;
  const ssize_t size = receive_packet(stranger.socket.get(), packet, &memory);
  if (size == -EAGAIN || size == -EINTR) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stranger.socket.get(), nullptr);
  sdk::UniqueFd socket = std::move(stranger.socket);
  const Process process = stranger.process;
  drop(stranger);
  if (size <= 0) return;
  const auto hello = parse_hello({packet, size_t(size)});
  Result<void> admitted = hello ? admit(std::move(socket), process, *hello, memory.get())
                                : Result<void>(fail(FI_EPROTO, "process %d: %s", int(process.pid),
                                                    text_of(hello.error())));
  if (admitted) return;
  counters().strangers_refused.add();
  WEFT_WARN_SPARSE(instance(), FI_LOG_EP_CTRL, "a link is refused: %s",
                   admitted.error().text.c_str());
}

void Endpoint::drop(Stranger &stranger) {
  const auto it =
      std::ranges::find_if(strangers_, [&](const auto &one) { return one.get() == &stranger; });
  hang_up(stranger.socket);
  gone_.push_back(std::move(*it));  // an event may still name it
  strangers_.erase(it);
}

Result<void> Endpoint::admit(sdk::UniqueFd socket, const Process &process, const Hello &hello,
                             int memory) {
  WEFT_CHECK(check_name(hello.name, process));
  const auto known = peers_.find(hello.name);
  const bool is_named = (known != peers_.end() && known->second->is_named()) ||
                        av()->find(hello.name) != sdk::Av::kNone;
  if (known != peers_.end() && known->second->links >= kMostLinksOfPeer)
    return fail(FI_EBUSY, "%s has %zu links already", hello.name.to_string().c_str(),
                kMostLinksOfPeer);
  if (!is_named && peers_.size() >= settings().max_unnamed_peers + av()->count())
    return fail(FI_EBUSY, "%s is not in the address vector, and %zu others that are not have links",
                hello.name.to_string().c_str(), settings().max_unnamed_peers);
  WEFT_TRY(PairMemory mapped, PairMemory::map(memory, hello.geometry));
  const auto answer = encode_answer(
      {.probe = {.address = uint64_t(reinterpret_cast<uintptr_t>(&probe_)), .value = probe_},
       .has_barriers = can_do_barriers()});
  // One that is gone already has left messages.
  [[maybe_unused]] const int rc = send_packet(socket.get(), answer);
  Peer *const peer = find_or_add(hello.name);
  if (const uint32_t index = av()->find(hello.name); index != sdk::Av::kNone) peer_at(index);
  add_link(*peer, Link::Side::kAsked, std::move(socket), process, std::move(mapped), hello.geometry)
      ->introduce(hello.probe, hello.has_barriers);
  counters().links_accepted.add();
  return {};
}

// A process of the same user is believed, because it could do anything else to this one, too.
// Another one's must be the one that listens under the name.
Result<void> Endpoint::check_name(const sdk::Address &name, const Process &process) const {
  if (process.uid == geteuid()) return {};
  const auto socket = connect_to(name);
  const auto owner = socket ? process_of(socket->get()) : std::nullopt;
  if (owner && owner->pid == process.pid && owner->uid == process.uid) return {};
  return fail(FI_EACCES, "process %d of user %u says that it is %s, and is not", int(process.pid),
              unsigned(process.uid), name.to_string().c_str());
}

}  // namespace weft::shm
