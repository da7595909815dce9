// SPDX-License-Identifier: BSD-2-Clause
// A byte stream (FI_EP_SOCK_STREAM, fi_endpoint.3, SOCKET ENDPOINTS): a TCP connection without
// frames, so any program that speaks TCP is a peer. Calls are synchronous, and nothing is reported
// but the events of the connection.
//
// Example:
//    inline Result<fid_ep *> open(Domain &domain, const fi_info &info) {
//      WEFT_TRY(ByteStream *const stream, ByteStream::open(domain, info, nullptr));
//      return stream->c();
//    }
//    inline ssize_t copy(ByteStream &from, ByteStream &to, char *buffer, size_t size) {
//      const iovec room{buffer, size};
//      const ssize_t n = from.receive(&room, 1, 0);  // 0: the peer sends no more
//      const iovec bytes{buffer, n > 0 ? size_t(n) : 0};
//      return n > 0 ? to.transmit(&bytes, 1, FI_ADDR_UNSPEC, 0) : n;
//    }
//
// fi_connect carries no private data, because TCP has no place for it; FI_CONNECTED of the active
// side comes before the passive side calls fi_accept, and a refusal is FI_SHUTDOWN. The end of the
// peer's bytes is FI_SHUTDOWN too, and what it sent before can still be received. fi_control
// (FI_GETWAIT) gives the descriptor of the connection, for poll(). Not for messages: endpoint.h.
#ifndef WEFT_PLUGINS_TCP_BYTE_STREAM_H
#define WEFT_PLUGINS_TCP_BYTE_STREAM_H

#include <weft/sdk/objects/connected.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/passive.h>
#include <weft/sdk/objects/socket_types.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/progress/unique_fd.h>

#include <memory>
#include <utility>

#include "plugins/tcp/domain.h"
#include "plugins/tcp/fabric.h"

namespace weft::tcp {

class ByteStream final : public sdk::Object<ByteStream, fid_ep>,
                         public sdk::ConnectedCore,
                         public sdk::SocketOps<ByteStream>,
                         private sdk::Handler {
 public:
  static Result<ByteStream *> open(Domain &domain, const fi_info &info, void *context);

  // ---- for SocketOps ----
  ssize_t transmit(const iovec *iov, size_t count, fi_addr_t, uint64_t flags);
  ssize_t receive(const iovec *iov, size_t count, uint64_t flags);

  // ---- fi_ops_ep, fi_ops ----
  int getopt(int level, int name, void *value, size_t *length);
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);

 private:
  ByteStream(Domain &domain, const fi_info &info, void *context);
  ~ByteStream() = default;

  Result<void> enable() override;
  Result<void> start_connect(const sdk::Address &peer, std::string_view data) override;
  Result<void> start_accept(std::unique_ptr<sdk::ConnectRequest> request,
                            std::string_view data) override;
  void hang_up() override;
  Result<sdk::Address> bind_to(const sdk::Address &local) override;
  void on_event(uint32_t events) override;
  void on_deadline() override;
  void on_connecting();
  void become_connected();
  void connect_failed(int error);

  Domain &domain_;
  sdk::Engine &engine_;
  sdk::TxContext tx_;
  sdk::RxContext rx_;
  uint8_t dscp_ = 0;
  sdk::UniqueFd bound_;  // a passive endpoint's socket
  sdk::UniqueFd socket_;
};

// A connection that waits for fi_accept.
class StreamRequest final : public sdk::ConnectRequest {
 public:
  StreamRequest(sdk::PassiveCore &passive, sdk::UniqueFd socket)
      : sdk::ConnectRequest(passive), socket(std::move(socket)) {}
  sdk::Address local() const override;
  sdk::Address peer() const override;
  void reject(std::string_view data) override;

  sdk::UniqueFd socket;
};

class StreamListener final : public sdk::Object<StreamListener, fid_pep>,
                             public sdk::PassiveCore,
                             private sdk::Handler {
 public:
  static Result<StreamListener *> open(Fabric &fabric, const fi_info &info, void *context);
  sdk::UniqueFd release_socket();
  // No connection carries private data.
  int getopt(int level, int name, void *value, size_t *length);
  using Object::instance;

 private:
  friend class sdk::PassiveCore;
  StreamListener(Fabric &fabric, sdk::PassiveStart start, uint8_t dscp, void *context);
  ~StreamListener() = default;

  Result<sdk::Address> bind_to(const sdk::Address &local) override;
  Result<sdk::Address> start_listening(int backlog) override;
  void stop() override;
  void on_room() override;
  void on_event(uint32_t events) override;
  void on_deadline() override { on_room(); }
  void accept_failed(int error);

  Fabric &fabric_;
  const uint8_t dscp_;
  size_t max_requests_ = 0;
  bool failure_told_ = false;
  sdk::UniqueFd socket_;
};

}  // namespace weft::tcp

#endif
