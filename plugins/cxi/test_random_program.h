// SPDX-License-Identifier: BSD-2-Clause
// RandomProgram: random legal calls in any order, on endpoints of two NICs that come and go, and
// what must be true of their completions.
//
// Example:
//    TEST(Example, OneSeed) { weft::conformance::rdm::RandomProgram(7).run(500); }
//
// Memory of an operation is freed as soon as the program may free it: when the operation has ended,
// and when its endpoint or its region is closed. So AddressSanitizer sees whoever touches it later.
//
// Every message arrives at most once, with its bytes, and exactly once where both of its endpoints
// live. Those of one sender with the same tag meet receives in their order.
#ifndef WEFT_PLUGINS_CXI_TEST_RANDOM_PROGRAM_H
#define WEFT_PLUGINS_CXI_TEST_RANDOM_PROGRAM_H

#include <rdma/fi_collective.h>
#include <rdma/fi_trigger.h>

#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {

class RandomProgram {
 public:
  explicit RandomProgram(unsigned seed);
  ~RandomProgram();
  void run(size_t steps);

 private:
  static constexpr size_t kNics = 2, kMostEndpoints = 5, kLanes = 16, kLane = 600;
  struct Nic;
  struct Region;
  struct Group;
  struct Message;
  struct Operation;
  struct Member {
    std::shared_ptr<Group> group;
    Handle<fid_av_set> set;
    Handle<fid_mc> mc;
    size_t rank = 0, next = 0;
    bool joined = false;
  };
  struct Endpoint {
    Nic *nic = nullptr;
    std::unique_ptr<Node> node;  // null: closed
    std::vector<Handle<fid_ep>> aliases;
    std::vector<fi_addr_t> at = std::vector<fi_addr_t>(kNics);  // what each NIC's vector calls it
    std::unordered_map<void *, std::unique_ptr<Operation>> operations;
    std::vector<Operation *> to_claim;  // messages that were found
    std::vector<std::shared_ptr<Region>> regions;
    std::vector<Member> members;
    size_t receives[2] = {};  // of any message, untagged and tagged
    bool is_alive() const { return node != nullptr && node->ep.get() != nullptr; }
  };
  struct Nic {
    std::unique_ptr<Node> owner;  // of the domain and the address vector
    Handle<fid_cntr> start, done;
  };
  struct Message {
    Endpoint *from, *to;
    size_t size;
    bool tagged;
    uint64_t tag;
    bool in_order;        // not deferred
    bool sent = false;    // its send has completed, or it was injected
    bool gone = false;    // it has arrived, or was discarded
    bool failed = false;  // its send has failed
    uint64_t receive = 0;
    bool has_no_turn = false;  // among the receives: see check_order()
  };
  struct Lane {
    bool busy = false, known = false;
    std::vector<uint8_t> bytes;
  };
  struct Region {
    Endpoint *owner = nullptr;
    std::vector<uint8_t> memory;  // 8 bytes of a sum, and lanes
    Handle<fid_mr> mr;
    std::vector<Lane> lanes = std::vector<Lane>(kLanes);
    uint64_t sum = 0;
    bool is_sum_known = true, is_open = true;
  };
  struct Group {
    size_t members = 0;
    bool broken = false;
  };
  enum class Kind { kSend, kReceive, kMulti, kPeek, kWrite, kRead, kAtomic, kCollective };
  struct Operation {
    Kind kind;
    Endpoint *endpoint;
    std::vector<uint8_t> bytes;
    uint64_t message = 0;  // a number, of a send
    bool tagged = false, is_any = false, cancelled = false, claims = false, delivers = false;
    uint64_t tag = 0, ignore = 0, order = 0, flags = 0;
    std::shared_ptr<Region> region;
    size_t lane = 0;
    std::shared_ptr<Group> group;
    uint64_t wanted = 0;  // of an allreduce
    iovec iov{};
    fi_rma_iov target{};
    fi_op_msg as_message{};
    fi_op_tagged as_tagged{};
    fi_op_rma as_rma{};
    fi_deferred_work work{};
    bool is_deferred = false;
    bool is_receive() const { return !claims && (kind == Kind::kReceive || kind == Kind::kMulti); }
  };

  size_t below(size_t limit) { return random_() % limit; }
  bool coin() { return below(2) == 0; }
  static bool has_failed() { return ::testing::Test::HasFailure(); }
  Options options(size_t nic);

  // test_random_program.cc, test_random_program_rare.cc: what the program does.
  void step();
  void step_rarely(size_t which);
  Endpoint *any();
  Operation *add(Endpoint &endpoint, Kind kind, size_t bytes);
  void drop(Operation &operation);
  void open_endpoint();
  void close_endpoint(Endpoint &endpoint);
  void send(bool deferred);
  void receive(Endpoint &endpoint, bool tagged, bool any_message);
  void receive_many(Endpoint &endpoint);
  void peek(Endpoint &endpoint);
  void claim(Endpoint &endpoint);
  void claim_later(Endpoint &endpoint, Operation &peeked, size_t size);
  void cancel(Operation &operation);
  void cancel_one(Endpoint &endpoint);
  void cancel_some(Endpoint &endpoint);
  void open_region(Endpoint &endpoint);
  void close_region(Endpoint &endpoint, size_t which);
  void access();
  void start_deferred(Operation &operation, enum fi_op_type type, void *op);
  void cancel_work(Endpoint &endpoint);
  void alias(Endpoint &endpoint);
  void found_group();
  void collective(Endpoint &endpoint);
  void leave(Endpoint &endpoint);
  fid_ep *through(Endpoint &endpoint);  // it or one of its aliases

  // test_random_program_checks.cc: what must be true.
  void read(Endpoint &endpoint, size_t most);
  void read_joined(Nic &nic);
  void on_done(Endpoint &endpoint, const Completion &done);
  void on_received(Operation &operation, const Completion &done);
  void on_peeked(Endpoint &endpoint, Operation &operation, const Completion &done);
  void on_accessed(Operation &operation, const Completion &done);
  void on_reduced(Operation &operation, const Completion &done);
  bool is_all_done();
  void drain();
  void offer_receives(Endpoint &endpoint);
  void check_order();

  std::mt19937 random_;
  const size_t cq_size_;
  std::unordered_map<uint64_t, Message> messages_;
  uint64_t last_message_ = 0, last_receive_ = 0;
  unsigned last_pid_ = 0;
  uint64_t last_key_ = 0;
  std::vector<Nic> nics_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;  // all that have ever been
};

}  // namespace weft::conformance::rdm

#endif
