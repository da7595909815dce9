// SPDX-License-Identifier: BSD-2-Clause
// LentReceives: what a shared receive context lends to another provider (fi_export_fid; fi_peer.3,
// PEER SRX): the owner's side. The peer's messages are matched with the receives posted here, and
// the peer moves their bytes and reports them.
//
// Example:
//    int control(SharedReceiveContext &context, int command, void *arg) {
//      return command == FI_EXPORT_FID ? export_fid(context, arg) : -FI_ENOSYS;
//    }
//
// To the receivers of the context it is one more endpoint, without a queue of its own: an entry of
// the peer is an unexpected message, until a receive is for it. An FI_PEEK that finds one, and the
// end of a multi-receive buffer that the peer did not report, are told by an endpoint of the owner.
//
// A peer holds locks of its own when it asks for a receive, so it is never called with the engine's
// lock held: what it is to start or to discard is noted (PeerCalls), and called when the call that
// found it lets go of the lock.
//
// Not for imported contexts: imported_receives.h.
#ifndef WEFT_SDK_OBJECTS_LENT_RECEIVES_H
#define WEFT_SDK_OBJECTS_LENT_RECEIVES_H

#include <rdma/providers/fi_peer.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/progress/lock.h>
#include <weft/sdk/transfers/receiver.h>

#include <vector>

namespace weft::sdk {

class LentReceives;
class SharedReceiveContext;

// Of a context: which calls its peers are owed.
class PeerCalls {
 public:
  // A message of a peer.
  struct Entry final : fi_peer_rx_entry, Unexpected {
    Receive *receive = nullptr;  // that it is matched with
    bool says_end = false;       // its completion also ends a multi-receive buffer
  };
  struct Call {
    Entry *entry;
    bool starts;  // false: the message is discarded
  };

  explicit PeerCalls(Lock &lock) : lock_(lock) {}
  // With the lock.
  bool add_entry();  // so that add() needs no memory; false: there is none
  void remove_entry(const Entry *entry);
  void add(Call call) { calls_.push_back(call); }
  bool has_calls() const { return !calls_.empty(); }
  // Without it.
  void make();

 private:
  static void call(const Call &call);

  Lock &lock_;
  size_t entries_ = 0;
  std::vector<Call> calls_;
};

class LentReceives final : public fid_peer_srx, private ReceiverSink {
 public:
  using FidType = fid_peer_srx;
  using Entry = PeerCalls::Entry;

  LentReceives(SharedReceiveContext &context, void *app_context);
  static LentReceives *from(struct fid *fid);
  struct fid *base() {
    return &ep_fid.fid;
  }
  int close();  // -FI_EBUSY while the peer has entries

 private:
  ~LentReceives() = default;
  static LentReceives &of(fid_peer_srx *srx) { return *static_cast<LentReceives *>(srx); }
  static LentReceives &of(const fi_peer_rx_entry *entry) { return of(entry->srx); }

  // ---- fi_ops_srx_owner ----
  int get(bool tagged, const fi_peer_match_attr *attr, fi_peer_rx_entry **out);
  int queue(bool tagged, Entry &entry);
  void free(Entry &entry);
  void name_sources(fi_addr_t (*address)(fi_peer_rx_entry *));

  // ---- ReceiverSink ----
  void deliver(Unexpected &message, Receive &receive) override;
  void discard(Unexpected &message) override;
  bool waits_for_receives(bool) const override { return false; }

  uint32_t source_of(fi_addr_t address);
  void take(Entry &entry, Receive &receive);
  void give_back(Entry &entry);

  SharedReceiveContext &context_;
  PeerCalls &calls_;
  fi_ops_srx_peer peer_ops_{.size = sizeof peer_ops_};  // for the peer to fill in
  Receiver receiver_;
  size_t entries_ = 0;  // that the peer has
  Pool<Entry> pool_{SIZE_MAX};
};

}  // namespace weft::sdk

#endif
