// SPDX-License-Identifier: BSD-2-Clause
// Statements about fi_getinfo that hold on every stack (fi_getinfo.3, fi_endpoint.3), as tables:
// the name of a row stands in promises.toml behind the name of its test.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <thread>

#include "tests/conformance/promises/asked.h"

namespace weft::conformance::promises {
namespace {

constexpr uint64_t kOfReceives = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_DIRECTED_RECV |
                                 FI_MULTI_RECV | FI_SOURCE | FI_SOURCE_ERR | FI_RMA_EVENT |
                                 FI_VARIABLE_MSG;
constexpr uint64_t kOfTransmits = FI_SEND | FI_READ | FI_WRITE | FI_FENCE | FI_NAMED_RX_CTX;
constexpr uint64_t kOut = FI_SEND | FI_READ | FI_WRITE;
constexpr uint64_t kIn = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;

bool within(uint64_t part, uint64_t all) {
  return (part & ~all) == 0;
}
bool orders(const fi_info &i, uint64_t any) {
  return ((i.tx_attr->msg_order | i.rx_attr->msg_order) & any) != 0;
}

struct Rule {
  std::string_view name;
  bool (*holds)(const fi_info &);
};
constexpr Rule kRules[] = {
    {"tx_caps_are_the_endpoints", [](const fi_info &i) { return within(i.tx_attr->caps, i.caps); }},
    {"rx_caps_are_the_endpoints", [](const fi_info &i) { return within(i.rx_attr->caps, i.caps); }},
    {"tx_caps_are_of_transmits",
     [](const fi_info &i) { return (i.tx_attr->caps & kOfReceives) == 0; }},
    {"rx_caps_are_of_receives",
     [](const fi_info &i) { return (i.rx_attr->caps & kOfTransmits) == 0; }},
    {"tx_mode_is_the_endpoints", [](const fi_info &i) { return within(i.tx_attr->mode, i.mode); }},
    {"rx_mode_is_the_endpoints", [](const fi_info &i) { return within(i.rx_attr->mode, i.mode); }},
    {"no_prefix_without_its_mode",
     [](const fi_info &i) { return (i.mode & FI_MSG_PREFIX) || i.ep_attr->msg_prefix_size == 0; }},
    {"prefix_is_of_eight_bytes",
     [](const fi_info &i) { return i.ep_attr->msg_prefix_size % 8 == 0; }},
    {"addresses_have_lengths",
     [](const fi_info &i) {
       return (i.src_addr == nullptr) == (i.src_addrlen == 0) &&
              (i.dest_addr == nullptr) == (i.dest_addrlen == 0);
     }},
    {"a_transmit_context",
     [](const fi_info &i) { return !(i.caps & kOut) || i.ep_attr->tx_ctx_cnt >= 1; }},
    {"a_receive_context",
     [](const fi_info &i) { return !(i.caps & kIn) || i.ep_attr->rx_ctx_cnt >= 1; }},
    {"not_shared_unasked",
     [](const fi_info &i) {
       return i.ep_attr->tx_ctx_cnt != FI_SHARED_CONTEXT &&
              i.ep_attr->rx_ctx_cnt != FI_SHARED_CONTEXT;
     }},
    {"raw_size_needs_its_order",
     [](const fi_info &i) {
       return i.ep_attr->max_order_raw_size == 0 ||
              orders(i, FI_ORDER_RAW | FI_ORDER_RMA_RAW | FI_ORDER_ATOMIC_RAW);
     }},
    {"war_size_needs_its_order",
     [](const fi_info &i) {
       return i.ep_attr->max_order_war_size == 0 ||
              orders(i, FI_ORDER_WAR | FI_ORDER_RMA_WAR | FI_ORDER_ATOMIC_WAR);
     }},
    {"waw_size_needs_its_order",
     [](const fi_info &i) {
       return i.ep_attr->max_order_waw_size == 0 ||
              orders(i, FI_ORDER_WAW | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_WAW);
     }},
    {"no_key_no_length",
     [](const fi_info &i) {
       return i.ep_attr->auth_key != nullptr || i.ep_attr->auth_key_size == 0 ||
              i.ep_attr->auth_key_size == FI_AV_AUTH_KEY;
     }},
    {"no_handle_unasked", [](const fi_info &i) { return i.handle == nullptr; }},
    {"no_open_objects",
     [](const fi_info &i) {
       return i.fabric_attr->fabric == nullptr && i.domain_attr->domain == nullptr;
     }},
    {"fabric_and_domain_have_names",
     [](const fi_info &i) {
       return i.fabric_attr->name != nullptr && i.fabric_attr->prov_name != nullptr &&
              i.domain_attr->name != nullptr;
     }},
    {"type_and_protocol_are_said",
     [](const fi_info &i) {
       return i.ep_attr->type != FI_EP_UNSPEC && i.ep_attr->protocol != FI_PROTO_UNSPEC;
     }},
    {"format_is_said", [](const fi_info &i) { return i.addr_format != FI_FORMAT_UNSPEC; }},
    {"tags_have_a_format",
     [](const fi_info &i) { return !(i.caps & FI_TAGGED) || i.ep_attr->mem_tag_format != 0; }},
    {"inject_fits_a_message",
     [](const fi_info &i) { return i.tx_attr->inject_size <= i.ep_attr->max_msg_size; }},
    {"vectors_have_a_place",
     [](const fi_info &i) {
       return (!(i.caps & kOut) || i.tx_attr->iov_limit >= 1) &&
              (!(i.caps & FI_RECV) || i.rx_attr->iov_limit >= 1);
     }},
    {"remote_vectors_have_a_place",
     [](const fi_info &i) {
       return !(i.caps & (FI_READ | FI_WRITE)) || i.tx_attr->rma_iov_limit >= 1;
     }},
    {"queues_have_a_size",
     [](const fi_info &i) {
       return (!(i.caps & kOut) || i.tx_attr->size >= 1) &&
              (!(i.caps & FI_RECV) || i.rx_attr->size >= 1);
     }},
    {"local_or_remote",
     [](const fi_info &i) {
       return ((i.caps | i.domain_attr->caps) & (FI_LOCAL_COMM | FI_REMOTE_COMM)) != 0;
     }},
    {"contexts_within_the_domain",
     [](const fi_info &i) {
       return i.ep_attr->tx_ctx_cnt <= std::max<size_t>(1, i.domain_attr->max_ep_tx_ctx) &&
              i.ep_attr->rx_ctx_cnt <= std::max<size_t>(1, i.domain_attr->max_ep_rx_ctx);
     }},
    {"threading_and_progress_are_said",
     [](const fi_info &i) {
       return i.domain_attr->threading != FI_THREAD_UNSPEC &&
              i.domain_attr->data_progress != FI_PROGRESS_UNSPEC &&
              i.domain_attr->control_progress != FI_PROGRESS_UNSPEC &&
              i.domain_attr->resource_mgmt != FI_RM_UNSPEC;
     }},
};

void for_each_entry(const Info &list, const std::function<void(const fi_info &)> &check) {
  for (const fi_info *i = list.get(); i != nullptr; i = i->next) {
    if (std::string_view(i->fabric_attr->prov_name).starts_with(stack())) check(*i);
  }
}

Info offers_of(uint64_t caps) {
  Options wanted = options();
  wanted.caps = caps;
  Info list;
  try_info(list, wanted.node.c_str(), nullptr, 0, make_hints(wanted).get());
  return list;
}

TEST(PromisesOffer, EveryEntryKeepsTheRules) {
  covers("fi_getinfo");
  constexpr uint64_t kAsked[] = {0,
                                 FI_MSG,
                                 FI_MSG | FI_SEND,
                                 FI_MSG | FI_RECV,
                                 FI_MSG | FI_RMA,
                                 FI_MSG | FI_TAGGED,
                                 FI_RMA | FI_READ,
                                 FI_RMA | FI_REMOTE_WRITE,
                                 FI_ATOMIC,
                                 FI_MSG | FI_MULTI_RECV,
                                 FI_MSG | FI_SOURCE,
                                 FI_MSG | FI_SOURCE | FI_SOURCE_ERR,
                                 FI_MSG | FI_FENCE,
                                 FI_MSG | FI_MULTICAST,
                                 FI_RMA | FI_RMA_EVENT,
                                 FI_TAGGED | FI_DIRECTED_RECV};
  size_t entries = 0;
  for (const uint64_t asked : kAsked) {
    for_each_entry(offers_of(asked), [&](const fi_info &info) {
      ++entries;
      for (const Rule &rule : kRules)
        EXPECT_TRUE(rule.holds(info)) << rule.name << ", asked for " << caps_text(asked);
    });
  }
  EXPECT_GT(entries, 0u);
}

// What is asked for and cannot be: no entry, and an error.
struct Refusal {
  std::string_view name;
  void (*change)(fi_info &);
};
constexpr Refusal kRefusals[] = {
    {"multicast_without_msg", [](fi_info &h) { h.caps = FI_TAGGED | FI_MULTICAST; }},
    {"unknown_capability", [](fi_info &h) { h.caps = FI_MSG | (1ull << 38); }},
    {"tx_caps_beyond_the_endpoints", [](fi_info &h) { h.tx_attr->caps = 1ull << 38; }},
    {"rx_caps_beyond_the_endpoints", [](fi_info &h) { h.rx_attr->caps = 1ull << 38; }},
    {"unknown_type", [](fi_info &h) { h.ep_attr->type = static_cast<enum fi_ep_type>(77); }},
    {"unknown_protocol", [](fi_info &h) { h.ep_attr->protocol = 0x80001234; }},
    {"unknown_order", [](fi_info &h) { h.tx_attr->msg_order = 1ull << 60; }},
    {"unknown_provider",
     [](fi_info &h) {
       free(h.fabric_attr->prov_name);
       h.fabric_attr->prov_name = strdup("nobody");
     }},
    {"unknown_domain", [](fi_info &h) { h.domain_attr->name = strdup("nowhere"); }},
    {"unknown_fabric", [](fi_info &h) { h.fabric_attr->name = strdup("nowhere"); }},
    {"length_of_an_injection", [](fi_info &h) { h.tx_attr->inject_size = SIZE_MAX; }},
    {"number_of_vectors", [](fi_info &h) { h.tx_attr->iov_limit = SIZE_MAX; }},
    {"size_of_data", [](fi_info &h) { h.domain_attr->cq_data_size = 64; }},
};

TEST(PromisesAsk, WhatCannotBeIsNotOffered) {
  covers("fi_getinfo");
  for (const Refusal &row : kRefusals) {
    const Info hints = make_hints(options());
    row.change(*hints);
    fi_info *list = hints.get();  // anything but nothing
    const int rc = fi_getinfo(kApi, test_node(), nullptr, 0, hints.get(), &list);
    EXPECT_LT(rc, 0) << row.name;
    if (rc == 0) fi_freeinfo(list);
    if (rc == -FI_ENODATA) {
      EXPECT_EQ(list, nullptr) << row.name << ": info after -FI_ENODATA";
    }
  }
}

// Stock answers that, too. Nothing can be done with the answer.
TEST(PromisesAsk, AModifierAloneGivesNoTransfers) {
  covers("fi_getinfo");
  for (const uint64_t caps : {FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE}) {
    for_each_entry(offers_of(caps), [&](const fi_info &info) {
      EXPECT_EQ(info.caps & (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC), 0u) << caps_text(caps);
    });
  }
}

TEST(PromisesAsk, SharedContextsAreOfferedOrRefused) {
  covers("fi_getinfo");
  for (const bool transmits : {true, false}) {
    const Info hints = make_hints(options());
    (transmits ? hints->ep_attr->tx_ctx_cnt : hints->ep_attr->rx_ctx_cnt) = FI_SHARED_CONTEXT;
    Info list;
    const int rc = try_info(list, test_node(), nullptr, 0, hints.get());
    if (rc != 0) {
      EXPECT_EQ(rc, -FI_ENODATA);
      continue;
    }
    for_each_entry(list, [&](const fi_info &info) {
      EXPECT_EQ(transmits ? info.ep_attr->tx_ctx_cnt : info.ep_attr->rx_ctx_cnt,
                size_t(FI_SHARED_CONTEXT));
    });
  }
}

// A number that was asked for is the least of what comes.
struct Number {
  std::string_view name;
  size_t &(*of)(fi_info &);
};
constexpr Number kNumbers[] = {
    {"tx_size", [](fi_info &i) -> size_t & { return i.tx_attr->size; }},
    {"rx_size", [](fi_info &i) -> size_t & { return i.rx_attr->size; }},
    {"inject_size", [](fi_info &i) -> size_t & { return i.tx_attr->inject_size; }},
    {"tx_iov_limit", [](fi_info &i) -> size_t & { return i.tx_attr->iov_limit; }},
    {"rx_iov_limit", [](fi_info &i) -> size_t & { return i.rx_attr->iov_limit; }},
    {"max_msg_size", [](fi_info &i) -> size_t & { return i.ep_attr->max_msg_size; }},
    {"tx_ctx_cnt", [](fi_info &i) -> size_t & { return i.ep_attr->tx_ctx_cnt; }},
    {"rx_ctx_cnt", [](fi_info &i) -> size_t & { return i.ep_attr->rx_ctx_cnt; }},
    {"cq_cnt", [](fi_info &i) -> size_t & { return i.domain_attr->cq_cnt; }},
    {"ep_cnt", [](fi_info &i) -> size_t & { return i.domain_attr->ep_cnt; }},
    {"cq_data_size", [](fi_info &i) -> size_t & { return i.domain_attr->cq_data_size; }},
    {"mr_iov_limit", [](fi_info &i) -> size_t & { return i.domain_attr->mr_iov_limit; }},
};

TEST(PromisesAsk, NumbersAreAtLeastThoseAskedFor) {
  covers("fi_getinfo");
  Info plain = find_info(options());
  for (const Number &number : kNumbers) {
    const size_t most = number.of(*plain);
    for (const size_t asked : {size_t(1), most / 2, most}) {
      if (asked == 0 || asked > most) continue;
      const Info hints = make_hints(options());
      number.of(*hints) = asked;
      Info list;
      const int rc = try_info(list, test_node(), nullptr, 0, hints.get());
      EXPECT_EQ(rc, 0) << number.name << ": " << asked << " of " << most;
      for (fi_info *i = list.get(); i != nullptr; i = i->next)
        EXPECT_GE(number.of(*i), asked) << number.name;
    }
  }
}

TEST(PromisesAsk, WithoutAnyArgumentsAllIsListed) {
  covers("fi_getinfo");
  if (demands(options().type).mode != 0) GTEST_SKIP() << "it demands a mode";
  if (stack() == "cxi") GTEST_SKIP() << "a NIC in software is offered to who names it";
  Info list;
  must(try_info(list, nullptr, nullptr, 0, nullptr));
  size_t found = 0;
  for_each_entry(list, [&](const fi_info &info) { found += info.ep_attr->type == options().type; });
  EXPECT_GT(found, 0u);
}

TEST(PromisesAsk, ATextAddressTakesNoService) {
  covers("fi_getinfo");
  NEEDS_IPV4_ADDRESSES();
  Info list;
  const Info hints = make_hints(options());
  EXPECT_LT(try_info(list, "fi_sockaddr_in://127.0.0.1:7471", "7472", 0, hints.get()), 0);
}

TEST(PromisesAsk, TheSourceNeedsANodeOrAService) {
  covers("fi_getinfo");
  Info list;
  EXPECT_LT(try_info(list, nullptr, nullptr, FI_SOURCE, make_hints(options()).get()), 0);
}

TEST(PromisesAsk, ThreadsMayAskAtOnce) {
  covers("fi_getinfo");
  std::vector<std::thread> threads;
  std::vector<int> good(4);
  for (int &count : good) {
    threads.emplace_back([&count] {
      for (int i = 0; i < 5; ++i) count += find_info(options()) != nullptr;
    });
  }
  for (std::thread &thread : threads) thread.join();
  for (const int count : good) EXPECT_EQ(count, 5);
}

TEST(PromisesInfo, ACopyStandsForItself) {
  covers("fi_getinfo");
  const Info from = find_info(options());
  const Info copy(fi_dupinfo(from.get()));
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->next, nullptr) << "one entry, not the list";
  EXPECT_NE(copy->tx_attr, from->tx_attr);
  EXPECT_NE(copy->rx_attr, from->rx_attr);
  EXPECT_NE(copy->ep_attr, from->ep_attr);
  EXPECT_NE(copy->domain_attr, from->domain_attr);
  EXPECT_NE(copy->fabric_attr, from->fabric_attr);
  EXPECT_NE(copy->fabric_attr->prov_name, from->fabric_attr->prov_name);
  EXPECT_STREQ(copy->fabric_attr->prov_name, from->fabric_attr->prov_name);
  fi_freeinfo(nullptr);
}

TEST(PromisesInfo, AnAllocatedOneIsOfZeros) {
  covers("fi_getinfo");
  const Info info(fi_allocinfo());
  ASSERT_TRUE(info);
  EXPECT_EQ(info->caps, 0u);
  EXPECT_EQ(info->mode, 0u);
  EXPECT_EQ(info->next, nullptr);
  EXPECT_EQ(info->src_addr, nullptr);
  ASSERT_NE(info->tx_attr, nullptr);
  ASSERT_NE(info->rx_attr, nullptr);
  ASSERT_NE(info->ep_attr, nullptr);
  ASSERT_NE(info->domain_attr, nullptr);
  ASSERT_NE(info->fabric_attr, nullptr);
  EXPECT_EQ(info->tx_attr->size, 0u);
  EXPECT_EQ(info->ep_attr->type, FI_EP_UNSPEC);
  EXPECT_EQ(info->domain_attr->mr_mode, 0);
}

}  // namespace
}  // namespace weft::conformance::promises
