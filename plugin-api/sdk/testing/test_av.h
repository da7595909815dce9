// SPDX-License-Identifier: BSD-2-Clause
// Peers' addresses, and an address vector in a domain of its own. For the tests of
// weft/sdk/addresses/av.h only.
//
// Example (statements):
//    Vector v;
//    EXPECT_EQ(v.insert(v4(1)), 0u);
//    EXPECT_EQ(v.lookup(0), "10.0.0.1:7471");
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "plugin-api/sdk/addresses/av_file.h"
#include "plugin-api/sdk/testing/test_instance.h"
#include "weft/sdk/addresses/av.h"
#include "weft/sdk/ip/sock_addr.h"
#include "weft/sdk/objects/domain.h"

namespace weft::sdk {

constexpr fi_addr_t kNotAvailable = FI_ADDR_NOTAVAIL;

inline sockaddr_in v4(uint32_t number, uint16_t port = 7471) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x0a000000 + number);
  address.sin_port = htons(port);
  return address;
}

inline sockaddr_in6 v6(uint32_t number, uint32_t scope = 0, uint16_t port = 7471) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr.s6_addr[0] = 0xfe;
  address.sin6_addr.s6_addr[1] = 0x80;
  const uint32_t n = htonl(number);
  std::memcpy(address.sin6_addr.s6_addr + 12, &n, sizeof n);
  address.sin6_port = htons(port);
  address.sin6_scope_id = scope;
  return address;
}

// A vector in a domain of its own, through the C API.
class Vector {
 public:
  explicit Vector(uint32_t format = FI_SOCKADDR_IN, fi_av_attr attr = {},
                  uint32_t native = FI_SOCKADDR_IP)
      : format_(format) {
    domain.context.user_ids = true;
    EXPECT_EQ(open_av(domain.context, format, &attr, &c, &mark, {}, native), 0);
    if (c == nullptr) std::abort();
    av = Av::from(c);
  }
  ~Vector() {
    if (c != nullptr) {
      EXPECT_EQ(fi_close(&c->fid), 0);
    }
  }

  fi_addr_t insert(const Address &address) {
    fi_addr_t out = 4711;
    EXPECT_LE(fi_av_insert(c, address.data(), 1, &out, 0, nullptr), 1);
    return out;
  }
  fi_addr_t insert(const SockAddr &address) { return insert(Address(address)); }
  fi_addr_t insert(const sockaddr_in &address) { return insert(SockAddr(address)); }
  fi_addr_t insert(const sockaddr_in6 &address) { return insert(SockAddr(address)); }
  int remove(fi_addr_t address) { return fi_av_remove(c, &address, 1, 0); }
  std::string lookup(fi_addr_t address) {
    char buffer[128];
    size_t length = sizeof buffer;
    if (fi_av_lookup(c, address, buffer, &length) != 0) return "none";
    if (format_ == FI_ADDR_STR) return buffer;
    return read_address(format_, buffer, length)->to_string();
  }
  uint32_t find(const Address &address) {
    Guard guard(domain.engine.lock());
    return av->find(address);
  }
  uint32_t find(const sockaddr_in &address) { return find(Address(SockAddr(address))); }
  fi_addr_t reported(uint32_t index) {
    Guard guard(domain.engine.lock());
    return av->reported(index);
  }
  uint32_t index_of(fi_addr_t address) {
    Guard guard(domain.engine.lock());
    return av->index_of(address);
  }

  TestDomain domain;
  fid_av *c = nullptr;
  Av *av = nullptr;
  int mark = 0;

 private:
  const uint32_t format_;
};

// Opens a vector and closes it again. Returns the error of the opening.
inline int try_open(TestDomain &domain, const fi_av_attr &wanted,
                    uint32_t format = FI_SOCKADDR_IN) {
  fi_av_attr attr = wanted;
  fid_av *av = nullptr;
  const int rc = open_av(domain.context, format, &attr, &av, nullptr);
  EXPECT_EQ(rc == 0, av != nullptr);
  if (av != nullptr) {
    EXPECT_EQ(fi_close(&av->fid), 0);
  }
  return rc;
}

struct User final : AvUser {
  void on_av_removed(uint32_t index) override { removed.push_back(index); }
  void on_av_inserted(uint32_t index, const Address &address) override {
    inserted.emplace_back(index, address.to_string());
  }
  std::vector<uint32_t> removed;
  std::vector<std::pair<uint32_t, std::string>> inserted;
};

// The attributes of a shared vector. `name` must live as long as the attributes.
inline fi_av_attr named(const std::string &name, uint64_t flags = 0) {
  fi_av_attr attr{};
  attr.name = name.c_str();
  attr.flags = flags;
  return attr;
}

// A name of a shared vector that no other test run uses. Its file is deleted at the end.
class Name {
 public:
  Name() {
    static int number = 0;
    text = "test/" + std::to_string(getpid()) + "." + std::to_string(number++);
    path = *AvFile::path_of("", text);
  }
  ~Name() { unlink(path.c_str()); }
  bool exists() const { return access(path.c_str(), F_OK) == 0; }

  std::string text, path;
};

}  // namespace weft::sdk
