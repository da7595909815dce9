// SPDX-License-Identifier: BSD-2-Clause
// The ports of a scalable endpoint: a row of free ones, in a system in which many are taken. What
// contexts do with them is tested over whole stacks (tests/conformance/rdm_scalable_test.cc).
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/scalable.h>

#include <random>
#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"

namespace weft::sdk::scalable_test {
namespace {

constexpr unsigned kFirst = 32768, kLast = 60999;  // what Linux chooses from

// The ports of a host. Where a socket asks for any, the system takes the first free one from a
// random place on.
class Ports {
 public:
  explicit Ports(unsigned seed) : random_(seed) {}
  void take(unsigned port) { taken_.at(port) = true; }
  void give_back(unsigned port) { taken_.at(port) = false; }
  bool is_free(unsigned port) const { return !taken_.at(port); }
  unsigned any() {
    unsigned port = kFirst + unsigned(random_() % (kLast - kFirst + 1));
    while (!is_free(port)) port = port == kLast ? kFirst : port + 1;
    return port;
  }

 private:
  std::minstd_rand random_;
  std::vector<bool> taken_ = std::vector<bool>(65536);
};

// A context: its name is bound when it is asked for.
class Endpoint final : public Object<Endpoint, fid_ep> {
 public:
  Endpoint(const weft_instance *instance, Ports &ports, const Lane &lane)
      : Object(instance, FI_CLASS_EP, nullptr), ports_(ports), lane_(lane) {
    fill_tables(*this);
  }
  int setname(void *addr, size_t) {
    give_back();
    wanted_ = ntohs(static_cast<sockaddr_in *>(addr)->sin_port);
    return 0;
  }
  int getname(void *addr, size_t *length) {
    if (port_ == 0) {
      if (wanted_ != 0 && !ports_.is_free(wanted_)) return -FI_EADDRINUSE;
      port_ = wanted_ != 0 ? wanted_ : ports_.any();
      ports_.take(port_);
    }
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(uint16_t(port_));
    std::memcpy(addr, &name, sizeof name);
    *length = sizeof name;
    return 0;
  }
  int close() {
    give_back();
    lane_.open.store(false);
    delete this;
    return 0;
  }

 private:
  void give_back() {
    if (port_ != 0) ports_.give_back(port_);
    port_ = 0;
  }

  Ports &ports_;
  const Lane &lane_;
  unsigned wanted_ = 0, port_ = 0;
};

class LaneDomain final : public Object<LaneDomain, fid_domain> {
 public:
  explicit LaneDomain(const weft_instance *instance) : Object(instance, FI_CLASS_DOMAIN, nullptr) {
    fill_tables(*this);
  }
  int close() {
    delete this;
    return 0;
  }
  DomainContext shared;
};

class Maker final : public LaneMaker {
 public:
  Maker(const weft_instance *instance, Ports &ports) : instance_(instance), ports_(ports) {}
  Result<Made> make_domain(const fi_info &) override {
    auto *const lane = new LaneDomain(instance_);
    return Made{lane->c(), &lane->shared};
  }
  Result<fid_ep *> make_endpoint(const Made &made, const fi_info &) override {
    return (new Endpoint(instance_, ports_, *made.shared->lane))->c();
  }

 private:
  const weft_instance *const instance_;
  Ports &ports_;
};

// An fi_info with what a scalable endpoint reads of it.
struct Entry {
  Entry(size_t contexts, const sockaddr_in &name) : own(name) {
    ep.type = FI_EP_RDM;
    ep.tx_ctx_cnt = ep.rx_ctx_cnt = contexts;
    link();
  }
  Entry(const fi_info &from) : own(*static_cast<const sockaddr_in *>(from.src_addr)) {
    ep = *from.ep_attr;
    link();
  }
  void link() {
    info.addr_format = FI_SOCKADDR_IN;
    info.src_addr = &own;
    info.src_addrlen = sizeof own;
    info.ep_attr = &ep;
    info.tx_attr = &tx;
    info.rx_attr = &rx;
  }
  fi_info info{};  // first: an entry is found by it
  fi_ep_attr ep{};
  fi_tx_attr tx{};
  fi_rx_attr rx{};
  sockaddr_in own;
};

class ScalablePorts : public ::testing::Test {
 protected:
  ScalablePorts() {
    core_ = *domain.instance.c()->core;
    core_.info_dup = [](const fi_info *info) -> fi_info * { return &(new Entry(*info))->info; };
    core_.info_free = [](fi_info *info) { delete reinterpret_cast<Entry *>(info); };
    instance_ = *domain.instance.c();
    instance_.core = &core_;
    domain.context.instance = &instance_;
  }
  static sockaddr_in at_port(unsigned port) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(uint16_t(port));
    return name;
  }
  // With as many contexts of each kind. `wanted` 0: any port.
  Result<ScalableEndpoint *> open(Ports &ports, size_t contexts, unsigned wanted = 0) {
    Entry entry(contexts, at_port(wanted));
    std::unique_ptr<LaneMaker, void (*)(LaneMaker *)> maker(
        new Maker(&instance_, ports), [](LaneMaker *made) { delete static_cast<Maker *>(made); });
    return ScalableEndpoint::open(domain.context, lanes, std::move(maker), entry.info, nullptr);
  }
  void close(ScalableEndpoint *endpoint) {
    EXPECT_EQ(fi_close(endpoint->base()), 0);
    lanes.close();
  }
  // Whether all ports of a row are.
  static bool are(bool free, const Ports &ports, unsigned first, size_t count) {
    for (unsigned port = first; port < first + count; ++port)
      if (ports.is_free(port) != free) return false;
    return true;
  }
  // The first port of the row that an endpoint gets, or the error.
  Result<unsigned> first_port(Ports &ports, size_t contexts, unsigned wanted = 0) {
    WEFT_TRY(auto *const endpoint, open(ports, contexts, wanted));
    sockaddr_in name{};
    size_t length = sizeof name;
    const int rc = fi_getname(endpoint->base(), &name, &length);
    const unsigned first = ntohs(name.sin_port);
    EXPECT_TRUE(rc != 0 || are(false, ports, first, 2 * contexts)) << "not all are the endpoint's";
    close(endpoint);
    if (rc != 0) return fail(-rc, "%s", domain.instance.log().back().c_str());
    EXPECT_TRUE(are(true, ports, first, 2 * contexts)) << "some are left";
    return first;
  }

