// SPDX-License-Identifier: BSD-2-Clause
// Applications in one process whose endpoints are not connected and know each other's addresses:
// what the tests of FI_EP_RDM (rdm_harness.h) and of FI_EP_DGRAM (dgram_harness.h) share.
//
// Example:
//     void send_one(Net &net) {  // from application 0 to application 1
//       std::vector<uint8_t> out = pattern(100, 1), in(100);
//       must(fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
//       net.post([&] {
//         return fi_send(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), &out);
//       });
//       EXPECT_EQ(net.wait(net[1].rx_cq).len, out.size());
//       EXPECT_EQ(net.wait(net[0].tx_cq).context, &out);
//     }
//
// Not for connected endpoints: those have harness.h.
#ifndef WEFT_TESTS_CONFORMANCE_UNCONNECTED_H
#define WEFT_TESTS_CONFORMANCE_UNCONNECTED_H

#include <memory>

#include "tests/conformance/common.h"

namespace weft::conformance::unconnected {

using Bytes = std::vector<uint8_t>;

// fi_getinfo with the hints of `options` after `change`; null for -FI_ENODATA.
Info ask(const Options &options, const std::function<void(fi_info &)> &change, const char *node,
         const char *service, uint64_t flags);

// Skips the calling test unless the stack offers `caps` with these options, and notes that the test
// covers `name`.
#define UNCONNECTED_NEEDS(options, caps, name)                                    \
  do {                                                                            \
    ::weft::conformance::covers(name);                                            \
    if (!::weft::conformance::unconnected::offers(options, caps))                 \
      GTEST_SKIP() << ::weft::conformance::stack() << " does not offer " << name; \
  } while (0)
bool offers(Options options, uint64_t caps);

// One application with one endpoint.
struct Node : Application {
  // On a domain of its own, or on that of `sibling` with its address vector (and its shared receive
  // context, if it has one).
  explicit Node(const Options &options, Node *sibling = nullptr,
                const std::function<void(Node &)> &before_enable = {});
  // With vector_keys: for one of them, by its place.
  fi_addr_t insert(const std::string &address, size_t key = 0);

  std::vector<fi_addr_t> keys;  // handles of vector_keys
  // Of a shared vector (av_name): fi_av_attr.map_addr.
  const volatile fi_addr_t *av_names = nullptr;
};

// Several applications that know each other. Progress is made for those that are not asleep.
class Net : public Driver {
 public:
  Net(size_t nodes, const Options &options, const std::function<void(Node &)> &before_enable);
  Net(Net &&) = default;
  ~Net();  // the newest first: they may be siblings
  Node &operator[](size_t i) { return *nodes_[i]; }
  size_t size() const { return nodes_.size(); }
  // Adds one, and inserts its address at all others.
  Node &add(const Options &options, const std::function<void(Node &)> &before_enable = {},
            Node *sibling = nullptr);
  // What `from` calls `to`.
  fi_addr_t at(size_t from, size_t to) const { return addresses_[from][to]; }
  void set_asleep(size_t i, bool asleep) { asleep_[i] = asleep; }
  void progress() override;

 protected:
  // After `out` was sent to `in`, checks both completions and the bytes.
  void check_exchange(size_t from, size_t to, const std::vector<uint8_t> &out,
                      const std::vector<uint8_t> &in);

 private:
  std::optional<Completion> next(fid_cq *cq) override { return poll(cq); }  // with its source
  // All at the same time, the endpoints of each domain in one thread: fi_close waits for answers of
  // the peers, which make progress while they close themselves.
  void close_endpoints();

  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::vector<fi_addr_t>> addresses_;
  std::vector<char> asleep_;
};

}  // namespace weft::conformance::unconnected

#endif
