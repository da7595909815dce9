// SPDX-License-Identifier: BSD-2-Clause
// Datagrams to a weft peer: a packet, or an acknowledgement or close of its own, gets its header,
// checksum and MAC, and leaves.
#include <rdma/fi_errno.h>

#include <algorithm>

#include "plugins/rxd/protocol/device_copies.h"
#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd {

wire::Header WeftConversation::header(wire::PacketKind kind, uint16_t flags, uint64_t now) const {
  if (checksum_) flags |= wire::kFlagChecksum;
  if (authentic_) flags |= wire::kFlagMac;
  return {.kind = kind,
          .flags = flags,
          .to = theirs_.connection,
          .cookie = cookie_,
          .time = Channel::clock(now)};
}

// Fills in the whole acknowledgement. False: it has a bitmap, and does not fit beside frames.
bool WeftConversation::fill(wire::Acknowledgement &ack, uint64_t now) {
  grant();
  channel_.fill(ack, now);
  told_ = granted_;
  told_kib_ = granted_kib_;
  ack.messages = uint32_t(granted_);
  ack.credit = uint32_t(granted_kib_);
  return ack.words == 0;
}

int WeftConversation::transmit(OutPacket &p, uint64_t number, uint64_t now, bool ask) {
  iovec iov[kMaxPieces + 2];
  size_t count = 1;
  bool of_device = false;
  if (p.answer != nullptr) {
    const Answer &a = *p.answer;
    const ssize_t n = core_.resolve({a.vectors, a.count}, FI_REMOTE_READ, p.offset, p.length,
                                    iov + 1, kMaxPieces);
    if (n < 0) {
      refuse(p, FI_EACCES);  // the region was closed meanwhile
    } else {
      count += size_t(n);
      of_device = core_.hmem() != nullptr;
    }
  } else if (p.source != nullptr) {
    count += slice(p.source->iov, p.source->count, p.offset, p.length, iov + 1);
    of_device = p.source->on_device;
  }
  if (of_device) {
    const ssize_t n = fetch(p, iov + 1, count - 1);
    if (n < 0 && p.answer == nullptr) return -FI_EAGAIN;  // the conversation is over
    if (n < 0) refuse(p, FI_EIO);
    of_device = n >= 0;
    count = 1 + size_t(std::max<ssize_t>(n, 0));
  }
  uint16_t flags = 0;
  if (p.ordered) flags |= wire::kFlagOrdered;
  if (ask || p.asks) flags |= wire::kFlagAsk;
  wire::Acknowledgement ack;
  const bool acknowledges =
      (channel_.owed() != Channel::Owed::kNothing || tell_credit_) && fill(ack, now);
  uint8_t *start = p.bytes + (acknowledges ? 0 : wire::kAcknowledgementSize);
  wire::Writer w({start, OutPacket::kHead});
  wire::Header h = header(wire::PacketKind::kData, flags, now);
  h.sequence = uint32_t(number);
  if (acknowledges) h.flags |= wire::kFlagAcknowledgement;
  w.header(h);
  if (acknowledges) w.acknowledgement(ack);
  iov[0] = {start, w.size() + p.used};
  if (checksum_) wire::set_checksum(start, wire::checksum({iov, count}));
  if (authentic_) {
    wire::mac(*key_, {iov, count}, uint32_t(number >> 32), p.mac);
    iov[count++] = {p.mac, sizeof p.mac};
  }
  const int rc = core_.send(peer_, iov, count);
  if (of_device && rc != -FI_EAGAIN) fetched(p);
  if (acknowledges && rc != -FI_EAGAIN) {
    channel_.acknowledged();
    tell_credit_ = false;
  }
  return rc;
}

// The packet now carries an error in place of the data of an answer; the peer sees it unless it
// received the data before.
void WeftConversation::refuse(OutPacket &p, uint16_t status) {
  Answer &a = *p.answer;
  wire::Writer w({p.bytes + OutPacket::kHead + p.last, wire::kDataFrameSize});
  w.done({.status = status, .id = a.id});
  p.used = uint16_t(p.last + w.size());
  p.length = 0;
  p.answer = nullptr;
  a.failed = true;
  if (a.ahead != nullptr) core_.copies()->end(a.ahead);
  if (--a.packets == 0 && a.sent == a.length) free_answer(a);
}

uint8_t *WeftConversation::scratch() {
  if (pools_.next_scratch == Pools::kScratch) {
    pools_.next_scratch = 0;
    core_.flush();
  }
  return pools_.scratch[pools_.next_scratch++].bytes;
}

// `bytes` must have room for a MAC after the first `size`.
bool WeftConversation::send_scratch(uint8_t *bytes, size_t size) {
  iovec iov{bytes, size};
  if (checksum_) wire::set_checksum(bytes, wire::checksum({&iov, 1}));
  if (authentic_) {
    wire::mac(*key_, {&iov, 1}, 0,
              std::span<uint8_t, wire::kMacSize>(bytes + size, wire::kMacSize));
    iov.iov_len += wire::kMacSize;
  }
  return core_.send(peer_, &iov, 1) != -FI_EAGAIN;
}

bool WeftConversation::send_alone(wire::PacketKind kind, uint64_t now) {
  uint8_t *bytes = scratch();
  wire::Writer w({bytes, sizeof(Pools::Scratch)});
  if (kind == wire::PacketKind::kClosed) {
    w.header(header(kind, 0, now));
    return send_scratch(bytes, w.size());
  }
  wire::Acknowledgement ack;
  fill(ack, now);
  w.header(header(kind, wire::kFlagAcknowledgement, now));
  w.acknowledgement(ack);
  return send_scratch(bytes, w.size());
}

bool WeftConversation::send_acknowledgement(uint64_t now) {
  if (!send_alone(wire::PacketKind::kAcknowledge, now)) return false;
  channel_.acknowledged();
  tell_credit_ = false;
  return true;
}

}  // namespace weft::rxd
