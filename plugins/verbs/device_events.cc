// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/device_events.h"

#include <sys/eventfd.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "plugins/verbs/nonblocking.h"

namespace weft::verbs {
namespace {

enum class About { kQueuePair, kCompletionQueue, kSharedReceive, kPort, kDevice };

About subject_of(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return About::kQueuePair;
    case IBV_EVENT_CQ_ERR:
      return About::kCompletionQueue;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return About::kSharedReceive;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      return About::kPort;
    default:
      return About::kDevice;  // IBV_EVENT_DEVICE_FATAL, and what is not about an object we know
  }
}

bool is_failure(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
      return true;
    default:
      return false;
  }
}

// Of the object that the event is about; null: nobody's.
DeviceUser *user_of(const ibv_async_event &event) {
  switch (subject_of(event.event_type)) {
    case About::kQueuePair:
      return static_cast<DeviceUser *>(event.element.qp->qp_context);
    case About::kCompletionQueue:
      return static_cast<DeviceUser *>(event.element.cq->cq_context);
    case About::kSharedReceive:
      return static_cast<DeviceUser *>(event.element.srq->srq_context);
    default:
      return nullptr;
  }
}

}  // namespace

DeviceEvents::DeviceEvents(const weft_instance *instance, Counters &counters, sdk::Engine &engine)
    : instance_(instance), counters_(counters), engine_(engine) {}

DeviceEvents::~DeviceEvents() {
  sdk::Guard guard(engine_.lock());
  if (mailbox_.fd.get() >= 0) engine_.remove(mailbox_);
}

Result<void> DeviceEvents::open_mailbox() {
  if (mailbox_.fd.get() >= 0) return {};
  mailbox_.fd.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (mailbox_.fd.get() < 0) return fail(errno, "eventfd: %s: see `ulimit -n`", strerror(errno));
  engine_.add(mailbox_, mailbox_.fd.get(), EPOLLIN, EPOLLIN);
  return {};
}

Result<void> DeviceEvents::watch(const Device &device) {
  for (const auto &watched : watched_) {
    if (watched->verbs != device.verbs) continue;
    ++watched->uses;
    return {};
  }
  WEFT_CHECK(open_mailbox());
  if (!make_nonblocking(device.verbs->async_fd))
    return fail(errno, "fcntl of the events of %s: %s", device.facts.name.c_str(), strerror(errno));
  watched_.push_back(std::make_unique<Watched>(*this, device));
  engine_.add(*watched_.back(), device.verbs->async_fd, EPOLLIN, EPOLLIN);
  return {};
}

void DeviceEvents::unwatch(const Device &device) {
  const auto at = std::ranges::find(watched_, device.verbs, [](auto &w) { return w->verbs; });
  if (at == watched_.end() || --(*at)->uses != 0) return;
  engine_.remove(**at);
  watched_.erase(at);
}

// ---- reading ----

void DeviceEvents::read() {
  for (const auto &watched : watched_) read(*watched);
}

void DeviceEvents::read(Watched &watched) {
  ibv_async_event event{};
  bool gone = false;
  while (ibv_get_async_event(watched.verbs, &event) == 0) {
    on_event(watched, event);
    gone = gone || event.event_type == IBV_EVENT_DEVICE_FATAL;
    ibv_ack_async_event(&event);
  }
  if (!gone) return;
  const std::vector<DeviceUser *> users(users_.begin(), users_.end());
  for (DeviceUser *const user : users)  // one may take others with it
    if (users_.contains(user)) user->on_device_gone(*watched.verbs);
}

void DeviceEvents::on_event(Watched &watched, const ibv_async_event &event) {
  const ibv_event_type type = event.event_type;
  if (is_failure(type)) {
    counters_.device_failures.add();
    WEFT_WARN(instance_, FI_LOG_FABRIC, "%s: %s", watched.name.c_str(), ibv_event_type_str(type));
  } else if (subject_of(type) == About::kPort) {
    WEFT_WARN(instance_, FI_LOG_FABRIC, "%s: port %d: %s: see `rdma link`", watched.name.c_str(),
              event.element.port_num, ibv_event_type_str(type));
  }
  if (DeviceUser *const user = user_of(event)) user->on_device_event(type);
}

// ---- notices ----

void DeviceEvents::join(DeviceUser &user) {
  users_.insert(&user);
  const std::lock_guard guard(mutex_);
  notices_.reserve(users_.size());  // notify() allocates nothing
}

void DeviceEvents::leave(DeviceUser &user) {
  users_.erase(&user);
  const std::lock_guard guard(mutex_);
  if (user.noticed_) std::erase(notices_, &user);
}

void DeviceEvents::notify(DeviceUser &user) {
  const std::lock_guard guard(mutex_);
  if (std::exchange(user.noticed_, true)) return;
  notices_.push_back(&user);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(mailbox_.fd.get(), &one, sizeof one);
}

void DeviceEvents::deliver() {
  std::vector<DeviceUser *> notices;
  {
    const std::lock_guard guard(mutex_);
    if (notices_.empty()) return;
    notices = notices_;
    uint64_t count;
    [[maybe_unused]] const ssize_t n = ::read(mailbox_.fd.get(), &count, sizeof count);
    notices_.clear();
    for (DeviceUser *const user : notices) user->noticed_ = false;
  }
  for (DeviceUser *const user : notices)  // one may take others with it
    if (users_.contains(user)) user->on_notice();
}

}  // namespace weft::verbs
