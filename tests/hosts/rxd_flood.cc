// SPDX-License-Identifier: BSD-2-Clause
// An attacker of an endpoint of rxd. Visitors come without end: each has an honest address, makes
// the whole handshake and then sends nothing more. Between them come forged packets with
// other hosts' addresses: questions of both dialects, packets of connections that do not exist, and
// noise.
//
//   rxd_flood --from 10.0.0.2 --target 10.0.0.1 --port 20000 --visitors 10000 --forged 50000
//
// Exits 0 when all visitors were let in. Forging needs the right to open raw sockets.
#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "plugins/rxd/wire/packet.h"
#include "plugins/rxd/wire/stock.h"

namespace {

using namespace weft::rxd;  // NOLINT(google-build-using-namespace)
using Clock = std::chrono::steady_clock;
constexpr size_t kAtOnce = 128;  // visitors in the middle of their handshake
constexpr auto kPatience = std::chrono::milliseconds(20);

struct Options {
  std::string from, target;
  int port = 20000, visitors = 10000, seconds = 60;
  uint64_t forged = 0;
};

[[noreturn]] void die(const char *what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

sockaddr_in address(const std::string &ip, int port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(uint16_t(port));
  if (inet_pton(AF_INET, ip.c_str(), &in.sin_addr) != 1) {
    std::fprintf(stderr, "%s is no IPv4 address\n", ip.c_str());
    std::exit(1);
  }
  return in;
}

std::vector<uint8_t> question(const sockaddr_in &own, bool marked) {
  std::vector<uint8_t> bytes(stock::kMaxHeader);
  const size_t size =
      stock::encode({.type = stock::Type::kRts,
                     .marked = marked,
                     .index = 1,
                     .name = *weft::sdk::read_address(FI_SOCKADDR_IN, &own, sizeof own)},
                    std::span<uint8_t, stock::kMaxHeader>(bytes));
  bytes.resize(size);
  return bytes;
}

// One socket, and what it sends next.
class Visitor {
 public:
  Visitor(const Options &options, uint32_t number) : number_(number) {
    fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) die("a socket");
    own_ = address(options.from, 0);
    if (bind(fd_, reinterpret_cast<sockaddr *>(&own_), sizeof own_) != 0) die("bind");
    socklen_t length = sizeof own_;
    getsockname(fd_, reinterpret_cast<sockaddr *>(&own_), &length);
    const sockaddr_in to = address(options.target, options.port);
    if (connect(fd_, reinterpret_cast<const sockaddr *>(&to), sizeof to) != 0) die("connect");
    next_ = question(own_, true);
    say();
  }
  int fd() const { return fd_; }
  bool in() const { return in_; }
  // A packet without an answer is sent again.
  void say() {
    said_ = Clock::now();
    [[maybe_unused]] const ssize_t n = ::send(fd_, next_.data(), next_.size(), 0);
  }
  void look() {
    uint8_t bytes[2048];
    for (ssize_t n; (n = recv(fd_, bytes, sizeof bytes, 0)) > 0;) hear({bytes, size_t(n)});
    if (!in_ && Clock::now() - said_ > kPatience) say();
  }

 private:
  void hear(std::span<const uint8_t> bytes) {
    const auto packet = wire::parse(bytes);
    if (!packet) return;
    if (const auto *challenge = std::get_if<wire::Challenge>(&packet->content)) {
      if (asked_) return;
      asked_ = true;
      uint8_t name[wire::kNameSize] = {};
      std::memcpy(name, &own_, sizeof own_);
      next_.resize(wire::kConnectSize);
      wire::Writer writer(next_);
      writer.connect({}, 1, challenge->token, name,
                     {.instance = number_,
                      .connection = number_,
                      .cookie = number_,
                      .datagram = 1472,
                      .limit = 64,
                      .messages = 64,
                      .credit = 64});
      say();
    } else if (packet->header.kind == wire::PacketKind::kAccept) {
      in_ = true;
    }
  }

  const uint32_t number_;
  int fd_ = -1;
  sockaddr_in own_{};
  std::vector<uint8_t> next_;
  Clock::time_point said_;
  bool asked_ = false, in_ = false;
};

// Packets with forged source addresses in the network of `from`.
class Forger {
 public:
  explicit Forger(const Options &options)
      : source_(address(options.from, 0)), to_(address(options.target, options.port)) {
    fd_ = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    if (fd_ < 0) die("a raw socket");
  }
  bool one() {
    sockaddr_in source = source_;
    source.sin_addr.s_addr = htonl((ntohl(source.sin_addr.s_addr) & ~0xFFU) | random_() % 254 | 1);
    source.sin_port = htons(uint16_t(1024 + random_() % 60000));
    std::vector<uint8_t> content;
    switch (random_() % 4) {
      case 0:
      case 1:
        content = question(source, random_() % 2 == 0);
        break;
      case 2:
        content.resize(wire::kHeaderSize + random_() % 1400);
        for (uint8_t &byte : content) byte = uint8_t(random_());
        content[0] = wire::kMagic;
        content[1] = wire::kGuard;
        content[3] = uint8_t(1 + random_() % 10);
        break;
      default:
        content.resize(stock::kBase + random_() % 1400);
        for (uint8_t &byte : content) byte = uint8_t(random_());
        content[0] = stock::kVersion;
        content[1] = uint8_t(random_() % 14);
        break;
    }
    std::vector<uint8_t> bytes(sizeof(iphdr) + sizeof(udphdr));
    iphdr ip{};
    ip.version = 4;
    ip.ihl = 5;
    ip.ttl = 64;
    ip.protocol = IPPROTO_UDP;
    ip.saddr = source.sin_addr.s_addr;
    ip.daddr = to_.sin_addr.s_addr;
    udphdr udp{};
    udp.source = source.sin_port;
    udp.dest = to_.sin_port;
    udp.len = htons(uint16_t(sizeof udp + content.size()));
    std::memcpy(bytes.data(), &ip, sizeof ip);
    std::memcpy(bytes.data() + sizeof ip, &udp, sizeof udp);
    bytes.insert(bytes.end(), content.begin(), content.end());
    return sendto(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT,
                  reinterpret_cast<const sockaddr *>(&to_), sizeof to_) > 0;
  }

