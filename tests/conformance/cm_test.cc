// SPDX-License-Identifier: BSD-2-Clause
// Connecting and ending (fi_cm.3, fi_eq.3): private data, rejection, errors, shutdown, and what
// happens when there is no room.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

std::string text(size_t size, unsigned seed) {
  const std::vector<uint8_t> bytes = pattern(size, seed);
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

// A passive side that listens and an active side that has an endpoint.
struct Parties {
  explicit Parties(const Options &options = {}) : passive(options), active(options) {
    passive.open(options_info(options, nullptr, FI_SOURCE).get());
    listener = std::make_unique<Listener>(passive);
    active.open(options_info(options).get());
    active.make_endpoint(active.info.get());
  }
  void connect(const std::string &data = "") {
    const std::string address = listener->address();
    must(fi_connect(active.ep, address.data(), data.data(), data.size()));
  }
  size_t data_limit() const {
    size_t limit = 0, size = sizeof limit;
    must(fi_getopt(&listener->pep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &limit, &size));
    return limit;
  }
  Event request() { return next_request(passive, {&active, &passive}); }
  Event event(Side &side) { return wait_event(side.eq, {&active, &passive}); }

  Side passive, active;
  std::unique_ptr<Listener> listener;
};

class CmPrivateData : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, CmPrivateData, ::testing::Values(0, 1, 16, 255, 256));

TEST_P(CmPrivateData, GoesWithConnectAndAccept) {
  Parties p;
  const size_t size = std::min(GetParam(), p.data_limit());
  const std::string asked = text(size, 1), answered = text(size, 2);
  p.connect(asked);
  const Event request = p.request();
  EXPECT_EQ(request.data, asked);
  p.passive.make_endpoint(request.info.get());
  must(fi_accept(p.passive.ep, answered.data(), answered.size()));
  const Event connected = p.event(p.active);
  EXPECT_EQ(connected.type, uint32_t(FI_CONNECTED));
  EXPECT_EQ(connected.fid, p.active.ep.fid());
  EXPECT_EQ(connected.data, answered);
  const Event passive = p.event(p.passive);
  EXPECT_EQ(passive.type, uint32_t(FI_CONNECTED));
  EXPECT_EQ(passive.fid, p.passive.ep.fid());
  EXPECT_EQ(passive.data, "");
}

TEST_P(CmPrivateData, GoesWithReject) {
  Parties p;
  const std::string why = text(std::min(GetParam(), p.data_limit()), 3);
  p.connect();
  const Event request = p.request();
  EXPECT_EQ(fi_reject(p.listener->pep, request.info->handle, why.data(), why.size()), 0);
  const Event refused = p.event(p.active);
  EXPECT_EQ(refused.err, FI_ECONNREFUSED);
  EXPECT_EQ(refused.fid, p.active.ep.fid());
  EXPECT_EQ(refused.data, why);
}

// fi_cm.3, NOTES: what does not fit is silently dropped.
TEST(Cm, PrivateDataAboveTheLimitIsCut) {
  for (size_t length : {size_t(257), size_t(100000)}) {
    const std::string asked = text(length, 1), answered = text(length, 2), why = text(length, 3);
    Parties p;
    const size_t limit = p.data_limit();
    p.connect(asked);
    const Event request = p.request();
    EXPECT_EQ(request.data, asked.substr(0, limit));
    p.passive.make_endpoint(request.info.get());
    EXPECT_EQ(fi_accept(p.passive.ep, answered.data(), answered.size()), 0);
    EXPECT_EQ(p.event(p.active).data, answered.substr(0, limit));

    Parties other;
    other.connect();
    const Event refused = other.request();
    EXPECT_EQ(fi_reject(other.listener->pep, refused.info->handle, why.data(), why.size()), 0);
    EXPECT_EQ(other.event(other.active).data, why.substr(0, limit));
  }
}

TEST(Cm, ConnectRefusesWrongArguments) {
  Parties p;
  const std::string address = p.listener->address();
  EXPECT_LT(fi_connect(p.active.ep, nullptr, nullptr, 0), 0);
  EXPECT_LT(fi_connect(p.active.ep, address.data(), nullptr, 7), 0);
  sockaddr_in wrong{};
  wrong.sin_family = 200;
  EXPECT_LT(fi_connect(p.active.ep, &wrong, nullptr, 0), 0);
}

TEST(Cm, AConnectionRequestHasTheAddressOfItsPeer) {
  Parties p;
  p.connect();
  const Event request = p.request();
  EXPECT_EQ(request.fid, p.listener->pep.fid());
  ASSERT_NE(request.info, nullptr);
  EXPECT_NE(request.info->handle, nullptr);
  EXPECT_EQ(request.info->ep_attr->type, FI_EP_MSG);
  EXPECT_EQ(request.info->fabric_attr->prov_name, stack());
  p.passive.make_endpoint(request.info.get());
  must(fi_accept(p.passive.ep, nullptr, 0));
  p.event(p.active);
  p.event(p.passive);
  // Each side's peer is the other one's name.
  EXPECT_EQ(p.active.peer(), p.listener->address());
  EXPECT_EQ(p.passive.peer(), p.active.name());
  EXPECT_EQ(p.passive.name(), p.listener->address());
  ASSERT_NE(request.info->dest_addr, nullptr);
  EXPECT_EQ(std::string(static_cast<char *>(request.info->dest_addr), request.info->dest_addrlen),
            p.active.name());
}

