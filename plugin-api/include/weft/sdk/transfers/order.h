// SPDX-License-Identifier: BSD-2-Clause
// Orders between kinds of operations (fi_endpoint.3, msg_order) that a protocol does not keep by
// itself, for applications that ask for them. The later operation waits, as behind a fence, while
// an earlier one of such a kind may still be in flight to the same peer.
//
// Example:
//    bool start_write(OrderKeeper &keeper, uint32_t peer) {
//      keeper.make_room(peer);
//      const bool fence = keeper.must_wait(peer, OrderKind::kWrite);
//      keeper.started(peer, OrderKind::kWrite, fence);  // once the operation has started
//      return fence;
//    }
//    OrderKeeper keeper_for(const fi_info &info) {
//      constexpr OrderRules kNative{kinds(OrderKind::kSend)};  // messages are in order anyway
//      return {info.tx_attr->msg_order, kNative};
//    }
//
// An application that asks for no such order pays one branch, and no memory. It knows of no
// completion: a fence behind operations that have ended costs nothing.
#ifndef WEFT_SDK_TRANSFERS_ORDER_H
#define WEFT_SDK_TRANSFERS_ORDER_H

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::sdk {

enum class OrderKind : uint8_t { kSend, kRead, kWrite, kAtomic };
inline constexpr size_t kOrderKinds = 4;

constexpr uint8_t kinds(std::same_as<OrderKind> auto... kind) {
  return uint8_t((0u | ... | (1u << unsigned(kind))));
}

// For each kind, a mask of the earlier kinds that it follows.
using OrderRules = std::array<uint8_t, kOrderKinds>;

// The kinds that each kind must follow by `order` (FI_ORDER_...).
constexpr OrderRules order_rules(uint64_t order) {
  using enum OrderKind;
  constexpr uint8_t reads = kinds(kRead, kAtomic), writes = kinds(kWrite, kAtomic);
  const auto when = [order](uint64_t bit, uint8_t mask) {
    return (order & bit) != 0 ? mask : uint8_t(0);
  };
  const uint8_t reading =
      when(FI_ORDER_RAR, reads) | when(FI_ORDER_RAW, writes) | when(FI_ORDER_RAS, kinds(kSend));
  const uint8_t writing =
      when(FI_ORDER_WAR, reads) | when(FI_ORDER_WAW, writes) | when(FI_ORDER_WAS, kinds(kSend));
  OrderRules rules{};
  rules[size_t(kRead)] =
      reading | when(FI_ORDER_RMA_RAR, kinds(kRead)) | when(FI_ORDER_RMA_RAW, kinds(kWrite));
  rules[size_t(kWrite)] =
      writing | when(FI_ORDER_RMA_WAR, kinds(kRead)) | when(FI_ORDER_RMA_WAW, kinds(kWrite));
  rules[size_t(kAtomic)] =
      reading | writing |
      when(FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW,
           kinds(kAtomic));
  rules[size_t(kSend)] =
      when(FI_ORDER_SAR, reads) | when(FI_ORDER_SAW, writes) | when(FI_ORDER_SAS, kinds(kSend));
  return rules;
}

class OrderKeeper {
 public:
  OrderKeeper(uint64_t order, const OrderRules &native) : rules_(order_rules(order)) {
    for (size_t i = 0; i < kOrderKinds; ++i) {
      rules_[i] &= uint8_t(~native[i]);
      any_ |= rules_[i] != 0;
    }
  }
  bool needed() const { return any_; }
  // Whether any kind has to wait for messages: then a message must not end before it has arrived.
  bool awaits_messages() const {
    return ((rules_[size_t(OrderKind::kRead)] | rules_[size_t(OrderKind::kWrite)] |
             rules_[size_t(OrderKind::kAtomic)]) &
            kinds(OrderKind::kSend)) != 0;
  }
  bool must_wait(uint32_t peer, OrderKind kind) const {
    if (!any_) return false;
    const std::vector<uint8_t> &since = since_[peer / kFar];
    const uint32_t at = peer % kFar;
    return at < since.size() && (since[at] & rules_[size_t(kind)]) != 0;
  }
  // Before started(). May throw std::bad_alloc.
  void make_room(uint32_t peer) {
    if (!any_) return;
    std::vector<uint8_t> &since = since_[peer / kFar];
    if (peer % kFar >= since.size()) since.resize(size_t(peer % kFar) + 1);
  }
  void started(uint32_t peer, OrderKind kind, bool fenced) {
    if (!any_) return;
    uint8_t &since = since_[peer / kFar][peer % kFar];
    since = uint8_t((fenced ? 0 : since) | kinds(kind));
  }

 private:
  OrderRules rules_;
  bool any_ = false;
  // Of each peer: kinds started since the last fence. Contexts of peers (Av::kContext) have numbers
  // of their own.
  static constexpr uint32_t kFar = UINT32_C(1) << 30;
  std::array<std::vector<uint8_t>, 2> since_;
};

}  // namespace weft::sdk

#endif
