// SPDX-License-Identifier: BSD-2-Clause
// Keys: the authorization key of an endpoint, and the exchange by which two endpoints prove theirs.
//
// Example:
//    inline Result<Keys> keys_of(const fi_info &info, const Keys &of_domain,
//                                const Settings &settings) {
//      return Keys::of(info, &of_domain, settings, FI_VERSION(2, 0));
//    }
//    // The active side may send its request. False: try again when the socket is readable, or end
//    // the connection after kRefused and kFailed. `exchange` is from keys.exchange().
//    inline bool may_request(int fd, KeyExchange *exchange) {
//      int error = 0;
//      return exchange == nullptr || advance(fd, *exchange, error) == Progress::kDone;
//    }
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

  // Over a socket that is connected. Null: there is no key.
  std::unique_ptr<KeyExchange> exchange(ConnectRole role, int fd) const;

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
