// SPDX-License-Identifier: BSD-2-Clause
// What the provider beneath a layer demands of its caller: the modes of fi_getinfo.3 and
// FI_MR_LOCAL. And memory that a layer registers there for its own buffers.
//
// Example:
//    // In the hints: what this layer can do, so that providers that need it are found.
//    void accept(fi_info &hints) {
//      hints.mode |= kLayerModes;
//      hints.domain_attr->mr_mode |= FI_MR_LOCAL;
//    }
//    // When an endpoint opens: a pool of buffers, and the descriptor for all calls with them.
//    int make_pool(const fi_info &inner, fid_domain *domain, const iovec &pool, InnerRegion &region) {
//      if (!InnerModes::of(inner).local_memory) return 0;
//      uint64_t last = 0;  // keys: used only where the provider does not choose them
//      const auto next_key = [&last](uint64_t &key) { return key = ++last, true; };
//      return region.open(domain, pool, FI_SEND | FI_RECV, next_key);  // region.desc()
//    }
//
// Not for regions of applications, which peers name by their keys.
#ifndef WEFT_SDK_LAYERS_INNER_MODES_H
#define WEFT_SDK_LAYERS_INNER_MODES_H

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weft::sdk {

// The modes that every layer takes over. FI_MSG_PREFIX is not among them: a layer that makes room
// for a prefix adds it.
inline constexpr uint64_t kLayerModes = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA | FI_ASYNC_IOV;

struct InnerModes {
  bool local_memory = false;        // FI_MR_LOCAL: vectors lie in regions that their desc names
  bool contexts = false;            // FI_CONTEXT, FI_CONTEXT2: a context is a fi_context2
  bool keeps_vectors = false;       // FI_ASYNC_IOV: arrays of vectors stay until the completion
  bool data_takes_receive = false;  // FI_RX_CQ_DATA: remote data uses a posted receive
  size_t prefix = 0;                // FI_MSG_PREFIX: bytes in front of each message

  // `inner` as fi_getinfo gave it.
  static InnerModes of(const fi_info &inner) {
    uint64_t mode = inner.mode;
    if (inner.tx_attr != nullptr) mode |= inner.tx_attr->mode;
    if (inner.rx_attr != nullptr) mode |= inner.rx_attr->mode;
    InnerModes modes{.contexts = (mode & (FI_CONTEXT | FI_CONTEXT2)) != 0,
                     .keeps_vectors = (mode & FI_ASYNC_IOV) != 0,
                     .data_takes_receive = (mode & FI_RX_CQ_DATA) != 0};
    if (inner.domain_attr != nullptr)
      modes.local_memory = (inner.domain_attr->mr_mode & FI_MR_LOCAL) != 0;
    if ((mode & FI_MSG_PREFIX) != 0 && inner.ep_attr != nullptr)
      modes.prefix = inner.ep_attr->msg_prefix_size;
    return modes;
  }
  // Whether a call that sends needs more than its vectors.
  bool of_calls() const { return local_memory || contexts || keeps_vectors || prefix != 0; }
};

// A region of the inner domain. It must go before the domain, and after all calls that name it.
class InnerRegion {
 public:
  InnerRegion() = default;
  InnerRegion(InnerRegion &&other) noexcept : mr_(std::exchange(other.mr_, nullptr)) {}
  InnerRegion &operator=(InnerRegion &&other) noexcept {
    std::swap(mr_, other.mr_);
    return *this;
  }
  ~InnerRegion() { close(); }

  // next_key(uint64_t &key) gives a key to try; false: it has none. 0 or -FI_E...
  template <class NextKey>
  int open(fid_domain *domain, const iovec &memory, uint64_t access, NextKey next_key) {
    close();
    int rc = -FI_ENOKEY;
    uint64_t key = 0;
    for (int attempt = 0; attempt < kAttempts && rc == -FI_ENOKEY && next_key(key); ++attempt)
      rc = fi_mr_reg(domain, memory.iov_base, memory.iov_len, access, 0, key, 0, &mr_, nullptr);
    if (rc != 0) mr_ = nullptr;
    return rc;
  }
  void close() {
    if (mr_ != nullptr) fi_close(&std::exchange(mr_, nullptr)->fid);
  }
  void *desc() const { return mr_ != nullptr ? fi_mr_desc(mr_) : nullptr; }
  fid_mr *get() const { return mr_; }
  fid_mr *release() { return std::exchange(mr_, nullptr); }

 private:
  static constexpr int kAttempts = 64;  // where keys are chosen, some may be in use
  fid_mr *mr_ = nullptr;
};

}  // namespace weft::sdk

#endif
