// SPDX-License-Identifier: BSD-2-Clause
// XrcDomain: what a domain has of extended connections (XRC) beside its endpoints: the device's XRC
// domain, the queue pairs that its endpoints share, and where reciprocal connections come in.
//
// Example:
//    // The queue pair over which an endpoint sends to whoever listens at `peer`. The endpoint is
//    // told when it may: XrcEndpoint::on_answer().
//    inline void begin(XrcDomain &domain, XrcEndpoint &endpoint, const sdk::Address &peer,
//                      CompletionQueue &queue) {
//      domain.initiator(peer, queue).join(endpoint);
//    }
//
// Endpoints whose peers are the same (an address with its port) and that report sends to the same
// completion queue share an initiator. All calls need the lock of connections.
#ifndef WEFT_PLUGINS_VERBS_XRC_DOMAIN_H
#define WEFT_PLUGINS_VERBS_XRC_DOMAIN_H

#include <infiniband/verbs.h>
#include <weft/result.h>
#include <weft/sdk/addresses/address.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "plugins/verbs/channel.h"
#include "plugins/verbs/cq.h"
#include "plugins/verbs/domain.h"
#include "plugins/verbs/xrc_path.h"

namespace weft::verbs {

class XrcEndpoint;

class XrcDomain final {
 public:
  static Result<std::unique_ptr<XrcDomain>> open(Domain &domain);
  explicit XrcDomain(Domain &domain, ibv_xrcd *xrcd) : domain_(domain), xrcd_(xrcd) {}
  ~XrcDomain();
  XrcDomain(const XrcDomain &) = delete;
  XrcDomain &operator=(const XrcDomain &) = delete;

  Domain &domain() { return domain_; }
  ibv_xrcd *c() { return xrcd_; }

  // Endpoints, by the tag that their connections have.
  uint32_t join(XrcEndpoint &endpoint);
  void leave(uint32_t tag) { endpoints_.erase(tag); }

  XrcInitiator &initiator(const sdk::Address &peer, CompletionQueue &queue);
  void drop(XrcInitiator &initiator);    // it is destroyed
  void forget(XrcInitiator &initiator);  // new endpoints get another one

  // The receiving queue pair of a connection that `id` has asked for, which the caller accepts.
  Result<XrcTarget *> make_target(rdma_cm_id *id);
  XrcTarget *find_target(uint32_t number) const;  // null: it is not there
  void drop(XrcTarget &target);

  // The port at which the host of `local` takes reciprocal connections.
  Result<uint16_t> listen(const sdk::Address &local);

 private:
  struct Listener final : ChannelUser {
    Listener(XrcDomain &all, sdk::Address host) : domain(all), host(std::move(host)) {}
    void on_event(const ChannelEvent &event) override { domain.on_event(*this, event); }
    void close();

    XrcDomain &domain;
    const sdk::Address host;
    rdma_cm_id *connections = nullptr, *lookups = nullptr;
  };
  using Key = std::pair<sdk::Address, CompletionQueue *>;

  Result<void> open(Listener &listener);
  void on_event(Listener &listener, const ChannelEvent &event);
  bool answer_reciprocal(rdma_cm_id *id, const XrcReceived &request);

  Domain &domain_;
  ibv_xrcd *const xrcd_;
  uint32_t next_tag_ = 1;
  std::map<uint32_t, XrcEndpoint *> endpoints_;
  std::map<Key, XrcInitiator *> known_;  // those that endpoints may join
  std::map<XrcInitiator *, std::unique_ptr<XrcInitiator>> initiators_;
  std::map<uint32_t, std::unique_ptr<XrcTarget>> targets_;  // by number
  std::map<sdk::Address, std::unique_ptr<Listener>> listeners_;
};

}  // namespace weft::verbs

#endif
