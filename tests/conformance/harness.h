// SPDX-License-Identifier: BSD-2-Clause
// What the conformance tests of connected endpoints share: two of them in one process, connected
// over loopback.
//
// Example:
//     TEST(Example, AMessageArrives) {
//       std::vector<uint8_t> out = pattern(100, 1), in(100);
//       Pair pair;  // a and b, connected, with default options
//       must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
//       must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, &out));
//       EXPECT_EQ(pair.wait(pair.b.rx_cq).len, out.size());
//       EXPECT_EQ(in, out);
//     }
//
// It is not a way to test objects without a connection: those tests make what they need by
// themselves. Endpoints that are not connected have unconnected.h.
#ifndef WEFT_TESTS_CONFORMANCE_HARNESS_H
#define WEFT_TESTS_CONFORMANCE_HARNESS_H

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>

#include "tests/conformance/common.h"
#include "tests/conformance/process.h"

namespace weft::conformance {

Info options_info(const Options &options, const char *service = nullptr, uint64_t flags = 0);

// An event of an event queue, good or bad.
struct Event {
  uint32_t type = 0;
  struct fid *fid = nullptr;
  Info info;         // of FI_CONNREQ
  std::string data;  // private data, or err_data
  int err = 0;
};
std::optional<Event> poll_eq(fid_eq *eq);

// One of the two.
struct Side : Application {
  using Application::Application;
  // Fabric, domain and queues for `info`.
  void open(const fi_info *info);
  // The endpoint, bound and enabled.
  void make_endpoint(fi_info *info);
  void make_unbound_endpoint(fi_info *info);
  std::string peer() const;

  std::function<void(Side &)> before_enable;  // more to bind
};

// A passive endpoint that listens.
struct Listener {
  // On the fabric and the event queue of `side`, at any port of `node`, or as `info` says.
  explicit Listener(Side &side, const std::string &node = "");
  Listener(Side &side, const fi_info &info);
  std::string address() const;

  Info info;
  Handle<fid_pep> pep;
};

// Two sides, a (which connects) and b (which accepts), connected.
class Pair : public Driver {
 public:
  explicit Pair(const Options &options = {}) : Pair(options, options) {}
  Pair(const Options &active, const Options &passive,
       const std::function<void(Side &)> &before_enable = {});

  void progress() override;
  using Driver::wait;
  // Waits for the next event; throws when there is none.
  Event wait(fid_eq *eq);
  Event wait_event(fid_eq *eq, uint32_t type);

  Side a, b;
  std::unique_ptr<Listener> listener;
};

// Drives several sides at once until an event or a completion arrives at one of them.
Event wait_event(fid_eq *eq, std::initializer_list<Side *> sides);
bool until(const std::function<bool()> &predicate, std::initializer_list<Side *> sides,
           std::chrono::milliseconds time = kPatience);
// The next connection request of `passive`; throws when another event comes, or none.
Event next_request(Side &passive, std::initializer_list<Side *> sides);

// hear(), while several sides make progress: what another process waits for may need it.
uint64_t hear(int socket, std::initializer_list<Side *> sides);

// Calls one in this thread and one in another, and fails the test with what either throws.
void in_two_threads(const std::function<void()> &here, const std::function<void()> &there);

}  // namespace weft::conformance

#endif
