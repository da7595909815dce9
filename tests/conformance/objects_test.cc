// SPDX-License-Identifier: BSD-2-Clause
// The life of objects: what must be bound, in which order things open and close, and what wrong
// arguments get (fi_fabric.3, fi_domain.3, fi_endpoint.3, fi_cq.3, fi_cntr.3, fi_mr.3, fi_cm.3).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_tagged.h>

#include <cstring>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

// An error that neither progress nor another try removes.
void expect_error(ssize_t rc, int line = __builtin_LINE()) {
  EXPECT_LT(rc, 0) << "line " << line;
  EXPECT_NE(rc, -FI_EAGAIN) << "line " << line;
}

class Objects : public ::testing::Test {
 protected:
  Objects() {
    info = options_info({});
    side.open(info.get());
  }
  Info info;
  Side side;
};

// ---- closing ----

TEST_F(Objects, FabricWithOpenObjectsIsBusy) {
  EXPECT_EQ(fi_close(side.fabric.fid()), -FI_EBUSY);
  Side other;
  must(fi_fabric(info->fabric_attr, other.fabric.out(), nullptr));
  fi_eq_attr attr{};
  must(fi_eq_open(other.fabric, &attr, other.eq.out(), nullptr));
  EXPECT_EQ(fi_close(other.fabric.fid()), -FI_EBUSY);
}

TEST_F(Objects, DomainWithAnOpenQueueIsBusy) {
  EXPECT_EQ(fi_close(side.domain.fid()), -FI_EBUSY);
}

TEST_F(Objects, DomainWithAnOpenEndpointIsBusy) {
  Side bare;
  must(fi_fabric(info->fabric_attr, bare.fabric.out(), nullptr));
  must(fi_domain(bare.fabric, info.get(), bare.domain.out(), nullptr));
  bare.make_unbound_endpoint(info.get());
  EXPECT_EQ(fi_close(bare.domain.fid()), -FI_EBUSY);
}

TEST_F(Objects, DomainWithAnOpenRegionIsBusy) {
  Side bare;
  must(fi_fabric(info->fabric_attr, bare.fabric.out(), nullptr));
  must(fi_domain(bare.fabric, info.get(), bare.domain.out(), nullptr));
  char memory[64] = {};
  bare.expose(memory, sizeof memory, FI_REMOTE_READ);
  EXPECT_EQ(fi_close(bare.domain.fid()), -FI_EBUSY);
}

TEST_F(Objects, DomainWithAnOpenCounterIsBusy) {
  NEEDS_COUNTERS();
  Side bare;
  must(fi_fabric(info->fabric_attr, bare.fabric.out(), nullptr));
  must(fi_domain(bare.fabric, info.get(), bare.domain.out(), nullptr));
  bare.count(0);
  EXPECT_EQ(fi_close(bare.domain.fid()), -FI_EBUSY);
}

TEST_F(Objects, QueuesThatAreBoundAreBusy) {
  side.make_unbound_endpoint(info.get());
  side.bind_queues();
  EXPECT_EQ(fi_close(side.tx_cq.fid()), -FI_EBUSY);
  EXPECT_EQ(fi_close(side.rx_cq.fid()), -FI_EBUSY);
  EXPECT_EQ(fi_close(side.eq.fid()), -FI_EBUSY);
}

TEST_F(Objects, CounterThatIsBoundIsBusy) {
  NEEDS_COUNTERS();
  side.make_unbound_endpoint(info.get());
  fid_cntr *counter = side.count(FI_SEND);
  EXPECT_EQ(fi_close(&counter->fid), -FI_EBUSY);
}

TEST_F(Objects, SharedReceiveContextThatIsBoundIsBusy) {
  Options options;
  options.shared_receive = true;
  Side shared(options);
  shared.open(info.get());
  shared.make_unbound_endpoint(info.get());
  must(fi_ep_bind(shared.ep, shared.srx.fid(), 0));
  EXPECT_EQ(fi_close(shared.srx.fid()), -FI_EBUSY);
}

TEST_F(Objects, ClosingInOrderFreesEverything) {
  if (!in_fresh_process({kNoControl})) return;
  const int before = count_descriptors();
  for (int i = 0; i < 20; ++i) {
    Side one;
    one.open(info.get());
    one.make_endpoint(info.get());
    Listener listener(one);
  }
  EXPECT_EQ(count_descriptors(), before);
}

