// SPDX-License-Identifier: BSD-2-Clause
// The two halves of the way between XRC endpoints: XrcInitiator sends, XrcTarget receives. Each is
// a queue pair on a connection of its own, which several endpoints share.
//
// Example:
//    // An endpoint that ends lets go of both.
//    inline void part(XrcEndpoint &endpoint, XrcInitiator *initiator, XrcTarget *target) {
//      if (initiator != nullptr) initiator->leave(endpoint);
//      if (target != nullptr) target->leave(endpoint);
//    }
//
// All calls need the lock of connections. An initiator or a target is gone when its last endpoint
// has left, or when it has told its endpoints so. Not for posting: the endpoint does that.
#ifndef WEFT_PLUGINS_VERBS_XRC_PATH_H
#define WEFT_PLUGINS_VERBS_XRC_PATH_H

#include <infiniband/verbs.h>
#include <weft/result.h>
#include <weft/sdk/addresses/address.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <set>
#include <span>
#include <string>

#include "plugins/verbs/channel.h"
#include "plugins/verbs/cq.h"
#include "plugins/verbs/device_events.h"
#include "plugins/verbs/xrc_data.h"

namespace weft::verbs {

class XrcDomain;
class XrcEndpoint;

// The values are those of stock libfabric's endpoints. A lookup uses the private data alone.
rdma_conn_param xrc_parameters(std::span<const uint8_t> data);

class XrcInitiator final : private ChannelUser, private DeviceUser {
 public:
  XrcInitiator(XrcDomain &domain, const sdk::Address &peer, CompletionQueue &queue);
  ~XrcInitiator();

  const sdk::Address &peer() const { return peer_; }
  CompletionQueue &queue() { return queue_; }
  ibv_qp *qp() { return id_ != nullptr ? id_->qp : nullptr; }
  // The peer's queue pair: lookups of later endpoints name it.
  uint32_t target() const { return target_; }

  // The first endpoint's request makes the connection; later ones wait for it, and are told then to
  // look up their peer: XrcEndpoint::look_up(). If it fails, the next one's request is tried.
  void join(XrcEndpoint &endpoint);
  void leave(XrcEndpoint &endpoint);
  bool is_only_of(XrcEndpoint &endpoint) const {
    return users_.size() == 1 && users_.contains(&endpoint) && waiting_.empty();
  }
  sdk::Address local() const { return id_ != nullptr ? local_address(*id_) : sdk::Address(); }
  // The queue pair is broken, or the peer has ended the connection: all endpoints lose it.
  void end();

 private:
  enum class State : uint8_t { kIdle, kConnecting, kConnected };

  void start(XrcEndpoint &endpoint);
  void start_next();
  Result<void> resolve();
  Result<void> make_queue_pair();
  Result<void> request();
  void on_established(std::string_view data);
  void fail_carrier(int error, std::string data, int cause);
  void drop_id();
  // ChannelUser
  void on_event(const ChannelEvent &event) override;
  // DeviceUser
  void on_device_event(ibv_event_type type) override;
  void on_notice() override { end(); }
  void on_device_gone(const ibv_context &device) override;

  XrcDomain &domain_;
  const sdk::Address peer_;
  CompletionQueue &queue_;
  State state_ = State::kIdle;
  rdma_cm_id *id_ = nullptr;
  uint32_t target_ = 0;
  XrcEndpoint *carrier_ = nullptr;  // whose request makes the connection
  std::deque<XrcEndpoint *> waiting_;
  std::set<XrcEndpoint *> users_;
};

class XrcTarget final : private ChannelUser, private DeviceUser {
 public:
  // Owns `id`, which has the queue pair.
  XrcTarget(XrcDomain &domain, rdma_cm_id *id);
  ~XrcTarget();

  uint32_t number() const { return number_; }
  rdma_cm_id *id() { return id_; }
  void join(XrcEndpoint &endpoint) { users_.insert(&endpoint); }
  void leave(XrcEndpoint &endpoint);
  // The caller has created the queue pair, whose events go here.
  DeviceUser &events() { return *this; }

 private:
  void end();
  void on_event(const ChannelEvent &event) override;
  void on_device_event(ibv_event_type type) override;
  void on_notice() override { end(); }
  void on_device_gone(const ibv_context &device) override;

  XrcDomain &domain_;
  rdma_cm_id *id_;
  const uint32_t number_;
  std::set<XrcEndpoint *> users_;
  std::atomic<bool> last_receive_seen_{false};  // IBV_EVENT_QP_LAST_WQE_REACHED
  bool ended_ = false;
};

}  // namespace weft::verbs

#endif
