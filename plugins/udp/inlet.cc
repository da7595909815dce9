// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/inlet.h"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace weft::udp {
namespace {

// UDP_GRO is turned on by a run of so many datagrams of one size, from this size in bytes on.
constexpr size_t kRun = 8;
constexpr size_t kRunLength = 32;
// After so many reads without a joined message, messages are expected one by one again.
constexpr unsigned kForget = 8;

// Copies `length` bytes of the vector, from `skip` on.
void gather(char *to, const iovec *iov, size_t count, size_t skip, size_t length) {
  for (size_t i = 0; i < count && length != 0; ++i) {
    if (skip >= iov[i].iov_len) {
      skip -= iov[i].iov_len;
      continue;
    }
    const size_t n = std::min(length, iov[i].iov_len - skip);
    std::memcpy(to, static_cast<const char *>(iov[i].iov_base) + skip, n);
    to += n;
    length -= n;
    skip = 0;
  }
}

}  // namespace

void Inlet::open(UniqueFd fd, bool names_sources) {
  fd_ = std::move(fd);
  names_ = names_sources;
}

void Inlet::listen() {
  listening_ = queue_.front() != nullptr;
  engine_.add(*this, fd_.get(), listening_ ? uint32_t(EPOLLIN) : 0u, 0);
  open_ = true;
}

void Inlet::close() {
  if (open_) engine_.remove(*this);
  open_ = false;
  held_.clear();
  fd_.reset();
}

void Inlet::update() {
  if (open_)
    engine_.change(
        *this, (listening_ ? uint32_t(EPOLLIN) : 0u) | (wants_output_ ? uint32_t(EPOLLOUT) : 0u),
        0);
}

void Inlet::want_output(bool wanted) {
  if (wants_output_ == wanted) return;
  wants_output_ = wanted;
  update();
}

// Arriving datagrams stay in the socket.
void Inlet::pause() {
  listening_ = false;
  update();
}

void Inlet::resume() {
  if (!open_) return;
  listening_ = true;
  update();
}

void Inlet::on_event(uint32_t events) {
  if (events & EPOLLERR && tells_errors_) has_errors_ = true;
  if (events & EPOLLERR) {
    // Reading the error clears it, so that it wakes no thread again.
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error != 0 &&
        !tells_errors_)
      sink_.on_socket_error(error);
  }
  if (events & EPOLLOUT && wants_output_) sink_.on_writable();
  if (events & EPOLLIN || (has_errors_ && listening_)) {
    read();
  } else if (has_errors_) {
    read_errors();
  }
}

Result<void> Inlet::tell_errors() {
  WEFT_CHECK(udp::tell_errors(fd_.get()));
  tells_errors_ = true;
  return {};
}

// Called when the socket has been read empty: the last datagrams of a peer may have come before its
// port was closed, and go first. While nothing is posted the socket is not read, so errors are
// dropped then; the next datagram to the peer brings a new one.
void Inlet::read_errors() {
  has_errors_ = false;
  char datagram[128];
  NetworkError error;
  for (size_t i = 0; i < kBatch && read_error(fd_.get(), datagram, error); ++i)
    if (listening_)
      sink_.on_network_error(error, {datagram, std::min(error.length, sizeof datagram)});
}

void Inlet::read() {
  if (queue_.front() == nullptr) return pause();
  if (arrivals_.wanted() && !joins_) [[unlikely]] {
    read_noted();
  } else if (joined_ || (joins_ && expect_ == 1)) {
    read_joined();
  } else if (expect_ == 1 || (queue_.front()->next == nullptr && !joins_)) {
    read_one();
  } else {
    read_many();
  }
}

// Whether a failed read means that the socket is empty. Other errors belong to no receive.
bool Inlet::is_empty(int error) {
  expect_ = 1;
  if (error == EAGAIN || error == EWOULDBLOCK) {
    if (has_errors_) read_errors();
    return true;
  }
  // The error of a datagram that was sent. The error queue says which datagram.
  if (tells_errors_) {
    has_errors_ = true;
  } else {
    sink_.on_socket_error(error);
  }
  return false;
}

void Inlet::adapt(size_t asked, ssize_t got) {
  const size_t most = joins_ ? kAreas : kBatch;
  expect_ = size_t(got) == asked ? std::min(2 * asked, most) : std::max<size_t>(size_t(got), 1);
}

uint32_t Inlet::index_of(const sdk::SockAddr &source) {
  return names_ ? sink_.index_of(source) : sdk::Av::kNone;
}

void *Inlet::name_buffer(size_t i) {
  return const_cast<sockaddr *>(scratch_.sources[i].c());
}

void Inlet::deliver(size_t placed, size_t length, uint32_t index, const sdk::SockAddr &source) {
  if (placed < length) counters_.truncated.add_alone();
  sink_.on_received(*queue_.pop(), placed, length, index, source);
}

