// SPDX-License-Identifier: BSD-2-Clause
// What the conformance tests of FI_EP_RDM stand on: applications in one process that all know each
// other's addresses, and waits that end.
//
//   Net net(2);                                          // two applications, default options
//   must(fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
//   net.post([&] { return fi_send(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), &out);
//   }); EXPECT_EQ(net.wait(net[1].rx_cq).len, out.size());
//
// The stack under test is what WEFT_TEST_STACK names ("tcp", "tcp;ofi_rxm"). Where fi_getinfo does
// not offer it, every test of the program is skipped, unless WEFT_TEST_REQUIRED is set: then it
// fails. It is not for connected endpoints: those have harness.h, of which this uses the parts that
// know nothing of connections.
#ifndef WEFT_TESTS_CONFORMANCE_RDM_HARNESS_H
#define WEFT_TESTS_CONFORMANCE_RDM_HARNESS_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_tagged.h>

#include <memory>

#include "tests/conformance/harness.h"

namespace weft::conformance::rdm {

// What one application asks for.
struct Options {
  std::string node = "127.0.0.1";
  std::string service;  // empty: any port
  uint64_t caps = FI_MSG | FI_TAGGED;
  int mr_mode = 0;
  enum fi_progress progress = FI_PROGRESS_UNSPEC;
  enum fi_threading threading = FI_THREAD_UNSPEC;
  enum fi_resource_mgmt resource_mgmt = FI_RM_UNSPEC;
  enum fi_av_type av_type = FI_AV_UNSPEC;
  size_t tx_size = 0, rx_size = 0;  // 0: the provider's
  uint64_t tx_op_flags = 0, rx_op_flags = 0;
  uint64_t order = 0;  // msg_order of both directions
  fi_cq_attr tx_cq = cq_attr(), rx_cq = cq_attr();
  uint64_t tx_cq_flags = 0, rx_cq_flags = 0;  // FI_SELECTIVE_COMPLETION
  bool one_cq = false;                        // tx_cq takes receives too
  size_t cq_size = 0;
  std::string auth_key;         // of the endpoint; empty: none
  bool shared_receive = false;  // a shared receive context (fi_srx_context): Node::srx

  static fi_cq_attr cq_attr(enum fi_cq_format format = FI_CQ_FORMAT_TAGGED,
                            enum fi_wait_obj wait = FI_WAIT_NONE) {
    return conformance::Options::cq_attr(format, wait);
  }
};

Info make_hints(const Options &options = {});
// The first entry of exactly the stack under test; null when fi_getinfo has none.
Info find_info(const Options &options = {}, uint64_t flags = 0, uint32_t api = kApi);
bool offers(uint64_t caps);
// Notes in the test's result what it covers ("FI_TAGGED", "FI_WAIT_FD"): docs/support.md counts it.
void covers(const std::string &features);
std::string caps_text(uint64_t caps);

// Skips the calling test unless the stack offers all of `caps_`, and notes that it covers them.
#define RDM_NEEDS(caps_)                                                          \
  do {                                                                            \
    ::weft::conformance::rdm::covers(::weft::conformance::rdm::caps_text(caps_)); \
    if (!::weft::conformance::rdm::offers(caps_))                                 \
      GTEST_SKIP() << ::weft::conformance::stack() << " does not offer "          \
                   << ::weft::conformance::rdm::caps_text(caps_);                 \
  } while (0)

// A completion, good or bad, with all that the widest format has.
struct Completion : Done {
  uint64_t tag = 0;
  fi_addr_t source = FI_ADDR_NOTAVAIL;
};
// One completion of a queue in FI_CQ_FORMAT_TAGGED, if there is one.
std::optional<Completion> poll(fid_cq *cq);

// One application with one endpoint.
struct Node {
  // On a domain of its own, or on that of `sibling` with its address vector (and its shared receive
  // context, if it has one).
  explicit Node(const Options &options = {}, Node *sibling = nullptr,
                const std::function<void(Node &)> &before_enable = {});
  void open_objects();  // all but the endpoint
  void bind();          // what an endpoint needs before fi_enable
  fi_addr_t insert(const std::string &address);
  std::string name() const;
  fid_cntr *count(uint64_t what, fi_cntr_attr attr = {});  // before enabling
  fid_mr *expose(void *buffer, size_t size, uint64_t access, uint64_t key);
  // What a peer calls the first byte of an exposed buffer.
  uint64_t base_of(const void *buffer) const;
  fid_cq *receive_cq() const { return options.one_cq ? tx_cq.get() : rx_cq.get(); }
  void progress();

  Options options;
  Info info;
  Handle<fid_fabric> own_fabric;
  Handle<fid_domain> own_domain;
  Handle<fid_av> own_av;
  Handle<fid_ep> own_srx;
  fid_fabric *fabric = nullptr;
  fid_domain *domain = nullptr;
  fid_av *av = nullptr;
  fid_ep *srx = nullptr;
  Handle<fid_cq> tx_cq, rx_cq;
  std::vector<Handle<fid_cntr>> counters;
  std::vector<Handle<fid_mr>> regions;
  Handle<fid_ep> ep;
};

// Several applications that know each other. Progress is made for those that are not asleep.
class Net {
 public:
  explicit Net(size_t nodes = 2, const Options &options = {},
               const std::function<void(Node &)> &before_enable = {});
  Net(Net &&) = default;
  ~Net();  // the newest first: they may be siblings
  Node &operator[](size_t i) { return *nodes_[i]; }
  size_t size() const { return nodes_.size(); }
  // Adds one, and tells everybody.
  Node &add(const Options &options, const std::function<void(Node &)> &before_enable = {},
            Node *sibling = nullptr);
  // What `from` calls `to`.
  fi_addr_t at(size_t from, size_t to) const { return addresses_[from][to]; }
  void set_asleep(size_t i, bool asleep) { asleep_[i] = asleep; }

  void progress();
  bool until(const std::function<bool()> &predicate);
  Completion wait(fid_cq *cq);  // the next one; throws when none comes
  void wait_count(fid_cntr *counter, uint64_t value);
  // Calls again while it returns -FI_EAGAIN, making progress; throws on any other error.
  void post(const std::function<ssize_t()> &operation);
  // The same, returning the code.
  ssize_t attempt(const std::function<ssize_t()> &operation);
  // So many rounds of progress that what could happen, happened: by a message there and back.
  void settle();

  // One message of `bytes` from one to another, with its tag, checked at both ends.
  void exchange(size_t from, size_t to, size_t bytes = 100, uint64_t tag = 1);

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::vector<fi_addr_t>> addresses_;
  std::vector<char> asleep_;
};

std::vector<iovec> cut(std::vector<uint8_t> &bytes, size_t parts);
// The sizes around which the protocols of the stacks change.
std::vector<size_t> edges();

}  // namespace weft::conformance::rdm

#endif
