// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/socket.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <weft/sdk/ip/interfaces.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace weft::udp {
namespace {

std::string descriptor_error(int error) {
  if (error == EMFILE) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return "too many open files: this process may have " + std::to_string(limit.rlim_cur) +
           "; raise it with `ulimit -n` (hard limit " + std::to_string(limit.rlim_max) + ")";
  }
  if (error == ENFILE) return "too many open files in the system: raise sysctl fs.file-max";
  return strerror(error);
}

template <class T>
bool set(int fd, int level, int name, const T &value) {
  return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

// Privileged processes get the whole size, others at most sysctl net.core.{r,w}mem_max.
void set_buffer(int fd, int size, int by_force, int as_permitted) {
  if (size != 0 && !set(fd, SOL_SOCKET, by_force, size)) set(fd, SOL_SOCKET, as_permitted, size);
}

in_addr ipv4(const sdk::SockAddr &address) {
  sockaddr_in in;
  std::memcpy(&in, address.c(), sizeof in);
  return in.sin_addr;
}

sockaddr_in6 ipv6(const sdk::SockAddr &address) {
  sockaddr_in6 in;
  std::memcpy(&in, address.c(), sizeof in);
  return in;
}

// The kernel's number of the interface with the address; 0 for the any address.
Result<unsigned> interface_of(const sdk::SockAddr &local) {
  if (local.is_any()) return 0u;
  if (const unsigned scope = ipv6(local).sin6_scope_id; scope != 0) return scope;
  WEFT_TRY(const std::vector<sdk::Interface> all, sdk::list_interfaces());
  for (const sdk::Interface &i : all)
    if (i.address.same_prefix(local, 128)) return i.index;
  return fail(FI_EADDRNOTAVAIL, "no interface has the address %s", local.ip().c_str());
}

ip_mreqn request_of(const sdk::SockAddr &group, const sdk::SockAddr &local) {
  ip_mreqn request{};
  request.imr_multiaddr = ipv4(group);
  request.imr_address = ipv4(local);
  return request;
}

Result<ipv6_mreq> request6_of(const sdk::SockAddr &group, const sdk::SockAddr &local) {
  ipv6_mreq request{};
  request.ipv6mr_multiaddr = ipv6(group).sin6_addr;
  request.ipv6mr_interface = ipv6(group).sin6_scope_id;
  if (request.ipv6mr_interface == 0) {
    WEFT_TRY(request.ipv6mr_interface, interface_of(local));
  }
  return request;
}

}  // namespace

Result<UniqueFd> open_socket(int family, const Settings &settings) {
  UniqueFd fd(::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) {
    const int error = errno;
    return fail(error, "socket: %s", descriptor_error(error).c_str());
  }
  set_buffer(fd.get(), settings.recvbuf_size, SO_RCVBUFFORCE, SO_RCVBUF);
  set_buffer(fd.get(), settings.sendbuf_size, SO_SNDBUFFORCE, SO_SNDBUF);
  // Only the socket's own memberships count, not those of other programs on this host.
  if (family == AF_INET) {
    set(fd.get(), IPPROTO_IP, IP_MULTICAST_ALL, 0);
    set(fd.get(), IPPROTO_IP, IP_MULTICAST_TTL, settings.multicast_hops);
  } else {
    set(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
#ifdef IPV6_MULTICAST_ALL
    set(fd.get(), IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
#endif
    set(fd.get(), IPPROTO_IPV6, IPV6_MULTICAST_HOPS, settings.multicast_hops);
  }
  return fd;
}

Result<void> bind_socket(int fd, const sdk::SockAddr &address) {
  if (::bind(fd, address.c(), address.size()) == 0) return {};
  const int error = errno;
  return fail(error, "bind to %s: %s%s", address.to_string().c_str(), strerror(error),
              error == EADDRNOTAVAIL ? "; no interface has this address"
              : error == EADDRINUSE  ? "; another socket has this port"
              : error == EACCES      ? "; ports below 1024 are for privileged programs"
                                     : "");
}

bool is_multicast(const sdk::SockAddr &address) {
  if (address.family() == AF_INET) return IN_MULTICAST(ntohl(ipv4(address).s_addr));
  const sockaddr_in6 in = ipv6(address);
  return address.family() == AF_INET6 && IN6_IS_ADDR_MULTICAST(&in.sin6_addr);
}

Result<void> send_groups_from(int fd, const sdk::SockAddr &local) {
  if (local.is_any()) return {};
  bool done;
  if (local.family() == AF_INET) {
    ip_mreqn request{};
    request.imr_address = ipv4(local);
    done = set(fd, IPPROTO_IP, IP_MULTICAST_IF, request);
  } else {
    WEFT_TRY(const unsigned index, interface_of(local));
    done = set(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, int(index));
  }
  if (done) return {};
  const int error = errno;
  return fail(error, "multicast from %s: %s", local.ip().c_str(), strerror(error));
}

Result<void> join_group(int fd, const sdk::SockAddr &group, const sdk::SockAddr &local) {
  bool done;
  if (group.family() == AF_INET) {
    done = set(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, request_of(group, local));
  } else {
    WEFT_TRY(const ipv6_mreq request, request6_of(group, local));
    done = set(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, request);
  }
  if (done) return {};
  const int error = errno;
  return fail(error, "joining %s from %s: %s%s", group.ip().c_str(), local.ip().c_str(),
              strerror(error),
              error == ENOBUFS      ? "; raise sysctl net.ipv4.igmp_max_memberships"
              : error == ENODEV     ? "; no route for the group names an interface: bind the "
                                      "endpoint to an address of one"
              : error == EADDRINUSE ? "; the endpoint has joined it already"
                                    : "");
}

Result<void> tell_errors(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  getsockname(fd, reinterpret_cast<sockaddr *>(&name), &size);
  const bool done = name.ss_family == AF_INET6 ? set(fd, IPPROTO_IPV6, IPV6_RECVERR, 1)
                                               : set(fd, IPPROTO_IP, IP_RECVERR, 1);
  if (done) return {};
  const int error = errno;
  return fail(error, "the socket cannot report errors of the network: %s", strerror(error));
}

bool read_error(int fd, std::span<char> datagram, NetworkError &out) {
  iovec iov{datagram.data(), datagram.size()};
  alignas(cmsghdr) char control[256];
  msghdr message{};
  message.msg_name = const_cast<sockaddr *>(out.to.c());
  message.msg_namelen = sizeof out.to;
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
  if (n < 0) return false;
  out.length = size_t(n);
  out.error = 0;
  out.remote = false;
  for (cmsghdr *c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (!(c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) &&
        !(c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR))
      continue;
    sock_extended_err said;
    std::memcpy(&said, CMSG_DATA(c), sizeof said);
    out.error = int(said.ee_errno);
    out.remote = said.ee_origin == SO_EE_ORIGIN_ICMP || said.ee_origin == SO_EE_ORIGIN_ICMP6;
  }
  return true;
}

void leave_group(int fd, const sdk::SockAddr &group, const sdk::SockAddr &local) {
  // Errors are ignored: the interface may be gone by now, and the membership with it.
  if (group.family() == AF_INET) {
    set(fd, IPPROTO_IP, IP_DROP_MEMBERSHIP, request_of(group, local));
  } else if (const auto request = request6_of(group, local)) {
    set(fd, IPPROTO_IPV6, IPV6_LEAVE_GROUP, *request);
  }
}

Result<void> bind_to_group(int fd, const sdk::SockAddr &group) {
  set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  return bind_socket(fd, group);
}

}  // namespace weft::udp
