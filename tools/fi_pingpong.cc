// SPDX-License-Identifier: BSD-2-Clause

// fi_pingpong: messages go to and fro between two processes over one endpoint each. Options, output
// and the control connection are those of fi_pingpong(1), so that either side may be another
// implementation's program.
//
// The control connection is a TCP stream. All of it, in order:
//
//   server -> client   name: length (4 bytes, big endian), address format (4 bytes, host order),
//   the address client -> server   name, the same form; only for connectionless endpoints then for
//   each message size
//     client -> server "q\0", server -> client "a\0", the messages of the test on the endpoints,
//     client -> server number of answers that it got (10 bytes, decimal, zero padded), server "cnt
//     ok\0"
//
// After the last size both sides send "fin\0" as an ordinary message, transmit-complete, and wait
// for the other's.

#include <arpa/inet.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint16_t kDefaultPort = 47592;
constexpr uint64_t kDefaultSizes[] = {64, 256, 1024, 4096, 65536, 1048576};
constexpr uint64_t kLargestPower = uint64_t{4} << 20;  // of -S all
constexpr uint64_t kTag = 1234;                        // both sides of a tagged test must know it
constexpr char kFin[] = "fin";                         // sent with its zero byte
constexpr uint64_t kMaxIterations = 999'999'999;       // the count must fit the control message

// The bytes of a verified message: this alphabet over and over. Each message starts 7 letters
// further on than the one before, on both sides alike, so that a stale or repeated message is
// noticed, too.
constexpr std::string_view kAlphabet =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr size_t kAlphabetStep = 7;

struct Options {
  std::string server;  // empty: this side is the server
  uint16_t src_port = 0;
  uint16_t dst_port = 0;
  bool ipv6 = false;
  std::optional<std::string> provider;
  std::optional<std::string> domain;
  fi_ep_type type = FI_EP_DGRAM;
  bool tagged = false;
  uint64_t iterations = 10;
  std::optional<uint64_t> size;  // unset: several
  bool all_sizes = false;        // -S all rather than the default sizes
  bool verify = false;
  bool verbose = false;
  std::chrono::seconds timeout{30};
  bool timeout_given = false;

  bool IsServer() const { return server.empty(); }
};

bool verbose_output = false;

__attribute__((format(printf, 1, 2))) void Debug(const char *format, ...) {
  if (!verbose_output) {
    return;
  }
  std::fputs("[debug] ", stderr);
  va_list args;
  va_start(args, format);
  std::vfprintf(stderr, format, args);
  va_end(args);
  std::fputc('\n', stderr);
}

// Why the test ended early: an error number for the exit status, and what to tell the user.
class Failure : public std::exception {
 public:
  Failure(int err, std::string text) : err_(err), text_(std::move(text)) {}
  int err() const { return err_; }
  const char *what() const noexcept override { return text_.c_str(); }

 private:
  int err_;
  std::string text_;
};

__attribute__((format(printf, 1, 2))) std::string Format(const char *format, ...) {
  va_list args;
  va_start(args, format);
  va_list again;
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string text(length > 0 ? static_cast<size_t>(length) : 0, '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

// For libfabric calls, which return a negative error number.
int Check(int64_t ret, const char *call) {
  if (ret < 0) {
    throw Failure(static_cast<int>(-ret),
                  Format("%s: %s", call, fi_strerror(static_cast<int>(-ret))));
  }
  return static_cast<int>(ret);
}

struct FidCloser {
  template <typename Fid>
  void operator()(Fid *object) const {
    if (const int ret = fi_close(&object->fid); ret != 0) {
      Debug("fi_close: %s", fi_strerror(-ret));
    }
  }
};

template <typename Fid>
using Owned = std::unique_ptr<Fid, FidCloser>;
using Info = std::unique_ptr<fi_info, decltype(&fi_freeinfo)>;

std::string Printable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    text += std::isprint(static_cast<unsigned char>(c)) != 0
                ? std::string(1, c)
                : Format("\\x%02x", static_cast<unsigned char>(c));
  }
  return text;
}

// --- control connection ------------------------------------------------------------------------

class Deadline {
 public:
  explicit Deadline(Clock::duration after) : at_(Clock::now() + after) {}
  bool Passed() const { return Clock::now() >= at_; }
  // For poll(2): at least 1 while there is time left, so that the last fraction of a millisecond is
  // slept too.
  int Milliseconds() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
  }

 private:
  Clock::time_point at_;
};

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  int fd() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// False when the deadline passed first.
bool WaitFor(int fd, short events, const Deadline &deadline) {
  while (true) {
    pollfd entry = {fd, events, 0};
    const int ret = poll(&entry, 1, deadline.Milliseconds());
    if (ret > 0) {
      return true;
    }
    if (ret < 0 && errno != EINTR) {
      throw Failure(errno, Format("poll: %s", std::strerror(errno)));
    }
    if (deadline.Passed()) {
      return false;
    }
  }
}

class Control {
 public:
  explicit Control(const Options &options) : options_(options) {}

