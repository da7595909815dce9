// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/fuzz/stranger.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "plugins/tcp/fuzz/sockets.h"

namespace weft::tcp::fuzz {

std::vector<uint8_t> Stranger::hello(uint8_t version, uint8_t features, uint16_t port,
                                     uint32_t process) {
  std::array<uint8_t, kMaxConnectSize> bytes;
  const RdmHello hello{.version = version, .features = features, .port = port, .process = process};
  const size_t n = encode_connect(ConnectType::kRequest, encode_hello(hello), bytes);
  return {bytes.begin(), bytes.begin() + ptrdiff_t(n)};
}

void Stranger::connect(const sockaddr_in &to, uint8_t from_host, std::vector<uint8_t> first) {
  hang_up();
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  FUZZ_CHECK(fd_ >= 0);
  const sockaddr_in from = address_of(from_host, 0);
  ::bind(fd_, reinterpret_cast<const sockaddr *>(&from), sizeof from);
  if (::connect(fd_, reinterpret_cast<const sockaddr *>(&to), sizeof to) != 0) return hang_up();
  out_ = std::move(first);
}

void Stranger::listen() {
  if (listener_ >= 0) return;
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const sockaddr_in at = address_of(host_, kPort);
  if (::bind(listener_, reinterpret_cast<const sockaddr *>(&at), sizeof at) != 0 ||
      ::listen(listener_, 8) != 0)
    stop_listening();
}

void Stranger::accept(Input &in) {
  if (listener_ < 0) return;
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  hang_up();
  fd_ = fd;
  const uint8_t how = in.u8();
  if ((how & 3) == 3) return hang_up();
  std::array<uint8_t, kMaxConnectSize> bytes;
  const RdmHello hello{
      .version = uint8_t(how & 4 ? 0 : 0x81),
      .features = uint8_t((how & 0x10 ? kSaysWhenFull : 0) | (how & 0x20 ? kRefusesToo : 0)),
      .port = kPort,
      .process = uint32_t(how >> 4)};
  const size_t n = encode_connect((how & 3) == 2 ? ConnectType::kReject : ConnectType::kAccept,
                                  encode_hello(hello), bytes);
  out_.assign(bytes.begin(), bytes.begin() + ptrdiff_t(how & 8 ? n / 2 : n));
}

void Stranger::frame(Input &in, EndpointKind kind, const Known &known) {
  if (out_.size() > 1 << 18) return;
  FrameHeader h;
  const uint8_t what = in.u8(), how = in.u8();
  h.op = Op(what & 7);
  if (how & 1) h.flags |= kFlagRemoteData;
  if (how & 2) h.flags |= kFlagDelivery;
  h.data = how;
  h.tag = how >> 5;
  uint64_t payload = in.length();
  switch (h.op) {
    case Op::kMessage:
      if (how & 4) {
        h.op_data = uint8_t(kOpDataAck + (how >> 3) % 3);  // or a refusal
        h.flags = 0;
        payload = 0;
      }
      break;
    case Op::kTagged:
      break;
    case Op::kReadRequest:
    case Op::kWrite: {
      if (h.op == Op::kReadRequest) h.flags = 0;
      h.rma_count = uint8_t(1 + (how >> 2 & 3));
      for (size_t i = 0; i < h.rma_count; ++i)
        h.rma[i] = {known.address + in.u8(), std::min<uint64_t>(payload, 4096) / h.rma_count,
                    known.key};
      if (what & 0x80) h.rma[0].length = in.length();
      payload = h.op == Op::kWrite ? h.rma_length() : 0;
      break;
    }
    case Op::kReadResponse:
      h.flags = 0;
      if (!(how & 4)) payload = known.read_length;
      break;
    case Op::kReadyToSend:
      h.op_data = uint8_t(1 + (what >> 3));
      h.rendezvous_length = announced_[h.op_data] = payload;
      if (how == 0xff) h.rendezvous_length = in.u64();
      payload = 0;
      break;
    case Op::kClearToSend:
      h.op_data = uint8_t(1 + (what >> 3));
      if (how & 8) h.op_data = how & 0x10 ? kAnnounceAll : kAnnounceNoMore;
      h.flags = 0;
      payload = 0;
      break;
    case Op::kRendezvousData:
      h.op_data = uint8_t(1 + (what >> 3));
      if (!(how & 4)) payload = announced_[h.op_data];
      break;
  }
  if (kind == EndpointKind::kMsg && h.op == Op::kTagged) h.op = Op::kMessage;
  h.payload_size = payload;
  uint8_t header[kMaxHeaderSize];
  const size_t n = encode_header(h, ByteOrder::kNative, 0, header);
  const uint8_t more = in.u8();
  if (more == 0xff) header[in.u8() % n] = in.u8();
  // Some frames are sent many times.
  const size_t copies = more >= 0xf0 && payload <= 16 ? 16u << (more & 7) : 1;
  for (size_t i = 0; i < copies; ++i) {
    out_.insert(out_.end(), header, header + n);
    out_.resize(out_.size() + size_t(std::min<uint64_t>(payload, 1 << 17)), 0x5a);
  }
}

void Stranger::raw(Input &in) {
  for (size_t n = in.u8(); n != 0 && !in.over(); --n) out_.push_back(in.u8());
}

void Stranger::flush(size_t bytes) {
  if (fd_ < 0) return out_.clear();
  bytes = std::min(bytes, out_.size());
  if (bytes == 0) return;
  const ssize_t n = ::send(fd_, out_.data(), bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n > 0) out_.erase(out_.begin(), out_.begin() + n);
}

void Stranger::read_all() {
  if (fd_ < 0) return;
  uint8_t bytes[16384];
  while (::recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
  }
}

void Stranger::shut_down() {
  if (fd_ >= 0) ::shutdown(fd_, SHUT_WR);
}

void Stranger::hang_up() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  out_.clear();
  announced_.clear();
}

void Stranger::stop_listening() {
  if (listener_ >= 0) ::close(listener_);
  listener_ = -1;
}

}  // namespace weft::tcp::fuzz
