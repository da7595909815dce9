// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/double/world.h"

#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/ib.h>
#include <rdma/rdma_cma.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "plugins/verbs/double/cm.h"
#include "plugins/verbs/double/objects.h"

namespace weft::verbs_double {

namespace {
std::atomic<World *> the_world = nullptr;
}

std::nullptr_t no_object(int error) {
  errno = error;
  return nullptr;
}

int failed(int error) {
  errno = error;
  return -1;
}

namespace {

const sockaddr_ib &ib(const SocketAddress &address) {
  return reinterpret_cast<const sockaddr_ib &>(address.storage);
}

}  // namespace

uint64_t SocketAddress::service() const {
  return be64toh(ib(*this).sib_sid);
}

uint16_t SocketAddress::port() const {
  if (family() == AF_IB) return static_cast<uint16_t>(service());
  return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6 &>(storage).sin6_port
                                    : reinterpret_cast<const sockaddr_in &>(storage).sin_port);
}

void SocketAddress::set_port(uint16_t port) {
  if (family() == AF_IB) {
    // Of the port space TCP, as the kernel completes it.
    auto &mine = reinterpret_cast<sockaddr_ib &>(storage);
    mine.sib_sid = htobe64(RDMA_IB_IP_PS_TCP | port);
    mine.sib_sid_mask = ~__be64{0};
  } else if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6 &>(storage).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in &>(storage).sin_port = htons(port);
  }
}

bool SocketAddress::is_any() const {
  if (family() == AF_IB) {
    const ibv_gid none = {};
    return std::memcmp(ib(*this).sib_addr.sib_raw, none.raw, sizeof none.raw) == 0;
  }
  if (family() == AF_INET6) {
    return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6 &>(storage).sin6_addr);
  }
  return reinterpret_cast<const sockaddr_in &>(storage).sin_addr.s_addr == INADDR_ANY;
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_IB) return false;
  if (family() == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6 &>(storage).sin6_addr);
  }
  return ntohl(reinterpret_cast<const sockaddr_in &>(storage).sin_addr.s_addr) >> 24 == 127;
}

bool SocketAddress::same_host(const SocketAddress &other) const {
  if (family() != other.family()) return false;
  const ibv_gid mine = gid();
  const ibv_gid its = other.gid();
  return std::memcmp(mine.raw, its.raw, sizeof mine.raw) == 0;
}

ibv_gid SocketAddress::gid() const {
  ibv_gid gid = {};
  if (family() == AF_IB) {
    std::memcpy(gid.raw, ib(*this).sib_addr.sib_raw, sizeof gid.raw);
  } else if (family() == AF_INET6) {
    std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6 &>(storage).sin6_addr, 16);
  } else {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in &>(storage).sin_addr, 4);
  }
  return gid;
}

socklen_t SocketAddress::size() const {
  if (family() == AF_IB) return sizeof(sockaddr_ib);
  return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

SocketAddress SocketAddress::of(const sockaddr *address) {
  SocketAddress result;
  if (address == nullptr) return result;
  if (address->sa_family == AF_INET) std::memcpy(&result.storage, address, sizeof(sockaddr_in));
  if (address->sa_family == AF_INET6) std::memcpy(&result.storage, address, sizeof(sockaddr_in6));
  if (address->sa_family == AF_IB) std::memcpy(&result.storage, address, sizeof(sockaddr_ib));
  return result;
}

SocketAddress SocketAddress::parse(const std::string &text) {
  SocketAddress result;
  auto &v4 = reinterpret_cast<sockaddr_in &>(result.storage);
  auto &v6 = reinterpret_cast<sockaddr_in6 &>(result.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
  } else if (inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
  } else {
    throw std::invalid_argument("\"" + text + "\" (address of a device): give IPv4 or IPv6");
  }
  return result;
}

World::World(const NetworkOptions &given)
    : options(given), random(given.seed), cm(std::make_unique<Cm>(*this)) {
  World *none = nullptr;
  if (!the_world.compare_exchange_strong(none, this)) {
    throw std::logic_error("a second verbs_double::Network: destroy the first one before");
  }
  if (options.progress == Progress::kByThread) {
    // Hardware takes no signals of the process.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    hardware = std::thread([this] {
      std::unique_lock lock(mutex);
      while (!stopping) {
        if (!step()) work.wait(lock, [this] { return stopping || has_work(); });
      }
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
}

World::~World() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  work.notify_all();
  if (hardware.joinable()) hardware.join();
  cm.reset();
  adapters.clear();
  the_world = nullptr;
}

World *World::current() {
  return the_world;
}

Adapter *World::adapter_of(const SocketAddress &address) const {
  for (const std::unique_ptr<Adapter> &adapter : adapters) {
    if (!adapter->removed && adapter->has(address)) return adapter.get();
  }
  return nullptr;
}

Adapter *World::adapter_of(const ibv_ah_attr &attr) const {
  for (const std::unique_ptr<Adapter> &adapter : adapters) {
    if (adapter->removed) continue;
    if (!attr.is_global) {
      if (adapter->options.infiniband && adapter->lid == attr.dlid) return adapter.get();
      continue;
    }
    for (const ibv_gid_entry &entry : adapter->gids) {
      if (std::memcmp(entry.gid.raw, attr.grh.dgid.raw, sizeof entry.gid.raw) == 0) {
        return adapter.get();
      }
    }
  }
  return nullptr;
}

void World::wait(std::unique_lock<std::mutex> &lock, const std::function<bool()> &is_done,
                 const char *what) {
  if (acknowledged.wait_for(lock, std::chrono::seconds(options.patience_seconds), is_done)) return;
  std::fprintf(stderr, "verbs_double: %s within %d s; the libraries would wait for ever\n", what,
               options.patience_seconds);
  std::abort();
}

Entry::~Entry() {
  if (world_.options.progress == Progress::kAtOnce) {
    world_.run();
  } else if (world_.options.progress == Progress::kByThread && world_.has_work()) {
    world_.work.notify_all();
  }
}

int FaultTable::on_call(Call call) {
  const uint64_t number = ++made[static_cast<size_t>(call)];
  for (const PlannedCall &planned : calls) {
    if (planned.call == call && number >= planned.from && number < planned.to) return planned.error;
  }
  return 0;
}

const CompletionFault *FaultTable::on_completion(uint32_t qp_num, bool receive) {
  for (auto planned = completions.begin(); planned != completions.end(); ++planned) {
    const CompletionFault &fault = planned->fault;
    if (fault.receive != receive || (fault.qp_num != 0 && fault.qp_num != qp_num)) continue;
    if (++planned->seen < fault.at) continue;
    last_ = fault;
    completions.erase(planned);
    return &last_;
  }
  return nullptr;
}

}  // namespace weft::verbs_double
