// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

extern char **environ;

namespace weft::conformance {

std::string stack() {
  const char *named = std::getenv("WEFT_TEST_STACK");
  return named != nullptr && *named != '\0' ? named : "tcp";
}

void stack_is_missing(const char *endpoint_type) {
  const std::string what =
      "fi_getinfo offers no " + std::string(endpoint_type) + " endpoint of " + stack();
  if (std::getenv("WEFT_TEST_REQUIRED") != nullptr) {
    FAIL() << what << ", which WEFT_CONFORMANCE_STACKS requires";
  } else {
    GTEST_SKIP() << what << "; it is not among WEFT_CONFORMANCE_STACKS";
  }
}

std::string error_text(ssize_t rc) {
  return std::to_string(rc) + " (" + fi_strerror(int(rc < 0 ? -rc : rc)) + ")";
}

namespace {
[[noreturn]] void give_up(const std::string &what, const char *file, int line) {
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + what);
}
}  // namespace

void must(ssize_t rc, const char *file, int line) {
  if (rc < 0) give_up(error_text(rc), file, line);
}

int Deadline::left_ms() const {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(at_ - std::chrono::steady_clock::now())
          .count();
  return int(std::clamp<long long>(left, 0, INT_MAX));
}

Info make_hints(uint64_t caps) {
  Info hints(fi_allocinfo());
  if (!hints) throw std::bad_alloc();
  hints->caps = caps;
  hints->ep_attr->type = FI_EP_MSG;
  hints->fabric_attr->prov_name = strdup(stack().c_str());
  return hints;
}

int try_info(Info &out, const char *node, const char *service, uint64_t flags, const fi_info *hints,
             uint32_t api) {
  fi_info *info = nullptr;
  const int rc = fi_getinfo(api, node, service, flags, hints, &info);
  out.reset(rc == 0 ? info : nullptr);
  return rc;
}

Info get_info(const char *node, const char *service, uint64_t flags, const fi_info *hints,
              uint32_t api) {
  Info info;
  must(try_info(info, node, service, flags, hints, api));
  return info;
}

bool have_ipv6_loopback() {
  const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0;
  ::close(fd);
  return bound;
}

Info options_info(const Options &options, const char *service, uint64_t flags) {
  Info hints = make_hints(options.caps);
  hints->addr_format = options.addr_format;
  hints->domain_attr->mr_mode = options.mr_mode;
  hints->domain_attr->control_progress = options.progress;
  hints->domain_attr->data_progress = options.progress;
  hints->domain_attr->threading = options.threading;
  hints->domain_attr->resource_mgmt = options.resource_mgmt;
  hints->tx_attr->size = options.tx_size;
  hints->rx_attr->size = options.rx_size;
  hints->tx_attr->op_flags = options.tx_op_flags;
  hints->rx_attr->op_flags = options.rx_op_flags;
  return get_info(options.node.c_str(), service, flags, hints.get());
}

std::optional<Done> poll_cq(fid_cq *cq) {
  fi_cq_data_entry entry{};
  const ssize_t n = fi_cq_read(cq, &entry, 1);
  if (n == 1)
    return Done{.context = entry.op_context,
                .flags = entry.flags,
                .len = entry.len,
                .buf = entry.buf,
                .data = entry.data};
  if (n == -FI_EAGAIN) return {};
  if (n != -FI_EAVAIL) must(n == 0 ? -FI_EOTHER : n);
  fi_cq_err_entry error{};
  const ssize_t m = fi_cq_readerr(cq, &error, 0);
  if (m != 1)
    throw std::runtime_error("fi_cq_read says -FI_EAVAIL, fi_cq_readerr " + std::to_string(m));
  return Done{.context = error.op_context,
              .flags = error.flags,
              .len = error.len,
              .buf = error.buf,
              .data = error.data,
              .olen = error.olen,
              .err = error.err,
              .prov_errno = error.prov_errno};
}

