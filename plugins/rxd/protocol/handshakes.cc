// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/handshakes.h"

#include <rdma/fi_errno.h>
#include <weft/sdk/addresses/auth.h>

#include <algorithm>
#include <cstring>

#include "plugins/rxd/wire/stock.h"

namespace weft::rxd {
namespace {

constexpr uint64_t kTokenLifeNs = 10'000'000'000;

}  // namespace

Handshakes::Handshakes(Carrier &carrier, Counters &counters, const Settings &settings)
    : carrier_(carrier),
      counters_(counters),
      settings_(settings),
      answers_(settings.handshake_rate) {
  carrier_.random({reinterpret_cast<uint8_t *>(&instance_), sizeof instance_});
  carrier_.random({reinterpret_cast<uint8_t *>(&veil_), sizeof veil_});
  carrier_.random(secret_);
  if (has_key()) key_ = wire::handshake_key(settings_.auth_key);
}

uint32_t Handshakes::random() {
  uint32_t number;
  carrier_.random({reinterpret_cast<uint8_t *>(&number), sizeof number});
  return number;
}

void Handshakes::new_cookie(Peer &peer) {
  do {
    peer.cookie = random();
  } while (peer.cookie == 0);
}

wire::Part Handshakes::part_of(const Peer &peer, uint32_t limit) const {
  const bool checksum = settings_.checksum == Checksum::kOn ||
                        (settings_.checksum == Checksum::kAuto && !carrier_.checks_datagrams() &&
                         !carrier_.is_local(peer.address));
  return {.instance = instance_,
          .connection = veiled(peer.number),
          .cookie = peer.cookie,
          .datagram = uint32_t(carrier_.max_datagram()),
          .flags = (checksum ? wire::kPartChecksum : 0) | uint32_t(settings_.place)
                                                              << kPartPlaceShift,
          .limit = limit,
          .messages = kFirstMessages,
          .credit = kFirstCredit};
}

bool Handshakes::may_answer() {
  if (answers_.allows(carrier_.now_ns())) return true;
  counters_.limited.add_alone();
  return false;
}

uint64_t Handshakes::token_made_at(const wire::Connect &connect) const {
  return wire::TokenMaker(secret_).made_at(connect.token, carrier_.now_ns(), kTokenLifeNs,
                                           connect.name);
}

bool Handshakes::is_valid(const wire::Packet &packet) const {
  if (!wire::checksum_fits(packet)) return false;
  const bool authentic = packet.header.has(wire::kFlagMac);
  if (packet.header.kind == wire::PacketKind::kChallenge) return true;
  if (!has_key()) return !authentic;
  if (!authentic) return false;
  if (packet.header.kind != wire::PacketKind::kConnect) return wire::mac_fits(key_, packet, 0);
  // Its sender has called us, and no other endpoint with the key whose packets somebody passes on.
  const auto called = [&](const sdk::Address &own) {
    return wire::mac_fits(key_, packet, 0, sdk::place_of(own));
  };
  if (called(own_) || std::ranges::any_of(carrier_.other_names(), called)) return true;
  while (carrier_.learn_name())
    if (called(carrier_.other_names().back())) return true;
  return false;
}

// `bytes` must have room for a MAC after the first `size`. `behind`: what that covers, too.
void Handshakes::send(Path &path, std::span<uint8_t> bytes, size_t size, bool authentic,
                      std::span<const uint8_t> behind) {
  iovec whole{bytes.data(), size};
  wire::set_checksum(bytes.data(), wire::checksum({&whole, 1}));
  if (authentic) {
    const iovec covered[] = {whole, {const_cast<uint8_t *>(behind.data()), behind.size()}};
    wire::mac(key_, covered, 0,
              std::span<uint8_t, wire::kMacSize>(bytes.data() + size, wire::kMacSize));
    whole.iov_len += wire::kMacSize;
  }
  if (carrier_.send(path, &whole, 1, false) != -FI_EAGAIN) counters_.packets_sent.add_alone();
}

void Handshakes::send_rts(Peer &peer) {
  uint8_t bytes[stock::kMaxHeader];
  const size_t size = stock::encode(
      {.type = stock::Type::kRts, .marked = true, .index = peer.rts_index(), .name = own_}, bytes);
  const iovec whole{bytes, size};
  if (carrier_.send(*peer.path, &whole, 1, false) != -FI_EAGAIN) counters_.packets_sent.add_alone();
}

void Handshakes::send_connect(Peer &peer, wire::Part ours) {
  uint8_t bytes[wire::kConnectSize + wire::kMacSize];
  uint8_t name[wire::kNameSize] = {};
  std::memcpy(name, own_.data(), own_.size());
  if (peer.is_doubted()) ours.flags |= kPartVerify;
  wire::Writer writer(bytes);
  writer.connect({.flags = flags()}, peer.rts_index(), peer.handshake.token(), name, ours);
  send(*peer.path, bytes, writer.size(), has_key(), sdk::place_of(peer.address));
}

void Handshakes::send_accept(Peer &peer, uint64_t index, const wire::Part &ours,
                             const wire::Part &theirs) {
  uint8_t bytes[wire::kAcceptSize + wire::kMacSize];
  wire::Writer writer(bytes);
  writer.accept({.flags = flags(), .to = theirs.connection, .cookie = theirs.cookie}, index, ours);
  send(*peer.path, bytes, writer.size(), has_key());
}

void Handshakes::send_challenge(Path &path, uint64_t index, std::span<const uint8_t> name) {
  uint8_t bytes[wire::kChallengeSize];
  const auto token = wire::TokenMaker(secret_).make(carrier_.now_ns(), name);
  wire::Writer writer(bytes);
  writer.challenge({.flags = wire::kFlagChecksum, .to = settings_.last_place}, index,
                   wire::Token(token));
  send(path, bytes, writer.size(), false);
}

void Handshakes::send_reset(Path &path, const wire::Part &theirs, std::span<const uint8_t> packet) {
  uint8_t bytes[wire::kHeaderSize * 2 + wire::kMacSize];
  wire::Writer writer(bytes);
  writer.reset({.flags = flags(), .to = theirs.connection, .cookie = theirs.cookie},
               packet.first(wire::kHeaderSize));
  send(path, bytes, writer.size(), has_key());
}

}  // namespace weft::rxd
