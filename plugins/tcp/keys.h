// SPDX-License-Identifier: BSD-2-Clause
// The authorization key of an endpoint, and a socket on which two of them show theirs.
//
//   WEFT_TRY(const Keys keys, Keys::of(info, &domain.keys(), settings, api_version));
//   if (auto exchange = keys.exchange(ConnectRole::kActive))        // null: there is no key
//     switch (advance(fd, *exchange, error)) { ... }               // whenever the socket is ready
#ifndef WEFT_PLUGINS_TCP_KEYS_H
#define WEFT_PLUGINS_TCP_KEYS_H

#include <memory>

#include "plugins/tcp/settings.h"
#include "plugins/tcp/wire/key_exchange.h"

namespace weft::tcp {

class Keys {
 public:
  // What is opened with `info`: its own key, else `inherited`, else that of the settings.
  static Result<Keys> of(const fi_info &info, const Keys *inherited, const Settings &settings,
                         uint32_t api_version);

  std::unique_ptr<KeyExchange> exchange(ConnectRole role) const {
    return key_.empty() ? nullptr : std::make_unique<KeyExchange>(role, key_, *mac_);
  }

 private:
  sdk::AuthKey key_;
  const sdk::Mac *mac_ = nullptr;
};

enum class Progress : uint8_t {
  kWaits,    // for the peer
  kDone,     // it has the key; all that we had to say is sent
  kRefused,  // exchange.rejected() says why
  kFailed,   // the socket: `error`; FI_ECONNREFUSED: the peer closed it
};
Progress advance(int fd, KeyExchange &exchange, int &error);

}  // namespace weft::tcp

#endif
