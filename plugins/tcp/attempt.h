// SPDX-License-Identifier: BSD-2-Clause
// Attempt: connecting to a peer of an FI_EP_RDM endpoint: TCP, keys, request, answer.
//
//   attempt = std::make_unique<Attempt>(peer);   attempt->connect();
//
// It tells the peer how it ended: Peer::open_stream(), attempt_failed() or, of a probe, confirmed().
// Everything with the lock of the domain's engine held.
#ifndef WEFT_PLUGINS_TCP_ATTEMPT_H
#define WEFT_PLUGINS_TCP_ATTEMPT_H

#include <weft/result.h>
#include <weft/sdk/engine.h>

#include <memory>

#include "plugins/tcp/keys.h"
#include "plugins/tcp/wire/connect_message.h"
#include "plugins/tcp/wire/peer_link.h"

namespace weft::tcp {

class Peer;

// Connecting to a peer, from the first try to the last; or once, to ask who is there (`probe`).
class Attempt final : public sdk::Handler {
 public:
  explicit Attempt(Peer &peer, bool probe = false) : peer_(peer), probe_(probe) {}
  ~Attempt();
  Result<void> connect();
  void wait_until(uint64_t at_ns);
  bool connecting() const { return socket_ >= 0; }
  int socket() const { return socket_; }
  short awaited() const;  // by poll(): POLLIN or POLLOUT
  // The answer, if it is here.
  void look() {
    if (requested_) on_answer();
  }
  void become_probe();
  void become_attempt();

  void on_event(uint32_t events) override;
  void on_deadline() override;

 private:
  void give_time();
  void on_connected();
  void prove();
  void request();
  void on_answer();
  void failed(PeerLink::Refusal refusal, int error);
  void warn(const char *what) const;

  Peer &peer_;
  bool probe_;
  int socket_ = -1;
  bool requested_ = false;
  uint64_t deadline_ = 0;                  // 0: none
  std::unique_ptr<KeyExchange> exchange_;  // until both have shown their key
  ConnectReader answer_{ConnectRole::kActive};
};

}  // namespace weft::tcp

#endif
