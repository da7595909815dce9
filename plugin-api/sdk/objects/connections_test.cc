// SPDX-License-Identifier: BSD-2-Clause
// Passive endpoints, connection requests and connected endpoints, over a provider whose
// connections are numbers.
#include <gtest/gtest.h>
#include <weft/sdk/objects/connected.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/passive.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_av.h"
#include "plugin-api/sdk/testing/test_instance.h"

namespace weft::sdk {
namespace {

constexpr size_t kDataSize = 16;

int live_infos = 0;

// Infos with addresses alone.
fi_info *copy_of(const fi_info *info) {
  auto *const copy = new fi_info(*info);
  const auto copy_address = [](void *&member, size_t size) {
    if (member == nullptr) return;
    void *const bytes = std::malloc(size);
    std::memcpy(bytes, member, size);
    member = bytes;
  };
  copy_address(copy->src_addr, copy->src_addrlen);
  copy_address(copy->dest_addr, copy->dest_addrlen);
  ++live_infos;
  return copy;
}
void free_of(fi_info *info) {
  std::free(info->src_addr);
  std::free(info->dest_addr);
  delete info;
  --live_infos;
}

class Passive;
class Fabric final : public Object<Fabric, fid_fabric>,
                     public ConnectedFabricOps<Fabric, void, Passive> {
 public:
  explicit Fabric(const weft_instance *instance) : Object(instance, FI_CLASS_FABRIC, nullptr) {}
  ~Fabric() { EXPECT_EQ(children.load(), 0u); }
  Engine &engine() { return engine_; }
  Connections &connections() { return connections_; }
  std::atomic<size_t> children{0};

 private:
  Engine engine_{true};
  Connections connections_{engine_, children, kDataSize};
};

struct Asked {  // what became of a request
  std::optional<std::string> rejected;
  bool gone = false;
};
class Request final : public ConnectRequest {
 public:
  Request(PassiveCore &passive, Asked &asked, const Address &peer)
      : ConnectRequest(passive), asked_(asked), peer_(peer) {}
  ~Request() override { asked_.gone = true; }
  Address local() const override { return SockAddr(v4(1)); }
  Address peer() const override { return peer_; }
  void reject(std::string_view data) override { asked_.rejected = data; }

 private:
  Asked &asked_;
  const Address peer_;
};

class Passive final : public Object<Passive, fid_pep>, public PassiveCore {
 public:
  using Object::instance;
  Passive(Fabric &fabric, PassiveStart start)
      : Object(fabric.instance(), FI_CLASS_PEP, nullptr),
        PassiveCore(fabric.connections(), base(), std::move(start), 5),
        fabric_(fabric) {
    fill_tables(*this);
  }
  static Result<Passive *> open(Fabric &fabric, const fi_info &info, void *) {
    WEFT_TRY(PassiveStart start, PassiveStart::of(fabric.instance()->core, info));
    return finish_open(new Passive(fabric, std::move(start)), fabric.base());
  }
  bool ask(Asked &asked, std::string_view data, const Address &peer = SockAddr(v4(2))) {
    Guard guard(fabric_.engine().lock());
    return report(std::make_unique<Request>(*this, asked, peer), data);
  }
  std::vector<std::string> steps;
  int backlog = 0, rooms = 0, error = 0;

 private:
  friend class PassiveCore;
  Result<Address> bind_to(const Address &local) override {
    steps.push_back("bind " + local.to_string());
    if (error != 0) return fail(error, "as the test wants");
    return local.with_port(uint16_t(local.port() != 0 ? local.port() : 4000));
  }
  Result<Address> start_listening(int depth) override {
    backlog = depth;
    steps.push_back("listen");
    if (error != 0) return fail(error, "as the test wants");
    return local();
  }
  void stop() override { steps.push_back("stop"); }
  void on_room() override { ++rooms; }