// fi_endpoint.3: an active endpoint may acquire the properties of a passive one, whose address is
// held from fi_setname on.
TEST(Cm, AnEndpointTakesOverAPassiveEndpointsAddress) {
  NEEDS_IPV4_ADDRESSES();
  Parties p;
  Side side;
  side.open(options_info(side.options).get());
  Handle<fid_pep> pep;
  must(fi_passive_ep(side.fabric, side.info.get(), pep.out(), nullptr));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  must(fi_setname(pep.fid(), &any, sizeof any));
  sockaddr_in held{};
  size_t length = sizeof held;
  must(fi_getname(pep.fid(), &held, &length));
  EXPECT_NE(held.sin_port, 0);
  const int rival = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_NE(::bind(rival, reinterpret_cast<sockaddr *>(&held), sizeof held), 0)
      << "nobody else gets the address meanwhile";

  side.info->handle = pep.fid();
  side.make_endpoint(side.info.get());
  sockaddr_in name{};
  must(fi_getname(side.ep.fid(), &name, &length));
  EXPECT_EQ(name.sin_port, held.sin_port);
  // The passive endpoint has given its only address away, and cannot use it any more.
  Handle<fid_ep> second;
  EXPECT_EQ(fi_endpoint(side.domain, side.info.get(), second.out(), nullptr), -FI_EINVAL);
  must(fi_pep_bind(pep, side.eq.fid(), 0));
  EXPECT_EQ(fi_listen(pep), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_setname(pep.fid(), &any, sizeof any), -FI_EOPBADSTATE);
  pep.reset();
  EXPECT_NE(::bind(rival, reinterpret_cast<sockaddr *>(&held), sizeof held), 0);
  ::close(rival);

  const std::string address = p.listener->address();
  must(fi_connect(side.ep, address.data(), nullptr, 0));
  const Event request = next_request(p.passive, {&side, &p.passive});
  ASSERT_EQ(request.info->dest_addrlen, sizeof held);
  EXPECT_EQ(static_cast<sockaddr_in *>(request.info->dest_addr)->sin_port, held.sin_port);
  p.passive.make_endpoint(request.info.get());
  must(fi_accept(p.passive.ep, nullptr, 0));
  EXPECT_EQ(wait_event(side.eq, {&side, &p.passive}).type, uint32_t(FI_CONNECTED));
}

TEST(Cm, AListenerKeepsItsAddress) {
  Parties p;
  p.active.info->handle = p.listener->pep.fid();  // of another fabric object
  Handle<fid_ep> ep;
  EXPECT_EQ(fi_endpoint(p.active.domain, p.active.info.get(), ep.out(), nullptr), -FI_EINVAL);
  p.passive.info->handle = p.listener->pep.fid();
  EXPECT_EQ(fi_endpoint(p.passive.domain, p.passive.info.get(), ep.out(), nullptr),
            -FI_EOPBADSTATE);
  p.connect();
  EXPECT_EQ(p.request().type, uint32_t(FI_CONNREQ));
}

TEST(Cm, RejectionFitsTheReadersBuffer) {
  for (const size_t room : {size_t(0), size_t(10), size_t(256), size_t(300)}) {
    Parties p;
    const std::string why = text(std::min(size_t(256), p.data_limit()), 9);
    p.connect();
    must(fi_reject(p.listener->pep, p.request().info->handle, why.data(), why.size()));
    uint32_t type;
    fi_eq_entry entry;
    ASSERT_TRUE(
        until([&] { return fi_eq_read(p.active.eq, &type, &entry, sizeof entry, 0) == -FI_EAVAIL; },
              {&p.active, &p.passive}));
    char buffer[400];
    memset(buffer, 0x5a, sizeof buffer);
    fi_eq_err_entry error{};
    error.err_data = room != 0 ? buffer : nullptr;
    error.err_data_size = room;
    EXPECT_EQ(fi_eq_readerr(p.active.eq, &error, 0), ssize_t(sizeof error));
    EXPECT_EQ(error.err, FI_ECONNREFUSED);
    const size_t expected = room == 0 ? why.size() : std::min(room, why.size());
    ASSERT_EQ(error.err_data_size, expected) << room;
    EXPECT_EQ(memcmp(error.err_data, why.data(), expected), 0) << room;
    if (room != 0) {
      EXPECT_EQ(error.err_data, buffer);
      EXPECT_EQ(buffer[expected], 0x5a);
    }
    EXPECT_EQ(fi_eq_readerr(p.active.eq, &error, 0), -FI_EAGAIN);
  }
}

