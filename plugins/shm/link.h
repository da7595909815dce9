// SPDX-License-Identifier: BSD-2-Clause
// Link: the memory that an endpoint shares with one peer, the socket whose end tells that the peer
// is gone, and what is under way between them.
//
// Example:
//    // Moves a link on, in each progress. False: nothing came.
//    inline bool serve(Link &link) { return !link.is_over() && link.poll(); }
//
// Each end of a link may send and answer. Where two endpoints connect to each other at the same
// time there are two links, and each sends what it starts on its own: so the messages of a peer
// come in order. What a peer writes is checked; nonsense ends the link, and nothing else. With the
// engine's lock held. Not for which link belongs to which peer, nor for who may be a peer:
// endpoint.h.
#ifndef WEFT_PLUGINS_SHM_LINK_H
#define WEFT_PLUGINS_SHM_LINK_H

#include <weft/sdk/progress/unique_fd.h>
#include <weft/sdk/transfers/transfer_requests.h>

#include <deque>
#include <optional>

#include "plugins/shm/far_memory.h"
#include "plugins/shm/host_socket.h"
#include "plugins/shm/operation.h"
#include "plugins/shm/peer.h"
#include "plugins/shm/wire/hello.h"
#include "plugins/shm/wire/pair_memory.h"

namespace weft::shm {

class Endpoint;

// Why a link ended.
enum class End : uint8_t { kClosed, kPeerGone, kRefused, kViolation };

class Link final : public Watched {
 public:
  // The end that made the memory, and asks; the other end, which has been asked.
  enum class Side : uint8_t { kAsks, kAsked };

  Link(Endpoint &endpoint, Peer &peer, Side side, sdk::UniqueFd socket, const Process &process,
       PairMemory memory, const Geometry &geometry);
  ~Link() = default;
  Link(const Link &) = delete;
  Link &operator=(const Link &) = delete;

  Peer &peer() { return peer_; }
  int socket() const { return socket_.get(); }
  bool is_over() const { return over_; }
  bool is_stalled() const { return stalled_; }
  // The peer has answered: what is put into the memory is in its hands.
  bool is_taken() const { return probe_.has_value(); }
  // Something is about to be sent: ends the link if the peer has closed its endpoint or was killed.
  // The packets of its socket stay for the thread that they wake.
  void look_for_peer();

  // ---- sending ----
  // A message that needs no answer, if it is short and there is room. False: nothing has happened.
  bool send_now(const sdk::SendRequest &request);
  // Takes the operation. It ends by Endpoint::finish(), perhaps at once.
  void launch(Operation &op);
  // Whether something of this side waits for room.
  bool has_output() const { return !waiting_.empty() || !owed_.empty(); }
  bool has_flying() const { return !flying_.empty(); }
  // Whether something waits of whose end the application is not told.
  bool owes() const;
  void push();  // what there is room for

  // ---- progress ----
  // Takes records. True: there were some.
  bool poll();
  // What the socket says. May end the link.
  void on_socket();
  // From now on the next record, or room, wakes. True: do_barrier() has to follow.
  bool arm();
  // After arm() and the barrier. False: there is something already.
  bool may_sleep();
  // What is there is still taken, then everything fails that is under way.
  void end(End why);

  // ---- of saved messages ----
  // The receive gets the message, at once or part by part. `vectors`: where it is at the peer.
  void fetch(sdk::Receive &receive, const sdk::Message &message, uint64_t id,
             const FarVector *vectors, size_t count);
  void answer(uint64_t id, uint16_t status);  // kDone
  uint64_t saved_bytes = 0;                   // of its messages without a receive
  // There is no memory for messages without a receive. True: more is read all the same, because
  // something is awaited that is behind them, and the peer sends no new ones until it is there.
  bool refuse_messages();

  // What the peer has said of its process.
  void introduce(const Probe &probe, bool has_barriers);
  void close_copy() { socket_.reset(); }  // in a child after fork()

 private:
  // An answer, or a request for a part, that waits for room.
  struct Owed {
    Type type = Type::kDone;
    uint16_t status = 0;
    uint32_t length = 0;
    uint64_t tag = 0, id = 0, offset = 0;
    std::unique_ptr<uint8_t[]> bytes{};  // of a result
  };
  static constexpr uint64_t kOfAccess = UINT64_MAX;  // Owed::id of kData: its bytes are there
  enum class Copies : uint8_t { kUntried, kPossible, kImpossible };
  static constexpr size_t kMostOwed = 1 << 16;
  static constexpr uint64_t kMostOwedBytes = 64 << 20;                  // of results
  static constexpr size_t kMostPieces = kMostVectors * sdk::kIovLimit;  // of regions
  static constexpr uint16_t kLeastNonsense = 1024;                      // no FI_E... is as large
  static constexpr int kRecordsAtOnce = 64;
  static constexpr uint64_t kParts = 8;  // that are asked for at a time

