// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo(3): what is offered, for which addresses, and what hints leave out.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>
#include <set>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

std::string text_of(const void *address) {
  char text[INET6_ADDRSTRLEN] = "";
  const auto *any = static_cast<const sockaddr *>(address);
  if (any->sa_family == AF_INET) {
    const auto *in = static_cast<const sockaddr_in *>(address);
    inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(in->sin_port));
  }
  if (any->sa_family != AF_INET6) return "family " + std::to_string(any->sa_family);
  const auto *in6 = static_cast<const sockaddr_in6 *>(address);
  inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
  return "[" + std::string(text) + "]:" + std::to_string(ntohs(in6->sin6_port));
}

std::string node_at(int port) {
  return std::string(test_node()) + ':' + std::to_string(port);
}
std::string text_at(int port) {
  return "fi_sockaddr_in://" + node_at(port);
}

int code(const Info &hints, const char *node = test_node(), const char *service = nullptr,
         uint64_t flags = 0, uint32_t api = kApi) {
  Info info;
  return try_info(info, node, service, flags, hints.get(), api);
}

TEST(Getinfo, EveryOfferIsComplete) {
  const Info hints = make_hints();
  const Info info = get_info(nullptr, nullptr, 0, hints.get());
  for (const fi_info *i = info.get(); i != nullptr; i = i->next) {
    ASSERT_NE(i->fabric_attr, nullptr);
    ASSERT_NE(i->domain_attr, nullptr);
    ASSERT_NE(i->ep_attr, nullptr);
    ASSERT_NE(i->tx_attr, nullptr);
    ASSERT_NE(i->rx_attr, nullptr);
    ASSERT_NE(i->fabric_attr->name, nullptr);
    ASSERT_NE(i->domain_attr->name, nullptr);
    EXPECT_EQ(i->fabric_attr->prov_name, stack());
    EXPECT_EQ(i->ep_attr->type, FI_EP_MSG);
    EXPECT_EQ(i->caps & (FI_MSG | FI_RMA), uint64_t(FI_MSG | FI_RMA));
    EXPECT_GT(i->tx_attr->size, 0u);
    EXPECT_GT(i->rx_attr->size, 0u);
    EXPECT_GE(i->tx_attr->iov_limit, 1u);
    EXPECT_GE(i->rx_attr->iov_limit, 1u);
    EXPECT_GE(i->tx_attr->rma_iov_limit, 1u);
    EXPECT_GT(i->ep_attr->max_msg_size, 0u);
    EXPECT_EQ(i->mode, demands(FI_EP_MSG).mode);
    EXPECT_EQ(i->domain_attr->mr_mode, demands(FI_EP_MSG).mr_mode);
    EXPECT_EQ(i->handle, nullptr);
    EXPECT_NE(i->src_addr, nullptr);
    EXPECT_EQ(i->dest_addr, nullptr);
  }
}

TEST(Getinfo, WithoutNodeEveryUsableInterfaceIsOffered) {
  std::set<std::string> own;
  ifaddrs *list = nullptr;
  ASSERT_EQ(getifaddrs(&list), 0);
  for (const ifaddrs *i = list; i != nullptr; i = i->ifa_next)
    if (i->ifa_addr != nullptr &&
        (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6))
      own.insert(text_of(i->ifa_addr));
  freeifaddrs(list);
  const Info hints = make_hints();
  const Info info = get_info(nullptr, nullptr, 0, hints.get());
  std::set<std::string> offered;
  for (const fi_info *i = info.get(); i != nullptr; i = i->next) {
    offered.insert(text_of(i->src_addr));
    if (has_devices_inside()) continue;  // their addresses are no interface's
    EXPECT_TRUE(own.contains(text_of(i->src_addr))) << text_of(i->src_addr);
  }
  EXPECT_TRUE(offered.contains(node_at(0)));
}