TEST(Cm, AConnectWithoutAListenerIsAnErrorEvent) {
  Side active;
  active.open(options_info({}).get());
  active.make_endpoint(active.info.get());
  std::string address;
  {
    Side passive;
    passive.open(options_info({}, nullptr, FI_SOURCE).get());
    address = Listener(passive).address();
  }
  const int rc = fi_connect(active.ep, address.data(), nullptr, 0);
  if (rc != 0) {
    EXPECT_EQ(rc, -FI_ECONNREFUSED);
    return;
  }
  const Event refused = wait_event(active.eq, {&active});
  EXPECT_EQ(refused.err, FI_ECONNREFUSED);
  EXPECT_EQ(refused.fid, active.ep.fid());
}

TEST(Cm, AnEndpointConnectsOnce) {
  Parties p;
  p.connect();
  const std::string address = p.listener->address();
  EXPECT_LT(fi_connect(p.active.ep, address.data(), nullptr, 0), 0);
  const Event request = p.request();
  must(fi_reject(p.listener->pep, request.info->handle, nullptr, 0));
  EXPECT_EQ(p.event(p.active).err, FI_ECONNREFUSED);
  EXPECT_LT(fi_connect(p.active.ep, address.data(), nullptr, 0), 0);
}

TEST(Cm, AnEndpointOfARequestCannotConnect) {
  Parties p;
  p.connect();
  const Event request = p.request();
  p.passive.make_endpoint(request.info.get());
  const std::string address = p.listener->address();
  EXPECT_LT(fi_connect(p.passive.ep, address.data(), nullptr, 0), 0);
  EXPECT_EQ(fi_accept(p.passive.ep, nullptr, 0), 0);
  EXPECT_EQ(p.event(p.active).type, uint32_t(FI_CONNECTED));
}

TEST(Cm, AcceptTwiceIsRefused) {
  Parties p;
  p.connect();
  p.passive.make_endpoint(p.request().info.get());
  must(fi_accept(p.passive.ep, nullptr, 0));
  EXPECT_LT(fi_accept(p.passive.ep, nullptr, 0), 0);
}

TEST(Cm, AHandleIsGoodOnce) {
  Parties p;
  p.connect();
  const Event request = p.request();
  fid_t handle = request.info->handle;
  p.passive.make_endpoint(request.info.get());
  fid_ep *second = nullptr;
  EXPECT_LT(fi_endpoint(p.passive.domain, request.info.get(), &second, nullptr), 0);
  EXPECT_LT(fi_reject(p.listener->pep, handle, nullptr, 0), 0);
  must(fi_accept(p.passive.ep, nullptr, 0));
  EXPECT_EQ(p.event(p.active).type, uint32_t(FI_CONNECTED));
}

TEST(Cm, ARejectedHandleIsGone) {
  Parties p;
  p.connect();
  const Event request = p.request();
  must(fi_reject(p.listener->pep, request.info->handle, nullptr, 0));
  EXPECT_LT(fi_reject(p.listener->pep, request.info->handle, nullptr, 0), 0);
  fid_ep *ep = nullptr;
  EXPECT_LT(fi_endpoint(p.passive.domain, request.info.get(), &ep, nullptr), 0);
}

TEST(Cm, RejectRefusesOtherObjects) {
  Parties p;
  EXPECT_LT(fi_reject(p.listener->pep, nullptr, nullptr, 0), 0);
  EXPECT_LT(fi_reject(p.listener->pep, p.passive.eq.fid(), nullptr, 0), 0);
}

TEST(Cm, ARequestWhosePeerIsGoneEndsWithAnEvent) {
  Parties p;
  p.connect();
  const Event request = p.request();
  p.active.ep.reset();
  p.passive.make_endpoint(request.info.get());
  const int rc = fi_accept(p.passive.ep, nullptr, 0);
  if (rc != 0) return;  // found out at once
  // Either the connect fails, or the connection is made and then ends.
  for (;;) {
    const Event event = p.event(p.passive);
    if (event.err != 0 || event.type == FI_SHUTDOWN) break;
    EXPECT_EQ(event.type, uint32_t(FI_CONNECTED));
  }
}

// The application has a request from its event on.
TEST(Cm, ARequestThatWasReadOutlivesItsPassiveEndpoint) {
  Parties p;
  p.connect();
  const Event request = p.request();
  p.listener->pep.reset();
  p.passive.make_endpoint(request.info.get());
  must(fi_accept(p.passive.ep, nullptr, 0));
  EXPECT_EQ(p.event(p.active).type, uint32_t(FI_CONNECTED));
  EXPECT_EQ(p.event(p.passive).type, uint32_t(FI_CONNECTED));
}

TEST(Cm, ClosingTheFabricAnswersWaitingPeers) {
  Side active;
  {
    Side passive;
    passive.open(options_info({}, nullptr, FI_SOURCE).get());
    const Listener listener(passive);
    active.open(options_info({}).get());
    active.make_endpoint(active.info.get());
    const std::string address = listener.address();
    must(fi_connect(active.ep, address.data(), nullptr, 0));
    const Event request = next_request(passive, {&active, &passive});  // never answered
  }
  EXPECT_EQ(wait_event(active.eq, {&active}).err, FI_ECONNREFUSED);
}

