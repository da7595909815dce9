// SPDX-License-Identifier: BSD-2-Clause
// Public reports about connected endpoints, and about fi_getinfo and its structures, which are the
// same for all. reports.toml says who reported what.
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

TEST(ReportedConnection, BothMayShutDownAndAreToldOnce) {
  Pair pair;
  must(fi_shutdown(pair.a.ep, 0));
  const int rc = fi_shutdown(pair.b.ep, 0);
  EXPECT_TRUE(rc == 0 || rc == -FI_ENOTCONN) << error_text(rc);
  int ends[2] = {};
  const auto count = [&] {
    for (Side *side : {&pair.a, &pair.b})
      while (const auto event = poll_eq(side->eq)) {
        EXPECT_EQ(event->type, uint32_t(FI_SHUTDOWN));
        EXPECT_EQ(event->fid, side->ep.fid());
        ++ends[side == &pair.b];
      }
  };
  EXPECT_TRUE(pair.until([&] {
    count();
    return ends[0] > 0 && ends[1] > 0;
  }));
  pair.settle();
  count();
  EXPECT_EQ(ends[0], 1);
  EXPECT_EQ(ends[1], 1);
}

// Each send after the end is refused, or has one completion, which is its own.
TEST(ReportedConnection, SendsAfterTheEndCompleteOnceOrNotAtAll) {
  Pair pair;
  std::vector<uint8_t> out = pattern(64, 1);
  pair.b.ep.reset();
  EXPECT_EQ(pair.wait_event(pair.a.eq, FI_SHUTDOWN).fid, pair.a.ep.fid());
  char contexts[5];
  size_t taken = 0;
  for (char &context : contexts)
    if (fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, &context) == 0) {
      const Completion done = pair.wait(pair.a.tx_cq);
      EXPECT_NE(done.err, 0);
      EXPECT_EQ(done.context, &context);
      ++taken;
    }
  pair.settle();
  EXPECT_FALSE(poll_cq(pair.a.tx_cq).has_value()) << "after " << taken << " of its own";
}

// fi_cm.3: who cannot accept rejects, also when it got as far as an endpoint for the request.
TEST(ReportedConnection, ARequestCanBeRefusedAfterAnEndpointWasMadeForIt) {
  Side passive, active;
  passive.open(options_info(passive.options, nullptr, FI_SOURCE).get());
  Listener listener(passive);
  active.open(options_info(active.options).get());
  active.make_endpoint(active.info.get());
  const std::string address = listener.address();
  must(fi_connect(active.ep, address.data(), nullptr, 0));
  const Event request = next_request(passive, {&active, &passive});
  passive.make_unbound_endpoint(request.info.get());
  fi_reject(listener.pep, request.info->handle, nullptr, 0);  // whatever it says, no crash
  passive.ep.reset();
  const Event refused = wait_event(active.eq, {&active, &passive});
  EXPECT_EQ(refused.fid, active.ep.fid());
  EXPECT_NE(refused.err, 0) << "an error, not event " << refused.type;
}

// A client at a port of its own choice, at any address of its host.
TEST(ReportedConnection, AClientMayChooseItsPortAlone) {
  NEEDS_IPV4_ADDRESSES();
  Side passive;
  passive.open(options_info(passive.options, nullptr, FI_SOURCE).get());
  Listener listener(passive);
  uint16_t port = 0;
  {
    Listener brief(passive);
    port = uint16_t(std::stoi(port_of(brief.address())));
  }
  Info hints = make_hints(Options());
  auto *wanted = static_cast<sockaddr_in *>(std::calloc(1, sizeof(sockaddr_in)));
  wanted->sin_family = AF_INET;
  wanted->sin_addr.s_addr = htonl(INADDR_ANY);
  wanted->sin_port = htons(port);
  hints->src_addr = wanted;
  hints->src_addrlen = sizeof *wanted;
  hints->addr_format = FI_SOCKADDR_IN;
  Info info;
  ASSERT_EQ(try_info(info, "127.0.0.1", port_of(listener.address()).c_str(), 0, hints.get()), 0);
  Side active;
  active.open(info.get());
  active.make_endpoint(active.info.get());
  must(fi_connect(active.ep, info->dest_addr, nullptr, 0));
  const Event request = next_request(passive, {&active, &passive});
  const std::string from(static_cast<const char *>(request.info->dest_addr),
                         request.info->dest_addrlen);
  EXPECT_EQ(port_of(from), std::to_string(port));
}