TEST(Getinfo, NodeAndServiceAreTheDestination) {
  const Info hints = make_hints();
  const Info info = get_info(test_node(), "7471", 0, hints.get());
  ASSERT_NE(info->dest_addr, nullptr);
  EXPECT_EQ(text_of(info->dest_addr), node_at(7471));
  ASSERT_NE(info->src_addr, nullptr);
  EXPECT_EQ(text_of(info->src_addr), node_at(0));
  EXPECT_EQ(info->addr_format, uint32_t(FI_SOCKADDR_IN));
  EXPECT_EQ(info->dest_addrlen, sizeof(sockaddr_in));
  EXPECT_EQ(info->src_addrlen, sizeof(sockaddr_in));
}

TEST(Getinfo, WithFI_SOURCENodeAndServiceAreTheSource) {
  const Info hints = make_hints();
  const Info info = get_info(test_node(), "7471", FI_SOURCE, hints.get());
  ASSERT_NE(info->src_addr, nullptr);
  EXPECT_EQ(text_of(info->src_addr), node_at(7471));
  EXPECT_EQ(info->dest_addr, nullptr);
}

TEST(Getinfo, ServiceAloneWithFI_SOURCEIsAPortToListenOn) {
  const Info hints = make_hints();
  const Info info = get_info(nullptr, "7471", FI_SOURCE, hints.get());
  for (const fi_info *i = info.get(); i != nullptr; i = i->next) {
    ASSERT_NE(i->src_addr, nullptr);
    EXPECT_TRUE(text_of(i->src_addr).ends_with(":7471")) << text_of(i->src_addr);
  }
}

TEST(Getinfo, IPv6NodeAndService) {
  NEEDS_IPV4_ADDRESSES();
  if (!have_ipv6_loopback()) GTEST_SKIP() << "no IPv6 loopback on this host";
  const Info hints = make_hints();
  Info info = get_info("::1", "7471", 0, hints.get());
  EXPECT_EQ(text_of(info->dest_addr), "[::1]:7471");
  EXPECT_EQ(text_of(info->src_addr), "[::1]:0");
  EXPECT_EQ(info->addr_format, uint32_t(FI_SOCKADDR_IN6));
  EXPECT_EQ(info->dest_addrlen, sizeof(sockaddr_in6));
  info = get_info("::1", "7471", FI_SOURCE, hints.get());
  EXPECT_EQ(text_of(info->src_addr), "[::1]:7471");
}

TEST(Getinfo, NamesAreResolved) {
  NEEDS_IPV4_ADDRESSES();
  const Info hints = make_hints();
  hints->addr_format = FI_SOCKADDR_IN;
  const Info info = get_info("localhost", "7471", 0, hints.get());
  EXPECT_EQ(text_of(info->dest_addr), node_at(7471));
}

TEST(Getinfo, WithFI_NUMERICHOSTNamesAreNot) {
  const Info hints = make_hints();
  EXPECT_LT(code(hints, "localhost", "7471", FI_NUMERICHOST), 0);
  EXPECT_EQ(code(hints, test_node(), "7471", FI_NUMERICHOST), 0);
}

TEST(Getinfo, UnknownNodeIsAnError) {
  const Info hints = make_hints();
  EXPECT_LT(code(hints, "no-such-host.invalid", "7471"), 0);
  EXPECT_LT(code(hints, test_node(), "no-such-service"), 0);
  EXPECT_LT(code(hints, test_node(), "123456"), 0);
}

TEST(Getinfo, SourceThatIsNoAddressOfThisHostIsAnError) {
  const Info hints = make_hints();
  EXPECT_LT(code(hints, "203.0.113.77", nullptr, FI_SOURCE), 0);
}

