// SPDX-License-Identifier: BSD-2-Clause
// Lower: the carrier of one rxm endpoint, over the inner provider. It has a passive endpoint that
// listens, an endpoint per connection, a completion queue and an event queue for all of them, and a
// pool of receive buffers that they share if the inner provider has shared receive contexts.
//
// Example:
//    // From fi_enable to fi_close the engine of the endpoint's domain drives it.
//    inline Result<void> begin(Domain &domain, Lower &lower, const sdk::Address &local) {
//      WEFT_CHECK(lower.open(local, nullptr, nullptr));  // lower.address(): where it listens
//      domain.engine().add_poller(lower);                // each progress calls on_poll()
//      return {};
//    }
//    inline void end(Domain &domain, Lower &lower) {
//      domain.engine().remove_poller(lower);
//      domain.engine().remove(lower);  // its deadline
//      lower.shut();
//    }
//
// It passes events and completions to the Core. Call everything with the engine's lock held. Not
// for the content of packets.
#ifndef WEFT_PLUGINS_RXM_LOWER_H
#define WEFT_PLUGINS_RXM_LOWER_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/layers/inner_progress.h>
#include <weft/sdk/layers/inner_wait.h>
#include <weft/sdk/memory/lazy_array.h>
#include <weft/sdk/progress/engine.h>

#include <memory>
#include <vector>

#include "plugins/rxm/domain.h"
#include "plugins/rxm/flights.h"
#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

// The context of a posted buffer, where the inner provider uses contexts.
struct Place {
  fi_context2 context;  // must be the first member
  Buffer *buffer;
};

struct alignas(8) Link {
  // The context of operations that end for the core when the inner provider has them: it is odd,
  // and contexts of others are aligned. Their errors have it, even when the link is gone. The inner
  // endpoint has the context mark(0), and so have errors of operations that had completed. Null: of
  // an operation without a mark (Carrier::kMarks) nothing is told.
  void *mark(uint64_t kind) {
    return reinterpret_cast<char *>(this) + 1 + (kind & FI_MSG ? 2 : kind & FI_TAGGED ? 4 : 0);
  }
  void *context_of(uint64_t flags) {
    return (flags & Carrier::kMarks) != 0 ? mark(flags) : nullptr;
  }
  static_assert(alignof(Token) % 2 == 0);
  static bool is_mark(const void *context) { return reinterpret_cast<uintptr_t>(context) % 2 != 0; }
  static Link *of(const fid &endpoint) {
    return reinterpret_cast<Link *>(static_cast<char *>(endpoint.context) - 1);
  }
  // What was lost: the flags of its error. `entry` has a mark.
  static uint64_t lost(const fi_cq_err_entry &entry);

  fid_ep *ep = nullptr;
  const weft_carrier_ops *ops = nullptr;  // of the inner provider; null: it has none
  uint64_t flags = ~Carrier::kOptional;   // that calls of the inner provider may have
  Connection *owner = nullptr;            // null: closed, gets no events any more
  uint32_t place = 0;                     // in Lower::numbers_
  unsigned ended = 0;                     // polls since the peer hung up; 0: still connected
  uint64_t end_by = 0;                    // closed: when it goes even if calls are in flight
  bool held = false;                      // its packets are not read
  std::unique_ptr<uint8_t[]> memory;      // its own receive buffers, if they are not shared
  sdk::InnerRegion region;                // of memory
  Flights::Calls calls;                   // where the inner provider demands more of them
  std::vector<Buffer> buffers;
  std::vector<Place> places;  // of buffers
};

// Memory for one packet: posted, free, or with a packet in it.
struct Buffer {
  Link *link = nullptr;  // that owns it; null: the shared pool
  uint8_t *bytes = nullptr;
};

class Lower final : public Carrier, public sdk::Poller, public sdk::Handler {
 public:
  // What Lower needs from the endpoint above it.
  class Upper {
   public:
    // LayerEndpoint has these two for every carrier. Lower knows both from serve(), without a
    // virtual call.
    virtual Core &core() = 0;
    virtual bool is_full() = 0;
    // By which regions know it (FI_MR_ENDPOINT).
    virtual uint64_t endpoint_number() = 0;
    // A peer wrote with remote data. `from`: null if unknown.
    virtual void on_remote_write(Connection *from, uint64_t length, uint64_t data) = 0;
    // An operation (FI_WRITE, FI_SEND) that had completed did not take effect, or may not have.
    virtual void on_lost(uint64_t flags, int err) = 0;

   protected:
    ~Upper() = default;
  };

  Lower(Domain &domain, Upper &upper);
  ~Lower();  // calls shut()

  // Opens everything and listens at `local` (port 0: any). `remote_write`, `remote_read`: counters
  // of the application for remote accesses to this endpoint, or null.
  Result<void> open(const sdk::Address &local, sdk::Cntr *remote_write, sdk::Cntr *remote_read);
  // Before open(): the traffic class of the connections.
  void set_class(uint32_t tclass) { tclass_ = tclass; }
  // Adds such counters later.
  Result<void> count_remote(sdk::Cntr *remote_write, sdk::Cntr *remote_read);
  // After open(), before the first poll. What arrives goes to this core. While the receiver's
  // completion queue is full, completions are not read, so that remote data waits.
  void serve(Core &core, const sdk::RxContext &receiver) {
    core_ = &core;
    receiver_ = &receiver;
  }
  void shut();
  const sdk::Address &address() const { return local_; }
  // Limits of the inner provider.
  size_t inject_limit() const { return inject_limit_; }
  size_t iov_limit() const { return iov_limit_; }
  bool shares_receives() const { return shares_; }
  // Whether messages can have remote data, and completions say from which connection they are.
  bool carries_bare() const { return carries_bare_; }
  uint32_t receive_count() const { return receive_count_; }
  // Whether fi_close of the connections would lose what was injected.
  bool has_injected() { return flights_.has_injected(); }
  // Sleeps until the inner provider has an event, at most until `end_ns`. Releases the lock
  // meanwhile.
  void wait(uint64_t end_ns);

