// SPDX-License-Identifier: BSD-2-Clause
#include "tests/hmem/device.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace weft::hmem {
namespace {

void *library() {
  static void *const handle = [] {
    const char *const path = std::getenv("WEFT_TEST_CUDA");
    return path != nullptr ? ::dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  }();
  return handle;
}

template <class F>
F function(const char *name) {
  void *const found = library() != nullptr ? ::dlsym(library(), name) : nullptr;
  if (found == nullptr) throw std::runtime_error(std::string("WEFT_TEST_CUDA has no ") + name);
  return reinterpret_cast<F>(found);
}

template <class... Args>
void call(const char *name, Args... args) {
  const int rc = function<int (*)(Args...)>(name)(args...);
  if (rc != 0) throw std::runtime_error(std::string(name) + " says " + std::to_string(rc));
}

void push_context(int device) {
  call("cuInit", 0u);
  int handle = 0;
  void *context = nullptr;
  call("cuDeviceGet", &handle, device);
  call("cuDevicePrimaryCtxRetain", &context, handle);
  call("cuCtxPushCurrent_v2", context);
}

void pop_context() {
  void *context = nullptr;
  call("cuCtxPopCurrent_v2", &context);
}

uintptr_t address(const void *at) {
  return reinterpret_cast<uintptr_t>(at);
}

}  // namespace

bool have_device() {
  return library() != nullptr;
}

bool have_double() {
  return library() != nullptr && ::dlsym(library(), "fakecuda_count") != nullptr;
}

int device_count() {
  int count = 0;
  call("cuInit", 0u);
  call("cuDeviceGetCount", &count);
  return count;
}

void copy(void *to, const void *from, size_t size) {
  if (size != 0) call("cuMemcpy", address(to), address(from), size);
}

uint64_t count(const char *what) {
  return function<uint64_t (*)(const char *)>("fakecuda_count")(what);
}

void fail_after(uint64_t copies) {
  function<void (*)(uint64_t)>("fakecuda_fail_after")(copies);
}

CurrentContext::CurrentContext(int device) {
  push_context(device);
}
CurrentContext::~CurrentContext() {
  pop_context();
}

DeviceMemory::DeviceMemory(size_t size, int device, Kind kind)
    : size_(size), device_(device), kind_(kind) {
  const CurrentContext current(device);
  uintptr_t at = 0;
  const size_t real = std::max<size_t>(size, 1);
  if (kind == Kind::kDevice)
    call("cuMemAlloc_v2", &at, real);
  else if (kind == Kind::kManaged)
    call("cuMemAllocManaged", &at, real, 1u);
  else
    call("cuMemAllocHost_v2", reinterpret_cast<void **>(&at), real);
  data_ = reinterpret_cast<uint8_t *>(at);
}

DeviceMemory::~DeviceMemory() {
  const CurrentContext current(device_);
  if (kind_ == Kind::kHost)
    call("cuMemFreeHost", static_cast<void *>(data_));
  else
    call("cuMemFree_v2", address(data_));
}

void DeviceMemory::write(const std::vector<uint8_t> &bytes, size_t offset) {
  const CurrentContext current(device_);
  copy(data_ + offset, bytes.data(), bytes.size());
}

std::vector<uint8_t> DeviceMemory::read(size_t offset, size_t length) const {
  const CurrentContext current(device_);
  std::vector<uint8_t> bytes(std::min(length, size_ - offset));
  copy(bytes.data(), data_ + offset, bytes.size());
  return bytes;
}

Capture::Capture() {
  call("cuStreamCreate", &stream_, 0u);
  call("cuStreamBeginCapture_v2", stream_, 0);  // CU_STREAM_CAPTURE_MODE_GLOBAL
}

Capture::~Capture() {
  call("cuStreamDestroy_v2", stream_);
}

bool Capture::end() {
  void *graph = nullptr;
  return function<int (*)(void *, void **)>("cuStreamEndCapture")(stream_, &graph) == 0;
}

}  // namespace weft::hmem
