// SPDX-License-Identifier: BSD-2-Clause
// The application of the stateful fuzz target: its outstanding operations, in memory with red
// zones, and the checks of every completion.
//
// Example:
//    inline void run(Endpoint &endpoint, Input &input) {
//      while (!input.over()) {
//        endpoint.post_recv(input);  // the input chooses the arguments
//        endpoint.send(input, /*to_friend=*/true, endpoint.other_addr);
//        endpoint.drain(16);  // reads completions, and checks each
//      }
//      endpoint.close();
//    }
//
// Each operation ends once, and no unknown operation ends. Its memory has exactly the given size
// and is freed when it has ended, so that the address sanitizer finds every later access. The
// friend is an endpoint that runs the same code. Its messages arrive whole, once, and in the right
// receive, whatever strangers do, unless the application itself closed one of the two endpoints.
// Then that begins again with the first message between the present two.
#ifndef WEFT_PLUGINS_TCP_FUZZ_APPLICATION_H
#define WEFT_PLUGINS_TCP_FUZZ_APPLICATION_H

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/fuzz/check.h"
#include "tests/fuzz/notices.h"

namespace weft::tcp::fuzz {

// The input of the fuzz target; zeros behind its end.
class Input {
 public:
  Input(const uint8_t *data, size_t size) : at_(data), left_(size) {}
  bool over() const { return left_ == 0; }
  uint8_t u8() { return left_ != 0 ? (--left_, *at_++) : 0; }
  uint16_t u16() { return uint16_t(u8() | u8() << 8); }
  uint64_t u64() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value |= uint64_t(u8()) << 8 * i;
    return value;
  }
  // Mostly small, sometimes at a limit, sometimes large.
  size_t length() {
    static constexpr uint16_t kEdges[] = {0, 1, 64, 127, 128, 129, 255, 256, 257, 4095, 4096, 4097};
    const uint8_t b = u8();
    if (b < 128) return b;
    if (b < 128 + 64) return kEdges[b % std::size(kEdges)];
    if (b < 255) return size_t(b) * 40;
    return 20000 + u16();
  }

 private:
  const uint8_t *at_;
  size_t left_;
};

// Exactly `n` bytes, with the value `fill` at first.
struct Memory {
  explicit Memory(size_t n, uint8_t fill = kCanary) : bytes(new uint8_t[n]), size(n) {
    std::fill_n(bytes.get(), n, fill);
  }
  static constexpr uint8_t kCanary = 0xca;
  std::unique_ptr<uint8_t[]> bytes;
  size_t size;
};

// Marks the remote CQ data of messages between friends.
inline constexpr uint64_t kFriendly = UINT64_C(0xf71e4d1e) << 32;
// The same of messages of a thief, and of those to a relay; its lowest bit says who of the friends
// sent one (Endpoint::number).
inline constexpr uint64_t kStolen = UINT64_C(0x57017e4d) << 32;
inline constexpr uint64_t kRelayed = UINT64_C(0x4e1a7ed1) << 32;

class Endpoint;

// A message between friends.
struct Message {
  Endpoint *from, *to;
  size_t length;
  bool tagged;
  uint64_t tag;
  unsigned life = 0;     // Friendship::life when it was sent
  bool promised = true;  // it must arrive, if both friends live on
  bool ended = false;    // for its sender
  bool arrived = false;  // or was discarded
  bool told = false;     // under FI_BUFFERED_RECV, before it arrives
};

// The state that two friends share.
struct Friendship {
  bool excused = false;  // their operations may fail from now on
  bool apart = false;    // one of them was closed: so they may until the present two have met
  bool may_meet = false;
  bool keyed = false;  // both have an auth_key, and nobody else
  unsigned life = 0;   // counts how often messages under way were excused
  // Messages of the thief: all, and those that are older than the present connection.
  uint32_t stolen = 0, old_stolen = 0;
  std::vector<Message> messages;

  bool loose() const { return excused || apart; }
  bool promises(unsigned made_in, bool promised) const {
    return promised && made_in == life && !excused;
  }
  bool promises(const Message &m) const { return promises(m.life, m.promised); }
  void part() {
    apart = true;
    excused |= !may_meet;
    ++life;
  }
  // A message of the one has reached the other: they are connected. What the thief sends from now
  // on must not be reported under the name of either.
  void meet() {
    if (!std::exchange(apart, false)) return;
    old_stolen = stolen;
  }
};

struct Region {
  explicit Region(size_t n) : memory(n) {}
  ~Region() {
    if (mr != nullptr) FUZZ_CHECK(fi_close(&mr->fid) == 0);
  }
  Memory memory;
  fid_mr *mr = nullptr;
  std::map<size_t, uint32_t> writers;  // the last of each slot
};

class Endpoint;