  Fabric &fabric_;
};

class Connected final : public Object<Connected, fid_ep>, public ConnectedCore {
 public:
  Connected(TestDomain &domain, Fabric &fabric, const fi_info &info)
      : Object(domain.instance.c(), FI_CLASS_EP, nullptr),
        ConnectedCore(domain.context, fabric.connections(), domain.engine, base(), info, {}, &tx_,
                      &rx_) {
    fill_tables(*this);
  }
  ~Connected() {
    leave_event_queue();
    if (eq() != nullptr) eq()->forget(base());
    release(nullptr);
  }
  int close() { return -FI_EBUSY; }  // it goes with its variable
  int bind(struct fid *fid, uint64_t flags) { return bind_connected(fid, flags); }
  int control(int command, void *arg) { return control_connected(command, arg, FI_COMPLETION); }
  int getopt(int level, int name, void *value, size_t *length) {
    return get_limit(level, name, value, length);
  }
  Result<void> take(const fi_info &info) {
    WEFT_TRY(const Connections::Named named, find_names(info));
    taken = take_names(named);
    return {};
  }
  using ConnectedCore::find_names;
  PassiveCore *taken = nullptr;
  void answer(std::string_view data) {
    state_ = State::kConnected;
    report_connected(data);
  }
  std::string asked;  // what start_connect() and start_accept() got
  int hang_ups = 0;

 private:
  Result<void> enable() override {
    set_enabled();
    return {};
  }
  Result<void> start_connect(const Address &peer, std::string_view data) override {
    asked = peer.to_string() + " " + std::string(data);
    state_ = State::kConnecting;
    return {};
  }
  Result<void> start_accept(std::unique_ptr<ConnectRequest>, std::string_view data) override {
    answer({});
    asked = data;
    return {};
  }
  void hang_up() override {
    ++hang_ups;
    state_ = State::kDisconnected;
    EXPECT_TRUE(report_shutdown());
    EXPECT_FALSE(report_shutdown());
  }
  TxContext tx_;
  RxContext rx_;
};

class ConnectionsTest : public ::testing::Test {
 protected:
  ConnectionsTest() {
    core_ = *domain.instance.c()->core;
    core_.info_dup = copy_of;
    core_.info_free = free_of;
    instance_ = *domain.instance.c();
    instance_.core = &core_;
    fabric.emplace(&instance_);
    fi_eq_attr attr{};
    EXPECT_EQ(fabric->eq_open(&attr, &eq, nullptr), 0);
    domain.context.instance = &instance_;
    info.addr_format = FI_SOCKADDR_IN;
    info.src_addr = &name;
    info.src_addrlen = sizeof name;
  }
  ~ConnectionsTest() override {
    if (passive != nullptr) {
      EXPECT_EQ(fi_close(&passive->c()->fid), 0);
    }
    EXPECT_EQ(fi_close(&eq->fid), 0);
    fabric.reset();
    EXPECT_EQ(live_infos, 0);
  }
  void listen() {
    open();
    ASSERT_EQ(fi_pep_bind(passive->c(), &eq->fid, 0), 0);
    ASSERT_EQ(fi_listen(passive->c()), 0);
  }
  void open() {
    fid_pep *pep = nullptr;
    ASSERT_EQ(fabric->passive_ep(&info, &pep, nullptr), 0);
    passive = Passive::from(pep);
  }
  // The next event; its data, and the info of a request.
  uint32_t next() {
    alignas(8) char bytes[sizeof(fi_eq_cm_entry) + 64] = {};
    uint32_t event = 0;
    const ssize_t n = fi_eq_read(eq, &event, bytes, sizeof bytes, 0);
    if (n < 0) return 0;
    fi_eq_cm_entry entry;
    std::memcpy(&entry, bytes, sizeof entry);
    got_info = entry.info;
    data.assign(bytes + sizeof entry, size_t(n) - sizeof entry);
    return event;
  }