void Inlet::read_one() {
  sdk::PostedRecv &r = *queue_.front();
  ssize_t n;
  if (r.count <= 1) {
    socklen_t size = sizeof(sdk::SockAddr);
    n = ::recvfrom(
        fd_.get(), r.count != 0 ? r.iov[0].iov_base : nullptr, r.length, MSG_DONTWAIT | MSG_TRUNC,
        names_ ? static_cast<sockaddr *>(name_buffer(0)) : nullptr, names_ ? &size : nullptr);
  } else {
    msghdr message{};
    message.msg_iov = r.iov;
    message.msg_iovlen = r.count;
    if (names_) {
      message.msg_name = name_buffer(0);
      message.msg_namelen = sizeof(sdk::SockAddr);
    }
    n = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_TRUNC);
  }
  if (n < 0) {
    is_empty(errno);
    return;
  }
  adapt(1, 1);
  const sdk::SockAddr &source = scratch_.sources[0];
  const auto length = size_t(n);
  deliver(std::min(length, r.length), length, index_of(source), source);
}

// The same, with the address at which it came.
void Inlet::read_noted() {
  sdk::PostedRecv &r = *queue_.front();
  msghdr message{};
  message.msg_iov = r.iov;
  message.msg_iovlen = r.count;
  if (names_) {
    message.msg_name = name_buffer(0);
    message.msg_namelen = sizeof(sdk::SockAddr);
  }
  message.msg_control = scratch_.control.data();
  message.msg_controllen = kControl;
  const ssize_t n = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_TRUNC);
  if (n < 0) {
    is_empty(errno);
    return;
  }
  arrivals_.note(message, fd_.get());
  adapt(1, 1);
  const sdk::SockAddr &source = scratch_.sources[0];
  const auto length = size_t(n);
  deliver(std::min(length, r.length), length, index_of(source), source);
}

void Inlet::read_many() {
  const size_t most = std::min(expect_, joins_ ? kAreas : kBatch);
  size_t asked = 0, vectors = 0;
  for (sdk::PostedRecv *r = queue_.front(); r != nullptr && asked < most; r = r->next, ++asked) {
    msghdr &message = scratch_.messages[asked].msg_hdr;
    message = {};
    if (names_) {
      message.msg_name = name_buffer(asked);
      message.msg_namelen = sizeof(sdk::SockAddr);
    }
    message.msg_iov = r->iov;
    message.msg_iovlen = r->count;
    if (joins_) {
      iovec *const iov = &scratch_.iov[vectors];
      std::copy_n(r->iov, r->count, iov);
      iov[r->count] = {scratch_.areas.get() + asked * kJoined, kJoined};
      vectors += r->count + 1;
      message.msg_iov = iov;
      message.msg_iovlen = r->count + 1;
      message.msg_control = &scratch_.control[asked * kControl];
      message.msg_controllen = kControl;
    }
  }
  const int got = ::recvmmsg(fd_.get(), scratch_.messages.data(), unsigned(asked),
                             MSG_DONTWAIT | MSG_TRUNC, nullptr);
  if (got <= 0) {
    is_empty(errno);
    return;
  }
  adapt(asked, got);
  if (!joins_ && may_join_) watch_run(size_t(got));
  bool holds = false;
  for (size_t i = 0; i < size_t(got); ++i) {
    const mmsghdr &m = scratch_.messages[i];
    const sdk::SockAddr &source = scratch_.sources[i];
    const size_t length = m.msg_len;
    if (m.msg_hdr.msg_controllen == 0 && !holds) {
      const size_t room = queue_.front()->length;
      deliver(std::min(length, room), length, index_of(source), source);
      continue;
    }
    if (arrivals_.wanted()) [[unlikely]]
      arrivals_.note(m.msg_hdr, fd_.get());
    const size_t segment = segment_of(m.msg_hdr, length);
    if (segment < length) {
      joined_ = true;
      singles_ = 0;
      segment_ = segment;
      counters_.coalesced.add_alone();
    }
    if (!holds && segment >= length && length <= queue_.front()->length) {
      deliver(length, length, index_of(source), source);
      continue;
    }
    // From here on no receive is delivered until all data that lies in the receives has been
    // copied.
    holds = true;
    hold(m.msg_hdr.msg_iov, m.msg_hdr.msg_iovlen, 0, length, segment, source);
  }
  if (holds) deliver_held();
}

// The kernel gives the segment size of a joined message; a single datagram has no control message.
size_t Inlet::segment_of(const msghdr &message, size_t length) const {
  for (cmsghdr *c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr *>(&message), c)) {
    if (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_GRO) continue;
    int segment = 0;
    std::memcpy(&segment, CMSG_DATA(c), sizeof segment);
    if (segment > 0) return size_t(segment);
  }
  return length;
}