  TestDomain domain;
  Lanes lanes;

 private:
  weft_core_services core_{};
  weft_instance instance_{};
};

// Nine tenths of the ports have no row of eight: who only goes on behind what is in the way walks
// there for ever.
TEST_F(ScalablePorts, AreFoundBehindALongCrowd) {
  constexpr unsigned kCrowdEnds = kLast - (kLast - kFirst) / 10;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Ports ports(seed);
    for (unsigned port = kFirst; port < kCrowdEnds; port += 1 + seed % 8) ports.take(port);
    const Result<unsigned> first = first_port(ports, 4);
    ASSERT_TRUE(first) << first.error().text;
    EXPECT_GE(*first + 8, kCrowdEnds);
  }
}

TEST_F(ScalablePorts, ThatAreFreeNowhereAreAnError) {
  Ports ports(1);
  for (unsigned port = 0; port <= UINT16_MAX; port += 8) ports.take(port);
  const Result<unsigned> first = first_port(ports, 4);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code, FI_EADDRINUSE);
  EXPECT_EQ(first.error().text, "fi_scalable_ep: no 8 free ports in a row were found");
}

// The application has said which is the first: there is no other. Where only a later one is taken,
// another row will do.
TEST_F(ScalablePorts, BeginWhereTheApplicationSaysIfTheRowIsFree) {
  Ports ports(1);
  ports.take(40005);
  const Result<unsigned> first = first_port(ports, 4, 40005);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code, FI_EADDRINUSE);
  EXPECT_NE(first.error().text.find(":40005 is not free"), std::string::npos) << first.error().text;
  const Result<unsigned> behind = first_port(ports, 4, 40006);
  ASSERT_TRUE(behind) << behind.error().text;
  EXPECT_EQ(*behind, 40006u);
  const Result<unsigned> other = first_port(ports, 4, 40000);
  ASSERT_TRUE(other) << other.error().text;
  EXPECT_GE(*other, 40006u);
  EXPECT_NE(domain.instance.log().back().find("peers learn by fi_getname"), std::string::npos);
}

// fi_setname moves to another row as long as no context is open: also to one that shares ports with
// the old one, and after contexts were closed, whose endpoints are gone.
TEST_F(ScalablePorts, AreTakenAnewWithAnotherName) {
  Ports ports(1);
  ScalableEndpoint *const endpoint = *open(ports, 2, 40000);
  const auto rename = [&](unsigned port) {
    sockaddr_in name = at_port(port);
    return fi_setname(endpoint->base(), &name, sizeof name);
  };
  ASSERT_EQ(rename(40000), 0);
  ASSERT_EQ(rename(40001), 0) << "40001 to 40003 are its own";
  EXPECT_TRUE(ports.is_free(40000) && are(false, ports, 40001, 4));
  fid_ep *sender = nullptr, *receiver = nullptr;
  ASSERT_EQ(fi_tx_context(endpoint->c(), 1, nullptr, &sender, nullptr), 0);
  ASSERT_EQ(fi_rx_context(endpoint->c(), 0, nullptr, &receiver, nullptr), 0);
  EXPECT_EQ(rename(40010), -FI_EOPBADSTATE);
  ASSERT_EQ(fi_close(&sender->fid), 0);
  ASSERT_EQ(fi_close(&receiver->fid), 0);
  ASSERT_EQ(rename(40010), 0);
  EXPECT_TRUE(are(true, ports, 40000, 5) && are(false, ports, 40010, 4));
  ports.take(40020);
  EXPECT_EQ(rename(40020), -FI_EADDRINUSE);
  sockaddr_in name{};
  size_t length = sizeof name;
  ASSERT_EQ(fi_getname(endpoint->base(), &name, &length), 0);
  EXPECT_EQ(ntohs(name.sin_port), 40010) << "the name of before";
  close(endpoint);
  EXPECT_TRUE(are(true, ports, 40010, 4));
}

}  // namespace
}  // namespace weft::sdk::scalable_test
