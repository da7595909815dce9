// SPDX-License-Identifier: BSD-2-Clause
// MrTable: the memory regions of a software provider (fi_mr.3), and the bounds-checked way from a
// peer's (key, address, length) to memory. Memory (memory.h) is the interface that it has in common
// with the registrars of devices.
//
// Example:
//    bool write(MrTable &table, uint64_t key, uint64_t address, const char *bytes, size_t n) {
//      iovec iov[4];
//      const MrTable::Access a = table.resolve(key, address, n, FI_REMOTE_WRITE, iov, 4);
//      if (a.mr == nullptr) return false;  // a.reject says why; no memory was touched
//      for (size_t i = 0; i < a.count; bytes += iov[i++].iov_len)
//        std::memcpy(iov[i].iov_base, bytes, iov[i].iov_len);
//      return true;
//    }
//
// resolve() is the only way to an application's memory that a peer can name. A region stays
// registered while an operation pins it: fi_close of a pinned region first calls on_close, and the
// provider must stop using the memory. The table of a lane (scalable.h) borrows the regions of its
// origin: what a peer names, and is there, gets a copy here, until the region closes. resolve(),
// pins and size() are for the provider, with the engine's lock held; applications call the rest.
// Not for device memory: without FI_HMEM the interface in fi_mr_attr is ignored (fi_mr.3), as it
// must be for callers whose struct ends before it.
#ifndef WEFT_SDK_MEMORY_MR_H
#define WEFT_SDK_MEMORY_MR_H

#include <rdma/fi_domain.h>
#include <sys/uio.h>
#include <weft/sdk/memory/memory.h>
#include <weft/sdk/objects/cntr.h>
#include <weft/sdk/objects/endpoint_number.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace weft::sdk {

class MrTable;

class Mr final : public Object<Mr, fid_mr> {
 public:
  uint64_t key() const { return fid_key_; }
  uint64_t access() const { return access_; }
  bool enabled() const { return enabled_; }
  bool persistent() const { return persistent_; }  // FI_RMA_PMEM: what is written is kept
  // The connection whose peer alone may name the region; 0: it is open to all.
  uint64_t holder() const { return holder_; }
  // Whether it is open to peers, by its key.
  bool is_reached() const {
    return holder_ != 0 || (access_ & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0;
  }
  // A peer wrote or read `bytes` here: counts them in the counters bound to the region
  // (FI_RMA_EVENT).
  void count_remote(uint64_t access, uint64_t bytes);
  size_t pins = 0;  // operations in flight that refer to the region
  // From now on only peers that come through this endpoint (MrPeer::endpoint) reach the region.
  void confine(uint64_t endpoint);

  int close();
  // Of an endpoint flags should be 0 (fi_mr.3); programs pass those of the counter, too (SOS).
  static constexpr uint64_t kBindFlags = FI_REMOTE_WRITE | FI_REMOTE_READ;
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);  // FI_ENABLE, FI_REFRESH, FI_GET_RAW_MR

 private:
  friend class MrTable;
  int raw_attr(const struct fi_mr_raw_attr *attr) const;
  Mr(MrTable &table, const fi_mr_attr &attr, uint64_t flags, uint64_t key, bool enabled,
     uint64_t holder);
  Mr(MrTable &table, Mr &lent);  // a copy, which no fid names
  ~Mr() = default;

  MrTable &table_;
  std::vector<iovec> iov_;
  uint64_t length_ = 0;
  const uint64_t access_;
  const uint64_t fid_key_;
  const uint64_t holder_;
  const bool persistent_;
  bool enabled_;
  uint64_t endpoint_ = 0;  // FI_MR_ENDPOINT: the number of the endpoint that it is bound to
  Cntr *remote_write_ = nullptr, *remote_read_ = nullptr;  // what the region reports to,
  Cntr *outer_write_ = nullptr, *outer_read_ = nullptr;    // and the application's
  // What peers did through lanes, not reported yet; and, of a lane's copy, the region itself.
  struct Far {
    std::atomic<uint64_t> operations{0}, bytes{0};
  };
  Far far_write_, far_read_;
  Mr *const lender_ = nullptr;
};