std::optional<Event> poll_eq(fid_eq *eq) {
  alignas(fi_eq_cm_entry) char buffer[sizeof(fi_eq_cm_entry) + 512] = {};
  uint32_t type = 0;
  const ssize_t n = fi_eq_read(eq, &type, buffer, sizeof buffer, 0);
  if (n == -FI_EAGAIN) return {};
  Event event;
  if (n == -FI_EAVAIL) {
    fi_eq_err_entry error{};
    char data[512];
    error.err_data = data;
    error.err_data_size = sizeof data;
    const ssize_t m = fi_eq_readerr(eq, &error, 0);
    if (m < 0)
      throw std::runtime_error("fi_eq_read says -FI_EAVAIL, fi_eq_readerr " + error_text(m));
    event.fid = error.fid;
    event.err = error.err;
    event.data.assign(static_cast<const char *>(error.err_data), error.err_data_size);
    return event;
  }
  must(n);
  event.type = type;
  auto *entry = reinterpret_cast<fi_eq_cm_entry *>(buffer);
  event.fid = entry->fid;
  if (type == FI_CONNREQ || type == FI_CONNECTED || type == FI_SHUTDOWN) {
    event.info.reset(entry->info);
    event.data.assign(buffer + sizeof *entry, size_t(n) - sizeof *entry);
  }
  return event;
}

// ---- sides ----

void Side::open(const fi_info *from) {
  info.reset(fi_dupinfo(from));
  must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
  must(fi_eq_open(fabric, &options.eq, eq.out(), nullptr));
  must(fi_domain(fabric, info.get(), domain.out(), nullptr));
  open_queues();
}

void Side::open_queues() {
  must(fi_cq_open(domain, &options.tx_cq, tx_cq.out(), nullptr));
  if (!options.one_cq) must(fi_cq_open(domain, &options.rx_cq, rx_cq.out(), nullptr));
  if (options.shared_receive) must(fi_srx_context(domain, info->rx_attr, srx.out(), nullptr));
}

void Side::make_unbound_endpoint(fi_info *from) {
  must(fi_endpoint(domain, from, ep.out(), this));
}

void Side::bind_queues() {
  must(fi_ep_bind(ep, eq.fid(), 0));
  if (options.one_cq) {
    must(fi_ep_bind(ep, tx_cq.fid(), FI_TRANSMIT | FI_RECV | options.tx_cq_flags));
  } else {
    must(fi_ep_bind(ep, tx_cq.fid(), FI_TRANSMIT | options.tx_cq_flags));
    must(fi_ep_bind(ep, rx_cq.fid(), FI_RECV | options.rx_cq_flags));
  }
  if (srx) must(fi_ep_bind(ep, srx.fid(), 0));
}

void Side::make_endpoint(fi_info *from) {
  make_unbound_endpoint(from);
  bind_queues();
  if (before_enable) before_enable(*this);
  must(fi_enable(ep));
}

fid_cntr *Side::count(uint64_t what, fi_cntr_attr attr) {
  counters.emplace_back();
  must(fi_cntr_open(domain, &attr, counters.back().out(), nullptr));
  if (what != 0) must(fi_ep_bind(ep, counters.back().fid(), what));
  return counters.back();
}

fid_mr *Side::expose(void *buffer, size_t size, uint64_t access, uint64_t key, uint64_t flags) {
  regions.emplace_back();
  must(fi_mr_reg(domain, buffer, size, access, 0, key, flags, regions.back().out(), nullptr));
  return regions.back();
}

void Side::progress() {
  if (tx_cq) fi_cq_read(tx_cq, nullptr, 0);
  if (rx_cq) fi_cq_read(rx_cq, nullptr, 0);
  if (!eq) return;
  uint32_t type;
  char entry[sizeof(fi_eq_cm_entry) + 512];
  fi_eq_read(eq, &type, entry, sizeof entry, FI_PEEK);
}

namespace {
template <class Call>
std::string address_of(Call call) {
  char buffer[256];
  size_t size = sizeof buffer;
  must(call(buffer, &size));
  return {buffer, size};
}
}  // namespace

std::string Side::name() const {
  return address_of(
      [this](void *buffer, size_t *size) { return fi_getname(ep.fid(), buffer, size); });
}

std::string Side::peer() const {
  return address_of([this](void *buffer, size_t *size) { return fi_getpeer(ep, buffer, size); });
}

Listener::Listener(Side &side, const std::string &node) {
  Options options = side.options;
  if (!node.empty()) options.node = node;
  info = options_info(options, nullptr, FI_SOURCE);
  must(fi_passive_ep(side.fabric, info.get(), pep.out(), this));
  must(fi_pep_bind(pep, side.eq.fid(), 0));
  must(fi_listen(pep));
}

std::string Listener::address() const {
  return address_of(
      [this](void *buffer, size_t *size) { return fi_getname(pep.fid(), buffer, size); });
}

