// SPDX-License-Identifier: BSD-2-Clause
// What the calls of the double share: the world behind a `Network`, its adapters (the devices), the
// lock, and `Entry`, with which every call begins.
//
// Example:
//    // A call that only takes part in counting and in faults.
//    int probe(World &world) {
//      const Entry entry(world, Call::k_ibv_query_gid);  // locks the world until it returns
//      return entry.error();                             // 0, or the errno that the test planned
//    }
//
// One lock serves the world: the libraries are thread-safe, and speed is not what a double is for.
// Not for tests; they see double.h.
#ifndef WEFT_PLUGINS_VERBS_DOUBLE_WORLD_H
#define WEFT_PLUGINS_VERBS_DOUBLE_WORLD_H

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "plugins/verbs/double/calls.h"
#include "plugins/verbs/double/double.h"

namespace weft::verbs_double {

struct Cm;
struct Context;
struct Mr;
struct Qp;
struct Srq;
struct Xrcd;

// An address of the connection manager with its port: IPv4, IPv6 or AF_IB (a GID, and a service id
// whose lowest 16 bits are the port).
struct SocketAddress {
  sockaddr_storage storage = {};

  sa_family_t family() const { return storage.ss_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  bool is_any() const;       // 0.0.0.0 or ::
  bool is_loopback() const;  // 127.0.0.0/8 or ::1
  bool same_host(const SocketAddress &other) const;
  ibv_gid gid() const;  // as RoCE maps it
  socklen_t size() const;

  uint64_t service() const;  // of AF_IB

  // An address without a family if `address` is none of these.
  static SocketAddress of(const sockaddr *address);
  static SocketAddress parse(const std::string &text);  // without a port
};

struct GroupKey {
  ibv_gid gid;
  bool operator<(const GroupKey &other) const {
    return std::memcmp(gid.raw, other.gid.raw, sizeof gid.raw) < 0;
  }
};

struct Adapter {
  Adapter(World &the_world, const DeviceOptions &given, int position);
  ~Adapter();

  World &world;
  DeviceOptions options;
  Device device;
  ibv_device ibv = {};
  int index;
  uint16_t lid;
  std::vector<SocketAddress> addresses;
  std::vector<ibv_gid_entry> gids;
  ibv_port_state port = IBV_PORT_ACTIVE;
  bool removed = false;
  bool vanished = false;

  std::vector<Context *> contexts;
  std::unique_ptr<Context> cm_context;  // librdmacm opens a context of its own
  std::unordered_map<uint32_t, Qp *> qps;
  std::unordered_map<uint32_t, Mr *> mrs;  // by local and by remote key
  std::unordered_map<uint32_t, Srq *> srqs;
  std::map<GroupKey, std::vector<Qp *>> groups;
  // No two devices give the same number, so that a fault names one queue pair.
  uint32_t next_qp = 0x11 + (static_cast<uint32_t>(index) << 16);
  uint32_t next_key = 1;
  uint32_t next_srq = 1;
  int pds = 0, cqs = 0, ahs = 0, regions = 0;

  bool is_reachable() const { return !removed && !vanished && port == IBV_PORT_ACTIVE; }
  bool has(const SocketAddress &address) const;
};

struct FaultTable {
  struct PlannedCall {
    Call call;
    int error;
    uint64_t from, to;
  };
  struct PlannedCompletion {
    CompletionFault fault;
    uint64_t seen = 0;
  };
  std::array<uint64_t, kCalls> made = {};
  std::vector<PlannedCall> calls;
  std::vector<PlannedCompletion> completions;
  DatagramFaults datagrams;

  int on_call(Call call);
  // Whether this completion has to fail, and how.
  const CompletionFault *on_completion(uint32_t qp_num, bool receive);

 private:
  CompletionFault last_ = {};
};

struct World {
  explicit World(const NetworkOptions &given);
  ~World();

  static World *current();

  mutable std::mutex mutex;
  std::condition_variable acknowledged;
  std::condition_variable work;
  NetworkOptions options;
  std::mt19937_64 random;
  std::vector<std::unique_ptr<Adapter>> adapters;
  std::vector<Qp *> ready;  // queue pairs that may have something to do
  std::unique_ptr<Cm> cm;
  FaultTable faults;
  std::map<std::string_view, int> open;
  std::vector<std::string> complaints;
  bool timers_expire = false;  // while expire_timers() runs
  bool stopping = false;
  std::thread hardware;

  // All of these need the lock.
  bool step();
  void run() {
    while (step()) {
    }
  }
  bool has_work() const;
  bool is_over_time() const { return options.timers == Timers::kAtOnce || timers_expire; }
  bool chance(int per_thousand) { return static_cast<int>(random() % 1000) < per_thousand; }
  Adapter *adapter_of(const SocketAddress &address) const;
  Adapter *adapter_of(const ibv_ah_attr &attr) const;
  void complain(std::string text) { complaints.push_back(std::move(text)); }
  // Waits until `is_done`; `what` says in the message of the abort what did not happen.
  void wait(std::unique_lock<std::mutex> &lock, const std::function<bool()> &is_done,
            const char *what);
};

// A call of the libraries: the lock, the count, the planned error. At its end the hardware works.
class Entry {
 public:
  Entry(World &world, Call call)
      : world_(world), lock_(world.mutex), error_(world.faults.on_call(call)) {}
  explicit Entry(World &world) : world_(world), lock_(world.mutex) {}
  ~Entry();
  Entry(const Entry &) = delete;
  Entry &operator=(const Entry &) = delete;

  int error() const { return error_; }
  std::unique_lock<std::mutex> &lock() { return lock_; }

 private:
  World &world_;
  std::unique_lock<std::mutex> lock_;
  int error_ = 0;
};

// Counts the objects of a kind that are open, for Network::open_objects().
class Counted {
 public:
  Counted(World &world, std::string_view kind) : world_(world), kind_(kind) { ++world.open[kind]; }
  ~Counted() { --world_.open[kind_]; }
  Counted(const Counted &) = delete;
  Counted &operator=(const Counted &) = delete;

 private:
  World &world_;
  std::string_view kind_;
};

// Sets errno and returns a null pointer or -1.
std::nullptr_t no_object(int error);
int failed(int error);

}  // namespace weft::verbs_double

#endif
