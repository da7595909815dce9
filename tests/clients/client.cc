// SPDX-License-Identifier: BSD-2-Clause
#include "tests/clients/client.h"

#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

namespace client {
namespace {

constexpr std::size_t kGuard = 64;
constexpr char kClear = static_cast<char>(0xa5);

std::uint64_t mix(std::uint64_t n) {
  n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9;
  n = (n ^ (n >> 27)) * 0x94d049bb133111eb;
  return n ^ (n >> 31);
}

std::uint64_t word(std::uint64_t seed, std::size_t place) {
  return mix(seed + (place + 1) * 0x9e3779b97f4a7c15);
}

/// Bytes that the TCP connections of this process have moved.
struct Wire {
  int connections = 0;
  int datagram_sockets = 0;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

Wire look_at_sockets() {
  Wire wire;
  DIR *dir = opendir("/proc/self/fd");
  if (dir == nullptr) return wire;
  while (const dirent *entry = readdir(dir)) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    const int fd = std::atoi(entry->d_name);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) {
      int protocol = 0;
      length = sizeof(protocol);
      if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
          protocol == IPPROTO_UDP) {
        ++wire.datagram_sockets;
      }
      continue;
    }
    ++wire.connections;
    wire.sent += info.tcpi_bytes_acked;
    wire.received += info.tcpi_bytes_received;
  }
  closedir(dir);
  return wire;
}

/// The shared objects that this process has mapped, and the NICs in software (cxi).
std::set<std::string> mapped() {
  std::set<std::string> paths;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t at = line.find('/');
    if (at == std::string::npos) continue;
    if (line.find(".so", at) != std::string::npos ||
        line.find("/cxi-nic-", at) != std::string::npos) {
      paths.insert(line.substr(at));
    }
  }
  return paths;
}

}  // namespace

namespace {
const char *g_part = "";  // which part of the program runs
}

void fail(const char *format, ...) {
  int on = 0;
  int rank = -1;
  MPI_Initialized(&on);
  if (on) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "rank %d: FAILED: %s%s%s\n", rank, g_part, *g_part != 0 ? ": " : "", text);
  std::fflush(stderr);
  if (on) MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

std::uint64_t Random::next() {
  return mix(state_ += 0x9e3779b97f4a7c15);
}

std::size_t Random::length(std::size_t max) {
  int orders = 1;
  while (orders < 62 && (std::size_t{1} << orders) <= max) ++orders;
  return std::min<std::size_t>(max, next() & ((std::size_t{1} << below(orders + 1)) - 1));
}

void fill(void *bytes, std::size_t size, std::uint64_t seed) {
  char *at = static_cast<char *>(bytes);
  std::size_t place = 0;
  for (; size >= 8; size -= 8, at += 8) {
    const std::uint64_t value = word(seed, place++);
    std::memcpy(at, &value, 8);
  }
  const std::uint64_t value = word(seed, place);
  std::memcpy(at, &value, size);
}

void expect(const void *bytes, std::size_t size, std::uint64_t seed, const char *what) {
  const char *at = static_cast<const char *>(bytes);
  for (std::size_t offset = 0; offset < size; offset += 8) {
    const std::uint64_t value = word(seed, offset / 8);
    const std::size_t length = std::min<std::size_t>(8, size - offset);
    if (std::memcmp(at + offset, &value, length) == 0) continue;
    std::size_t wrong = offset;
    while (at[wrong] == reinterpret_cast<const char *>(&value)[wrong - offset]) ++wrong;
    fail("%s: byte %zu of %zu is %#x, expected %#x", what, wrong, size,
         static_cast<unsigned char>(at[wrong]),
         static_cast<unsigned char>(reinterpret_cast<const char *>(&value)[wrong - offset]));
  }
}

Block::Block(std::size_t size) : size_(size), bytes_(size + kGuard, kClear) {}

void Block::clear() {
  std::fill(bytes_.begin(), bytes_.end(), kClear);
}

void Block::expect(std::size_t length, std::uint64_t seed, const char *what) {
  client::expect(data(), length, seed, what);
  expect_guard(length, what);
}

void Block::expect_guard(std::size_t length, const char *what) const {
  for (std::size_t at = length; at < bytes_.size(); ++at) {
    if (bytes_[at] == kClear) continue;
    fail("%s: byte %zu was written, behind the %zu bytes of the message", what, at, length);
  }
}

Session::Session(int argc, char **argv, int thread_level) {
  int given = 0;
  MPI_Init_thread(&argc, &argv, thread_level, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  EXPECT(given >= thread_level, "MPI gives thread level %d, not %d", given, thread_level);
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--quick") {
      quick_ = true;
    } else if (option == "--seed" && i + 1 < argc) {
      seed_ = std::strtoull(argv[++i], nullptr, 0);
    } else {
      fail("unknown option '%s'; there are --quick and --seed N", argv[i]);
    }
  }
}

void Session::run(const char *name, void (*part)(Session &)) {
  g_part = name;
  part(*this);
  MPI_Barrier(MPI_COMM_WORLD);
  g_part = "";
}

// What a program of its own finds out about all ranks, while none has closed anything: the command
// of WEFT_CLIENTS_COUNTS.
void Session::write_counts(const std::string &folder) const {
  const char *command = std::getenv("WEFT_CLIENTS_COUNTS");
  if (command == nullptr || rank_ != 0) return;
  const int status = std::system((std::string(command) + " >'" + folder + "/counts'").c_str());
  EXPECT(status == 0, "%s: status %d", command, status);
}

int Session::finish() {
  // Behind the barrier all payload has arrived, and none of the connections is closed yet.
  MPI_Barrier(MPI_COMM_WORLD);
  const Wire wire = look_at_sockets();
  if (const char *folder = std::getenv("WEFT_CLIENTS_ACCOUNTS")) {
    const std::string path = std::string(folder) + "/" + std::to_string(rank_);
    std::ofstream account(path);
    account << "pid " << getpid() << "\nconnections " << wire.connections << "\nsent " << wire.sent
            << "\nreceived " << wire.received << "\nmoved " << moved_ << "\ndatagram_sockets "
            << wire.datagram_sockets << "\n";
    for (const std::string &file : mapped()) account << "mapped " << file << "\n";
    account.close();
    EXPECT(account.good(), "cannot write %s: %s", path.c_str(), std::strerror(errno));
    write_counts(folder);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}

}  // namespace client
