// SPDX-License-Identifier: BSD-2-Clause
// libcuda inside of a test process: two devices whose memory faults when the processor touches it.
// Only what weft and its tests call, with the forms of the CUDA Driver API. A copy that need not be
// over when its call returns, because the host's side is registered, happens when its stream is
// waited for, and no earlier. So does a cuMemcpy() to a device, unless it was told not to.
//
// An allocation is a memfd. The application sees it without any right; a second mapping, which only
// this file knows, has the bytes. Managed memory has its rights. A context is needed where the real
// driver needs one.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kNotFound = 500, kInvalidContext = 201,
              kInvalidHandle = 400, kOutOfMemory = 2, kNotRegistered = 713,
              kCaptureUnsupported = 900, kCaptureInvalidated = 901, kCaptureImplicit = 906;
constexpr int kCaptureGlobal = 0;
constexpr int kFakeDevices = 2;

struct FakeAllocation {
  size_t size = 0;
  uint8_t *shadow = nullptr;
  int fd = -1;
  int device = 0;
  void *context = nullptr;
  unsigned type = 2;  // device
  bool is_managed = false;
  bool syncs = false;
  uint64_t id = 0;
};

struct FakeLateCopy {
  uint8_t *to;
  std::vector<uint8_t> bytes;
};

struct FakeContext {
  int device;
};

struct FakeCopy {
  uint8_t *to;
  const uint8_t *from;
  size_t length;
};

struct FakeDriver {
  std::mutex mutex;
  std::map<uintptr_t, FakeAllocation> allocations;
  std::map<void *, std::vector<FakeCopy>> streams;  // and what is to be copied
  std::map<uintptr_t, size_t> registered;
  std::vector<FakeLateCopy> late;  // in the default stream
  void *captures = nullptr;        // the stream that does, in mode global
  bool capture_is_good = false;
  uint64_t last_id = 0;
  FakeContext primary[kFakeDevices] = {{0}, {1}};
  std::atomic<uint64_t> queries{0}, copies{0}, registrations{0}, fail_after{UINT64_MAX};

  // Null: it is the host's.
  FakeAllocation *find(uintptr_t at, uintptr_t &start) {
    auto behind = allocations.upper_bound(at);
    if (behind == allocations.begin()) return nullptr;
    --behind;
    if (at - behind->first >= behind->second.size) return nullptr;
    start = behind->first;
    return &behind->second;
  }
  // What a thread may call while another captures, only if it says so.
  int unsafe();
  void copy_late() {
    for (const FakeLateCopy &one : late) std::ranges::copy(one.bytes, one.to);
    late.clear();
  }
  bool may_wait(uintptr_t at, size_t length) {
    uintptr_t start = 0;
    if (find(at, start) != nullptr) return true;
    auto behind = registered.upper_bound(at);
    return behind != registered.begin() &&
           (--behind, at - behind->first + length <= behind->second);
  }
  // Where the bytes are. Null: they are not all in one allocation.
  uint8_t *bytes_at(uintptr_t at, size_t length) {
    uintptr_t start = 0;
    FakeAllocation *const one = find(at, start);
    if (one == nullptr) return reinterpret_cast<uint8_t *>(at);
    if (length > one->size - (at - start)) return nullptr;
    return one->shadow + (at - start);
  }
};

// It outlives the library that uses it.
FakeDriver &driver() {
  static FakeDriver *const one = new FakeDriver;
  return *one;
}

thread_local std::vector<void *> contexts;
thread_local int capture_mode = kCaptureGlobal;

int FakeDriver::unsafe() {
  if (captures == nullptr || capture_mode != kCaptureGlobal) return kSuccess;
  capture_is_good = false;
  return kCaptureUnsupported;
}

// CU_STREAM_LEGACY
void *legacy_stream() {
  return reinterpret_cast<void *>(uintptr_t{1});
}

size_t pages(size_t size) {
  const auto page = size_t(::sysconf(_SC_PAGESIZE));
  return (size + page - 1) / page * page;
}

