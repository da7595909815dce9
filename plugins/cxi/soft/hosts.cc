// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/hosts.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "plugins/cxi/soft/network.h"

namespace weft::cxi {
namespace {

constexpr int kBatch = 64;
constexpr int kCallTickMs = 20;

}  // namespace

// What the epoll watches.
struct Hosts::Source {
  enum class Kind : uint8_t { kListener, kVisitor, kCaller };
  explicit Source(Kind which) : kind(which) {}
  virtual ~Source() = default;
  const Kind kind;
  bool is_over = false;
};

struct Hosts::Listener final : Source {
  Listener(sdk::UniqueFd socket, Nid whose, uint32_t at)
      : Source(Kind::kListener), fd(std::move(socket)), nid(whose), address(at) {}
  const sdk::UniqueFd fd;
  const Nid nid;
  const uint32_t address;
};

struct Hosts::Visitor final : Source {
  Visitor(sdk::UniqueFd socket, Nid to, Nid from, Call::Clock::time_point until)
      : Source(Kind::kVisitor), fd(std::move(socket)), here(to), there(from), end(until) {}
  sdk::UniqueFd fd;
  const Nid here, there;
  const Call::Clock::time_point end;
  std::array<uint8_t, kHelloSize> bytes;
  size_t have = 0;
};

struct Hosts::Caller final : Source {
  Caller(Link &whose, const Call::Target &target, unsigned timeout_ms)
      : Source(Kind::kCaller), link(whose), call(target, timeout_ms) {}
  Link &link;
  Call call;
};

Hosts::Hosts(User &user, HostsOptions options) : user_(user), options_(std::move(options)) {}
Hosts::~Hosts() = default;

// ---- listening ----

Result<void> Hosts::open() {
  if (epoll_.get() >= 0) return {};
  sdk::UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (epoll.get() < 0 || timer_.get() < 0 ||
      ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, timer_.get(), &event) != 0)
    return fail(errno, "cxi: no descriptor for the NIC's network: %s: see `ulimit -n`",
                strerror(errno));
  epoll_ = std::move(epoll);
  return {};
}

Result<uint16_t> Hosts::listen(Nid nid, uint32_t address) {
  if (const auto known = ports_.find(nid); known != ports_.end()) return known->second;
  WEFT_CHECK(open());
  WEFT_TRY(sdk::UniqueFd door, listen_at(address, options_.port, true));
  WEFT_TRY(sdk::UniqueFd own, listen_at(address, 0, false));
  const uint16_t port = port_of(own.get());
  WEFT_CHECK(add_listener(std::move(own), nid, address));
  WEFT_CHECK(add_listener(std::move(door), nid, address));
  return ports_[nid] = port;
}

// Each edge counts: a listener that no descriptor is left for must not wake us again and again.
Result<void> Hosts::add_listener(sdk::UniqueFd fd, Nid nid, uint32_t address) {
  auto listener = std::make_unique<Listener>(std::move(fd), nid, address);
  epoll_event event{.events = EPOLLIN | EPOLLET,
                    .data = {.ptr = static_cast<Source *>(listener.get())}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener->fd.get(), &event) != 0)
    return fail(errno, "cxi: epoll_ctl: %s", strerror(errno));
  listeners_.push_back(std::move(listener));
  return {};
}

void Hosts::accept_all(Listener &listener) {
  while (true) {
    sdk::UniqueFd fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (fd.get() < 0) return;
    const uint32_t caller = caller_of(fd.get());
    if (!is_in_network_of(listener.address, caller)) continue;
    if (visitors_.size() == kMaxVisitors) make_room();
    const auto end = Call::Clock::now() + std::chrono::milliseconds(options_.timeout_ms);
    visitors_.push_back(
        std::make_unique<Visitor>(std::move(fd), listener.nid, caller & kMaxNid, end));
    Visitor &visitor = *visitors_.back();
    epoll_event event{.events = EPOLLIN, .data = {.ptr = static_cast<Source *>(&visitor)}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, visitor.fd.get(), &event) != 0)
      visitors_.pop_back();
  }
}

// Of an address that has many, others lose none.
void Hosts::make_room() {
  std::map<Nid, size_t> counts;
  for (const auto &visitor : visitors_) ++counts[visitor->there];
  end(std::ranges::max_element(visitors_, {},
                               [&](const auto &visitor) { return counts[visitor->there]; }));
}

void Hosts::end(std::list<std::unique_ptr<Visitor>>::iterator visitor) {
  (*visitor)->is_over = true;
  if ((*visitor)->fd.get() >= 0)
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, (*visitor)->fd.get(), nullptr);
  gone_.push_back(std::move(*visitor));
  visitors_.erase(visitor);
}

void Hosts::on_visitor(Visitor &visitor) {
  if (hears(visitor) && (visitor.have != visitor.bytes.size() || answer(visitor))) return;
  end(std::ranges::find(visitors_, &visitor, &std::unique_ptr<Visitor>::get));
}

// Who has said all waits for the answer, in silence.
bool Hosts::hears(Visitor &visitor) {
  uint8_t more;
  const bool is_whole = visitor.have == visitor.bytes.size();
  const ssize_t n = is_whole ? ::recv(visitor.fd.get(), &more, sizeof more, 0)
                             : ::recv(visitor.fd.get(), visitor.bytes.data() + visitor.have,
                                      visitor.bytes.size() - visitor.have, 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0 || is_whole) return false;
  visitor.have += size_t(n);
  return true;
}