TEST(Getinfo, AddressesInHints) {
  const Info hints = make_hints();
  hints->addr_format = FI_SOCKADDR_IN;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  ASSERT_EQ(inet_pton(AF_INET, test_node(), &to.sin_addr), 1);
  to.sin_port = htons(7471);
  hints->dest_addr = malloc(sizeof to);
  hints->dest_addrlen = sizeof to;
  memcpy(hints->dest_addr, &to, sizeof to);
  Info info = get_info(nullptr, nullptr, 0, hints.get());
  ASSERT_NE(info->dest_addr, nullptr);
  EXPECT_EQ(text_of(info->dest_addr), node_at(7471));

  // The source of the hints goes with the destination of node and service.
  sockaddr_in from = to;
  from.sin_port = htons(7000);
  hints->src_addr = malloc(sizeof from);
  hints->src_addrlen = sizeof from;
  memcpy(hints->src_addr, &from, sizeof from);
  info = get_info(test_node(), "7472", 0, hints.get());
  EXPECT_EQ(text_of(info->src_addr), node_at(7000));
  EXPECT_EQ(text_of(info->dest_addr), node_at(7472));
}

TEST(Getinfo, ShortAddressInHintsIsAnError) {
  const Info hints = make_hints();
  hints->addr_format = FI_SOCKADDR_IN;
  hints->dest_addr = calloc(1, sizeof(sockaddr_in));
  static_cast<sockaddr *>(hints->dest_addr)->sa_family = AF_INET;
  hints->dest_addrlen = 3;
  EXPECT_LT(code(hints, nullptr), 0);
}

TEST(Getinfo, LongAddressInHintsIsAnError) {
  const Info hints = make_hints();
  hints->addr_format = FI_SOCKADDR_IN;
  hints->dest_addr = calloc(1, sizeof(sockaddr_in));
  static_cast<sockaddr *>(hints->dest_addr)->sa_family = AF_INET;
  for (const size_t length : {size_t(2) << 20, SIZE_MAX}) {
    hints->dest_addrlen = length;
    EXPECT_EQ(code(hints, nullptr), -FI_EINVAL) << length;
  }
  std::swap(hints->dest_addr, hints->src_addr);
  hints->src_addrlen = SIZE_MAX;
  EXPECT_EQ(code(hints, nullptr), -FI_EINVAL);
}

TEST(Getinfo, AddrFormatLimitsTheFamily) {
  const Info hints = make_hints();
  hints->addr_format = FI_SOCKADDR_IN;
  Info info = get_info(nullptr, nullptr, 0, hints.get());
  for (const fi_info *i = info.get(); i != nullptr; i = i->next) {
    EXPECT_EQ(i->addr_format, uint32_t(FI_SOCKADDR_IN));
    EXPECT_EQ(static_cast<sockaddr *>(i->src_addr)->sa_family, AF_INET);
  }
  if (!have_ipv6_loopback()) GTEST_SKIP() << "no IPv6 loopback on this host";
  hints->addr_format = FI_SOCKADDR_IN6;
  info = get_info(nullptr, nullptr, 0, hints.get());
  for (const fi_info *i = info.get(); i != nullptr; i = i->next) {
    EXPECT_EQ(i->addr_format, uint32_t(FI_SOCKADDR_IN6));
    EXPECT_EQ(static_cast<sockaddr *>(i->src_addr)->sa_family, AF_INET6);
  }
  EXPECT_LT(code(hints, test_node(), "7471"), 0);  // an IPv4 address in an IPv6 format
}

TEST(Getinfo, AddrFormatOfOtherFabricsIsNotOffered) {
  const Info hints = make_hints();
  hints->addr_format = FI_SOCKADDR_IB;
  EXPECT_EQ(code(hints, nullptr), -FI_ENODATA);
}

TEST(Getinfo, AddressesAsText) {
  const Info hints = make_hints();
  hints->addr_format = FI_ADDR_STR;
  const Info info = get_info(test_node(), "7471", FI_SOURCE, hints.get());
  EXPECT_EQ(info->addr_format, uint32_t(FI_ADDR_STR));
  EXPECT_STREQ(static_cast<const char *>(info->src_addr), text_at(7471).c_str());
  EXPECT_GE(info->src_addrlen, text_at(7471).size());
}

