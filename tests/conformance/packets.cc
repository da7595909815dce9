// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/packets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace weft::conformance {
namespace {

bool write_file(const char *path, const std::string &text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool done = ::write(fd, text.data(), text.size()) == ssize_t(text.size());
  ::close(fd);
  return done;
}

bool enter_namespace() {
  if (unshare(CLONE_NEWNET) == 0) return true;
  const std::string uid = std::to_string(getuid()), gid = std::to_string(getgid());
  return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && write_file("/proc/self/setgroups", "deny") &&
         write_file("/proc/self/uid_map", "0 " + uid + " 1") &&
         write_file("/proc/self/gid_map", "0 " + gid + " 1");
}

bool start_loopback() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool done = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  if (fd >= 0) ::close(fd);
  return done;
}

struct Seen {
  int dscp = 0;
  uint16_t port = 0;
};

// Of an IPv4 or IPv6 packet; false: of no interest.
bool read_packet(const uint8_t *bytes, size_t size, Seen &seen) {
  if (size < 20) return false;
  size_t at = 0;
  int protocol = 0;
  if (bytes[0] >> 4 == 4) {
    at = (bytes[0] & 15) * size_t(4);
    seen.dscp = bytes[1] >> 2;
    protocol = bytes[9];
    size = size_t(bytes[2]) << 8 | bytes[3];
  } else {
    at = 40;
    seen.dscp = ((bytes[0] & 15) << 4 | bytes[1] >> 4) >> 2;
    protocol = bytes[6];
    size = 40 + (size_t(bytes[4]) << 8 | bytes[5]);
  }
  if (size < at + 8) return false;
  const uint8_t *const header = bytes + at;
  seen.port = uint16_t(header[0] << 8 | header[1]);
  if (protocol == IPPROTO_UDP) return size > at + 8;
  return protocol == IPPROTO_TCP && size > at + (header[12] >> 4) * size_t(4);
}

}  // namespace

Packets::Packets() {
  if (!enter_namespace() || !start_loopback()) return;
  fd_ = ::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL));
}

Packets::~Packets() {
  if (fd_ >= 0) ::close(fd_);
}

std::map<uint16_t, std::set<int>> Packets::dscps_by_port() {
  std::map<uint16_t, std::set<int>> found;
  uint8_t bytes[128];
  sockaddr_ll from{};
  socklen_t length = sizeof from;
  for (ssize_t n; (n = ::recvfrom(fd_, bytes, sizeof bytes, 0, reinterpret_cast<sockaddr *>(&from),
                                  &length)) >= 0;) {
    Seen seen;
    if (from.sll_pkttype == PACKET_OUTGOING && read_packet(bytes, size_t(n), seen))
      found[seen.port].insert(seen.dscp);
  }
  return found;
}

std::set<int> Packets::dscps() {
  std::set<int> all;
  for (const auto &[port, some] : dscps_by_port()) all.insert(some.begin(), some.end());
  return all;
}

}  // namespace weft::conformance