TEST_F(Objects, TheContextOfAnObjectIsTheApplications) {
  int mark;
  Handle<fid_cq> cq;
  fi_cq_attr attr{};
  must(fi_cq_open(side.domain, &attr, cq.out(), &mark));
  EXPECT_EQ(cq->fid.context, &mark);
  EXPECT_EQ(cq->fid.fclass, size_t(FI_CLASS_CQ));
}

// ---- enabling ----

TEST_F(Objects, EnableWithoutAnEventQueueIsENOEQ) {
  side.make_unbound_endpoint(info.get());
  must(fi_ep_bind(side.ep, side.tx_cq.fid(), FI_TRANSMIT | FI_RECV));
  EXPECT_EQ(fi_enable(side.ep), -FI_ENOEQ);
}

TEST_F(Objects, EnableWithoutACompletionQueueIsENOCQ) {
  side.make_unbound_endpoint(info.get());
  must(fi_ep_bind(side.ep, side.eq.fid(), 0));
  EXPECT_EQ(fi_enable(side.ep), -FI_ENOCQ);
}

TEST_F(Objects, EnableWithHalfOfTheCompletionQueuesIsENOCQ) {
  side.make_unbound_endpoint(info.get());
  must(fi_ep_bind(side.ep, side.eq.fid(), 0));
  must(fi_ep_bind(side.ep, side.tx_cq.fid(), FI_TRANSMIT));
  EXPECT_EQ(fi_enable(side.ep), -FI_ENOCQ);
  must(fi_ep_bind(side.ep, side.rx_cq.fid(), FI_RECV));
  EXPECT_EQ(fi_enable(side.ep), 0);
}

TEST_F(Objects, ConnectEnablesImplicitly) {
  Listener listener(side);
  Side other;
  other.open(info.get());
  other.make_unbound_endpoint(info.get());
  other.bind_queues();
  const std::string address = listener.address();
  EXPECT_EQ(fi_connect(other.ep, address.data(), nullptr, 0), 0);
}

// ---- binding ----

TEST_F(Objects, ASecondQueueOfAKindIsRefused) {
  side.make_unbound_endpoint(info.get());
  side.bind_queues();
  expect_error(fi_ep_bind(side.ep, side.eq.fid(), 0));
  expect_error(fi_ep_bind(side.ep, side.rx_cq.fid(), FI_TRANSMIT));
  expect_error(fi_ep_bind(side.ep, side.tx_cq.fid(), FI_RECV));
}

TEST_F(Objects, BindRefusesUnknownFlags) {
  side.make_unbound_endpoint(info.get());
  expect_error(fi_ep_bind(side.ep, side.tx_cq.fid(), UINT64_C(1) << 62 | FI_TRANSMIT));
  expect_error(fi_ep_bind(side.ep, side.tx_cq.fid(), 0));
}

TEST_F(Objects, BindRefusesObjectsThatDoNotBelongThere) {
  side.make_unbound_endpoint(info.get());
  expect_error(fi_ep_bind(side.ep, side.domain.fid(), 0));
  expect_error(fi_ep_bind(side.ep, side.fabric.fid(), 0));
  expect_error(fi_ep_bind(side.ep, side.ep.fid(), 0));
}

TEST_F(Objects, NullArgumentsAreRefused) {
  side.make_unbound_endpoint(info.get());
  expect_error(fi_ep_bind(side.ep, nullptr, FI_SEND));
  fid_domain *domain = nullptr;
  expect_error(fi_domain(side.fabric, nullptr, &domain, nullptr));
  expect_error(fi_domain(side.fabric, info.get(), nullptr, nullptr));
  fid_ep *ep = nullptr;
  expect_error(fi_endpoint(side.domain, nullptr, &ep, nullptr));
  expect_error(fi_endpoint(side.domain, info.get(), nullptr, nullptr));
  fid_pep *pep = nullptr;
  expect_error(fi_passive_ep(side.fabric, nullptr, &pep, nullptr));
  fi_cq_attr cq_attr{};
  expect_error(fi_cq_open(side.domain, &cq_attr, nullptr, nullptr));
  fi_eq_attr eq_attr{};
  expect_error(fi_eq_open(side.fabric, &eq_attr, nullptr, nullptr));
  size_t size = sizeof size;
  expect_error(fi_getopt(side.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, nullptr, &size));
  expect_error(
      fi_setopt(side.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, nullptr, sizeof size));
  expect_error(fi_getname(side.ep.fid(), nullptr, nullptr));
  expect_error(fi_setname(side.ep.fid(), nullptr, 16));
  expect_error(fi_control(side.ep.fid(), FI_GETOPSFLAG, nullptr));
  expect_error(fi_sendmsg(side.ep, nullptr, 0));
  expect_error(fi_recvmsg(side.ep, nullptr, 0));
  expect_error(fi_writemsg(side.ep, nullptr, 0));
  expect_error(fi_readmsg(side.ep, nullptr, 0));
}