TEST(Cm, ClosingThePassiveEndpointDropsUnreadRequests) {
  if (!in_fresh_process({kNoControl})) return;
  { const Parties warm; }
  const int before = count_descriptors();
  {
    Parties p;
    p.connect();
    // The request is there, and is not taken out.
    uint32_t type = 0;
    char entry[1024];
    ASSERT_TRUE(
        until([&] { return fi_eq_read(p.passive.eq, &type, entry, sizeof entry, FI_PEEK) > 0; },
              {&p.active, &p.passive}));
    EXPECT_EQ(type, uint32_t(FI_CONNREQ));
    p.listener->pep.reset();
    EXPECT_EQ(p.event(p.active).err, FI_ECONNREFUSED);
    EXPECT_EQ(fi_eq_read(p.passive.eq, &type, entry, sizeof entry, 0), -FI_EAGAIN);
  }
  EXPECT_EQ(count_descriptors(), before);
}

TEST(Cm, TwoPassiveEndpointsOnOneEventQueue) {
  Parties p;
  Listener second(p.passive);
  const std::string address = second.address();
  must(fi_connect(p.active.ep, address.data(), "second", 6));
  const Event request = p.request();
  EXPECT_EQ(request.fid, second.pep.fid());
  EXPECT_EQ(request.data, "second");
  must(fi_reject(second.pep, request.info->handle, nullptr, 0));
  EXPECT_EQ(p.event(p.active).err, FI_ECONNREFUSED);
}

TEST(Cm, SourceAddressOfTheActiveSideIsKept) {
  NEEDS_IPV4_ADDRESSES();
  Parties p;
  p.active.ep.reset();
  p.active.make_unbound_endpoint(p.active.info.get());
  p.active.bind_queues();
  // A port that is free now.
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(probe, reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(getsockname(probe, reinterpret_cast<sockaddr *>(&address), &size), 0);
  ::close(probe);
  ASSERT_EQ(fi_setname(p.active.ep.fid(), &address, sizeof address), 0);
  p.connect();
  const Event request = p.request();
  p.passive.make_endpoint(request.info.get());
  must(fi_accept(p.passive.ep, nullptr, 0));
  p.event(p.active);
  p.event(p.passive);
  sockaddr_in peer;
  const std::string name = p.passive.peer();
  ASSERT_EQ(name.size(), sizeof peer);
  memcpy(&peer, name.data(), sizeof peer);
  EXPECT_EQ(peer.sin_port, address.sin_port);
}

void exchange_one(Pair &pair) {
  char in[4] = {}, out[4] = {'p', 'i', 'n', 'g'};
  must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
  must(fi_send(pair.a.ep, out, sizeof out, nullptr, 0, out));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).len, sizeof in);
  EXPECT_EQ(pair.wait(pair.a.tx_cq).context, out);
  EXPECT_EQ(memcmp(in, out, sizeof in), 0);
}

TEST(Cm, OverIPv6) {
  NEEDS_IPV4_ADDRESSES();
  if (!have_ipv6_loopback()) GTEST_SKIP() << "no IPv6 loopback on this host";
  Options options;
  options.node = "::1";
  Pair pair(options);
  EXPECT_EQ(pair.a.peer().size(), sizeof(sockaddr_in6));
  EXPECT_EQ(pair.a.peer(), pair.b.name());
  exchange_one(pair);
}

TEST(Cm, WithAddressesAsText) {
  NEEDS_IPV4_ADDRESSES();
  Options options;
  options.addr_format = FI_ADDR_STR;
  Pair pair(options);
  EXPECT_TRUE(pair.a.peer().starts_with("fi_sockaddr_in://127.0.0.1:")) << pair.a.peer();
  EXPECT_EQ(pair.a.peer(), pair.listener->address());
  exchange_one(pair);
}

// ---- the end ----

void expect_flushed(Pair &pair, Side &side, void *context) {
  const Done done = pair.wait(side.rx_cq);
  EXPECT_EQ(done.context, context);
  EXPECT_EQ(done.err, FI_ECANCELED);
}

TEST(Cm, ShutdownIsAnEventOfBothSidesAndFlushesReceives) {
  for (const bool active : {true, false}) {
    Pair pair;
    Side &one = active ? pair.a : pair.b, &other = active ? pair.b : pair.a;
    char buffers[3][8];
    for (char *buffer : buffers) {
      must(fi_recv(one.ep, buffer, 8, nullptr, 0, buffer));
      must(fi_recv(other.ep, buffer, 8, nullptr, 0, buffer));
    }
    ASSERT_EQ(fi_shutdown(one.ep, 0), 0);
    // Operations that are cancelled are cancelled before fi_shutdown returns.
    for (char *buffer : buffers) {
      const auto done = poll_cq(one.rx_cq);
      ASSERT_TRUE(done.has_value());
      EXPECT_EQ(done->context, buffer);
      EXPECT_EQ(done->err, FI_ECANCELED);
    }
    const Event end = pair.wait(other.eq);
    EXPECT_EQ(end.type, uint32_t(FI_SHUTDOWN));
    EXPECT_EQ(end.fid, other.ep.fid());
    for (char *buffer : buffers) expect_flushed(pair, other, buffer);
    pair.settle();
    EXPECT_FALSE(poll_eq(other.eq).has_value()) << "told once";
    // The side that called fi_shutdown gets the event too, as with stock libfabric: programs wait
    // for it before they close.
    const auto mine = poll_eq(one.eq);
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->type, uint32_t(FI_SHUTDOWN));
    EXPECT_EQ(mine->fid, one.ep.fid());
    EXPECT_FALSE(poll_eq(one.eq).has_value()) << "told once";
  }
}

