// SPDX-License-Identifier: BSD-2-Clause
// Strangers: hostile peers on librdmacm alone, for the fuzz target of connections. They send any
// bytes as private data.
//
// Example:
//    // A request with 3 bytes to whoever listens at `target`.
//    inline void knock(Strangers &strangers, const sdk::Address &target) {
//      strangers.connect(target, std::string_view("\2hi"), /*queue_pair=*/7, /*lookup=*/false);
//      strangers.run();  // the library does the rest
//    }
//
// Not for peers that keep the rules: those are endpoints.
#ifndef WEFT_PLUGINS_VERBS_FUZZ_STRANGERS_H
#define WEFT_PLUGINS_VERBS_FUZZ_STRANGERS_H

#include <rdma/rdma_cma.h>
#include <weft/sdk/addresses/address.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <list>
#include <string>
#include <string_view>
#include <utility>

namespace weft::verbs::fuzz {

// A check that stays in every build.
inline void must(bool holds, const char *what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

class Strangers {
 public:
  // A listener of theirs at `local`; `lookups`: also for lookups (RDMA_PS_UDP) at the same port.
  Strangers(const sdk::Address &local, bool lookups);
  ~Strangers();

  const sdk::Address &name() const { return name_; }
  // Resolves, and then sends the request. `queue_pair` is the number that the request names. False:
  // it has too many, and does not.
  bool connect(const sdk::Address &target, std::string_view data, uint32_t queue_pair, bool lookup);
  // Answers the request that has waited longest. False: there is none, or the library refuses.
  bool accept(std::string_view data, uint32_t queue_pair);
  bool reject(std::string_view data);
  // One of their identifiers ends, with a message before or without.
  void leave(size_t which, bool says_so);
  // Handles what the library tells.
  void run();
  // Requests that came in: their private data, the oldest first.
  const std::deque<std::pair<rdma_cm_id *, std::string>> &requests() const { return requests_; }

 private:
  struct Call {
    rdma_cm_id *id;
    std::string data;
    uint32_t queue_pair;
  };
  rdma_cm_id *make_id(rdma_port_space space);
  void forget(rdma_cm_id *id);

  rdma_event_channel *channel_;
  rdma_cm_id *listener_ = nullptr, *lookups_ = nullptr;
  sdk::Address name_;
  std::list<Call> calls_;  // that go out, and connections
  std::deque<std::pair<rdma_cm_id *, std::string>> requests_;
};

}  // namespace weft::verbs::fuzz

#endif
