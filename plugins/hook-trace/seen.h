// SPDX-License-Identifier: BSD-2-Clause
// Seen: what the hook trace knows of an object that it is on; and Post: what it records of a call.
//
// Example:
//    bool records_sends(const weft_hook_link &link) {
//      return state_of(link).ops.has(Op::send);
//    }
//
// Not for writing records: recorder.h does that.
#ifndef WEFT_PLUGINS_HOOK_TRACE_SEEN_H
#define WEFT_PLUGINS_HOOK_TRACE_SEEN_H

#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/unit.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "plugins/hook-trace/settings.h"

namespace weft::trace {

inline constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

// Calls in vain since the last call that was recorded. Counted without a lock: if several threads
// count at once, some counts are lost.
struct InVain {
  std::atomic<uint64_t> count{0};
  std::atomic<uint64_t> since{0};
  std::atomic<uint32_t> op{0};

  void add(uint64_t begin) {
    const uint64_t before = count.load(kRelaxed);
    if (before == 0) since.store(begin, kRelaxed);
    count.store(before + 1, kRelaxed);
  }
};

struct Seen {
  Seen(Store *store_, struct fid *fid_, const OpMask &ops_)
      : fid(fid_),
        store(store_),
        id(uint32_t(sdk::header_of(fid_)->id_core)),
        ops(ops_),
        fclass(uint8_t(fid_->fclass)) {}
  ~Seen() {
    if (entry != nullptr && !store->is_inherited()) {
      entry->reads_in_vain += all_in_vain + in_vain.count;
      store->close_object(entry);
    }
    store->leave();
  }
  Seen(const Seen &) = delete;
  Seen &operator=(const Seen &) = delete;

  // The count of calls in vain, which starts again at 0.
  uint64_t take_in_vain() {
    const uint64_t count = in_vain.count.exchange(0, kRelaxed);
    all_in_vain.fetch_add(count, kRelaxed);
    return count;
  }

  struct fid *const fid;
  Store *const store;
  const uint32_t id;
  const OpMask ops;
  const uint8_t fclass;
  std::atomic<uint8_t> cq_format{0};  // FI_CQ_FORMAT_... ; 0 (UNSPEC): not known
  InVain in_vain;
  std::atomic<uint64_t> all_in_vain{0};
  std::atomic<uint64_t> last_value{0};  // of a counter
  std::atomic<bool> has_addresses{false};
  ObjectEntry *entry = nullptr;  // null: the table is full
};

inline Seen &state_of(const weft_hook_link &link) {
  return *static_cast<Seen *>(link.object_state);
}

// What is recorded of a call, apart from its result and its times.
struct Post {
  uint64_t size = 0;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  uint64_t tag = 0;
  uint64_t flags = 0;
  const void *context = nullptr;
};

inline uint64_t number(const void *pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}
inline const void *pointer(uint64_t value) {
  return reinterpret_cast<const void *>(uintptr_t(value));
}
inline uint32_t short_peer(fi_addr_t peer) {
  return peer < kNoPeer ? uint32_t(peer) : kNoPeer;
}

inline bool is_endpoint(size_t fclass) {
  return fclass == FI_CLASS_EP || fclass == FI_CLASS_SEP || fclass == FI_CLASS_TX_CTX ||
         fclass == FI_CLASS_RX_CTX || fclass == FI_CLASS_SRX_CTX || fclass == FI_CLASS_PEP;
}
// The number of an object; 0 for a fid that is not an object of a plugin, such as the handle of a
// connection request.
inline uint64_t id_of(const struct fid *fid) {
  return fid != nullptr && fid->fclass <= FI_CLASS_AV_SET && fid->fclass != FI_CLASS_CONNREQ &&
                 fid->fclass != FI_CLASS_UNSPEC && sdk::header_of(fid)->magic == WEFT_FID_MAGIC
             ? sdk::header_of(fid)->id_core
             : 0;
}

// Bytes of a completion entry; 0: not known.
inline size_t entry_size(int format) {
  switch (format) {
    case FI_CQ_FORMAT_CONTEXT:
      return sizeof(fi_cq_entry);
    case FI_CQ_FORMAT_MSG:
      return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
      return sizeof(fi_cq_data_entry);
    case FI_CQ_FORMAT_TAGGED:
      return sizeof(fi_cq_tagged_entry);
    default:
      return 0;
  }
}
inline void set_format(Seen &seen, int format) {
  seen.cq_format.store(uint8_t(format), kRelaxed);
  if (seen.entry != nullptr) seen.entry->cq_format = uint32_t(format) + 1;
}

// "10.0.0.1:7471", or the bytes of an address of another family.
inline std::string address_text(const void *address, size_t length) {
  if (auto known = sdk::SockAddr::from(address, length); known && known->size() > 0)
    return known->to_string();
  std::string text;
  const auto *bytes = static_cast<const uint8_t *>(address);
  for (size_t i = 0; i < std::min<size_t>(length, 24); ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    text += digits;
  }
  return text;
}

template <size_t kSize>
void put(char (&place)[kSize], std::string_view text) {
  const size_t n = std::min(text.size(), kSize - 1);
  std::memcpy(place, text.data(), n);
  std::memset(place + n, 0, kSize - n);
}

}  // namespace weft::trace

#endif
