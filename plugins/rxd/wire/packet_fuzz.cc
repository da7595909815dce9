// SPDX-License-Identifier: BSD-2-Clause
// Parses any datagram and its frames. A valid packet is written again: its size, its frames and
// their parsed fields must be the same. An invalid one must have a reason.
#include <vector>

#include "plugins/rxd/wire/integrity.h"
#include "plugins/rxd/wire/packet.h"
#include "tests/fuzz/check.h"

using namespace weft::rxd;
using namespace weft::rxd::wire;

namespace {

// Writes the packet's frames again. Reserved fields become zero, so only the lengths and the parsed
// fields must be the same.
void check_frames(const Packet &packet, Writer &writer) {
  FrameReader reader(packet);
  const size_t begin = writer.size();
  size_t payload = 0, count = 0;
  while (reader.next()) {
    ++count;
    payload += reader.payload().size();
    FUZZ_CHECK(reader.payload().size() <= packet.covered.size());
    RmaVector vectors[kVectorLimit];
    const std::span<const RmaVector> where(vectors, reader.vectors().copy(vectors));
    const size_t n = reader.payload().size();
    bool written = false;
    switch (reader.kind()) {
      case FrameKind::kMessage:
        FUZZ_CHECK(reader.message().total >= n);
        written = writer.message(reader.message(), n);
        break;
      case FrameKind::kData:
        FUZZ_CHECK(reader.data().offset + n <= kMessageLimit);
        written = writer.data(reader.data(), n);
        break;
      case FrameKind::kPull:
        written = writer.pull(reader.pull());
        break;
      case FrameKind::kDone:
        written = writer.done(reader.done());
        break;
      case FrameKind::kRead:
        written = writer.read(reader.id(), where);
        break;
      case FrameKind::kWrite:
        FUZZ_CHECK(reader.write().total >= n && reader.write().total <= kMessageLimit);
        written = writer.write(reader.write(), where, n);
        break;
      case FrameKind::kAtomic:
        FUZZ_CHECK(n <= kOperandLimit && reader.atomic().kind <= 2);
        written = writer.atomic(reader.atomic(), where, n);
        break;
      case FrameKind::kResult:
        written = writer.result(reader.result(), n);
        break;
      case FrameKind::kPing:
        written = writer.ping();
        break;
    }
    FUZZ_CHECK(written);
    FUZZ_CHECK(writer.payload(reader.payload()));
  }
  FUZZ_CHECK(text_of(reader.reject()) != nullptr);
  const auto frames = std::get<Data>(packet.content).frames;
  FUZZ_CHECK(writer.size() - begin <= frames.size());
  if (reader.reject() != Reject::kNone) return;
  FUZZ_CHECK(writer.size() - begin == frames.size());
  FrameReader again(writer.written().subspan(begin), packet.header.has(kFlagOrdered));
  while (again.next()) {
    --count;
    payload -= again.payload().size();
  }
  FUZZ_CHECK(again.reject() == Reject::kNone && count == 0 && payload == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > 65536) return 0;
  // Memory of exactly this size, so that a sanitizer sees an overrun.
  const std::vector<uint8_t> bytes(data, data + size);
  const auto header = parse_header(bytes);
  const auto packet = parse(bytes);
  if (!packet) {
    FUZZ_CHECK(text_of(packet.error()) != nullptr);
    return 0;
  }
  FUZZ_CHECK(header.has_value());
  FUZZ_CHECK(packet->covered.size() + packet->mac.size() == size);
  std::vector<uint8_t> room(size);
  Writer writer(room);
  const Header &h = packet->header;
  if (std::holds_alternative<Data>(packet->content) ||
      std::holds_alternative<Acknowledge>(packet->content) ||
      std::holds_alternative<Close>(packet->content) ||
      std::holds_alternative<Closed>(packet->content)) {
    FUZZ_CHECK(writer.header(h));
    if (h.has(kFlagAcknowledgement)) FUZZ_CHECK(writer.acknowledgement(packet->acknowledgement));
    if (std::holds_alternative<Data>(packet->content)) check_frames(*packet, writer);
  } else if (const auto *challenge = std::get_if<Challenge>(&packet->content)) {
    FUZZ_CHECK(writer.challenge(h, challenge->index, challenge->token));
  } else if (const auto *connect = std::get_if<Connect>(&packet->content)) {
    FUZZ_CHECK(writer.connect(h, connect->index, connect->token, connect->name, connect->part));
    (void)connection_key("key", connect->part, Part{});
  } else if (const auto *accept = std::get_if<Accept>(&packet->content)) {
    FUZZ_CHECK(writer.accept(h, accept->index, accept->part));
  } else if (const auto *probe = std::get_if<Probe>(&packet->content)) {
    FUZZ_CHECK(writer.probe(h, probe->number, probe->size));
  } else if (const auto *probed = std::get_if<Probed>(&packet->content)) {
    FUZZ_CHECK(writer.probed(h, probed->number, probed->size));
  } else {
    FUZZ_CHECK(std::holds_alternative<Reset>(packet->content));
    FUZZ_CHECK(writer.reset(h, packet->covered.subspan(kHeaderSize)));
  }
  if (!std::holds_alternative<Data>(packet->content)) {
    FUZZ_CHECK(writer.size() == packet->covered.size());
  }
  (void)checksum_fits(*packet);
  (void)mac_fits(Key{}, *packet, 0);
  return 0;
}