  // link_output.cc
  bool write(Operation &op);
  bool write_message(Operation &op);
  bool write_write(Operation &op);
  bool write_read(Operation &op);
  // The part of a read that begins at `at`: it ends with its region at the latest.
  struct Part {
    uint64_t length = 0, region_length = 0;
    bool ends_region = true;
  };
  Part part_at(const Operation &op, uint64_t at) const;
  bool write_part(Operation &op);
  bool write_atomic(Operation &op);
  bool put_payload(Content &content, Type type, uint8_t flags, uint64_t tag, const iovec *iov,
                   size_t count, uint64_t offset, uint64_t length);
  void fly(Operation &op);
  void owe(Owed owed);
  bool pay(Owed &owed);
  bool pay_data(const Owed &owed);
  bool put_data(uint64_t id, uint16_t status, const iovec *iov, size_t count, uint64_t length);
  bool owes_too_much() const { return owed_.size() >= kMostOwed || owed_bytes_ >= kMostOwedBytes; }
  bool put(const Content &content, const Head &head);
  void wake();

  // link_input.cc
  bool take_next(const Head &head);
  bool take_short(const Head &head);
  bool take(const Record &record);
  bool take_message(const Record &record);
  void place_message(sdk::Receive &receive, const sdk::Message &message, const Record &record);
  bool save(const sdk::Message &message, const Record &record);
  bool take_done(const Record &record);
  bool take_pull(const Record &record);
  bool take_data(const Record &record);
  // What a peer says that an operation ended with.
  static int error_of(uint16_t status) { return status < kLeastNonsense ? status : FI_EIO; }
  void scatter_bytes(const iovec *iov, size_t count, uint64_t at, uint64_t n);
  void ask_for_parts(Fetch &fetch);
  void ask_for_parts(Operation &op);
  void end_fetch(Fetch &fetch, uint16_t status);

  // link_access.cc
  bool take_write(const Record &record);
  bool take_read(const Record &record);
  bool take_atomic(const Record &record);
  bool take_part(Operation &op, const Record &record);
  void fetch_write(const Record &record);
  void end_write(const Region *regions, size_t count, const sdk::Message &message, uint64_t id,
                 uint16_t status);
  void answer_data(uint64_t id, uint16_t status, const iovec *iov, size_t count, uint64_t length);
  bool violated(const char *what);
  // Whether the process at the other end still has the link, so that its number is its own.
  bool has_peer() const { return socket_.get() >= 0 && is_alive(socket_.get()); }
  bool can_copy();
  // Whether so many bytes are copied at once, and not part by part.
  bool copies(uint64_t length);
  bool try_copies();
  void copy_out(const Record &record, uint64_t at, uint64_t n, const iovec *iov, size_t count);
  bool awaits() const { return !flying_.empty() || fetching_ != 0; }
  void admit_messages();
  void finish_end(End why);
  void fail_all(int error);
  // Nobody has looked for a while whether the peer is there.
  bool is_doubtful() const;

  Endpoint &endpoint_;
  Peer &peer_;
  const Side side_;
  sdk::UniqueFd socket_;
  const Process process_;
  PairMemory memory_;
  Producer out_;
  Consumer in_;
  OperationList waiting_, flying_;
  std::deque<Owed> owed_;
  uint64_t owed_bytes_ = 0;
  uint64_t believed_at_ns_ = 0;  // when the peer was there
  bool reads_in_parts_ = false;  // the peer cannot write to memory of this process
  std::optional<Probe> probe_;   // of the peer; nothing: it has not answered yet
  Copies copies_ = Copies::kUntried;
  // The peer is gone, and what it had sent is not all taken yet; the link is over.
  bool stalled_ = false, is_gone_ = false, over_ = false;
  bool is_armed_ = false;  // the peer wakes, or has done so and the socket tells
  bool refuses_messages_ = false;
  size_t fetching_ = 0;  // fetches under way
};

}  // namespace weft::shm

#endif