TEST(Cm, ClosingAnEndpointIsAnEventOfThePeer) {
  for (const bool active : {true, false}) {
    Pair pair;
    Side &one = active ? pair.a : pair.b, &other = active ? pair.b : pair.a;
    char buffer[8];
    must(fi_recv(other.ep, buffer, sizeof buffer, nullptr, 0, buffer));
    one.ep.reset();
    EXPECT_EQ(pair.wait(other.eq).type, uint32_t(FI_SHUTDOWN));
    expect_flushed(pair, other, buffer);
  }
}

TEST(Cm, MessagesSentBeforeShutdownArrive) {
  Pair pair;
  constexpr int kCount = 40;
  std::vector<std::vector<uint8_t>> in(kCount), out(kCount);
  for (int i = 0; i < kCount; ++i) {
    out[i] = pattern(1000, unsigned(i));
    in[i].resize(1000);
    must(fi_recv(pair.b.ep, in[i].data(), in[i].size(), nullptr, 0, nullptr));
  }
  for (int i = 0; i < kCount; ++i)
    must(fi_send(pair.a.ep, out[i].data(), out[i].size(), nullptr, 0, nullptr));
  // fi_shutdown may cancel what is not complete (fi_cm.3).
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
  must(fi_shutdown(pair.a.ep, 0));
  for (int i = 0; i < kCount; ++i) {
    const Done done = pair.wait(pair.b.rx_cq);
    ASSERT_EQ(done.err, 0) << i;
    EXPECT_EQ(in[i], out[i]);
  }
  EXPECT_EQ(pair.wait(pair.b.eq).type, uint32_t(FI_SHUTDOWN));
}

TEST(Cm, InjectedDataIsDeliveredThoughTheEndpointCloses) {
  Pair pair;
  char in[60], out[60];
  memset(out, 'i', sizeof out);
  must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
  must(fi_inject(pair.a.ep, out, sizeof out, 0));
  pair.a.ep.reset();
  const Done done = pair.wait(pair.b.rx_cq);
  EXPECT_EQ(done.err, 0);
  EXPECT_EQ(done.len, sizeof in);
  EXPECT_EQ(memcmp(in, out, sizeof in), 0);
}

// Each message is acknowledged, and the endpoint that sent it is gone by then.
TEST(Cm, ManyInjectedMessagesAreDeliveredThoughTheEndpointCloses) {
  if (is_of_a_device(FI_EP_MSG)) GTEST_SKIP() << "a device drops what has no receive yet";
  Options options;
  options.tx_op_flags = FI_DELIVERY_COMPLETE;
  if (!options_info(options)) GTEST_SKIP() << "fi_getinfo does not offer this level";
  fid_cntr *sent = nullptr;
  Pair pair(options, options, [&](Side &side) {
    if (sent == nullptr) sent = side.count(FI_SEND);
  });
  size_t count = 0;
  char in[60], out[60] = {};
  for (; count < 300; ++count) {
    const ssize_t rc = fi_inject(pair.a.ep, out, sizeof out, 0);
    if (rc == -FI_EAGAIN) break;  // as many wait for their acknowledgements as may
    must(rc);
  }
  EXPECT_GT(count, 10u);
  pair.a.ep.reset();
  for (size_t i = 0; i < count; ++i) {
    must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
    ASSERT_EQ(pair.wait(pair.b.rx_cq).err, 0) << i << " of " << count;
  }
}

// With these flags a message that finds no receive does not complete. A device needs none.
uint64_t waits_for_the_receive() {
  return is_of_a_device(FI_EP_MSG) ? 0 : FI_DELIVERY_COMPLETE;
}

TEST(Cm, ClosingAnEndpointDiscardsItsOperations) {
  NEEDS_WAITING_MESSAGES();
  Pair pair;
  char in[8], out[8] = {};
  must(fi_recv(pair.a.ep, in, sizeof in, nullptr, 0, in));
  const iovec iov{out, sizeof out};
  fi_msg message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  must(fi_sendmsg(pair.a.ep, &message, waits_for_the_receive()));  // there will be none
  pair.a.progress();
  pair.a.ep.reset();
  pair.settle();
  EXPECT_FALSE(poll_cq(pair.a.rx_cq).has_value()) << "silently (fi_endpoint.3)";
  EXPECT_FALSE(poll_cq(pair.a.tx_cq).has_value());
  EXPECT_FALSE(poll_eq(pair.a.eq).has_value());
  EXPECT_EQ(pair.wait(pair.b.eq).type, uint32_t(FI_SHUTDOWN));
}

