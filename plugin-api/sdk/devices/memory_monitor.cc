// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/devices/memory_monitor.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>

#include <weft/sdk/progress/quiet_thread.h>
#include "mappings.h"

namespace weft::sdk {
namespace {

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

constexpr uint64_t kEvents =
    UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE;

size_t page_size() {
  static const auto size = size_t(sysconf(_SC_PAGESIZE));
  return size;
}

uffdio_range kernel_range(const MemoryRange &range) {
  return {.start = range.start, .len = range.bytes()};
}

// No page fault is handled here, so the kernel asks for no privilege.
Result<UniqueFd> open_userfaultfd() {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  UniqueFd fd(int(syscall(SYS_userfaultfd, kFlags | UFFD_USER_MODE_ONLY)));
  if (fd.get() < 0 && errno == EINVAL) fd.reset(int(syscall(SYS_userfaultfd, kFlags)));
  if (fd.get() < 0) {
    const int error = errno;
    return fail(error, "memory monitor: userfaultfd: %s%s", strerror(error),
                error == EPERM ? ": a container's filter of system calls forbids it, or "
                                 "/proc/sys/vm/unprivileged_userfaultfd before Linux 5.11"
                               : "");
  }
  uffdio_api api{
      .api = UFFD_API, .features = kEvents | UFFD_FEATURE_PAGEFAULT_FLAG_WP, .ioctls = 0};
  if (ioctl(fd.get(), UFFDIO_API, &api) != 0)
    return fail(FI_ENOSYS,
                "memory monitor: userfaultfd of this kernel tells too little: it needs "
                "Linux 5.7");
  return fd;
}

Result<uint8_t *> open_alive() {
  void *const page =
      mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return fail(errno, "memory monitor: no memory for a page");
  if (madvise(page, page_size(), MADV_WIPEONFORK) != 0) {
    munmap(page, page_size());
    return fail(FI_ENOSYS, "memory monitor: this kernel has no MADV_WIPEONFORK");
  }
  *static_cast<uint8_t *>(page) = 1;
  return static_cast<uint8_t *>(page);
}

}  // namespace

MemoryRange MemoryRange::pages_of(const iovec &memory) {
  const auto start = reinterpret_cast<uintptr_t>(memory.iov_base);
  const uintptr_t mask = page_size() - 1;
  uintptr_t end = 0;
  if (memory.iov_len == 0 || __builtin_add_overflow(start, memory.iov_len, &end) ||
      __builtin_add_overflow(end, mask, &end))
    return {};
  return {start & ~mask, end & ~mask};
}

Result<std::shared_ptr<MemoryMonitor>> MemoryMonitor::open() {
  WEFT_TRY(UniqueFd fd, open_userfaultfd());
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (stop.get() < 0) return fail(errno, "memory monitor: eventfd: %s", strerror(errno));
  WEFT_TRY(uint8_t *const alive, open_alive());
  std::shared_ptr<MemoryMonitor> monitor(new MemoryMonitor(std::move(fd), std::move(stop), alive));
  WEFT_CHECK(monitor->prove());
  if (start_quiet_thread(monitor->reader_, [m = monitor.get()] { m->run(); }) != 0)
    return fail(FI_EAGAIN, "memory monitor: no thread can be started: see `ulimit -u`");
  return monitor;
}

MemoryMonitor::MemoryMonitor(UniqueFd fd, UniqueFd stop, uint8_t *alive)
    : fd_(std::move(fd)), stop_(std::move(stop)), alive_(alive) {}

MemoryMonitor::~MemoryMonitor() {
  if (!here()) {
    if (reader_.joinable()) reader_.detach();  // it is the parent's
  } else if (reader_.joinable()) {
    (void)eventfd_write(stop_.get(), 1);
    reader_.join();
  }
  munmap(alive_, page_size());
}

// What current() relies on is no promise of the kernel's manual, so it is tried.
Result<void> MemoryMonitor::prove() {
  const MemoryRange page = [] {
    void *const at =
        mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const auto start = reinterpret_cast<uintptr_t>(at);
    return at != MAP_FAILED ? MemoryRange{start, start + page_size()} : MemoryRange{};
  }();
  const auto unmap = [&] { munmap(reinterpret_cast<void *>(page.start), page.bytes()); };
  const auto refuse = [](const char *what) {
    return fail(FI_ENOSYS, "memory monitor: userfaultfd of this kernel is different: %s", what);
  };
  if (page.empty()) return fail(FI_ENOMEM, "memory monitor: no memory for a page");
  if (!watch(page)) {
    unmap();
    return refuse("it does not watch private memory");
  }
  const bool before = changing();
  std::thread other;
  if (start_quiet_thread(other, unmap) != 0) {
    unregister(page);
    unmap();
    return fail(FI_EAGAIN, "memory monitor: no thread can be started: see `ulimit -u`");
  }
  pollfd event{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  const bool told = poll(&event, 1, 10'000) == 1;
  const bool during = changing();
  if (!told) unregister(page);
  read_events();
  other.join();
  if (before || !told || !during || changing() || broken_)
    return refuse("it does not say that mappings change");
  return {};
}

// Neither allocates nor frees: both may unmap memory, and wait for this thread.
void MemoryMonitor::run() {
  pollfd fds[] = {{.fd = fd_.get(), .events = POLLIN, .revents = 0},
                  {.fd = stop_.get(), .events = POLLIN, .revents = 0}};
  while (true) {
    if (poll(fds, 2, -1) < 0) continue;
    const std::lock_guard lock(mutex_);
    if (fds[1].revents != 0) break;
    read_events();
    if (broken_) fds[0].fd = -1;
  }
  // A child of fork() may have the descriptor too, so closing it here would end nothing.
  unregister_all();
  fd_.reset();
}

void MemoryMonitor::add(Watcher &watcher) {
  std::vector<Watcher *> more;
  while (true) {
    const size_t room = [&] {
      const std::lock_guard lock(mutex_);
      if (watchers_.size() >= more.capacity()) return watchers_.size() + 8;
      more.assign(watchers_.begin(), watchers_.end());
      more.push_back(&watcher);
      watchers_.swap(more);
      return size_t{0};
    }();
    if (room == 0) return;
    more.reserve(room);
  }
}

void MemoryMonitor::remove(Watcher &watcher) {
  if (!here()) return;
  const std::lock_guard lock(mutex_);
  std::erase(watchers_, &watcher);
}

// Write protection is asked for and never set: so nothing faults, and the kernel tells of changes.
bool MemoryMonitor::watch(const MemoryRange &range) {
  uffdio_register request{
      .range = kernel_range(range), .mode = UFFDIO_REGISTER_MODE_WP, .ioctls = 0};
  return ioctl(fd_.get(), UFFDIO_REGISTER, &request) == 0 &&
         is_private_anonymous(range.start, range.end);
}

// The kernel looks at its count before it looks at the range, which is never valid.
bool MemoryMonitor::changing() const {
  uffdio_zeropage nothing{};
  nothing.range.start = page_size();
  return ioctl(fd_.get(), UFFDIO_ZEROPAGE, &nothing) == 0 || errno != EINVAL;
}

bool MemoryMonitor::current() {
  if (!changing()) return !broken_;
  read_events();
  return !changing() && !broken_;
}

void MemoryMonitor::read_events() {
  uffd_msg events[16];
  while (!broken_) {
    const ssize_t got = read(fd_.get(), events, sizeof events);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return give_up();
    for (size_t i = 0; i < size_t(got) / sizeof events[0]; ++i) {
      const auto &arg = events[i].arg;
      const MemoryRange range{arg.remove.start, arg.remove.end};
      switch (events[i].event) {
        case UFFD_EVENT_UNMAP:
          change(range, range);
          break;
        case UFFD_EVENT_REMOVE:
          change(range, {});
          break;
        case UFFD_EVENT_REMAP: {
          const MemoryRange from{arg.remap.from, arg.remap.from + arg.remap.len};
          const MemoryRange to{arg.remap.to, arg.remap.to + arg.remap.len};
          change(from, from);
          change(to, {});
          unwatch(to);  // what moved is watched there
          break;
        }
        default:
          return give_up();
      }
    }
  }
}

// Nobody waits for events that nobody reads.
void MemoryMonitor::give_up() {
  broken_ = true;
  change({0, std::numeric_limits<uintptr_t>::max()}, {});
  unregister_all();
}

void MemoryMonitor::change(const MemoryRange &range, const MemoryRange &gone) {
  gone_ = gone;
  for (Watcher *const watcher : watchers_) watcher->on_change(range);
  gone_ = {};
}

// Where a mapping is gone, another may be by now, with a userfaultfd of the application.
void MemoryMonitor::unwatch(const MemoryRange &range) {
  if (!range.overlaps(gone_)) return leave(range, 0);
  leave({range.start, std::min(range.end, gone_.start)}, 0);
  leave({std::max(range.start, gone_.end), range.end}, 0);
}

// Ends the watch of the parts that neither this watcher nor a later one relies on.
void MemoryMonitor::leave(const MemoryRange &range, size_t watcher) {
  if (range.empty()) return;
  if (watcher == watchers_.size()) return unregister(range);
  MemoryRange rest = range;
  while (!rest.empty()) {
    const MemoryRange held = watchers_[watcher]->first_in(rest);
    if (held.empty()) break;
    leave({rest.start, held.start}, watcher + 1);
    rest.start = held.end;
  }
  leave(rest, watcher + 1);
}

// The kernel refuses a range as a whole if there is a mapping in it that cannot be watched.
void MemoryMonitor::unregister(const MemoryRange &range) {
  uffdio_range whole = kernel_range(range);
  if (ioctl(fd_.get(), UFFDIO_UNREGISTER, &whole) == 0 || range.bytes() <= page_size()) return;
  const uintptr_t middle = range.start + (range.bytes() / 2 & ~(page_size() - 1));
  unregister({range.start, middle});
  unregister({middle, range.end});
}

// Also what grew by mremap() without an event.
void MemoryMonitor::unregister_all() {
  MemoryRange last;
  while (const std::optional<MemoryRange> range = next_watched()) {
    if (range->start == last.start) return;  // it is not ours
    unregister(last = *range);
  }
}

}  // namespace weft::sdk