TEST_F(Objects, BindRefusesQueuesOfAnotherDomain) {
  Side other;
  other.open(info.get());
  side.make_unbound_endpoint(info.get());
  expect_error(fi_ep_bind(side.ep, other.tx_cq.fid(), FI_TRANSMIT));
  fi_cntr_attr attr{};
  Handle<fid_cntr> counter;
  if (other.info->domain_attr->cntr_cnt != 0) {
    must(fi_cntr_open(other.domain, &attr, counter.out(), nullptr));
    expect_error(fi_ep_bind(side.ep, counter.fid(), FI_SEND));
  }
  Handle<fid_ep> srx;
  must(fi_srx_context(other.domain, other.info->rx_attr, srx.out(), nullptr));
  expect_error(fi_ep_bind(side.ep, srx.fid(), 0));
}

// Of unconnected endpoints, in the same domain.
TEST_F(Objects, BindRefusesASharedContextOfAnotherKind) {
  fi_rx_attr attr{};
  attr.caps = FI_MSG | FI_TAGGED;
  Handle<fid_ep> srx;
  if (fi_srx_context(side.domain, &attr, srx.out(), nullptr) != 0)
    GTEST_SKIP() << stack() << " has no tagged receives to share";
  side.make_unbound_endpoint(info.get());
  expect_error(fi_ep_bind(side.ep, srx.fid(), 0));
}

TEST_F(Objects, CountersMayFollowAfterEnableAndEventQueuesMayNot) {
  NEEDS_COUNTERS();
  side.make_unbound_endpoint(info.get());
  must(fi_ep_bind(side.ep, side.eq.fid(), 0));
  must(fi_ep_bind(side.ep, side.tx_cq.fid(), FI_TRANSMIT | FI_RECV));
  must(fi_enable(side.ep));
  Handle<fid_cntr> counter;
  fi_cntr_attr attr{};
  must(fi_cntr_open(side.domain, &attr, counter.out(), nullptr));
  EXPECT_EQ(fi_ep_bind(side.ep, counter.fid(), FI_SEND), 0);
  EXPECT_EQ(fi_ep_bind(side.ep, counter.fid(), FI_SEND), -FI_EBUSY) << "one for each event";
  EXPECT_EQ(fi_ep_bind(side.ep, side.rx_cq.fid(), FI_RECV), -FI_EBUSY);
  expect_error(fi_ep_bind(side.ep, side.eq.fid(), 0));
  side.ep.reset();
}

TEST_F(Objects, ListenWithoutAnEventQueueIsENOEQ) {
  const Info from = options_info({}, nullptr, FI_SOURCE);
  Handle<fid_pep> pep;
  must(fi_passive_ep(side.fabric, from.get(), pep.out(), nullptr));
  EXPECT_EQ(fi_listen(pep), -FI_ENOEQ);
}

TEST_F(Objects, ListenTwiceIsRefused) {
  Listener listener(side);
  expect_error(fi_listen(listener.pep));
}

// ---- opening ----

TEST_F(Objects, CompletionQueueWithUnknownAttributesIsRefused) {
  fid_cq *cq = nullptr;
  fi_cq_attr attr{};
  attr.format = static_cast<enum fi_cq_format>(99);
  expect_error(fi_cq_open(side.domain, &attr, &cq, nullptr));
  attr = {};
  attr.wait_obj = static_cast<enum fi_wait_obj>(99);
  expect_error(fi_cq_open(side.domain, &attr, &cq, nullptr));
  attr = {};
  attr.flags = UINT64_C(1) << 60;
  expect_error(fi_cq_open(side.domain, &attr, &cq, nullptr));
  attr = {};
  attr.wait_obj = FI_WAIT_SET;  // without a set
  expect_error(fi_cq_open(side.domain, &attr, &cq, nullptr));
}

