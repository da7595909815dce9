// SPDX-License-Identifier: BSD-2-Clause
#include "core/control/server.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <weft/abandoned.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// Waits until the descriptor is ready for `events`, or until the deadline.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd one = {fd, events, 0};
    const int rc = poll(&one, 1, int(left));
    if (rc > 0) return true;
    if (rc == 0 || errno != EINTR) return false;
  }
}

// The whole request; nothing if it is too long, too slow or broken off.
bool read_all(int fd, std::string &text, Clock::time_point deadline) {
  char piece[4096];
  while (wait_for(fd, POLLIN, deadline)) {
    const ssize_t got = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
    if (got == 0) return true;
    if (got < 0) {
      if (errno == EAGAIN || errno == EINTR) continue;
      return false;
    }
    if (text.size() + size_t(got) > ControlServer::kMaxRequest) return false;
    text.append(piece, size_t(got));
  }
  return false;
}

void write_all(int fd, std::string_view text, Clock::time_point deadline) {
  while (!text.empty() && wait_for(fd, POLLOUT, deadline)) {
    const ssize_t put = send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put > 0)
      text.remove_prefix(size_t(put));
    else if (errno != EAGAIN && errno != EINTR)
      return;
  }
}

// Removes the sockets of killed processes, because process numbers are used again.
void sweep(const std::string &own) {
  const std::string folder = own.substr(0, own.rfind('/'));
  DIR *const files = opendir((folder + "/").c_str());
  if (files == nullptr) return;
  while (const dirent *entry = readdir(files))
    remove_abandoned_socket(dirfd(files), folder, entry->d_name);
  closedir(files);
}

bool may_ask(int connection) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

}  // namespace

ControlServer::ControlServer(std::string path, Handler handler)
    : path_(std::move(path)), handler_(std::move(handler)) {}

Result<std::unique_ptr<ControlServer>> ControlServer::listen(std::string path, Handler handler) {
  std::unique_ptr<ControlServer> server(new ControlServer(std::move(path), std::move(handler)));
  WEFT_CHECK(server->start());
  return server;
}

Result<void> ControlServer::start() {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path)
    return fail(FI_EINVAL, "the socket %s: a path may have %zu bytes: set WEFT_RUNTIME_DIR",
                path_.c_str(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  const auto failed = [&](const char *what) {
    const int code = errno;
    return fail(code, "%s for the socket %s: %s", what, path_.c_str(), std::strerror(code));
  };
  stop_ = eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) return failed("eventfd");
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) return failed("socket");
  // The name has the process number in it: an existing file was left by a process that is gone.
  (void)unlink(path_.c_str());
  if (bind(listener_, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0)
    return failed("bind");
  bound_ = true;
  if (::listen(listener_, 8) != 0) return failed("listen");

  // The thread takes no signals of the application.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 1 << 20);  // pages that nobody touches cost nothing
  const int rc = pthread_create(
      &thread_, &attributes,
      [](void *self) -> void * {
        static_cast<ControlServer *>(self)->serve();
        return nullptr;
      },
      this);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (rc != 0) {
    errno = rc;
    return failed("a thread");
  }
  running_ = true;
  return {};
}

ControlServer::~ControlServer() {
  if (running_) {
    const uint64_t one = 1;
    (void)!write(stop_, &one, sizeof one);
    pthread_join(thread_, nullptr);
  }
  if (bound_) (void)unlink(path_.c_str());
  abandon_in_child();
}

namespace {
// Whether this thread, which forks, has stopped the server.
thread_local bool stopped_for_fork = false;
}  // namespace

// The time in which the handler runs. It neither begins nor ends during a fork.
class ControlServer::Answering {
 public:
  explicit Answering(ControlServer &server) : server_(server) { set(true); }
  ~Answering() {
    set(false);
    server_.idle_.notify_all();
  }
  Answering(const Answering &) = delete;
  Answering &operator=(const Answering &) = delete;

 private:
  void set(bool value) {
    const std::lock_guard lock(server_.state_);
    server_.answering_ = value;
  }
  ControlServer &server_;
};

void ControlServer::before_fork() noexcept {
  // A handler that forks itself has nothing to wait for.
  if (pthread_equal(thread_, pthread_self()) != 0) return;
  std::unique_lock lock(state_);
  if (!idle_.wait_for(lock, kPatience, [this] { return !answering_; })) return;
  (void)lock.release();
  stopped_for_fork = true;
}

void ControlServer::after_fork() noexcept {
  if (std::exchange(stopped_for_fork, false)) state_.unlock();
}

void ControlServer::abandon_in_child() noexcept {
  for (int *fd : {&listener_, &stop_}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
  bound_ = running_ = false;
}

void ControlServer::serve() noexcept {
  pthread_setname_np(pthread_self(), "weft-control");
  sweep(path_);
  while (true) {
    pollfd fds[] = {{listener_, POLLIN, 0}, {stop_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    if (fds[0].revents == 0) continue;
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) {
      // Out of descriptors: the peer stays in the queue until the next try.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        (void)wait_for(stop_, POLLIN, Clock::now() + kPatience);
      continue;
    }
    if (may_ask(connection)) answer(connection);
    (void)shutdown(connection, SHUT_RDWR);  // a forked child may have the descriptor too
    close(connection);
  }
}

void ControlServer::answer(int connection) noexcept {
  try {
    std::string request;
    if (!read_all(connection, request, Clock::now() + kPatience)) return;
    std::string text;
    {
      const Answering answering(*this);
      text = handler_(request);
    }
    write_all(connection, text, Clock::now() + kPatience);
  } catch (...) {
    // No memory: the peer sees an empty answer.
  }
}

}  // namespace weft