bool until(const std::function<bool()> &predicate, std::initializer_list<Side *> sides,
           std::chrono::milliseconds time) {
  const Deadline deadline(time);
  for (;;) {
    if (predicate()) return true;
    if (deadline.passed()) return false;
    for (Side *side : sides) side->progress();
  }
}

Event wait_event(fid_eq *eq, std::initializer_list<Side *> sides) {
  std::optional<Event> event;
  if (!until([&] { return (event = poll_eq(eq)).has_value(); }, sides))
    throw std::runtime_error("no event came");
  return std::move(*event);
}

Event next_request(Side &passive, std::initializer_list<Side *> sides) {
  Event event = wait_event(passive.eq, sides);
  if (event.type != FI_CONNREQ)
    throw std::runtime_error("instead of FI_CONNREQ came " + std::to_string(event.type));
  return event;
}

Pair::Pair(const Options &active, const Options &passive,
           const std::function<void(Side &)> &before_enable)
    : a(active), b(passive) {
  a.before_enable = b.before_enable = before_enable;
  b.open(options_info(passive, nullptr, FI_SOURCE).get());
  listener = std::make_unique<Listener>(b);
  const std::string address = listener->address();
  const Info info = options_info(active);
  a.open(info.get());
  a.make_endpoint(a.info.get());
  must(fi_connect(a.ep, address.data(), nullptr, 0));
  const Event request = next_request(b, {&a, &b});
  b.make_endpoint(request.info.get());
  must(fi_accept(b.ep, nullptr, 0));
  wait_event(a.eq, FI_CONNECTED);
  wait_event(b.eq, FI_CONNECTED);
}

void Pair::progress() {
  a.progress();
  b.progress();
}

Done Pair::wait(fid_cq *cq) {
  std::optional<Done> done;
  if (!until([&] { return (done = poll_cq(cq)).has_value(); }))
    throw std::runtime_error("no completion came");
  return *done;
}

Event Pair::wait(fid_eq *eq) {
  return conformance::wait_event(eq, {&a, &b});
}

Event Pair::wait_event(fid_eq *eq, uint32_t type) {
  Event event = wait(eq);
  if (event.err != 0)
    throw std::runtime_error("instead of an event came the error " + error_text(event.err));
  if (event.type != type)
    throw std::runtime_error("instead of event " + std::to_string(type) + " came " +
                             std::to_string(event.type));
  return event;
}

bool Pair::until(const std::function<bool()> &predicate, std::chrono::milliseconds time) {
  return conformance::until(predicate, {&a, &b}, time);
}

void Pair::post(const std::function<ssize_t()> &operation) {
  ssize_t rc = 0;
  if (!until([&] { return (rc = operation()) != -FI_EAGAIN; }))
    throw std::runtime_error("-FI_EAGAIN for ever");
  must(rc);
}

void Pair::settle() {
  // Loopback delivers within the sender's system call, so what was sent is there; a few rounds let
  // both sides act on it and answer.
  for (int i = 0; i < 50; ++i) progress();
}

ssize_t receives_left(fid_ep *ep) {
  return ep->ops->rx_size_left(ep);
}

std::vector<uint8_t> pattern(size_t size, unsigned seed) {
  std::vector<uint8_t> bytes(size);
  uint32_t x = seed * 2654435761u + 1;
  for (size_t i = 0; i < size; ++i) {
    if (i % 4 == 0) {
      x ^= x << 13;
      x ^= x >> 17;
      x ^= x << 5;
    }
    bytes[i] = uint8_t(x >> (8 * (i % 4)));
  }
  return bytes;
}

int count_descriptors() {
  DIR *dir = opendir("/proc/self/fd");
  if (dir == nullptr) throw std::runtime_error("no /proc/self/fd");
  int count = -1;  // the one that reads the folder
  while (const dirent *entry = readdir(dir)) count += entry->d_name[0] != '.';
  closedir(dir);
  return count;
}

bool can_be_out_of_descriptors() {
  return std::string_view(WEFT_TEST_SANITIZE).find("undefined") == std::string_view::npos;
}

// ---- processes ----

