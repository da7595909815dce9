// SPDX-License-Identifier: BSD-2-Clause
// A datagram socket endpoint (FI_EP_SOCK_DGRAM, fi_endpoint.3, SOCKET ENDPOINTS): a UDP socket
// whose calls are synchronous. Any UDP program is a peer.
//
// Example:
//    inline ssize_t answer(DatagramSocket &socket, fi_addr_t peer, char *buffer, size_t size) {
//      const iovec room{buffer, size};
//      const ssize_t n = socket.receive(&room, 1, 0);  // one datagram; -FI_EAGAIN: none is there
//      if (n < 0) return n;
//      const iovec bytes{buffer, size_t(n)};
//      return socket.transmit(&bytes, 1, peer, 0);
//    }
//
// What a datagram has beyond the buffers of its receive is lost, as with recv(2). fi_control
// (FI_GETWAIT) gives the descriptor, for poll(). Not for posted receives and completions:
// endpoint.h.
#ifndef WEFT_PLUGINS_UDP_DATAGRAM_SOCKET_H
#define WEFT_PLUGINS_UDP_DATAGRAM_SOCKET_H

#include <weft/sdk/addresses/av.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/objects/endpoint.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/socket_types.h>
#include <weft/sdk/progress/unique_fd.h>

#include "plugins/udp/domain.h"

namespace weft::udp {

class DatagramSocket final : public sdk::Object<DatagramSocket, fid_ep>,
                             public sdk::EndpointCore,
                             public sdk::SocketOps<DatagramSocket>,
                             private sdk::AvUser {
 public:
  static Result<DatagramSocket *> open(Domain &domain, const fi_info &info, void *context);

  // ---- for SocketOps ----
  ssize_t transmit(const iovec *iov, size_t count, fi_addr_t dest, uint64_t flags);
  ssize_t receive(const iovec *iov, size_t count, uint64_t flags);

  // ---- fi_ops_cm, fi_ops ----
  int setname(void *addr, size_t len);
  int getname(void *addr, size_t *len);
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);

 private:
  DatagramSocket(Domain &domain, const fi_info &info, void *context);
  ~DatagramSocket() = default;

  Result<void> bind_to(const sdk::SockAddr &address);
  Result<void> enable();
  int said(const char *call, const Result<void> &done) const;
  void on_av_removed(uint32_t) override {}

  Domain &udp_domain_;
  const uint32_t addr_format_;
  sdk::TxContext tx_;
  sdk::RxContext rx_;
  uint8_t dscp_ = 0;
  sdk::SockAddr local_, name_;  // what was asked for, and what the socket has
  sdk::UniqueFd socket_;
};

}  // namespace weft::udp

#endif
