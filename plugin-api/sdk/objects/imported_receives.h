// SPDX-License-Identifier: BSD-2-Clause
// ImportedReceives: the receives of another provider (the owner, fi_peer.3, PEER SRX) in place of
// those of a shared receive context. The owner matches, the receivers of our endpoints bring the
// messages and the completions.
//
// Example:
//    void import(Engine &engine, fid_peer_srx *owner, Receiver &context) {
//      Guard guard(engine.lock());
//      auto receives = std::make_unique<ImportedReceives>(engine, owner, context);
//    }
//
// All calls are for Receiver and SharedReceiveContext, with the engine's lock held. The owner calls
// start and discard in any thread, with any lock of its own, even inside of a call that it gets
// from here. So these only note the entry, under a lock that is held for nothing else, and the next
// progress does the rest. That is why this is a Poller.
//
// An unexpected message is in the receiver's lists, and its entry is with the owner (`holder_`).
// An entry cannot be taken back from the owner: when a message is given up, its entry stays there
// without a message, and the receive that it gets later fails with FI_ECANCELED.
#ifndef WEFT_SDK_OBJECTS_IMPORTED_RECEIVES_H
#define WEFT_SDK_OBJECTS_IMPORTED_RECEIVES_H

#include <rdma/providers/fi_peer.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/transfers/receiver.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <vector>

namespace weft::sdk {

struct ImportedReceive : Receive {
  fi_peer_rx_entry *entry = nullptr;
};

class ImportedReceives final : private Poller {
 public:
  ImportedReceives(Engine &engine, fid_peer_srx *owner, Receiver &context);
  ~ImportedReceives();
  ImportedReceives(const ImportedReceives &) = delete;
  ImportedReceives &operator=(const ImportedReceives &) = delete;

  fid_peer_srx *owner() const { return owner_; }
  // A receive for the message, null: save() it, or ask again later.
  Receive *match(Receiver &receiver, const Message &message);
  void save(Receiver &receiver, Unexpected &message);
  void forget(Unexpected &message);
  // A sender without an address got one.
  void on_new_names();
  // Completed and reported to the queue, if there is one: its entry is the owner's again. But not
  // before the owner has taken the completion, since the entry may end a multi-receive buffer.
  void give_back(ImportedReceive &receive, const Cq *queue);
  // The queue is about to go.
  void leave(const Cq *queue);
  template <class F>
  void visit(F each) {
    receives_.visit(each);
  }

 private:
  struct Call {
    fi_peer_rx_entry *entry;
    bool starts;  // false: the message is discarded
  };
  struct Ops : fi_ops_srx_peer {
    ImportedReceives *self;
  };
  static ImportedReceives &of(const fi_peer_rx_entry &entry);
  static int start(fi_peer_rx_entry *entry);
  static int discard(fi_peer_rx_entry *entry);
  static fi_addr_t address_of(fi_peer_rx_entry *entry);
  int note(Call call);

  // ---- Poller ----
  void on_poll() override;
  int wait_fds(std::vector<int> &fds) override;
  bool may_wait() override;

  int ask(const Receiver &receiver, const Message &message, fi_peer_rx_entry *&entry);
  bool queue(Receiver &receiver, Unexpected &message);
  void drop_fresh();
  void serve(const Call &call, ImportedReceive *receive);
  void fill(ImportedReceive &receive, fi_peer_rx_entry &entry, Receiver &receiver);
  void fail(fi_peer_rx_entry &entry);
  template <class May>
  void give_back_late(May may);

  Engine &engine_;
  fid_peer_srx *const owner_;
  Receiver &context_;
  Ops ops_{};
  Pool<ImportedReceive> receives_{SIZE_MAX};
  // The entry of the last match(), which found no receive; save() of the same message queues it.
  struct {
    fi_peer_rx_entry *entry = nullptr;
    const Receiver *receiver = nullptr;
    Message message;
  } fresh_;
  struct Late {
    fi_peer_rx_entry *entry;
    const Cq *queue;
  };
  std::vector<Late> late_;                     // whose completions the owner has not taken
  std::deque<Unexpected *> waiting_;           // that the owner has not taken yet
  std::vector<fi_peer_rx_entry *> abandoned_;  // with the owner, without a message

  std::mutex mutex_;          // of calls_; innermost
  std::vector<Call> calls_;   // of the owner
  std::deque<Call> serving_;  // the same, taken over
  std::atomic<bool> called_{false};
  std::atomic<int> event_{-1};
};

}  // namespace weft::sdk

#endif
