// SPDX-License-Identifier: BSD-2-Clause
// The peer of a random program (random_calls.h): sends each message back, exposes memory, and may
// be killed at any time. It is a process of its own; where devices are inside of the test process
// it lives there, too, and is closed instead of killed.
//
// Example:
//     void use(const Options &options) {
//       PeerProcess peer(options);  // before the library is used
//       peer.start();
//       Introduction where = peer.meet();
//       peer.kill();
//     }
//
// It is not for messages whose peer is the test itself: those have unconnected.h and harness.h.
#ifndef WEFT_TESTS_CONFORMANCE_RANDOM_PEER_H
#define WEFT_TESTS_CONFORMANCE_RANDOM_PEER_H

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/conformance/common.h"
#include "tests/conformance/process.h"

namespace weft::conformance {

// Who sent a message by which endpoint to which peer: its tag, or its first bytes.
struct Stamp {
  unsigned peer = 0, life = 0;  // a peer's n-th process
  unsigned slot = 0;            // the sender's endpoint
  unsigned number = 0;
  static constexpr unsigned kBits = 38;
  uint64_t word() const {
    return number | uint64_t(slot) << 20 | uint64_t(life) << 32 | uint64_t(peer) << 36;
  }
  static Stamp of(uint64_t word) {
    return {.peer = unsigned(word >> 36 & 3),
            .life = unsigned(word >> 32 & 15),
            .slot = unsigned(word >> 20 & 0xfff),
            .number = unsigned(word & 0xfffff)};
  }
};
inline constexpr size_t kStampBytes = 8;
// The message of this stamp, which stands in front if there is no tag.
std::vector<uint8_t> message_of(const Stamp &stamp, size_t size, bool is_tagged);

// What a peer offers.
inline constexpr size_t kPeerReceives = 16;  // of each kind, and for each connection
inline constexpr size_t kCellBytes = 20'000, kCells = 32;
inline constexpr size_t kPeerMemory = kCells * kCellBytes;
inline size_t room_for_messages(const fi_info &info) {
  return std::min<size_t>(info.ep_attr->max_msg_size, 70'000);
}

// With remote memory access and atomics where they are offered to these options.
Options all_that_is_offered(const Options &options);

struct Introduction {
  std::string address;
  uint64_t base = 0, key = 0;
};

class RandomPeer {
 public:
  RandomPeer(const Options &options, int socket);
  ~RandomPeer();
  // One round of what it does. False: it was told to leave, and has nothing more under way.
  bool step();
  bool is_idle() const { return rounds_in_vain_ > 64; }

  enum Command : uint64_t { kMeet = 1, kInsert, kRemove, kLeave };

 private:
  struct Receive;
  struct Echo;
  struct Partner;

  void obey();
  void read_events();
  void read_completions(fid_cq *cq);
  void post(Partner *partner, bool is_tagged);
  void answer(Receive &receive, size_t size, uint64_t tag);
  void send_answers(Partner &partner);

  const Options options_;
  const int socket_;
  std::vector<uint8_t> memory_;
  std::unordered_map<void *, std::unique_ptr<Receive>> receives_;
  std::unordered_map<void *, std::unique_ptr<Echo>> sent_;
  std::unique_ptr<struct PeerSide> side_;
  std::map<unsigned, Partner> partners_;
  bool is_leaving_ = false;
  size_t rounds_in_vain_ = 0;
};

class PeerProcess {
 public:
  explicit PeerProcess(const Options &options);
  ~PeerProcess();
  void start() { tell(socket(), 1); }
  int socket() const { return child_ ? child_->socket() : sockets_[0]; }
  void advance();  // if it lives in this process
  uint64_t hear_number();
  std::string hear_text();
  Introduction meet();  // without an address: its NIC had no room for it, and it is gone
  // Of an endpoint without a connection: from now on the peer knows its address, or forgets it.
  void insert(unsigned slot, const std::string &address);
  void remove(unsigned slot);
  void kill();
  void leave();  // it ends what it does, closes all, and tells so

 private:
  const Options options_;
  std::unique_ptr<Child> child_;
  int sockets_[2] = {-1, -1};
  std::unique_ptr<RandomPeer> inside_;
  bool is_over_ = false;  // of the one inside
};

}  // namespace weft::conformance

#endif
