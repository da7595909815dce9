// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/dgram_harness.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace weft::conformance::dgram {

namespace {

class StackIsThere : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!find_info()) stack_is_missing("FI_EP_DGRAM");
  }
};
[[maybe_unused]] const auto *const kStackIsThere =
    ::testing::AddGlobalTestEnvironment(new StackIsThere);

[[noreturn]] void give_up(const char *what) {
  throw std::runtime_error(std::string(what) + ": " + strerror(errno));
}

}  // namespace

Info make_hints(const Options &options) {
  Info hints = conformance::make_hints(options.caps);
  hints->addr_format = options.addr_format;
  hints->ep_attr->type = FI_EP_DGRAM;
  hints->ep_attr->max_msg_size = options.max_msg_size;
  hints->domain_attr->control_progress = options.progress;
  hints->domain_attr->data_progress = options.progress;
  hints->domain_attr->threading = options.threading;
  hints->domain_attr->resource_mgmt = options.resource_mgmt;
  hints->domain_attr->av_type = options.av_type;
  hints->tx_attr->size = options.tx_size;
  hints->rx_attr->size = options.rx_size;
  hints->tx_attr->op_flags = options.tx_op_flags;
  hints->rx_attr->op_flags = options.rx_op_flags;
  return hints;
}

Info find_info(const Options &options, uint64_t flags) {
  const Info hints = make_hints(options);
  Info list;
  const int rc =
      try_info(list, options.node.empty() ? nullptr : options.node.c_str(),
               options.service.empty() ? nullptr : options.service.c_str(), flags, hints.get());
  if (rc == -FI_ENODATA) return {};
  must(rc);
  for (const fi_info *info = list.get(); info != nullptr; info = info->next)
    if (info->fabric_attr->prov_name == stack()) return Info(fi_dupinfo(info));
  return {};
}

void covers(const std::string &features) {
  const auto *test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string all = features;
  for (int i = 0; i < test->result()->test_property_count(); ++i) {
    const auto &property = test->result()->GetTestProperty(i);
    if (property.key() == std::string("covers")) all = std::string(property.value()) + ", " + all;
  }
  ::testing::Test::RecordProperty("covers", all);
}

bool offers(uint64_t caps) {
  Options options;
  options.caps = caps;
  return find_info(options) != nullptr;
}

std::optional<Completion> poll(fid_cq *cq) {
  fi_cq_msg_entry entry{};
  Completion done;
  const ssize_t n = fi_cq_readfrom(cq, &entry, 1, &done.source);
  if (n == -FI_EAGAIN) return {};
  if (n == 1) {
    done.context = entry.op_context;
    done.flags = entry.flags;
    done.len = entry.len;
    return done;
  }
  if (n != -FI_EAVAIL) must(n == 0 ? -FI_EOTHER : n);
  fi_cq_err_entry error{};
  char data[256];
  error.err_data = data;
  error.err_data_size = sizeof data;
  const ssize_t m = fi_cq_readerr(cq, &error, 0);
  if (m != 1)
    throw std::runtime_error("fi_cq_read says -FI_EAVAIL, fi_cq_readerr " + std::to_string(m));
  done.context = error.op_context;
  done.flags = error.flags;
  done.len = error.len;
  done.olen = error.olen;
  done.err = error.err;
  done.prov_errno = error.prov_errno;
  if (error.err_data_size != 0)
    done.err_data.assign(static_cast<const char *>(error.err_data), error.err_data_size);
  return done;
}

// ---- one application ----

Node::Node(const Options &wanted, const std::function<void(Node &)> &before_enable)
    : options(wanted) {
  info = find_info(options, FI_SOURCE);
  if (!info) throw std::runtime_error("fi_getinfo finds no " + stack() + " for the test's hints");
  must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
  must(fi_domain(fabric, info.get(), domain.out(), nullptr));
  fi_av_attr av_attr{};
  av_attr.type = options.av_type != FI_AV_UNSPEC ? options.av_type : FI_AV_TABLE;
  must(fi_av_open(domain, &av_attr, av.out(), nullptr));
  must(fi_cq_open(domain, &options.tx_cq, tx_cq.out(), nullptr));
  must(fi_cq_open(domain, &options.rx_cq, rx_cq.out(), nullptr));
  must(fi_endpoint(domain, info.get(), ep.out(), this));
  must(fi_ep_bind(ep, av.fid(), 0));
  must(fi_ep_bind(ep, tx_cq.fid(), FI_TRANSMIT | options.tx_cq_flags));
  must(fi_ep_bind(ep, rx_cq.fid(), FI_RECV | options.rx_cq_flags));
  if (options.event_queue) {
    fi_eq_attr attr{};
    attr.wait_obj = FI_WAIT_NONE;
    must(fi_eq_open(fabric, &attr, eq.out(), nullptr));
    must(fi_ep_bind(ep, eq.fid(), 0));
  }
  if (before_enable) before_enable(*this);
  must(fi_enable(ep));
}

fi_addr_t Node::insert(const std::string &address) {
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  const char *text = address.c_str();  // those in text are an array of pointers (fi_av.3)
  const void *what = info->addr_format == FI_ADDR_STR ? static_cast<const void *>(&text) : text;
  const int n = fi_av_insert(av, what, 1, &to, 0, nullptr);
  if (n != 1) throw std::runtime_error("fi_av_insert: " + error_text(n));
  return to;
}

std::string Node::name() const {
  char buffer[256];
  size_t size = sizeof buffer;
  must(fi_getname(ep.fid(), buffer, &size));
  return {buffer, size};
}

