// SPDX-License-Identifier: BSD-2-Clause
// What the conformance tests of FI_EP_DGRAM stand on: applications in one process that know each
// other's addresses, and waits that end.
//
//   Net net(2);                                          // two applications, default options
//   must(fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
//   net.post([&] { return fi_send(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), &out);
//   }); EXPECT_EQ(net.wait(net[1].rx_cq).len, out.size());
//
// Over loopback nothing is lost while the receiver's socket has room, so a test may expect what it
// sent. The stack under test is what WEFT_TEST_STACK names ("udp"). Not for reliable datagrams:
// those have rdm_harness.h.
#ifndef WEFT_TESTS_CONFORMANCE_DGRAM_HARNESS_H
#define WEFT_TESTS_CONFORMANCE_DGRAM_HARNESS_H

#include <memory>

#include "tests/conformance/harness.h"

namespace weft::conformance::dgram {

// What one application asks for.
struct Options {
  std::string node = "127.0.0.1";
  std::string service;  // empty: any port
  uint32_t addr_format = FI_FORMAT_UNSPEC;
  uint64_t caps = FI_MSG;
  enum fi_progress progress = FI_PROGRESS_UNSPEC;
  enum fi_threading threading = FI_THREAD_UNSPEC;
  enum fi_resource_mgmt resource_mgmt = FI_RM_UNSPEC;
  enum fi_av_type av_type = FI_AV_UNSPEC;
  size_t tx_size = 0, rx_size = 0;  // 0: the provider's
  size_t max_msg_size = 0;          // the same
  uint64_t tx_op_flags = 0, rx_op_flags = 0;
  fi_cq_attr tx_cq = conformance::Options::cq_attr(FI_CQ_FORMAT_MSG);
  fi_cq_attr rx_cq = conformance::Options::cq_attr(FI_CQ_FORMAT_MSG);
  uint64_t tx_cq_flags = 0, rx_cq_flags = 0;  // FI_SELECTIVE_COMPLETION
  bool event_queue = false;                   // Node::eq
};

Info make_hints(const Options &options = {});
// The first entry of exactly the stack under test; null when fi_getinfo has none.
Info find_info(const Options &options = {}, uint64_t flags = 0);
// Notes in the test's result what it covers ("FI_MULTICAST", "FI_WAIT_FD"): docs/support.md counts
// it.
void covers(const std::string &features);
bool offers(uint64_t caps);

#define DGRAM_NEEDS(caps_, name)                                       \
  do {                                                                 \
    ::weft::conformance::dgram::covers(name);                          \
    if (!::weft::conformance::dgram::offers(caps_))                    \
      GTEST_SKIP() << ::weft::conformance::stack() << " has no " name; \
  } while (0)

// A completion, good or bad.
struct Completion : Done {
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  std::string err_data;
};
// One completion of a queue in FI_CQ_FORMAT_MSG, if there is one.
std::optional<Completion> poll(fid_cq *cq);

// One application with one endpoint on a domain of its own.
struct Node {
  explicit Node(const Options &options = {}, const std::function<void(Node &)> &before_enable = {});
  fi_addr_t insert(const std::string &address);
  std::string name() const;
  fid_cntr *count(uint64_t what, fi_cntr_attr attr = {});  // before enabling
  void progress();

  Options options;
  Info info;
  Handle<fid_fabric> fabric;
  Handle<fid_eq> eq;
  Handle<fid_domain> domain;
  Handle<fid_av> av;
  Handle<fid_cq> tx_cq, rx_cq;
  std::vector<Handle<fid_cntr>> counters;
  Handle<fid_ep> ep;
};

// Several applications that know each other. Progress is made for those that are not asleep.
class Net {
 public:
  explicit Net(size_t nodes = 2, const Options &options = {},
               const std::function<void(Node &)> &before_enable = {});
  Net(Net &&) = default;
  Node &operator[](size_t i) { return *nodes_[i]; }
  Node &add(const Options &options, const std::function<void(Node &)> &before_enable = {});
  // What `from` calls `to`.
  fi_addr_t at(size_t from, size_t to) const { return addresses_[from][to]; }
  void set_asleep(size_t i, bool asleep) { asleep_[i] = asleep; }

  void progress();
  bool until(const std::function<bool()> &predicate);
  Completion wait(fid_cq *cq);  // the next one; throws when none comes
  void wait_count(fid_cntr *counter, uint64_t value);
  // Calls again while it returns -FI_EAGAIN, making progress; throws on any other error.
  void post(const std::function<ssize_t()> &operation);
  void settle();  // so many rounds of progress that what could happen, happened
  // One datagram, checked at both ends.
  void exchange(size_t from, size_t to, size_t bytes = 100);

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::vector<fi_addr_t>> addresses_;
  std::vector<char> asleep_;
};

std::vector<iovec> cut(std::vector<uint8_t> &bytes, size_t parts);

// Any UDP program: a plain socket on loopback. Addresses are those of fi_getname in the format
// FI_SOCKADDR_IN or FI_SOCKADDR_IN6.
class PlainSocket {
 public:
  explicit PlainSocket(int family = 2 /* AF_INET */, const std::string &to_bind = {});
  ~PlainSocket();
  PlainSocket(const PlainSocket &) = delete;
  PlainSocket &operator=(const PlainSocket &) = delete;
  int fd() const { return fd_; }
  std::string name() const;
  // 0 or -errno
  int send(const std::string &to, const std::vector<uint8_t> &bytes);
  // Waits for one; empty optional: none comes.
  std::optional<std::vector<uint8_t>> receive(std::string *from = nullptr,
                                              std::chrono::milliseconds patience = kPatience);

 private:
  int fd_;
};

}  // namespace weft::conformance::dgram

#endif
