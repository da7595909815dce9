// SPDX-License-Identifier: BSD-2-Clause
// CompletionQueue: a completion queue of the device, as the source of an sdk::Cq.
//
// Example:
//    // Room for the operations of an endpoint, so that its completions cannot overrun the queue.
//    inline bool make_room(CompletionQueue &queue, size_t tx_size, size_t rx_size) {
//      return queue.reserve(tx_size + rx_size);  // grows the queue; give_back() in the end
//    }
//
// Each operation that the device was given holds one place of the queue until its completion was
// taken, so the queue cannot overrun. It grows up to the limit of the device; beyond that endpoints
// take places one by one, and get -FI_EAGAIN when there is none.
//
// reserve() and give_back() are thread-safe. All else needs the lock of the Cq. Not for entries
// that software makes: those are pushed to the Cq.
#ifndef WEFT_PLUGINS_VERBS_CQ_H
#define WEFT_PLUGINS_VERBS_CQ_H

#include <infiniband/verbs.h>
#include <weft/result.h>
#include <weft/sdk/devices/cq_source.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "plugins/verbs/counters.h"
#include "plugins/verbs/device.h"
#include "plugins/verbs/device_events.h"
#include "plugins/verbs/operation.h"

namespace weft::verbs {

class CompletionQueue final : public sdk::CqSource, private DeviceUser {
 public:
  // `entries` is cut to what the device has. `waits`: with a completion channel.
  static Result<std::unique_ptr<CompletionQueue>> open(const Device &device,
                                                       sdk::Stats<Counters> &stats, size_t entries,
                                                       bool waits);
  ~CompletionQueue() override;
  static CompletionQueue &of(const sdk::Cq &cq) {
    return static_cast<CompletionQueue &>(*cq.source());
  }

  ibv_cq *c() { return cq_; }
  size_t capacity();
  sdk::Stats<Counters> &stats() { return stats_; }

  bool reserve(size_t places);
  bool take_place();  // for one operation
  void give_back(size_t places);
  // The receives of a shared context, once for all endpoints that report here.
  bool reserve_shared(const SharedReceive &shared);
  void give_back_shared(const SharedReceive &shared);

  // An endpoint with a queue pair reports here.
  void join(WorkQueues &queues);
  // Takes what the device has: before a queue pair goes away, which may take its completions along.
  void collect();
  // Of completions that were collected: the receives.
  std::set<const RecvOp *> receives_of(const WorkQueues &queues) const;
  // What the device cannot tell any more: the operation was flushed.
  void add_flushed(uint64_t work_id, uint32_t qp_num);
  // The queue pair is gone, and the device may give its number to another one. What it has received
  // stays that of its endpoint. Returns the endpoint's number from now on, which no device gives.
  uint32_t rename(const WorkQueues &queues);
  // The queue pair is gone: drops what it left, but for receives of shared contexts.
  void leave(const WorkQueues &queues);
  // An endpoint keeps operations back (FI_MORE): the next read() makes it post them. Thread-safe.
  void expect_flush() {
    flush_wanted_.store(true, std::memory_order_release);
    has_more_.store(true, std::memory_order_release);
  }

  // sdk::CqSource
  void read(sdk::CqWriter &out) override;
  int wait_fd() override;
  bool arm() override;
  const char *text_of(int prov_errno) const override;

 private:
  CompletionQueue(const Device &device, sdk::Stats<Counters> &stats, ibv_comp_channel *channel,
                  ibv_cq *cq);
  WorkQueues *queues_of(const RecvOp &op, uint32_t qp_num);
  WorkQueues *member_of(uint32_t qp_num);
  int on_failure(ibv_wc_status status, WorkQueues *queues);
  bool reserve_locked(size_t places);
  void deliver(const ibv_wc &wc, sdk::CqWriter &out);
  void deliver_send(const ibv_wc &wc, sdk::CqWriter &out);
  void deliver_receive(const ibv_wc &wc, sdk::CqWriter &out);
  void deliver_failed_send(const ibv_wc &wc, sdk::CqWriter &out);
  void deliver_failed_receive(const ibv_wc &wc, sdk::CqWriter &out);
  void read_more(sdk::CqWriter &out);
  void take(const ibv_wc &wc);
  void flush_members(sdk::CqWriter &out);
  // DeviceUser
  void on_device_event(ibv_event_type type) override;
  void on_notice() override {}
  void on_device_gone(const ibv_context &) override {}

  sdk::Stats<Counters> &stats_;
  const size_t max_entries_;
  ibv_comp_channel *const channel_;
  ibv_cq *const cq_;
  std::mutex room_mutex_;
  size_t capacity_, reserved_ = 0;
  std::map<const SharedReceive *, size_t> shared_;  // endpoints of each
  bool can_grow_ = true;
  // There may be something to read before what the device has: a flush is wanted, or taken_.
  std::atomic<bool> has_more_{false};
  std::atomic<bool> flush_wanted_{false};
  std::atomic<bool> failed_{false};  // the device says so
  std::vector<WorkQueues *> members_;
  std::unordered_map<uint32_t, WorkQueues *> numbers_;  // some of the members, by queue pair
  uint32_t renamed_ = 1u << 24;   // the last number by rename(): those of devices have 24 bits
  WorkQueues *recent_ = nullptr;  // the last that was looked up there
  // A member reports only the receives that ask for it, or says who sent what it receives.
  bool asks_members_ = false;
  std::deque<ibv_wc> taken_;  // off the device, not delivered yet
};

}  // namespace weft::verbs

#endif
