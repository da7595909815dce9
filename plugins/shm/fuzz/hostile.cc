// SPDX-License-Identifier: BSD-2-Clause
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/shm/fuzz/world.h"

namespace weft::shm::fuzz {
namespace {

constexpr size_t kMostLinks = 6;

sdk::Address own_name() {
  const std::string text = "fi_shm://hostile-" + std::to_string(getpid());
  return sdk::read_address(FI_ADDR_STR, text.c_str()).value();
}

}  // namespace

uint8_t *arena() {
  static uint8_t bytes[kArena];
  return bytes;
}

Hostile::Hostile(const sdk::Address &victim)
    : victim_(victim), name_(own_name()), listener_(listen_as(name_, 8).value()) {}

void Hostile::add(sdk::UniqueFd socket, PairMemory memory, const Geometry &geometry, bool asked) {
  auto link = std::make_unique<Link>();
  link->socket = std::move(socket);
  link->memory = std::move(memory);
  link->geometry = geometry;
  link->out = asked ? 1 : 0;
  link->producer.emplace(direction_of(link->memory.base(), geometry, link->out), geometry);
  link->consumer.emplace(direction_of(link->memory.base(), geometry, 1 - link->out), geometry);
  links_.push_back(std::move(link));
}

void Hostile::connect(Bytes &input) {
  if (links_.size() >= kMostLinks) return;
  auto socket = connect_to(victim_);
  if (!socket) return;
  const uint8_t how = input.byte();
  const Geometry geometry{.lines = Geometry::kLeastLines << (how & 1),
                          .bytes = Geometry::kLeastBytes};
  const sdk::UniqueFd fd = PairMemory::make(geometry).value();
  std::vector<uint8_t> hello =
      encode_hello({.name = how & 2 ? victim_ : name_,
                    .geometry = geometry,
                    .probe = {.address = how & 4 ? input.number()
                                                 : uint64_t(reinterpret_cast<uintptr_t>(&probe_)),
                              .value = probe_}});
  if (how & 8) hello[input.byte() % hello.size()] ^= input.byte();
  (void)send_packet(socket->get(), hello, how & 16 ? -1 : fd.get());
  if ((how & (8 | 16)) == 0)
    add(std::move(*socket), PairMemory::map(fd.get(), geometry).value(), geometry, false);
}

void Hostile::accept() {
  sdk::UniqueFd socket = accept_from(listener_.get());
  if (socket.get() < 0) return;
  uint8_t packet[kMostPacket];
  sdk::UniqueFd fd;
  const ssize_t size = receive_packet(socket.get(), packet, &fd);
  if (size <= 0) return;
  const auto hello = parse_hello({packet, size_t(size)});
  FUZZ_CHECK(hello.has_value());
  auto memory = PairMemory::map(fd.get(), hello->geometry);
  FUZZ_CHECK(memory.has_value());
  const Probe probe{.address = uint64_t(reinterpret_cast<uintptr_t>(&probe_)), .value = probe_};
  (void)send_packet(socket.get(), encode_answer({.probe = probe}));
  add(std::move(socket), std::move(*memory), hello->geometry, true);
}

Hostile::Link *Hostile::some(Bytes &input) {
  return links_.empty() ? nullptr : links_[input.byte() % links_.size()].get();
}

uint64_t Hostile::some_id(Bytes &input) {
  const uint8_t which = input.byte();
  return ids_.empty() || which >= 240 ? input.size() : ids_[which % ids_.size()];
}

void Hostile::say(Bytes &input) {
  Link *const link = some(input);
  if (link == nullptr) return;
  uint8_t packet[kMostPacket];
  const size_t n = input.byte() % (sizeof packet + 1);
  for (size_t i = 0; i < n; ++i) packet[i] = n == 1 ? kWake : input.byte();
  (void)send_packet(link->socket.get(), {packet, n});
}

void Hostile::put_body(Content &content, Type type, uint8_t flags, Bytes &input) {
  const auto vectors = [&](bool far) {
    const uint8_t count = input.byte() % (kMostVectors + 1);
    content.put(count);
    for (int i = 0; i < count; ++i) {
      if (far) {
        const uint64_t offset = input.size();
        content.put(FarVector{.address = reinterpret_cast<uintptr_t>(arena()) + offset,
                              .length = input.size()});
      } else {
        content.put(Region{.address = input.size(), .length = input.size(), .key = input.size()});
      }
    }
  };
  switch (type) {
    case Type::kDone:
      return content.put(uint16_t(input.byte()));
    case Type::kPull:
      content.put(some_id(input));
      content.put(input.size());
      return content.put(uint32_t(input.size()));
    case Type::kData:
      content.put(uint16_t(input.byte() % 4 == 0 ? 5 : 0));
      return content.put(uint32_t(input.size()));
    case Type::kAtomic:
      content.put(input.byte() % 4);
      content.put(uint8_t(input.byte() % 20));
      content.put(uint8_t(input.byte() % 20));
      content.put(uint32_t(input.size()));
      return vectors(false);
    case Type::kRead:
      vectors(false);
      return vectors(true);
    case Type::kWrite:
    case Type::kMessage:
      if (flags & kHasData) content.put(input.number());
      if (type == Type::kWrite) {
        vectors(false);
      } else if (flags & (kAckTaken | kAckPlaced | kElsewhere)) {
        content.put(some_id(input));
      }
      if (flags & kElsewhere) return vectors(true);
      if (flags & kInBytes) return content.put(uint32_t(input.size()));
      {
        const size_t n = input.byte() % (content.left() / 2 + 1);
        std::memset(content.room(n), 'x', n);
      }
      return;
  }
}

void Hostile::put(Bytes &input) {
  Link *const link = some(input);
  if (link == nullptr) return;
  const uint8_t kind = input.byte();
  const auto type = Type(1 + kind % 7);
  const auto flags = uint8_t(kind & 128                       ? input.byte() & 63
                             : kind % 7 >= 3 && kind % 7 != 5 ? 16
                                                              : 1);
  Content content;
  put_body(content, type, flags, input);
  const uint64_t tag = type == Type::kMessage ? input.byte() : some_id(input);
  Head head = content.head(type, flags, tag);
  if (kind & 64 && input.byte() % 4 == 0) head.size = uint16_t(input.number());
  const size_t payload = flags & kInBytes ? input.size() % link->geometry.most_payload() : 0;
  const size_t size = std::min<size_t>(head.size, kMostContent);
  if (!link->producer->has_room(lines_of(size), payload)) return;
  for (size_t i = 0; i < payload; i += 64) {
    static constexpr uint8_t kPart[64] = {};
    link->producer->put_bytes(kPart, std::min<size_t>(64, payload - i));
  }
  head.size = uint16_t(size);
  uint8_t bytes[kMostContent] = {};
  std::memcpy(bytes, content.bytes(), std::min(size, content.size()));
  link->producer->put(head, bytes);
}

void Hostile::take() {
  for (const auto &link : links_) {
    Head head;
    for (int n = 0; n < 64 && link->consumer->peek(head); ++n) {
      uint8_t content[kMostContent];
      const size_t size = std::min<size_t>(head.size, kMostContent);
      link->consumer->read(size, content);
      const auto record = parse(head, {content, size}, link->geometry);
      if (!record) break;  // it has scribbled there itself
      if (ids_.size() < 256) {
        if (record->type != Type::kMessage) ids_.push_back(record->tag);
        if (record->id != 0) ids_.push_back(record->id);
      }
      link->consumer->take(lines_of(size), record->bytes());
    }
    link->consumer->tell();
  }
}

void Hostile::scribble(Bytes &input) {
  Link *const link = some(input);
  if (link == nullptr) return;
  const size_t size = link->geometry.size();
  size_t at = size_t(input.number() % size);
  if (input.byte() & 1) at &= ~size_t(7);
  const size_t n = std::min<size_t>(1 + input.byte() % 64, size - at);
  for (size_t i = 0; i < n; ++i)
    static_cast<volatile uint8_t *>(link->memory.base())[at + i] = input.byte();
}

void Hostile::lie(Bytes &input) {
  Link *const link = some(input);
  if (link == nullptr) return;
  Control &control = *direction_of(link->memory.base(), link->geometry, 1 - link->out).control;
  const uint64_t value = input.size();
  switch (input.byte() % 3) {
    case 0:
      control.lines_taken.store(value);
      break;
    case 1:
      control.bytes_taken.store(value);
      break;
    default:
      control.sleeps.store(value);
  }
}

void Hostile::leave(Bytes &input) {
  if (!links_.empty()) links_.erase(links_.begin() + input.byte() % std::ssize(links_));
}

}  // namespace weft::shm::fuzz
