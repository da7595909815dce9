// SPDX-License-Identifier: BSD-2-Clause
#include "hmem_cuda.h"

#include <dlfcn.h>
#include <rdma/fi_errno.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

namespace weft::sdk {
namespace {

// Of the CUDA Driver API: CUresult 0 is success; a CUdeviceptr has the size of a pointer.
constexpr int kCudaSuccess = 0;
// CUpointer_attribute
constexpr int kPointerContext = 1, kPointerMemoryType = 2, kPointerSyncMemops = 6,
              kPointerBufferId = 7, kPointerIsManaged = 8, kPointerDevice = 9,
              kPointerRangeStart = 11, kPointerRangeSize = 12;
constexpr unsigned kMemoryTypeHost = 1;        // CUmemorytype
constexpr unsigned kStreamNonBlocking = 1;     // CU_STREAM_NON_BLOCKING
constexpr unsigned kHostRegisterPortable = 1;  // CU_MEMHOSTREGISTER_PORTABLE
constexpr int kRangeHandleDmabuf = 1;          // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
constexpr int kMemoryTypeUnified = 4;          // CUmemorytype
constexpr int kCaptureRelaxed = 2;             // CU_STREAM_CAPTURE_MODE_RELAXED

// CU_STREAM_LEGACY
void *legacy_stream() {
  return reinterpret_cast<void *>(uintptr_t{1});
}

// CUDA_MEMCPY2D
struct CudaCopy2d {
  struct Side {
    size_t x = 0, y = 0;
    int type = kMemoryTypeUnified;
    const void *host = nullptr;
    uintptr_t device = 0;
    void *array = nullptr;
    size_t pitch = 0;
  } from, to;
  size_t width = 0, height = 0;
};

// Shorter copies to a device are written by its compute engine, which first waits for the time
// slices of other processes: 144 us instead of 9 where two processes share an H200. A copy of two
// rows goes by a copy engine, like a longer one, and takes 1 to 2 us more than one by an engine
// that is free.
constexpr size_t kShort = 32768;
constexpr std::chrono::microseconds kTooLong{50};  // of a short copy: the next ones are in rows,
constexpr int kRowsAfter = 1000;                   // so many
constexpr size_t kMostInOrder = 4096;              // buffers that are remembered

struct CudaFunctions {
  int (*init)(unsigned);
  int (*device_count)(int *);
  int (*device_get)(int *, int);
  int (*primary_retain)(void **, int);
  int (*push)(void *);
  int (*pop)(void **);
  int (*current)(void **);
  int (*attributes)(unsigned, int *, void **, uintptr_t);
  int (*stream_create)(void **, unsigned);
  int (*stream_synchronize)(void *);
  int (*copy)(uintptr_t, uintptr_t, size_t, void *);
  int (*copy_2d)(const CudaCopy2d *, void *);          // may be null
  int (*set_attribute)(const void *, int, uintptr_t);  // may be null
  int (*host_register)(void *, size_t, unsigned);
  int (*host_unregister)(void *);
  int (*range_handle)(void *, uintptr_t, size_t, int, unsigned long long);  // may be null
  int (*exchange_capture_mode)(int *);                                      // may be null
  int (*is_capturing)(void *, int *);                                       // may be null
};

class CudaMemory final : public HmemIface {
 public:
  explicit CudaMemory(const CudaFunctions &cuda) : cuda_(cuda) {}

  enum fi_hmem_iface iface() const override { return FI_HMEM_CUDA; }
  const char *name() const override { return "CUDA"; }
  HmemPlace find(const void *address) override;
  bool copy(const HmemPlace &place, void *to, const void *from, size_t length) override;
  bool start(const HmemPlace &place, void *to, const void *from, size_t length) override;
  bool finish(const HmemPlace &place) override;
  Result<HmemDmabuf> dmabuf(const HmemPlace &place, const void *address, size_t length) override;
  void register_host(void *address, size_t length) override;
  void register_host_for(const HmemPlace &place, void *address, size_t length) override;
  void unregister_host(void *address) override;

 private:
  // A context that is the thread's while this lives. Its calls have nothing to do with a graph that
  // the application may be capturing, and do not end the capture.
  class Current {
   public:
    Current(const CudaFunctions &cuda, void *context)
        : cuda_(cuda), is_current_(cuda.push(context) == kCudaSuccess) {
      has_mode_ = is_current_ && cuda.exchange_capture_mode != nullptr &&
                  cuda.exchange_capture_mode(&mode_) == kCudaSuccess;
    }
    ~Current() {
      void *gone = nullptr;
      if (has_mode_) cuda_.exchange_capture_mode(&mode_);
      if (is_current_) cuda_.pop(&gone);
    }
    Current(const Current &) = delete;
    Current &operator=(const Current &) = delete;
    explicit operator bool() const { return is_current_; }

   private:
    const CudaFunctions &cuda_;
    const bool is_current_;
    bool has_mode_ = false;
    int mode_ = kCaptureRelaxed;  // then what the thread had
  };

  void *context_of(int device);
  void put_in_order(uintptr_t at, uint64_t buffer, void *context);
  void *stream_of(void *context);
  bool start_once(void *stream, void *to, const void *from, size_t length);

