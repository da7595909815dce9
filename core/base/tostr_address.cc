// SPDX-License-Identifier: BSD-2-Clause
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "core/base/tostr_parts.h"

namespace weft::tostr {
namespace {

void add_hex(Text &text, const char *scheme, const void *addr, size_t size) {
  constexpr size_t kShown = 64;
  text.add("%s://", scheme);
  const auto *bytes = static_cast<const unsigned char *>(addr);
  for (size_t i = 0; i < std::min(size, kShown); i++) text.add("%02x", bytes[i]);
  if (size > kShown) text.add("...");
}

void add_inet6(Text &text, const void *addr) {
  char buffer[INET6_ADDRSTRLEN] = "";
  text.add("[%s]", inet_ntop(AF_INET6, addr, buffer, sizeof buffer));
}

// False: the address is too short for its family, or the family is unknown.
bool add_sockaddr(Text &text, const void *addr, size_t size) {
  if (size < sizeof(sa_family_t)) return false;
  switch (load<sa_family_t>(addr)) {
    case AF_INET: {
      if (size < sizeof(sockaddr_in)) return false;
      const auto in = load<sockaddr_in>(addr);
      char buffer[INET_ADDRSTRLEN] = "";
      text.add("fi_sockaddr_in://%s:%u", inet_ntop(AF_INET, &in.sin_addr, buffer, sizeof buffer),
               ntohs(in.sin_port));
      return true;
    }
    case AF_INET6: {
      if (size < sizeof(sockaddr_in6)) return false;
      const auto in6 = load<sockaddr_in6>(addr);
      text.add("fi_sockaddr_in6://");
      add_inet6(text, &in6.sin6_addr);
      text.add(":%u", ntohs(in6.sin6_port));
      return true;
    }
    default:
      return false;
  }
}

// struct sockaddr_ib of the kernel: family, pkey, flow info, GID, service id, its mask, scope id.
bool add_sockaddr_ib(Text &text, const void *addr, size_t size) {
  if (size < 48) return false;
  const uint16_t pkey = ntohs(load<uint16_t>(addr, 2));
  const uint64_t service = be64toh(load<uint64_t>(addr, 24));
  const uint64_t scope = load<uint64_t>(addr, 40);
  text.add("fi_sockaddr_ib://");
  add_inet6(text, static_cast<const char *>(addr) + 8);
  text.add(":0x%x:0x%x:0x%x", pkey, static_cast<unsigned>(service >> 16 & 0xffff),
           static_cast<unsigned>(scope));
  return true;
}

// GID, queue pair number, LID, partition key, service, service level. As the SDK's codec reads it.
bool add_ib_ud(Text &text, const void *addr, size_t size) {
  if (size < 32) return false;
  char gid[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, addr, gid, sizeof gid);
  text.add("fi_addr_ib_ud://%s:%x/%x/%x/%x", gid, load<uint32_t>(addr, 16),
           load<uint16_t>(addr, 20), load<uint16_t>(addr, 22), load<uint8_t>(addr, 26));
  if (const auto service = load<uint16_t>(addr, 24); service != 0)
    text.add("?service=0x%x", service);
  return true;
}

bool add_words(Text &text, const char *scheme, const void *addr, size_t size, size_t count) {
  if (size < count * sizeof(uint64_t)) return false;
  text.add("%s://", scheme);
  for (size_t i = 0; i < count; i++) {
    text.add("%s%" PRIx64, i == 0 ? "" : ":", load<uint64_t>(addr, i * sizeof(uint64_t)));
  }
  return true;
}

}  // namespace

void add_address(Text &text, uint32_t format, const void *addr, size_t size) {
  if (addr == nullptr) return text.add("(null)");
  bool shown = false;
  const char *scheme = "fi_addr";
  switch (format) {
    case FI_ADDR_STR: {
      const auto *string = static_cast<const char *>(addr);
      text.add("%.*s", static_cast<int>(strnlen(string, std::min<size_t>(size, INT32_MAX))),
               string);
      return;
    }
    case FI_SOCKADDR:
    case FI_SOCKADDR_IP:
    case FI_SOCKADDR_IN:
    case FI_SOCKADDR_IN6:
      scheme = "fi_sockaddr";
      shown = add_sockaddr(text, addr, size);
      break;
    case FI_SOCKADDR_IB:
      scheme = "fi_sockaddr_ib";
      shown = add_sockaddr_ib(text, addr, size);
      break;
    case FI_ADDR_PSMX:
      scheme = "fi_addr_psmx";
      shown = add_words(text, scheme, addr, size, 1);
      break;
    case FI_ADDR_PSMX2:
      scheme = "fi_addr_psmx2";
      shown = add_words(text, scheme, addr, size, 2);
      break;
    case FI_ADDR_PSMX3:
      scheme = "fi_addr_psmx3";
      shown = add_words(text, scheme, addr, size, 4);
      break;
    case FI_ADDR_EFA:
      scheme = "fi_addr_efa";
      if (size >= 24) {  // GID, queue pair number, key of the queue
        text.add("%s://", scheme);
        add_inet6(text, addr);
        text.add(":%u:%u", load<uint16_t>(addr, 16), load<uint32_t>(addr, 20));
        shown = true;
      }
      break;
    case FI_ADDR_CXI:
      scheme = "fi_addr_cxi";
      if (size >= sizeof(uint32_t)) {
        text.add("%s://0x%08x", scheme, load<uint32_t>(addr));
        shown = true;
      }
      break;
    case FI_ADDR_OPX:
      scheme = "fi_addr_opx";
      if (size >= sizeof(uint64_t)) {
        text.add("%s://%016" PRIx64, scheme, load<uint64_t>(addr));
        shown = true;
      }
      break;
    case FI_ADDR_GNI:
      scheme = "fi_addr_gni";
      break;
    case FI_ADDR_BGQ:
      scheme = "fi_addr_bgq";
      break;
    case FI_ADDR_MLX:
      scheme = "fi_addr_mlx";
      break;
    case FI_ADDR_IB_UD:
      scheme = "fi_addr_ib_ud";
      shown = add_ib_ud(text, addr, size);
      break;
    case FI_ADDR_UCX:
      scheme = "fi_addr_ucx";
      break;
    default:
      break;
  }
  if (!shown) add_hex(text, scheme, addr, size);
}

}  // namespace weft::tostr