// Through which endpoint a peer comes (EndpointCore::number()), and, where an endpoint has regions
// for the peer of one connection alone, through which connection.
struct MrPeer {
  uint64_t endpoint = 0;
  uint64_t holder = 0;
};

enum class MrReject { kNone, kNoKey, kDisabled, kAccess, kRange };
const char *text_of(MrReject reject);

class MrTable final : public Memory {
 public:
  struct Mode {
    // FI_MR_VIRT_ADDR: peers name virtual addresses; else offsets from the region's start.
    bool virtual_addresses = false;
    // FI_MR_PROV_KEY: keys are random 64-bit numbers; else the application's.
    bool provider_keys = false;
    // FI_MR_RMA_EVENT: regions registered with FI_RMA_EVENT start disabled.
    bool enable_needed = false;
    // FI_MR_ENDPOINT: all regions start disabled and are bound to an endpoint before they are
    // enabled. A region is open to the peers of this endpoint alone.
    bool endpoint_needed = false;
    size_t iov_limit = 4;

    // What domain_attr.mr_mode asks for. Of its other bits the processor needs nothing: FI_MR_LOCAL
    // and FI_MR_HMEM (descriptors may be given or not), FI_MR_RAW (raw keys work in every mode),
    // FI_MR_ALLOCATED, FI_MR_MMU_NOTIFY, FI_MR_COLLECTIVE.
    static Mode of(int mr_mode);
  };
  MrTable(DomainContext &domain, Mode mode);
  ~MrTable();
  // Of a lane: lends from the regions of its origin, from now on and until it stops.
  void borrow_from(MrTable &origin);
  void stop_borrowing();

  struct Access {
    Mr *mr = nullptr;
    MrReject reject = MrReject::kNone;
    size_t count = 0;  // iovecs written
  };
  // Finds [address, address + length) of region `key` for a peer, and writes its pieces to iov
  // (`room` elements; iov_limit is enough).
  Access resolve(uint64_t key, uint64_t address, uint64_t length, uint64_t access, iovec *iov,
                 size_t room, const MrPeer &peer = {});

  // Called for a pinned region before it closes. The code that pinned it must stop using its memory
  // before this returns.
  std::function<void(Mr &)> on_close;

  // fi_mr_map_raw: the key in a raw key that FI_GET_RAW_MR gave a peer. 0 or -FI_E...
  static int map_raw(const struct fi_mr_map_raw *map);

  // fi_ops_mr. With a `holder` (new_holder()) for the peer of one connection alone: enabled at
  // once, and under a random key whatever the mode says. Such regions are a layer's, not an
  // application's (weft/sdk/layers/carrier.h), and an endpoint does not count accesses to them.
  Result<Mr *> reg(const fi_mr_attr &attr, uint64_t flags, uint64_t holder = 0);
  Result<fid_mr *> open(const fi_mr_attr &attr, uint64_t flags) override;
  uint64_t new_holder() { return ++last_holder_; }  // with the engine's lock held
  size_t size() const { return regions_.size(); }
  // FI_RMA_PMEM: writes to its medium what a peer has written there; regions without it are left
  // alone. False: the medium has failed.
  bool persist(uint64_t key, uint64_t address, uint64_t length, const MrPeer &peer);
  // Of a lane: perhaps.
  bool has_persistent() const { return persistent_ != 0 || origin_ != nullptr; }

 private:
  friend class Mr;
  uint64_t random_key();
  Mr *borrow(uint64_t key, MrReject &reject);
  bool give_back(uint64_t key);
  bool end_borrowed(Mr &mr);

  DomainContext &domain_;
  const Mode mode_;
  uint64_t last_holder_ = 0;
  // Unused random numbers: the kernel is asked for many at a time.
  std::array<uint64_t, 32> random_;
  size_t random_left_ = 0;
  std::unordered_map<uint64_t, Mr *> regions_;
  size_t persistent_ = 0;  // of these regions
  // Locks: the origin's engine, then that of a lane, then lending_. What a lane reads changes with
  // the first and the last of them held.
  MrTable *origin_ = nullptr;
  class FarCounts;
  std::unique_ptr<FarCounts> far_;  // while there are borrowers
  std::mutex lending_;
  std::vector<MrTable *> borrowers_;
};

}  // namespace weft::sdk

#endif