struct Posted {
  enum Kind : uint8_t { kRecv, kSend, kWrite, kRead, kLook };
  Kind kind = kRecv;
  bool multi = false, tagged = false, to_friend = false, owned_by_context = false;
  unsigned life = 0;  // as of a Message
  bool promised = true;
  uint64_t tag = 0, ignore = 0;
  uint32_t id = 0;  // of the message, or of the write
  size_t slot = 0;
  bool deep = false;  // kWrite: completes when the data is in place
  bool discards = false;
  std::vector<Memory> parts;
  std::vector<iovec> iov;
  size_t length = 0;
  std::map<uintptr_t, size_t> used;  // multi: offset and length of the messages in it
  // The claim of a message that the application was told of: what is known of it.
  bool told = false;
  size_t told_length = 0;
  std::vector<uint8_t> first;
  fi_addr_t source = FI_ADDR_UNSPEC;
  uint8_t names = 0;
  const Endpoint *teller = nullptr;  // multi: the endpoint whose queue gave the buffer back
};

using PostedOps = std::map<uintptr_t, std::unique_ptr<Posted>>;

// The receives of one endpoint, or of a shared context.
struct Receives {
  PostedOps ops;
  fid_ep *context = nullptr;  // a shared receive context; null: the endpoint's own
  // Multi-receive buffers of a shared context that one endpoint's queue gave back. Completions of
  // earlier messages may still be in the queues of other endpoints.
  PostedOps given_back;
};

// FI_BUFFERED_RECV, and its options.
struct Buffered {
  bool on = false;
  bool variable = false;  // FI_VARIABLE_MSG instead
  size_t limit = 0, min = 0;
};

class Endpoint {
 public:
  fid_domain *domain = nullptr;
  fid_ep *ep = nullptr;
  fid_cq *cq = nullptr;
  size_t cq_size = 0;
  bool unconnected = false;
  Buffered buffered;
  uint8_t names = 0;   // counts changes of our address vector
  bool strict = true;  // operations with the friend do not fail
  Receives own, *receives = &own;
  PostedOps ops;  // all but receives
  Endpoint *other = nullptr;
  uint8_t number = 0;  // of the two friends: 0 or 1
  Friendship *friendship = nullptr;
  fi_addr_t other_addr = FI_ADDR_UNSPEC;
  Region *target = nullptr;  // of the friend
  Region *region = nullptr;  // ours, for the friend
  std::vector<uintptr_t> claims;
  std::vector<uintptr_t> claim_kinds;  // whether tagged

  fid_ep *receiver() { return receives->context != nullptr ? receives->context : ep; }
  void post_recv(Input &in);
  void post_any();  // receives that match every message
  void look(Input &in);
  void take_claims();
  // Claims or discards one of the messages that the application was told of. False: there is none,
  // or it has to be done again later.
  bool settle_told(size_t which, size_t length, bool drop, bool pieces);
  void settle_all_told();
  // `mark`: the remote CQ data of a message to another than the friend; 0: none, or any.
  void send(Input &in, bool to_friend, fi_addr_t to, uint64_t mark = 0);
  void access(Input &in, bool to_friend, fi_addr_t to, uint64_t address, uint64_t key);
  void cancel(uintptr_t context);
  void cancel_all();
  // At most `calls` reads of up to 64 entries. False: there was no entry.
  bool drain(int calls);
  // Closes the endpoint with its operations, and reads its queue empty.
  void close();
  size_t outstanding_with_friend() const;

 private:
  void completed(const fi_cq_tagged_entry &e, fi_addr_t source);
  void failed(const fi_cq_err_entry &e);
  void received(Posted &op, uint64_t flags, size_t length, void *buf, uint64_t data, uint64_t tag,
                fi_addr_t source, bool truncated);
  Message *friends_message(bool tagged, uint64_t flags, uint64_t data, uint64_t tag,
                           fi_addr_t source);
  void check_sender(uint64_t flags, uint64_t data, fi_addr_t source) const;
  bool checks(const Posted &op) const {
    return op.to_friend && friendship->promises(op.life, op.promised);
  }
  void noticed(const fi_cq_tagged_entry &e, fi_addr_t source);
  void check_claim(const Posted &op, uint64_t flags, size_t length, fi_addr_t source);
  void end(PostedOps &ops, uintptr_t context);
  Posted &receive_of(uintptr_t context);
  void end_receive(uintptr_t context);
  Posted &add(PostedOps &to, Posted::Kind kind, uintptr_t &context);

  weft::fuzz::Notices notices_;
  int64_t last_told_ = -1;    // the friend's untagged message
  std::set<uintptr_t> gone_;  // closed with the endpoint; earlier completions may still be read
};

}  // namespace weft::tcp::fuzz

#endif
