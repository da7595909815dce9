// SPDX-License-Identifier: BSD-2-Clause
// For tests of the plugin's classes: two endpoints of one process, connected over the double.
//
// Example:
//    void send_hello() {
//      Link link;
//      Buffer in(link.b, 16), out(link.a, 16, "hello");
//      ASSERT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, nullptr), 0);
//      ASSERT_EQ(fi_send(link.a.ep, out.data(), 5, out.desc(), 0, nullptr), 0);
//      EXPECT_EQ(link.b.completion().len, 5u);
//    }
//
// The double works inside of the calls, so nothing has to be waited for. Not for other programs'
// ways of using the API: the conformance tests have those.
#ifndef WEFT_PLUGINS_VERBS_TEST_LINK_H
#define WEFT_PLUGINS_VERBS_TEST_LINK_H

#include <gtest/gtest.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/verbs/provider.h"
#include "plugins/verbs/test_node.h"

namespace weft::verbs {

struct TestEvent {
  uint32_t type = 0;
  struct fid *fid = nullptr;
  fi_info *info = nullptr;
  std::string data;
  int err = 0, cause = 0;
};

inline std::optional<TestEvent> read_event(fid_eq *eq) {
  constexpr size_t kEntry = sizeof(fi_eq_cm_entry);
  alignas(fi_eq_cm_entry) char buffer[kEntry + 256];
  uint32_t type = 0;
  const ssize_t n = fi_eq_read(eq, &type, buffer, sizeof buffer, 0);
  if (n > 0) {
    const auto *const entry = reinterpret_cast<const fi_eq_cm_entry *>(buffer);
    return TestEvent{.type = type,
                     .fid = entry->fid,
                     .info = entry->info,
                     .data = std::string(buffer + kEntry, size_t(n) - kEntry)};
  }
  if (n != -FI_EAVAIL) return {};
  char text[256];
  fi_eq_err_entry error{};
  error.err_data = text;
  error.err_data_size = sizeof text;
  if (fi_eq_readerr(eq, &error, 0) < 0) return {};
  return TestEvent{.fid = error.fid,
                   .data = std::string(text, error.err_data_size),
                   .err = error.err,
                   .cause = error.prov_errno};
}

// What one side has, from the fabric to the endpoint.
class TestSide {
 public:
  TestSide(TestNode &node, const Settings &settings) : provider(&node.instance, settings) {}
  TestSide(const TestSide &) = delete;
  TestSide &operator=(const TestSide &) = delete;
  ~TestSide() {
    for (fid *object : {ep != nullptr ? &ep->fid : nullptr, srx != nullptr ? &srx->fid : nullptr,
                        pep != nullptr ? &pep->fid : nullptr})
      if (object != nullptr) {
        EXPECT_EQ(fi_close(object), 0);
      }
    for (fid *object :
         {cq != nullptr ? &cq->fid : nullptr, eq != nullptr ? &eq->fid : nullptr,
          domain != nullptr ? &domain->fid : nullptr, fabric != nullptr ? &fabric->fid : nullptr})
      if (object != nullptr) {
        EXPECT_EQ(fi_close(object), 0);
      }
    free_info(info);
  }

  // The first address of the node; `peer` empty: to listen.
  void open(const std::string &peer = "", const std::string &port = "") {
    fi_info hints{};
    hints.mode = FI_RX_CQ_DATA;
    hints.caps = caps;
    hints.addr_format = FI_SOCKADDR_IN;
    fi_ep_attr ep_attr{};
    ep_attr.protocol = protocol;
    hints.ep_attr = &ep_attr;
    const bool listens = peer.empty();
    open({.node = listens ? "10.99.0.1" : peer.c_str(),
          .service = listens ? "0" : port.c_str(),
          .flags = listens ? FI_SOURCE : 0,
          .hints = &hints});
  }
  void open(const sdk::GetinfoQuery &query) {
    auto list = provider.getinfo(query);
    ASSERT_TRUE(list) << list.error().text;
    info = list->release();
    // As the core gives it to an application that asked for none.
    info->tx_attr->op_flags = info->rx_attr->op_flags = 0;
    fi_fabric_attr attr{};
    attr.api_version = FI_VERSION(2, 6);
    fabric = provider.fabric(attr, nullptr).value();
    ASSERT_EQ(fi_domain(fabric, info, &domain, nullptr), 0) << test_log();
    fi_eq_attr eq_attr{};
    eq_attr.wait_obj = FI_WAIT_FD;
    ASSERT_EQ(fi_eq_open(fabric, &eq_attr, &eq, nullptr), 0);
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_DATA;
    cq_attr.wait_obj = FI_WAIT_FD;
    cq_attr.size = cq_size;
    ASSERT_EQ(fi_cq_open(domain, &cq_attr, &cq, nullptr), 0) << test_log();
    if (shares_receives) {
      ASSERT_EQ(fi_srx_context(domain, nullptr, &srx, nullptr), 0);
    }
  }
  void make_endpoint(fi_info *with) {
    if (tx_size != 0) with->tx_attr->size = tx_size;
    with->ep_attr->rx_ctx_cnt = shares_receives ? size_t(FI_SHARED_CONTEXT) : 1;
    ASSERT_EQ(fi_endpoint(domain, with, &ep, nullptr), 0) << test_log();
    ASSERT_EQ(fi_ep_bind(ep, &eq->fid, 0), 0);
    ASSERT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | selective), 0);
    if (srx != nullptr) {
      ASSERT_EQ(fi_ep_bind(ep, &srx->fid, 0), 0);
    }
    ASSERT_EQ(fi_enable(ep), 0) << test_log();
  }
  // Entries of the queue; errors are failures.
  std::optional<fi_cq_data_entry> try_completion() {
    fi_cq_data_entry entry{};
    const ssize_t n = fi_cq_read(cq, &entry, 1);
    if (n == 1) return entry;
    EXPECT_EQ(n, -FI_EAGAIN);
    return {};
  }
  fi_cq_data_entry completion() {
    const auto entry = try_completion();
    EXPECT_TRUE(entry) << "no completion";
    return entry.value_or(fi_cq_data_entry{});
  }
  fi_cq_err_entry failure() {
    fi_cq_data_entry entry{};
    fi_cq_err_entry error{};
    EXPECT_EQ(fi_cq_read(cq, &entry, 1), -FI_EAVAIL);
    EXPECT_EQ(fi_cq_readerr(cq, &error, 0), 1);
    return error;
  }
  std::optional<TestEvent> event() { return read_event(eq); }

  VerbsProvider provider;
  bool shares_receives = false;
  size_t tx_size = 0, cq_size = 0;
  uint64_t selective = 0, caps = 0;
  uint32_t protocol = FI_PROTO_UNSPEC;
  fi_info *info = nullptr;
  fid_fabric *fabric = nullptr;
  fid_domain *domain = nullptr;
  fid_eq *eq = nullptr;
  fid_cq *cq = nullptr;
  fid_ep *srx = nullptr, *ep = nullptr;
  fid_pep *pep = nullptr;
};