TEST_F(Objects, EventQueueWithUnknownAttributesIsRefused) {
  fid_eq *eq = nullptr;
  fi_eq_attr attr{};
  attr.wait_obj = static_cast<enum fi_wait_obj>(99);
  expect_error(fi_eq_open(side.fabric, &attr, &eq, nullptr));
}

TEST_F(Objects, CounterWithUnknownAttributesIsRefused) {
  fid_cntr *counter = nullptr;
  fi_cntr_attr attr{};
  attr.events = static_cast<enum fi_cntr_events>(99);
  expect_error(fi_cntr_open(side.domain, &attr, &counter, nullptr));
  attr = {};
  attr.flags = 1;
  expect_error(fi_cntr_open(side.domain, &attr, &counter, nullptr));
}

TEST_F(Objects, EndpointOfAnotherTypeIsRefused) {
  const Info wrong(fi_dupinfo(info.get()));
  // Devices have connected endpoints and datagrams.
  wrong->ep_attr->type = is_of_a_device(FI_EP_MSG) ? FI_EP_RDM : FI_EP_DGRAM;
  fid_ep *ep = nullptr;
  expect_error(fi_endpoint(side.domain, wrong.get(), &ep, nullptr));
}

TEST_F(Objects, FeaturesThatTheStackLacksAreENOSYS) {
  side.make_endpoint(info.get());
  char byte = 0;
  EXPECT_EQ(fi_tsend(side.ep, &byte, 1, nullptr, 0, 1, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_trecv(side.ep, &byte, 1, nullptr, 0, 1, 0, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_atomic(side.ep, &byte, 1, nullptr, 0, 0, 0, FI_INT8, FI_SUM, nullptr), -FI_ENOSYS);
  fid_ep *ep = nullptr;
  EXPECT_EQ(fi_scalable_ep(side.domain, info.get(), &ep, nullptr), -FI_ENOSYS);
  void *ops = nullptr;
  EXPECT_EQ(fi_open_ops(side.domain.fid(), "no such operations", 0, &ops, nullptr), -FI_ENOSYS);
}

TEST_F(Objects, WithoutFI_RMAThereIsNoRma) {
  const Info only_messages = get_info(test_node(), nullptr, 0, make_hints(FI_MSG).get());
  Side messages;
  messages.open(only_messages.get());
  messages.make_endpoint(only_messages.get());
  char byte = 0;
  expect_error(fi_write(messages.ep, &byte, 1, nullptr, 0, 0, 0, nullptr));
  expect_error(fi_read(messages.ep, &byte, 1, nullptr, 0, 0, 0, nullptr));
}

// ---- before a connection ----

TEST_F(Objects, TransmitBeforeConnectIsRefused) {
  side.make_endpoint(info.get());
  char byte = 0;
  expect_error(fi_send(side.ep, &byte, 1, nullptr, 0, nullptr));
  expect_error(fi_inject(side.ep, &byte, 1, 0));
  expect_error(fi_write(side.ep, &byte, 1, nullptr, 0, 0, 1, nullptr));
  expect_error(fi_read(side.ep, &byte, 1, nullptr, 0, 0, 1, nullptr));
}

TEST_F(Objects, ReceiveBeforeEnableIsRefused) {
  side.make_unbound_endpoint(info.get());
  char byte;
  expect_error(fi_recv(side.ep, &byte, 1, nullptr, 0, nullptr));
}

TEST_F(Objects, ReceiveBeforeConnectIsTaken) {
  side.make_endpoint(info.get());
  char byte;
  EXPECT_EQ(fi_recv(side.ep, &byte, 1, nullptr, 0, nullptr), 0);
}

TEST_F(Objects, ShutdownBeforeConnectIsRefused) {
  side.make_endpoint(info.get());
  expect_error(fi_shutdown(side.ep, 0));
}

TEST_F(Objects, AcceptWithoutARequestIsRefused) {
  side.make_endpoint(info.get());
  expect_error(fi_accept(side.ep, nullptr, 0));
}

TEST_F(Objects, GetpeerBeforeConnectIsRefused) {
  side.make_endpoint(info.get());
  char address[256];
  size_t size = sizeof address;
  expect_error(fi_getpeer(side.ep, address, &size));
}

// ---- names ----

TEST_F(Objects, PassiveEndpointGetsAPortWhenItListens) {
  NEEDS_IPV4_ADDRESSES();
  Listener listener(side);
  const std::string name = listener.address();
  ASSERT_EQ(name.size(), sizeof(sockaddr_in));
  sockaddr_in address;
  memcpy(&address, name.data(), sizeof address);
  EXPECT_EQ(address.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  EXPECT_NE(address.sin_port, 0);
}

TEST_F(Objects, NameThatDoesNotFitIsCutAndItsLengthReported) {
  Listener listener(side);
  const std::string name = listener.address();
  char buffer[64];
  memset(buffer, 0x5a, sizeof buffer);
  size_t size = 4;
  EXPECT_EQ(fi_getname(listener.pep.fid(), buffer, &size), -FI_ETOOSMALL);
  EXPECT_EQ(size, name.size());
  EXPECT_EQ(memcmp(buffer, name.data(), 4), 0);
  EXPECT_EQ(buffer[4], 0x5a);
  size = 0;
  EXPECT_EQ(fi_getname(listener.pep.fid(), nullptr, &size), -FI_ETOOSMALL);
  EXPECT_EQ(size, name.size());
}

TEST_F(Objects, SetnameOfAPassiveEndpoint) {
  NEEDS_IPV4_ADDRESSES();
  const Info from = options_info({}, nullptr, FI_SOURCE);
  Handle<fid_pep> pep;
  must(fi_passive_ep(side.fabric, from.get(), pep.out(), nullptr));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = inet_addr("127.0.0.9");
  ASSERT_EQ(fi_setname(pep.fid(), &address, sizeof address), 0);
  must(fi_pep_bind(pep, side.eq.fid(), 0));
  must(fi_listen(pep));
  sockaddr_in got{};
  size_t size = sizeof got;
  ASSERT_EQ(fi_getname(pep.fid(), &got, &size), 0);
  EXPECT_EQ(got.sin_addr.s_addr, address.sin_addr.s_addr);
  EXPECT_NE(got.sin_port, 0);
  expect_error(fi_setname(pep.fid(), &address, sizeof address));  // listens already
}

TEST_F(Objects, SetnameRefusesWrongAddresses) {
  side.make_endpoint(info.get());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  expect_error(fi_setname(side.ep.fid(), &address, 3));
  address.sin_family = 200;
  expect_error(fi_setname(side.ep.fid(), &address, sizeof address));
}

TEST_F(Objects, AddressThatIsTakenIsEADDRINUSE) {
  Listener listener(side);
  const std::string name = listener.address();
  const Info from = options_info({}, nullptr, FI_SOURCE);
  Handle<fid_pep> second;
  must(fi_passive_ep(side.fabric, from.get(), second.out(), nullptr));
  must(fi_pep_bind(second, side.eq.fid(), 0));
  std::string address = name;
  int rc = fi_setname(second.fid(), address.data(), address.size());
  if (rc == 0) rc = fi_listen(second);
  EXPECT_EQ(rc, -FI_EADDRINUSE);
}

// fi_endpoint.3: also before it listens, and of an endpoint that takes the name.
TEST_F(Objects, APassiveEndpointHasItsPortFromTheBeginning) {
  NEEDS_IPV4_ADDRESSES();
  const Info from = options_info({}, nullptr, FI_SOURCE);
  Handle<fid_pep> pep;
  must(fi_passive_ep(side.fabric, from.get(), pep.out(), nullptr));
  const auto name_of = [](struct fid *fid) {
    return address_of([&](void *to, size_t *size) { return fi_getname(fid, to, size); });
  };
  const std::string name = name_of(pep.fid());
  EXPECT_NE(port_of(name), "0");
  from->handle = pep.fid();
  Handle<fid_ep> ep;
  must(fi_endpoint(side.domain, from.get(), ep.out(), nullptr));
  EXPECT_EQ(name_of(ep.fid()), name);
}

TEST_F(Objects, SetnameOfAnActiveEndpointTakesTheName) {
  NEEDS_IPV4_ADDRESSES();
  NEEDS_SOFTWARE(FI_EP_MSG, "a device's endpoint has its name when it connects");
  Listener listener(side);
  std::string taken = listener.address();
  side.make_unbound_endpoint(info.get());
  EXPECT_EQ(fi_setname(side.ep.fid(), taken.data(), taken.size()), -FI_EADDRINUSE);
  sockaddr_in name{};
  std::memcpy(&name, taken.data(), sizeof name);
  name.sin_addr.s_addr = htonl(0xcb00714d);  // 203.0.113.77 is nobody's
  EXPECT_EQ(fi_setname(side.ep.fid(), &name, sizeof name), -FI_EADDRNOTAVAIL);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  name.sin_port = 0;
  must(fi_setname(side.ep.fid(), &name, sizeof name));
  sockaddr_in got{};
  size_t size = sizeof got;
  must(fi_getname(side.ep.fid(), &got, &size));
  EXPECT_NE(got.sin_port, 0);
}

// ---- options and control ----

TEST_F(Objects, CmDataSizeIsTheLimitOfPrivateData) {
  side.make_endpoint(info.get());
  // Of what RDMA CM takes, 55 bytes are left to the application on every device.
  const size_t most = is_of_a_device(FI_EP_MSG) ? 55 : 256;
  size_t limit = 0, size = sizeof limit;
  ASSERT_EQ(fi_getopt(side.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &limit, &size), 0);
  EXPECT_EQ(limit, most);
  EXPECT_EQ(size, sizeof limit);
  Listener listener(side);
  limit = 0;
  ASSERT_EQ(fi_getopt(listener.pep.fid(), FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &limit, &size), 0);
  EXPECT_EQ(limit, most);
  // It is read-only.
  expect_error(
      fi_setopt(side.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &limit, sizeof limit));
}

TEST_F(Objects, MinMultiRecvCanBeSet) {
  NEEDS_OFFER(Options{.caps = FI_MSG | FI_RMA | FI_MULTI_RECV}, "FI_MULTI_RECV");
  side.make_endpoint(info.get());
  size_t value = 777, size = sizeof value;
  ASSERT_EQ(fi_setopt(side.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, sizeof value),
            0);
  value = 0;
  ASSERT_EQ(fi_getopt(side.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &size), 0);
  EXPECT_EQ(value, 777u);
}

TEST_F(Objects, OptionsRefuseShortBuffersAndUnknownNames) {
  side.make_endpoint(info.get());
  size_t value = 0, size = 2;
  expect_error(fi_getopt(side.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &value, &size));
  EXPECT_EQ(value, 0u);
  expect_error(fi_setopt(side.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, 2));
  size = sizeof value;
  EXPECT_EQ(fi_getopt(side.ep.fid(), FI_OPT_ENDPOINT, 12345, &value, &size), -FI_ENOPROTOOPT);
  EXPECT_EQ(fi_setopt(side.ep.fid(), FI_OPT_ENDPOINT, 12345, &value, sizeof value),
            -FI_ENOPROTOOPT);
  EXPECT_EQ(fi_getopt(side.ep.fid(), 12345, FI_OPT_CM_DATA_SIZE, &value, &size), -FI_ENOPROTOOPT);
}

TEST_F(Objects, BacklogIsSetBeforeListening) {
  const Info from = options_info({}, nullptr, FI_SOURCE);
  Handle<fid_pep> pep;
  must(fi_passive_ep(side.fabric, from.get(), pep.out(), nullptr));
  must(fi_pep_bind(pep, side.eq.fid(), 0));
  int backlog = 5;
  EXPECT_EQ(fi_control(pep.fid(), FI_BACKLOG, &backlog), 0);
  backlog = -1;
  expect_error(fi_control(pep.fid(), FI_BACKLOG, &backlog));
  must(fi_listen(pep));
}

TEST_F(Objects, OperationFlagsCanBeReadAndChanged) {
  NEEDS_LEVEL(FI_DELIVERY_COMPLETE);
  Options options;
  options.tx_op_flags = FI_DELIVERY_COMPLETE;
  const Info with_flags = options_info(options);
  side.make_endpoint(with_flags.get());
  uint64_t flags = FI_TRANSMIT;
  ASSERT_EQ(fi_control(side.ep.fid(), FI_GETOPSFLAG, &flags), 0);
  EXPECT_NE(flags & FI_DELIVERY_COMPLETE, 0u);
  flags = FI_TRANSMIT | FI_INJECT_COMPLETE;
  ASSERT_EQ(fi_control(side.ep.fid(), FI_SETOPSFLAG, &flags), 0);
  flags = FI_TRANSMIT;
  ASSERT_EQ(fi_control(side.ep.fid(), FI_GETOPSFLAG, &flags), 0);
  EXPECT_EQ(flags & (FI_DELIVERY_COMPLETE | FI_INJECT_COMPLETE), uint64_t(FI_INJECT_COMPLETE));
  flags = FI_TRANSMIT | FI_RECV;  // one of them
  expect_error(fi_control(side.ep.fid(), FI_GETOPSFLAG, &flags));
  flags = 0;
  expect_error(fi_control(side.ep.fid(), FI_GETOPSFLAG, &flags));
}

TEST_F(Objects, UnknownControlIsRefused) {
  side.make_endpoint(info.get());
  expect_error(fi_control(side.ep.fid(), 12345, nullptr));
  expect_error(fi_control(side.tx_cq.fid(), 12345, nullptr));
  expect_error(fi_control(side.eq.fid(), 12345, nullptr));
}

// ---- memory ----

TEST_F(Objects, ChosenKeyThatIsTakenIsENOKEY) {
  if (info->domain_attr->mr_mode & FI_MR_PROV_KEY) GTEST_SKIP() << "this stack chooses the keys";
  char memory[64] = {};
  fid_mr *region = side.expose(memory, sizeof memory, FI_REMOTE_READ, 42);
  EXPECT_EQ(fi_mr_key(region), 42u);
  fid_mr *second = nullptr;
  EXPECT_EQ(
      fi_mr_reg(side.domain, memory, sizeof memory, FI_REMOTE_READ, 0, 42, 0, &second, nullptr),
      -FI_ENOKEY);
  side.regions.clear();
  side.expose(memory, sizeof memory, FI_REMOTE_READ, 42);  // free again
}

// NCCL's plugin registers what no peer reaches, with one key for all.
TEST_F(Objects, RegionsThatNoPeerReachesMayHaveTheSameKey) {
  if (info->domain_attr->mr_mode & FI_MR_PROV_KEY) GTEST_SKIP() << "this stack chooses the keys";
  char memory[64] = {};
  side.expose(memory, sizeof memory, FI_SEND | FI_RECV, 42);
  side.expose(memory, sizeof memory, FI_READ | FI_WRITE, 42);
  side.expose(memory, sizeof memory, FI_REMOTE_READ, 42);
}

TEST_F(Objects, AnEmptyRegionCanBeRegistered) {
  NEEDS_SOFTWARE(FI_EP_MSG, "a device registers memory that is there");
  // Programs with one-sided communication often have empty windows.
  char byte = 0;
  side.expose(&byte, 0, FI_REMOTE_READ | FI_REMOTE_WRITE, 1);
  side.expose(nullptr, 0, FI_REMOTE_READ | FI_REMOTE_WRITE, 2);
}

TEST_F(Objects, RegistrationRefusesWrongArguments) {
  char memory[64] = {};
  fid_mr *region = nullptr;
  expect_error(
      fi_mr_reg(side.domain, memory, sizeof memory, UINT64_C(1) << 60, 0, 1, 0, &region, nullptr));
  expect_error(fi_mr_reg(side.domain, memory, sizeof memory, FI_REMOTE_READ, 0, 1,
                         UINT64_C(1) << 63, &region, nullptr));
  expect_error(fi_mr_reg(side.domain, memory, SIZE_MAX, FI_REMOTE_READ, 0, 1, 0, &region, nullptr));
  iovec iov[100] = {};
  expect_error(fi_mr_regv(side.domain, iov, 100, FI_REMOTE_READ, 0, 1, 0, &region, nullptr));
  expect_error(fi_mr_regv(side.domain, nullptr, 1, FI_REMOTE_READ, 0, 1, 0, &region, nullptr));
}

}  // namespace
}  // namespace weft::conformance
