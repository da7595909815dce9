// SPDX-License-Identifier: BSD-2-Clause
// Hmem: memory of devices (FI_HMEM), which the processor may not touch: whose an address is, and
// how bytes get there and back.
//
// Example:
//    // The bytes of a message, from wherever the application has them.
//    inline bool take(const Hmem &hmem, const void *from, size_t length, void *staging) {
//      const HmemPlace place = hmem.find(from, length);  // or what a descriptor says
//      return hmem_copy(staging, nullptr, from, place.or_null(), length);
//    }
//
// An HmemIface is one kind of such memory (enum fi_hmem_iface). Its library is opened at run time,
// and Hmem is what this host has of them. A provider opens it (HmemSource) when hints ask for
// FI_HMEM, offers that where it succeeds, and keeps a null pointer in domains without it: they pay
// for nothing. In a domain with it, an address is looked up once for an operation, or a region has
// its place.
//
// Copies are synchronous: the bytes are there when the call returns. Large ones of a stream of
// bytes can be under way while others are sent: hmem_pipe.h. All calls are thread-safe. Not for the
// host's memory that a device has allocated: that is memory like any other.
#ifndef WEFT_SDK_MEMORY_HMEM_H
#define WEFT_SDK_MEMORY_HMEM_H

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <sys/uio.h>
#include <weft/result.h>
#include <weft/sdk/progress/unique_fd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace weft::sdk {

class HmemIface;

// Where memory is. It is good as long as the memory is allocated.
struct HmemPlace {
  enum class Kind : uint8_t {
    kForeign,  // not of this interface
    kHost,     // of its allocator, but the host's
    kDevice,
    kShared,  // the device's, and loads and stores of the processor reach it, too
  };
  HmemIface *iface = nullptr;  // of kDevice and kShared
  uint64_t device = 0;         // fi_mr_attr.device
  void *context = nullptr;     // the interface's own
  size_t bytes = 0;            // from the address on, until the allocation ends
  size_t direct = 0;           // kShared: copies of up to so many bytes are the processor's
  Kind kind = Kind::kForeign;

  explicit operator bool() const { return iface != nullptr; }
  const HmemPlace *or_null() const { return iface != nullptr ? this : nullptr; }
};

// A range of memory for other drivers: a descriptor of a DMA-buf, and where the range begins in it.
struct HmemDmabuf {
  UniqueFd fd;
  uint64_t offset = 0;
};

class HmemIface {
 public:
  virtual ~HmemIface() = default;
  virtual enum fi_hmem_iface iface() const = 0;
  // Its name in messages: "CUDA".
  virtual const char *name() const = 0;
  virtual HmemPlace find(const void *address) = 0;
  // In any direction: `place` is where one of the two is, and the other one is the host's, or of
  // this interface, too. False: not all bytes were copied.
  virtual bool copy(const HmemPlace &place, void *to, const void *from, size_t length) = 0;
  // The same, but it may be under way still: until finish() both memories must stay as they are.
  virtual bool start(const HmemPlace &place, void *to, const void *from, size_t length) {
    return copy(place, to, from, length);
  }
  // Waits for what was started at places of this context. False: not all bytes were copied.
  virtual bool finish(const HmemPlace &) { return true; }
  // FI_EOPNOTSUPP: the device has none.
  virtual Result<HmemDmabuf> dmabuf(const HmemPlace &place, const void *address, size_t length);
  // Host memory to which this interface will copy often, from where the thread's context is, or
  // from the place's; and the opposite. They may do nothing.
  virtual void register_host(void *, size_t) {}
  virtual void register_host_for(const HmemPlace &, void *, size_t) {}
  virtual void unregister_host(void *) {}
};

struct HmemOptions {
  std::string cuda = "libcuda.so.1";  // the driver's library; empty: none
  size_t direct = 4096;               // HmemPlace::direct
};

class Hmem {
 public:
  // FI_ENODATA: there is no device, or no library for it.
  static Result<std::shared_ptr<const Hmem>> open(const HmemOptions &options);
  Hmem(std::vector<std::unique_ptr<HmemIface>> ifaces, size_t direct)
      : ifaces_(std::move(ifaces)), direct_(direct) {}

  HmemIface *of(int iface) const;  // FI_HMEM_...; null: there is none
  // Without an interface: the host's memory.
  HmemPlace find(const void *address, size_t length) const;
  // Of a registration in a domain with FI_HMEM: whether iface, device and flags are true.
  Result<HmemPlace> check(const fi_mr_attr &attr, uint64_t flags) const;
  // Whether each vector ends within the allocation in which it begins.
  bool holds(const iovec *iov, size_t count) const;
  void register_host(void *address, size_t length) const;
  void unregister_host(void *address) const;

 private:
  std::vector<std::unique_ptr<HmemIface>> ifaces_;
  const size_t direct_;
};

// What a provider has: opens the libraries when somebody asks for FI_HMEM, once. What has failed is
// tried again the next time.
class HmemSource {
 public:
  explicit HmemSource(HmemOptions options) : options_(std::move(options)) {}
  Result<std::shared_ptr<const Hmem>> open();

 private:
  const HmemOptions options_;
  std::mutex mutex_;
  std::shared_ptr<const Hmem> hmem_;
};

// A null place: the host's memory. The two may overlap only where both are.
bool hmem_copy_places(void *to, const HmemPlace *to_place, const void *from,
                      const HmemPlace *from_place, size_t length);
inline bool hmem_copy(void *to, const HmemPlace *to_place, const void *from,
                      const HmemPlace *from_place, size_t length) {
  if (to_place != nullptr || from_place != nullptr)
    return hmem_copy_places(to, to_place, from, from_place, length);
  if (length != 0) std::memmove(to, from, length);
  return true;
}

// gather() and scatter() of iov.h with vectors in memory of any kind; the other side is the host's.
// Null: all is the host's. False: a device has failed.
bool hmem_gather(const Hmem *hmem, void *out, const iovec *iov, size_t count, uint64_t offset,
                 uint64_t n);
bool hmem_scatter(const Hmem *hmem, const iovec *iov, size_t count, uint64_t offset, const void *in,
                  uint64_t n);

// FI_OPT_FI_HMEM_P2P and FI_OPT_CUDA_API_PERMITTED of an endpoint (fi_endpoint.3) that copies: no
// device talks to the network by itself. -FI_ENOPROTOOPT: another option, or the first one without
// FI_HMEM. The second one is -FI_EINVAL where there is no CUDA.
class HmemEndpointOptions {
 public:
  int get(const Hmem *hmem, int name, void *value, size_t *length) const;
  int set(const Hmem *hmem, int name, const void *value, size_t length);

 private:
  int p2p_ = FI_HMEM_P2P_ENABLED;
};

}  // namespace weft::sdk

#endif