namespace {

constexpr const char *kFreshMark = "WEFT_TEST_FRESH_PROCESS";

// The exit status of a process as waitpid gives it. One that does not end is killed.
int wait_for(pid_t pid) {
  const int handle = int(syscall(SYS_pidfd_open, pid, 0));
  if (handle >= 0) {
    pollfd p{handle, POLLIN, 0};
    if (::poll(&p, 1, int(std::chrono::milliseconds(2 * kPatience).count())) == 0)
      ::kill(pid, SIGKILL);
    ::close(handle);
  }
  int status = -1;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::string describe_status(int status) {
  if (WIFEXITED(status)) return "exit status " + std::to_string(WEXITSTATUS(status));
  if (WIFSIGNALED(status)) return std::string("killed by ") + strsignal(WTERMSIG(status));
  return "status " + std::to_string(status);
}

}  // namespace

bool is_fresh_process() {
  return std::getenv(kFreshMark) != nullptr;
}

bool in_fresh_process(std::initializer_list<const char *> variables) {
  const auto *test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(test->test_suite_name()) + "." + test->name();
  const char *mark = std::getenv(kFreshMark);
  if (mark != nullptr && mark == name) return true;

  std::vector<std::string> texts;
  for (const char *variable : variables) texts.emplace_back(variable);
  texts.push_back(std::string(kFreshMark) + "=" + name);
  std::vector<char *> environment;
  for (std::string &text : texts) environment.push_back(text.data());
  for (char **inherited = environ; *inherited != nullptr; ++inherited) {
    const std::string_view entry(*inherited);
    const std::string_view key = entry.substr(0, entry.find('=') + 1);
    // Set here: the old value must not be found first. And no report of this one test over that of
    // all.
    bool ours = key == "GTEST_OUTPUT=" || key == "GTEST_TOTAL_SHARDS=";
    for (const std::string &text : texts) ours = ours || text.starts_with(key);
    if (!ours) environment.push_back(*inherited);
  }
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe", filter = "--gtest_filter=" + name,
              brief = "--gtest_brief=1";
  char *arguments[] = {program.data(), filter.data(), brief.data(), nullptr};
  pid_t pid;
  const int rc =
      posix_spawn(&pid, program.c_str(), nullptr, nullptr, arguments, environment.data());
  if (rc != 0) {
    ADD_FAILURE() << "posix_spawn: " << strerror(rc);
    return false;
  }
  const int status = wait_for(pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << name << " in a process of its own: " << describe_status(status);
  return false;
}

Child::Child(const std::function<void(int)> &body) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    throw std::runtime_error("socketpair");
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) {
    ::close(sockets[0]);
    int status = 0;
    try {
      body(sockets[1]);
    } catch (const std::exception &error) {
      fprintf(stderr, "child process: %s\n", error.what());
      status = 2;
    }
    fflush(nullptr);
    _exit(status != 0 ? status : ::testing::Test::HasFailure());
  }
  ::close(sockets[1]);
  socket_ = sockets[0];
}

int Child::wait() {
  return wait_for(std::exchange(pid_, -1));
}

void Child::kill() {
  ::kill(pid_, SIGKILL);
  wait();
}

void Child::join() {
  const int status = wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the child process: " << describe_status(status);
}

Child::~Child() {
  if (pid_ >= 0) kill();
  if (socket_ >= 0) ::close(socket_);
}

namespace {
void read_all(int socket, void *to, size_t size) {
  const Deadline deadline;
  for (size_t done = 0; done < size;) {
    pollfd p{socket, POLLIN, 0};
    if (::poll(&p, 1, deadline.left_ms()) == 0)
      throw std::runtime_error("the other process says nothing");
    const ssize_t n = ::recv(socket, static_cast<char *>(to) + done, size - done, 0);
    if (n <= 0) throw std::runtime_error("the other process is gone");
    done += size_t(n);
  }
}
void write_all(int socket, const void *from, size_t size) {
  if (::send(socket, from, size, MSG_NOSIGNAL) != ssize_t(size))
    throw std::runtime_error("the other process is gone");
}
}  // namespace

void tell(int socket, uint64_t value) {
  write_all(socket, &value, sizeof value);
}

uint64_t hear(int socket) {
  uint64_t value;
  read_all(socket, &value, sizeof value);
  return value;
}

void tell_text(int socket, const std::string &text) {
  tell(socket, text.size());
  write_all(socket, text.data(), text.size());
}

std::string hear_text(int socket) {
  std::string text(hear(socket), '\0');
  read_all(socket, text.data(), text.size());
  return text;
}

}  // namespace weft::conformance