  // Carrier
  Link *connect(Connection &owner, const sdk::Address &peer, std::span<const uint8_t> data,
                int &err) override;
  Link *accept(Connection &owner, Request &request, std::span<const uint8_t> data,
               int &err) override;
  void reject(Request &request, std::span<const uint8_t> data) override;
  void close(Link &link, bool idle) override;
  ssize_t send(Link &link, const iovec *iov, void *const *desc, size_t count, uint32_t data,
               uint64_t flags, Token *token) override;
  ssize_t read(Link &link, const iovec *iov, void *const *desc, size_t count, const RmaVector *from,
               size_t from_count, uint64_t flags, Token *token) override;
  ssize_t write(Link &link, const iovec *iov, void *const *desc, size_t count, const RmaVector *to,
                size_t to_count, uint64_t data, uint64_t flags, Token *token) override;
  void *inner_descriptor(void *descriptor) override { return domain_.inner_descriptor(descriptor); }
  void release(Buffer &buffer) override;
  bool buffers_low() const override { return !shares_ || free_.size() < pool_.size() / 4; }
  size_t buffers_left() const override { return shares_ ? free_.size() + posted_ : kOwn; }
  bool hold(Link &link, bool held) override;
  Registration *expose(Link &link, const iovec &iov, uint64_t access, RmaVector &vector,
                       int &err) override;
  Registration *enlist(const iovec &iov, void *&desc, int &err) override;
  void conceal(Registration &registration) override;
  bool reads() override;
  ssize_t resolve(const RmaVector &vector, uint64_t access, iovec *iov, size_t room) override;
  uint64_t now_ns() override;
  void set_deadline(uint64_t at_ns) override;

  // Poller
  void on_poll() override;
  int wait_fds(std::vector<int> &fds) override;
  bool may_wait() override;

  // Handler: only for the deadline
  void on_event(uint32_t) override {}
  void on_deadline() override;

 private:
  static constexpr uint32_t kOwnReceives = 32;
  static constexpr size_t kDeviceSends = 32;

  Result<void> open_objects();
  Result<void> listen(const sdk::Address &local);
  void set_sizes(fi_info &info) const;
  Link *make_link(Connection &owner, fi_info *info, int &err);
  void destroy(Link &link);
  bool may_go(const Link &link);
  void bury();
  int make_places(std::vector<Buffer> &buffers, std::vector<Place> &places, const uint8_t *memory,
                  sdk::InnerRegion &region);
  int post(Buffer &buffer);
  Buffer *buffer_at(void *op_context) const;
  Token *token_at(void *op_context) {
    return modes_.of_calls() ? flights_.land(op_context) : static_cast<Token *>(op_context);
  }
  void on_remote_data(const fi_cq_tagged_entry &entry, fi_addr_t source);
  void fill();
  // Later, together with others, so that a message does not wait for it.
  void fill_soon() {
    if (posted_ < fill_below_) fill();
  }
  bool read_completions();  // true: read all of them
  void end_links();
  void read_failure();
  Link *link_at(fi_addr_t source) const;
  void received(Buffer &buffer, const fi_cq_tagged_entry &entry, fi_addr_t source);
  void read_events();
  void read_event_failure();
  void on_connreq(const fi_eq_cm_entry &entry, size_t size);
  size_t packet_size() const { return kHeaderSize + options_.buffer_size; }

  bool is_full() const { return receiver_->is_full(); }

  Domain &domain_;
  Upper &upper_;
  Core *core_ = nullptr;
  const sdk::RxContext *receiver_ = nullptr;
  const Options &options_;
  const sdk::InnerModes modes_;
  Flights flights_;
  sdk::Address local_;
  uint32_t addr_format_ = FI_SOCKADDR;
  uint32_t tclass_ = FI_TC_UNSPEC;
  size_t inject_limit_ = 0, iov_limit_ = 4;
  bool shares_ = false;
  uint32_t own_receives_ = 0;  // posted per connection, if they are not shared
  size_t most_posted_ = 0;     // if they are
  size_t fill_below_ = 0;      // with fewer posted, the others are posted at once
  bool carries_bare_ = false;
  size_t tx_size_ = 0;  // of a connection's queue; 0: as the inner provider says
  uint32_t receive_count_ = 0;
  fid_eq *eq_ = nullptr;
  sdk::InnerQueue queue_;
  sdk::InnerWait eq_wait_, cq_wait_;
  fid_pep *pep_ = nullptr;
  fid_ep *srx_ = nullptr;
  fid_cntr *remote_write_ = nullptr, *remote_read_ = nullptr;
  sdk::InfoList active_;  // one fi_info, for opening connections
  sdk::LazyArray<uint8_t> memory_;
  sdk::InnerRegion region_;  // of memory_
  std::vector<Buffer> pool_;
  std::vector<Place> places_;   // of pool_
  std::vector<Buffer *> free_;  // a stack: the last one is in the cache
  size_t posted_ = 0;
  std::vector<Link *> links_, closing_;
  // The number by which the inner provider reports a link: place in numbers_ and count of uses.
  struct Number {
    Link *link = nullptr;
    uint32_t uses = 0;
  };
  std::vector<Number> numbers_;
  std::vector<uint32_t> free_numbers_;
  bool shuts_ = false;  // shut() is at work
  unsigned polls_ = 0;
  size_t ended_ = 0;       // links with `ended` != 0
  size_t connecting_ = 0;  // links that are being connected
};

}  // namespace weft::rxm

#endif