TEST(Getinfo, AddressesAsTextInHints) {
  const Info hints = make_hints();
  hints->addr_format = FI_ADDR_STR;
  hints->dest_addr = strdup(text_at(7471).c_str());
  hints->dest_addrlen = strlen(static_cast<char *>(hints->dest_addr)) + 1;
  const Info info = get_info(nullptr, nullptr, 0, hints.get());
  ASSERT_NE(info->dest_addr, nullptr);
  EXPECT_STREQ(static_cast<const char *>(info->dest_addr), text_at(7471).c_str());
}

TEST(Getinfo, WrongTextAsAddressIsAnError) {
  for (const char *text :
       {"fi_sockaddr_in://127.0.0.1:port", "fi_sockaddr_in://1.2.3.4.5:1", "nothing", ""}) {
    const Info hints = make_hints();
    hints->addr_format = FI_ADDR_STR;
    hints->dest_addr = strdup(text);
    hints->dest_addrlen = strlen(text) + 1;
    EXPECT_LT(code(hints, nullptr), 0) << text;
  }
}

// ---- filtering ----

TEST(Getinfo, OtherEndpointTypesAreNotOffered) {
  const Info hints = make_hints();
  hints->ep_attr->type = FI_EP_DGRAM;
  EXPECT_EQ(code(hints), -FI_ENODATA);
}

TEST(Getinfo, CapabilitiesThatAreLackingAreNotOffered) {
  for (const uint64_t caps :
       {FI_MSG | FI_TAGGED, FI_MSG | FI_ATOMIC, FI_MSG | FI_COLLECTIVE, FI_MSG | FI_MULTICAST}) {
    if (caps & FI_ATOMIC && is_of_a_device(FI_EP_MSG)) continue;  // some have them
    EXPECT_EQ(code(make_hints(caps)), -FI_ENODATA) << std::hex << caps;
  }
}

TEST(Getinfo, OnlyPrimaryCapabilitiesThatWereAskedForAreEnabled) {
  const Info info = get_info(test_node(), nullptr, 0, make_hints(FI_MSG).get());
  EXPECT_EQ(info->caps & (FI_MSG | FI_RMA), uint64_t(FI_MSG));
  const Info both = get_info(test_node(), nullptr, 0, make_hints(FI_MSG | FI_RMA).get());
  EXPECT_EQ(both->caps & (FI_MSG | FI_RMA), uint64_t(FI_MSG | FI_RMA));
}

TEST(Getinfo, SecondaryCapabilitiesThatWereAskedForAreGiven) {
  NEEDS_SOFTWARE(FI_EP_MSG, "a device has none of these");
  for (const uint64_t secondary : {FI_MULTI_RECV, FI_RMA_EVENT}) {
    Info info;
    const int rc =
        try_info(info, test_node(), nullptr, 0, make_hints(FI_MSG | FI_RMA | secondary).get());
    ASSERT_EQ(rc, 0) << std::hex << secondary;
    EXPECT_NE(info->caps & secondary, 0u) << std::hex << secondary;
  }
}

TEST(Getinfo, DirectionsThatWereAskedForAreGiven) {
  const Info info = get_info(test_node(), nullptr, 0, make_hints(FI_MSG | FI_SEND).get());
  EXPECT_NE(info->caps & FI_SEND, 0u);
  EXPECT_EQ(info->caps & FI_RECV, 0u);
}

TEST(Getinfo, WithoutAcceptedModesNoneIsRequired) {
  const Info hints = make_hints();
  hints->mode = 0;
  Info info;
  const int rc = try_info(info, test_node(), nullptr, 0, hints.get());
  if (demands(FI_EP_MSG).mode == 0) {
    ASSERT_EQ(rc, 0);
    EXPECT_EQ(info->mode, 0u);
  } else {
    EXPECT_EQ(rc, -FI_ENODATA);
  }
  hints->mode = ~UINT64_C(0);
  EXPECT_EQ(code(hints), 0);
}

