// SPDX-License-Identifier: BSD-2-Clause
#include "core/match/match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "core/base/render.h"
#include "core/match/test_offer.h"

namespace weft {
namespace {

using namespace match_test;
using ::testing::HasSubstr;

TEST(Match, PlainHintsFit) {
  EXPECT_EQ(ask(hints(), offer()).reason(), "");
  EXPECT_TRUE(ask(hints(), offer()).accepted);
  EXPECT_TRUE(match_info(kNow, 0, nullptr, *offer()).accepted);
}

struct Field {
  std::string name;                         // as in the C API
  std::function<void(fi_info &)> fits;      // a value that the offer meets
  std::function<void(fi_info &)> does_not;  // a value that it does not meet
  const char *reason;                       // part of the text that says so
};

class MatchField : public ::testing::TestWithParam<Field> {};

TEST_P(MatchField, IsComparedWithTheOffer) {
  const Field &field = GetParam();
  const InfoPtr good = hints();
  field.fits(*good);
  EXPECT_EQ(ask(good, offer()).reason(), "");
  const InfoPtr bad = hints();
  field.does_not(*bad);
  const Match match = ask(bad, offer());
  EXPECT_FALSE(match.accepted);
  EXPECT_THAT(match.reason(), HasSubstr(field.name));
  for (const Refusal &one : match.refusals) {
    EXPECT_EQ(text_of(one).find("hints." + std::string(one.attribute.name())), 0u);
    EXPECT_EQ(one.distance, distance_of_attribute(one.attribute.name()));
  }
  EXPECT_THAT(match.reason(), HasSubstr(field.reason));
}

#define SET(member, value) [](fi_info &h) { h.member = value; }
// "tx_attr->size" as messages have it: "hints.tx_attr.size 1025 is above".
Field number(std::string member, std::function<void(fi_info &)> fits,
             std::function<void(fi_info &)> does_not) {
  member.replace(member.find("->"), 2, ".");
  return {"hints." + member + " ", std::move(fits), std::move(does_not), " is above "};
}
#define NUMBER(member, good, bad) number(#member, SET(member, good), SET(member, bad))

INSTANTIATE_TEST_SUITE_P(
    All, MatchField,
    ::testing::Values(
        Field{"hints.caps", SET(caps, FI_MSG | FI_FENCE), SET(caps, FI_MSG | FI_TAGGED),
              "FI_TAGGED wanted, offered is FI_MSG, FI_RMA"},
        Field{"hints.mode lacks", SET(mode, FI_CONTEXT | FI_CONTEXT2), SET(mode, 0),
              "FI_CONTEXT, which is required here"},
        Field{"hints.addr_format", SET(addr_format, FI_SOCKADDR), SET(addr_format, FI_SOCKADDR_IN6),
              "FI_SOCKADDR_IN6 wanted, FI_SOCKADDR_IN offered"},
        Field{"hints.src_addr", [](fi_info &h) { set_source(h, address("10.0.0.2", 7471)); },
              [](fi_info &h) { set_source(h, address("10.0.0.3")); },
              "10.0.0.3 wanted, 10.0.0.2 offered"},
        Field{"hints.src_addrlen", [](fi_info &h) { set_source(h, address("0.0.0.0")); },
              [](fi_info &h) {
                set_source(h, address("10.0.0.2"));
                h.src_addrlen = 0;
              },
              "is 0"},
        Field{"hints.dest_addrlen", [](fi_info &) {},
              [](fi_info &h) { h.dest_addr = std::calloc(1, 16); }, "is 0"},

        Field{"hints.ep_attr.type", SET(ep_attr->type, FI_EP_MSG), SET(ep_attr->type, FI_EP_RDM),
              "FI_EP_RDM wanted, FI_EP_MSG offered"},
        Field{"hints.ep_attr.protocol", SET(ep_attr->protocol, FI_PROTO_RDMA_CM_IB_RC),
              SET(ep_attr->protocol, FI_PROTO_XNET), "FI_PROTO_XNET wanted"},
        NUMBER(ep_attr->protocol_version, 1, 2), NUMBER(ep_attr->max_msg_size, 1 << 30, SIZE_MAX),
        Field{"hints.ep_attr.msg_prefix_size", SET(ep_attr->msg_prefix_size, 16),
              SET(ep_attr->msg_prefix_size, 8), "8 given, 16 needed"},
        NUMBER(ep_attr->max_order_raw_size, 100, 101),
        Field{"hints.ep_attr.max_order_war_size", [](fi_info &) {},
              SET(ep_attr->max_order_war_size, 1), "1 is above 0"},
        Field{"hints.ep_attr.tx_ctx_cnt", SET(ep_attr->tx_ctx_cnt, 2), SET(ep_attr->tx_ctx_cnt, 3),
              "3 is above 2"},
        Field{"hints.ep_attr.tx_ctx_cnt", [](fi_info &) {},
              SET(ep_attr->tx_ctx_cnt, FI_SHARED_CONTEXT), "shared contexts are not offered"},
        Field{"hints.ep_attr.rx_ctx_cnt", SET(ep_attr->rx_ctx_cnt, FI_SHARED_CONTEXT),
              SET(ep_attr->rx_ctx_cnt, 2), "2 is above 1"},
        Field{"hints.ep_attr.auth_key",
              [](fi_info &h) {
                h.ep_attr->auth_key_size = 4;
                h.ep_attr->auth_key = static_cast<uint8_t *>(std::calloc(1, 4));
              },
              SET(ep_attr->auth_key_size, 4), "NULL although auth_key_size is set"},
        NUMBER(ep_attr->auth_key_size, 0, 9),
        Field{"hints.ep_attr.auth_key_size", SET(ep_attr->auth_key_size, FI_AV_AUTH_KEY),
              SET(ep_attr->auth_key_size, 9), "9 is above 8"},

        Field{"hints.tx_attr.caps", SET(tx_attr->caps, FI_MSG | FI_SEND),
              SET(tx_attr->caps, FI_TAGGED), "FI_TAGGED wanted"},
        Field{"hints.tx_attr.op_flags", SET(tx_attr->op_flags, FI_COMPLETION),
              SET(tx_attr->op_flags, FI_COMMIT_COMPLETE), "FI_COMMIT_COMPLETE wanted"},
        Field{"hints.tx_attr.msg_order",
              SET(tx_attr->msg_order, FI_ORDER_RMA_RAR | FI_ORDER_RMA_WAW),
              SET(tx_attr->msg_order, FI_ORDER_WAW), "FI_ORDER_WAW wanted"},
        Field{"hints.tx_attr.comp_order", SET(tx_attr->comp_order, FI_ORDER_STRICT),
              SET(tx_attr->comp_order, FI_ORDER_DATA), "wanted"},
        NUMBER(tx_attr->inject_size, 128, 129), NUMBER(tx_attr->size, 1024, 1025),
        NUMBER(tx_attr->iov_limit, 4, 5), NUMBER(tx_attr->rma_iov_limit, 2, 3),
        Field{"hints.tx_attr.tclass", SET(tx_attr->tclass, FI_TC_BEST_EFFORT),
              SET(tx_attr->tclass, FI_TC_BULK_DATA), "wanted"},

        Field{"hints.rx_attr.caps", SET(rx_attr->caps, FI_MSG | FI_RECV | FI_SOURCE),
              SET(rx_attr->caps, FI_DIRECTED_RECV), "FI_DIRECTED_RECV wanted"},
        Field{"hints.rx_attr.op_flags", SET(rx_attr->op_flags, FI_MULTI_RECV),
              SET(rx_attr->op_flags, FI_INJECT), "FI_INJECT wanted"},
        Field{"hints.rx_attr.msg_order", SET(rx_attr->msg_order, FI_ORDER_SAS),
              SET(rx_attr->msg_order, FI_ORDER_RAS), "FI_ORDER_RAS wanted"},
        Field{"hints.rx_attr.comp_order", SET(rx_attr->comp_order, FI_ORDER_DATA),
              SET(rx_attr->comp_order, 1ULL << 40), "wanted"},
        NUMBER(rx_attr->size, 512, 513), NUMBER(rx_attr->iov_limit, 3, 4),

        Field{"hints.domain_attr.name", [](fi_info &h) { h.domain_attr->name = strdup("mlx5_0"); },
              [](fi_info &h) { h.domain_attr->name = strdup("mlx5_1"); },
              "\"mlx5_1\" wanted, \"mlx5_0\" offered"},
        Field{"hints.domain_attr.threading", SET(domain_attr->threading, FI_THREAD_DOMAIN),
              SET(domain_attr->threading, FI_THREAD_SAFE),
              "FI_THREAD_SAFE wanted, FI_THREAD_COMPLETION offered"},
        Field{"hints.domain_attr.threading", SET(domain_attr->threading, FI_THREAD_COMPLETION),
              SET(domain_attr->threading, FI_THREAD_ENDPOINT), "FI_THREAD_ENDPOINT wanted"},
        Field{"hints.domain_attr.data_progress",
              SET(domain_attr->data_progress, FI_PROGRESS_MANUAL),
              SET(domain_attr->data_progress, FI_PROGRESS_AUTO), "FI_PROGRESS_AUTO wanted"},
        Field{"hints.", SET(domain_attr->control_progress, FI_PROGRESS_CONTROL_UNIFIED),
              SET(domain_attr->data_progress, FI_PROGRESS_AUTO), "FI_PROGRESS_MANUAL offered"},
        Field{"hints.domain_attr.resource_mgmt", SET(domain_attr->resource_mgmt, FI_RM_DISABLED),
              SET(domain_attr->resource_mgmt, FI_RM_ENABLED), "FI_RM_ENABLED wanted"},
        Field{"hints.domain_attr.av_type", SET(domain_attr->av_type, FI_AV_TABLE),
              SET(domain_attr->av_type, FI_AV_MAP), "FI_AV_MAP wanted, FI_AV_TABLE offered"},
        NUMBER(domain_attr->cq_data_size, 4, 8), NUMBER(domain_attr->cq_cnt, 1000, 1001),
        NUMBER(domain_attr->ep_cnt, 2000, 2001), NUMBER(domain_attr->tx_ctx_cnt, 3000, 3001),
        NUMBER(domain_attr->rx_ctx_cnt, 4000, 4001), NUMBER(domain_attr->max_ep_tx_ctx, 2, 3),
        NUMBER(domain_attr->max_ep_rx_ctx, 1, 2), NUMBER(domain_attr->max_ep_stx_ctx, 0, 1),
        NUMBER(domain_attr->max_ep_srx_ctx, 16, 17), NUMBER(domain_attr->cntr_cnt, 64, 65),
        NUMBER(domain_attr->mr_iov_limit, 1, 2),
        Field{"hints.domain_attr.caps", SET(domain_attr->caps, FI_LOCAL_COMM),
              SET(domain_attr->caps, FI_SHARED_AV), "FI_SHARED_AV wanted"},
        NUMBER(domain_attr->auth_key_size, 0, 9),
        Field{"hints.domain_attr.auth_key_size", SET(domain_attr->auth_key_size, FI_AV_AUTH_KEY),
              SET(domain_attr->auth_key_size, 9), "9 is above 8"},
        NUMBER(domain_attr->max_err_data, 32, 33), NUMBER(domain_attr->mr_cnt, 100, 101),
        Field{"hints.domain_attr.tclass", SET(domain_attr->tclass, FI_TC_LOW_LATENCY),
              SET(domain_attr->tclass, FI_TC_SCAVENGER), "wanted"},
        NUMBER(domain_attr->max_ep_auth_key, 1, 2), NUMBER(domain_attr->max_group_id, 7, 8),
        NUMBER(domain_attr->max_cntr_value, 1000, 1001),
        NUMBER(domain_attr->max_err_cntr_value, 10, 11),

        Field{"hints.fabric_attr.name",
              [](fi_info &h) { h.fabric_attr->name = strdup("IB-0xfe80"); },
              [](fi_info &h) { h.fabric_attr->name = strdup("IB-0xfe81"); }, "offered"},
        Field{"hints.fabric_attr.prov_name",
              [](fi_info &h) { h.fabric_attr->prov_name = strdup("VERBS"); },
              [](fi_info &h) { h.fabric_attr->prov_name = strdup("^verbs"); }, "\"verbs\" offered"},
        Field{"hints.fabric_attr.prov_version", SET(fabric_attr->prov_version, FI_VERSION(1, 2)),
              SET(fabric_attr->prov_version, FI_VERSION(2, 0)), "2.0 wanted, 1.2 offered"}),
    [](const auto &info) { return "n" + std::to_string(info.index); });

#undef NUMBER

TEST(Match, ReportsEveryHintThatDoesNotFit) {
  const InfoPtr wanted = hints();
  wanted->ep_attr->type = FI_EP_RDM;
  wanted->tx_attr->inject_size = 4096;
  const std::string reason = ask(wanted, offer()).reason();
  EXPECT_EQ(reason,
            "hints.ep_attr.type: FI_EP_RDM wanted, FI_EP_MSG offered; "
            "hints.tx_attr.inject_size 4096 is above 128");
}

TEST(Match, ALimitIsNearerThanAnotherKindOfEndpoint) {
  const InfoPtr size = hints(), type = hints(), both = hints();
  size->tx_attr->size = both->tx_attr->size = 4096;
  type->ep_attr->type = both->ep_attr->type = FI_EP_RDM;
  const Match near = ask(size, offer()), far = ask(type, offer()), farthest = ask(both, offer());
  EXPECT_LT(near.distance(), far.distance());
  EXPECT_LT(far.distance(), farthest.distance());
  EXPECT_EQ(farthest.refusals.size(), 2u);
  EXPECT_EQ(short_reason_of({.refusals = farthest.refusals}),
            "hints.ep_attr.type: FI_EP_RDM wanted, FI_EP_MSG offered (and 1 more)");
  EXPECT_EQ(short_reason_of({.refusals = near.refusals}), near.reason());
}

TEST(Match, HintsMayLackEveryPart) {
  fi_info bare{};
  bare.mode = FI_CONTEXT;
  bare.caps = FI_MSG;
  EXPECT_EQ(match_info(kNow, 0, &bare, *offer()).reason(), "");
}

TEST(Match, AnOfferWithoutAPartIsRefused) {
  for (const auto &[part, take] :
       std::initializer_list<std::pair<const char *, std::function<void(fi_info &)>>>{
           {"tx_attr", [](fi_info &i) { i.tx_attr = nullptr; }},
           {"rx_attr", [](fi_info &i) { i.rx_attr = nullptr; }},
           {"ep_attr", [](fi_info &i) { i.ep_attr = nullptr; }},
           {"domain_attr", [](fi_info &i) { i.domain_attr = nullptr; }},
           {"fabric_attr", [](fi_info &i) { i.fabric_attr = nullptr; }}}) {
    const InfoPtr whole = offer();
    fi_info broken = *whole;
    take(broken);
    EXPECT_THAT(match_info(kNow, 0, nullptr, broken).reason(),
                HasSubstr(std::string("no ") + part));
    EXPECT_FALSE(match_info(kNow, 0, hints().get(), broken).accepted);
    EXPECT_EQ(match_info(kNow, 0, nullptr, broken).distance(), Refusal::kFault);
  }
}

TEST(Match, ModesOfTransmitAndReceive) {
  const InfoPtr offered = offer();
  offered->mode = 0;
  offered->tx_attr->mode = FI_MSG_PREFIX;
  const InfoPtr wanted = hints();
  wanted->mode = 0;
  EXPECT_THAT(ask(wanted, offered).reason(), HasSubstr("hints.mode lacks FI_MSG_PREFIX"));
  wanted->mode = FI_MSG_PREFIX;
  EXPECT_TRUE(ask(wanted, offered).accepted);
  wanted->mode = 0;
  wanted->tx_attr->mode = FI_CONTEXT;
  EXPECT_THAT(ask(wanted, offered).reason(), HasSubstr("hints.tx_attr.mode lacks FI_MSG_PREFIX"));
  offered->tx_attr->mode = 0;
  offered->domain_attr->mode = FI_RX_CQ_DATA;
  EXPECT_THAT(ask(wanted, offered).reason(), HasSubstr("hints.mode lacks FI_RX_CQ_DATA"));
  wanted->domain_attr->mode = FI_RX_CQ_DATA;
  EXPECT_TRUE(ask(wanted, offered).accepted);
}

TEST(Match, WithFiSourceTheSourceAddressIsIgnored) {
  const InfoPtr wanted = hints();
  set_source(*wanted, address("10.9.9.9"));
  EXPECT_FALSE(ask(wanted, offer()).accepted);
  EXPECT_TRUE(ask(wanted, offer(), kNow, FI_SOURCE).accepted);
}

TEST(Match, AddressFormats) {
  const auto fits = [](uint32_t wanted, uint32_t offered) {
    const InfoPtr h = hints(), o = offer();
    h->addr_format = wanted;
    o->addr_format = offered;
    return ask(h, o).accepted;
  };
  EXPECT_TRUE(fits(FI_SOCKADDR_IP, FI_SOCKADDR_IN));
  EXPECT_TRUE(fits(FI_SOCKADDR_IN, FI_SOCKADDR));    // its address is IPv4
  EXPECT_FALSE(fits(FI_SOCKADDR_IN6, FI_SOCKADDR));  // for the same reason
  EXPECT_TRUE(fits(FI_SOCKADDR, FI_SOCKADDR_IB));
  EXPECT_FALSE(fits(FI_SOCKADDR_IP, FI_SOCKADDR_IB));
  EXPECT_FALSE(fits(FI_ADDR_STR, FI_SOCKADDR_IN));
  EXPECT_TRUE(fits(FI_ADDR_STR, FI_ADDR_STR));
  EXPECT_FALSE(fits(FI_SOCKADDR, FI_ADDR_CXI));
}

TEST(Match, TagFormats) {
  const auto fits = [](uint64_t wanted, uint64_t offered) {
    const InfoPtr h = hints(), o = offer();
    o->caps |= FI_TAGGED;
    h->caps = FI_TAGGED;
    h->ep_attr->mem_tag_format = wanted;
    o->ep_attr->mem_tag_format = offered;
    return ask(h, o).accepted;
  };
  constexpr uint64_t kFree = 0xaaaaaaaaaaaaaaaa, kThreeFields = 0x30ff;
  EXPECT_TRUE(fits(0, kThreeFields));
  EXPECT_TRUE(fits(kThreeFields, 0));
  EXPECT_TRUE(fits(kThreeFields, kThreeFields));
  EXPECT_TRUE(fits(kThreeFields, kFree));
  EXPECT_FALSE(fits(kFree, kThreeFields));  // 64 fields wanted
  EXPECT_FALSE(fits(0x3f0ff, 0x30ff));      // a field too wide
  EXPECT_TRUE(fits(0x10ff, 0x30ff));
  EXPECT_TRUE(fits(FI_TAG_MPI, FI_TAG_MPI));
  EXPECT_TRUE(fits(FI_TAG_MPI, FI_TAG_BITS));
  EXPECT_TRUE(fits(FI_TAG_MPI, kFree));
  EXPECT_FALSE(fits(FI_TAG_MPI, FI_TAG_CCL));
  EXPECT_FALSE(fits(FI_TAG_MPI, kThreeFields));
}

// Names come from the environment and from hints: nothing in them is read by recursion.
TEST(ProvName, IsAsDeepAsAnybodyWrites) {
  const std::string deep(1'000'000, '(');
  EXPECT_FALSE(prov_name_admits(deep, "tcp"));
  EXPECT_FALSE(prov_name_admits(deep + "tcp", "(shm+tcp);link"));
  EXPECT_TRUE(prov_name_admits(deep + "tcp", deep + "tcp"));
  EXPECT_TRUE(prov_name_admits("tcp", deep + "tcp"));
  EXPECT_EQ(prov_name_units(deep), 1u);
}

TEST(ProvName, Admits) {
  EXPECT_TRUE(prov_name_admits("tcp", "tcp"));
  EXPECT_TRUE(prov_name_admits("tcp", "tcp;ofi_rxm"));
  EXPECT_TRUE(prov_name_admits("ofi_rxm", "tcp;ofi_rxm"));
  EXPECT_TRUE(prov_name_admits("TCP;ofi_RXM", "tcp;ofi_rxm"));
  EXPECT_TRUE(prov_name_admits("ofi_rxm;tcp", "tcp;ofi_rxm"));
  EXPECT_TRUE(prov_name_admits("udp,tcp", "tcp"));
  EXPECT_FALSE(prov_name_admits("tcp;ofi_rxm", "tcp"));
  EXPECT_FALSE(prov_name_admits("tc", "tcp"));
  EXPECT_FALSE(prov_name_admits("", "tcp"));
  EXPECT_FALSE(prov_name_admits("^tcp", "tcp;ofi_rxm"));
  EXPECT_FALSE(prov_name_admits("^udp,tcp", "tcp"));
  EXPECT_TRUE(prov_name_admits("^udp", "tcp"));
  EXPECT_TRUE(prov_name_admits("^tcp;ofi_rxm", "tcp"));
}

TEST(ProvName, OfALayerOverSeveralProviders) {
  const std::string tree = "(shm+tcp;ofi_rxm);link";
  for (const char *element : {"shm", "tcp", "ofi_rxm", "LINK", "udp,shm"})
    EXPECT_TRUE(prov_name_admits(element, tree)) << element;
  EXPECT_TRUE(prov_name_admits(tree, tree));
  EXPECT_TRUE(prov_name_admits("udp,(SHM+tcp;ofi_rxm);Link", tree));
  EXPECT_TRUE(prov_name_admits("^udp", tree));
  for (const char *other : {"", "(", "sh", "shm+tcp", "tcp;ofi_rxm", "ofi_rxm;tcp", "shm;link",
                            "(tcp;ofi_rxm+shm);link", "^shm", "^tcp", "^(shm+tcp;ofi_rxm);link",
                            "shm;tcp;ofi_rxm;link", "(shm+tcp;ofi_rxm)"})
    EXPECT_FALSE(prov_name_admits(other, tree)) << other;
  EXPECT_FALSE(prov_name_admits(tree, "tcp;ofi_rxm"));
  EXPECT_FALSE(prov_name_admits("(tcp);ofi_rxm", "tcp;ofi_rxm"));
}

TEST(ProvName, IsMadeFromTheWireUp) {
  const std::string rxm = prov_name_over(std::vector<std::string>{"tcp"}, "ofi_rxm");
  EXPECT_EQ(rxm, "tcp;ofi_rxm");
  const std::string link = prov_name_over(std::vector<std::string>{"shm", rxm}, "link");
  EXPECT_EQ(link, "(shm+tcp;ofi_rxm);link");
  EXPECT_EQ(prov_name_over(std::vector<std::string>{link, "udp"}, "coll"),
            "((shm+tcp;ofi_rxm);link+udp);coll");
  EXPECT_EQ(prov_name_over({}, "tcp"), "tcp");
  EXPECT_EQ(prov_name_units("tcp"), 1u);
  EXPECT_EQ(prov_name_units(rxm), 2u);
  EXPECT_EQ(prov_name_units(link), 4u);
}

}  // namespace
}  // namespace weft