TEST(Cm, EventsOfAClosedEndpointAreGone) {
  Parties p;
  p.connect();
  p.passive.make_endpoint(p.request().info.get());
  must(fi_accept(p.passive.ep, nullptr, 0));
  uint32_t type = 0;
  alignas(fi_eq_cm_entry) char entry[sizeof(fi_eq_cm_entry)];
  ASSERT_TRUE(
      until([&] { return fi_eq_read(p.active.eq, &type, entry, sizeof entry, FI_PEEK) > 0; },
            {&p.active, &p.passive}));
  EXPECT_EQ(type, uint32_t(FI_CONNECTED));
  // Both close before they have read that they are connected.
  p.active.ep.reset();
  p.passive.ep.reset();
  EXPECT_EQ(fi_eq_read(p.active.eq, &type, entry, sizeof entry, 0), -FI_EAGAIN);
  EXPECT_EQ(fi_eq_read(p.passive.eq, &type, entry, sizeof entry, 0), -FI_EAGAIN);
}

TEST(Cm, AnEndpointMayCloseInTheMiddleOfAMessage) {
  for (const bool sender : {true, false}) {
    Pair pair;
    // More than the kernel's buffers hold, whose limits are tens of MiB.
    const size_t size = up_to_limit(192 << 20);
    const auto out = std::make_unique_for_overwrite<uint8_t[]>(size);
    const auto in = std::make_unique_for_overwrite<uint8_t[]>(size);
    must(fi_recv(pair.b.ep, in.get(), size, nullptr, 0, in.get()));
    must(fi_send(pair.a.ep, out.get(), size, nullptr, 0, out.get()));
    for (int i = 0; i < 3; ++i) pair.progress();
    Side &closing = sender ? pair.a : pair.b, &other = sender ? pair.b : pair.a;
    closing.ep.reset();
    EXPECT_EQ(pair.wait(other.eq).type, uint32_t(FI_SHUTDOWN));
    const Done done = pair.wait(sender ? other.rx_cq : other.tx_cq);
    EXPECT_EQ(done.context, sender ? in.get() : out.get())
        << (sender ? "receive" : "send") << ": flags " << done.flags << ", length " << done.len
        << ", error " << done.err << ", the provider's " << done.prov_errno;
    // A device may have moved all of it before the call returned that posted it.
    if (!is_of_a_device(FI_EP_MSG)) {
      EXPECT_NE(done.err, 0) << "not all of it went over";
    }
  }
}

TEST(Cm, OperationsAfterTheEndAreRefused) {
  Pair pair;
  must(fi_shutdown(pair.a.ep, 0));
  EXPECT_EQ(pair.wait(pair.b.eq).type, uint32_t(FI_SHUTDOWN));
  char byte = 0;
  for (const Side *side : {&pair.a, &pair.b}) {
    for (const ssize_t rc :
         {fi_send(side->ep, &byte, 1, nullptr, 0, nullptr), fi_inject(side->ep, &byte, 1, 0),
          fi_write(side->ep, &byte, 1, nullptr, 0, 0, 0, nullptr),
          fi_read(side->ep, &byte, 1, nullptr, 0, 0, 0, nullptr)}) {
      EXPECT_LT(rc, 0);
      EXPECT_NE(rc, -FI_EAGAIN);
    }
  }
}

TEST(Cm, ShutdownTakesNoFlags) {
  Pair pair;
  EXPECT_LT(fi_shutdown(pair.a.ep, 1), 0);
  exchange_one(pair);
}

TEST(Cm, OperationsThatWaitForThePeerFailWithIt) {
  NEEDS_WAITING_MESSAGES();
  Pair pair;
  char out[16] = {}, in[16];
  // Waits for an acknowledgement that never comes: there is no receive.
  fi_msg message{};
  iovec iov{out, sizeof out};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.context = out;
  must(fi_sendmsg(pair.a.ep, &message, waits_for_the_receive()));
  must(fi_recv(pair.a.ep, in, sizeof in, nullptr, 0, in));
  pair.settle();
  EXPECT_FALSE(poll_cq(pair.a.tx_cq).has_value());
  pair.b.ep.reset();
  const Done done = pair.wait(pair.a.tx_cq);
  EXPECT_EQ(done.context, out);
  EXPECT_NE(done.err, 0);
  expect_flushed(pair, pair.a, in);
}

TEST(Cm, AnEndpointMayCloseWhileItConnects) {
  for (int i = 0; i < 10; ++i) {
    Parties p;
    p.connect();
    for (int k = 0; k < i; ++k) p.active.progress();
    p.active.ep.reset();
    EXPECT_FALSE(poll_eq(p.active.eq).has_value());
  }
}

// ---- many ----

