// SPDX-License-Identifier: BSD-2-Clause
// DeviceMemory: memory of a CUDA device for tests, by the library that WEFT_TEST_CUDA names: the
// double beside this file, whose memory faults when it is touched, or the driver's of a real
// device.
//
// Example:
//     #include <gtest/gtest.h>
//     TEST(Example, WhatIsWrittenIsThere) {
//       if (!have_device()) GTEST_SKIP();
//       DeviceMemory memory(100);
//       memory.write(std::vector<uint8_t>(100, 7));
//       EXPECT_EQ(memory.read(), std::vector<uint8_t>(100, 7));
//     }
//
// A call that fails throws. Not for what weft does with it.
#ifndef WEFT_TESTS_HMEM_DEVICE_H
#define WEFT_TESTS_HMEM_DEVICE_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::hmem {

bool have_device();
bool have_double();  // the device is the one beside this file
int device_count();

class DeviceMemory {
 public:
  enum class Kind { kDevice, kManaged, kHost };
  explicit DeviceMemory(size_t size, int device = 0, Kind kind = Kind::kDevice);
  DeviceMemory(const std::vector<uint8_t> &bytes, int device = 0)
      : DeviceMemory(bytes.size(), device) {
    write(bytes);
  }
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;

  uint8_t *data() const { return data_; }
  size_t size() const { return size_; }
  void write(const std::vector<uint8_t> &bytes, size_t offset = 0);
  std::vector<uint8_t> read(size_t offset = 0, size_t length = SIZE_MAX) const;

 private:
  uint8_t *data_ = nullptr;
  size_t size_ = 0;
  int device_ = 0;
  Kind kind_ = Kind::kDevice;
};

// Between any two places, of the host or of a device. A context is current.
void copy(void *to, const void *from, size_t size);

// Of the double: how often the library was asked for this: "queries", "copies", "registrations",
// "registered" (buffers of the host that are registered now).
uint64_t count(const char *what);
// Of the double: after so many more copies each one fails.
void fail_after(uint64_t copies);
inline void fail_no_more() {
  fail_after(UINT64_MAX);
}

// This thread has a context of the device while it lives, as an application's has.
class CurrentContext {
 public:
  explicit CurrentContext(int device = 0);
  ~CurrentContext();
};

// An application that captures a graph, in which no thread may wait for its default stream, nor, if
// it has not said so, for others.
class Capture {
 public:
  Capture();
  ~Capture();
  bool end();  // whether nobody has spoilt it

 private:
  CurrentContext current_;
  void *stream_ = nullptr;
};

}  // namespace weft::hmem

#endif
