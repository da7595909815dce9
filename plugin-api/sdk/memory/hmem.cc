// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/transfers/atomic.h>

#include <algorithm>
#include <array>
#include <utility>

#include "hmem_cuda.h"

namespace weft::sdk {
namespace {

constexpr size_t kStaging = size_t{64} << 10;

const char *hmem_text(int iface) {
  switch (iface) {
    case FI_HMEM_SYSTEM:
      return "FI_HMEM_SYSTEM";
    case FI_HMEM_CUDA:
      return "FI_HMEM_CUDA";
    case FI_HMEM_ROCR:
      return "FI_HMEM_ROCR";
    case FI_HMEM_ZE:
      return "FI_HMEM_ZE";
    case FI_HMEM_NEURON:
      return "FI_HMEM_NEURON";
    case FI_HMEM_SYNAPSEAI:
      return "FI_HMEM_SYNAPSEAI";
    default:
      return "no interface that exists";
  }
}

// From one kind of device to another, by way of the host.
bool copy_by_staging(void *to, const HmemPlace &to_place, const void *from,
                     const HmemPlace &from_place, size_t length) {
  const auto staging = std::make_unique<std::array<uint8_t, kStaging>>();
  for (size_t done = 0; done != length;) {
    const size_t part = std::min(length - done, kStaging);
    if (!from_place.iface->copy(from_place, staging->data(),
                                static_cast<const uint8_t *>(from) + done, part) ||
        !to_place.iface->copy(to_place, static_cast<uint8_t *>(to) + done, staging->data(), part))
      return false;
    done += part;
  }
  return true;
}

}  // namespace

Result<HmemDmabuf> HmemIface::dmabuf(const HmemPlace &, const void *, size_t) {
  return fail(FI_EOPNOTSUPP, "%s memory: the driver gives no DMA-buf of it", name());
}

bool hmem_copy_places(void *to, const HmemPlace *to_place, const void *from,
                      const HmemPlace *from_place, size_t length) {
  const auto is_direct = [&](const HmemPlace *place) {
    return place == nullptr || (place->kind == HmemPlace::Kind::kShared &&
                                length <= place->direct && length <= place->bytes);
  };
  if (length == 0) return true;
  if (is_direct(to_place) && is_direct(from_place)) {
    std::memmove(to, from, length);
    return true;
  }
  if (to_place != nullptr && from_place != nullptr && to_place->iface != from_place->iface)
    return copy_by_staging(to, *to_place, from, *from_place, length);
  const HmemPlace &place = to_place != nullptr ? *to_place : *from_place;
  return place.iface->copy(place, to, from, length);
}

bool hmem_gather(const Hmem *hmem, void *out, const iovec *iov, size_t count, uint64_t offset,
                 uint64_t n) {
  if (hmem == nullptr) {
    gather(out, iov, count, offset, n);
    return true;
  }
  auto *to = static_cast<uint8_t *>(out);
  bool good = true;
  pieces(iov, count, offset, n, [&](const uint8_t *at, size_t k) {
    good = good && hmem_copy(to, nullptr, at, hmem->find(at, k).or_null(), k);
    to += k;
  });
  return good;
}

bool hmem_scatter(const Hmem *hmem, const iovec *iov, size_t count, uint64_t offset, const void *in,
                  uint64_t n) {
  if (hmem == nullptr) {
    scatter(iov, count, offset, in, n);
    return true;
  }
  auto *from = static_cast<const uint8_t *>(in);
  bool good = true;
  pieces(iov, count, offset, n, [&](uint8_t *at, size_t k) {
    good = good && hmem_copy(at, hmem->find(at, k).or_null(), from, nullptr, k);
    from += k;
  });
  return good;
}

bool hmem_atomic(const Hmem *hmem, AtomicKind kind, int op, int datatype, const iovec *target,
                 size_t count, uint64_t bytes, const void *operand, const void *compare,
                 void *result) {
  const auto is_devices = [hmem](const iovec &one) {
    return bool(hmem->find(one.iov_base, one.iov_len));
  };
  if (hmem == nullptr || std::none_of(target, target + count, is_devices)) {
    atomic_execute_v(kind, op, datatype, target, count, operand, compare, result);
    return true;
  }
  std::vector<uint8_t> copy(bytes);
  const iovec whole{copy.data(), copy.size()};
  if (!hmem_gather(hmem, copy.data(), target, count, 0, bytes)) return false;
  atomic_execute_v(kind, op, datatype, &whole, 1, operand, compare, result);
  return hmem_scatter(hmem, target, count, 0, copy.data(), bytes);
}

// ---- what is there ----

Result<std::shared_ptr<const Hmem>> Hmem::open(const HmemOptions &options) {
  std::vector<std::unique_ptr<HmemIface>> ifaces;
  if (options.cuda.empty())
    return fail(FI_ENODATA, "FI_HMEM: no library of a device is to be opened: name CUDA's");
  WEFT_TRY(std::unique_ptr<HmemIface> cuda, open_cuda(options.cuda));
  ifaces.push_back(std::move(cuda));
  return std::make_shared<const Hmem>(std::move(ifaces), options.direct);
}

Result<std::shared_ptr<const Hmem>> HmemSource::open() {
  const std::lock_guard guard(mutex_);
  if (hmem_ == nullptr) {
    WEFT_TRY(hmem_, Hmem::open(options_));
  }
  return hmem_;
}

HmemIface *Hmem::of(int iface) const {
  const auto found =
      std::ranges::find_if(ifaces_, [&](const auto &one) { return one->iface() == iface; });
  return found != ifaces_.end() ? found->get() : nullptr;
}

HmemPlace Hmem::find(const void *address, size_t length) const {
  if (length == 0) return {};
  for (const std::unique_ptr<HmemIface> &one : ifaces_) {
    HmemPlace place = one->find(address);
    if (place.kind == HmemPlace::Kind::kForeign) continue;
    if (place.kind == HmemPlace::Kind::kHost) return {};
    if (place.kind == HmemPlace::Kind::kShared) place.direct = direct_;
    return place;
  }
  return {};
}

Result<HmemPlace> Hmem::check(const fi_mr_attr &attr, uint64_t flags) const {
  const void *const address = attr.mr_iov[0].iov_base;
  const size_t length = attr.mr_iov[0].iov_len;
  const HmemPlace place = find(address, length);
  const int asked = raw(attr.iface);  // it may be any number
  if (asked == FI_HMEM_SYSTEM) {
    if (flags & FI_HMEM_DEVICE_ONLY)
      return fail(FI_EINVAL,
                  "memory registration: FI_HMEM_DEVICE_ONLY, but iface is FI_HMEM_SYSTEM: "
                  "say which device by iface and device");
    if (place.kind == HmemPlace::Kind::kDevice)
      return fail(FI_EINVAL,
                  "memory registration: iface is FI_HMEM_SYSTEM, but the memory at %p is of %s "
                  "device %llu: call fi_mr_regattr with its iface",
                  address, place.iface->name(), (unsigned long long)place.device);
    return place;
  }
  HmemIface *const iface = of(asked);
  if (iface == nullptr)
    return fail(FI_EINVAL, "memory registration: iface is %s, of which this host has no device",
                hmem_text(asked));
  if (length == 0) return HmemPlace{};
  if (!place) {
    if (iface->find(address).kind == HmemPlace::Kind::kHost && !(flags & FI_HMEM_DEVICE_ONLY))
      return HmemPlace{};
    return fail(FI_EINVAL,
                "memory registration: iface is %s, but the memory at %p is the host's: "
                "give FI_HMEM_SYSTEM",
                hmem_text(asked), address);
  }
  if (place.iface != iface)
    return fail(FI_EINVAL, "memory registration: iface is %s, but the memory at %p is of %s",
                hmem_text(asked), address, place.iface->name());
  const auto device = uint64_t(uint32_t(attr.device.cuda));
  if (!(flags & FI_HMEM_HOST_ALLOC) && device != place.device)
    return fail(
        FI_EINVAL, "memory registration: device is %llu, but the memory at %p is of %s device %llu",
        (unsigned long long)device, address, iface->name(), (unsigned long long)place.device);
  if (length > place.bytes)
    return fail(FI_EINVAL,
                "memory registration: %zu bytes at %p, but its %s allocation ends after %zu",
                length, address, iface->name(), place.bytes);
  return place;
}

bool Hmem::holds(const iovec *iov, size_t count) const {
  return std::all_of(iov, iov + count, [this](const iovec &one) {
    const HmemPlace place = find(one.iov_base, one.iov_len);
    return !place || one.iov_len <= place.bytes;
  });
}

void Hmem::register_host(void *address, size_t length) const {
  for (const std::unique_ptr<HmemIface> &one : ifaces_) one->register_host(address, length);
}

void Hmem::unregister_host(void *address) const {
  for (const std::unique_ptr<HmemIface> &one : ifaces_) one->unregister_host(address);
}

// ---- options of endpoints ----

int HmemEndpointOptions::get(const Hmem *hmem, int name, void *value, size_t *length) const {
  if (hmem == nullptr || name != FI_OPT_FI_HMEM_P2P) return -FI_ENOPROTOOPT;
  if (value == nullptr || length == nullptr) return -FI_EINVAL;
  const bool fits = *length >= sizeof p2p_;
  *length = sizeof p2p_;
  if (!fits) return -FI_ETOOSMALL;
  std::memcpy(value, &p2p_, sizeof p2p_);
  return 0;
}

int HmemEndpointOptions::set(const Hmem *hmem, int name, const void *value, size_t length) {
  if (name == FI_OPT_CUDA_API_PERMITTED) {
    bool permitted;
    if (value == nullptr || length != sizeof permitted) return -FI_EINVAL;
    if (hmem == nullptr || hmem->of(FI_HMEM_CUDA) == nullptr) return -FI_EINVAL;
    std::memcpy(&permitted, value, sizeof permitted);
    return permitted ? 0 : -FI_EOPNOTSUPP;
  }
  if (hmem == nullptr || name != FI_OPT_FI_HMEM_P2P) return -FI_ENOPROTOOPT;
  int wanted;
  if (value == nullptr || length != sizeof wanted) return -FI_EINVAL;
  std::memcpy(&wanted, value, sizeof wanted);
  if (wanted < FI_HMEM_P2P_ENABLED || wanted > FI_HMEM_P2P_DISABLED) return -FI_EINVAL;
  if (wanted == FI_HMEM_P2P_REQUIRED) return -FI_EOPNOTSUPP;
  p2p_ = wanted;
  return 0;
}

}  // namespace weft::sdk
