// SPDX-License-Identifier: BSD-2-Clause
// A datagram endpoint (FI_EP_DGRAM) on an unreliable datagram queue pair.
//
// Example:
//    inline Result<fid_ep *> open(Domain &domain, const fi_info &info) {
//      WEFT_TRY(DatagramEndpoint *const endpoint, DatagramEndpoint::open(domain, info, nullptr));
//      return endpoint->c();  // the application binds, enables and closes it
//    }
//
// Its name is an FI_ADDR_IB_UD; it has one from fi_enable on. Every message of an application
// begins with 40 bytes for the device (FI_MSG_PREFIX): they are not sent, and a receive finds a
// header there. A datagram that no receive waits for is lost.
//
// An error of the device (a datagram that is longer than its receive) breaks the queue pair. The
// next call that posts something makes it ready again; what was in flight has failed.
//
// The first message to a peer makes an address handle, which stays until the peer is removed from
// the address vector or the endpoint closes. Locks: a completion queue, then the domain's engine
// (it is the address vector's), then the endpoint's own. The data path takes the last one alone,
// but for the first message to a peer, and for the source of a datagram that is another than that
// of the one before.
#ifndef WEFT_PLUGINS_VERBS_DATAGRAM_ENDPOINT_H
#define WEFT_PLUGINS_VERBS_DATAGRAM_ENDPOINT_H

#include <infiniband/verbs.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/memory/index_table.h>
#include <weft/sdk/objects/endpoint.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/transfers/transfer.h>

#include <atomic>
#include <vector>

#include "plugins/verbs/datagram_name.h"
#include "plugins/verbs/domain.h"
#include "plugins/verbs/group.h"
#include "plugins/verbs/work_queues.h"

namespace weft::verbs {

// What stock uses, so that its endpoints and ours hear each other.
inline constexpr uint32_t kQueueKey = 0x11111111;
inline constexpr uint8_t kHopLimit = 64;

class DatagramEndpoint final : public sdk::Object<DatagramEndpoint, fid_ep>,
                               private OwnLock,
                               public sdk::EndpointCore,
                               private WorkQueues,
                               public sdk::TransferOps<DatagramEndpoint>,
                               private sdk::AvUser {
 public:
  static Result<DatagramEndpoint *> open(Domain &domain, const fi_info &info, void *context);
  // The op tables of this endpoint and its aliases.
  template <class Ep>
  void set_tables(Ep &object) const {
    sdk::fill_tables(object);
    take_away(*object.c());
  }
  Domain &domain() { return domain_; }

  // ---- for groups; the lock of connections is held ----
  ibv_qp *queue_pair() { return qp_; }
  // Sends to the group go by `wire`, but for the source, or fail from now on.
  Result<void> reach(const Group &group, const ibv_ah_attr &wire);
  void unreach(const Group &group);
  void forget(Group &group);

  // ---- for TransferOps ----
  static constexpr uint64_t kSendFlags = FI_COMPLETION | FI_INJECT | FI_MORE | FI_REMOTE_CQ_DATA |
                                         FI_MULTICAST | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE;
  ssize_t check_length(uint64_t length, uint64_t flags) const;
  ssize_t start(const sdk::RecvRequest &request);
  ssize_t start(const sdk::SendRequest &request);
  ssize_t start(const sdk::RmaRequest &) { return -FI_EOPNOTSUPP; }
  ssize_t start(const sdk::AtomicRequest &) { return -FI_EOPNOTSUPP; }

  // fi_ops_cm
  int getname(void *addr, size_t *len);
  int setname(void *addr, size_t len);
  int join(const void *addr, uint64_t flags, struct fid_mc **mc, void *context);
  int shutdown(uint64_t) { return -FI_ENOSYS; }

  // fi_ops_ep
  int getopt(int level, int name, void *value, size_t *length);
  int setopt(int, int, const void *, size_t) { return -FI_ENOPROTOOPT; }
  ssize_t cancel(void *context);
  ssize_t rx_size_left();
  ssize_t tx_size_left();

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);

 private:
  // A peer that was sent to.
  struct Remote {
    ibv_ah *handle;
    uint32_t queue_pair;
  };
  // A group that was joined. No handle: it is not joined yet, or cannot be sent to.
  struct Joined {
    Group *group = nullptr;  // null: the number is free
    Remote remote{};
    bool joins = false;
  };
  // A handle that operations in flight may still use: `last` is the newest of them.
  struct Retired {
    ibv_ah *handle;
    uint64_t last;
  };

  DatagramEndpoint(Domain &domain, const fi_info &info, void *context);
  ~DatagramEndpoint() = default;
  static void take_away(fid_ep &fid);  // the tables that datagrams do not have

  Result<void> enable();
  Result<void> make_queue_pair();
  Result<void> read_port();
  int make_ready(ibv_qp &qp);
  void drop_queue_pair();
  // The own lock is held, and let go of meanwhile.
  bool is_broken() const { return broken_.load(std::memory_order_acquire) || recovers_; }
  ssize_t recover();
  int reset_queue_pair();

  // Peers; the own lock is held, and meet() lets go of it meanwhile.
  const Remote *remote(const sdk::SendRequest &request, ssize_t &rc);
  const Remote *group_remote(fi_addr_t dest, ssize_t &rc) const;
  ssize_t meet(fi_addr_t dest);
  ibv_ah *make_handle(const DatagramName &name);
  void forget(uint32_t index);
  Result<GroupMembership> check_join(const void *addr, uint64_t flags);
  void destroy_retired(bool all);

  // sdk::AvUser; the domain's engine is locked
  void on_av_removed(uint32_t index) override;
  void on_av_inserted(uint32_t index, const sdk::Address &address) override;

  // WorkQueues: the completion queue is locked
  fi_addr_t source_of(const ibv_wc &wc, const RecvOp &op) override;

  Domain &domain_;
  const uint32_t addr_format_;
  sdk::TxContext tx_;
  sdk::RxContext rx_;
  DatagramName name_{};
  std::vector<ibv_gid_entry> gids_;
  uint8_t gid_index_ = 0;
  sdk::IndexTable<Remote> remotes_;
  uint32_t remotes_end_ = 0;    // all indices are below
  std::vector<Joined> groups_;  // by the number in their fi_addr_t
  std::vector<Retired> retired_;
  bool explained_ = false;  // why there is no handle
  bool recovers_ = false;

  // The sender of the last datagram, which often sends the next one too.
  std::atomic<uint32_t> av_changes_{0};
  uint32_t last_change_ = 0;
  ibv_gid last_gid_{};
  uint32_t last_queue_pair_ = 0;
  fi_addr_t last_source_ = FI_ADDR_NOTAVAIL;
};

}  // namespace weft::verbs

#endif