// Reads one message, which may be joined. Its segments go straight to the receives if they have the
// expected size.
void Inlet::read_joined() {
  iovec *const iov = scratch_.iov.data();
  size_t slices = 0, count = 0;
  size_t room = 0;  // of the first receive
  for (sdk::PostedRecv *r = queue_.front(); r != nullptr && slices < kSlices; r = r->next) {
    if (r->count != 1 || r->length < segment_) {
      if (slices != 0) break;
      // This receive is only for a single datagram.
      std::copy_n(r->iov, r->count, iov);
      count = r->count;
      room = r->length;
      break;
    }
    if (slices == 0) room = segment_;
    iov[count++] = {r->iov[0].iov_base, segment_};
    ++slices;
  }
  char *const area = scratch_.areas.get();
  iov[count++] = {area, kJoined};
  sdk::SockAddr &source = scratch_.sources[0];
  msghdr message{};
  if (names_) {
    message.msg_name = name_buffer(0);
    message.msg_namelen = sizeof(sdk::SockAddr);
  }
  message.msg_iov = iov;
  message.msg_iovlen = count;
  message.msg_control = scratch_.control.data();
  message.msg_controllen = kControl;
  const ssize_t n = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_TRUNC);
  if (n < 0) {
    is_empty(errno);
    return;
  }
  if (arrivals_.wanted()) [[unlikely]]
    arrivals_.note(message, fd_.get());
  const auto length = size_t(n);
  const size_t segment = segment_of(message, length);
  if (segment < length) {
    joined_ = true;
    singles_ = 0;
    counters_.coalesced.add_alone();
  } else if (joined_ && ++singles_ == kForget) {
    joined_ = false;
  }
  if (!joined_) adapt(1, 1);
  if (segment >= length && length <= room) {
    deliver(length, length, index_of(source), source);
    return;
  }
  if (segment == segment_ && slices != 0) {
    const uint32_t index = index_of(source);
    size_t at = 0;
    for (; slices != 0 && at < length; --slices) {
      const size_t piece = std::min(segment, length - at);
      deliver(piece, piece, index, source);
      at += piece;
    }
    if (at == length) return;
    hold(iov, count, at, length - at, segment, source);
  } else {
    segment_ = segment;
    hold(iov, count, 0, length, segment, source);
  }
  deliver_held();
}

// Turns UDP_GRO on when the datagrams of one read look like those of a sender with segmentation
// offload.
void Inlet::watch_run(size_t count) {
  size_t run = 1;
  for (size_t i = 1; i < count; ++i) {
    run = scratch_.messages[i].msg_len == scratch_.messages[i - 1].msg_len ? run + 1 : 1;
    if (run < kRun || scratch_.messages[i].msg_len < kRunLength) continue;
    return start_joining(scratch_.messages[i].msg_len);
  }
}

void Inlet::start_joining(size_t segment) {
  if (scratch_.areas == nullptr) {
    scratch_.areas.reset(new (std::nothrow) char[kAreas * kJoined]);
    if (scratch_.areas == nullptr) return;
  }
  const int on = 1;
  // Kernels before 5.0 do not know it.
  may_join_ = false;
  joins_ = setsockopt(fd_.get(), SOL_UDP, UDP_GRO, &on, sizeof on) == 0;
  if (!joins_) return;
  joined_ = true;
  singles_ = 0;
  segment_ = segment;
}

void Inlet::hold(const iovec *iov, size_t count, size_t skip, size_t length, size_t segment,
                 const sdk::SockAddr &source) {
  try {
    Held &held = held_.emplace_back();
    held.bytes.resize(length);
    held.segment = segment;
    if (names_) held.source = source;
    held.is_empty_datagram = length == 0;
  } catch (const std::bad_alloc &) {
    // Datagrams may be lost, so this message is dropped.
    if (!held_.empty() && held_.back().segment == 0 && !held_.back().is_empty_datagram)
      held_.pop_back();
    counters_.dropped.add_alone();
    return;
  }
  gather(held_.back().bytes.data(), iov, count, skip, length);
}

void Inlet::deliver_held() {
  while (!held_.empty()) {
    Held &held = held_.front();
    const uint32_t index = index_of(held.source);
    while (held.at < held.bytes.size() || held.is_empty_datagram) {
      sdk::PostedRecv *const r = queue_.front();
      if (r == nullptr) return;
      const size_t length = std::min(held.segment, held.bytes.size() - held.at);
      const size_t placed = std::min(length, r->length);
      size_t left = placed;
      const char *from = held.bytes.data() + held.at;
      for (uint32_t i = 0; i < r->count && left != 0; ++i) {
        const size_t n = std::min(left, r->iov[i].iov_len);
        if (n != 0) std::memcpy(r->iov[i].iov_base, from, n);
        from += n;
        left -= n;
      }
      held.at += length;
      held.is_empty_datagram = false;
      deliver(placed, length, index, held.source);
    }
    held_.pop_front();
  }
}

}  // namespace weft::udp
