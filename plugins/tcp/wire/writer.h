// SPDX-License-Identifier: BSD-2-Clause
// Writer: the send queue of a stream. Many queued frames become the vectors of one sendmsg(). Told
// the number of bytes that the socket took, it returns the items that were sent to their owner.
//
// Example:
//    #include <sys/socket.h>
//    struct Send : SendItem {  // the memory is the caller's
//      void *context = nullptr;
//    };
//    inline void post(Writer &writer, Send &item, const iovec &payload, ByteOrder order) {
//      FrameHeader header;
//      header.payload_size = payload.iov_len;
//      item.set_header(header, order);
//      item.add(payload.iov_base, payload.iov_len);  // or copy()
//      writer.push(item);
//    }
//    template <class Complete>
//    void flush(Writer &writer, int fd, Complete complete) {
//      iovec iov[64];
//      msghdr message{};
//      message.msg_iov = iov;
//      message.msg_iovlen = writer.gather(iov);
//      const ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
//      writer.on_sent(n > 0 ? size_t(n) : 0,
//                     [&](SendItem &item) { complete(static_cast<Send &>(item)); });
//    }
//
// Control items (acknowledgements, read responses, clear-to-send) overtake application items of
// which no byte was sent, never inside a frame. The writer numbers the frames (the id byte) in the
// order of sending. Do not push between gather() and its on_sent(); the callback of on_sent() may
// push. After the callback an item belongs to its owner again, which waits for acknowledgements.
// Not for the connection message, which is no frame.
#ifndef WEFT_PLUGINS_TCP_WIRE_WRITER_H
#define WEFT_PLUGINS_TCP_WIRE_WRITER_H

#include <sys/uio.h>

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "frame.h"

namespace weft::tcp {

inline constexpr size_t kMaxSendVectors = 4;

// One frame to send, 200 bytes. Two forms share the memory: a header and up to 4 vectors of user
// memory, or a header and a payload copied behind it (inject), which is a single vector for the
// kernel. The caller owns the item, and derives from it to add fields.
class SendItem {
 public:
  SendItem *next = nullptr;  // for the owner's lists while the item is not queued

  // Starts a new frame.
  void set_header(const FrameHeader &header, ByteOrder order) {
    head_size_ = static_cast<uint8_t>(encode_header(header, order, 0, head_.bytes));
    count_ = 0;
  }
  // Payload by reference: the memory must not change until the item comes back. Empty vectors are
  // left out. At most 4.
  void add(const void *base, size_t length) {
    if (length != 0) head_.split.iov[count_++] = {const_cast<void *>(base), length};
  }
  // Bytes that copy() can still take; 0 after add().
  size_t room() const { return count_ == 0 ? sizeof head_.bytes - head_size_ : 0; }
  // Room for payload that the caller copies by itself, at most room().
  void *reserve(size_t length) {
    void *const at = head_.bytes + head_size_;
    head_size_ = static_cast<uint8_t>(head_size_ + length);
    return at;
  }
  // Payload by value, at most room().
  void copy(const void *base, size_t length) {
    if (length != 0) std::memcpy(head_.bytes + head_size_, base, length);
    head_size_ = static_cast<uint8_t>(head_size_ + length);
  }

  std::span<const iovec> vectors() const { return {head_.split.iov, count_}; }  // from add()
  // Encodes a native header again, when the peer's byte order becomes known.
  void set_order(ByteOrder order) {
    if (order == ByteOrder::kNative) return;
    const auto header = parse_header({head_.bytes, head_.bytes[detail::kHeaderSizeAt]},
                                     ByteOrder::kNative, EndpointKind::kRdm1);
    if (header) encode_header(*header, order, 0, head_.bytes);
  }

  // Sets or clears flags that do not change the size of the header (kFlagDelivery).
  void change_flags(uint16_t flags, bool set, ByteOrder order) {
    uint8_t *const at = head_.bytes + detail::kFlagsAt;
    const bool swap = detail::swaps(order);
    const auto had = detail::load<uint16_t>(at, swap);
    detail::store(at, static_cast<uint16_t>(set ? had | flags : had & ~flags), swap);
  }

  uint64_t size() const {
    uint64_t sum = head_size_;
    for (size_t i = 0; i < count_; ++i) sum += head_.split.iov[i].iov_len;
    return sum;
  }

