// SPDX-License-Identifier: BSD-2-Clause
// Application: a program with connected endpoints, and a model of what the provider owes it, for
// the fuzz target of endpoints.
//
// Example:
//    // A message from one end of a connection to the other arrives whole, once, in its turn; else
//    // the program ends.
//    inline void talk(Application &a, Connection &from, Application &b, weft::fuzz::Input &in) {
//      a.transfer(from, in, {});
//      a.read_completions(16);
//      b.read_completions(16);
//    }
//
// What it holds the provider to: each operation ends once, or fails once; nothing is written beside
// a receive or after its end; the events of a connection come in order, each once; messages of an
// honest peer arrive whole, once, in their order, and under its name. Not for the peers.
#ifndef WEFT_PLUGINS_VERBS_FUZZ_APPLICATION_H
#define WEFT_PLUGINS_VERBS_FUZZ_APPLICATION_H

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "plugins/verbs/fuzz/liar.h"
#include "plugins/verbs/test_link.h"
#include "tests/fuzz/world.h"

namespace weft::verbs::fuzz {

inline constexpr int kBacklog = 4;

struct Choices {
  bool shares_receives = false;  // a shared receive context
  bool selective = false;        // FI_SELECTIVE_COMPLETION of what is sent
  bool two_queues = false;
  size_t small_queues = 0;  // of endpoints; 0: the usual ones
};

struct Connection {
  enum class Phase { kIdle, kConnecting, kConnected, kEnded };
  fid_ep *ep = nullptr;
  fi_addr_t identity = 0;
  Phase phase = Phase::kIdle;  // as events have told
  bool failed = false;         // an operation has, so the connection must end
  // Of an honest peer.
  Connection *other = nullptr;
  std::vector<size_t> sent;  // the lengths
  size_t arrived = 0;
};

class Application {
 public:
  Application(TestNode &node, const Settings &settings, const Choices &choices,
              const char *address);
  ~Application();

  const sdk::Address &name() const { return name_; }  // where it listens
  std::span<const Shown> shown() const { return shown_; }
  Connection &open(fi_info *info);
  fi_info *info() { return side_.info; }
  // The number of the connection's queue pair; 0: it has none yet.
  static uint32_t number_of(const Connection &connection);
  std::vector<Connection *> connections() const;

  void connect(Connection &connection, const sdk::Address &peer, std::string_view data);
  // The answer to the request that has waited longest. Null: it was no accepting, or none waits.
  Connection *answer(uint8_t how, std::string_view data);
  bool has_requests() const { return !requests_.empty(); }
  bool is_first_from(const sdk::Address &host) const;

  void receive(Connection *connection, weft::fuzz::Input &in);  // null: the shared context
  void receive_whole(Connection &connection);                   // any message of an honest peer
  void transfer(Connection &connection, weft::fuzz::Input &in, Shown remote);
  void cancel(weft::fuzz::Input &in);
  void shut_down(Connection &connection);
  void close(Connection &connection);

  bool read_events(size_t most);  // false: there was none
  bool read_completions(size_t most);
  // Nothing more will come: what has ended has been told.
  void check_settled() const;
  // Of honest peers: all that was sent has arrived, and its senders know.
  bool is_delivered() const;
  // From now on the device is at fault: honest messages may be lost.
  void excuse() { excused_ = true; }
  // And completions.
  void break_queue(verbs_double::Device &device);

 private:
  struct Piece {
    uint8_t *bytes;
    size_t size;
    fid_mr *region;
  };
  struct Op {
    Connection *connection = nullptr;  // null: of a shared context, or closed
    bool receives = false, wanted = true, closed = false, cancelled = false;
    uint64_t flags = 0;  // of its completion
    size_t length = 0;
    std::vector<Piece> pieces;
  };

  void open_queues(const char *address);
  Piece lend(size_t size, uint8_t fill);
  Op &begin(Connection *connection, bool receives, size_t length, size_t pieces);
  std::vector<iovec> vectors(const Op &op) const;
  std::vector<void *> descriptors(const Op &op) const;
  void post(Op &op);
  void forget(Op &op);
  std::unique_ptr<Op> end(void *context);
  bool read_completion(fid_cq *cq);
  void completed(const fi_cq_data_entry &entry, fi_addr_t source);
  void failed(const fi_cq_err_entry &entry);
  void arrived(const Op &op, const fi_cq_data_entry &entry, fi_addr_t source);
  void told(const TestEvent &event);
  Connection *connection_of(const struct fid *fid);

  weft::fuzz::Memory memory_;
  TestSide side_;
  const Choices choices_;
  fid_cq *receives_cq_ = nullptr;
  fid_ep *srx_ = nullptr;
  sdk::Address name_;
  std::vector<Shown> shown_;
  uint8_t *quiet_[2];  // that peers may read, and that they may not reach
  std::vector<fid_mr *> regions_;
  std::map<void *, std::unique_ptr<Op>> ops_;
  std::map<size_t, std::unique_ptr<Connection>> connections_;  // by identity
  size_t opened_ = 0;
  std::deque<fi_info *> requests_;
  bool excused_ = false, loses_ = false;
};

}  // namespace weft::verbs::fuzz

#endif