TEST(Cm, TwoHundredConnections) {
  constexpr int kCount = 200;
  Options options;
  options.one_cq = true;
  Side passive(options), active(options);
  passive.open(options_info(options, nullptr, FI_SOURCE).get());
  active.open(options_info(options).get());
  Listener listener(passive);
  const std::string address = listener.address();
  std::vector<Handle<fid_ep>> callers(kCount), answerers;
  std::vector<uint32_t> received(kCount, ~0u), sent(kCount);
  for (Handle<fid_ep> &ep : callers) {
    must(fi_endpoint(active.domain, active.info.get(), ep.out(), nullptr));
    must(fi_ep_bind(ep, active.eq.fid(), 0));
    must(fi_ep_bind(ep, active.tx_cq.fid(), FI_TRANSMIT | FI_RECV));
    const uint32_t number = uint32_t(&ep - callers.data());
    must(fi_connect(ep, address.data(), &number, sizeof number));
  }
  int connected = 0;
  ASSERT_TRUE(until(
      [&] {
        while (auto event = poll_eq(passive.eq)) {
          if (event->type != FI_CONNREQ) continue;
          uint32_t number;
          memcpy(&number, event->data.data(), sizeof number);
          answerers.emplace_back();
          must(fi_endpoint(passive.domain, event->info.get(), answerers.back().out(), nullptr));
          must(fi_ep_bind(answerers.back(), passive.eq.fid(), 0));
          must(fi_ep_bind(answerers.back(), passive.tx_cq.fid(), FI_TRANSMIT | FI_RECV));
          must(fi_enable(answerers.back()));
          must(fi_recv(answerers.back(), &received[number], sizeof(uint32_t), nullptr, 0, nullptr));
          must(fi_accept(answerers.back(), nullptr, 0));
        }
        while (auto event = poll_eq(active.eq)) {
          EXPECT_EQ(event->type, uint32_t(FI_CONNECTED)) << error_text(event->err);
          ++connected;
        }
        return connected == kCount;
      },
      {&active, &passive}));
  ASSERT_EQ(answerers.size(), size_t(kCount));
  for (int i = 0; i < kCount; ++i) {
    sent[i] = uint32_t(i);
    ssize_t rc = 0;  // a device's queue has only so many places
    ASSERT_TRUE(until(
        [&] {
          rc = fi_send(callers[i], &sent[i], sizeof sent[i], nullptr, 0, nullptr);
          return rc != -FI_EAGAIN;
        },
        {&active, &passive}));
    must(rc);
  }
  int arrived = 0;
  ASSERT_TRUE(until(
      [&] {
        while (auto done = poll_cq(passive.tx_cq)) {
          EXPECT_EQ(done->err, 0);
          ++arrived;
        }
        return arrived == kCount;
      },
      {&active, &passive}));
  EXPECT_EQ(received, sent);
}

TEST(Cm, ConnectingManyTimesLeaksNoDescriptors) {
  if (!in_fresh_process({kNoControl})) return;
  Parties p;
  auto once = [&](bool accept) {
    p.active.ep.reset();
    p.active.make_endpoint(p.active.info.get());
    p.connect("hello");
    const Event request = p.request();
    if (accept) {
      p.passive.make_endpoint(request.info.get());
      must(fi_accept(p.passive.ep, nullptr, 0));
      EXPECT_EQ(p.event(p.active).type, uint32_t(FI_CONNECTED));
      EXPECT_EQ(p.event(p.passive).type, uint32_t(FI_CONNECTED));
      p.passive.ep.reset();
      EXPECT_EQ(p.event(p.active).type, uint32_t(FI_SHUTDOWN));
    } else {
      must(fi_reject(p.listener->pep, request.info->handle, nullptr, 0));
      EXPECT_EQ(p.event(p.active).err, FI_ECONNREFUSED);
    }
  };
  once(true);
  once(false);
  const int before = count_descriptors();
  for (int i = 0; i < 60; ++i) once(i % 3 != 0);
  EXPECT_EQ(count_descriptors(), before);
}

// ---- no room, no answer ----

// A socket that listens and never answers.
struct Mute {
  Mute(int backlog, int callers) {
    fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0 ||
        ::listen(fd, backlog) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size) != 0)
      throw std::runtime_error("no listening socket");
    for (int i = 0; i < callers; ++i) {
      const int caller = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      if (::connect(caller, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0 &&
          errno != EINPROGRESS)
        throw std::runtime_error("connect");
      fillers.push_back(caller);
    }
  }
  ~Mute() {
    for (const int filler : fillers) ::close(filler);
    ::close(fd);
  }
  int fd;
  sockaddr_in address{};
  std::vector<int> fillers;
};

void expect_timeout(const Mute &mute) {
  Side active;
  active.open(options_info({}).get());
  active.make_endpoint(active.info.get());
  const auto start = std::chrono::steady_clock::now();
  must(fi_connect(active.ep, &mute.address, nullptr, 0));
  const Event event = wait_event(active.eq, {&active});
  const auto spent = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(event.err, FI_ETIMEDOUT);
  EXPECT_EQ(event.fid, active.ep.fid());
  EXPECT_GE(spent, std::chrono::milliseconds(290));
  EXPECT_LT(spent, std::chrono::seconds(10));
}

TEST(CmTimeout, PeerThatNeverAnswersTheRequest) {
  NEEDS_IPV4_ADDRESSES();
  if (stack() != "tcp") GTEST_SKIP() << "names a parameter of tcp";
  if (!in_fresh_process({"FI_TCP_CONNECT_TIMEOUT_MS=300"})) return;
  expect_timeout(Mute(16, 0));
}