  TestDomain domain;
  weft_core_services core_{};
  weft_instance instance_{};
  std::optional<Fabric> fabric;
  sockaddr_in name = v4(1, 0);
  fi_info info{};
  fid_eq *eq = nullptr;
  Passive *passive = nullptr;
  fi_info *got_info = nullptr;
  std::string data;
};

using Steps = std::vector<std::string>;

TEST_F(ConnectionsTest, APassiveEndpointIsNamedFromTheBeginning) {
  open();
  sockaddr_in got{};
  size_t size = sizeof got;
  EXPECT_EQ(fi_getname(&passive->c()->fid, &got, &size), 0);
  EXPECT_EQ(ntohs(got.sin_port), 4000);
  EXPECT_EQ(fi_listen(passive->c()), -FI_ENOEQ);
  ASSERT_EQ(fi_pep_bind(passive->c(), &eq->fid, 0), 0);
  EXPECT_EQ(fi_pep_bind(passive->c(), &eq->fid, 0), -FI_EBUSY);
  int depth = 9;
  EXPECT_EQ(fi_control(&passive->c()->fid, FI_BACKLOG, &depth), 0);
  sockaddr_in other = v4(3, 70);
  EXPECT_EQ(fi_setname(&passive->c()->fid, &other, sizeof other), 0);
  EXPECT_EQ(fi_listen(passive->c()), 0);
  EXPECT_EQ(passive->steps, (Steps{"bind 10.0.0.1:0", "bind 10.0.0.3:70", "listen"}));
  EXPECT_EQ(passive->backlog, 9);
  EXPECT_EQ(fi_listen(passive->c()), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_setname(&passive->c()->fid, &other, sizeof other), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_control(&passive->c()->fid, FI_BACKLOG, &depth), -FI_EOPBADSTATE);
  size_t option = 0, length = sizeof option;
  EXPECT_EQ(fi_getopt(&passive->c()->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &option, &length),
            0);
  EXPECT_EQ(option, kDataSize);
}

TEST_F(ConnectionsTest, AfterAFailureItIsBoundAgain) {
  open();
  ASSERT_EQ(fi_pep_bind(passive->c(), &eq->fid, 0), 0);
  passive->error = FI_EADDRINUSE;
  sockaddr_in other = v4(3, 70);
  EXPECT_EQ(fi_setname(&passive->c()->fid, &other, sizeof other), -FI_EADDRINUSE);
  EXPECT_EQ(fi_listen(passive->c()), -FI_EADDRINUSE);
  passive->error = 0;
  EXPECT_EQ(fi_listen(passive->c()), 0);
  EXPECT_EQ(passive->steps.back(), "listen");
  EXPECT_EQ(passive->steps[passive->steps.size() - 2], "bind 10.0.0.1:4000") << "its old name";
  sockaddr_in got{};
  size_t length = sizeof got;
  EXPECT_EQ(fi_getname(&passive->c()->fid, &got, &length), 0);
  EXPECT_EQ(ntohs(got.sin_port), 4000);
}

TEST_F(ConnectionsTest, ARequestIsReportedWithItsNamesAndAnsweredOnce) {
  listen();
  Asked asked;
  ASSERT_TRUE(passive->ask(asked, "hello"));
  ASSERT_EQ(next(), uint32_t(FI_CONNREQ));
  EXPECT_EQ(data, "hello");
  fi_info *const request = got_info;
  sockaddr_in peer{};
  std::memcpy(&peer, request->dest_addr, sizeof peer);
  EXPECT_EQ(peer.sin_addr.s_addr, v4(2).sin_addr.s_addr);
  EXPECT_EQ(fi_reject(passive->c(), nullptr, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_reject(passive->c(), &eq->fid, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_reject(passive->c(), request->handle, nullptr, 3), -FI_EINVAL);
  const std::string no(kDataSize + 4, 'n');
  EXPECT_EQ(fi_reject(passive->c(), request->handle, no.data(), no.size()), 0);
  EXPECT_EQ(asked.rejected, std::string(kDataSize, 'n')) << "the rest is dropped (fi_cm.3)";
  EXPECT_TRUE(asked.gone);
  EXPECT_EQ(passive->rooms, 1);
  EXPECT_EQ(fi_reject(passive->c(), request->handle, nullptr, 0), -FI_EINVAL);
  free_of(request);
}

TEST_F(ConnectionsTest, WhatNobodyReadGoesWithThePassiveEndpoint) {
  listen();
  Asked read, unread, nameless;
  ASSERT_TRUE(passive->ask(read, ""));
  ASSERT_EQ(next(), uint32_t(FI_CONNREQ));
  free_of(got_info);
  ASSERT_TRUE(passive->ask(unread, ""));
  EXPECT_FALSE(passive->ask(nameless, "", Address())) << "its requester is gone";
  EXPECT_TRUE(nameless.gone);
  EXPECT_EQ(fabric->connections().waiting(), 2u);
  ASSERT_EQ(fi_close(&passive->c()->fid), 0);
  passive = nullptr;
  EXPECT_TRUE(unread.gone);
  EXPECT_FALSE(read.gone) << "the application has it";
  EXPECT_EQ(next(), 0u) << "the event goes, too";
  EXPECT_EQ(fabric->connections().waiting(), 1u);
  fabric->connections().end();
  EXPECT_TRUE(read.gone);
  EXPECT_FALSE(read.rejected);
}

TEST_F(ConnectionsTest, AnEndpointAcceptsItsRequestOnly) {
  listen();
  Asked asked;
  ASSERT_TRUE(passive->ask(asked, ""));
  ASSERT_EQ(next(), uint32_t(FI_CONNREQ));
  fi_info *const request = got_info;
  Connected ep(domain, *fabric, *request), late(domain, *fabric, *request);
  EXPECT_EQ(fi_accept(ep.c(), nullptr, 0), -FI_EOPBADSTATE) << "it has no request yet";
  ASSERT_TRUE(late.find_names(*request)) << "an endpoint that is not opened in the end";
  ASSERT_TRUE(ep.take(*request));
  EXPECT_FALSE(late.take(*request));
  ASSERT_EQ(fi_ep_bind(ep.c(), &eq->fid, 0), 0);
  EXPECT_EQ(fi_connect(ep.c(), &name, nullptr, 0), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_accept(ep.c(), nullptr, 1), -FI_EINVAL);
  EXPECT_EQ(fi_accept(ep.c(), "yes", 3), 0);
  EXPECT_EQ(ep.asked, "yes");
  EXPECT_TRUE(asked.gone);
  EXPECT_EQ(next(), uint32_t(FI_CONNECTED));
  EXPECT_EQ(fi_accept(ep.c(), nullptr, 0), -FI_EOPBADSTATE);
  sockaddr_in peer{};
  size_t length = sizeof peer;
  EXPECT_EQ(fi_getpeer(ep.c(), &peer, &length), 0);
  EXPECT_EQ(peer.sin_addr.s_addr, v4(2).sin_addr.s_addr);
  free_of(request);
}

TEST_F(ConnectionsTest, APassiveEndpointGivesItsNameAwayOnce) {
  open();
  sockaddr_in port = v4(1, 99);
  ASSERT_EQ(fi_setname(&passive->c()->fid, &port, sizeof port), 0);
  info.handle = &passive->c()->fid;
  Connected ep(domain, *fabric, info), late(domain, *fabric, info);
  ASSERT_TRUE(late.find_names(info));
  ASSERT_TRUE(ep.take(info));
  EXPECT_EQ(ep.taken, passive);
  EXPECT_FALSE(late.take(info));
  sockaddr_in got{};
  size_t length = sizeof got;
  EXPECT_EQ(fi_getname(ep.base(), &got, &length), 0);
  EXPECT_EQ(ntohs(got.sin_port), 99);
  EXPECT_EQ(fi_listen(passive->c()), -FI_EOPBADSTATE);
}

TEST_F(ConnectionsTest, AnEndpointConnectsOnceAndHangsUpOnce) {
  Connected ep(domain, *fabric, info);
  ASSERT_EQ(fi_ep_bind(ep.c(), &eq->fid, 0), 0);
  const std::string long_data(kDataSize + 1, 'd');
  sockaddr_in peer = v4(2, 80);
  EXPECT_EQ(fi_shutdown(ep.c(), 0), -FI_ENOTCONN);
  EXPECT_EQ(fi_connect(ep.c(), nullptr, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_connect(ep.c(), &peer, long_data.data(), long_data.size()), 0);
  EXPECT_EQ(ep.asked, "10.0.0.2:80 " + long_data.substr(0, kDataSize));
  EXPECT_EQ(fi_connect(ep.c(), &peer, nullptr, 0), -FI_EISCONN);
  EXPECT_EQ(fi_setname(ep.base(), &peer, sizeof peer), -FI_EOPBADSTATE) << "it is enabled";
  ep.answer("welcome");
  EXPECT_EQ(next(), uint32_t(FI_CONNECTED));
  EXPECT_EQ(data, "welcome");
  EXPECT_EQ(fi_shutdown(ep.c(), 1), -FI_EBADFLAGS);
  EXPECT_EQ(fi_shutdown(ep.c(), 0), 0);
  EXPECT_EQ(next(), uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(fi_shutdown(ep.c(), 0), -FI_ESHUTDOWN);
  EXPECT_EQ(ep.hang_ups, 1);
}

}  // namespace
}  // namespace weft::sdk
