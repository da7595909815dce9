// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/fuzz/actors.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "plugins/tcp/fuzz/sockets.h"
#include "plugins/tcp/fuzz/stranger.h"

namespace weft::tcp::fuzz {
namespace {

// What a process without the key may see of one that has it: what that one asks with, and what it
// answers, before its reject.
constexpr size_t kQuestion = 24, kProof = 32;

int open_socket() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  FUZZ_CHECK(fd >= 0);
  return fd;
}

int listen_at(const sockaddr_in &at) {
  const int fd = open_socket();
  if (::bind(fd, reinterpret_cast<const sockaddr *>(&at), sizeof at) == 0 && ::listen(fd, 8) == 0)
    return fd;
  ::close(fd);
  return -1;
}

int connect_to(const sockaddr_in &to, in_addr from_host) {
  const int fd = open_socket();
  sockaddr_in from = to;
  from.sin_addr = from_host;
  from.sin_port = 0;
  ::bind(fd, reinterpret_cast<const sockaddr *>(&from), sizeof from);
  if (::connect(fd, reinterpret_cast<const sockaddr *>(&to), sizeof to) == 0) return fd;
  ::close(fd);
  return -1;
}

int take_from(int listener) {
  return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

// The header of the connection message that `bytes` begin with; false: not all of it has come.
bool header_of(std::span<const uint8_t> bytes, ConnectHeader &header) {
  if (bytes.size() < kConnectHeaderSize) return false;
  const auto parsed = parse_connect_header(bytes.first(kConnectHeaderSize), ConnectRole::kActive);
  FUZZ_CHECK(parsed.has_value(), "an answer that is none");
  header = *parsed;
  return true;
}

bool same(const sockaddr_in &a, const sockaddr_in &b) {
  return a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr;
}

}  // namespace

weft::fuzz::Tally &thief_tally() {
  static weft::fuzz::Tally tally("thief");
  return tally;
}

weft::fuzz::Tally &relay_tally() {
  static weft::fuzz::Tally tally("relay");
  return tally;
}

void Wire::read() {
  if (fd < 0 || ended) return;
  uint8_t some[4096];
  for (;;) {
    const ssize_t n = ::recv(fd, some, sizeof some, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      ended = true;
      return;
    }
    came += size_t(n);
    if (bytes.size() < 1 << 20) bytes.insert(bytes.end(), some, some + n);
  }
}

void Wire::write(std::vector<uint8_t> &out, size_t most) {
  most = std::min(most, out.size());
  if (fd < 0 || most == 0) return;
  const ssize_t n = ::send(fd, out.data(), most, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n > 0) out.erase(out.begin(), out.begin() + n);
}

void Wire::close() {
  if (fd >= 0) ::close(std::exchange(fd, -1));
  ended = true;
}

// ---- Thief ----

void Thief::listen(const sockaddr_in &at) {
  if (listener_ < 0) listener_ = listen_at(at);
}

void Thief::stop_listening() {
  if (listener_ >= 0) ::close(std::exchange(listener_, -1));
}

void Thief::accept(Input &in) {
  if (listener_ < 0 || talks_.size() >= kMost) return;
  const int fd = take_from(listener_);
  if (fd < 0) return;
  ++thief_tally().attempts;
  const uint8_t how = in.u8();
  Talk talk;
  talk.wire.fd = fd;
  if (how & 1) {
    answer(talk, how);
  } else if (how & 2) {
    ++thief_tally().refused;
    return talk.wire.close();
  }
  talks_.push_back(std::move(talk));
}

// Who is called while it has the address may answer when it has it no more, and is believed
// (SECURITY.md): the friends may be apart until they meet again.
void Thief::write(Talk &talk, size_t most) const {
  if (talk.answer_left != 0 && !listens()) friendship_.part();
  const size_t before = talk.out.size();
  talk.wire.write(talk.out, most);
  talk.answer_left -= std::min(talk.answer_left, before - talk.out.size());
}

void Thief::answer(Talk &talk, uint8_t how) const {
  const RdmHello hello{.version = uint8_t(how & 4 ? 0 : 0x81),
                       .features = uint8_t(how & 0x10 ? kSaysWhenFullToo : 0),
                       .port = Stranger::kPort,
                       .process = 3000u + (how >> 5 & 1)};
  std::array<uint8_t, kMaxConnectSize> bytes;
  const ConnectType type = (how & 0x0a) == 0x0a ? ConnectType::kReject : ConnectType::kAccept;
  const size_t n = encode_connect(type, encode_hello(hello), bytes);
  talk.out.assign(bytes.begin(), bytes.begin() + ptrdiff_t(n));
  talk.answer_left = n;
  talk.answered = true;
  talk.up = type == ConnectType::kAccept;
  write(talk, how & 0x40 ? n : n / 2);
}

void Thief::claim(Input &in, const sockaddr_in &victim, const sockaddr_in &name) {
  if (talks_.size() >= kMost) return;
  const uint8_t how = in.u8();
  Talk talk;
  talk.wire.fd = connect_to(victim, name.sin_addr);
  if (talk.wire.fd < 0) return;
  ++thief_tally().attempts;
  talk.asked = true;
  talk.victim = victim;
  talk.own_name = (how & 3) == 3;
  const uint16_t port =
      talk.own_name ? uint16_t(9000 + (how >> 2 & 15)) : uint16_t(ntohs(name.sin_port));
  // It may give the number of an honest process.
  const uint32_t process = how & 0x40 ? 3000u : 1000u + 1000u * (how >> 4 & 1) + (how >> 5 & 1);
  talk.out = Stranger::hello(how & 4 ? 0 : 1, how & 8 ? kSaysWhenFull : 0, port, process);
  talk.wire.write(talk.out, how & 0x80 ? talk.out.size() / 2 : talk.out.size());
  talks_.push_back(std::move(talk));
}

void Thief::speak(Input &in) {
  if (talks_.empty()) return;
  Talk &talk = talks_[in.u8() % talks_.size()];
  const uint8_t how = in.u8();
  if (!talk.asked && !talk.answered) return answer(talk, how);
  if (talk.up && talk.out.size() < 1 << 16) {
    FrameHeader h;
    h.op = how & 1 ? Op::kTagged : Op::kMessage;
    h.flags = kFlagRemoteData;
    h.data = kStolen | friendship_.stolen++;
    h.tag = how >> 1 & 7;
    h.payload_size = in.length() % 1000;
    uint8_t header[kMaxHeaderSize];
    const size_t n = encode_header(h, ByteOrder::kNative, 0, header);
    talk.out.insert(talk.out.end(), header, header + n);
    talk.out.resize(talk.out.size() + h.payload_size, 0x5e);
  }
  write(talk, how & 0x80 ? talk.out.size() / 2 : talk.out.size());
}

void Thief::hang_up(Input &in) {
  const uint8_t how = in.u8();
  if (how & 1) stop_listening();
  if (talks_.empty() || how & 2) return;
  const auto at = talks_.begin() + ptrdiff_t((how >> 2) % talks_.size());
  at->wire.close();
  talks_.erase(at);
}

void Thief::leave() {
  stop_listening();
  for (Talk &talk : talks_) talk.wire.close();
  talks_.clear();
}

void Thief::look() {
  for (Talk &talk : talks_) look(talk);
}

void Thief::look(Talk &talk) const {
  talk.wire.read();
  if (!talk.asked) {
    FUZZ_CHECK(!friendship_.keyed || talk.wire.came <= kQuestion,
               "an endpoint with a key asks a process without it for a connection");
    if (talk.counted || !talk.answered) return;
    // Who has a key sends its request only to who has it, too.
    const bool asked = talk.wire.came > kQuestion;
    talk.counted = asked || talk.wire.ended;
    if (talk.counted) ++(asked && talk.up ? thief_tally().accepted : thief_tally().refused);
    return;
  }
  ConnectHeader answer;
  if (talk.counted) return;
  if (header_of(talk.wire.bytes, answer)) {
    talk.counted = true;
    talk.up = answer.type == ConnectType::kAccept;
    FUZZ_CHECK(!talk.up || !friendship_.keyed, "a process without the key is accepted");
    ++(talk.up ? thief_tally().accepted : thief_tally().refused);
  } else if (talk.wire.ended) {
    talk.counted = true;
    ++thief_tally().refused;
  }
}

size_t Thief::unnamed(const sockaddr_in &victim) const {
  return size_t(std::ranges::count_if(talks_, [&](const Talk &t) {
    return t.up && t.own_name && !t.wire.ended && same(t.victim, victim);
  }));
}

// ---- Relay ----

sockaddr_in Relay::address() const {
  return address_of(host_, kPort);
}

void Relay::listen() {
  if (listener_ < 0) listener_ = listen_at(address());
}

void Relay::accept(const sockaddr_in &target) {
  if (listener_ < 0 || pipes_.size() >= kMost) return;
  const int fd = take_from(listener_);
  if (fd < 0) return;
  ++relay_tally().attempts;
  Pipe pipe;
  pipe.caller.fd = fd;
  pipe.target.fd = connect_to(target, address().sin_addr);
  pipe.target.ended = pipe.target.fd < 0;
  pipes_.push_back(std::move(pipe));
}

void Relay::pass(Input &in) {
  if (pipes_.empty()) return;
  const uint8_t how = in.u8();
  Pipe &pipe = pipes_[(how >> 3) % pipes_.size()];
  const size_t most = how & 4 ? SIZE_MAX : in.u8();
  if (how & 1) pipe.target.write(pipe.caller.bytes, most);
  if (how & 2) pipe.caller.write(pipe.target.bytes, most);
}

void Relay::hang_up(Input &in) {
  if (pipes_.empty()) return;
  const uint8_t how = in.u8();
  const auto at = pipes_.begin() + ptrdiff_t((how >> 2) % pipes_.size());
  if (how & 1) at->caller.close();
  if (how & 2) at->target.close();
  if (at->caller.fd < 0 && at->target.fd < 0) pipes_.erase(at);
}

void Relay::leave() {
  if (listener_ >= 0) ::close(std::exchange(listener_, -1));
  for (Pipe &pipe : pipes_) {
    pipe.caller.close();
    pipe.target.close();
  }
  pipes_.clear();
}

void Relay::look() {
  for (Pipe &pipe : pipes_) look(pipe);
}

void Relay::look(Pipe &pipe) const {
  pipe.caller.read();
  const size_t before = pipe.target.bytes.size();
  pipe.target.read();
  const auto fresh = std::span(pipe.target.bytes).subspan(before);
  const size_t room =
      kProof + kConnectHeaderSize - std::min(pipe.answer.size(), kProof + kConnectHeaderSize);
  pipe.answer.insert(pipe.answer.end(), fresh.begin(),
                     fresh.begin() + ptrdiff_t(std::min(room, fresh.size())));
  std::span<const uint8_t> answer(pipe.answer);
  if (friendship_.keyed) {
    FUZZ_CHECK(pipe.caller.came <= kQuestion, "a caller with a key believes a relay");
    FUZZ_CHECK(pipe.target.came <= kProof + kConnectHeaderSize, "a relay is answered");
    answer = answer.subspan(std::min(kProof, answer.size()));
  }
  ConnectHeader header;
  if (pipe.counted || !header_of(answer, header)) return;
  pipe.counted = true;
  const bool accepted = header.type == ConnectType::kAccept;
  FUZZ_CHECK(!accepted || !friendship_.keyed, "a relay without the key is accepted");
  ++(accepted ? relay_tally().accepted : relay_tally().refused);
}

}  // namespace weft::tcp::fuzz
