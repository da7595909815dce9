// SPDX-License-Identifier: BSD-2-Clause
// The life of an endpoint: its name, fi_enable, and fi_close.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "plugins/shm/endpoint.h"
#include "plugins/shm/fabric.h"
#include "plugins/shm/stranger.h"

namespace weft::shm {
namespace {

constexpr int kBacklog = 4096;         // peers that wait; at most net.core.somaxconn
constexpr unsigned kMostTries = 4096;  // for a free number in the name

// Of sends, reads, writes and atomics: the earlier ones behind which each is anyway.
constexpr sdk::OrderRules kNativeOrder = {sdk::kinds(sdk::OrderKind::kSend), 0, 0,
                                          sdk::kinds(sdk::OrderKind::kAtomic)};

uint64_t random_number() {
  uint64_t value = 0;
  [[maybe_unused]] const ssize_t n = getrandom(&value, sizeof value, 0);
  return value;
}

}  // namespace

Endpoint::Endpoint(Domain &domain, const fi_info &info, WantedName name, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      RdmEndpoint(domain.shared(), *this, info,
                  {.tx_size = domain.settings().tx_size,
                   .rx_size = domain.settings().rx_size,
                   .inject_size = kInjectSize,
                   .max_inject_size = kMaxInjectSize,
                   .max_msg_size = kMostLength,
                   .atomic_size = kMostAtomic,
                   .early_receives = true}),
      ExitDuty(domain.engine(), domain.settings().close_linger_ns),
      shm_domain_(domain),
      wanted_(std::move(name)),
      probe_(random_number()),
      keeper_(sdk::order_of(info), kNativeOrder),
      operations_(limits().tx_size) {
  sdk::fill_tables(*this);
  name_endpoint(c());
  count_in_flight(
      [](sdk::EndpointCore &core) { return static_cast<Endpoint &>(core).operations_.in_use(); });
}

Endpoint::~Endpoint() = default;

Result<Endpoint *> Endpoint::open(Domain &domain, const fi_info &info, void *context) {
  for (const size_t size : {info.tx_attr != nullptr ? info.tx_attr->size : 0,
                            info.rx_attr != nullptr ? info.rx_attr->size : 0})
    if (size > kMaxQueue)
      return fail(FI_EINVAL, "fi_endpoint: a queue of %zu: at most %zu", size, kMaxQueue);
  WEFT_TRY(WantedName name, wanted_name(info));
  std::unique_ptr<Endpoint, void (*)(Endpoint *)> endpoint(
      new Endpoint(domain, info, std::move(name), context), [](Endpoint *e) { delete e; });
  WEFT_CHECK(endpoint->publish(domain.base()));
  domain.shared().children.fetch_add(1);
  return endpoint.release();
}

// ---- the name ----

// The first of fi_setname, fi_getname and fi_enable gives it.
Result<void> Endpoint::begin() {
  if (listener_.get() >= 0) return {};
  epoll_ = sdk::UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (epoll_.get() < 0) return fail(errno, "epoll_create1: %s: see `ulimit -n`", strerror(errno));
  WEFT_CHECK(listen());
  watch(listener_.get(), nullptr);
  return {};
}

Result<void> Endpoint::listen() {
  for (unsigned tries = 0;; ++tries) {
    WEFT_TRY(const sdk::Address name,
             wanted_.name(unsigned(getuid()), shm_domain_.fabric().next_number()));
    auto listener = listen_as(name, kBacklog);
    if (listener) {
      listener_ = std::move(*listener);
      name_ = name;
      return {};
    }
    const bool is_taken = listener.error().code == FI_EADDRINUSE && !wanted_.is_whole;
    if (!is_taken || tries == kMostTries) return tl::unexpected(listener.error());
  }
}

// A child may have a copy of the socket (fork(2)): who has called is let go, and who calls later is
// refused.
void Endpoint::stop_listening() {
  if (listener_.get() < 0) return;
  shutdown(listener_.get(), SHUT_RDWR);
  while (accept_from(listener_.get()).get() >= 0) {
  }
  listener_.reset();
  for (const auto &stranger : strangers_) hang_up(stranger->socket);
}

int Endpoint::setname(void *addr, size_t len) {
  auto wanted = wanted_name(addr, len);
  if (!wanted) return -wanted.error().code;
  const sdk::Guard guard(lock());
  if (enabled()) return -FI_EOPBADSTATE;
  stop_listening();
  wanted_ = std::move(*wanted);
  return begin_early("fi_setname");
}

int Endpoint::getname(void *addr, size_t *len) {
  const sdk::Guard guard(lock());
  if (const int rc = begin_early("fi_getname"); rc != 0) return rc;
  return sdk::write_address(name_, FI_ADDR_STR, addr, len);
}

int Endpoint::begin_early(const char *call) {
  const auto done = begin();
  if (done) return 0;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s: %s", call, done.error().text.c_str());
  return -done.error().code;
}

// ---- fi_enable ----

int Endpoint::control(int command, void *arg) {
  if (command == FI_ALIAS) return sdk::Alias<Endpoint>::open(*this, arg);
  if (command == sdk::kQueueDeferred) return queue_deferred(arg);
  if (command != FI_ENABLE) return control_flags(command, arg, kSendFlags);
  const sdk::Guard guard(lock());
  if (enabled()) return 0;
  Result<void> done = check_bindings();
  if (done) done = begin();
  if (!done) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
    return -done.error().code;
  }
  av()->add_user(*this, true);
  shm_domain_.engine().add_poller(*this);
  set_enabled();
  return 0;
}

// ---- fi_close ----

// What was injected must still be delivered, so it waits for peers that have no room for it.
void Endpoint::linger() {
  const uint64_t begin = sdk::now_ns();
  sdk::LingerBudget &budget = shm_domain_.linger_budget();
  const uint64_t end = budget.until(begin, settings().close_linger_ns);
  while (has_unsent()) {
    shm_domain_.engine().progress();
    if (!has_unsent()) return;
    if (sdk::now_ns() >= end) return budget.spend(sdk::now_ns() - begin);
    if (!may_wait()) continue;
    pollfd one{epoll_.get(), POLLIN, 0};
    ::poll(&one, 1, 1);
  }
}

bool Endpoint::has_unsent() const {
  return std::ranges::any_of(links_, [](const auto &link) { return link->owes(); });
}

bool Endpoint::owes(bool) {
  return has_unsent();
}

int Endpoint::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  retire();
  {
    const sdk::Guard guard(lock());
    if (enabled()) linger();
    const bool was_enabled = enabled();
    // Completions of operations in flight could name an endpoint that is gone (fi_endpoint.3).
    detach();
    settle();
    if (was_enabled) shm_domain_.engine().remove_poller(*this);
    stop_listening();
    for (size_t i = 0; i < links_.size(); ++i) links_[i]->end(End::kClosed);
    receiver().visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &message) {
      receiver().forget(message);
      release(static_cast<Saved &>(message));
    });
    receiver().fail_posted(FI_ECANCELED);
    RdmEndpoint::release(was_enabled ? this : nullptr);
  }
  core_domain_.children.fetch_sub(1);
  delete this;
  return 0;
}

void Endpoint::close_copies() {
  for (const auto &link : links_) link->close_copy();
  listener_.reset();
  epoll_.reset();
}

}  // namespace weft::shm
