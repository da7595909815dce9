// SPDX-License-Identifier: BSD-2-Clause
// Neither reader nor writer allocates: this program counts every operator new.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "connect_message.h"
#include "reader.h"
#include "writer.h"

namespace {
size_t allocations = 0;
}

void *operator new(size_t size) {
  ++allocations;
  if (void *memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept {
  std::free(memory);
}
void operator delete(void *memory, size_t) noexcept {
  std::free(memory);
}

namespace weft::tcp {
namespace {

struct Sink {
  uint8_t buffer[256];
  size_t frames = 0;
  size_t asked = 0;
  Verdict on_header(const FrameHeader &header, Target &target) {
    if (++asked % 5 == 0) return Verdict::kStall;
    const iovec iov = {buffer, sizeof buffer};
    target.fit({&iov, 1}, header.payload_size);
    return Verdict::kAccept;
  }
  void on_frame_end(const FrameHeader &) { ++frames; }
};

TEST(Allocation, NoneOnTheDataPath) {
  static SendItem items[64];
  static uint8_t payload[300];
  static uint8_t stream[64 * 1024];
  Sink sink;
  Reader<Sink> reader(EndpointKind::kMsg, ByteOrder::kNative);
  Writer writer;
  size_t done = 0;
  const size_t before = allocations;
  for (int round = 0; round < 100; ++round) {
    for (size_t i = 0; i < 64; ++i) {
      FrameHeader header;
      header.payload_size = i % 3 == 0 ? sizeof payload : 20;
      items[i].set_header(header, ByteOrder::kNative);
      if (i % 3 == 0) {
        items[i].add(payload, sizeof payload);
      } else {
        items[i].copy(payload, 20);
      }
      i % 7 == 0 ? writer.push_control(items[i]) : writer.push(items[i]);
    }
    size_t length = 0;
    while (!writer.empty()) {
      iovec iov[16];
      const size_t vectors = writer.gather(iov);
      size_t sent = 0;
      for (size_t i = 0; i < vectors; ++i) {
        std::memcpy(stream + length + sent, iov[i].iov_base, iov[i].iov_len);
        sent += iov[i].iov_len;
      }
      length += sent;
      writer.on_sent(sent, [&](SendItem &) { ++done; });
    }
    for (size_t at = 0; at < length || reader.stalled();) {
      reader.resume(sink);
      at += reader.on_bytes({stream + at, std::min<size_t>(777, length - at)}, sink);
    }
  }
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(done, 6400u);
  EXPECT_EQ(sink.frames, 6400u);
}

TEST(Allocation, NoneToConnect) {
  const size_t before = allocations;
  std::array<uint8_t, kMaxConnectSize> bytes;
  const size_t n = encode_connect(ConnectType::kRequest, {}, bytes);
  ConnectReader reader(ConnectRole::kPassive);
  reader.on_bytes({bytes.data(), n});
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(allocations, before);
}

TEST(Allocation, TheCounterCounts) {
  const size_t before = allocations;
  std::vector<int> vector(100);
  EXPECT_GT(allocations, before);
  EXPECT_EQ(vector.size(), 100u);
}

}  // namespace
}  // namespace weft::tcp
