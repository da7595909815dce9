// SPDX-License-Identifier: BSD-2-Clause
#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

namespace weft::bench {

namespace {
constexpr size_t kPosted = 4096;    // Power of two, more than any window.
constexpr size_t kGatherMax = 256;  // Messages in one gathered write; below IOV_MAX.
}  // namespace

RawTransport::RawTransport(Fd socket, Watch *watch)
    : socket_(std::move(socket)), watch_(watch), posted_(kPosted), staging_(kStaging) {
  const int on = 1;
  if (setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
    fail("setsockopt(TCP_NODELAY): %s", strerror(errno));
  }
  const int flags = fcntl(socket_.get(), F_GETFL);
  if (flags < 0 || fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    fail("fcntl(O_NONBLOCK): %s", strerror(errno));
  }
  gather_.reserve(kGatherMax);
}

void RawTransport::begin(Arena &, const Spec &spec) {
  if (head_ != tail_ || have_ != 0 || staging_begin_ != staging_end_) {
    fail("raw socket: bytes of an earlier measurement are left over");
  }
  received_ = 0;
  staged_ = !is_latency(spec.test) && spec.size <= kStagedLimit;
}

void RawTransport::post_receive(Slot &slot, size_t size) {
  slot.busy = true;
  slot.expected = static_cast<uint32_t>(size);
  posted_[tail_++ % kPosted] = &slot;
}

void RawTransport::send(Slot &slot, size_t size, bool more) {
  char *start = slot.data - sizeof(Header);
  const Header header = {kMagic, send_number_++, size};
  memcpy(start, &header, sizeof header);
  gather_.push_back({start, sizeof header + size});
  if (!more || gather_.size() == kGatherMax) write_out();
}

void RawTransport::write_out() {
  size_t first = 0;
  for (uint32_t polls = 0; first < gather_.size();) {
    ssize_t n;
    if (gather_.size() - first == 1) {
      n = ::send(socket_.get(), gather_[first].iov_base, gather_[first].iov_len, MSG_NOSIGNAL);
    } else {
      msghdr message = {};
      message.msg_iov = &gather_[first];
      message.msg_iovlen = gather_.size() - first;
      n = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    }
    if (n < 0) {
      if (errno != EAGAIN && errno != EINTR) {
        const int failure = errno;
        watch_->blame_peer();
        fail("raw socket: send: %s", strerror(failure));
      }
      if (++polls == 8192) {
        polls = 0;
        watch_->check_call();
      }
      continue;
    }
    for (auto left = static_cast<size_t>(n); left > 0;) {
      const size_t part = std::min(left, gather_[first].iov_len);
      gather_[first].iov_base = static_cast<char *>(gather_[first].iov_base) + part;
      gather_[first].iov_len -= part;
      left -= part;
      if (gather_[first].iov_len == 0) ++first;
    }
  }
  gather_.clear();
}

int RawTransport::progress() {
  return staged_ ? progress_staged() : progress_direct();
}

size_t RawTransport::receive(void *data, size_t size) {
  const ssize_t n = recv(socket_.get(), data, size, 0);
  if (__builtin_expect(n > 0, 1)) return static_cast<size_t>(n);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  receive_failed(n == 0 ? 0 : errno);
}

void RawTransport::receive_failed(int error) {
  watch_->blame_peer();
  if (error == 0) fail("raw socket: the peer closed the connection");
  fail("raw socket: recv: %s", strerror(error));
}

void RawTransport::check_header(const Header &header, const Slot &slot) {
  if (header.magic != kMagic || header.size != slot.expected || header.number != receive_number_) {
    out_of_step(header, slot);
  }
}

void RawTransport::out_of_step(const Header &header, const Slot &slot) const {
  fail("raw socket: the stream is out of step (message %u of %d bytes where %u of %u was due)",
       header.number, header.size, receive_number_, slot.expected);
}

void RawTransport::finish(Slot &slot) {
  ++receive_number_;
  ++head_;
  ++received_;
  slot.busy = false;
}

int RawTransport::progress_direct() {
  if (head_ == tail_) return 0;
  Slot &slot = *posted_[head_ % kPosted];
  char *start = slot.data - sizeof(Header);
  const size_t whole = sizeof(Header) + slot.expected;
  const size_t n = receive(start + have_, whole - have_);
  if (n == 0) return 0;
  const bool header_was_there = have_ >= sizeof(Header);
  have_ += n;
  if (!header_was_there && have_ >= sizeof(Header)) {
    Header header;
    memcpy(&header, start, sizeof header);
    check_header(header, slot);
  }
  if (have_ < whole) return 0;
  have_ = 0;
  finish(slot);
  return 1;
}

int RawTransport::take_staged() {
  int done = 0;
  while (head_ != tail_) {
    Slot &slot = *posted_[head_ % kPosted];
    const size_t available = staging_end_ - staging_begin_;
    if (available < sizeof(Header)) break;
    Header header;
    memcpy(&header, staging_.data() + staging_begin_, sizeof header);
    check_header(header, slot);
    if (available < sizeof header + slot.expected) break;
    memcpy(slot.data, staging_.data() + staging_begin_ + sizeof header, slot.expected);
    staging_begin_ += sizeof header + slot.expected;
    finish(slot);
    ++done;
  }
  return done;
}

int RawTransport::progress_staged() {
  if (head_ == tail_) return 0;
  if (const int done = take_staged(); done > 0) return done;
  // No whole message is left: move the rest, which is short, to the front and fill the buffer.
  if (staging_begin_ > 0) {
    memmove(staging_.data(), staging_.data() + staging_begin_, staging_end_ - staging_begin_);
    staging_end_ -= staging_begin_;
    staging_begin_ = 0;
  }
  const size_t n = receive(staging_.data() + staging_end_, kStaging - staging_end_);
  staging_end_ += n;
  return n == 0 ? 0 : take_staged();
}

}  // namespace weft::bench
