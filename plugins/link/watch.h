// SPDX-License-Identifier: BSD-2-Clause
// Watch, WatchedPeers: operations by the network toward peers whose addresses are this host's. Such
// a peer may not have been there when its way was decided. When an operation tells that nobody is
// there, and none is under way toward the peer any more, the next one decides anew.
//
// Example:
//    // What the endpoint beneath gets as the context of an operation; null: no memory.
//    inline void *watched_context(Watch &watch, Endpoint &endpoint, uint32_t peer, void *context) {
//      return watch.begin(endpoint, peer, context, /*reports=*/true);
//    }
//
// As a completion does not name the peer, the provider beneath gets an entry of this table in place
// of the application's context, and the queue puts it back (lent.h). An operation that the
// application wants no completion of gets one beneath, too, which goes no further. All calls but
// any() are with the engine's lock held. Not for peers that are elsewhere: they cost nothing here.
#ifndef WEFT_PLUGINS_LINK_WATCH_H
#define WEFT_PLUGINS_LINK_WATCH_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace weft::link {

class Endpoint;

class Watch {
 public:
  struct Entry {
    void *context = nullptr;       // the application's
    Endpoint *endpoint = nullptr;  // null: it is closed, or the entry is free
    uint32_t peer = 0;
    bool reports = false;
    bool is_used = false;
  };

  // Whether some operation is watched; by any thread.
  bool any() const { return used_.load(std::memory_order_relaxed) != 0; }
  Entry *begin(Endpoint &endpoint, uint32_t peer, void *context, bool reports);
  // It did not begin after all.
  void give(Entry &entry);
  // The operation with this context of the provider beneath has ended, with an FI_E... or 0.
  // `context` becomes the application's. False: nobody is to be told.
  bool end(void *&context, int error);
  // One that is under way; null: none is.
  Entry *find(const Endpoint &endpoint, const void *context);
  // The endpoint closes. `are_told`: no completion is left beneath.
  void forget(const Endpoint &endpoint, bool are_told);

  // Whether an operation that ended so tells that the peer was not there.
  static bool is_gone(int error);

 private:
  static constexpr size_t kChunk = 64;
  Entry *at(const void *context);
  template <class F>
  void visit(F each) {
    for (const std::unique_ptr<Entry[]> &chunk : chunks_)
      for (size_t i = 0; i < kChunk; ++i)
        if (chunk[i].is_used) each(chunk[i]);
  }

  std::atomic<size_t> used_{0};
  std::vector<std::unique_ptr<Entry[]>> chunks_;
  std::vector<Entry *> free_;
};

// Of an endpoint: how many watched operations are under way toward each peer. With the engine's
// lock held.
class WatchedPeers {
 public:
  void begin(uint32_t peer) { ++peers_[peer].count; }  // throws std::bad_alloc
  // One has ended. `is_gone`: because the peer was not there. True: the next one decides anew, as
  // it can overtake none.
  bool end(uint32_t peer, bool is_gone) {
    const auto at = peers_.find(peer);
    if (at == peers_.end()) return false;
    at->second.is_gone |= is_gone;
    if (--at->second.count != 0) return false;
    const bool decides_anew = at->second.is_gone;
    peers_.erase(at);
    return decides_anew;
  }
  void forget(uint32_t peer) { peers_.erase(peer); }

 private:
  struct Peer {
    size_t count = 0;
    bool is_gone = false;  // one has told so
  };
  std::map<uint32_t, Peer> peers_;
};

}  // namespace weft::link

#endif