int allocate(uintptr_t *out, size_t size, FakeAllocation what) {
  if (contexts.empty()) return kInvalidContext;
  if (size == 0) return kInvalidValue;
  what.size = size;
  what.context = contexts.back();
  what.device = static_cast<FakeContext *>(what.context)->device;
  what.fd = ::memfd_create("fakecuda", MFD_CLOEXEC);
  const size_t whole = pages(size);
  if (what.fd < 0 || ::ftruncate(what.fd, off_t(whole)) != 0) return kOutOfMemory;
  const bool is_seen = what.is_managed || what.type == 1;
  void *const seen =
      ::mmap(nullptr, whole, is_seen ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED, what.fd, 0);
  void *const shadow = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, what.fd, 0);
  if (seen == MAP_FAILED || shadow == MAP_FAILED) return kOutOfMemory;
  what.shadow = static_cast<uint8_t *>(shadow);
  *out = reinterpret_cast<uintptr_t>(seen);
  const std::lock_guard guard(driver().mutex);
  if (const int rc = driver().unsafe(); rc != kSuccess) return rc;
  what.id = ++driver().last_id;
  driver().allocations[*out] = what;
  return kSuccess;
}

int copy_rows(uintptr_t to, uintptr_t from, size_t width, size_t height, void *stream) {
  if (contexts.empty()) return kInvalidContext;
  FakeDriver &d = driver();
  d.copies.fetch_add(1);
  const size_t length = width * height;
  const std::lock_guard guard(d.mutex);
  if (!d.streams.contains(stream)) return kInvalidHandle;
  if (d.fail_after.load() == 0) return kInvalidValue;
  d.fail_after.fetch_sub(1);
  uint8_t *const into = d.bytes_at(to, length);
  const uint8_t *const out = d.bytes_at(from, length);
  if (into == nullptr || out == nullptr) return kInvalidValue;
  if (d.may_wait(to, length) && d.may_wait(from, length))
    d.streams[stream].push_back({into, out, length});
  else
    std::memmove(into, out, length);
  return kSuccess;
}

int release(uintptr_t at) {
  const std::lock_guard guard(driver().mutex);
  driver().copy_late();
  const auto found = driver().allocations.extract(at);
  if (found.empty()) return kInvalidValue;
  const size_t whole = pages(found.mapped().size);
  ::munmap(reinterpret_cast<void *>(at), whole);
  ::munmap(found.mapped().shadow, whole);
  ::close(found.mapped().fd);
  return kSuccess;
}

}  // namespace

// ---- what weft calls ----

FAKE_EXPORT int cuInit(unsigned flags) {
  return flags == 0 ? kSuccess : kInvalidValue;
}
FAKE_EXPORT int cuDeviceGetCount(int *count) {
  *count = kFakeDevices;
  return kSuccess;
}
FAKE_EXPORT int cuDeviceGet(int *device, int ordinal) {
  if (ordinal < 0 || ordinal >= kFakeDevices) return kInvalidValue;
  *device = ordinal;
  return kSuccess;
}
FAKE_EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
  if (device < 0 || device >= kFakeDevices) return kInvalidValue;
  *context = &driver().primary[device];
  return kSuccess;
}
FAKE_EXPORT int cuCtxPushCurrent_v2(void *context) {
  if (context == nullptr) return kInvalidContext;
  contexts.push_back(context);
  return kSuccess;
}
FAKE_EXPORT int cuCtxPopCurrent_v2(void **context) {
  if (contexts.empty()) return kInvalidContext;
  *context = contexts.back();
  contexts.pop_back();
  return kSuccess;
}
FAKE_EXPORT int cuCtxGetCurrent(void **context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return kSuccess;
}

