// SPDX-License-Identifier: BSD-2-Clause
// PeerStream: the packets and replies between two engines as a stream of bytes, in both directions.
//
// Example:
//    // Brings what one side has to say to the other, a piece at a time.
//    inline bool carry(PeerStream &from, PeerStream &to) {
//      std::array<uint8_t, 1000> piece;
//      const size_t count = from.output(piece);
//      return count != 0 && !to.on_bytes(std::span(piece).first(count)).has_value();
//    }
//
// It has no socket. Whoever carries the bytes calls on_bytes() with what has come, writes what
// output() gives, and calls end() when the connection is over. Long operations are read from and
// written to the memory of their processes while they pass, so it keeps little: heads, short
// operations, and of others' at most kMaxWhole bytes that cannot be placed yet, if there is room
// (room.h).
//
// send() is for Outside::send(), with the engine's lock held. The other calls are for one thread at
// a time. Bytes that are no frames, or an answer to what was not asked, end the stream: on_bytes()
// says why.
#ifndef WEFT_PLUGINS_CXI_SOFT_PEER_STREAM_H
#define WEFT_PLUGINS_CXI_SOFT_PEER_STREAM_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plugins/cxi/soft/engine.h"
#include "plugins/cxi/soft/frame.h"
#include "plugins/cxi/soft/room.h"

namespace weft::cxi {

class PeerStream final : private Asker {
 public:
  static constexpr uint32_t kMaxWhole = 16u << 20;        // bytes of an operation that must wait
  static constexpr size_t kShort = 4096;                  // bytes that are copied into the queue
  static constexpr size_t kMaxReplies = size_t{1} << 20;  // bytes of replies that nobody has read

  explicit PeerStream(Engine &engine) : engine_(engine) {}
  ~PeerStream() { end(); }
  PeerStream(const PeerStream &) = delete;
  PeerStream &operator=(const PeerStream &) = delete;

  // Of a connection to another host: which NICs are at its ends, and whether the peer may ask.
  struct Ends {
    Nid here = 0, there = 0;
    bool may_ask = false;
  };
  void set_ends(const Ends &ends) { ends_ = ends; }
  // That of its host, before anything has come. Else it has one by itself.
  void set_room(std::shared_ptr<Room> room) { room_ = std::move(room); }

  // With the engine's lock held: there is output that no call of the carrier has brought.
  void set_on_output(std::function<void()> call) { on_output_ = std::move(call); }
  const Asker &asker() const { return *this; }  // of the peer's requests

  void send(const Packet &packet);
  // Another stream sends what this one has not begun to; with the engine's lock held.
  void hand_over(PeerStream &to);

  // With the engine's lock held. Whether nothing is under way that either side has asked for;
  // whether something of the peer waits at a portal.
  bool is_idle() const;
  bool has_waiting() const { return waiting_ != 0; }

  // Whether what is to be sent are acknowledgements, and only a few. They may go by the connection
  // on which we ask the same process, its partner.
  bool has_only_acks() const;
  bool move_acks(PeerStream &to);  // false: there is no room
  void set_partner(PeerStream *partner) { partner_ = partner; }
  // The next bytes of the stream; returns how many. 0: there are none.
  size_t output(std::span<uint8_t> room);
  // False while the peer may ask nothing more: it reads too little of its answers, or too many
  // bytes wait of what it has asked.
  bool wants_input() const;
  std::optional<Refusal> on_bytes(std::span<const uint8_t> bytes);
  // Whether the peer has said, since the last call, that it does not have an address.
  bool take_misses() { return std::exchange(misses_, false); }
  // What is under way fails: `why` here, kMstCancelled for what the peer has begun.
  void end(Rc why = Rc::kUndeliverable);

 private:
  using Head = std::array<uint8_t, kHeadSize>;
  // A frame on its way out. Behind its bytes there is one that says whether they are good.
  struct Item {
    Head head;
    uint32_t bytes = 0;
    std::vector<uint8_t> copy;  // of a short one
    uint64_t token = 0;         // else: of our operation
    uint64_t loan = 0;          // or of the peer's
    bool good = true;
    bool is_reply = false;
    bool is_ack = false;  // a reply without bytes, of success
    bool is_long() const { return bytes != 0 && copy.empty(); }
  };
  enum class Taking : uint8_t { kHead, kWhole, kLanding, kReplyBytes, kNothing };

  std::optional<Refusal> on_head();
  std::optional<Refusal> on_packet_head();
  void take(std::span<const uint8_t> bytes);
  void on_frame(bool good);
  void on_late(const Reply &reply) override;
  bool take_room(size_t bytes) override;
  void give_room(size_t bytes) override;
  bool may_collect();
  void stop_collecting();
  void push_answer(const Reply &reply);
  void answer(const Reply &reply);
  void answer_get(const Packet &packet);
  void push(Item item);
  bool has_asked(uint64_t token) const;
  void note(uint64_t token);
  void note_answer(uint64_t token);
  bool take_overtaken(uint64_t token);
  void fill(Item &item, size_t offset, std::span<uint8_t> out);
  size_t put_out(Item &item, std::span<uint8_t> room);
  size_t output_short(std::span<uint8_t> room);
  void pop();
  PeerStream *asker(uint64_t token);
  size_t size_of(const Item &item) const {
    return kHeadSize + item.bytes + (item.bytes != 0 ? 1 : 0);
  }

  Engine &engine_;
  std::optional<Ends> ends_;
  std::function<void()> on_output_;
  PeerStream *partner_ = nullptr;
  PeerStream *asker_ = nullptr;  // whose question the reply at hand answers; null: nobody's
  // ---- out; with the engine's lock ----
  std::vector<Item> items_;
  size_t first_ = 0;    // of them; those before have left
  size_t written_ = 0;  // of the first
  size_t acks_ = 0;     // among them
  size_t reply_bytes_ = 0;
  std::shared_ptr<Room> room_ = std::make_shared<Room>();
  size_t waiting_ = 0, collected_ = 0;  // bytes in it: that wait at portals; of the frame at hand
  std::vector<std::vector<uint8_t>> spare_;  // copies whose memory is used again
  // What was asked and not answered: tokens, by the place that Engine::slot_of() says. 0: none.
  std::vector<uint64_t> asked_;
  size_t asking_ = 0;  // how many there are
  // The same of operations that were given up, and whose place another question has by now.
  std::vector<uint64_t> overtaken_;
  // ---- in ----
  Head head_;
  size_t have_ = 0;  // of the head
  Frame frame_;
  Taking taking_ = Taking::kHead;
  uint32_t taken_ = 0;  // of the bytes
  std::vector<uint8_t> whole_;
  uint64_t landing_ = 0;
  bool misses_ = false;
};

}  // namespace weft::cxi

#endif
