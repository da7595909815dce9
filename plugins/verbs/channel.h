// SPDX-License-Identifier: BSD-2-Clause
// Channel: where librdmacm tells what happens to connections, and who is told.
//
// Example:
//    class Listener final : public ChannelUser {
//     public:
//      void on_event(const ChannelEvent &event) override;  // the engine's lock is held
//    };
//    inline Result<rdma_cm_id *> listen(Channel &channel, Listener &listener) {
//      WEFT_TRY(rdma_cm_id *const id, channel.make_id(listener));
//      if (rdma_listen(id, 8) == 0) return id;
//      rdma_destroy_id(id);
//      return fail(errno, "rdma_listen: %s", strerror(errno));
//    }
//
// Events are copied and acknowledged before anybody is told, so that the user may destroy its
// identifier at once. Nothing can fail in between: rdma_destroy_id waits for acknowledgements.
// Calls need the engine's lock.
#ifndef WEFT_PLUGINS_VERBS_CHANNEL_H
#define WEFT_PLUGINS_VERBS_CHANNEL_H

#include <rdma/rdma_cma.h>
#include <weft/result.h>
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/progress/engine.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

namespace weft::verbs {

struct ChannelEvent {
  rdma_cm_event_type type;
  int status;             // 0; a negative errno; of a rejection: the reason
  rdma_cm_id *id;         // of a request: a new one
  std::string_view data;  // private data as delivered, valid during on_event()
  ibv_ah_attr group{};    // of RDMA_CM_EVENT_MULTICAST_JOIN: what leads to the group
};

class ChannelUser {
 public:
  virtual void on_event(const ChannelEvent &event) = 0;

 protected:
  ~ChannelUser() = default;
};

class Channel final : public sdk::Handler {
 public:
  static Result<std::unique_ptr<Channel>> open(sdk::Engine &engine);
  ~Channel();

  // Its events go to `user`. The caller destroys it.
  Result<rdma_cm_id *> make_id(ChannelUser &user, rdma_port_space space = RDMA_PS_TCP);
  // An identifier of a request gets its own user.
  static void give(rdma_cm_id &id, ChannelUser &user) { id.context = &user; }

  // sdk::Handler
  void on_event(uint32_t events) override;

 private:
  Channel(sdk::Engine &engine, rdma_event_channel *channel);

  sdk::Engine &engine_;
  rdma_event_channel *const channel_;
};

// The addresses of an identifier; none where it has none.
sdk::Address local_address(rdma_cm_id &id);
sdk::Address peer_address(rdma_cm_id &id);

// An address of a socket format as librdmacm takes it. It only reads.
inline sockaddr *c_address(const sdk::Address &address) {
  return static_cast<sockaddr *>(const_cast<void *>(address.data()));
}

}  // namespace weft::verbs

#endif