FAKE_EXPORT int cuPointerGetAttributes(unsigned count, int *names, void **values, uintptr_t at) {
  driver().queries.fetch_add(1);
  const std::lock_guard guard(driver().mutex);
  uintptr_t start = 0;
  const FakeAllocation *const one = driver().find(at, start);
  for (unsigned i = 0; i != count; ++i) {
    switch (names[i]) {
      case 1:
        *static_cast<void **>(values[i]) = one != nullptr ? one->context : nullptr;
        break;
      case 2:
        *static_cast<unsigned *>(values[i]) = one != nullptr ? one->type : 0;
        break;
      case 6:
        *static_cast<unsigned *>(values[i]) = one != nullptr && one->syncs ? 1 : 0;
        break;
      case 7:
        *static_cast<uint64_t *>(values[i]) = one != nullptr ? one->id : 0;
        break;
      case 8:
        *static_cast<unsigned *>(values[i]) = one != nullptr && one->is_managed ? 1 : 0;
        break;
      case 9:
        *static_cast<int *>(values[i]) = one != nullptr ? one->device : 0;
        break;
      case 11:
        *static_cast<uintptr_t *>(values[i]) = start;
        break;
      case 12:
        *static_cast<size_t *>(values[i]) = one != nullptr ? one->size : 0;
        break;
      default:
        return kInvalidValue;
    }
  }
  return kSuccess;
}

FAKE_EXPORT int cuPointerSetAttribute(const void *value, int name, uintptr_t at) {
  const std::lock_guard guard(driver().mutex);
  uintptr_t start = 0;
  FakeAllocation *const one = driver().find(at, start);
  if (one == nullptr || name != 6 || one->is_managed) return kInvalidValue;
  one->syncs = *static_cast<const unsigned *>(value) != 0;
  return kSuccess;
}

FAKE_EXPORT int cuStreamCreate(void **stream, unsigned) {
  if (contexts.empty()) return kInvalidContext;
  const std::lock_guard guard(driver().mutex);
  if (const int rc = driver().unsafe(); rc != kSuccess) return rc;
  *stream = new char;
  driver().streams[*stream];
  return kSuccess;
}
FAKE_EXPORT int cuStreamSynchronize(void *stream) {
  const std::lock_guard guard(driver().mutex);
  if (stream == legacy_stream()) {
    if (driver().captures != nullptr) {
      driver().capture_is_good = false;
      return kCaptureImplicit;
    }
    driver().copy_late();
    return kSuccess;
  }
  if (const int rc = driver().unsafe(); rc != kSuccess) return rc;
  const auto found = driver().streams.find(stream);
  if (found == driver().streams.end()) return kInvalidHandle;
  for (const FakeCopy &one : found->second) std::memmove(one.to, one.from, one.length);
  found->second.clear();
  return kSuccess;
}
FAKE_EXPORT int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t length, void *stream) {
  return copy_rows(to, from, length, 1, stream);
}
// CUDA_MEMCPY2D
struct FakeCopy2d {
  struct Side {
    size_t x, y;
    int type;
    const void *host;
    uintptr_t device;
    void *array;
    size_t pitch;
  } from, to;
  size_t width, height;
};
FAKE_EXPORT int cuMemcpy2DAsync_v2(const FakeCopy2d *copy, void *stream) {
  for (const FakeCopy2d::Side *side : {&copy->from, &copy->to})
    if (side->x != 0 || side->y != 0 || side->type != 4 || side->pitch != copy->width)
      return kInvalidValue;  // weft asks for nothing else
  return copy_rows(copy->to.device, copy->from.device, copy->width, copy->height, stream);
}
FAKE_EXPORT int cuMemHostRegister_v2(void *address, size_t length, unsigned) {
  if (contexts.empty()) return kInvalidContext;
  const std::lock_guard guard(driver().mutex);
  if (const int rc = driver().unsafe(); rc != kSuccess) return rc;
  driver().registrations.fetch_add(1);
  driver().registered[reinterpret_cast<uintptr_t>(address)] = length;
  return kSuccess;
}
FAKE_EXPORT int cuMemHostUnregister(void *address) {
  const std::lock_guard guard(driver().mutex);
  return driver().registered.erase(reinterpret_cast<uintptr_t>(address)) != 0 ? kSuccess
                                                                              : kNotRegistered;
}
FAKE_EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
  std::swap(capture_mode, *mode);
  return kSuccess;
}
FAKE_EXPORT int cuStreamIsCapturing(void *stream, int *status) {
  const std::lock_guard guard(driver().mutex);
  if (stream == legacy_stream() && driver().captures != nullptr) return kCaptureImplicit;
  *status = stream == driver().captures ? 1 : 0;
  return kSuccess;
}
FAKE_EXPORT int cuMemGetHandleForAddressRange(void *handle, uintptr_t at, size_t length, int type,
                                              unsigned long long flags) {
  const std::lock_guard guard(driver().mutex);
  uintptr_t start = 0;
  const FakeAllocation *const one = driver().find(at, start);
  if (one == nullptr || type != 1 || flags != 0) return kInvalidValue;
  if (at != start || length > pages(one->size)) return kInvalidValue;
  *static_cast<int *>(handle) = ::dup(one->fd);
  return kSuccess;
}