TEST(CmTimeout, ConnectionThatTheKernelNeverMakes) {
  NEEDS_IPV4_ADDRESSES();
  if (stack() != "tcp") GTEST_SKIP() << "names a parameter of tcp";
  if (!in_fresh_process({"FI_TCP_CONNECT_TIMEOUT_MS=300"})) return;
  expect_timeout(Mute(0, 4));  // the backlog is full: further requests are not answered
}

TEST(CmTimeout, IsNoticedByABlockedReader) {
  NEEDS_IPV4_ADDRESSES();
  if (stack() != "tcp") GTEST_SKIP() << "names a parameter of tcp";
  if (!in_fresh_process({"FI_TCP_CONNECT_TIMEOUT_MS=300"})) return;
  const Mute mute(16, 0);
  Options options;
  options.eq = Options::eq_attr(FI_WAIT_FD);
  Side active(options);
  active.open(options_info(options).get());
  active.make_endpoint(active.info.get());
  must(fi_connect(active.ep, &mute.address, nullptr, 0));
  uint32_t type;
  fi_eq_cm_entry entry;
  EXPECT_EQ(fi_eq_sread(active.eq, &type, &entry, sizeof entry, 20000, 0), -FI_EAVAIL);
  fi_eq_err_entry error{};
  must(fi_eq_readerr(active.eq, &error, 0));
  EXPECT_EQ(error.err, FI_ETIMEDOUT);
}

TEST(CmDescriptors, ConnectWithoutOneIsEMFILE) {
  NEEDS_SOFTWARE(FI_EP_MSG, "connections of a device are no descriptors");
  if (!can_be_out_of_descriptors()) GTEST_SKIP() << "UBSan needs descriptors itself";
  if (!in_fresh_process({kNoControl})) return;
  Parties p;
  p.active.progress();
  p.passive.progress();
  const std::string address = p.listener->address();
  {
    NoDescriptors none;
    EXPECT_EQ(fi_connect(p.active.ep, address.data(), nullptr, 0), -FI_EMFILE);
  }
  // The failure has no effect: the next connect works.
  p.connect();
  p.passive.make_endpoint(p.request().info.get());
  must(fi_accept(p.passive.ep, nullptr, 0));
  EXPECT_EQ(p.event(p.active).type, uint32_t(FI_CONNECTED));
}

TEST(CmDescriptors, AcceptWithoutOneIsAnEventAndRecovers) {
  NEEDS_SOFTWARE(FI_EP_MSG, "connections of a device are no descriptors");
  if (!can_be_out_of_descriptors()) GTEST_SKIP() << "UBSan needs descriptors itself";
  if (!in_fresh_process({kNoControl})) return;
  Parties p;
  p.active.progress();
  p.passive.progress();
  {
    NoDescriptors none;
    none.give_one();  // for the socket of the active side
    p.connect();
    const Event event = wait_event(p.passive.eq, {&p.active, &p.passive});
    EXPECT_EQ(event.err, FI_EMFILE);
    EXPECT_EQ(event.fid, p.listener->pep.fid());
    EXPECT_NE(event.data.find("ulimit"), std::string::npos) << "it says what to do: " << event.data;
  }
  // The request waited in the kernel.
  p.passive.make_endpoint(p.request().info.get());
  must(fi_accept(p.passive.ep, nullptr, 0));
  EXPECT_EQ(p.event(p.active).type, uint32_t(FI_CONNECTED));
}

class CmDescriptorsWait : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(WaitedBefore, CmDescriptorsWait, ::testing::Bool());

TEST_P(CmDescriptorsWait, AcceptWithoutOneDoesNotSpin) {
  NEEDS_SOFTWARE(FI_EP_MSG, "connections of a device are no descriptors");
  if (!can_be_out_of_descriptors()) GTEST_SKIP() << "UBSan needs descriptors itself";
  if (!in_fresh_process({kNoControl})) return;
  Options options;
  options.eq = Options::eq_attr(FI_WAIT_FD);
  Parties p(options);
  // Descriptors of the wait objects exist from the first wait on, if there are any.
  uint32_t type;
  fi_eq_cm_entry entry;
  if (GetParam()) {
    EXPECT_EQ(fi_eq_sread(p.passive.eq, &type, &entry, sizeof entry, 100, 0), -FI_EAGAIN);
  }
  NoDescriptors none;
  none.give_one();
  p.connect();
  ASSERT_EQ(fi_eq_sread(p.passive.eq, &type, &entry, sizeof entry, 20000, 0), -FI_EAVAIL);
  fi_eq_err_entry error{};
  must(fi_eq_readerr(p.passive.eq, &error, 0));
  EXPECT_EQ(error.err, FI_EMFILE);
  // To wait with the connection still in the kernel's queue costs next to no processor time.
  constexpr auto kLimit = std::chrono::milliseconds(20);
  const auto wait = [&] {
    // A queue that was never waited for has no descriptor to sleep on: the call fails at once.
    EXPECT_EQ(fi_eq_sread(p.passive.eq, &type, &entry, sizeof entry, 100, 0),
              GetParam() ? -FI_EAGAIN : -FI_EMFILE);
  };
  EXPECT_LT(cpu_time_of(kLimit, wait), kLimit);
}

}  // namespace
}  // namespace weft::conformance