// Behind a firewall: listeners take their ports from the range that is open.
TEST(ReportedEnvironment, ListenersTakePortsOfTheRange) {
  if (!in_fresh_process({"FI_TCP_PORT_LOW_RANGE=21000", "FI_TCP_PORT_HIGH_RANGE=21049"})) return;
  NEEDS_HOST_NAMES();
  Side side;
  side.open(options_info(side.options, nullptr, FI_SOURCE).get());
  std::vector<std::unique_ptr<Listener>> listeners;
  for (int i = 0; i < 3; ++i) {
    listeners.push_back(std::make_unique<Listener>(side));
    const int port = std::stoi(port_of(listeners.back()->address()));
    EXPECT_GE(port, 21000);
    EXPECT_LE(port, 21049);
  }
}

// A server that ended its connections comes back at its port, though the kernel still remembers
// them.
TEST(ReportedConnection, AListenerReturnsToItsPortAtOnce) {
  NEEDS_HOST_NAMES();
  std::string address;
  {
    Pair pair;
    address = pair.listener->address();
    must(fi_shutdown(pair.b.ep, 0));  // the side that ends it first
    pair.wait_event(pair.a.eq, FI_SHUTDOWN);
    pair.b.ep.reset();
  }
  Side side;
  const Info info = options_info(side.options, port_of(address).c_str(), FI_SOURCE);
  side.open(info.get());
  const Listener again(side, *info);
  EXPECT_EQ(port_of(again.address()), port_of(address));
}

// ---- fi_getinfo ----

// Names of the providers that fi_getinfo offers for these hints, which may be null.
std::vector<std::string> names(const fi_info *hints) {
  Info list;
  const int rc = try_info(list, nullptr, nullptr, 0, hints);
  if (rc != -FI_ENODATA) must(rc);
  std::vector<std::string> all;
  for (const fi_info *info = list.get(); info != nullptr; info = info->next)
    all.emplace_back(info->fabric_attr->prov_name);
  return all;
}

bool has(const std::vector<std::string> &all, const std::string &name) {
  return std::find(all.begin(), all.end(), name) != all.end();
}

TEST(ReportedInfo, HintsThatAskForNothingAreAnswered) {
  const Info hints(fi_allocinfo());
  EXPECT_TRUE(has(names(hints.get()), stack()));
}

TEST(ReportedInfo, AnExcludedProviderIsNotOffered) {
  if (!in_fresh_process({"FI_PROVIDER=^tcp"})) return;
  const std::vector<std::string> all = names(nullptr);
  EXPECT_FALSE(has(all, "tcp"));
  EXPECT_TRUE(has(all, "udp"));
}

// MPI jobs set FI_PROVIDER=tcp and want reliable datagrams with tags.
TEST(ReportedInfo, TheLayersOfANamedProviderComeWithIt) {
  if (!in_fresh_process({"FI_PROVIDER=tcp"})) return;
  const Info hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_TAGGED | FI_MSG;
  const std::vector<std::string> all = names(hints.get());
  EXPECT_TRUE(has(all, "tcp;ofi_rxm"));
  EXPECT_FALSE(has(all, "udp;ofi_rxd"));
}

// The old mode bit and the new one together.
TEST(ReportedInfo, OldAndNewBitsForLocalRegionsAreNoCrash) {
  Info hints = make_hints(), list;
  hints->mode |= FI_LOCAL_MR;
  hints->domain_attr->mr_mode |= FI_MR_LOCAL;
  hints->ep_attr->protocol = FI_PROTO_RDMA_CM_IB_RC;
  const int rc = try_info(list, nullptr, nullptr, 0, hints.get());
  EXPECT_TRUE(rc == 0 || rc == -FI_ENODATA) << error_text(rc);
  hints->ep_attr->protocol = FI_PROTO_UNSPEC;
  EXPECT_EQ(try_info(list, nullptr, nullptr, 0, hints.get()), 0);
}

TEST(ReportedInfo, StructuresWithoutTheirPartsCanBePrinted) {
  fi_info empty{};
  EXPECT_NE(fi_tostr(&empty, FI_TYPE_INFO), nullptr);
  const Info hints(fi_allocinfo());
  EXPECT_NE(fi_tostr(hints.get(), FI_TYPE_INFO), nullptr);
  const Info found = get_info(test_node(), nullptr, 0, make_hints().get());
  const std::string text = fi_tostr(found.get(), FI_TYPE_INFO);
  EXPECT_NE(text.find(stack()), std::string::npos);
}

}  // namespace
}  // namespace weft::conformance