TEST(Getinfo, MrModeIsASubsetOfWhatTheApplicationCanDo) {
  for (const int mode : {0, int(FI_MR_LOCAL), int(FI_MR_PROV_KEY), FI_MR_PROV_KEY | FI_MR_ALLOCATED,
                         FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY}) {
    const Info hints = make_hints();
    hints->domain_attr->mr_mode = mode;
    Info info;
    const int rc = try_info(info, test_node(), nullptr, 0, hints.get());
    if (demands(FI_EP_MSG).mr_mode & ~mode) {
      EXPECT_EQ(rc, -FI_ENODATA) << mode;
    } else {
      ASSERT_EQ(rc, 0) << mode;
      EXPECT_EQ(info->domain_attr->mr_mode & ~mode, 0) << mode;
    }
  }
}

TEST(Getinfo, MrModeBasicAndScalableOfOldApplications) {
  for (const int mode : {int(FI_MR_BASIC), int(FI_MR_SCALABLE)}) {
    const Info hints = make_hints();
    hints->domain_attr->mr_mode = mode;
    if (is_of_a_device(FI_EP_MSG)) hints->mode |= FI_LOCAL_MR;
    if (mode == FI_MR_SCALABLE && is_of_a_device(FI_EP_MSG)) {
      EXPECT_EQ(code(hints, test_node(), nullptr, 0, FI_VERSION(1, 4)), -FI_ENODATA);
      continue;
    }
    const Info info = get_info(test_node(), nullptr, 0, hints.get(), FI_VERSION(1, 4));
    EXPECT_EQ(info->domain_attr->mr_mode & ~FI_MR_LOCAL, mode);
  }
}

TEST(Getinfo, LimitsThatWereAskedForAreGranted) {
  const Info hints = make_hints();
  const Info most = get_info(test_node(), nullptr, 0, hints.get());
  hints->tx_attr->size = most->tx_attr->size;
  hints->rx_attr->size = most->rx_attr->size;
  hints->tx_attr->inject_size = most->tx_attr->inject_size;
  hints->tx_attr->iov_limit = most->tx_attr->iov_limit;
  hints->rx_attr->iov_limit = most->rx_attr->iov_limit;
  hints->tx_attr->rma_iov_limit = most->tx_attr->rma_iov_limit;
  hints->ep_attr->max_msg_size = most->ep_attr->max_msg_size;
  hints->domain_attr->mr_key_size = most->domain_attr->mr_key_size;
  hints->domain_attr->cq_data_size = most->domain_attr->cq_data_size;
  const Info info = get_info(test_node(), nullptr, 0, hints.get());
  EXPECT_GE(info->tx_attr->size, hints->tx_attr->size);
  EXPECT_GE(info->rx_attr->size, hints->rx_attr->size);
  EXPECT_GE(info->tx_attr->inject_size, hints->tx_attr->inject_size);
  EXPECT_GE(info->domain_attr->mr_key_size, hints->domain_attr->mr_key_size);
  EXPECT_GE(info->domain_attr->cq_data_size, hints->domain_attr->cq_data_size);
  if (is_of_a_device(FI_EP_MSG)) return;  // which has what it has
  EXPECT_GE(info->tx_attr->iov_limit, 4u);
  EXPECT_GE(info->rx_attr->iov_limit, 4u);
  EXPECT_GE(info->tx_attr->rma_iov_limit, 4u);
  EXPECT_EQ(info->domain_attr->mr_key_size, 8u);
  EXPECT_EQ(info->domain_attr->cq_data_size, 8u);
}