// Registered memory.
class Buffer {
 public:
  Buffer(TestSide &side, size_t size, const std::string &content = "") : bytes_(size) {
    std::memcpy(bytes_.data(), content.data(), content.size());
    const uint64_t all = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    EXPECT_EQ(fi_mr_reg(side.domain, bytes_.data(), size, all, 0, 0, 0, &mr_, nullptr), 0)
        << test_log();
  }
  ~Buffer() { EXPECT_EQ(fi_close(&mr_->fid), 0); }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  char *data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  void *desc() const { return fi_mr_desc(mr_); }
  uint64_t key() const { return fi_mr_key(mr_); }
  uint64_t address() const { return reinterpret_cast<uintptr_t>(bytes_.data()); }
  std::string text(size_t n) const { return {bytes_.data(), n}; }

 private:
  std::vector<char> bytes_;
  fid_mr *mr_ = nullptr;
};

struct LinkOptions {
  verbs_double::NetworkOptions network{};
  verbs_double::DeviceOptions device{};
  Settings settings{};
  bool shares_receives = false;
  size_t tx_size = 0, cq_size = 0;
  uint64_t selective = 0;
  uint64_t caps = 0;  // of the hints
};

// Side b listens, side a connects.
class Link {
 public:
  explicit Link(const LinkOptions &options = {}, bool connects = true)
      : node(options.network, options.device),
        a(node, options.settings),
        b(node, options.settings) {
    for (TestSide *side : {&a, &b}) {
      side->shares_receives = options.shares_receives;
      side->tx_size = options.tx_size;
      side->cq_size = options.cq_size;
      side->selective = options.selective;
      side->caps = options.caps;
    }
    b.open();
    listen();
    if (!connects) return;
    start("to b");
    accept("to a");
  }

  void listen() {
    ASSERT_EQ(fi_passive_ep(b.fabric, b.info, &b.pep, nullptr), 0) << test_log();
    ASSERT_EQ(fi_pep_bind(b.pep, &b.eq->fid, 0), 0);
    ASSERT_EQ(fi_listen(b.pep), 0) << test_log();
    size_t size = sizeof address;
    ASSERT_EQ(fi_getname(&b.pep->fid, &address, &size), 0);
    ASSERT_NE(ntohs(address.sin_port), 0);
  }
  void start(const std::string &parameter) {
    a.open("10.99.0.1", std::to_string(ntohs(address.sin_port)));
    a.make_endpoint(a.info);
    ASSERT_EQ(fi_connect(a.ep, &address, parameter.data(), parameter.size()), 0) << test_log();
  }
  // The request at b.
  TestEvent requested() {
    for (int i = 0; i < 8; ++i) {
      EXPECT_FALSE(a.event());  // makes the progress of a's side
      if (auto event = b.event()) {
        EXPECT_EQ(event->type, uint32_t(FI_CONNREQ));
        return *event;
      }
    }
    ADD_FAILURE() << "no request: " << test_log();
    return {};
  }
  void accept(const std::string &parameter) {
    const TestEvent request = requested();
    ASSERT_NE(request.info, nullptr);
    b.make_endpoint(request.info);
    free_info(request.info);
    ASSERT_EQ(fi_accept(b.ep, parameter.data(), parameter.size()), 0) << test_log();
    connected_a = next(a);
    connected_b = next(b);
    ASSERT_EQ(connected_a.type, uint32_t(FI_CONNECTED)) << test_log();
    ASSERT_EQ(connected_b.type, uint32_t(FI_CONNECTED)) << test_log();
  }
  TestEvent next(TestSide &side) {
    for (int i = 0; i < 8; ++i) {
      if (auto event = side.event()) return *event;
      TestSide &other = &side == &a ? b : a;
      if (other.eq != nullptr) fi_cq_read(other.cq, nullptr, 0);
    }
    ADD_FAILURE() << "no event: " << test_log();
    return {};
  }

  TestNode node;
  TestSide a, b;
  sockaddr_in address{};
  TestEvent connected_a, connected_b;
};

}  // namespace weft::verbs

#endif
