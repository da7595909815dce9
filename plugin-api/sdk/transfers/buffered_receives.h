// SPDX-License-Identifier: BSD-2-Clause
// BufferedReceives: what is different in a receiver under FI_BUFFERED_RECV (fi_msg.3, "Buffered
// Receives"; fi_tagged.3, "Buffered Tagged Receives") and FI_VARIABLE_MSG: messages come into
// memory of ours, the application is told of each by a notice, and claims or discards it.
//
// Example:
//    // What Receiver::match() does with a tag that the application has posted.
//    Receive *match(BufferedReceives &receives, const Message &message, Receive &tag) {
//      return receives.match(message, &tag, nullptr);
//    }
//
// A message up to `limit` bytes is received whole, into a notice's memory: the protocol sees a
// receive like any other. A longer one stays with the protocol (`Notice::rest`). The notice of it
// has its first `min` bytes, and the claim is what the protocol delivers it to.
//
// What cannot be told of, because the completion queue is full or too much is held already, waits
// with the protocol, whose limits stop the peers. A message waits behind those that came before it
// (but a tagged one that comes whole passes). Untagged messages have no receives that would tell
// their order, so those of one source are told of in the order of arrival, even if one takes longer
// to come.
//
// A notice's address is what the application names a message by. It is looked up, never followed,
// so a wrong one is an error. Notices are reused in the order in which they were given back: a
// second claim of a message is likely to be found out.
//
// All calls are for Receiver and RdmEndpoint, with the engine's lock held.
#ifndef WEFT_SDK_TRANSFERS_BUFFERED_RECEIVES_H
#define WEFT_SDK_TRANSFERS_BUFFERED_RECEIVES_H

#include <weft/sdk/progress/engine.h>
#include <weft/sdk/transfers/receiver.h>

#include <memory>
#include <vector>

namespace weft::sdk {

// Flags of the completion of a receive of this message.
inline uint64_t flags_of(const Message &m) {
  return FI_RECV | (m.tagged ? FI_TAGGED : FI_MSG) | (m.has_data ? FI_REMOTE_CQ_DATA : 0);
}

class BufferedReceives final : private Handler {
 public:
  // Of FI_OPT_BUFFERED_LIMIT, in bytes. A protocol that sends a part of a long message ahead sends
  // that much.
  static constexpr size_t kDefaultLimit = 16 << 10, kMostLimit = 64 << 10;

  BufferedReceives(Receiver &receiver, const ReceiverSettings &settings);
  ~BufferedReceives();
  BufferedReceives(const BufferedReceives &) = delete;
  BufferedReceives &operator=(const BufferedReceives &) = delete;
  void stop();  // the endpoint closes: its messages are gone already

  void set_endpoint(fid_ep *ep) { ep_ = ep; }  // that notices name
  size_t limit() const { return limit_; }      // FI_OPT_BUFFERED_LIMIT
  size_t min() const { return min_; }          // FI_OPT_BUFFERED_MIN
  // fi_setopt: 0, -FI_EMSGSIZE. Before the first message.
  int set_limit(size_t bytes);
  int set_min(size_t bytes);

  // ---- for Receiver, whose calls have the same names ----
  auto &queues() { return queues_; }
  ssize_t post(const RecvRequest &request);
  // `tag`: the posted receive that takes the message; null: an untagged message.
  Receive *match(const Message &message, Receive *tag, bool *full);
  void complete(Receive &receive, const Message &message, size_t received, int err);
  bool is_told_early(const Message &message);
  void save(Unexpected &message);
  void forget(Unexpected &message);
  void on_more(Unexpected &message);
  void rename(uint32_t from, uint32_t to);
  Unexpected *next(Unexpected *message) const;

 private:
  struct Notice {
    fi_recv_context context{};  // the application's. Its address is that of the notice
    bool used = false;          // else it is free
    bool told = false;          // the application has it
    bool tagged = false;
    bool ready = false;  // to be told, behind others of its source
    int err = 0;         // the rest will not come
    Message message;
    fi_addr_t source = FI_ADDR_NOTAVAIL;  // that was told
    void *user = nullptr;                 // the context of the tag
    Unexpected *rest = nullptr;
    size_t here = 0;  // bytes of the message at `bytes`
    size_t room = 0;
    std::unique_ptr<char[]> bytes;
    Notice *next = nullptr, *previous = nullptr;  // of those that are free, or have a rest
    Notice *newer = nullptr, *older = nullptr;    // of untagged ones that have not been told
  };
  struct Chunk {
    std::unique_ptr<Notice[]> notices;
    size_t count;
  };
  static constexpr size_t kMostHeld = 64 << 20;  // bytes in notices that are in use
  static constexpr size_t kMostKept = 1 << 20;   // bytes in those that are free

  bool is_full() const { return receiver_.is_full(); }
  bool has_room(size_t bytes) const { return held_ == 0 || held_ + bytes <= kMostHeld; }
  Notice *take(size_t bytes);
  bool grow();
  void give(Notice &notice);
  void append(Notice &notice);  // to the free ones
  static uintptr_t place_of(const Chunk &chunk) { return uintptr_t(chunk.notices.get()); }
  Notice *find(const void *context);
  void link(Notice &notice, Unexpected &rest);
  void unlink(Notice &notice);

  void pair(Unexpected &message, Receive *tag);
  void wait(Unexpected &message, Receive *tag);
  void come_back();
  bool start(Unexpected &message);
  bool start_long(Unexpected &message, Receive *tag);
  void retry();
  void aim(Receive &receive, Notice &notice);
  void begin(Notice &notice, const Message &message);
  void come(Notice &notice);
  void leave(Notice &notice);
  void cut(Notice &notice);
  void tell(Notice &notice);
  void lose(Notice &notice, int err);
  void fail_tag(void *context, const Message &message, int err);
  ssize_t settle(const RecvRequest &request);
  ssize_t claim(Notice &notice, const RecvRequest &request);
  void discard(Notice &notice);
  void report_claim(void *context, const Message &message, fi_addr_t source, uint64_t flags,
                    size_t room, size_t received, int err);
  void on_event(uint32_t) override {}
  void on_flush() override { retry(); }

  Receiver &receiver_;
  const Hmem *const devices_;
  fid_ep *ep_ = nullptr;
  size_t limit_ = kDefaultLimit, min_ = 0;
  Receiver::Queues queues_;
  Engine *engine_ = nullptr;   // that is to call on_flush()
  std::vector<Chunk> chunks_;  // by address
  size_t made_ = 0;
  Notice *free_ = nullptr, *free_last_ = nullptr;
  Notice *begun_ = nullptr, *begun_last_ = nullptr;          // untagged, not told, the oldest first
  Notice *rests_ = nullptr;                                  // with a rest
  Unexpected *waiting_ = nullptr, *waiting_last_ = nullptr;  // not started; holder_: the tag
  size_t held_ = 0, kept_ = 0;
};

}  // namespace weft::sdk

#endif