 private:
  const sockaddr_in source_, to_;
  int fd_ = -1;
  std::mt19937 random_{1};
};

int run(const Options &options) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < rlim_t(options.visitors) + 16) {
    std::fprintf(stderr, "%d visitors need as many sockets, and %llu files may be open\n",
                 options.visitors, (unsigned long long)files.rlim_cur);
    return 1;
  }
  Forger *forger = options.forged != 0 ? new Forger(options) : nullptr;
  const auto end = Clock::now() + std::chrono::seconds(options.seconds);
  std::deque<Visitor> visitors;  // their sockets stay open, so that no port is used again
  std::vector<Visitor *> coming;
  size_t in = 0;
  uint64_t forged = 0;
  while (in < size_t(options.visitors) || forged < options.forged) {
    while (coming.size() < kAtOnce && visitors.size() < size_t(options.visitors)) {
      visitors.emplace_back(options, uint32_t(visitors.size() + 1));
      coming.push_back(&visitors.back());
    }
    for (int i = 0; i < 200 && forged < options.forged; ++i) forged += forger->one() ? 1 : 0;
    std::vector<pollfd> fds;
    for (const Visitor *v : coming) fds.push_back({v->fd(), POLLIN, 0});
    poll(fds.data(), nfds_t(fds.size()), forged < options.forged ? 0 : 5);
    in += std::erase_if(coming, [](Visitor *v) {
      v->look();
      return v->in();
    });
    if (Clock::now() > end) {
      std::fprintf(stderr, "after %d s only %zu of %d visitors were let in\n", options.seconds, in,
                   options.visitors);
      return 1;
    }
  }
  std::printf("%zu visitors were let in, %llu packets were forged\n", in,
              (unsigned long long)forged);
  return 0;
}

}  // namespace

int main(int argc, char **argv) {
  Options options;
  CLI::App app("visitors and forged packets for an endpoint of rxd");
  app.add_option("--from", options.from, "own IPv4 address")->required();
  app.add_option("--target", options.target, "address of the endpoint")->required();
  app.add_option("--port", options.port, "of the endpoint");
  app.add_option("--visitors", options.visitors, "that make a handshake");
  app.add_option("--forged", options.forged, "packets with the addresses of others");
  app.add_option("--seconds", options.seconds, "after which it fails");
  CLI11_PARSE(app, argc, argv);
  return run(options);
}
