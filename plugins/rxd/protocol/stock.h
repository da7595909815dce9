// SPDX-License-Identifier: BSD-2-Clause
// StockConversation: a conversation with an endpoint of stock libfabric, in its dialect. Packets
// have numbers, and the receiver takes only the next one. Acknowledgements name that number. There
// is no selective retransmission and no message for errors.
//
// Example:
//    // What Core does when the first RTS or CTS of a stock peer arrives, and an operation waits.
//    inline void begin(Core &core, Peer &peer, std::span<const uint8_t> packet, Buffer &buffer,
//                      TxOp &waiting) {
//      peer.conversation = make_stock_conversation(core, peer);
//      peer.conversation->on_packet(packet, buffer);  // learns the peer's index for us
//      peer.conversation->start(waiting);
//    }
//
// A stock peer sees what it expects from another stock endpoint. Only the times of retransmission
// are ours: after a measured timeout, and after three acknowledgements of the same number. Stock
// seldom acknowledges data in the middle of a message, so we cause an acknowledgement by repeating
// a packet that the peer has already.
//
// A stock peer remembers the numbers of an address for ever. So does this class: it stays after the
// peer was given up, asks for the expected number when there is a new operation, and continues from
// it. Not for peers that speak weft's protocol, nor for the first packet to an unknown peer (Core).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_STOCK_H
#define WEFT_PLUGINS_RXD_PROTOCOL_STOCK_H

#include <weft/sdk/memory/pool.h>

#include <memory>
#include <span>
#include <vector>

#include "plugins/rxd/protocol/conversation.h"
#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/wire/stock.h"

namespace weft::rxd {

// Bytes at the target.
inline uint64_t target_size(const TxOp &op) {
  uint64_t size = 0;
  for (size_t i = 0; i < op.vector_count; ++i) size += op.vectors[i].length;
  return size;
}

class StockConversation final : public Conversation {
 public:
  StockConversation(Core &core, Peer &peer);
  ~StockConversation() override;

  void start(TxOp &op) override;
  bool on_packet(std::span<const uint8_t> bytes, Buffer &buffer) override;
  void on_idle() override;
  void on_room() override { output(); }
  void on_deadline(uint64_t now) override;
  void fetch(Incoming &message) override;
  void discard(Incoming &message) override;
  void end(int err, Queue *unsent) override;
  void part() override;
  bool parted() const override { return !busy(); }
  bool busy() const override {
    return items_.size() != 0 || waiting_.first != nullptr || awaited_count_ != 0 ||
           answers_ != nullptr;
  }

 private:
  static constexpr uint32_t kInFlight = 128;  // packets; a power of two
  static constexpr size_t kMaxOwed = 256;     // answers that a peer can make us owe
  static constexpr uint64_t kNoNumber = UINT64_MAX;
  static constexpr uint64_t kMs = 1'000'000;
  static constexpr uint64_t kAskAfter = 1000 * kMs;  // silence of a peer that owes us data
  static constexpr uint32_t kLeastWindow = 8;

  // The answer to a read or an atomic of the peer.
  struct Answer {
    Answer *next = nullptr;
    uint32_t id = 0;
    uint8_t count = 0;
    uint64_t size = 0;
    RmaVector vectors[stock::kVectorLimit];  // this memory is read when the answer is sent
    std::unique_ptr<uint8_t[]> result;       // of an atomic
  };
  // An operation or an answer with its numbers in our stream: [first, first + packets).
  struct Item {
    TxOp *op = nullptr;  // this or `answer`
    Answer *answer = nullptr;
    uint64_t first = 0;
    uint64_t packets = 0;
    uint32_t payload = 0;  // bytes, in the first packet
  };
  // Items in the order of their numbers.
  class Items {
   public:
    size_t size() const { return size_; }
    Item &operator[](size_t i) { return ring_[(at_ + i) & (ring_.size() - 1)]; }
    void push(const Item &item);
    void pop() {
      ++at_;
      --size_;
    }
    void clear() { size_ = 0; }

   private:
    std::vector<Item> ring_;
    size_t at_ = 0, size_ = 0;
  };
  // A message or write of the peer that comes in several packets; at most one at a time.
  struct Arriving {
    enum class Kind : uint8_t { kNone, kMessage, kWrite } kind = Kind::kNone;
    bool has_data = false;
    uint8_t count = 0;
    Incoming *message = nullptr;
    uint64_t size = 0, first = 0, segments = 0, segment = 0, data = 0;
    RmaVector vectors[stock::kVectorLimit];
  };

