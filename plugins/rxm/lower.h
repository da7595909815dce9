// SPDX-License-Identifier: BSD-2-Clause
// Lower: the carrier of one rxm endpoint, made of objects of the inner provider: a passive endpoint
// that listens, an endpoint per connection, one completion queue and one event queue for all of
// them, and a pool of receive buffers that they share where the provider can.
//
//   Lower lower(domain, upper);
//   WEFT_CHECK(lower.open(info));                  // listens from here on
//   engine.add_poller(lower); engine.add(...)      // moves on by itself then
//
// It is driven by the engine and tells the core what happened. All with the engine's lock held.
#ifndef WEFT_PLUGINS_RXM_LOWER_H
#define WEFT_PLUGINS_RXM_LOWER_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/carrier.h>
#include <weft/sdk/engine.h>
#include <weft/sdk/inner_wait.h>

#include <memory>
#include <vector>

#include "plugins/rxm/domain.h"
#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

struct Link {
  fid_ep *ep = nullptr;
  const weft_carrier_ops *ops = nullptr;  // of the inner provider, where it has them
  Connection *owner = nullptr;            // null: closed, and told of nothing any more
  uint32_t place = 0;                     // in Lower::numbers_
  unsigned ended = 0;                     // polls since the peer hung up; 0: it has not
  bool held = false;                      // takes no packets
  std::unique_ptr<uint8_t[]> memory;      // its own receive buffers, where none are shared
  std::vector<Buffer> buffers;
};

// Memory of one packet, posted or with a packet in it.
struct Buffer {
  Link *link = nullptr;  // null: of the shared pool
  uint8_t *bytes = nullptr;
};

class Lower final : public Carrier, public sdk::Poller, public sdk::Handler {
 public:
  // What a carrier cannot know.
  class Upper {
   public:
    virtual Core &core() = 0;
    // Received remote data must wait: nobody reads what is reported already.
    virtual bool is_full() = 0;
    // `from` may be unknown (null).
    virtual void on_remote_write(Connection *from, uint64_t length, uint64_t data) = 0;

   protected:
    ~Upper() = default;
  };

  Lower(Domain &domain, Upper &upper);
  ~Lower();  // closes what is open

  // Opens everything and listens at `local` (port 0: any). With counters where the application
  // wants remote accesses of this endpoint counted.
  Result<void> open(const sdk::SockAddr &local, sdk::Cntr *remote_write, sdk::Cntr *remote_read);
  // The same later on.
  Result<void> count_remote(sdk::Cntr *remote_write, sdk::Cntr *remote_read);
  void shut();
  const sdk::SockAddr &address() const { return local_; }
  // What the inner provider can do.
  size_t inject_limit() const { return inject_limit_; }
  size_t iov_limit() const { return iov_limit_; }
  bool shares_receives() const { return shares_; }
  uint32_t receive_count() const { return receive_count_; }
  // Sleeps until there may be something to do, at most until `end_ns`. The lock is let go
  // meanwhile.
  void wait(uint64_t end_ns);

  // Carrier
  Link *connect(Connection &owner, const sdk::SockAddr &peer, std::span<const uint8_t> data,
                int &err) override;
  Link *accept(Connection &owner, Request &request, std::span<const uint8_t> data,
               int &err) override;
  void reject(Request &request, std::span<const uint8_t> data) override;
  void close(Link &link, bool idle) override;
  ssize_t send(Link &link, const iovec *iov, size_t count, uint64_t flags, Token *token) override;
  ssize_t read(Link &link, const iovec *iov, size_t count, const RmaVector *from, size_t from_count,
               uint64_t flags, Token *token) override;
  ssize_t write(Link &link, const iovec *iov, size_t count, const RmaVector *to, size_t to_count,
                uint64_t data, uint64_t flags, Token *token) override;
  void release(Buffer &buffer) override;
  bool buffers_low() const override { return !shares_ || free_.size() < pool_.size() / 4; }
  size_t buffers_left() const override { return shares_ ? free_.size() + posted_ : kOwn; }
  bool hold(Link &link, bool held) override;
  Registration *expose(Link &link, const iovec &iov, uint64_t access, RmaVector &vector,
                       int &err) override;
  void conceal(Registration &registration) override;
  ssize_t resolve(const RmaVector &vector, uint64_t access, iovec *iov, size_t room) override;
  uint64_t now_ns() override;
  void set_deadline(uint64_t at_ns) override;

  // Poller
  void on_poll() override;
  int wait_fds(std::vector<int> &fds) override;
  bool may_wait() override;

  // Handler: of the deadline alone
  void on_event(uint32_t) override {}
  void on_deadline() override;

 private:
  static constexpr uint32_t kOwnReceives = 32;  // posted per connection where none are shared

  Result<void> open_objects();
  Result<void> listen(const sdk::SockAddr &local);
  Link *make_link(Connection &owner, fi_info *info, int &err);
  void destroy(Link &link);
  void bury();
  int post(Buffer &buffer);
  void fill();
  bool read_completions();  // true: there are no more
  void end_links();
  void read_failure();
  Link *link_at(fi_addr_t source) const;
  void received(Buffer &buffer, const fi_cq_tagged_entry &entry, fi_addr_t source);
  void read_events();
  void read_event_failure();
  void on_connreq(const fi_eq_cm_entry &entry, size_t size);
  size_t packet_size() const { return kHeaderSize + options_.buffer_size; }

  Domain &domain_;
  Upper &upper_;
  const Options &options_;
  sdk::SockAddr local_;
  uint32_t addr_format_ = FI_SOCKADDR;
  size_t inject_limit_ = 0, iov_limit_ = 4;
  bool shares_ = false;
  uint32_t receive_count_ = 0;
  fid_eq *eq_ = nullptr;
  fid_cq *cq_ = nullptr;
  sdk::InnerWait eq_wait_, cq_wait_;
  fid_pep *pep_ = nullptr;
  fid_ep *srx_ = nullptr;
  fid_cntr *remote_write_ = nullptr, *remote_read_ = nullptr;
  sdk::InfoList active_;  // what connections are opened with
  std::unique_ptr<uint8_t[]> memory_;
  std::vector<Buffer> pool_;
  std::vector<Buffer *> free_;  // the last one first: its memory is in the cache
  size_t posted_ = 0;
  std::vector<Link *> links_, closing_;
  // What the carrier calls a link: its place here, and how often the place was used.
  struct Number {
    Link *link = nullptr;
    uint32_t uses = 0;
  };
  std::vector<Number> numbers_;
  std::vector<uint32_t> free_numbers_;
  unsigned polls_ = 0;
  size_t ended_ = 0;       // links whose peer hung up
  size_t connecting_ = 0;  // links that wait for an event
};

}  // namespace weft::rxm

#endif
