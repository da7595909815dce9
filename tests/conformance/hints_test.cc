// SPDX-License-Identifier: BSD-2-Clause
// What fi_getinfo answers to one hint at a time, on every stack, against a table (hints.txt). What
// weft answers today it must always answer, and also what stock libfabric answers.
// WEFT_TEST_WRITE=FILE writes the answers of the library under test as such a table.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/common.h"
#include "tests/paths.h"

namespace weft::conformance {
namespace {

struct Value {
  const char *name;
  uint64_t value;
};
#define V(x) \
  { #x, uint64_t(x) }

struct Set {
  std::string name;
  std::function<void(fi_info &)> change;
  uint32_t api = FI_VERSION(2, 6);
};

// A hint that may have any of the values.
void each(std::vector<Set> &sets, const char *field, const std::vector<Value> &values,
          void (*set)(fi_info &, uint64_t)) {
  for (const Value &value : values)
    sets.push_back({std::string(field) + " " + value.name,
                    [set, v = value.value](fi_info &hints) { set(hints, v); }});
}
void each(std::vector<Set> &sets, const char *field, const std::vector<uint64_t> &values,
          void (*set)(fi_info &, uint64_t)) {
  for (const uint64_t value : values)
    sets.push_back({std::string(field) + " " + std::to_string(value),
                    [set, value](fi_info &hints) { set(hints, value); }});
}

void add_flags(std::vector<Set> &sets) {
  const std::vector<Value> caps = {
      V(FI_MSG),         V(FI_RMA),           V(FI_TAGGED),    V(FI_ATOMIC),     V(FI_MULTICAST),
      V(FI_COLLECTIVE),  V(FI_MULTI_RECV),    V(FI_RMA_PMEM),  V(FI_SOURCE_ERR), V(FI_LOCAL_COMM),
      V(FI_REMOTE_COMM), V(FI_SHARED_AV),     V(FI_RMA_EVENT), V(FI_SOURCE),     V(FI_NAMED_RX_CTX),
      V(FI_FENCE),       V(FI_DIRECTED_RECV), V(FI_TRIGGER),   V(FI_HMEM),       V(FI_AV_USER_ID),
      V(FI_PEER),        V(FI_VARIABLE_MSG)};
  each(sets, "caps", caps, [](fi_info &h, uint64_t v) { h.caps = v; });
  each(sets, "caps FI_MSG and", caps, [](fi_info &h, uint64_t v) { h.caps = FI_MSG | v; });
  const std::vector<Value> orders = {
      V(FI_ORDER_RAR),       V(FI_ORDER_RAW),        V(FI_ORDER_RAS),        V(FI_ORDER_WAR),
      V(FI_ORDER_WAW),       V(FI_ORDER_WAS),        V(FI_ORDER_SAR),        V(FI_ORDER_SAW),
      V(FI_ORDER_SAS),       V(FI_ORDER_RMA_RAR),    V(FI_ORDER_RMA_RAW),    V(FI_ORDER_RMA_WAR),
      V(FI_ORDER_RMA_WAW),   V(FI_ORDER_ATOMIC_RAR), V(FI_ORDER_ATOMIC_RAW), V(FI_ORDER_ATOMIC_WAR),
      V(FI_ORDER_ATOMIC_WAW)};
  each(sets, "tx_attr.msg_order", orders, [](fi_info &h, uint64_t v) { h.tx_attr->msg_order = v; });
  each(sets, "with atomics, tx_attr.msg_order", orders, [](fi_info &h, uint64_t v) {
    h.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
    h.tx_attr->msg_order = v;
  });
  each(sets, "rx_attr.msg_order", orders, [](fi_info &h, uint64_t v) { h.rx_attr->msg_order = v; });
  const std::vector<Value> flags = {V(FI_INJECT),
                                    V(FI_COMPLETION),
                                    V(FI_INJECT_COMPLETE),
                                    V(FI_TRANSMIT_COMPLETE),
                                    V(FI_DELIVERY_COMPLETE),
                                    V(FI_COMMIT_COMPLETE),
                                    V(FI_MATCH_COMPLETE),
                                    V(FI_MULTI_RECV),
                                    V(FI_MORE)};
  each(sets, "tx_attr.op_flags", flags, [](fi_info &h, uint64_t v) { h.tx_attr->op_flags = v; });
  each(sets, "rx_attr.op_flags", flags, [](fi_info &h, uint64_t v) { h.rx_attr->op_flags = v; });
  each(sets, "domain_attr.caps",
       {V(FI_LOCAL_COMM), V(FI_REMOTE_COMM), V(FI_SHARED_AV), V(FI_AV_USER_ID), V(FI_PEER),
        V(FI_DIRECTED_RECV)},
       [](fi_info &h, uint64_t v) { h.domain_attr->caps = v; });
  each(sets, "mode", std::vector<Value>{V(FI_CONTEXT), V(FI_MSG_PREFIX), V(FI_CONTEXT2)},
       [](fi_info &h, uint64_t v) { h.mode = v; });
  each(sets, "mr_mode",
       {{"none", 0},
        {"FI_MR_BASIC", 1},
        {"FI_MR_SCALABLE", 2},
        V(FI_MR_PROV_KEY),
        V(FI_MR_VIRT_ADDR),
        V(FI_MR_MMU_NOTIFY)},
       [](fi_info &h, uint64_t v) { h.domain_attr->mr_mode = int(v); });
}

void add_choices(std::vector<Set> &sets) {
  each(sets, "threading",
       {V(FI_THREAD_UNSPEC), V(FI_THREAD_SAFE), V(FI_THREAD_DOMAIN), V(FI_THREAD_COMPLETION),
        V(FI_THREAD_FID), V(FI_THREAD_ENDPOINT)},
       [](fi_info &h, uint64_t v) { h.domain_attr->threading = static_cast<fi_threading>(v); });
  each(sets, "progress",
       std::vector<Value>{V(FI_PROGRESS_AUTO), V(FI_PROGRESS_MANUAL),
                          V(FI_PROGRESS_CONTROL_UNIFIED)},
       [](fi_info &h, uint64_t v) {
         h.domain_attr->control_progress = h.domain_attr->data_progress =
             static_cast<fi_progress>(v);
       });
  each(sets, "av_type", std::vector<Value>{V(FI_AV_MAP), V(FI_AV_TABLE)},
       [](fi_info &h, uint64_t v) { h.domain_attr->av_type = static_cast<fi_av_type>(v); });
  each(sets, "resource_mgmt", std::vector<Value>{V(FI_RM_DISABLED), V(FI_RM_ENABLED)},
       [](fi_info &h, uint64_t v) {
         h.domain_attr->resource_mgmt = static_cast<fi_resource_mgmt>(v);
       });
  each(sets, "addr_format",
       {V(FI_FORMAT_UNSPEC), V(FI_SOCKADDR), V(FI_SOCKADDR_IN), V(FI_SOCKADDR_IN6), V(FI_ADDR_STR),
        V(FI_SOCKADDR_IP)},
       [](fi_info &h, uint64_t v) { h.addr_format = uint32_t(v); });
}

void add_sizes(std::vector<Set> &sets) {
  const std::vector<uint64_t> sizes = {1, 64, 128, 256, 1024, 1472, 4096, 16384, 65536, 1 << 20};
  each(sets, "inject_size", sizes, [](fi_info &h, uint64_t v) { h.tx_attr->inject_size = v; });
  each(sets, "tx_attr.size", sizes, [](fi_info &h, uint64_t v) { h.tx_attr->size = v; });
  each(sets, "rx_attr.size", sizes, [](fi_info &h, uint64_t v) { h.rx_attr->size = v; });
  each(sets, "total_buffered_recv", sizes,
       [](fi_info &h, uint64_t v) { h.rx_attr->total_buffered_recv = v; });
  each(sets, "mr_cnt", sizes, [](fi_info &h, uint64_t v) { h.domain_attr->mr_cnt = v; });
  each(sets, "ep_cnt", sizes, [](fi_info &h, uint64_t v) { h.domain_attr->ep_cnt = v; });
  each(sets, "cq_cnt", sizes, [](fi_info &h, uint64_t v) { h.domain_attr->cq_cnt = v; });
  const std::vector<uint64_t> huge = {UINT64_C(1) << 62, UINT64_C(1) << 63, UINT64_MAX};
  std::vector<uint64_t> messages = sizes;
  messages.insert(messages.end(), huge.begin(), huge.end());
  each(sets, "max_msg_size", messages, [](fi_info &h, uint64_t v) { h.ep_attr->max_msg_size = v; });
  each(sets, "max_order_raw_size", huge, [](fi_info &h, uint64_t v) {
    h.ep_attr->max_order_raw_size = v;
    h.tx_attr->msg_order = FI_ORDER_RAW;
  });
}

void add_counts(std::vector<Set> &sets) {
  const std::vector<uint64_t> few = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  each(sets, "tx_attr.iov_limit", few, [](fi_info &h, uint64_t v) { h.tx_attr->iov_limit = v; });
  each(sets, "rx_attr.iov_limit", few, [](fi_info &h, uint64_t v) { h.rx_attr->iov_limit = v; });
  each(sets, "rma_iov_limit", few, [](fi_info &h, uint64_t v) { h.tx_attr->rma_iov_limit = v; });
  each(sets, "cq_data_size", few, [](fi_info &h, uint64_t v) { h.domain_attr->cq_data_size = v; });
  each(sets, "mr_key_size", few, [](fi_info &h, uint64_t v) { h.domain_attr->mr_key_size = v; });
  each(sets, "tx_ctx_cnt", few, [](fi_info &h, uint64_t v) { h.ep_attr->tx_ctx_cnt = v; });
  each(sets, "rx_ctx_cnt", few, [](fi_info &h, uint64_t v) { h.ep_attr->rx_ctx_cnt = v; });
  sets.push_back(
      {"tx_ctx_cnt shared", [](fi_info &h) { h.ep_attr->tx_ctx_cnt = size_t(FI_SHARED_CONTEXT); }});
  sets.push_back(
      {"rx_ctx_cnt shared", [](fi_info &h) { h.ep_attr->rx_ctx_cnt = size_t(FI_SHARED_CONTEXT); }});
}

void add_versions(std::vector<Set> &sets) {
  for (const auto &[major, minor] :
       {std::pair{1, 0}, {1, 4}, {1, 5}, {1, 9}, {1, 17}, {1, 21}, {2, 0}, {2, 6}, {2, 7}})
    for (const int bits : {0, 1})
      sets.push_back({"API " + std::to_string(major) + "." + std::to_string(minor) +
                          (bits != 0 ? ", FI_MR_BASIC" : ", mr_mode none"),
                      [bits](fi_info &h) { h.domain_attr->mr_mode = bits; },
                      uint32_t(FI_VERSION(major, minor))});
}

std::vector<Set> all_sets() {
  std::vector<Set> sets;
  for (const auto add : {add_flags, add_choices, add_sizes, add_counts, add_versions}) add(sets);
  return sets;
}

constexpr struct {
  const char *name, *provider;
  enum fi_ep_type type;
} kStacks[] = {{"tcp msg", "tcp", FI_EP_MSG},
               {"tcp rdm", "tcp", FI_EP_RDM},
               {"tcp;ofi_rxm rdm", "tcp;ofi_rxm", FI_EP_RDM},
               {"udp dgram", "udp", FI_EP_DGRAM},
               {"udp;ofi_rxd rdm", "udp;ofi_rxd", FI_EP_RDM}};

// fi_getinfo.3: what is returned is at least what the hints ask for.
void expect_no_less(const fi_info &asked, const fi_info &info, const std::string &set) {
  const struct {
    const char *field;
    uint64_t asked, returned;
  } all[] = {
#define LEAST(field) {#field, asked.field, info.field}
      LEAST(tx_attr->inject_size),
      LEAST(tx_attr->size),
      LEAST(tx_attr->iov_limit),
      LEAST(tx_attr->rma_iov_limit),
      LEAST(rx_attr->size),
      LEAST(rx_attr->iov_limit),
      LEAST(ep_attr->max_msg_size),
      LEAST(ep_attr->max_order_raw_size),
      LEAST(ep_attr->max_order_war_size),
      LEAST(ep_attr->max_order_waw_size),
      LEAST(ep_attr->tx_ctx_cnt),
      LEAST(ep_attr->rx_ctx_cnt),
      LEAST(domain_attr->cq_data_size),
      LEAST(domain_attr->cq_cnt),
      LEAST(domain_attr->ep_cnt),
      LEAST(domain_attr->tx_ctx_cnt),
      LEAST(domain_attr->rx_ctx_cnt),
      LEAST(domain_attr->max_ep_tx_ctx),
      LEAST(domain_attr->max_ep_rx_ctx),
      LEAST(domain_attr->max_ep_stx_ctx),
      LEAST(domain_attr->max_ep_srx_ctx),
      LEAST(domain_attr->cntr_cnt),
      LEAST(domain_attr->mr_iov_limit),
      LEAST(domain_attr->mr_cnt),
      LEAST(domain_attr->max_err_data),
      LEAST(domain_attr->max_cntr_value),
      LEAST(domain_attr->max_err_cntr_value),
#undef LEAST
  };
  for (const auto &one : all) EXPECT_GE(one.returned, one.asked) << set << ": " << one.field;
  for (const auto &[wanted, returned] : {std::pair{asked.tx_attr->op_flags, info.tx_attr->op_flags},
                                         {asked.rx_attr->op_flags, info.rx_attr->op_flags},
                                         {asked.tx_attr->msg_order, info.tx_attr->msg_order},
                                         {asked.rx_attr->msg_order, info.rx_attr->msg_order},
                                         {asked.caps, info.caps}})
    EXPECT_EQ(wanted & ~returned, 0u) << set;
}

std::map<std::string, bool> ask_all() {
  std::map<std::string, bool> answers;
  for (const auto &stack : kStacks) {
    for (const Set &set : all_sets()) {
      fi_info *hints = fi_allocinfo(), *found = nullptr;
      hints->fabric_attr->prov_name = strdup(stack.provider);
      hints->ep_attr->type = stack.type;
      hints->mode = ~UINT64_C(0);
      hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_ALLOCATED |
                                    FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_RAW;
      set.change(*hints);
      const int rc = fi_getinfo(set.api, nullptr, nullptr, 0, hints, &found);
      answers[std::string(stack.name) + ": " + set.name] = rc == 0;
      EXPECT_EQ(rc == 0, found != nullptr) << set.name;
      for (const fi_info *one = found; one != nullptr; one = one->next)
        expect_no_less(*hints, *one, std::string(stack.name) + ": " + set.name);
      fi_freeinfo(found);
      fi_freeinfo(hints);
    }
  }
  return answers;
}

// Each line: "yes" or "no" from us, the same from stock 2.6.0, and the set.
TEST(Hints, AreAnsweredAsTheTableSays) {
  const auto answers = ask_all();
  if (const char *path = getenv("WEFT_TEST_WRITE")) {
    std::ofstream out(path);
    for (const auto &[name, answered] : answers) out << (answered ? "yes " : "no ") << name << "\n";
    GTEST_SKIP() << "written";
  }
  const std::string path = test::source("tests/conformance/hints.txt");
  std::ifstream table(path);
  ASSERT_TRUE(table) << path;
  size_t lines = 0;
  for (std::string ours, stock, name; table >> ours >> stock && std::getline(table, name);) {
    name.erase(0, 1);
    ++lines;
    if (name.find("FI_SOCKADDR_IN6") != std::string::npos && !have_ipv6_loopback()) continue;
    const auto at = answers.find(name);
    ASSERT_NE(at, answers.end()) << name;
    EXPECT_EQ(at->second, ours == "yes") << name;
    EXPECT_TRUE(stock == "no" || at->second) << "stock answers: " << name;
  }
  EXPECT_EQ(lines, answers.size()) << "sets that the table lacks";
}

// A source that is all addresses of the host, by the call or by the hints, with a port or with any.
TEST(Hints, WildcardSourcesAreAnswered) {
  const struct {
    const char *node, *service;
    uint16_t port;
  } calls[] = {{nullptr, "0", 0},       {nullptr, "", 0},    {nullptr, "7471", 7471},
               {"0.0.0.0", nullptr, 0}, {"0.0.0.0", "0", 0}, {"0.0.0.0", "7471", 7471},
               {"::", nullptr, 0},      {"::", "0", 0},      {"::", "7471", 7471}};
  const auto expect_any = [](const fi_info &info, uint16_t port) {
    sockaddr_in6 source{};
    ASSERT_NE(info.src_addr, nullptr);
    std::memcpy(&source, info.src_addr, std::min(info.src_addrlen, sizeof source));
    EXPECT_EQ(ntohs(source.sin6_port), port);  // at the same place in a sockaddr_in
    const auto &in = reinterpret_cast<const sockaddr_in &>(source);
    EXPECT_TRUE(source.sin6_family == AF_INET ? in.sin_addr.s_addr == INADDR_ANY
                                              : IN6_IS_ADDR_UNSPECIFIED(&source.sin6_addr));
  };
  for (const auto &stack : kStacks) {
    const Info hints(fi_allocinfo());
    hints->fabric_attr->prov_name = strdup(stack.provider);
    hints->ep_attr->type = stack.type;
    for (const auto &call : calls) {
      SCOPED_TRACE(std::string(stack.name) + ": " + (call.node != nullptr ? call.node : "no node") +
                   ", " + (call.service != nullptr ? call.service : "no service"));
      if (call.node != nullptr && call.node[0] == ':' && !have_ipv6_loopback()) continue;
      Info found;
      ASSERT_EQ(try_info(found, call.node, call.service, FI_SOURCE, hints.get()), 0);
      expect_any(*found, call.port);
    }
    SCOPED_TRACE(std::string(stack.name) + ": hints");
    auto *const any = static_cast<sockaddr_in *>(std::calloc(1, sizeof(sockaddr_in)));
    any->sin_family = AF_INET;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->src_addr = any;
    hints->src_addrlen = sizeof *any;
    Info found;
    ASSERT_EQ(try_info(found, nullptr, nullptr, 0, hints.get()), 0);
    expect_any(*found, 0);
  }
}

// Programs that choose among all that there is, MPICH for one, take the first entry that has what
// they want. Without hints that is an unconnected endpoint of the provider itself, as with stock:
// the layer has atomics only for applications that ask for them.
TEST(Hints, WithoutHintsTheProviderComesBeforeItsLayer) {
  fi_info *all = nullptr;
  ASSERT_EQ(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, nullptr, &all), 0);
  std::vector<std::string> order;
  for (const fi_info *info = all; info != nullptr; info = info->next) {
    const std::string provider = info->fabric_attr->prov_name;
    if (!provider.starts_with("tcp")) continue;
    const std::string name = provider + (info->ep_attr->type == FI_EP_RDM ? " rdm" : " msg");
    if (order.empty() || order.back() != name) order.push_back(name);
    if (provider == "tcp;ofi_rxm") {
      EXPECT_EQ(info->caps & FI_ATOMIC, 0u);
    }
  }
  fi_freeinfo(all);
  ASSERT_FALSE(order.empty());
  EXPECT_EQ(order[0], "tcp rdm");

  fi_info *hints = fi_allocinfo();
  hints->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
  hints->caps = FI_MSG | FI_ATOMIC;
  hints->domain_attr->mr_mode = FI_MR_PROV_KEY;
  ASSERT_EQ(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &all), 0);
  EXPECT_NE(all->caps & FI_ATOMIC, 0u);
  fi_freeinfo(all);
  fi_freeinfo(hints);
}

}  // namespace
}  // namespace weft::conformance
