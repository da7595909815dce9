// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/keys.h"

#include <sys/socket.h>

#include <cerrno>

namespace weft::tcp {

Result<Keys> Keys::of(const fi_info &info, const Keys *inherited, const Settings &settings,
                      uint32_t api_version) {
  Keys keys;
  WEFT_TRY(keys.key_,
           sdk::auth_key(info, inherited == nullptr ? settings.auth_key_file : "", api_version));
  if (keys.key_.empty()) return inherited != nullptr ? *inherited : keys;
  WEFT_TRY(keys.mac_, sdk::Mac::load());
  return keys;
}

std::unique_ptr<KeyExchange> Keys::exchange(ConnectRole role, int fd) const {
  if (key_.empty()) return nullptr;
  const auto called = role == ConnectRole::kActive ? sdk::socket_peer(fd) : sdk::socket_name(fd);
  return std::make_unique<KeyExchange>(role, key_, *mac_,
                                       sdk::place_of(called.value_or(sdk::SockAddr())));
}

Progress advance(int fd, KeyExchange &exchange, int &error) {
  for (;;) {
    if (const auto output = exchange.output(); !output.empty()) {
      // Nothing else was sent on this socket, so it takes the output whole.
      const ssize_t n = ::send(fd, output.data(), output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n != ssize_t(output.size())) {
        error = n < 0 ? errno : FI_ECONNRESET;
        return Progress::kFailed;
      }
      exchange.sent();
    }
    if (exchange.rejected()) return Progress::kRefused;
    if (exchange.done()) return Progress::kDone;
    const std::span<uint8_t> space = exchange.space();
    const ssize_t n = ::recv(fd, space.data(), space.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Progress::kWaits;
    if (n <= 0) {
      error = n == 0 ? FI_ECONNREFUSED : errno;
      return Progress::kFailed;
    }
    exchange.on_read(size_t(n));
  }
}

}  // namespace weft::tcp