bool Hosts::answer(Visitor &visitor) {
  const auto call = parse_hello(visitor.bytes);
  std::optional<Hello> answer = Hello{.kind = Hello::Kind::kRefused, .rc = Rc::kUndeliverable};
  // Who is no NIC gets no answer; one of another version is told ours.
  if (!call && call.error() != Refusal::kVersion) return false;
  if (call && call->kind == Hello::Kind::kCall && call->to.nid == visitor.here)
    answer = user_.find(*call, visitor.there);
  if (!answer) return true;
  const bool is_welcome = answer->kind == Hello::Kind::kWelcome;
  if (is_welcome) answer->key = key_for(visitor.here, visitor.there);
  std::array<uint8_t, kHelloSize> bytes;
  write_hello(*answer, bytes);
  if (::send(visitor.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != ssize_t(bytes.size()))
    return false;
  if (!is_welcome) return false;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, visitor.fd.get(), nullptr);
  user_.on_asker(std::move(visitor.fd), visitor.here, visitor.there, call->key);
  return false;
}

// Another process of a host can claim to be this one, but does not know the number.
uint64_t Hosts::key_for(Nid here, Nid there) {
  const auto [at, is_new] = keys_.try_emplace({here, there}, 0);
  if (is_new &&
      ::getrandom(&at->second, sizeof at->second, GRND_NONBLOCK) != ssize_t(sizeof at->second))
    at->second = 0;
  return at->second;
}

// ---- calling ----

void Hosts::call(Link &link, const Call::Target &target) {
  Call::Target with_key = target;
  with_key.key = key_for(target.from & kMaxNid, target.to.nid);
  auto caller = std::make_unique<Caller>(link, with_key, options_.timeout_ms);
  Caller &one = *caller;
  callers_[&link] = std::move(caller);
  on_caller(one, Call::Clock::now());
  gone_.clear();
  set_timer();
}

void Hosts::forget(const Link &link) {
  auto node = callers_.extract(&link);
  if (node.empty()) return;
  node.mapped()->is_over = true;
  node.mapped()->call.unwatch();
  gone_.push_back(std::move(node.mapped()));
}

void Hosts::on_caller(Caller &caller, Call::Clock::time_point now) {
  Call &call = caller.call;
  Link &link = caller.link;
  switch (call.advance(now, epoll_.get(), static_cast<Source *>(&caller))) {
    case Call::State::kWaits:
      return;
    case Call::State::kWelcome: {
      sdk::UniqueFd fd = call.take();
      const std::string name = call.name();
      const uint64_t key = call.peer_key();
      forget(link);
      return user_.on_welcome(link, std::move(fd), name, key);
    }
    case Call::State::kFailed:
      if (!call.text().empty() && options_.say) options_.say(call.text());
      forget(link);
      return user_.on_failure(link, call.why());
  }
}

// ---- time ----

void Hosts::on_time(Call::Clock::time_point now) {
  uint64_t ticks;
  while (::read(timer_.get(), &ticks, sizeof ticks) < 0 && errno == EINTR) {
  }
  for (auto at = visitors_.begin(); at != visitors_.end();) {
    Visitor &visitor = **at++;
    if (now >= visitor.end)
      end(std::prev(at));
    else if (visitor.have == visitor.bytes.size())
      on_visitor(visitor);
  }
  std::vector<Caller *> callers;
  for (const auto &[link, caller] : callers_) callers.push_back(caller.get());
  for (Caller *const caller : callers)
    if (!caller->is_over && caller->call.is_due(now)) on_caller(*caller, now);
  for (const auto &listener : listeners_) accept_all(*listener);
  const bool is_tick = now >= next_tick_;
  const std::chrono::milliseconds timeout(options_.timeout_ms);
  if (is_tick)
    next_tick_ = now + timeout / kTicks * 7 / 8;  // the timer's next is not later than that
  user_.on_time(options_.timeout_ms, is_tick);
}

void Hosts::watch_links(bool any) {
  has_links_ = any;
  set_timer();
}

void Hosts::be_hasty(bool hasty) {
  is_hasty_ = hasty;
  set_timer();
}

void Hosts::set_timer() {
  const bool is_hasty = is_hasty_ || !callers_.empty() || !visitors_.empty();
  const int64_t period = is_hasty     ? kCallTickMs
                         : has_links_ ? std::max(1u, options_.timeout_ms / kTicks)
                                      : 0;
  if (timer_.get() < 0 || std::exchange(period_ms_, period) == period) return;
  const timespec span{.tv_sec = period / 1000, .tv_nsec = period % 1000 * 1'000'000};
  const itimerspec spec{.it_interval = span, .it_value = span};
  ::timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

void Hosts::poll() {
  epoll_event events[kBatch];
  const int count = ::epoll_wait(epoll_.get(), events, kBatch, 0);
  const auto now = Call::Clock::now();
  for (int i = 0; i < count; ++i) {
    auto *const source = static_cast<Source *>(events[i].data.ptr);
    if (source == nullptr) {
      on_time(now);
    } else if (source->is_over) {
      continue;
    } else if (source->kind == Source::Kind::kListener) {
      accept_all(static_cast<Listener &>(*source));
    } else if (source->kind == Source::Kind::kCaller) {
      on_caller(static_cast<Caller &>(*source), now);
    } else {
      on_visitor(static_cast<Visitor &>(*source));
    }
  }
  gone_.clear();
  set_timer();
}

}  // namespace weft::cxi
