// SPDX-License-Identifier: BSD-2-Clause
// For tests of datagram endpoints: endpoints of one process over the double, each with a fabric,
// domain, queue and address vector of its own.
//
// Example:
//    void send_hello() {
//      TestNode node;
//      DatagramSide a(node), b(node);
//      const fi_addr_t to_b = a.insert(b);
//      DatagramBuffer in(b, 100), out(a, 100, "hello");
//      ASSERT_EQ(fi_recv(b.ep, in.start(), in.size(), in.desc(), 0, nullptr), 0);
//      ASSERT_EQ(fi_send(a.ep, out.start(), out.length(5), out.desc(), to_b, nullptr), 0);
//      EXPECT_EQ(in.text(5), "hello");
//    }
//
// Not for connected endpoints: test_link.h.
#ifndef WEFT_PLUGINS_VERBS_TEST_DATAGRAMS_H
#define WEFT_PLUGINS_VERBS_TEST_DATAGRAMS_H

#include <gtest/gtest.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "plugins/verbs/datagram_name.h"
#include "plugins/verbs/provider.h"
#include "plugins/verbs/test_node.h"

namespace weft::verbs {

struct DatagramOptions {
  Settings settings{};
  uint64_t caps = 0;  // 0: as the core gives them to an application that asks for none
  uint64_t selective = 0;
  bool enables = true;
  bool binds_eq = true;
};

class DatagramSide {
 public:
  explicit DatagramSide(TestNode &node, const DatagramOptions &options = {})
      : provider(&node.instance, options.settings) {
    open(options);
  }
  DatagramSide(const DatagramSide &) = delete;
  DatagramSide &operator=(const DatagramSide &) = delete;
  ~DatagramSide() {
    close_endpoint();
    for (fid *object :
         {av != nullptr ? &av->fid : nullptr, cq != nullptr ? &cq->fid : nullptr,
          eq != nullptr ? &eq->fid : nullptr, domain != nullptr ? &domain->fid : nullptr,
          fabric != nullptr ? &fabric->fid : nullptr})
      if (object != nullptr) {
        EXPECT_EQ(fi_close(object), 0);
      }
    free_info(info);
  }
  void close_endpoint() {
    if (ep != nullptr) {
      EXPECT_EQ(fi_close(&ep->fid), 0);
    }
    ep = nullptr;
  }

  DatagramName name() const {
    DatagramName result{};
    size_t size = sizeof result;
    EXPECT_EQ(fi_getname(&ep->fid, &result, &size), 0);
    EXPECT_EQ(size, sizeof result);
    return result;
  }
  fi_addr_t insert(const DatagramName &name) {
    fi_addr_t address = FI_ADDR_UNSPEC;
    EXPECT_EQ(fi_av_insert(av, &name, 1, &address, 0, nullptr), 1);
    return address;
  }
  fi_addr_t insert(const DatagramSide &peer) { return insert(peer.name()); }

  struct Received {
    fi_cq_data_entry entry;
    fi_addr_t source;
  };
  std::optional<Received> try_completion() {
    Received result{};
    const ssize_t n = fi_cq_readfrom(cq, &result.entry, 1, &result.source);
    if (n == 1) return result;
    EXPECT_EQ(n, -FI_EAGAIN);
    return {};
  }
  Received completion() {
    const auto entry = try_completion();
    EXPECT_TRUE(entry) << "no completion";
    return entry.value_or(Received{});
  }
  fi_cq_err_entry failure() {
    fi_cq_data_entry entry{};
    fi_cq_err_entry error{};
    EXPECT_EQ(fi_cq_read(cq, &entry, 1), -FI_EAVAIL);
    EXPECT_EQ(fi_cq_readerr(cq, &error, 0), 1);
    return error;
  }

  VerbsProvider provider;
  fi_info *info = nullptr;
  fid_fabric *fabric = nullptr;
  fid_domain *domain = nullptr;
  fid_eq *eq = nullptr;
  fid_cq *cq = nullptr;
  fid_av *av = nullptr;
  fid_ep *ep = nullptr;

 private:
  void open(const DatagramOptions &options) {
    fi_info hints{};
    hints.mode = FI_MSG_PREFIX;
    hints.addr_format = FI_ADDR_IB_UD;
    auto list = provider.getinfo({.hints = &hints});
    ASSERT_TRUE(list) << list.error().text;
    info = list->release();
    ASSERT_EQ(info->ep_attr->type, FI_EP_DGRAM);
    info->tx_attr->op_flags = info->rx_attr->op_flags = 0;
    if (options.caps != 0) info->caps = options.caps;
    fi_fabric_attr attr{};
    attr.api_version = FI_VERSION(2, 6);
    fabric = provider.fabric(attr, nullptr).value();
    ASSERT_EQ(fi_domain(fabric, info, &domain, nullptr), 0) << test_log();
    fi_eq_attr eq_attr{};
    ASSERT_EQ(fi_eq_open(fabric, &eq_attr, &eq, nullptr), 0);
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_DATA;
    cq_attr.wait_obj = FI_WAIT_FD;
    ASSERT_EQ(fi_cq_open(domain, &cq_attr, &cq, nullptr), 0) << test_log();
    fi_av_attr av_attr{};
    ASSERT_EQ(fi_av_open(domain, &av_attr, &av, nullptr), 0) << test_log();
    make_endpoint(options);
  }
  void make_endpoint(const DatagramOptions &options) {
    ASSERT_EQ(fi_endpoint(domain, info, &ep, nullptr), 0) << test_log();
    ASSERT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | options.selective), 0);
    ASSERT_EQ(fi_ep_bind(ep, &av->fid, 0), 0);
    if (options.binds_eq) {
      ASSERT_EQ(fi_ep_bind(ep, &eq->fid, 0), 0);
    }
    if (options.enables) {
      ASSERT_EQ(fi_enable(ep), 0) << test_log();
    }
  }
};

// Registered memory: room for the prefix, then a message.
class DatagramBuffer {
 public:
  DatagramBuffer(DatagramSide &side, size_t size, const std::string &content = "")
      : bytes_(kDatagramHeader + size) {
    std::memcpy(bytes_.data() + kDatagramHeader, content.data(), content.size());
    EXPECT_EQ(fi_mr_reg(side.domain, bytes_.data(), bytes_.size(), FI_SEND | FI_RECV, 0, 0, 0, &mr_,
                        nullptr),
              0)
        << test_log();
  }
  ~DatagramBuffer() { EXPECT_EQ(fi_close(&mr_->fid), 0); }
  DatagramBuffer(const DatagramBuffer &) = delete;
  DatagramBuffer &operator=(const DatagramBuffer &) = delete;
  char *start() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  // Of a call that sends `bytes`.
  static size_t length(size_t bytes) { return kDatagramHeader + bytes; }
  void *desc() const { return fi_mr_desc(mr_); }
  std::string text(size_t n) const { return {bytes_.data() + kDatagramHeader, n}; }

 private:
  std::vector<char> bytes_;
  fid_mr *mr_ = nullptr;
};

}  // namespace weft::verbs

#endif
