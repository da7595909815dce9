// SPDX-License-Identifier: BSD-2-Clause
// Keys: the authorization key of an endpoint, and the exchange by which two endpoints prove theirs.
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
  // The key of an object opened with `info`: its own key, else `inherited`, else that of the
  // settings.
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
  kDone,     // the peer has the key, and our side is sent
  kRefused,  // exchange.rejected() says why
  kFailed,   // the socket failed with `error`; FI_ECONNREFUSED: the peer closed it
};
Progress advance(int fd, KeyExchange &exchange, int &error);

}  // namespace weft::tcp

#endif