 private:
  friend class Writer;
  union {
    uint8_t bytes[kMaxHeaderSize + kMaxSendVectors * sizeof(iovec)];
    struct {
      uint8_t header[kMaxHeaderSize];
      iovec iov[kMaxSendVectors];
    } split;
  } head_;
  uint8_t head_size_ = 0;  // header and copied payload
  uint8_t count_ = 0;
};
static_assert(sizeof(SendItem) == 200);
// An inject of 128 bytes fits behind every header with one remote vector and data.
static_assert(kMaxHeaderSize + kMaxSendVectors * sizeof(iovec) >= 16 + 8 + kRmaVectorSize + 128);

class Writer {
 public:
  void push(SendItem &item) { application_.push(item); }
  void push_control(SendItem &item) { control_.push(item); }

  bool empty() const {
    return current_ == nullptr && control_.first == nullptr && application_.first == nullptr;
  }
  // A frame is partly sent: closing now would cut it.
  bool inside_frame() const { return current_ != nullptr; }

  // Fills `out` with as many queued bytes as it has vectors for, in the order of sending. Returns
  // the number of vectors set.
  size_t gather(std::span<iovec> out);
  // The socket took `n` of the gathered bytes. Calls done(SendItem &) for every item of which that
  // was the last byte.
  template <class Done>
  void on_sent(size_t n, Done &&done);
  // The connection is gone: calls done(SendItem &) for every queued item, in the order of sending;
  // the queue is empty then.
  template <class Done>
  void drain(Done &&done);

 private:
  struct Queue {
    SendItem *first = nullptr;
    SendItem *last = nullptr;
    void push(SendItem &item) {
      item.next = nullptr;
      (first == nullptr ? first : last->next) = &item;
      last = &item;
    }
    SendItem *pop() {
      SendItem *item = first;
      if (item != nullptr) first = item->next;
      return item;
    }
  };

  SendItem *current_ = nullptr;  // begun, in neither queue
  uint64_t sent_ = 0;            // bytes of it that were sent
  Queue control_;
  Queue application_;
  uint8_t next_id_ = 0;  // of the first item that is not begun
};

inline size_t Writer::gather(std::span<iovec> out) {
  size_t n = 0;
  const auto put = [&](SendItem &item, uint64_t skip) {
    if (skip < item.head_size_) {
      if (n == out.size()) return;
      out[n++] = {item.head_.bytes + skip, static_cast<size_t>(item.head_size_ - skip)};
      skip = 0;
    } else {
      skip -= item.head_size_;
    }
    for (size_t i = 0; i < item.count_ && n < out.size(); ++i) {
      const iovec &iov = item.head_.split.iov[i];
      if (skip >= iov.iov_len) {
        skip -= iov.iov_len;
        continue;
      }
      out[n++] = {static_cast<uint8_t *>(iov.iov_base) + skip,
                  static_cast<size_t>(iov.iov_len - skip)};
      skip = 0;
    }
  };
  // An id is final only when its frame begins: a control item may still overtake all others.
  uint8_t id = next_id_;
  if (current_ != nullptr) put(*current_, sent_);
  for (SendItem *first : {control_.first, application_.first}) {
    for (SendItem *item = first; item != nullptr && n < out.size(); item = item->next) {
      item->head_.bytes[detail::kIdAt] = id++;
      put(*item, 0);
    }
  }
  return n;
}

template <class Done>
void Writer::on_sent(size_t n, Done &&done) {
  Queue finished;  // collected first, so that `done` may push, or end the writer
  while (n != 0) {
    if (current_ == nullptr) {
      current_ = control_.first != nullptr ? control_.pop() : application_.pop();
      assert(current_ != nullptr && "on_sent: more bytes than were gathered");
      if (current_ == nullptr) break;
      sent_ = 0;
      ++next_id_;
    }
    const uint64_t left = current_->size() - sent_;
    if (n < left) {
      sent_ += n;
      break;
    }
    n -= static_cast<size_t>(left);
    finished.push(*current_);
    current_ = nullptr;
  }
  while (SendItem *item = finished.pop()) done(*item);
}

template <class Done>
void Writer::drain(Done &&done) {
  Queue all;
  if (current_ != nullptr) all.push(*current_);
  current_ = nullptr;
  while (SendItem *item = control_.pop()) all.push(*item);
  while (SendItem *item = application_.pop()) all.push(*item);
  while (SendItem *item = all.pop()) done(*item);
}

}  // namespace weft::tcp

#endif  // WEFT_PLUGINS_TCP_WIRE_WRITER_H
