// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/tostr.h"

#include <rdma/fi_errno.h>

#include <cstdint>
#include <cstring>
#include <iterator>

#include "core/base/tostr_names.h"
#include "core/base/tostr_parts.h"

namespace weft {
namespace tostr {
namespace {

void add_fid(Text &text, const struct fid &fid) {
  if (FI_CHECK_OP(fid.ops, struct fi_ops, tostr) && text.left() > 0) {
    if (fid.ops->tostr(&fid, text.at(), text.left()) == 0) {
      text.advance(strnlen(text.at(), text.left()));
      return;
    }
    *text.at() = '\0';
  }
  text.add("fid: %p\n", static_cast<const void *>(&fid));
}

// Structs, and objects. False: `type` is another kind of value.
bool add_struct(Text &text, const void *data, fi_type type) {
  switch (type) {
    case FI_TYPE_INFO:
      add_info(text, *static_cast<const fi_info *>(data), 0);
      return true;
    case FI_TYPE_TX_ATTR:
      add_tx_attr(text, static_cast<const fi_tx_attr *>(data), 0);
      return true;
    case FI_TYPE_RX_ATTR:
      add_rx_attr(text, static_cast<const fi_rx_attr *>(data), 0);
      return true;
    case FI_TYPE_EP_ATTR:
      add_ep_attr(text, static_cast<const fi_ep_attr *>(data), 0);
      return true;
    case FI_TYPE_DOMAIN_ATTR:
      add_domain_attr(text, static_cast<const fi_domain_attr *>(data), 0);
      return true;
    case FI_TYPE_FABRIC_ATTR:
      add_fabric_attr(text, static_cast<const fi_fabric_attr *>(data), 0);
      return true;
    case FI_TYPE_FID:
      add_fid(text, *static_cast<const struct fid *>(data));
      return true;
    case FI_TYPE_AV_ATTR:
      add_av_attr(text, *static_cast<const fi_av_attr *>(data));
      return true;
    case FI_TYPE_CQ_ATTR:
      add_cq_attr(text, *static_cast<const fi_cq_attr *>(data));
      return true;
    case FI_TYPE_MR_ATTR:
      add_mr_attr(text, *static_cast<const fi_mr_attr *>(data));
      return true;
    case FI_TYPE_CNTR_ATTR:
      add_cntr_attr(text, *static_cast<const fi_cntr_attr *>(data));
      return true;
    case FI_TYPE_CQ_ERR_ENTRY:
      add_cq_err_entry(text, *static_cast<const fi_cq_err_entry *>(data));
      return true;
    default:
      return false;
  }
}

// Values and bits. Callers point to enumerations, uint32_t or uint64_t, whatever the type's words
// are.
void add_word(Text &text, const void *data, fi_type type) {
  const auto word = [&] { return load<uint32_t>(data); };
  const auto long_word = [&] { return load<uint64_t>(data); };
  switch (type) {
    case FI_TYPE_EP_TYPE:
      return add_value(text, kEpTypes, word());
    case FI_TYPE_CAPS:
      return add_bits(text, kCaps, long_word());
    case FI_TYPE_OP_FLAGS:
      return add_bits(text, kOpFlags, long_word());
    case FI_TYPE_ADDR_FORMAT:
      return add_open_value(text, kAddrFormats, word());
    case FI_TYPE_THREADING:
      return add_value(text, kThreading, word());
    case FI_TYPE_PROGRESS:
      return add_value(text, kProgress, word());
    case FI_TYPE_PROTOCOL:
      return add_open_value(text, kProtocols, word());
    case FI_TYPE_MSG_ORDER:
      return add_bits(text, kOrders, long_word());
    case FI_TYPE_MODE:
      return add_bits(text, kModes, long_word());
    case FI_TYPE_AV_TYPE:
      return add_value(text, kAvTypes, word());
    case FI_TYPE_ATOMIC_TYPE:
      return add_value(text, kDatatypes, word());
    case FI_TYPE_ATOMIC_OP:
      return add_value(text, kAtomicOps, word());
    case FI_TYPE_VERSION:
      return text.add("%d.%d.%d", FI_MAJOR_VERSION, FI_MINOR_VERSION, FI_REVISION_VERSION);
    case FI_TYPE_EQ_EVENT:
      return add_value(text, kEqEvents, word());
    case FI_TYPE_CQ_EVENT_FLAGS:
      return add_bits(text, kCqEventFlags, long_word());
    case FI_TYPE_MR_MODE:
      return add_mr_mode(text, static_cast<int>(word()));
    case FI_TYPE_OP_TYPE:
      return add_value(text, kOpTypes, word());
    case FI_TYPE_COLLECTIVE_OP:
      return add_value(text, kCollectiveOps, word());
    case FI_TYPE_HMEM_IFACE:
      return add_value(text, kHmemIfaces, word());
    case FI_TYPE_CQ_FORMAT:
      return add_value(text, kCqFormats, word());
    case FI_TYPE_LOG_LEVEL:
      return add_value(text, kLogLevels, word());
    case FI_TYPE_LOG_SUBSYS:
      return add_value(text, kLogSubsystems, word());
    case FI_TYPE_CQ_WAIT_COND:
      return add_value(text, kCqWaitConds, word());
    case FI_TYPE_WAIT_OBJ:
      return add_value(text, kWaitObjs, word());
    default:
      return text.add("Unknown type");
  }
}

}  // namespace
}  // namespace tostr

void to_text(const void *data, fi_type type, char *buffer, size_t size) noexcept {
  if (buffer == nullptr || size == 0) return;
  tostr::Text text(buffer, size);
  if (data == nullptr && type != FI_TYPE_VERSION) return text.add("(null)");
  if (!tostr::add_struct(text, data, type)) tostr::add_word(text, data, type);
}

void nic_to_text(const fid_nic &nic, char *buffer, size_t size) noexcept {
  if (buffer == nullptr || size == 0) return;
  tostr::Text text(buffer, size);
  tostr::add_nic(text, &nic, 0);
}

const char *error_text(int error) noexcept {
  static constexpr const char *kOwn[] = {
      "Other error",
      "Buffer too small for the answer",
      "Not permitted in the object's current state",
      "An error entry is available",
      "Unknown or unsupported flags",
      "No event queue bound",
      "Objects of different domains",
      "No completion queue bound",
      "Checksum mismatch",
      "Message truncated, longer than the buffer",
      "Memory key not available",
      "No address vector bound",
      "Queue overrun, entries lost",
      "Receiver has no buffer posted",
      "No more memory regions available",
      "Address behind a firewall cannot be connected to",
  };
  static_assert(std::size(kOwn) == FI_ERRNO_MAX - FI_ERRNO_OFFSET);
  const int64_t number = error < 0 ? -static_cast<int64_t>(error) : error;
  if (number >= FI_ERRNO_OFFSET && number < FI_ERRNO_MAX) return kOwn[number - FI_ERRNO_OFFSET];
  // Static and thread-safe, unlike strerror().
  const char *text = number <= INT32_MAX ? strerrordesc_np(static_cast<int>(number)) : nullptr;
  return text != nullptr ? text : "Unknown error";
}

}  // namespace weft
