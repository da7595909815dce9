// SPDX-License-Identifier: BSD-2-Clause
// The connection message of the tcp provider: request, accept or reject, each with up to 256 bytes
// of private data. It comes first in each direction of a stream; data frames (frame.h) follow.
//
// Example:
//    #include <sys/socket.h>
//    // The passive side. True: data frames follow, in the order of reader.header().order.
//    inline bool accept(int fd, ConnectReader &reader) {  // made with ConnectRole::kPassive
//      while (!reader.done()) {
//        const std::span<uint8_t> space = reader.space();  // never beyond the message
//        const ssize_t n = recv(fd, space.data(), space.size(), 0);
//        if (n <= 0) return false;
//        reader.on_read(size_t(n));  // any part of the message
//        if (reader.rejected()) return false;
//      }
//      uint8_t answer[kMaxConnectSize];
//      const size_t n = encode_connect(ConnectType::kAccept, reader.private_bytes(), answer);
//      return send(fd, answer, n, 0) == ssize_t(n);  // one call: stock libfabric reads once
//    }
//
// Not for the meaning of the private data (rdm_message.h), nor for crossing requests
// (weft/sdk/peer/link.h).
#ifndef WEFT_PLUGINS_TCP_WIRE_CONNECT_MESSAGE_H
#define WEFT_PLUGINS_TCP_WIRE_CONNECT_MESSAGE_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "frame.h"

namespace weft::tcp {

inline constexpr uint8_t kConnectVersion = 3;
inline constexpr size_t kConnectHeaderSize = 32;
inline constexpr size_t kMaxPrivateSize = 256;
inline constexpr size_t kMaxConnectSize = kConnectHeaderSize + kMaxPrivateSize;

enum class ConnectType : uint8_t { kRequest = 0, kAccept = 1, kReject = 6 };

// The reader's side. The passive side reads a request, the active side an accept or a reject.
enum class ConnectRole : uint8_t { kPassive, kActive };

enum class ConnectRefusal : uint8_t {
  kTruncated,    // parse_connect_header() was given fewer than 32 bytes; never from a stream
  kVersion,      // not 3
  kType,         // unknown, or not for this side
  kPrivateSize,  // above 256
};

const char *text(ConnectRefusal refusal) noexcept;

// Features of connected endpoints of weft, in bytes that all others leave 0 and do not look at: in
// a request, and in the accept. Two bits, so that an echo is no agreement. The endpoints answer
// what they refuse (kOpDataRefused, frame.h).
inline constexpr uint8_t kConnectRefuses = 0x01, kConnectRefusesToo = 0x02;
constexpr uint8_t connect_features_of_answer(uint8_t requested) {
  return requested == kConnectRefuses ? kConnectRefusesToo : uint8_t{0};
}

struct ConnectHeader {
  ConnectType type = ConnectType::kRequest;
  // Of the data frames in both directions; means nothing in a reject.
  ByteOrder order = ByteOrder::kNative;
  uint16_t private_size = 0;  // 0..256
  uint8_t features = 0;
  // FI_EP_RDM, in an answer: the last place of the scalable endpoint whose first context answers
  // (weft/sdk/peer/place.h). 0: there are no other contexts.
  uint8_t last_place = 0;
  bool operator==(const ConnectHeader &) const = default;
};

// Total: any bytes give a header or a refusal.
tl::expected<ConnectHeader, ConnectRefusal> parse_connect_header(std::span<const uint8_t> bytes,
                                                                 ConnectRole role) noexcept;

// Private data as the bytes of a message, and as an application's.
inline std::span<const uint8_t> bytes_of(std::string_view data) {
  return {reinterpret_cast<const uint8_t *>(data.data()), data.size()};
}
inline std::string_view text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

// Writes header and private data to `out` and returns their length; 0 if there are more than
// kMaxPrivateSize bytes of private data. Tests pass kNetwork to act as a peer of the other byte
// order.
size_t encode_connect(ConnectType type, std::span<const uint8_t> private_data,
                      std::span<uint8_t, kMaxConnectSize> out, ByteOrder order = ByteOrder::kNative,
                      uint8_t features = 0, uint8_t last_place = 0) noexcept;

// Collects one connection message from a stream, in any pieces, and takes no byte beyond it.
class ConnectReader {
 public:
  explicit ConnectReader(ConnectRole role) : role_(role) {}

  // The place for the next bytes; empty when done or rejected.
  std::span<uint8_t> space() { return {bytes_.data() + have_, need_ - have_}; }
  // `n` bytes were put at the front of space().
  void on_read(size_t n);
  // The same for bytes in other memory. Returns the number of bytes taken.
  size_t on_bytes(std::span<const uint8_t> bytes);

  bool done() const { return header_ && have_ == need_; }
  std::optional<ConnectRefusal> rejected() const { return refusal_; }
  const ConnectHeader &header() const { return *header_; }  // after done()
  std::span<const uint8_t> private_bytes() const {          // after done()
    return {bytes_.data() + kConnectHeaderSize, have_ - kConnectHeaderSize};
  }

 private:
  std::array<uint8_t, kMaxConnectSize> bytes_;
  size_t have_ = 0;
  size_t need_ = kConnectHeaderSize;
  std::optional<ConnectHeader> header_;
  std::optional<ConnectRefusal> refusal_;
  ConnectRole role_;
};

}  // namespace weft::tcp

#endif  // WEFT_PLUGINS_TCP_WIRE_CONNECT_MESSAGE_H
