// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/libcxi/event_queue.h"

#include <sys/epoll.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "plugins/cxi/libcxi/decode.h"
#include "plugins/cxi/libcxi/lni.h"
#include "plugins/cxi/libcxi/packet_head.h"

namespace weft::cxi {
namespace {

constexpr size_t kRingPage = 4096;
constexpr size_t kKept = 256;  // events that are acknowledged, and kept all the same
constexpr size_t kMostEventPlaces = size_t{1} << 24;  // of an event queue; more is a mistake

}  // namespace

Result<std::unique_ptr<LibcxiEventQueue>> LibcxiEventQueue::open(LibcxiLni &lni,
                                                                 const EventQueueOptions &options) {
  if (options.places > kMostEventPlaces)
    return fail(FI_EINVAL, "cxi: an event queue of %zu places: at most %zu", options.places,
                kMostEventPlaces);
  if (options.reserved >= options.places)
    return fail(FI_ENOSPC, "cxi: an event queue of %zu places cannot reserve %zu", options.places,
                options.reserved);
  std::unique_ptr<LibcxiEventQueue> queue(new LibcxiEventQueue(lni));
  if (options.waits) WEFT_CHECK(queue->make_wait());
  WEFT_CHECK(queue->make_ring(options));
  return queue;
}

Result<void> LibcxiEventQueue::make_ring(const EventQueueOptions &options) {
  const size_t bytes = (options.places + EventBytes::kOwnBlocks) * EventBytes::kBlock;
  length_ = (bytes + kRingPage - 1) / kRingPage * kRingPage;
  memory_ = ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) {
    memory_ = nullptr;
    return fail(FI_ENOMEM, "cxi: no memory for an event queue of %zu places", options.places);
  }
  const Library &library = lni_.library();
  if (const int rc = library.map(lni_.handle(), memory_, length_,
                                 abi::kPin | abi::kNicReads | abi::kNicWrites, nullptr, &mapping_);
      rc != 0)
    return fail(-rc, "cxi: an event queue of %zu bytes is not mapped: %s: see `ulimit -l`", length_,
                strerror(-rc));
  abi::EventQueueOptions asked{};
  asked.ring = memory_;
  asked.bytes = length_;
  asked.flags = abi::EventQueueOptions::kLongTargetEvents;
  asked.status_base = std::clamp(options.fill_percent, 1u, 100u);
  asked.status_count = asked.status_base < 100 ? 1 : 0;
  asked.reserved = unsigned(std::min(options.reserved, kMaxReserved));
  if (const int rc = library.alloc_evtq(lni_.handle(), mapping_, &asked, wait_, nullptr, &queue_);
      rc != 0)
    return fail(-rc, "cxi: no event queue of %zu places: %s: its service may have no more",
                options.places, strerror(-rc));
  bytes_.emplace(library, *queue_);
  bytes_->set_interrupt(false);
  return {};
}

// A wait object has something where it is ready for EPOLLPRI, which few wait for. An epoll around
// it is readable then.
Result<void> LibcxiEventQueue::make_wait() {
  const Library &library = lni_.library();
  if (const int rc = library.alloc_wait_obj(lni_.handle(), &wait_); rc != 0)
    return fail(-rc, "cxi: no wait object for an event queue: %s", strerror(-rc));
  waits_.reset(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLPRI, .data = {}};
  if (waits_.get() < 0 ||
      ::epoll_ctl(waits_.get(), EPOLL_CTL_ADD, library.get_wait_obj_fd(wait_), &event) != 0)
    return fail(errno, "cxi: no descriptor for an event queue: %s: see `ulimit -n`",
                strerror(errno));
  return {};
}

LibcxiEventQueue::~LibcxiEventQueue() {
  const Library &library = lni_.library();
  if (queue_ != nullptr) library.destroy_evtq(queue_);
  waits_.reset();
  if (wait_ != nullptr) library.destroy_wait_obj(wait_);
  if (mapping_ != nullptr) library.unmap(mapping_);
  if (memory_ != nullptr) ::munmap(memory_, length_);
}

bool LibcxiEventQueue::decode_next() {
  const uint8_t *const bytes = bytes_->next();
  if (bytes == nullptr) return false;
  Event event = decode_event(bytes, lni_);
  if (event.start != 0) event.start = lni_.mappings().address_of(event.start);
  if (event.type == EventType::kPut && event.list == List::kRequest && event.rc == Rc::kOk &&
      event.mlength >= kShortPacketHead) {
    // The packet's head makes place for what the provider reads there.
    auto *const packet = reinterpret_cast<uint8_t *>(event.start);
    event.head = packet_head_size(packet);
    const RequestHeader header = read_packet_head(packet);
    std::memcpy(packet, &header, sizeof header);
  }
  decoded_.push_back({event, bytes_->position()});
  return true;
}

const Event *LibcxiEventQueue::peek(size_t skip) {
  while (decoded_.size() - first_ <= skip)
    if (!decode_next()) return nullptr;
  return &decoded_[first_ + skip].event;
}

void LibcxiEventQueue::ack(size_t count) {
  if (count == 0) return;
  first_ += count;
  bytes_->acknowledge(decoded_[first_ - 1].end);
  if (first_ != decoded_.size() && first_ < kKept) return;
  decoded_.erase(decoded_.begin(), decoded_.begin() + ptrdiff_t(first_));
  first_ = 0;
}

bool LibcxiEventQueue::reserve(size_t places) {
  if (places > kMaxReserved) return false;
  return lni_.library().evtq_adjust_reserved_fc(queue_, int(places)) >= 0;
}

void LibcxiEventQueue::unreserve(size_t places) {
  lni_.library().evtq_adjust_reserved_fc(queue_, -int(places));
}

bool LibcxiEventQueue::arm() {
  if (wait_ == nullptr) return false;
  lni_.library().clear_wait_obj(wait_);
  bytes_->set_interrupt(true);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (peek(0) == nullptr) return true;
  bytes_->set_interrupt(false);
  return false;
}

}  // namespace weft::cxi