TEST(Getinfo, LimitsThatCannotBeGrantedAreNotOffered) {
  const std::function<void(fi_info &)> too_much[] = {
      [](fi_info &h) { h.tx_attr->inject_size = size_t(1) << 40; },
      [](fi_info &h) { h.tx_attr->iov_limit = 1000; },
      [](fi_info &h) { h.rx_attr->iov_limit = 1000; },
      [](fi_info &h) { h.tx_attr->rma_iov_limit = 1000; },
      [](fi_info &h) { h.ep_attr->tx_ctx_cnt = 1000; },
      [](fi_info &h) { h.ep_attr->rx_ctx_cnt = 1000; },
      [](fi_info &h) { h.domain_attr->cq_data_size = 16; },
  };
  for (size_t i = 0; i < std::size(too_much); ++i) {
    const Info hints = make_hints();
    too_much[i](*hints);
    EXPECT_EQ(code(hints), -FI_ENODATA) << "case " << i;
  }
}

TEST(Getinfo, OrderThatWasAskedForIsGranted) {
  const Info hints = make_hints();
  hints->tx_attr->msg_order = hints->rx_attr->msg_order =
      FI_ORDER_SAS | FI_ORDER_WAW | FI_ORDER_SAW;
  hints->rx_attr->comp_order = FI_ORDER_STRICT;
  const Info info = get_info(test_node(), nullptr, 0, hints.get());
  EXPECT_EQ(info->tx_attr->msg_order & hints->tx_attr->msg_order, hints->tx_attr->msg_order);
  EXPECT_EQ(info->rx_attr->comp_order & FI_ORDER_STRICT, uint64_t(FI_ORDER_STRICT));
}

TEST(Getinfo, ProgressThatWasAskedForIsGranted) {
  for (const auto progress : {FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL}) {
    const Info hints = make_hints();
    hints->domain_attr->control_progress = hints->domain_attr->data_progress = progress;
    const Info info = get_info(test_node(), nullptr, 0, hints.get());
    if (progress == FI_PROGRESS_AUTO) {
      EXPECT_EQ(info->domain_attr->data_progress, FI_PROGRESS_AUTO);
      EXPECT_EQ(info->domain_attr->control_progress, FI_PROGRESS_AUTO);
    }
    EXPECT_NE(info->domain_attr->data_progress, FI_PROGRESS_UNSPEC);
    EXPECT_NE(info->domain_attr->control_progress, FI_PROGRESS_UNSPEC);
  }
}

TEST(Getinfo, EveryThreadingLevelCanBeAskedFor) {
  for (const auto level : {FI_THREAD_SAFE, FI_THREAD_FID, FI_THREAD_ENDPOINT, FI_THREAD_COMPLETION,
                           FI_THREAD_DOMAIN}) {
    const Info hints = make_hints();
    hints->domain_attr->threading = level;
    const Info info = get_info(test_node(), nullptr, 0, hints.get());
    EXPECT_TRUE(info->domain_attr->threading == level ||
                info->domain_attr->threading == FI_THREAD_SAFE)
        << level << " asked, " << info->domain_attr->threading << " given";
  }
}

TEST(Getinfo, ResourceManagementCanBeAskedFor) {
  NEEDS_WAITING_MESSAGES();
  for (const auto management : {FI_RM_ENABLED, FI_RM_DISABLED}) {
    const Info hints = make_hints();
    hints->domain_attr->resource_mgmt = management;
    const Info info = get_info(test_node(), nullptr, 0, hints.get());
    if (management == FI_RM_ENABLED) {
      EXPECT_EQ(info->domain_attr->resource_mgmt, FI_RM_ENABLED);
    }
  }
}