  const CudaFunctions cuda_;
  std::atomic<int> rows_left_{0};  // copies that are in rows
  std::mutex mutex_;
  std::unordered_set<uint64_t> in_order_;       // buffers without the attribute of put_in_order()
  std::unordered_map<int, void *> primary_;     // contexts, by device
  std::unordered_map<void *, void *> streams_;  // by context
};

// One call for all that is wanted. Of an address that CUDA does not know it says nothing, by zeros.
HmemPlace CudaMemory::find(const void *address) {
  void *context = nullptr;
  unsigned type = 0, is_managed = 0;
  int device = 0;
  uintptr_t start = 0;
  size_t size = 0;
  uint64_t buffer = 0;
  unsigned syncs = 0;
  std::array<int, 8> names = {kPointerContext,    kPointerMemoryType, kPointerSyncMemops,
                              kPointerBufferId,   kPointerIsManaged,  kPointerDevice,
                              kPointerRangeStart, kPointerRangeSize};
  std::array<void *, 8> values = {&context,    &type,   &syncs, &buffer,
                                  &is_managed, &device, &start, &size};
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (cuda_.attributes(unsigned(names.size()), names.data(), values.data(), at) != kCudaSuccess ||
      type == 0)
    return {};
  HmemPlace place{.device = uint64_t(uint32_t(device)), .context = context, .bytes = size};
  if (start != 0 && at >= start) place.bytes = start + size - at;
  if (type == kMemoryTypeHost && is_managed == 0) {
    place.kind = HmemPlace::Kind::kHost;
    return place;
  }
  place.iface = this;
  place.kind = is_managed != 0 ? HmemPlace::Kind::kShared : HmemPlace::Kind::kDevice;
  // Memory that was not allocated in a context: any one of its device.
  if (place.context == nullptr) place.context = context_of(device);
  if (is_managed == 0 && syncs == 0) put_in_order(at, buffer, place.context);
  return place;
}

// A cuMemcpy() to a device may return before the bytes are there. Our copies must come after them,
// but they are in a stream of their own, so as not to wait for the application's kernels. So such
// calls for this buffer are to return later (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), and the first time
// we wait for those that were before. Not every kind of allocation has the attribute: then this
// happens once for a buffer. While the application captures a graph nobody may wait for its default
// stream: a later look does.
void CudaMemory::put_in_order(uintptr_t at, uint64_t buffer, void *context) {
  const Current current(cuda_, context);
  int status = 0;
  if (!current || (cuda_.is_capturing != nullptr &&
                   cuda_.is_capturing(legacy_stream(), &status) != kCudaSuccess))
    return;
  const unsigned yes = 1;
  if (cuda_.set_attribute == nullptr ||
      cuda_.set_attribute(&yes, kPointerSyncMemops, at) != kCudaSuccess) {
    const std::lock_guard guard(mutex_);
    if (in_order_.size() >= kMostInOrder) in_order_.clear();
    if (!in_order_.insert(buffer).second) return;
  }
  (void)cuda_.stream_synchronize(legacy_stream());
}

void *CudaMemory::context_of(int device) {
  const std::lock_guard guard(mutex_);
  if (const auto found = primary_.find(device); found != primary_.end()) return found->second;
  int handle = 0;
  void *context = nullptr;
  if (cuda_.device_get(&handle, device) != kCudaSuccess ||
      cuda_.primary_retain(&context, handle) != kCudaSuccess)
    return nullptr;
  return primary_[device] = context;
}

// The context is current. Null: there is none to be had.
void *CudaMemory::stream_of(void *context) {
  const std::lock_guard guard(mutex_);
  if (const auto found = streams_.find(context); found != streams_.end()) return found->second;
  void *stream = nullptr;
  if (cuda_.stream_create(&stream, kStreamNonBlocking) != kCudaSuccess) return nullptr;
  return streams_[context] = stream;
}

bool CudaMemory::start_once(void *stream, void *to, const void *from, size_t length) {
  if (stream == nullptr) return false;
  const auto into = reinterpret_cast<uintptr_t>(to), out = reinterpret_cast<uintptr_t>(from);
  if (length < 2 || length >= kShort || cuda_.copy_2d == nullptr ||
      rows_left_.load(std::memory_order_relaxed) <= 0)
    return cuda_.copy(into, out, length, stream) == kCudaSuccess;
  rows_left_.fetch_sub(1, std::memory_order_relaxed);
  const auto in_rows = [&](size_t at, size_t row) {
    CudaCopy2d copy{.width = row, .height = 2};
    copy.from.device = out + at;
    copy.to.device = into + at;
    copy.from.pitch = copy.to.pitch = row;
    return cuda_.copy_2d(&copy, stream) == kCudaSuccess;
  };
  // Of an odd number of bytes the last two are two rows, too.
  return in_rows(0, length / 2) && (length % 2 == 0 || in_rows(length - 2, 1));
}

bool CudaMemory::copy(const HmemPlace &place, void *to, const void *from, size_t length) {
  using Clock = std::chrono::steady_clock;
  if (length >= kShort || rows_left_.load(std::memory_order_relaxed) > 0)
    return start(place, to, from, length) && finish(place);
  const Clock::time_point before = Clock::now();
  const bool good = start(place, to, from, length) && finish(place);
  if (Clock::now() - before > kTooLong) rows_left_.store(kRowsAfter, std::memory_order_relaxed);
  return good;
}

bool CudaMemory::start(const HmemPlace &place, void *to, const void *from, size_t length) {
  const Current current(cuda_, place.context);
  if (!current) return false;
  if (start_once(stream_of(place.context), to, from, length)) return true;
  // The application may have destroyed a context, and have got another one at the same address.
  {
    const std::lock_guard guard(mutex_);
    streams_.erase(place.context);
  }
  return start_once(stream_of(place.context), to, from, length);
}

bool CudaMemory::finish(const HmemPlace &place) {
  const Current current(cuda_, place.context);
  return current && cuda_.stream_synchronize(stream_of(place.context)) == kCudaSuccess;
}

Result<HmemDmabuf> CudaMemory::dmabuf(const HmemPlace &place, const void *address, size_t length) {
  if (cuda_.range_handle == nullptr) return HmemIface::dmabuf(place, address, length);
  const Current current(cuda_, place.context);
  // Whole pages of the host.
  const auto page = uintptr_t(::sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<uintptr_t>(address);
  const uintptr_t start = at & ~(page - 1);
  const uintptr_t end = (at + length + page - 1) & ~(page - 1);
  int fd = -1;
  const int rc = current ? cuda_.range_handle(&fd, start, end - start, kRangeHandleDmabuf, 0) : -1;
  if (rc != kCudaSuccess)
    return fail(FI_EOPNOTSUPP, "CUDA memory at %p: no DMA-buf of it (CUresult %d)", address, rc);
  return HmemDmabuf{.fd = UniqueFd(fd), .offset = at - start};
}

// For the context that the application has at hand; without one there is no device to register at.
void CudaMemory::register_host(void *address, size_t length) {
  void *context = nullptr;
  if (cuda_.current(&context) != kCudaSuccess || context == nullptr) return;
  const Current current(cuda_, context);
  if (current) (void)cuda_.host_register(address, length, kHostRegisterPortable);
}

void CudaMemory::register_host_for(const HmemPlace &place, void *address, size_t length) {
  const Current current(cuda_, place.context);
  if (current) (void)cuda_.host_register(address, length, kHostRegisterPortable);
}

void CudaMemory::unregister_host(void *address) {
  void *context = nullptr;
  if (cuda_.current(&context) != kCudaSuccess || context == nullptr) context = context_of(0);
  if (context == nullptr) return;
  const Current current(cuda_, context);
  if (current) (void)cuda_.host_unregister(address);
}

}  // namespace

Result<std::unique_ptr<HmemIface>> open_cuda(const std::string &library) {
  void *const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char *const why = ::dlerror();
    return fail(FI_ENODATA,
                "FI_HMEM_CUDA: %s: install the driver of the device, or name its library (libcuda)",
                why != nullptr ? why : library.c_str());
  }
  CudaFunctions cuda{};
  const char *missing = nullptr;
  const auto may_have = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    return function != nullptr;
  };
  const auto has = [&](auto &function, const char *name) {
    if (!may_have(function, name) && missing == nullptr) missing = name;
  };
  has(cuda.init, "cuInit");
  has(cuda.device_count, "cuDeviceGetCount");
  has(cuda.device_get, "cuDeviceGet");
  has(cuda.primary_retain, "cuDevicePrimaryCtxRetain");
  has(cuda.push, "cuCtxPushCurrent_v2");
  has(cuda.pop, "cuCtxPopCurrent_v2");
  has(cuda.current, "cuCtxGetCurrent");
  has(cuda.attributes, "cuPointerGetAttributes");
  has(cuda.stream_create, "cuStreamCreate");
  has(cuda.stream_synchronize, "cuStreamSynchronize");
  has(cuda.copy, "cuMemcpyAsync");
  has(cuda.host_register, "cuMemHostRegister_v2");
  has(cuda.host_unregister, "cuMemHostUnregister");
  may_have(cuda.copy_2d, "cuMemcpy2DAsync_v2");
  may_have(cuda.set_attribute, "cuPointerSetAttribute");
  may_have(cuda.range_handle, "cuMemGetHandleForAddressRange");
  may_have(cuda.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  may_have(cuda.is_capturing, "cuStreamIsCapturing");
  if (missing != nullptr)
    return fail(FI_ENOSYS, "FI_HMEM_CUDA: %s has no %s: update the driver of the device",
                library.c_str(), missing);
  int count = 0;
  if (const int rc = cuda.init(0); rc != kCudaSuccess)
    return fail(FI_ENODATA, "FI_HMEM_CUDA: cuInit says %d: is there a device? See nvidia-smi", rc);
  if (cuda.device_count(&count) != kCudaSuccess || count == 0)
    return fail(FI_ENODATA, "FI_HMEM_CUDA: the driver has no device: see nvidia-smi");
  return std::make_unique<CudaMemory>(cuda);
}

}  // namespace weft::sdk