  // ---- output ----
  void output();
  bool begin_item();
  Item item_of(TxOp &op);
  stock::Packet packet_of(const Item &item) const;
  int transmit(Item &item, uint64_t number, std::span<uint8_t, stock::kMaxHeader> header);
  uint64_t limit() const;
  void rewind();
  void take_back();
  void on_acknowledgement(const stock::Packet &packet, uint64_t now);
  void arrived(uint64_t number, uint64_t now);
  void on_refused(uint64_t now);
  void measure(uint64_t rtt);
  void finish(TxOp &op);
  void fail(TxOp &op, int err);
  void fail_all(int err);
  void give_up(int err, const char *why);
  void push_waiting(TxOp &op);
  int send_packet(const stock::Packet &packet);
  void ask_later();
  void ping();
  void acknowledge(uint16_t window);
  void owe_acknowledgement();
  void set_timer();
  uint64_t time_out() const;
  // Time since the last transmission of the first packet that is not acknowledged, ns.
  uint64_t age_of_first(uint64_t now) const;
  bool waits() const { return arriving_.kind != Arriving::Kind::kNone || awaited_count_ != 0; }

  // ---- input ----
  enum class Verdict : uint8_t { kTaken, kNotNow, kRefused };
  void on_rts(const stock::Packet &packet, uint64_t now);
  void on_cts(const stock::Packet &packet);
  void on_number(uint64_t number);
  void restarted();
  Verdict take(const stock::Packet &packet);
  Verdict take_message(const stock::Packet &packet);
  Verdict take_read(const stock::Packet &packet);
  Verdict take_write(const stock::Packet &packet);
  Verdict take_atomic(const stock::Packet &packet);
  Verdict take_data(const stock::Packet &packet);
  Verdict take_answer(const stock::Packet &packet);
  Answer *new_answer(const stock::Packet &packet);
  void drop_answers();
  void drop_arriving(int err);

  // ---- reads and atomics that wait for data, by id ----
  bool await(TxOp &op);
  TxOp *awaited(uint32_t id) const;
  void forget_awaited(TxOp &op);

  Core &core_;
  Peer &peer_;
  uint32_t index_ = 0;  // the peer's number for us; not verified until the peer has proven itself

  Queue waiting_;
  Items items_;
  size_t at_ = 0;            // index of the item of cursor_
  uint64_t acked_ = 0;       // the number that the peer expects
  uint64_t cursor_ = 0;      // the number that is sent next
  uint64_t next_ = 0;        // the first number that no item has
  uint64_t highest_ = 0;     // the first number that was never sent for its present item
  uint64_t taken_back_ = 0;  // numbers below it may have been sent for other items
  uint64_t measured_ = 0;    // numbers below it may have been sent more than once
  uint64_t pinged_ = 0;      // an acknowledgement was asked for all numbers below it
  // Time of the last transmission of each number, in us; null until something is sent.
  std::unique_ptr<uint32_t[]> sent_us_;
  uint32_t window_ = stock::kWindow;  // the peer's
  uint32_t congestion_ = 64;          // packets
  uint32_t threshold_ = kInFlight;
  uint32_t same_ = 0;             // acknowledgements in a row of the same number
  uint64_t hurried_ = kNoNumber;  // the number that was retransmitted because of them
  uint32_t backoff_ = 0;
  uint64_t srtt_ = 0, rttvar_ = 0;
  uint64_t since_ = 0;    // since when packets are outstanding, or the last progress of the peer
  uint64_t heard_ = 0;    // time of the peer's last packet
  uint64_t talked_ = 0;   // time of the first packet with our index
  uint32_t tries_ = 0;    // timeouts and questions since the peer's last packet
  uint64_t refused_ = 0;  // when the request at the head was first refused; 0: it was not
  uint32_t refusals_ = 0;

  Answer *answers_ = nullptr, *last_answer_ = nullptr;
  sdk::Pool<Answer> pool_{kMaxOwed, 4};
  std::vector<TxOp *> awaited_;  // a power of two
  size_t awaited_count_ = 0;
  uint16_t next_id_ = 0;

  uint64_t expected_ = 0;
  Arriving arriving_;
  uint32_t unacknowledged_ = 0;  // packets taken since the last acknowledgement
  bool owes_ = false;
  bool refuses_ = false;  // we refused the expected packet
  bool rebase_ = false;   // the peer remembers numbers that we do not know

  bool lost_ = false;  // given up: the expected number must be asked for
  bool asking_ = false;
  bool asked_ = false;  // the peer has answered the RTS
  uint64_t asked_at_ = 0, ask_at_ = 0;
  uint32_t attempts_ = 0;
};

}  // namespace weft::rxd

#endif
