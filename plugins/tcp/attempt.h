// SPDX-License-Identifier: BSD-2-Clause
// Attempt: connects to a peer of an FI_EP_RDM endpoint: TCP, key exchange, request, answer.
//
// Example:
//    #include "plugins/tcp/peer.h"
//    // What a Peer does when operations wait for a stream.
//    inline void connect(Peer &peer) {
//      peer.attempt = std::make_unique<Attempt>(peer);
//      const Result<void> started = peer.attempt->connect();
//      if (!started) peer.attempt_failed(sdk::PeerLink::Refusal::kUnreachable, started.error().code);
//    }
//
// The end of an attempt is a call of Peer::accepted() or attempt_failed(). All calls need the
// lock of the domain's engine. Whether to connect, and again, is decided in weft/sdk/peer/link.h.
#ifndef WEFT_PLUGINS_TCP_ATTEMPT_H
#define WEFT_PLUGINS_TCP_ATTEMPT_H

#include <weft/result.h>
#include <weft/sdk/peer/link.h>
#include <weft/sdk/progress/engine.h>

#include <memory>

#include "plugins/tcp/keys.h"
#include "plugins/tcp/wire/connect_message.h"

namespace weft::tcp {

class Peer;

// All tries to connect to a peer, with the pauses between them. Or a probe: one try that asks
// whether the process at the peer's address accepts us while we have a stream; then
// Peer::accepted() is called, and in every other case nothing changes.
class Attempt final : public sdk::Handler {
 public:
  explicit Attempt(Peer &peer, bool probe = false) : peer_(peer), probe_(probe) {}
  ~Attempt();
  Result<void> connect();
  void wait_until(uint64_t at_ns);
  bool connecting() const { return socket_ >= 0; }
  int socket() const { return socket_; }
  short awaited() const;  // for poll(): POLLIN or POLLOUT
  // Reads the answer, if it has arrived.
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
  void failed(sdk::PeerLink::Refusal refusal, int error);
  void warn(const char *what) const;

  Peer &peer_;
  bool probe_;
  int socket_ = -1;
  bool requested_ = false;
  uint64_t deadline_ = 0;                  // 0: none
  std::unique_ptr<KeyExchange> exchange_;  // until both sides have proved their key
  ConnectReader answer_{ConnectRole::kActive};
};

}  // namespace weft::tcp

#endif
