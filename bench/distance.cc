// SPDX-License-Identifier: BSD-2-Clause
#include "distance.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "bench.h"

namespace weft::bench {
namespace {

constexpr size_t kBytes = 4096;
constexpr uint64_t kBatches = 20, kBatch = 100;  // the fastest batch counts: it ran undisturbed

}  // namespace

SharedLine::SharedLine() : fd_(memfd_create("weft-bench-line", MFD_CLOEXEC)) {
  if (fd_.get() < 0) fail("memfd_create: %s", strerror(errno));
  if (ftruncate(fd_.get(), kBytes) != 0) fail("ftruncate: %s", strerror(errno));
  map();
}

SharedLine::SharedLine(Fd shared) : fd_(std::move(shared)) {
  map();
}

SharedLine::~SharedLine() {
  munmap(ball_, kBytes);
}

void SharedLine::map() {
  void *memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) fail("mmap: %s", strerror(errno));
  ball_ = static_cast<std::atomic<uint64_t> *>(memory);
}

void SharedLine::await(uint64_t value, uint64_t deadline_ns) const {
  for (uint64_t spins = 1; ball_->load(std::memory_order_acquire) != value; ++spins) {
    if (spins % 65536 != 0) continue;
    if (now_ns() > deadline_ns) fail("the other side does not answer");
    std::this_thread::yield();  // both may have the same CPU
  }
}

double SharedLine::ask(double seconds) {
  const uint64_t deadline = now_ns() + static_cast<uint64_t>(seconds * 1e9);
  uint64_t at = ball_->load();
  uint64_t best = std::numeric_limits<uint64_t>::max();
  for (uint64_t batch = 0; batch < kBatches; ++batch) {
    const uint64_t start = now_ns();
    for (uint64_t round = 0; round < kBatch; ++round, at += 2) {
      ball_->store(at + 1, std::memory_order_release);
      await(at + 2, deadline);
    }
    best = std::min(best, now_ns() - start);
  }
  return static_cast<double>(best) / kBatch;
}

void SharedLine::answer(double seconds) {
  const uint64_t deadline = now_ns() + static_cast<uint64_t>(seconds * 1e9);
  uint64_t at = ball_->load() & ~uint64_t{1};  // the first question may be there already
  for (uint64_t round = 0; round < kBatches * kBatch; ++round, at += 2) {
    await(at + 1, deadline);
    ball_->store(at + 2, std::memory_order_release);
  }
}

}  // namespace weft::bench
