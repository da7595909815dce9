// SPDX-License-Identifier: BSD-2-Clause
// Lower: the carrier of one rxd endpoint. It owns objects of the inner provider: a datagram
// endpoint, its completion queue, an address vector with an entry per path, and a pool of receive
// buffers, some of which are posted.
//
// Example:
//    // What an endpoint does with its Lower when it is enabled, and when it is closed.
//    inline Result<void> begin(Domain &domain, Lower &lower, const sdk::Address &local) {
//      WEFT_CHECK(lower.open(local));      // from here on peers can send to lower.reachable()
//      domain.engine().add_poller(lower);  // each progress gives the datagrams to the core
//      return {};
//    }
//    inline void end(Domain &domain, Lower &lower) {
//      domain.engine().remove_poller(lower);
//      lower.shut();
//    }
//
// Sends request no completion: udp does not access the memory any more after a call without FI_MORE
// has returned. For providers that do not promise this, Lower sends a copy and keeps it until its
// completion. A copy also serves providers that demand more of a call than its vectors
// (weft/sdk/layers/inner_modes.h): it has room for a prefix, a context, and is registered once. All
// calls are made with the engine's lock held.
#ifndef WEFT_PLUGINS_RXD_LOWER_H
#define WEFT_PLUGINS_RXD_LOWER_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/layers/inner_modes.h>
#include <weft/sdk/layers/inner_wait.h>
#include <weft/sdk/memory/lazy_array.h>
#include <weft/sdk/progress/engine.h>

#include <memory>
#include <vector>

#include "plugins/rxd/domain.h"
#include "plugins/rxd/protocol/carrier.h"
#include "plugins/rxd/protocol/core.h"

namespace weft::rxd {

// Memory of one datagram. A receive buffer is posted, holds a datagram, or is free. With `leaves`
// it holds the copy of a datagram to send.
struct Buffer {
  uint8_t *bytes = nullptr;  // behind the prefix of the provider
  bool leaves = false;
};

class Lower final : public Carrier, public sdk::Poller, public sdk::Handler {
 public:
  // What Lower needs from the endpoint.
  class Upper {
   public:
    virtual Core &core() = 0;
    // Whether the application does not read its completions; Lower tells the core.
    virtual bool is_full() = 0;
    // Whose regions a peer may name (MrPeer::endpoint).
    virtual uint64_t endpoint_number() = 0;

   protected:
    ~Upper() = default;
  };

  Lower(Domain &domain, Upper &upper) : domain_(domain), upper_(upper) {}
  ~Lower() { shut(); }

  // Before open(): the traffic class of the datagrams.
  void set_class(uint32_t tclass) { tclass_ = tclass; }

  // Receives at `local` (port 0: any).
  Result<void> open(const sdk::Address &local);
  void shut();
  const sdk::Address &name() const { return name_; }  // the bound address
  // The address for peers to send to; the best one if the endpoint is bound to all addresses.
  const sdk::Address &reachable() const { return reachable_; }
  // Whether peers of stock libfabric can be spoken to here.
  bool stock_peers() const { return stock_; }
  // Sleeps until there may be work, at most until `end_ns`. Releases the lock meanwhile.
  void wait(uint64_t end_ns);

  // Carrier
  Path *open(const sdk::Address &peer, int &err) override;
  void close(Path &path) override;
  std::span<const sdk::Address> other_names() const override { return other_names_; }
  bool learn_name() override;
  bool is_local(const sdk::Address &peer) override;
  bool checks_datagrams() const override { return has(WEFT_DATAGRAM_CHECKED); }
  bool names_sources() const override { return names_; }
  void name_sources(bool wanted) override;
  int send(Path &to, const iovec *iov, size_t count, bool more) override;
  void flush() override;
  size_t max_datagram() const override { return size_; }
  size_t receive_window() const override { return window_; }
  void release(Buffer &buffer) override;
  bool buffers_low() const override { return free_.size() < pool_.size() / 4; }
  ssize_t resolve(const RmaVector &vector, uint64_t access, iovec *iov, size_t room) override;
  uint64_t now_ns() override;
  uint64_t looked_ns() override { return looked_; }
  bool progress_is_near() override;
  void sent_before_progress() override;
  bool flush_later() override { return domain_.engine().flush_later(*this); }
  void set_deadline(uint64_t at_ns) override;
  void random(std::span<uint8_t> out) override;

