// SPDX-License-Identifier: BSD-2-Clause
// picky: a layer for tests. It passes everything to the provider beneath it, demands of its caller
// what hardware does (FI_MR_LOCAL, FI_CONTEXT2, FI_RX_CQ_DATA, FI_ASYNC_IOV, and FI_MSG_PREFIX for
// datagrams), and checks on every call that the caller keeps to it.
//
//   FI_PROVIDER="tcp;picky;ofi_rxm" FI_PROVIDER_PATH=build/release/lib/weft:build/release/picky
//
// A violation that is seen when a call is made fails the call with -FI_EINVAL. One that is seen
// later (a context or an array that changed, a region that is gone) turns the completion into an
// error entry with FI_EINVAL. A region that is in use does not close. All are counted, and logged
// as warnings. The counters are WEFT_COUNTERS_OPS of the fabric.
//
// Objects are those of the provider beneath, with picky's functions in their tables. Not installed.
#ifndef WEFT_TESTS_PICKY_PICKY_H
#define WEFT_TESTS_PICKY_PICKY_H

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <weft/plugin.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace weft::picky {

// Where the tables of an object of the provider beneath are replaced, `below` has the old ones.
template <class Ops>
struct Table {
  Ops ours{};
  Ops *below = nullptr;
  void take(Ops *&table) {
    below = table;
    ours = *table;
  }
  // Other threads may read the table: weft lists an object when the provider
  // beneath tells of it.
  void put(Ops *&table) { std::atomic_ref(table).store(&ours, std::memory_order_release); }
};

struct Domain;
struct Queue;

struct Endpoint {
  Domain *domain = nullptr;
  fid_ep *fid = nullptr;
  Table<fi_ops> ops;
  Table<fi_ops_msg> msg;
  Table<fi_ops_rma> rma;
  Queue *transmits = nullptr, *receives = nullptr;
  Endpoint *shared = nullptr;  // its shared receive context
  bool selective = false;      // of transmits
  bool selective_receives = false;
  uint64_t tx_flags = 0, rx_flags = 0;
  size_t prefix = 0;
};

enum class Kind : uint8_t { kSend, kRecv, kRead, kWrite };

// A call that has not completed.
struct Op {
  uint64_t id = 0;
  Kind kind = Kind::kSend;
  Endpoint *endpoint = nullptr;  // null: closed
  Queue *queue = nullptr;        // null: not known yet, or closed
  fi_context2 *context = nullptr;
  const iovec *iov = nullptr;  // the caller's arrays, if they must stay
  void *const *desc = nullptr;
  std::vector<iovec> iov_was;
  std::vector<void *> desc_was;
  std::vector<uint64_t> regions;
  uint8_t *prefix = nullptr;
  size_t prefix_size = 0;
  bool used_by_data = false;  // a receive that remote data took: its cancellation is not told
};

struct Region {
  fid_mr *fid = nullptr;
  Table<fi_ops> ops;
  Domain *domain = nullptr;
  uint64_t id = 0;
  std::vector<iovec> memory;
  uint64_t access = 0;
};

// What a queue has read and not told yet.
struct Told {
  fi_cq_err_entry entry{};
  std::string err_data;
  bool error = false;
  bool wants_receive = false;  // remote data that waits for a posted receive
};

struct Queue {
  Domain *domain = nullptr;
  fid_cq *fid = nullptr;
  Table<fi_ops> ops;
  Table<fi_ops_cq> cq;
  enum fi_cq_format format = FI_CQ_FORMAT_CONTEXT;
  std::deque<Told> told;
  std::string err_data;  // of the error that was told last
};

struct Domain {
  fid_domain *fid = nullptr;
  const weft_instance *instance = nullptr;
  Table<fi_ops> ops;
  Table<fi_ops_domain> domain;
  Table<fi_ops_mr> mr;
  std::map<uint64_t, Region *> regions;
  std::map<uint64_t, std::unique_ptr<Op>> calls;        // in order
  std::unordered_map<const void *, uint64_t> numbers;   // of calls, by Op
  std::unordered_map<const void *, uint64_t> contexts;  // the calls that use them
};

struct Fabric {
  fid_fabric *fid = nullptr;
  const weft_instance *instance = nullptr;
  bool closes = false;
  Table<fi_ops> ops;
  Table<fi_ops_fabric> fabric;
};

// Everything that is open, by fid; and what was counted.
struct World {
  std::mutex lock;
  std::map<const void *, Fabric> fabrics;
  std::map<const void *, Domain> domains;
  std::map<const void *, Endpoint> endpoints;
  std::map<const void *, Queue> queues;
  std::map<const void *, Region> regions;
  uint64_t last_id = 0;
  size_t most_regions = 0, inject_size = 0;
  // Read at any time, also while the lock is held by who waits for the reader.
  std::atomic<uint64_t> violations = 0, calls = 0, described = 0, registered = 0, data_receives = 0;
  static World &all();
};

// Counts and logs a violation: -FI_EINVAL.
int violation(const Domain &domain, const char *format, ...) __attribute__((format(printf, 2, 3)));

void adopt(fid_fabric *fabric, const weft_instance *instance);
void adopt(fid_cq *cq, Domain &domain, enum fi_cq_format format);
void adopt(fid_ep *ep, Domain &domain);
Endpoint &of(fid_ep *ep);

// Ends a call: it is off the lists.
std::unique_ptr<Op> remove(Domain &domain, uint64_t id);
// Its context is the caller's again.
void give_back(Domain &domain, const Op &op);
// The end of a call, with the lock held: null if all is well, else what was wrong.
const char *check_end(const Domain &domain, const Op &op);
// Whether `op` is a receive that may take remote data told by `queue`.
bool may_take(const Op &op, const Queue &queue);

constexpr size_t kPrefix = 40;

}  // namespace weft::picky

#endif
