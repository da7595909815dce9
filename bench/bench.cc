// SPDX-License-Identifier: BSD-2-Clause
#include "bench.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "control.h"

namespace weft::bench {

namespace {

constexpr size_t kLead = 64;  // Room in front of every payload; also its alignment.

constexpr struct {
  Test test;
  const char *name;
} kTests[] = {
    {Test::kLat, "lat"},          {Test::kBw, "bw"},
    {Test::kRate, "rate"},        {Test::kWriteLat, "write_lat"},
    {Test::kWriteBw, "write_bw"}, {Test::kReadLat, "read_lat"},
    {Test::kReadBw, "read_bw"},   {Test::kOverlap, "overlap"},
};

size_t stride(size_t size) {
  return kLead + (size + kLead - 1) / kLead * kLead;
}

// Two at least: the latency tests have one message in flight, but post the next receive early.
uint32_t depth_of(const Spec &spec) {
  return std::max<uint32_t>(spec.window, 2);
}

uint64_t pattern_word(uint64_t message, uint64_t index) {
  uint64_t x = (message + 1) * 0x9e3779b97f4a7c15u ^ (index + 1) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 29);
}

}  // namespace

const char *test_name(Test test) {
  for (const auto &entry : kTests) {
    if (entry.test == test) return entry.name;
  }
  return "?";
}

bool parse_test(const std::string &name, Test *test) {
  for (const auto &entry : kTests) {
    if (name == entry.name) {
      *test = entry.test;
      return true;
    }
  }
  return false;
}

Arena::Arena(const Spec &spec) : size_(spec.size), depth_(depth_of(spec)) {
  const size_t message = stride(spec.size);
  const size_t control = stride(kControlSize);
  length_ = 2 * depth_ * message + 2 * kControlSlots * control;
  void *memory = mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fail("cannot allocate %d bytes of message buffers: %s (choose a smaller --window or size)",
         length_, strerror(errno));
  }
  base_ = static_cast<char *>(memory);
  memset(base_, 0x5a, length_);  // The page faults happen here, not in the measurement.
  char *next = base_;
  auto carve = [&next](std::vector<Slot> *slots, uint32_t count, size_t stride, bool receive) {
    slots->resize(count);
    for (Slot &slot : *slots) {
      slot.data = next + kLead;
      slot.receive = receive;
      next += stride;
    }
  };
  carve(&tx_, depth_, message, false);
  carve(&rx_, depth_, message, true);
  carve(&control_tx_, kControlSlots, control, false);
  carve(&control_rx_, kControlSlots, control, true);
}

Arena::~Arena() {
  munmap(base_, length_);
}

bool Arena::fits(const Spec &spec) const {
  return spec.size == size_ && depth_of(spec) == depth_;
}

void Arena::reset() {
  for_each([](Slot &slot, void *) { slot.busy = false; }, nullptr);
}

void Arena::for_each(void (*visit)(Slot &, void *), void *argument) {
  for (auto *slots : {&tx_, &rx_, &control_tx_, &control_rx_}) {
    for (Slot &slot : *slots) visit(slot, argument);
  }
}

void fill_pattern(char *data, size_t size, uint64_t message) {
  for (size_t at = 0; at < size; at += 8) {
    const uint64_t word = pattern_word(message, at);
    memcpy(data + at, &word, std::min<size_t>(8, size - at));
  }
}

size_t check_pattern(const char *data, size_t size, uint64_t message) {
  for (size_t at = 0; at < size; at += 8) {
    const uint64_t word = pattern_word(message, at);
    const size_t n = std::min<size_t>(8, size - at);
    if (memcmp(data + at, &word, n) == 0) continue;
    const char *want = reinterpret_cast<const char *>(&word);
    for (size_t i = 0; i < n; ++i) {
      if (data[at + i] != want[i]) return at + i;
    }
  }
  return size;
}

void expect_pattern(const char *data, size_t size, uint64_t message) {
  const size_t good = check_pattern(data, size, message);
  if (good != size) {
    fail("data check: message %d of %d bytes is wrong from byte %d on", message, size, good);
  }
}

void Samples::sort() {
  std::sort(ns_.begin(), ns_.end());
}

uint64_t Samples::percentile(double fraction) const {
  if (ns_.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(ns_.size())));
  return ns_[rank == 0 ? 0 : rank - 1];
}

double Samples::total() const {
  return std::accumulate(ns_.begin(), ns_.end(), 0.0,
                         [](double sum, uint64_t ns) { return sum + static_cast<double>(ns); });
}

void Watch::start(const char *what, double seconds) {
  what_ = what;
  seconds_ = seconds;
  deadline_ = now_ns() + static_cast<uint64_t>(seconds * 1e9);
}

void Watch::check_call() {
  check_deadline();
  if (control_ != nullptr) control_->check_peer();
}

void Watch::blame_peer() {
  if (control_ == nullptr) return;
  control_->readable(0.25);
  control_->check_peer();
}

void Watch::check_deadline() const {
  if (now_ns() > deadline_) {
    fail(
        "%s did not finish within %g s: the peer or the library is stuck, or the machine is too "
        "busy (--timeout sets the limit)",
        what_, seconds_);
  }
}

}  // namespace weft::bench
