// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/sender.h"

#include <algorithm>

#include "plugins/rxd/protocol/device_copies.h"
#include "plugins/rxd/protocol/weft/operations.h"

namespace weft::rxd {

Sender::Sender(Link &link, Grants &grants, Answers &answers, const wire::Part &ours,
               const wire::Part &theirs)
    : link_(link),
      grants_(grants),
      answers_(answers),
      seal_(ours, theirs, link.core.settings().auth_key) {}

// ---- packets with frames ----

// The pieces of the payload: how many. -FI_EAGAIN: the conversation is over.
ssize_t Sender::payload(OutPacket &p, iovec *iov) {
  size_t count = 0;
  bool of_device = false;
  if (p.answer != nullptr) {
    const Answer &a = *p.answer;
    const ssize_t n = link_.core.resolve({a.vectors, a.count}, FI_REMOTE_READ, p.offset, p.length,
                                         iov, kMaxPieces);
    if (n < 0) {
      answers_.refuse(p, FI_EACCES);  // the region was closed meanwhile
      return 0;
    }
    count = size_t(n);
    of_device = link_.core.hmem() != nullptr;
  } else if (p.source != nullptr) {
    count = slice(p.source->iov, p.source->count, p.offset, p.length, iov);
    of_device = p.source->on_device;
  }
  if (!of_device) return ssize_t(count);
  const ssize_t n = fetch(p, iov, count);
  if (n >= 0) return n;
  if (p.answer == nullptr) return -FI_EAGAIN;
  answers_.refuse(p, FI_EIO);
  return 0;
}

int Sender::send(OutPacket &p, uint64_t number, uint64_t now, bool ask) {
  iovec iov[kMaxPieces + 2];
  const ssize_t n = payload(p, iov + 1);
  if (n < 0) return int(n);
  size_t count = 1 + size_t(n);
  uint16_t flags = 0;
  if (p.ordered) flags |= wire::kFlagOrdered;
  if (ask || p.asks) flags |= wire::kFlagAsk;
  wire::Acknowledgement ack;
  const bool acknowledges = owes() && fill(ack, now);
  uint8_t *start = p.bytes + (acknowledges ? 0 : wire::kAcknowledgementSize);
  wire::Writer w({start, OutPacket::kHead});
  wire::Header h = seal_.header(wire::PacketKind::kData, flags, now);
  h.sequence = uint32_t(number);
  if (acknowledges) h.flags |= wire::kFlagAcknowledgement;
  w.header(h);
  if (acknowledges) w.acknowledgement(ack);
  iov[0] = {start, w.size() + p.used};
  const size_t mac = seal_.close({iov, count}, number, p.mac);
  if (mac != 0) iov[count++] = {p.mac, mac};
  const int rc = link_.core.send(link_.peer, iov, count);
  if (rc == -FI_EAGAIN) return rc;
  if (link_.copies() != nullptr) fetched(p);
  if (acknowledges) told();
  return rc;
}

// ---- memory of devices ----

// Copies take the place of the payload's vectors: how many there are. -FI_EIO: a device has failed.
ssize_t Sender::fetch(OutPacket &p, iovec *iov, size_t count) {
  DeviceCopies &copies = *link_.copies();
  Ahead *const ahead = p.answer != nullptr ? p.answer->ahead : p.source->ahead;
  ssize_t n = 0;
  if (ahead != nullptr) {
    n = copies.fetch(*ahead, p.offset, p.length,
                     p.answer != nullptr ? p.answer->length : Operations::wanted(*p.source), iov);
  } else if (p.answer != nullptr && !copies.finds(iov, count)) {
    return ssize_t(count);
  }
  if (n == 0) n = copies.fetch_now(iov, count, p.length);
  if (n < 0 && p.answer == nullptr) {
    // The peer cannot be told that the rest of one operation does not come.
    link_.core.upper().warn("a device has failed: a connection ends in the middle of an operation");
    close(wire::PacketKind::kClose, link_.now());
    link_.core.lose(link_.peer, FI_EIO, true);
  }
  return n;
}

// The payload is the carrier's.
void Sender::fetched(const OutPacket &p) {
  if (p.answer == nullptr && (p.source == nullptr || !p.source->on_device)) return;
  Ahead *&ahead = p.answer != nullptr ? p.answer->ahead : p.source->ahead;
  if (ahead == nullptr) return;
  link_.copies()->pass(*ahead, p.offset + p.length);
  if (ahead->sent == (p.answer != nullptr ? p.answer->length : p.source->length))
    link_.copies()->end(ahead);
}

// ---- packets without frames ----

// Fills in the whole acknowledgement. False: it has a bitmap, and does not fit beside frames.
bool Sender::fill(wire::Acknowledgement &ack, uint64_t now) {
  grants_.fill(ack, link_.inbox_room());
  link_.channel.fill(ack, now);
  return ack.words == 0;
}

uint8_t *Sender::scratch() {
  Pools &pools = link_.pools;
  if (pools.next_scratch == Pools::kScratch) {
    pools.next_scratch = 0;
    link_.core.flush();
  }
  return pools.scratch[pools.next_scratch++].bytes;
}

// `bytes` must have room for a MAC after the first `size`.
bool Sender::send_scratch(uint8_t *bytes, size_t size) {
  iovec iov{bytes, size};
  iov.iov_len += seal_.close({&iov, 1}, 0, bytes + size);
  return link_.core.send(link_.peer, &iov, 1) != -FI_EAGAIN;
}

bool Sender::send_alone(wire::PacketKind kind, uint64_t now) {
  uint8_t *bytes = scratch();
  wire::Writer w({bytes, sizeof(Pools::Scratch)});
  wire::Acknowledgement ack;
  fill(ack, now);
  w.header(seal_.header(kind, wire::kFlagAcknowledgement, now));
  w.acknowledgement(ack);
  return send_scratch(bytes, w.size());
}

bool Sender::acknowledge(uint64_t now) {
  if (!send_alone(wire::PacketKind::kAcknowledge, now)) return false;
  told();
  return true;
}

bool Sender::close(wire::PacketKind kind, uint64_t now) {
  if (kind != wire::PacketKind::kClosed) return send_alone(kind, now);
  uint8_t *bytes = scratch();
  wire::Writer w({bytes, sizeof(Pools::Scratch)});
  w.header(seal_.header(kind, 0, now));
  return send_scratch(bytes, w.size());
}

void Sender::probe(uint32_t size, uint64_t now) {
  std::vector<uint8_t> &zeros = link_.pools.zeros;
  if (zeros.size() < size) zeros.resize(size);
  // All conversations share the buffer: send what is in it first.
  link_.core.flush();
  wire::Writer w({zeros.data(), size});
  const size_t n = size - (link_.overhead - OutPacket::kHead);
  w.probe(seal_.header(wire::PacketKind::kProbe, 0, now), size, n);
  send_scratch(zeros.data(), n);
  link_.core.flush();
}

void Sender::probed(const wire::Probe &probe, uint64_t now) {
  uint8_t *bytes = scratch();
  wire::Writer w({bytes, sizeof(Pools::Scratch)});
  w.probed(seal_.header(wire::PacketKind::kProbed, 0, now), probe.number, probe.size);
  send_scratch(bytes, w.size());
}

}  // namespace weft::rxd