fid_cntr *Node::count(uint64_t what, fi_cntr_attr attr) {
  counters.emplace_back();
  must(fi_cntr_open(domain, &attr, counters.back().out(), nullptr));
  must(fi_ep_bind(ep, counters.back().fid(), what));
  return counters.back();
}

void Node::progress() {
  fi_cq_read(tx_cq, nullptr, 0);
  fi_cq_read(rx_cq, nullptr, 0);
}

// ---- several ----

Net::Net(size_t nodes, const Options &options, const std::function<void(Node &)> &before_enable) {
  for (size_t i = 0; i < nodes; ++i) add(options, before_enable);
}

Node &Net::add(const Options &options, const std::function<void(Node &)> &before_enable) {
  nodes_.push_back(std::make_unique<Node>(options, before_enable));
  asleep_.push_back(false);
  Node &fresh = *nodes_.back();
  addresses_.emplace_back();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    addresses_.back().push_back(fresh.insert(nodes_[i]->name()));
    if (nodes_[i].get() != &fresh) addresses_[i].push_back(nodes_[i]->insert(fresh.name()));
  }
  return fresh;
}

void Net::progress() {
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (!asleep_[i]) nodes_[i]->progress();
}

bool Net::until(const std::function<bool()> &predicate) {
  const Deadline deadline;
  for (;;) {
    if (predicate()) return true;
    if (deadline.passed()) return false;
    progress();
    std::this_thread::yield();
  }
}

Completion Net::wait(fid_cq *cq) {
  std::optional<Completion> done;
  if (!until([&] { return (done = poll(cq)).has_value(); }))
    throw std::runtime_error("no completion came");
  return *done;
}

void Net::wait_count(fid_cntr *counter, uint64_t value) {
  if (!until([&] { return fi_cntr_read(counter) >= value; }))
    throw std::runtime_error("a counter stays at " + std::to_string(fi_cntr_read(counter)) +
                             " below " + std::to_string(value));
}

void Net::post(const std::function<ssize_t()> &operation) {
  ssize_t rc = 0;
  if (!until([&] { return (rc = operation()) != -FI_EAGAIN; }))
    throw std::runtime_error("-FI_EAGAIN for ever");
  must(rc);
}

void Net::settle() {
  // Loopback delivers within the sender's system call, so what was sent is there.
  for (int i = 0; i < 100; ++i) progress();
}

void Net::exchange(size_t from, size_t to, size_t bytes) {
  std::vector<uint8_t> out = pattern(bytes, unsigned(bytes)), in(bytes);
  must(fi_recv((*this)[to].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  post([&] {
    return fi_send((*this)[from].ep, out.data(), out.size(), nullptr, at(from, to), &out);
  });
  const Completion received = wait((*this)[to].rx_cq), sent = wait((*this)[from].tx_cq);
  EXPECT_EQ(received.err, 0) << fi_strerror(received.err);
  EXPECT_EQ(received.context, &in);
  EXPECT_EQ(received.len, bytes);
  EXPECT_EQ(sent.err, 0) << fi_strerror(sent.err);
  EXPECT_EQ(sent.context, &out);
  EXPECT_EQ(in, out);
}

std::vector<iovec> cut(std::vector<uint8_t> &bytes, size_t parts) {
  std::vector<iovec> iov;
  for (size_t i = 0, at = 0; i < parts; ++i) {
    const size_t end = bytes.size() * (i + 1) / parts;
    iov.push_back({bytes.data() + at, end - at});
    at = end;
  }
  return iov;
}

// ---- a plain socket ----

PlainSocket::PlainSocket(int family, const std::string &to_bind)
    : fd_(::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  if (fd_ < 0) give_up("socket");
  sockaddr_storage address{};
  socklen_t size;
  if (!to_bind.empty()) {
    std::memcpy(&address, to_bind.data(), size = socklen_t(to_bind.size()));
    const int on = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  } else if (family == AF_INET6) {
    auto &in = reinterpret_cast<sockaddr_in6 &>(address);
    in.sin6_family = AF_INET6;
    in.sin6_addr = in6addr_loopback;
    size = sizeof in;
  } else {
    auto &in = reinterpret_cast<sockaddr_in &>(address);
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size = sizeof in;
  }
  if (::bind(fd_, reinterpret_cast<const sockaddr *>(&address), size) != 0) give_up("bind");
}

PlainSocket::~PlainSocket() {
  ::close(fd_);
}

std::string PlainSocket::name() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd_, reinterpret_cast<sockaddr *>(&address), &size) != 0) give_up("getsockname");
  return {reinterpret_cast<const char *>(&address), size};
}

int PlainSocket::send(const std::string &to, const std::vector<uint8_t> &bytes) {
  sockaddr_storage address{};
  std::memcpy(&address, to.data(), to.size());
  return ::sendto(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr *>(&address),
                  socklen_t(to.size())) < 0
             ? -errno
             : 0;
}

std::optional<std::vector<uint8_t>> PlainSocket::receive(std::string *from,
                                                         std::chrono::milliseconds patience) {
  pollfd wait{fd_, POLLIN, 0};
  if (::poll(&wait, 1, int(patience.count())) != 1) return {};
  std::vector<uint8_t> bytes(65536);
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const ssize_t n =
      ::recvfrom(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr *>(&address), &size);
  if (n < 0) give_up("recvfrom");
  bytes.resize(size_t(n));
  if (from != nullptr) from->assign(reinterpret_cast<const char *>(&address), size);
  return bytes;
}

}  // namespace weft::conformance::dgram