// ---- what tests call, too ----

FAKE_EXPORT int cuMemAlloc_v2(uintptr_t *out, size_t size) {
  return allocate(out, size, {});
}
FAKE_EXPORT int cuMemAllocManaged(uintptr_t *out, size_t size, unsigned) {
  return allocate(out, size, {.is_managed = true});
}
FAKE_EXPORT int cuMemAllocHost_v2(void **out, size_t size) {
  uintptr_t at = 0;
  const int rc = allocate(&at, size, {.type = 1});
  *out = reinterpret_cast<void *>(at);
  return rc;
}
FAKE_EXPORT int cuMemFree_v2(uintptr_t at) {
  return release(at);
}
FAKE_EXPORT int cuMemFreeHost(void *at) {
  return release(reinterpret_cast<uintptr_t>(at));
}
FAKE_EXPORT int cuMemcpy(uintptr_t to, uintptr_t from, size_t length) {
  if (contexts.empty()) return kInvalidContext;
  FakeDriver &d = driver();
  const std::lock_guard guard(d.mutex);
  if (d.captures != nullptr) {
    d.capture_is_good = false;
    return kCaptureImplicit;
  }
  d.copy_late();
  uint8_t *const into = d.bytes_at(to, length);
  const uint8_t *const out = d.bytes_at(from, length);
  if (into == nullptr || out == nullptr) return kInvalidValue;
  uintptr_t start = 0;
  const FakeAllocation *const device = d.find(to, start);
  if (device != nullptr && device->type == 2 && !device->is_managed && !device->syncs)
    d.late.push_back({into, {out, out + length}});
  else
    std::memmove(into, out, length);
  return kSuccess;
}

FAKE_EXPORT int cuStreamBeginCapture_v2(void *stream, int mode) {
  const std::lock_guard guard(driver().mutex);
  if (mode != kCaptureGlobal || driver().captures != nullptr || !driver().streams.contains(stream))
    return kInvalidValue;
  driver().captures = stream;
  driver().capture_is_good = true;
  return kSuccess;
}
FAKE_EXPORT int cuStreamEndCapture(void *stream, void **graph) {
  const std::lock_guard guard(driver().mutex);
  if (driver().captures == nullptr || driver().captures != stream) return kInvalidValue;
  driver().captures = nullptr;
  *graph = nullptr;  // of nothing
  return driver().capture_is_good ? kSuccess : kCaptureInvalidated;
}
FAKE_EXPORT int cuStreamDestroy_v2(void *stream) {
  const std::lock_guard guard(driver().mutex);
  if (driver().streams.erase(stream) == 0) return kInvalidHandle;
  if (driver().captures == stream) driver().captures = nullptr;
  delete static_cast<char *>(stream);
  return kSuccess;
}

// ---- what only a double has ----

FAKE_EXPORT uint64_t fakecuda_count(const char *what) {
  FakeDriver &d = driver();
  if (std::strcmp(what, "queries") == 0) return d.queries.load();
  if (std::strcmp(what, "copies") == 0) return d.copies.load();
  if (std::strcmp(what, "registrations") == 0) return d.registrations.load();
  const std::lock_guard guard(d.mutex);
  return d.registered.size();
}
// After so many more copies each one fails; UINT64_MAX: none does.
FAKE_EXPORT void fakecuda_fail_after(uint64_t copies) {
  driver().fail_after.store(copies);
}