  // Poller
  void on_poll() override;
  int wait_fds(std::vector<int> &fds) override { return cq_wait_.add_to(fds); }
  bool may_wait() override;

  // Handler, without a descriptor
  void on_event(uint32_t) override {}
  void on_flush() override;
  void on_deadline() override;

 private:
  bool has(uint64_t property) const {
    return ops_ != nullptr && (ops_->properties & property) != 0;
  }
  void judge(const fi_info &inner);
  Result<void> open_objects(const sdk::Address &local);
  Result<void> look_around();
  Result<void> make_buffers();
  void fill();
  void read_completions();
  void read_failure();
  void report_unreachable(const fi_cq_err_entry &entry);
  struct Staged {
    fi_msg msg{};
    iovec iov[kMaxPieces + 2];  // headers, and the pieces of memory
    bool present = false;
  };
  // The context of a call with a buffer, where the provider uses contexts.
  struct Place {
    fi_context2 context;  // must be the first member
    Buffer *buffer;
  };
  Result<void> register_buffers(size_t bytes);
  void *context_of(Buffer &buffer);
  Buffer *buffer_at(void *op_context) const;
  iovec with_prefix(const Buffer &buffer, size_t length) const {
    return {buffer.bytes - modes_.prefix, modes_.prefix + length};
  }
  bool hooked() const;
  int emit(const fi_msg &msg, uint64_t flags);
  int send_copy(const fi_msg &msg, uint64_t flags);
  int send_staged(uint64_t flags);
  void arm();
  void poll_core();

  Domain &domain_;
  Upper &upper_;
  sdk::Address name_, reachable_;
  std::vector<sdk::Address> own_;  // addresses of this host, without ports
  std::vector<sdk::Address> other_names_;
  uint32_t addr_format_ = FI_SOCKADDR;
  uint32_t tclass_ = FI_TC_UNSPEC;
  size_t size_ = 0;       // bytes of the largest datagram
  size_t room_ = 0;       // bytes of a buffer: for any datagram that arrives, or to a stock peer
  size_t window_ = 0;     // bytes
  size_t depth_ = 0;      // posted buffers, at most
  bool stock_ = false;    // there may be stock peers
  size_t iov_limit_ = 1;  // of the inner endpoint
  size_t inject_limit_ = 0;
  bool names_ = false;         // the provider can tell the source of datagrams
  bool reads_ = false;         // sources are being read
  bool sent_at_once_ = false;  // WEFT_DATAGRAM_SENT_AT_ONCE
  size_t pins_ = 0;            // Mr::pins of a region that peers have named (FI_HMEM)
  bool failed_ = false;        // the inner endpoint does not receive any more
  bool told_ = false;          // the core knows
  sdk::InnerModes modes_;
  fid_cq *cq_ = nullptr;
  sdk::InnerWait cq_wait_;
  fid_av *av_ = nullptr;
  fid_ep *ep_ = nullptr;
  weft_datagram_ops *ops_ = nullptr;  // null: the provider has none
  // The last datagram that was sent with `more` waits here for the next one or for flush(). So the
  // call without FI_MORE, which makes the provider send all, always carries a datagram.
  Staged staged_;
  bool held_ = false;  // the provider holds datagrams that were sent with FI_MORE
  sdk::LazyArray<uint8_t> memory_;
  sdk::InnerRegion region_;    // of memory_
  std::vector<Place> places_;  // of pool_, then of leaving_
  std::vector<Buffer> pool_;
  std::vector<Buffer *> free_;  // used from the end: that memory is in the cache
  std::vector<Buffer> leaving_;
  std::vector<Buffer *> free_leaving_;  // for copies of datagrams to send
  size_t posted_ = 0;
  size_t recent_size_ = 1;  // bytes of the largest recent datagrams
  bool came_ = false;       // datagrams have arrived since the last Core::on_idle()
  uint64_t looked_ = 0;     // when there was last nothing to read; 0: it was blocked since
  uint64_t wanted_ = 0;     // the core's deadline; 0: none
  uint64_t armed_ = 0;      // the engine's; it may be earlier
  uint64_t retry_ = 0;      // when to retry after the provider did not take a datagram; 0: never
};

}  // namespace weft::rxd

#endif
