// SPDX-License-Identifier: BSD-2-Clause
// What a random program (random_calls.h) has under way, and what may become of it.
//
// Example:
//     bool is_expected(const RandomModel &model, const Stamp &stamp) {
//       return model.find_message(stamp.word()) != nullptr;
//     }
//
// It makes no call of the library.
#ifndef WEFT_TESTS_CONFORMANCE_RANDOM_MODEL_H
#define WEFT_TESTS_CONFORMANCE_RANDOM_MODEL_H

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tests/conformance/random_peer.h"

namespace weft::conformance {

// A peer, in its present life.
struct RandomHost {
  unsigned index = 0, life = 0;
  PeerProcess *process = nullptr;
  bool is_alive = false;
  Introduction where;
  fi_addr_t at = FI_ADDR_UNSPEC;
  struct Cell {  // of the peer's memory
    bool is_busy = false, is_unknown = false;
    std::vector<uint8_t> bytes = std::vector<uint8_t>(kCellBytes);
  };
  std::vector<Cell> cells;
};

// An endpoint of the program.
struct RandomSlot {
  enum class State : uint8_t { kConnecting, kOpen, kEnded, kClosed };
  unsigned number = 0;
  State state = State::kOpen;
  Handle<fid_ep> ep;
  Handle<fid_cntr> counter;  // of transmits
  Handle<fid_mr> region;
  RandomHost *to = nullptr;    // of a connection
  unsigned life = 0;           // of that peer
  std::deque<uint64_t> order;  // of messages that come back through a connection
  size_t receives[2] = {};     // posted: untagged, tagged
  size_t echoes[2][2] = {};    // to come: by peer, untagged and tagged
  uint64_t transmits = 0;      // accepted
  bool has_last = false;       // its last message was sent
  size_t injected = 0;         // toward the peer that may be killed, and not told lost
  size_t lost = 0;             // injected messages that were told lost
  bool is_at(const RandomHost &host) const { return to == nullptr || to == &host; }
};

struct RandomOperation {
  enum class Kind : uint8_t { kSend, kReceive, kWrite, kRead, kAdd, kFetchAdd };
  Kind kind = Kind::kSend;
  RandomSlot *slot = nullptr;
  unsigned peer = 0, life = 0;
  bool is_tagged = false, is_canceled = false, is_over = false, is_abandoned = false;
  size_t cell = 0, at = 0;  // in the peer's memory
  uint64_t operand = 0;
  uint64_t number = 0;  // in their order
  std::vector<uint8_t> bytes;
  const char *name() const;
};

class RandomModel {
 public:
  struct Message {
    Stamp stamp;
    size_t size = 0;
    bool is_tagged = false;
    bool is_orphaned = false;  // its peer was killed: it may come
    bool is_stray = false;     // it was killed before: who has its address now may get it
  };

  // `may_lose`: a message that finds no receive is lost.
  RandomModel(bool is_connected, bool may_lose) : is_connected_(is_connected), may_lose_(may_lose) {
    for (unsigned i = 0; i < 2; ++i) hosts[i].index = i;
  }

  bool is_dead(unsigned peer, unsigned life) const {
    return !hosts[peer].is_alive || hosts[peer].life != life;
  }
  void born(RandomHost &host, PeerProcess *process, const Introduction &where);
  void killed(RandomHost &host);

  void started(std::unique_ptr<RandomOperation> operation);
  void sent(RandomSlot &slot, const Message &message);
  const Message *find_message(uint64_t stamp) const;
  // What the endpoint has under way has no completion any more; or has had one.
  void abandon(RandomSlot &slot);
  // Fails the test where the completion is none that may come.
  void completed(const Done &done);
  size_t under_way() const;        // transmits
  size_t toward_the_dead() const;  // those toward dead peers, and receives from them alone
  size_t messages_to_come() const;
  size_t connections_to_end() const;  // of peers that are dead
  std::string describe() const;       // of all of these
  RandomOperation *some_receive(size_t choice) const;

  RandomHost hosts[2];  // the first one lives on, the other one is killed
  std::vector<std::unique_ptr<RandomSlot>> slots;  // closed ones, too: operations know them

 private:
  void failed(RandomOperation &operation, const Done &done);
  void arrived(RandomOperation &operation, const Done &done);
  void moved(RandomOperation &operation);
  bool is_closed(unsigned slot) const;

  const bool is_connected_, may_lose_;
  bool has_killed_ = false;
  uint64_t started_ = 0;
  size_t broken_messages_ = 0;  // that their killed sender may have left half done
  std::unordered_map<void *, std::unique_ptr<RandomOperation>> operations_;
  std::map<uint64_t, Message> messages_;
};

}  // namespace weft::conformance

#endif