  void Listen() {
    const uint16_t port = options_.src_port != 0 ? options_.src_port : kDefaultPort;
    Socket socket_fd(
        socket(options_.ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_fd.valid()) {
      throw Failure(errno, Format("cannot make a control socket: %s", std::strerror(errno)));
    }
    Bind(socket_fd, port);
    if (listen(socket_fd.fd(), 10) != 0) {
      throw Failure(errno,
                    Format("cannot listen on control port %u: %s", port, std::strerror(errno)));
    }
    listener_ = std::move(socket_fd);
    Debug("control: listening on port %u", port);
  }

  void Accept() {
    // A server waits as long as it takes for its client, unless it was told a time.
    std::optional<Deadline> deadline;
    if (options_.timeout_given) {
      deadline.emplace(options_.timeout);
    }
    while (true) {
      if (!WaitFor(listener_.fd(), POLLIN, deadline.value_or(Deadline(std::chrono::hours(1)))) &&
          deadline) {
        throw Failure(ETIMEDOUT, Format("no client connected within %lld s",
                                        static_cast<long long>(options_.timeout.count())));
      }
      Socket accepted(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (accepted.valid()) {
        peer_ = std::move(accepted);
        break;
      }
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        throw Failure(errno, Format("accept on the control port: %s", std::strerror(errno)));
      }
    }
    listener_ = Socket();
    NoDelay();
    Debug("control: a client connected");
  }

  void Connect() {
    const uint16_t port = options_.dst_port != 0 ? options_.dst_port : kDefaultPort;
    addrinfo want = {};
    want.ai_family = options_.ipv6 ? AF_INET6 : AF_UNSPEC;
    want.ai_socktype = SOCK_STREAM;
    addrinfo *raw = nullptr;
    const int ret = getaddrinfo(options_.server.c_str(), std::to_string(port).c_str(), &want, &raw);
    if (ret != 0) {
      throw Failure(EHOSTUNREACH, Format("cannot resolve the server's name '%s': %s",
                                         options_.server.c_str(), gai_strerror(ret)));
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(raw, &freeaddrinfo);
    int last_error = EHOSTUNREACH;
    for (const addrinfo *address = raw; address != nullptr; address = address->ai_next) {
      Socket socket_fd(socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (!socket_fd.valid()) {
        last_error = errno;
        continue;
      }
      if (options_.src_port != 0) {
        Bind(socket_fd, options_.src_port, address->ai_family);
      }
      last_error = ConnectOne(socket_fd, *address);
      if (last_error == 0) {
        peer_ = std::move(socket_fd);
        NoDelay();
        Debug("control: connected to %s port %u", options_.server.c_str(), port);
        return;
      }
    }
    throw Failure(last_error,
                  Format("cannot connect to the server's control port %s:%u: %s; is "
                         "fi_pingpong running there, and is -B there the same as -P here?",
                         options_.server.c_str(), port, std::strerror(last_error)));
  }

  void Send(std::string_view bytes, const char *what) {
    const Deadline deadline(options_.timeout);
    while (!bytes.empty()) {
      const ssize_t sent = send(peer_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        bytes.remove_prefix(static_cast<size_t>(sent));
      } else if (errno == EAGAIN) {
        if (!WaitFor(peer_.fd(), POLLOUT, deadline)) {
          TimedOut("sending", what);
        }
      } else if (errno != EINTR) {
        throw Failure(errno, Format("control: sending %s: %s", what, std::strerror(errno)));
      }
    }
  }

  std::string Receive(size_t length, const char *what) {
    const Deadline deadline(options_.timeout);
    std::string bytes(length, '\0');
    size_t have = 0;
    while (have < length) {
      const ssize_t got = recv(peer_.fd(), bytes.data() + have, length - have, 0);
      if (got > 0) {
        have += static_cast<size_t>(got);
      } else if (got == 0) {
        throw Failure(ECONNABORTED,
                      Format("control: the peer closed the connection before it sent %s", what));
      } else if (errno == EAGAIN) {
        if (progress_) {
          progress_();
        }
        const bool ready = WaitFor(peer_.fd(), POLLIN,
                                   progress_ ? Deadline(std::chrono::milliseconds(1)) : deadline);
        if (!ready && deadline.Passed()) {
          TimedOut("waiting for", what);
        }
      } else if (errno != EINTR) {
        throw Failure(errno, Format("control: waiting for %s: %s", what, std::strerror(errno)));
      }
    }
    return bytes;
  }

  struct State {
    bool pending;  // there are bytes that nobody has asked for yet
    bool closed;   // the peer has closed its end, whether or not bytes are pending
  };
  State Peek() const {
    pollfd entry = {peer_.fd(), POLLIN | POLLRDHUP, 0};
    if (poll(&entry, 1, 0) <= 0) {
      return {false, false};
    }
    char byte;
    return {recv(peer_.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0,
            (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0};
  }

  // Called while this side waits for a control message, so that the endpoint goes on meanwhile.
  void OnWait(std::function<void()> progress) { progress_ = std::move(progress); }

  void SendName(const std::string &name, uint32_t format) {
    const uint32_t length = htonl(static_cast<uint32_t>(name.size()));
    std::string bytes(reinterpret_cast<const char *>(&length), sizeof(length));
    bytes.append(reinterpret_cast<const char *>(&format), sizeof(format));
    Send(bytes + name, "the endpoint's address");
    Debug("control: sent an address of %zu bytes, format %s", name.size(),
          fi_tostr(&format, FI_TYPE_ADDR_FORMAT));
  }

  std::string ReceiveName(uint32_t *format) {
    constexpr uint32_t kMaxName = 4096;
    uint32_t length = 0;
    std::memcpy(&length, Receive(sizeof(length), "the length of its address").data(),
                sizeof(length));
    length = ntohl(length);
    if (length == 0 || length > kMaxName) {
      throw Failure(EPROTO, Format("control: the peer announced an address of %u bytes; it is not "
                                   "fi_pingpong, or its -e differs from the one here",
                                   length));
    }
    std::memcpy(format, Receive(sizeof(*format), "its address format").data(), sizeof(*format));
    std::string name = Receive(length, "its address");
    Debug("control: received an address of %u bytes, format %s", length,
          fi_tostr(format, FI_TYPE_ADDR_FORMAT));
    return name;
  }

  // Both sides leave this at about the same time.
  void Sync() {
    if (options_.IsServer()) {
      Expect(std::string_view("q", 2), "the start of a test");
      Send(std::string_view("a", 2), "the answer to the start of a test");
    } else {
      Send(std::string_view("q", 2), "the start of a test");
      Expect(std::string_view("a", 2), "the answer to the start of a test");
    }
  }

  // Returns how many answers reached the client.
  uint64_t ExchangeCount(uint64_t received) {
    constexpr size_t kCountLength = 10;
    constexpr std::string_view kAnswer("cnt ok", 7);
    if (!options_.IsServer()) {
      std::string bytes = std::to_string(received);
      bytes.resize(kCountLength, '\0');
      Send(bytes, "the number of answers");
      Expect(kAnswer, "the confirmation of the number of answers");
      return received;
    }
    const std::string bytes = Receive(kCountLength, "the number of answers");
    uint64_t count = 0;
    const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), count);
    if (error != std::errc() || (end != bytes.data() + bytes.size() && *end != '\0')) {
      throw Failure(EPROTO, Format("control: expected the number of answers, got '%s'",
                                   Printable(bytes).c_str()));
    }
    Send(kAnswer, "the confirmation of the number of answers");
    return count;
  }

 private:
  void Bind(const Socket &socket_fd, uint16_t port, int family = 0) const {
    if (family == 0) {
      family = options_.ipv6 ? AF_INET6 : AF_INET;
    }
    const int on = 1;
    setsockopt(socket_fd.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in v4 = {};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    sockaddr_in6 v6 = {};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    const bool is_v6 = family == AF_INET6;
    const sockaddr *address =
        is_v6 ? reinterpret_cast<sockaddr *>(&v6) : reinterpret_cast<sockaddr *>(&v4);
    if (bind(socket_fd.fd(), address, is_v6 ? sizeof(v6) : sizeof(v4)) != 0) {
      throw Failure(errno, Format("cannot bind the control socket to port %u: %s; choose another "
                                  "with -B",
                                  port, std::strerror(errno)));
    }
  }

  // Returns 0 or the error number.
  int ConnectOne(const Socket &socket_fd, const addrinfo &address) const {
    if (connect(socket_fd.fd(), address.ai_addr, address.ai_addrlen) == 0) {
      return 0;
    }
    if (errno != EINPROGRESS && errno != EINTR) {
      return errno;
    }
    if (!WaitFor(socket_fd.fd(), POLLOUT, Deadline(options_.timeout))) {
      return ETIMEDOUT;
    }
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(socket_fd.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
  }

  void NoDelay() const {
    const int on = 1;
    setsockopt(peer_.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }

  void Expect(std::string_view expected, const char *what) {
    const std::string bytes = Receive(expected.size(), what);
    if (bytes != expected) {
      throw Failure(EPROTO,
                    Format("control: expected %s, got '%s'; both sides must be started with the "
                           "same -e, -I, -S and -p",
                           what, Printable(bytes).c_str()));
    }
  }

  [[noreturn]] void TimedOut(const char *doing, const char *what) const {
    throw Failure(ETIMEDOUT, Format("control: %s %s: the peer was silent for %lld s", doing, what,
                                    static_cast<long long>(options_.timeout.count())));
  }

  const Options &options_;
  std::function<void()> progress_;
  Socket listener_;
  Socket peer_;
};

// --- the test ----------------------------------------------------------------------------------

// 1500 -> "1.4k", 15000 -> "14k": a decimal only below ten and only when it is not zero; cut off,
// not rounded.
std::string SizeText(uint64_t bytes) {
  static constexpr char kUnits[] = {'k', 'm', 'g', 't', 'p', 'e'};
  if (bytes < 1024) {
    return std::to_string(bytes);
  }
  size_t unit = 0;
  uint64_t base = 1024;
  while (unit + 1 < sizeof(kUnits) && bytes / base >= 1024) {
    base *= 1024;
    ++unit;
  }
  // base/1024 steps keep this within 64 bits.
  const uint64_t tenths = (bytes % base) / (base / 1024) * 10 / 1024;
  const std::string whole = std::to_string(bytes / base);
  const bool decimal = tenths != 0 && bytes / base < 10;
  return (decimal ? whole + "." + std::to_string(tenths) : whole) + kUnits[unit];
}

std::string CountText(uint64_t count) {
  if (count >= 1'000'000'000) return std::to_string(count / 1'000'000'000) + "b";
  if (count >= 1'000'000) return std::to_string(count / 1'000'000) + "m";
  if (count >= 1'000) return std::to_string(count / 1'000) + "k";
  return std::to_string(count);
}

class PingPong {
 public:
  explicit PingPong(const Options &options) : options_(options), control_(options) {}

  void Run() {
    if (options_.IsServer()) {
      // All that can fail here is done before a client may come.
      GetInfo({}, 0);
      if (options_.type == FI_EP_MSG) {
        OpenPassiveEndpoint();
      } else {
        OpenEndpoint(info_.get());
      }
      control_.Listen();
      control_.Accept();
      options_.type == FI_EP_MSG ? AcceptConnection() : ExchangeNames();
    } else {
      control_.Connect();
      uint32_t format = FI_FORMAT_UNSPEC;
      peer_name_ = control_.ReceiveName(&format);
      GetInfo(peer_name_, format);
      OpenFabric();
      OpenEndpoint(info_.get());
      options_.type == FI_EP_MSG ? MakeConnection() : ExchangeNames();
    }
    control_.OnWait([this] {
      ReadCq(tx_cq_.get(), &sends_done_);
      ReadCq(rx_cq_.get(), &receives_done_);
      if (counting_ && options_.IsServer() && receives_done_ == receives_posted_) {
        throw Failure(EPROTO, Format("the client sends more than the %llu messages of this test; "
                                     "both sides need the same -I",
                                     static_cast<unsigned long long>(options_.iterations)));
      }
    });
    for (const uint64_t size : sizes_) {
      RunSize(size);
    }
    Finish();
  }

 private:
  // The peer's address, when known, decides the interface.
  void GetInfo(const std::string &peer_name, uint32_t format) {
    const Info hints(fi_allocinfo(), &fi_freeinfo);
    if (hints == nullptr) {
      throw std::bad_alloc();
    }
    hints->caps = options_.tagged ? FI_TAGGED : FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX;
    hints->ep_attr->type = options_.type;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    if (options_.provider) {
      hints->fabric_attr->prov_name = strdup(options_.provider->c_str());
    }
    if (options_.domain) {
      hints->domain_attr->name = strdup(options_.domain->c_str());
    }
    if (!peer_name.empty()) {
      hints->addr_format = format;
      hints->dest_addr = std::malloc(peer_name.size());
      if (hints->dest_addr == nullptr) {
        throw std::bad_alloc();
      }
      std::memcpy(hints->dest_addr, peer_name.data(), peer_name.size());
      hints->dest_addrlen = peer_name.size();
    }
    // The library refuses an API version that is newer than itself.
    const uint32_t version =
        std::min<uint32_t>(fi_version(), FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION));
    fi_info *raw = nullptr;
    const int ret = fi_getinfo(version, nullptr, nullptr, 0, hints.get(), &raw);
    if (ret != 0) {
      throw Failure(
          -ret,
          Format("fi_getinfo: %s: no interface for provider %s, endpoint type %s, domain %s%s; "
                 "'fi_info' lists what there is",
                 fi_strerror(-ret), options_.provider ? options_.provider->c_str() : "(any)",
                 fi_tostr(&options_.type, FI_TYPE_EP_TYPE),
                 options_.domain ? options_.domain->c_str() : "(any)",
                 peer_name.empty() ? "" : " that reaches the server's address"));
    }
    info_.reset(raw);
    Debug("the first interface that fits:\n%s", verbose_output ? fi_tostr(raw, FI_TYPE_INFO) : "");
    ChooseSizes();
  }

  void ChooseSizes() {
    const uint64_t limit = info_->ep_attr->max_msg_size;
    sizes_.clear();
    if (options_.size) {
      if (*options_.size > limit) {
        throw Failure(
            EMSGSIZE,
            Format("-S %llu is larger than the %llu bytes that a message of provider %s "
                   "can have",
                   static_cast<unsigned long long>(*options_.size),
                   static_cast<unsigned long long>(limit), info_->fabric_attr->prov_name));
      }
      sizes_.push_back(*options_.size);
      return;
    }
    if (options_.all_sizes) {
      // Zero, every power of two, and what lies in the middle between two of them.
      sizes_ = {0, 1};
      for (uint64_t power = 2; power <= kLargestPower; power *= 2) {
        sizes_.push_back(power);
        sizes_.push_back(power + power / 2);
      }
    } else {
      sizes_.assign(std::begin(kDefaultSizes), std::end(kDefaultSizes));
    }
    std::erase_if(sizes_, [limit](uint64_t size) { return size > limit; });
    if (sizes_.empty()) {
      throw Failure(EMSGSIZE,
                    Format("no default size fits into the %llu bytes that a message of "
                           "provider %s can have; give one with -S",
                           static_cast<unsigned long long>(limit), info_->fabric_attr->prov_name));
    }
  }

  void OpenFabric() {
    fid_fabric *fabric = nullptr;
    Check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
    fabric_.reset(fabric);
    if (options_.type != FI_EP_MSG) {
      return;
    }
    fi_eq_attr attr = {};
    attr.wait_obj = FI_WAIT_UNSPEC;
    fid_eq *eq = nullptr;
    Check(fi_eq_open(fabric_.get(), &attr, &eq, nullptr), "fi_eq_open");
    eq_.reset(eq);
  }

  void OpenPassiveEndpoint() {
    OpenFabric();
    fid_pep *pep = nullptr;
    Check(fi_passive_ep(fabric_.get(), info_.get(), &pep, nullptr), "fi_passive_ep");
    pep_.reset(pep);
    Check(fi_pep_bind(pep, &eq_->fid, 0), "fi_pep_bind");
    Check(fi_listen(pep), "fi_listen");
  }

  void OpenEndpoint(fi_info *info) {
    if (fabric_ == nullptr) {
      OpenFabric();
    }
    fid_domain *domain = nullptr;
    Check(fi_domain(fabric_.get(), info, &domain, nullptr), "fi_domain");
    domain_.reset(domain);
    tx_cq_ = OpenCq(info->tx_attr->size);
    rx_cq_ = OpenCq(info->rx_attr->size);
    fid_ep *ep = nullptr;
    Check(fi_endpoint(domain, info, &ep, nullptr), "fi_endpoint");
    ep_.reset(ep);
    if (options_.type == FI_EP_MSG) {
      Check(fi_ep_bind(ep, &eq_->fid, 0), "fi_ep_bind of the event queue");
    } else {
      fi_av_attr attr = {};
      attr.type =
          info->domain_attr->av_type != FI_AV_UNSPEC ? info->domain_attr->av_type : FI_AV_TABLE;
      attr.count = 1;
      fid_av *av = nullptr;
      Check(fi_av_open(domain, &attr, &av, nullptr), "fi_av_open");
      av_.reset(av);
      Check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind of the address vector");
    }
    Check(fi_ep_bind(ep, &tx_cq_->fid, FI_TRANSMIT), "fi_ep_bind of the transmit queue");
    Check(fi_ep_bind(ep, &rx_cq_->fid, FI_RECV), "fi_ep_bind of the receive queue");
    inject_limit_ = info->tx_attr->inject_size;
    prefix_ = (info->mode & FI_MSG_PREFIX) != 0 ? info->ep_attr->msg_prefix_size : 0;
    Check(fi_enable(ep), "fi_enable");
    AllocateBuffers(*info);
    PostReceive();
  }

  Owned<fid_cq> OpenCq(size_t size) const {
    fi_cq_attr attr = {};
    attr.format = FI_CQ_FORMAT_MSG;
    attr.wait_obj = FI_WAIT_NONE;
    attr.size = size;
    fid_cq *cq = nullptr;
    Check(fi_cq_open(domain_.get(), &attr, &cq, nullptr), "fi_cq_open");
    return Owned<fid_cq>(cq);
  }

  void AllocateBuffers(const fi_info &info) {
    constexpr size_t kPage = 4096;
    const uint64_t payload = std::max<uint64_t>(sizes_.back(), sizeof(kFin));
    if (payload > (SIZE_MAX / 4)) {
      throw std::bad_alloc();
    }
    buffer_length_ = prefix_ + payload;
    const size_t pages = (buffer_length_ + kPage - 1) / kPage * kPage;
    char *memory = static_cast<char *>(std::aligned_alloc(kPage, 2 * pages));
    if (memory == nullptr) {
      throw Failure(ENOMEM, Format("cannot allocate two buffers of %zu bytes", pages));
    }
    memory_.reset(memory);
    std::memset(memory, 0, 2 * pages);
    tx_buffer_ = memory;
    rx_buffer_ = memory + pages;
    if ((info.domain_attr->mr_mode & FI_MR_LOCAL) == 0) {
      return;
    }
    fid_mr *mr = nullptr;
    Check(fi_mr_reg(domain_.get(), memory, 2 * pages, FI_SEND | FI_RECV, 0, 1, 0, &mr, nullptr),
          "fi_mr_reg");
    mr_.reset(mr);
    if ((info.domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
      Check(fi_mr_bind(mr, &ep_->fid, 0), "fi_mr_bind");
      Check(fi_mr_enable(mr), "fi_mr_enable");
    }
    mr_desc_ = fi_mr_desc(mr);
  }

  static std::string NameOf(fid_t fid) {
    size_t length = 0;
    int ret = fi_getname(fid, nullptr, &length);
    if (ret != -FI_ETOOSMALL) {
      Check(ret, "fi_getname");
    }
    std::string name(length, '\0');
    Check(fi_getname(fid, name.data(), &length), "fi_getname");
    name.resize(std::min(length, name.size()));
    return name;
  }

  // --- connections of FI_EP_MSG

  void AcceptConnection() {
    control_.SendName(NameOf(&pep_->fid), info_->addr_format);
    fi_eq_cm_entry entry = {};
    WaitEvent(FI_CONNREQ, "FI_CONNREQ", &entry);
    const Info request(entry.info, &fi_freeinfo);
    try {
      OpenEndpoint(entry.info);
      Check(fi_accept(ep_.get(), nullptr, 0), "fi_accept");
    } catch (...) {
      // Otherwise the client would have to find out by its timeout.
      if (ep_ == nullptr) {
        fi_reject(pep_.get(), entry.info->handle, nullptr, 0);
      }
      throw;
    }
    WaitEvent(FI_CONNECTED, "FI_CONNECTED", &entry);
    Debug("connection accepted");
  }

  void MakeConnection() {
    Check(fi_connect(ep_.get(), info_->dest_addr, nullptr, 0), "fi_connect");
    fi_eq_cm_entry entry = {};
    WaitEvent(FI_CONNECTED, "FI_CONNECTED", &entry);
    Debug("connected");
  }

  void WaitEvent(uint32_t wanted, const char *name, fi_eq_cm_entry *entry) {
    const Deadline deadline(options_.timeout);
    while (true) {
      uint32_t event = 0;
      const ssize_t ret = fi_eq_sread(eq_.get(), &event, entry, sizeof(*entry), 100, 0);
      if (ret >= 0) {
        if (event == wanted) {
          return;
        }
        if (event == FI_CONNREQ) {
          fi_freeinfo(entry->info);
        }
        throw Failure(EPROTO, Format("expected the event %s, got %s", name,
                                     fi_tostr(&event, FI_TYPE_EQ_EVENT)));
      }
      if (ret == -FI_EAVAIL) {
        ThrowEqError(name);
      }
      if (ret != -FI_EAGAIN && ret != -FI_EINTR && ret != -FI_ETIMEDOUT) {
        Check(ret, "fi_eq_sread");
      }
      const Control::State peer = control_.Peek();
      if (peer.closed) {
        throw Failure(ECONNABORTED,
                      Format("the peer went away while this side waited for %s", name));
      }
      if (peer.pending && wanted == FI_CONNREQ) {
        throw Failure(EPROTO, "the client does not connect an endpoint; both sides need -e msg");
      }
      if (deadline.Passed()) {
        throw Failure(ETIMEDOUT, Format("no %s within %lld s", name,
                                        static_cast<long long>(options_.timeout.count())));
      }
    }
  }

  [[noreturn]] void ThrowEqError(const char *name) {
    fi_eq_err_entry error = {};
    Check(fi_eq_readerr(eq_.get(), &error, 0), "fi_eq_readerr");
    const char *detail = fi_eq_strerror(eq_.get(), error.prov_errno, error.err_data, nullptr, 0);
    throw Failure(error.err, Format("waiting for %s: %s (provider: %s)", name,
                                    fi_strerror(error.err), detail != nullptr ? detail : ""));
  }

  // --- addresses of FI_EP_RDM and FI_EP_DGRAM

  void ExchangeNames() {
    const std::string name = NameOf(&ep_->fid);
    control_.SendName(name, info_->addr_format);
    if (options_.IsServer()) {
      uint32_t format = FI_FORMAT_UNSPEC;
      peer_name_ = control_.ReceiveName(&format);
      if (format != info_->addr_format) {
        // The variables keep both texts alive: fi_tostr has one buffer.
        const std::string theirs = fi_tostr(&format, FI_TYPE_ADDR_FORMAT);
        const std::string ours = fi_tostr(&info_->addr_format, FI_TYPE_ADDR_FORMAT);
        throw Failure(EPROTO, Format("the client has addresses of format %s, this side %s; give "
                                     "both sides the same -p and -d",
                                     theirs.c_str(), ours.c_str()));
      }
    }
    const int inserted =
        Check(fi_av_insert(av_.get(), peer_name_.data(), 1, &peer_, 0, nullptr), "fi_av_insert");
    if (inserted != 1) {
      throw Failure(EADDRNOTAVAIL, "fi_av_insert: the provider did not take the peer's address");
    }
  }

  // --- messages

  void PostReceive() {
    while (true) {
      const ssize_t ret = options_.tagged
                              ? fi_trecv(ep_.get(), rx_buffer_, buffer_length_, mr_desc_,
                                         FI_ADDR_UNSPEC, kTag, 0, &rx_context_)
                              : fi_recv(ep_.get(), rx_buffer_, buffer_length_, mr_desc_,
                                        FI_ADDR_UNSPEC, &rx_context_);
      if (ret != -FI_EAGAIN) {
        Check(ret, "posting a receive");
        ++receives_posted_;
        return;
      }
      Progress("room to post a receive", false);
    }
  }

  // Returns when the buffer may be used again.
  void SendMessage(uint64_t size) {
    if (options_.verify) {
      Fill(size);
    }
    const size_t length = prefix_ + size;
    const bool inject = size <= inject_limit_;
    while (true) {
      ssize_t ret;
      if (inject) {
        ret = options_.tagged ? fi_tinject(ep_.get(), tx_buffer_, length, peer_, kTag)
                              : fi_inject(ep_.get(), tx_buffer_, length, peer_);
      } else {
        ret = options_.tagged
                  ? fi_tsend(ep_.get(), tx_buffer_, length, mr_desc_, peer_, kTag, &tx_context_)
                  : fi_send(ep_.get(), tx_buffer_, length, mr_desc_, peer_, &tx_context_);
      }
      if (ret != -FI_EAGAIN) {
        Check(ret, "sending a message");
        break;
      }
      Progress("room to send a message", false);
    }
    if (!inject) {
      ++sends_posted_;
      while (sends_done_ < sends_posted_) {
        if (!ReadCq(tx_cq_.get(), &sends_done_)) {
          Idle("the completion of a send", false);
        }
      }
    }
    idle_spins_ = 0;
  }

  void ReceiveMessage(uint64_t size) {
    while (receives_done_ < receives_posted_) {
      if (!ReadCq(rx_cq_.get(), &receives_done_)) {
        Idle("a message", true);
      }
    }
    idle_spins_ = 0;
    // With a prefix it is the provider's business whether that counts.
    if (prefix_ == 0 && received_length_ != size) {
      throw Failure(EPROTO, Format("a message of %zu bytes arrived in a test of %llu bytes; both "
                                   "sides need the same -S",
                                   received_length_, static_cast<unsigned long long>(size)));
    }
    if (options_.verify) {
      Verify(size);
    }
    PostReceive();
  }

  void Fill(uint64_t size) {
    char *at = tx_buffer_ + prefix_;
    for (uint64_t i = 0; i < size; ++i) {
      at[i] = kAlphabet[(tx_letter_ + i) % kAlphabet.size()];
    }
    tx_letter_ = (tx_letter_ + kAlphabetStep) % kAlphabet.size();
  }

  void Verify(uint64_t size) {
    const char *at = rx_buffer_ + prefix_;
    for (uint64_t i = 0; i < size; ++i) {
      const char expected = kAlphabet[(rx_letter_ + i) % kAlphabet.size()];
      if (at[i] != expected) {
        throw Failure(
            EIO, Format("data integrity: byte %llu of a message of %llu bytes is '%s' "
                        "instead of '%c'; if the peer runs without -c, its data mean "
                        "nothing",
                        static_cast<unsigned long long>(i), static_cast<unsigned long long>(size),
                        Printable(std::string_view(at + i, 1)).c_str(), expected));
      }
    }
    rx_letter_ = (rx_letter_ + kAlphabetStep) % kAlphabet.size();
  }

  // False when nothing had completed.
  bool ReadCq(fid_cq *cq, uint64_t *done) {
    fi_cq_msg_entry entry;
    const ssize_t ret = fi_cq_read(cq, &entry, 1);
    if (ret == 1) {
      ++*done;
      if (cq == rx_cq_.get()) {
        received_length_ = entry.len;
      }
      return true;
    }
    if (ret == -FI_EAGAIN) {
      return false;
    }
    if (ret != -FI_EAVAIL) {
      Check(ret, "fi_cq_read");
    }
    fi_cq_err_entry error = {};
    Check(fi_cq_readerr(cq, &error, 0), "fi_cq_readerr");
    const char *detail = fi_cq_strerror(cq, error.prov_errno, error.err_data, nullptr, 0);
    throw Failure(error.err, Format("%s failed: %s (provider: %s)%s",
                                    cq == rx_cq_.get() ? "a receive" : "a send",
                                    fi_strerror(error.err), detail != nullptr ? detail : "",
                                    control_.Peek().closed ? "; the peer has gone" : ""));
  }

  void Progress(const char *what, bool receiving) {
    const bool sent = ReadCq(tx_cq_.get(), &sends_done_);
    const bool received = ReadCq(rx_cq_.get(), &receives_done_);
    if (!sent && !received) {
      Idle(what, receiving);
    }
  }

  // Called each time that a poll found nothing. Looking at the clock and at the control connection
  // costs system calls, so it happens once in many polls; a peer that died or that runs another
  // test is noticed there.
  void Idle(const char *what, bool receiving) {
    constexpr uint64_t kSpins = 1024;
    if (++idle_spins_ % kSpins != 0) {
      return;
    }
    sched_yield();
    const Clock::time_point now = Clock::now();
    if (idle_spins_ == kSpins) {
      idle_since_ = now;
    }
    const Control::State peer = control_.Peek();
    if (peer.closed) {
      throw Failure(ECONNABORTED, Format("the peer went away while this side waited for %s", what));
    }
    // The next control message comes only after the last data message has been answered.
    if (peer.pending && receiving) {
      throw Failure(EPROTO, Format("the peer has ended its test while this side waits for %s; both "
                                   "sides need the same -I",
                                   what));
    }
    if (now - idle_since_ >= options_.timeout) {
      throw Failure(
          ETIMEDOUT,
          Format("waited %lld s for %s%s", static_cast<long long>(options_.timeout.count()), what,
                 options_.type == FI_EP_DGRAM
                     ? "; datagrams may get lost, and this test does not repeat them"
                     : "; are -e, -I, -S and -p the same on both sides?"));
    }
  }

  void RunSize(uint64_t size) {
    control_.Sync();
    uint64_t answers = 0;
    idle_spins_ = 0;
    const Clock::time_point start = Clock::now();
    if (options_.IsServer()) {
      for (uint64_t i = 0; i < options_.iterations; ++i) {
        ReceiveMessage(size);
        SendMessage(size);
      }
    } else {
      for (; answers < options_.iterations; ++answers) {
        SendMessage(size);
        ReceiveMessage(size);
      }
    }
    const Clock::duration elapsed = Clock::now() - start;
    counting_ = true;
    answers = control_.ExchangeCount(answers);
    counting_ = false;
    Report(size, answers, std::chrono::duration<double, std::micro>(elapsed).count());
  }

  void Report(uint64_t size, uint64_t answers, double microseconds) {
    if (!header_printed_) {
      std::printf(
          "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n");
      header_printed_ = true;
    }
    const uint64_t sent = options_.iterations;
    const uint64_t total = 2 * sent * size;
    const double per_transfer = microseconds / (2.0 * static_cast<double>(sent));
    // Equal numbers are marked =; otherwise the difference, + where answers are missing.
    const char sign = answers == sent ? '=' : answers < sent ? '+' : '-';
    const uint64_t shown = answers == sent  ? answers
                           : answers < sent ? sent - answers
                                            : answers - sent;
    std::printf("%-8s%-8s%c%-8s%-8s%8.2fs%10.2f%11.2f%11.2f\n", SizeText(size).c_str(),
                CountText(sent).c_str(), sign, CountText(shown).c_str(), SizeText(total).c_str(),
                microseconds / 1e6, static_cast<double>(total) / microseconds, per_transfer,
                1.0 / per_transfer);
    std::fflush(stdout);
  }

  // Each side tells the other that it has what it wants, so that neither closes while the other
  // still needs it. The results are printed by now: whatever fails here, a lost datagram for
  // instance, is of no interest beyond -v.
  void Finish() {
    std::memcpy(tx_buffer_ + prefix_, kFin, sizeof(kFin));
    iovec iov = {tx_buffer_, prefix_ + sizeof(kFin)};
    const Deadline deadline(std::min<Clock::duration>(options_.timeout, std::chrono::seconds(5)));
    try {
      while (true) {
        ssize_t ret;
        if (options_.tagged) {
          fi_msg_tagged message = {};
          message.msg_iov = &iov;
          message.desc = &mr_desc_;
          message.iov_count = 1;
          message.addr = peer_;
          message.tag = kTag;
          message.context = &tx_context_;
          ret = fi_tsendmsg(ep_.get(), &message, FI_TRANSMIT_COMPLETE);
        } else {
          fi_msg message = {};
          message.msg_iov = &iov;
          message.desc = &mr_desc_;
          message.iov_count = 1;
          message.addr = peer_;
          message.context = &tx_context_;
          ret = fi_sendmsg(ep_.get(), &message, FI_TRANSMIT_COMPLETE);
        }
        if (ret != -FI_EAGAIN) {
          Check(ret, "sending the last message");
          ++sends_posted_;
          break;
        }
        ReadCq(tx_cq_.get(), &sends_done_);
        ReadCq(rx_cq_.get(), &receives_done_);
        if (deadline.Passed()) {
          throw Failure(ETIMEDOUT, "no room to send the last message");
        }
      }
      while (sends_done_ < sends_posted_ || receives_done_ < receives_posted_) {
        const bool sent = ReadCq(tx_cq_.get(), &sends_done_);
        const bool received = ReadCq(rx_cq_.get(), &receives_done_);
        if (!sent && !received && deadline.Passed()) {
          throw Failure(ETIMEDOUT, "the peer's last message did not come");
        }
      }
    } catch (const Failure &failure) {
      Debug("at the end: %s", failure.what());
    }
    if (options_.type == FI_EP_MSG) {
      fi_shutdown(ep_.get(), 0);
    }
  }

  const Options &options_;
  Control control_;
  std::vector<uint64_t> sizes_;

  // In the order in which they are opened: destruction closes them the other way round.
  struct Free {
    void operator()(char *memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> memory_;
  Info info_{nullptr, &fi_freeinfo};
  Owned<fid_fabric> fabric_;
  Owned<fid_eq> eq_;
  Owned<fid_pep> pep_;
  Owned<fid_domain> domain_;
  Owned<fid_cq> tx_cq_;
  Owned<fid_cq> rx_cq_;
  Owned<fid_av> av_;
  Owned<fid_mr> mr_;
  Owned<fid_ep> ep_;

  std::string peer_name_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  size_t inject_limit_ = 0;
  size_t prefix_ = 0;
  size_t buffer_length_ = 0;
  char *tx_buffer_ = nullptr;
  char *rx_buffer_ = nullptr;
  void *mr_desc_ = nullptr;
  fi_context2 tx_context_ = {};
  fi_context2 rx_context_ = {};

  uint64_t sends_posted_ = 0;
  uint64_t sends_done_ = 0;
  uint64_t receives_posted_ = 0;
  uint64_t receives_done_ = 0;
  size_t received_length_ = 0;
  size_t tx_letter_ = 0;
  size_t rx_letter_ = 0;
  uint64_t idle_spins_ = 0;
  Clock::time_point idle_since_;
  bool counting_ = false;  // between the last message of a size and the count of the answers
  bool header_printed_ = false;
};

// --- command line ------------------------------------------------------------------------------

void PrintUsage(FILE *to) {
  std::fprintf(
      to,
      "Usage: fi_pingpong [OPTIONS]                    start the server\n"
      "       fi_pingpong [OPTIONS] SERVER_ADDRESS     connect to the server\n"
      "\n"
      "Sends messages to and fro between two processes and prints how long that took.\n"
      "Both sides must be given the same -e, -I, -S, -m and -p.\n"
      "\n"
      " -B PORT      source port of the control connection (server: %u, client: any)\n"
      " -P PORT      destination port of the control connection (client: %u)\n"
      " -6           control connection over IPv6\n"
      " -p PROVIDER  provider, for instance tcp (default: the first that fits)\n"
      " -d DOMAIN    domain, for instance eth0\n"
      " -e TYPE      endpoint type: msg, rdm or dgram (dgram)\n"
      " -m MODE      transmit mode: msg or tagged (msg)\n"
      " -I NUMBER    messages in each direction for each size (10)\n"
      " -S SIZE      size of a message in bytes, or 'all' for 0 to 6291456 in 46 steps\n"
      "              (64 256 1024 4096 65536 1048576); what the provider cannot send is left out\n"
      " -c           check the contents of every message\n"
      " -v           tell what is being done\n"
      " -h           this help\n"
      " --timeout SECONDS\n"
      "              give up when the peer does nothing for that long (30); where given, a server\n"
      "              also waits no longer than that for its client\n"
      "\n"
      "The exit status is 0, or the number of the error that ended the test.\n",
      kDefaultPort, kDefaultPort);
}

[[noreturn]] void BadArgument(char option, const char *value, const char *wanted) {
  throw Failure(EINVAL, Format("-%c %s: expected %s", option, value, wanted));
}

uint64_t ParseNumber(char option, const char *text, uint64_t low, uint64_t high,
                     const char *wanted) {
  uint64_t value = 0;
  const char *end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    BadArgument(option, text, wanted);
  }
  return value;
}

// Returns nothing when there is nothing left to do but to exit with *status.
std::optional<Options> ParseCommandLine(int argc, char **argv, int *status) {
  enum { kTimeout = 256 };
  static const option kLongOptions[] = {{"help", no_argument, nullptr, 'h'},
                                        {"timeout", required_argument, nullptr, kTimeout},
                                        {nullptr, 0, nullptr, 0}};
  Options options;
  int option;
  while ((option = getopt_long(argc, argv, "B:P:6p:d:e:m:I:S:cvh", kLongOptions, nullptr)) != -1) {
    const std::string_view text = optarg != nullptr ? optarg : "";
    switch (option) {
      case 'B':
        options.src_port =
            static_cast<uint16_t>(ParseNumber('B', optarg, 1, 65535, "a port, 1 to 65535"));
        break;
      case 'P':
        options.dst_port =
            static_cast<uint16_t>(ParseNumber('P', optarg, 1, 65535, "a port, 1 to 65535"));
        break;
      case '6':
        options.ipv6 = true;
        break;
      case 'p':
        options.provider = optarg;
        break;
      case 'd':
        options.domain = optarg;
        break;
      case 'e':
        if (text == "msg") {
          options.type = FI_EP_MSG;
        } else if (text == "rdm") {
          options.type = FI_EP_RDM;
        } else if (text == "dgram") {
          options.type = FI_EP_DGRAM;
        } else {
          BadArgument('e', optarg, "msg, rdm or dgram");
        }
        break;
      case 'm':
        if (text != "msg" && text != "tagged") {
          BadArgument('m', optarg, "msg or tagged");
        }
        options.tagged = text == "tagged";
        break;
      case 'I':
        options.iterations =
            ParseNumber('I', optarg, 1, kMaxIterations, "a number, 1 to 999999999");
        break;
      case 'S':
        options.size.reset();
        options.all_sizes = text == "all";
        if (!options.all_sizes) {
          options.size = ParseNumber('S', optarg, 0, UINT64_MAX / 4, "a number of bytes or 'all'");
        }
        break;
      case 'c':
        options.verify = true;
        break;
      case 'v':
        options.verbose = true;
        break;
      case kTimeout: {
        uint64_t seconds = 0;
        const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
        if (error != std::errc() || stop != text.data() + text.size() || seconds < 1 ||
            seconds > 86400) {
          throw Failure(EINVAL, Format("--timeout %s: expected seconds, 1 to 86400", optarg));
        }
        options.timeout = std::chrono::seconds(seconds);
        options.timeout_given = true;
        break;
      }
      case 'h':
        PrintUsage(stdout);
        *status = EXIT_SUCCESS;
        return std::nullopt;
      default:
        PrintUsage(stderr);
        *status = EXIT_FAILURE;
        return std::nullopt;
    }
  }
  if (argc - optind > 1) {
    throw Failure(EINVAL, Format("unexpected argument '%s': there is one server address at most",
                                 argv[optind + 1]));
  }
  if (optind < argc) {
    options.server = argv[optind];
    if (options.server.empty()) {
      throw Failure(EINVAL, "the server's address is empty");
    }
  }
  return options;
}

int Report(int err, const char *text) {
  std::fprintf(stderr, "fi_pingpong: error: %s\n", text);
  return err > 0 && err < 256 ? err : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char **argv) {
  try {
    int status = EXIT_SUCCESS;
    const std::optional<Options> options = ParseCommandLine(argc, argv, &status);
    if (!options) {
      return status;
    }
    verbose_output = options->verbose;
    PingPong(*options).Run();
    return EXIT_SUCCESS;
  } catch (const Failure &failure) {
    return Report(failure.err(), failure.what());
  } catch (const std::bad_alloc &) {
    return Report(ENOMEM, "out of memory");
  }
}
