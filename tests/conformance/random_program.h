// SPDX-License-Identifier: BSD-2-Clause
// The calls of a random program (random_calls.h): what it chooses, and what it does then.
//
// Example:
//     void run(const Options &options) { RandomProgram(options, 1).run(); }
//
// What they must lead to is known by random_model.h.
#ifndef WEFT_TESTS_CONFORMANCE_RANDOM_PROGRAM_H
#define WEFT_TESTS_CONFORMANCE_RANDOM_PROGRAM_H

#include <rdma/fi_eq.h>

#include <memory>
#include <random>
#include <vector>

#include "tests/conformance/calls.h"
#include "tests/conformance/random_model.h"

namespace weft::conformance {

class RandomProgram {
 public:
  RandomProgram(const Options &options, unsigned seed);
  void run();

 private:
  using Operation = RandomOperation;
  using Slot = RandomSlot;
  using Host = RandomHost;

  size_t below(size_t n) { return random_() % n; }
  bool one_in(size_t n) { return below(n) == 0; }
  Options choose(const Options &options);
  // A NIC that matches has so many places for all that is open and received on its host.
  bool is_no_room(ssize_t rc) const { return rc == -FI_ENOSPC && is_matched_by_a_nic(type_); }

  // ---- objects (random_program.cc) ----
  void open();
  // `wait` becomes FI_WAIT_NONE where there is no such wait object.
  void open_queue(Handle<fid_cq> &cq, enum fi_wait_obj &wait, size_t size);
  void open_slot();
  void close_slot(Slot &slot);
  void meet(Host &host);
  void kill();
  void revive();
  void change_objects();
  void change_vector();
  void finish();
  void close_all();
  void step();
  template <class T>
  void close(const char *name, Handle<T> &handle) {
    if (handle) calls_(name, [&] { return handle.reset(), 0; });
  }

  // ---- operations (random_operations.cc) ----
  Slot *some_slot();
  Host *some_host(const Slot &slot);
  size_t some_size(bool is_tagged);
  bool may_send(const Slot &slot, const Host &host, bool is_tagged);
  bool send(Slot &slot, Host &host);
  ssize_t call_send(Slot &slot, Host &host, Operation &operation, uint64_t tag, bool &injects);
  bool access(Slot &slot, Host &host);
  ssize_t call_access(Slot &slot, Host &host, Operation &operation);
  ssize_t call_atomic(Slot &slot, Host &host, Operation &operation);
  bool receive(Slot &slot, bool is_tagged);
  void refuse(Slot &slot, Host &host);
  void cancel();

  // ---- waits (random_waits.cc) ----
  bool read(fid_cq *cq);
  void take(fid_cq *cq, ssize_t n, const uint8_t *entries);
  bool read_event();
  void on_event(ssize_t n, uint32_t type, const fi_eq_cm_entry &entry);
  void read_all();
  void block();
  void until(const char *what, const std::function<bool()> &predicate);

  std::mt19937_64 random_;
  const enum fi_ep_type type_;
  std::vector<std::unique_ptr<PeerProcess>> processes_;  // the living one, then lives of the other
  // What choose() sets.
  bool has_tags_ = false, has_rma_ = false, has_atomics_ = false, has_delivery_ = false;
  bool is_managed_ = false;  // FI_RM_ENABLED: what finds no room waits
  enum fi_wait_obj tx_wait_ = FI_WAIT_NONE, rx_wait_ = FI_WAIT_NONE;
  size_t window_ = 1, receives_ = 1;
  Options options_;
  Calls calls_;
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(10'000);  // exposed; nobody asks for it
  RandomModel model_;
  Application app_;
  Handle<fid_wait> wait_set_;
  Handle<fid_cq> tx_cq_, rx_cq_;
  bool has_counters_ = false, has_data_ = false;
  unsigned numbers_ = 0, lives_ = 1;
};

}  // namespace weft::conformance

#endif