TEST(Getinfo, DomainAndFabricByName) {
  const Info hints = make_hints();
  const Info any = get_info(test_node(), nullptr, 0, hints.get());
  hints->domain_attr->name = strdup(any->domain_attr->name);
  hints->fabric_attr->name = strdup(any->fabric_attr->name);
  const Info info = get_info(nullptr, nullptr, 0, hints.get());
  for (const fi_info *i = info.get(); i != nullptr; i = i->next) {
    EXPECT_STREQ(i->domain_attr->name, any->domain_attr->name);
    EXPECT_STREQ(i->fabric_attr->name, any->fabric_attr->name);
  }
  free(hints->fabric_attr->name);
  hints->fabric_attr->name = strdup("no-such-fabric");
  EXPECT_EQ(code(hints), -FI_ENODATA);
  free(hints->fabric_attr->name);
  hints->fabric_attr->name = nullptr;
  free(hints->domain_attr->name);
  hints->domain_attr->name = strdup("no-such-domain");
  EXPECT_EQ(code(hints), -FI_ENODATA);
}

TEST(Getinfo, ProtocolByNumber) {
  const Info hints = make_hints();
  hints->ep_attr->protocol = get_info(test_node(), nullptr, 0, hints.get())->ep_attr->protocol;
  EXPECT_EQ(code(hints), 0);
  hints->ep_attr->protocol = FI_PROTO_UDP;
  EXPECT_EQ(code(hints), -FI_ENODATA);
}

TEST(Getinfo, ProviderThatDoesNotExistIsNoData) {
  const Info hints = make_hints();
  free(hints->fabric_attr->prov_name);
  hints->fabric_attr->prov_name = strdup("no-such-provider");
  EXPECT_EQ(code(hints), -FI_ENODATA);
}

TEST(Getinfo, WithFI_PROV_ATTR_ONLYOneEntryNamesTheProvider) {
  const Info hints = make_hints();
  const Info info = get_info(nullptr, nullptr, FI_PROV_ATTR_ONLY, hints.get());
  int entries = 0;  // of the provider itself; the library may list others
  for (const fi_info *entry = info.get(); entry != nullptr; entry = entry->next) {
    ASSERT_NE(entry->fabric_attr, nullptr);
    entries += entry->fabric_attr->prov_name == stack();
    EXPECT_NE(entry->fabric_attr->prov_version, 0u);
  }
  EXPECT_EQ(entries, 1);
}

TEST(Getinfo, LibraryOlderThanTheApplicationIsRefused) {
  EXPECT_EQ(code(make_hints(), test_node(), nullptr, 0, FI_VERSION(99, 0)), -FI_ENOSYS);
}

TEST(Getinfo, AnOfferServesAsHints) {
  const Info info = get_info(test_node(), "7471", 0, make_hints().get());
  const Info again = get_info(nullptr, nullptr, 0, info.get());
  EXPECT_EQ(again->fabric_attr->prov_name, stack());
  EXPECT_STREQ(again->domain_attr->name, info->domain_attr->name);
  ASSERT_NE(again->dest_addr, nullptr);
  EXPECT_EQ(text_of(again->dest_addr), node_at(7471));
}

TEST(Getinfo, ACopyIsDeepAndHasNoSuccessor) {
  const Info info = get_info(test_node(), "7471", 0, make_hints().get());
  const Info copy(fi_dupinfo(info.get()));
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->next, nullptr);
  EXPECT_NE(copy->fabric_attr, info->fabric_attr);
  EXPECT_NE(copy->dest_addr, info->dest_addr);
  EXPECT_EQ(text_of(copy->dest_addr), text_of(info->dest_addr));
  EXPECT_STREQ(copy->domain_attr->name, info->domain_attr->name);
}

TEST(Getinfo, AnOfferCanBePrinted) {
  const Info info = get_info(test_node(), "7471", 0, make_hints().get());
  char text[8192];
  fi_tostr_r(text, sizeof text, info.get(), FI_TYPE_INFO);
  EXPECT_NE(std::string(text).find("prov_name: " + stack()), std::string::npos) << text;
  EXPECT_NE(std::string(text).find("FI_EP_MSG"), std::string::npos);
  EXPECT_NE(std::string(text).find(text_at(7471)), std::string::npos);
}

}  // namespace
}  // namespace weft::conformance
