// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/neighbours.h"

#include <dirent.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "plugins/cxi/soft/lni.h"
#include "plugins/cxi/soft/registry_file.h"

namespace weft::cxi {
namespace {

constexpr long kLookAgainNs = 1'000'000;
constexpr int kBacklog = 1024, kEvents = 64;
constexpr unsigned kHotLooks = 8;    // at those that spoke last, before it is the turn of all
constexpr unsigned kOtherLooks = 3;  // at the last one, before it is the turn of the one before it

Result<sockaddr_un> address_of(const std::string &path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return fail(ENAMETOOLONG,
                "cxi: the path of a socket, %s, is longer than %zu: set a shorter "
                "WEFT_RUNTIME_DIR",
                path.c_str(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

std::string name_of_door(uint32_t process, uint32_t door) {
  return "/cxi-" + std::to_string(process) + "-" + std::to_string(door);
}

// Those of killed processes.
void remove_abandoned_sockets(const std::string &folder) {
  DIR *const files = ::opendir(folder.c_str());
  if (files == nullptr) return;
  while (const dirent *const file = ::readdir(files)) {
    unsigned process, door;
    char more;
    if (std::sscanf(file->d_name, "cxi-%u-%u%c", &process, &door, &more) == 2 &&
        start_time_of(process) == 0)
      ::unlinkat(::dirfd(files), file->d_name, 0);
  }
  ::closedir(files);
}

sdk::UniqueFd make_socket() {
  return sdk::UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

Neighbours::Neighbours(std::string folder, uint64_t seed, const RegistryLimits &limits,
                       const HostsOptions &options)
    : folder_(std::move(folder)), limits_(limits), engine_(*this, seed), hosts_(*this, options) {}

Result<std::unique_ptr<Neighbours>> Neighbours::open(const std::string &folder, uint64_t seed,
                                                     const RegistryLimits &limits,
                                                     const HostsOptions &options) {
  std::unique_ptr<Neighbours> neighbours(new Neighbours(folder, seed, limits, options));
  WEFT_CHECK(neighbours->listen());
  return neighbours;
}

Neighbours::~Neighbours() {
  if (!mark_.is_child()) settle();
  for (const std::unique_ptr<Link> &link : links_) link->stream.end();
  if (!own_name_.empty() && !mark_.is_child()) ::unlink(own_name_.c_str());
}

Result<void> Neighbours::listen() {
  static std::atomic<uint32_t> doors{0};
  door_ = ++doors & kDoorMask;
  const std::string path = folder_ + name_of_door(uint32_t(::getpid()), door_);
  WEFT_TRY(const sockaddr_un address, address_of(path));
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  listener_ = make_socket();
  if (epoll_.get() < 0 || listener_.get() < 0)
    return fail(errno, "cxi: no descriptor for the NIC's socket: %s: see `ulimit -n`",
                strerror(errno));
  remove_abandoned_sockets(folder_);
  ::unlink(path.c_str());  // of a process with our number that was killed
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0 ||
      ::listen(listener_.get(), kBacklog) != 0)
    return fail(errno, "cxi: the NIC's socket %s: %s", path.c_str(), strerror(errno));
  own_name_ = path;
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0)
    return fail(errno, "cxi: epoll_ctl: %s", strerror(errno));
  return {};
}

Result<std::unique_ptr<Lni>> Neighbours::open_nic(Nid nid, uint32_t address, uint32_t service,
                                                  const std::string &name) {
  Registry *registry = nullptr;  // it stays as long as we do
  {
    const std::lock_guard polling(polling_);
    uint32_t port = 0;
    if (address != 0) {
      WEFT_TRY(port, hosts_.listen(nid, address));
      WEFT_CHECK(watch_hosts());
    }
    const EngineGuard guard(engine_.lock);
    std::unique_ptr<Registry> &known = registries_[nid];
    if (known == nullptr) {
      WEFT_TRY(known, Registry::open(folder_, nid, limits_));
    }
    known->set_door(port << kDoorBits | door_);
    if (address != 0) addresses_[nid] = address;
    registry = known.get();
  }
  WEFT_TRY(Registry::Opened opened, registry->use(service, name));
  return engine_.open(nid, opened.service, std::move(opened.pool));
}

size_t Neighbours::connections() const {
  const EngineGuard guard(const_cast<Engine &>(engine_).lock);
  return links_.size();
}

uint64_t Neighbours::telemetry(Nid nid, Telemetry which) {
  const EngineGuard guard(engine_.lock);
  const auto found = registries_.find(nid);
  return found != registries_.end() && found->second != nullptr ? found->second->counted(which) : 0;
}

// ---- Outside: the engine's lock is held ----

Result<Pid> Neighbours::claim(Nid nid, Vni vni, Pid pid) {
  return registries_.at(nid)->claim(vni, pid);
}

void Neighbours::release(Nid nid, Vni vni, Pid pid) {
  registries_.at(nid)->release(vni, pid);
}

// Of a NIC that this process has not opened.
Registry *Neighbours::open_registry(Nid nid) {
  if (!Registry::exists(folder_, nid)) return nullptr;
  auto opened = Registry::open(folder_, nid, limits_);
  if (!opened) return nullptr;
  (*opened)->set_door(door_);
  return (registries_[nid] = std::move(*opened)).get();
}

Link *Neighbours::link_to(const Packet &packet, Rc &why) {
  why = Rc::kUndeliverable;
  const auto found = registries_.find(packet.to.nid);
  Registry *registry = found != registries_.end() ? found->second.get() : nullptr;
  if (registry == nullptr) {
    if (const auto own = addresses_.find(packet.source); own != addresses_.end())
      if (Link *const link = far_link(own->second, packet)) return link;
    registry = open_registry(packet.to.nid);
    if (registry == nullptr) return nullptr;
  }
  return near_link(*registry, packet.to, packet.vni, why);
}

Link *Neighbours::near_link(Registry &registry, const Address &to, Vni vni, Rc &why) {
  const uint32_t generation = registry.generation();
  const uint64_t key = key_of(to.nid, vni, to.pid);
  if (const auto known = known_.find(key); known != known_.end()) {
    if (known->second.generation == generation) return known->second.link;
    known_.erase(known);
  }
  const auto owner = registry.find(vni, to.pid);
  if (!owner) {  // R1
    why = registry.has_vni(vni) ? Rc::kPtlteNotFound : Rc::kVniNotFound;
    return nullptr;
  }
  const std::string name = folder_ + name_of_door(owner->process, owner->door & kDoorMask);
  const auto open = by_name_.find(name);
  Link *link = open != by_name_.end() ? open->second : nullptr;
  if (link == nullptr) {
    const auto address = address_of(name);
    sdk::UniqueFd fd = make_socket();
    if (!address || fd.get() < 0 ||
        ::connect(fd.get(), reinterpret_cast<const sockaddr *>(&*address), sizeof *address) != 0)
      return nullptr;
    link = add(std::move(fd), name);
    if (link == nullptr) return nullptr;
    by_name_[name] = link;
  }
  known_[key] = {link, generation};
  return link;
}

Link *Neighbours::add(sdk::UniqueFd fd, const std::string &name) {
  auto link = std::make_unique<Link>(engine_);
  link->name = name;
  link->stream.set_on_output([this, link = link.get()] { mark(*link); });
  if (!link->open(std::move(fd), epoll_.get())) return nullptr;
  links_.push_back(std::move(link));
  return links_.back().get();
}

void Neighbours::mark(Link &link) {
  if (std::exchange(link.is_marked, true)) return;
  marked_.push_back(&link);
  has_marked_.store(true, std::memory_order_seq_cst);
}

Rc Neighbours::send(const Packet &packet) {
  if (mark_.is_child()) return Rc::kUndeliverable;
  Rc why;
  Link *const link = link_to(packet, why);
  if (link == nullptr) return why;
  link->stream.send(packet);
  mark(*link);
  return Rc::kOk;
}

// The place that they wait for may be another process's until then, so whoever sleeps wakes up to
// look.
void Neighbours::on_waiting(bool waits) {
  if (mark_.is_child()) return;  // it is its parent's, too
  if (timer_.get() < 0) {
    timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    epoll_event event{.events = EPOLLIN, .data = {.ptr = &timer_}};
    if (timer_.get() < 0 || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event) != 0)
      return;  // those who poll look all the same
  }
  const timespec often{.tv_sec = 0, .tv_nsec = waits ? kLookAgainNs : 0};
  const itimerspec timer{.it_interval = often, .it_value = often};
  ::timerfd_settime(timer_.get(), 0, &timer, nullptr);
}

// ---- poll ----

void Neighbours::poll(Answers answers) {
  poll_once(answers);
  push();
}

void Neighbours::poll_once(Answers answers) {
  if (mark_.is_child()) return;
  const std::unique_lock polling(polling_, std::try_to_lock);
  if (!polling.owns_lock()) return;
  over_.clear();
  answers_ = answers;
  note_progress();
  if (!late_.empty()) {
    write_marked();
    write_late();
  }
  if (!poll_hot()) poll_all();
  if (engine_.has_waiting()) engine_.try_waiting();
  if (rooms_.has_freed.load(std::memory_order_relaxed)) mark_stopped();
  write_marked();
  remove_ended();
}

// The neighbour that spoke last is likely to speak next. A look at it alone costs one system call,
// and says whether there is something. What it sends comes by one of its connections, and what it
// answers by either.
bool Neighbours::poll_hot() {
  if (++looks_ % kHotLooks == 0) return false;
  const size_t other = 1 - hot_at_;
  const size_t at = looks_ % kOtherLooks == 0 && hot_[other] != nullptr ? other : hot_at_;
  if (hot_[at] == nullptr || !hot_[at]->is_quiet()) return false;
  Link &link = *hot_[at];
  link.has_input = false;
  if (!read_from(link) || !answer(link)) end(link);
  if (link.has_input) hot_at_ = at;
  return true;
}

void Neighbours::set_hot(Link &link) {
  if (hot_[hot_at_] == &link) return;
  if (hot_[hot_at_] != nullptr) hot_at_ = 1 - hot_at_;
  hot_[hot_at_] = &link;
}

void Neighbours::poll_all() {
  epoll_event events[kEvents];
  const int count = ::epoll_wait(epoll_.get(), events, kEvents, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.ptr == &hosts_) {
      hosts_.poll();
      continue;
    }
    if (events[i].data.ptr == &timer_) {
      uint64_t ticks;
      while (::read(timer_.get(), &ticks, sizeof ticks) > 0) {
      }
      continue;
    }
    auto *const link = static_cast<Link *>(events[i].data.ptr);
    if (link == nullptr) {
      accept_all();
      continue;
    }
    if (link->is_stopped() && (events[i].events & ~uint32_t{EPOLLOUT}) != 0) {
      end(*link);  // the peer has ended
      continue;
    }
    link->has_input = false;
    const bool is_writable = events[i].events & EPOLLOUT;
    if ((events[i].events & ~uint32_t{EPOLLOUT} && !read_from(*link)) ||
        !(is_writable ? write_to(*link) : answer(*link))) {
      end(*link);
    } else if (events[i].events & EPOLLIN) {
      set_hot(*link);
    }
  }
}

// Who finds the door locked leaves its output to whoever is inside, and who leaves looks for it.
void Neighbours::push() {
  if (mark_.is_child()) return;
  while (has_marked_.load(std::memory_order_seq_cst)) {
    const std::unique_lock polling(polling_, std::try_to_lock);
    if (!polling.owns_lock()) return;
    over_.clear();
    write_marked();
    remove_ended();
  }
}

void Neighbours::write_marked() {
  {
    const EngineGuard guard(engine_.lock);
    writing_.swap(marked_);
    has_marked_.store(false, std::memory_order_seq_cst);
    for (Link *const link : writing_) link->is_marked = false;
  }
  for (Link *const link : writing_) {
    if (std::find(over_.begin(), over_.end(), link) != over_.end()) continue;
    take_along(*link);
    if (!write_to(*link)) end(*link);
  }
  writing_.clear();
}

void Neighbours::accept_all() {
  while (true) {
    sdk::UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0) return;
    const EngineGuard guard(engine_.lock);
    add(std::move(fd), "");
  }
}

bool Neighbours::read_from(Link &link) {
  if (!link.read()) return false;
  if (link.is_far && link.stream.take_misses()) {
    const EngineGuard guard(engine_.lock);
    forget_far(link, nullptr);
  }
  return true;
}

bool Neighbours::write_to(Link &link) {
  if (link.is_open()) return link.write();
  if (!link.target) return true;  // what is sent waits until there is a socket
  bool may_call;
  {
    const EngineGuard guard(engine_.lock);
    if (link.turn == Link::Turn::kNone)
      link.turn = may_answer(link) ? Link::Turn::kHas : Link::Turn::kWaits;
    may_call = link.turn == Link::Turn::kHas;
  }
  if (may_call)
    hosts_.call(link, *std::exchange(link.target, std::nullopt));
  else
    hosts_.be_hasty(true);
  return true;
}

void Neighbours::end(Link &link) {
  if (std::ranges::find(over_, &link) == over_.end()) over_.push_back(&link);
}

// More may end meanwhile.
void Neighbours::remove_ended() {
  for (size_t i = 0; i < over_.size(); ++i) remove(*over_[i]);
}

void Neighbours::remove(Link &link) {
  hosts_.forget(link);
  link.hang_up();
  std::unique_ptr<Link> gone;  // whose end takes the lock
  {
    const EngineGuard guard(engine_.lock);
    std::ranges::replace(hot_, &link, nullptr);
    engine_.forget(link.stream.asker());  // whose late answers would be marked again
    std::erase(marked_, &link);
    std::erase(late_, &link);
    by_name_.erase(link.name);
    std::erase_if(known_, [&](const auto &one) { return one.second.link == &link; });
    const auto at = std::ranges::find(links_, &link, &std::unique_ptr<Link>::get);
    gone = std::move(*at);
    links_.erase(at);
    if (link.is_far) forget_far(link, nullptr);
    lose_partner(link);
    if (link.is_far &&
        std::ranges::none_of(links_, [&](const auto &other) { return other->ends == link.ends; }))
      hosts_.forget_key(Nid(link.ends >> 32), Nid(link.ends));
  }
  if (link.is_far && link.is_open()) hosts_.watch_links(--far_links_ != 0);
  gone->stream.end(link.why);
}

}  // namespace weft::cxi
