// SPDX-License-Identifier: BSD-2-Clause
// Services and authorization keys over the C API, with several processes (fi_cxi.7, "Authorization
// Keys"; weft/cxi_services.h).
#include <rdma/fi_cxi_ext.h>
#include <rdma/fi_trigger.h>
#include <unistd.h>
#include <weft/cxi_services.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

// A runtime folder of its own, so that nobody else has made services.
class ServiceFolder {
 public:
  ServiceFolder() {
    char name[] = "/tmp/cxi_service_test.XXXXXX";
    path_ = mkdtemp(name) != nullptr ? name : "";
    variable_ = "WEFT_RUNTIME_DIR=" + path_;
  }
  ~ServiceFolder() { std::filesystem::remove_all(path_); }
  const char *variable() const { return variable_.c_str(); }

 private:
  std::string path_, variable_;
};

// Runs the test in a fresh process with a runtime folder of its own.
#define OWN_SERVICES(...)     \
  const ServiceFolder folder; \
  if (!in_fresh_process({folder.variable() __VA_OPT__(, ) __VA_ARGS__})) return

std::string bytes_of(uint32_t service, uint16_t vni) {
  const cxi_auth_key key{.svc_id = service, .vni = vni};
  std::string bytes(sizeof key, '\0');
  std::memcpy(bytes.data(), &key, sizeof key);
  return bytes;
}

Options with_key(uint32_t service, uint16_t vni, uint64_t caps = 0) {
  Options options;
  options.caps |= caps;
  options.domain_auth_key = bytes_of(service, vni);
  return options;
}

Options with_endpoint_key(uint32_t service, uint16_t vni) {
  Options options;
  options.auth_key = bytes_of(service, vni);
  return options;
}

// What a launcher has.
class Launcher {
 public:
  Launcher() {
    Info info = get_info(nullptr, nullptr, 0, make_hints(Options()).get());
    must(fi_fabric(info->fabric_attr, &fabric_, nullptr));
    must(fi_open_ops(&fabric_->fid, WEFT_CXI_SERVICES_OPS, 0, reinterpret_cast<void **>(&ops_),
                     nullptr));
  }
  ~Launcher() { fi_close(&fabric_->fid); }

  uint32_t create(weft_cxi_service service, std::vector<uint16_t> vnis, const char *nic = "cxi0") {
    for (const uint16_t vni : vnis) service.vnis[service.vni_count++] = {vni, vni};
    uint32_t id = 0;
    must(ops_->create(&fabric_->fid, nic, &service, &id, nullptr));
    return id;
  }
  int destroy(uint32_t id, std::string *why = nullptr) {
    char *text = nullptr;
    const int rc = ops_->destroy(&fabric_->fid, "cxi0", id, &text);
    if (why != nullptr && text != nullptr) *why = text;
    std::free(text);
    return rc;
  }
  int enable(uint32_t id, bool enabled) {
    return ops_->enable(&fabric_->fid, "cxi0", id, enabled, nullptr);
  }
  weft_cxi_service show(uint32_t id) {
    weft_cxi_service all[16];
    size_t count = 16;
    must(ops_->services(&fabric_->fid, "cxi0", all, &count, nullptr));
    for (size_t i = 0; i < count; ++i)
      if (all[i].id == id) return all[i];
    throw std::runtime_error("no such service");
  }
  fid *fabric() { return &fabric_->fid; }
  weft_cxi_services_ops &ops() { return *ops_; }

 private:
  fid_fabric *fabric_ = nullptr;
  weft_cxi_services_ops *ops_ = nullptr;
};

weft_cxi_service for_user(uint32_t id) {
  weft_cxi_service service{};
  service.members[service.member_count++] = {.id = id, .is_group = 0};
  return service;
}
weft_cxi_service for_group(uint32_t id) {
  weft_cxi_service service = for_user(id);
  service.members[0].is_group = 1;
  return service;
}

// What fi_domain says of an info whose domain has the key, whatever fi_getinfo thinks of it.
int open_domain(const std::string &key, const char *nic = "cxi0") {
  Options options;
  options.node = nic;
  const Info info = find_info(options, FI_SOURCE);
  if (!info) return -FI_ENODATA;
  fid_fabric *fabric = nullptr;
  must(fi_fabric(info->fabric_attr, &fabric, nullptr));
  std::string copy = key;
  if (!key.empty()) {
    std::free(info->domain_attr->auth_key);
    info->domain_attr->auth_key = reinterpret_cast<uint8_t *>(copy.data());
    info->domain_attr->auth_key_size = copy.size();
  }
  fid_domain *domain = nullptr;
  const int rc = fi_domain(fabric, info.get(), &domain, nullptr);
  if (rc == 0) must(fi_close(&domain->fid));
  if (!key.empty()) info->domain_attr->auth_key = nullptr;
  info->domain_attr->auth_key_size = 0;
  must(fi_close(&fabric->fid));
  return rc;
}

// ---- keys ----

TEST(CxiService, InfosHaveTheKeyOfHints) {
  const Info plain = find_info();
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->domain_attr->auth_key, nullptr);
  EXPECT_EQ(plain->domain_attr->auth_key_size, 0u);
  EXPECT_EQ(plain->domain_attr->max_ep_auth_key, 1u);
  const Info info = find_info(with_key(1, 10));
  ASSERT_TRUE(info);
  ASSERT_EQ(info->domain_attr->auth_key_size, sizeof(cxi_auth_key));
  EXPECT_EQ(std::memcmp(info->domain_attr->auth_key, bytes_of(1, 10).data(), 6), 0);
  Options options;
  options.auth_key = bytes_of(1, 1);
  const Info of_endpoint = find_info(options);
  ASSERT_TRUE(of_endpoint);
  ASSERT_NE(of_endpoint->domain_attr->auth_key, nullptr) << "it is the domain's, too";
  EXPECT_EQ(std::memcmp(of_endpoint->domain_attr->auth_key, bytes_of(1, 1).data(), 6), 0);
  options.domain_auth_key = bytes_of(1, 10);
  EXPECT_FALSE(find_info(options)) << "the two differ";
}

TEST(CxiService, AKeyThatIsNotGoodIsRefused) {
  OWN_SERVICES();
  EXPECT_FALSE(find_info(with_key(1, 20))) << "no VNI of the service";
  EXPECT_FALSE(find_info(with_key(9, 10))) << "no such service";
  EXPECT_FALSE(find_info(with_key(1, 0)));
  Options options;
  options.domain_auth_key = "four";
  EXPECT_FALSE(find_info(options));
  EXPECT_FALSE(ask([](fi_info &hints) { hints.domain_attr->auth_key_size = FI_AV_AUTH_KEY; },
                   with_endpoint_key(1, 10)))
      << "the keys are those of address vectors";
  EXPECT_EQ(open_domain(bytes_of(1, 10)), 0);
  EXPECT_EQ(open_domain(bytes_of(1, 20)), -FI_EINVAL);
  EXPECT_EQ(open_domain(bytes_of(0, 10)), -FI_EINVAL);
  EXPECT_EQ(open_domain(bytes_of(9, 10)), -FI_EINVAL);
  EXPECT_EQ(open_domain("four"), -FI_EINVAL);
  Launcher launcher;
  const uint32_t other = launcher.create(for_user(geteuid() + 1), {30});
  EXPECT_EQ(open_domain(bytes_of(other, 30)), -FI_EPERM);
  EXPECT_FALSE(launcher.show(other).is_usable);
  EXPECT_EQ(launcher.enable(1, false), 0);
  EXPECT_EQ(open_domain(bytes_of(1, 10)), -FI_EINVAL);
  EXPECT_EQ(open_domain(""), -FI_EPERM) << "nothing is left for us";
  EXPECT_EQ(launcher.enable(1, true), 0);
  EXPECT_EQ(open_domain(""), 0);
}

TEST(CxiService, AnEndpointHasTheKeyOfItsDomain) {
  OWN_SERVICES();
  const Options options = with_key(1, 1);
  const Info info = find_info(options, FI_SOURCE);
  ASSERT_TRUE(info);
  Application app(options);
  app.open_fabric(info.get());
  for (const auto &[key, rc] : std::vector<std::pair<std::string, int>>{
           {bytes_of(1, 1), 0}, {bytes_of(1, 10), -FI_EINVAL}, {"x", -FI_EINVAL}}) {
    std::string copy = key;
    info->ep_attr->auth_key = reinterpret_cast<uint8_t *>(copy.data());
    info->ep_attr->auth_key_size = copy.size();
    fid_ep *endpoint = nullptr;
    EXPECT_EQ(fi_endpoint(app.domain, info.get(), &endpoint, nullptr), rc);
    if (endpoint != nullptr) must(fi_close(&endpoint->fid));
  }
  info->ep_attr->auth_key = nullptr;
  info->ep_attr->auth_key_size = 0;
}

TEST(CxiService, KeysOfAVectorSayTheService) {
  OWN_SERVICES();
  Launcher launcher;
  const uint32_t own = launcher.create({}, {30, 31}), newest = launcher.create({}, {40});
  Options options;
  options.vector_keys = {bytes_of(own, 30), bytes_of(own, 31)};
  options.caps |= FI_RMA;
  {
    Net net(2, options);
    net.exchange(0, 1, 100000);
    net.exchange(1, 0);
    EXPECT_EQ(launcher.show(own).processes, 1u);
    EXPECT_EQ(launcher.show(newest).processes, 0u);
    const std::string other = bytes_of(newest, 40);
    fi_addr_t handle = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(fi_av_insert_auth_key(net[0].av, other.data(), other.size(), &handle, 0), -FI_EINVAL)
        << "a domain has one service";
  }
  // Not while there are counters of the service that was found.
  options.vector_keys.resize(1);
  const Info info = find_info(options, FI_SOURCE);
  ASSERT_TRUE(info);
  Application app(options);
  app.open_fabric(info.get());
  fi_av_attr attr{};
  must(fi_av_open(app.domain, &attr, app.av.out(), nullptr));
  fid_cntr *counter = nullptr;
  must(fi_cntr_open(app.domain, nullptr, &counter, nullptr));
  const std::string &key = options.vector_keys[0];
  fi_addr_t handle = FI_ADDR_NOTAVAIL;
  EXPECT_EQ(fi_av_insert_auth_key(app.av, key.data(), key.size(), &handle, 0), -FI_EBUSY);
  must(fi_close(&counter->fid));
  EXPECT_EQ(fi_av_insert_auth_key(app.av, key.data(), key.size(), &handle, 0), 0);
}

// ---- the key of who gives none ----

// Which of the services a domain without a key takes.
uint32_t taken(Launcher &launcher, const std::vector<uint32_t> &ids) {
  Node node{Options()};
  for (const uint32_t id : ids)
    if (launcher.show(id).processes == 1) return id;
  return 0;
}

TEST(CxiService, WithoutAKeyItIsTheUsersTheGroupsThenAnybodys) {
  OWN_SERVICES();
  Launcher launcher;
  EXPECT_EQ(taken(launcher, {1}), 1u);
  const uint32_t open = launcher.create({}, {40}),
                 group = launcher.create(for_group(getegid()), {41}),
                 user = launcher.create(for_user(geteuid()), {42}),
                 stranger = launcher.create(for_user(geteuid() + 1), {43});
  const std::vector<uint32_t> all = {1, open, group, user, stranger};
  EXPECT_EQ(taken(launcher, all), user);
  must(launcher.enable(user, false));
  EXPECT_EQ(taken(launcher, all), group);
  EXPECT_EQ(launcher.destroy(group), 0);
  EXPECT_EQ(taken(launcher, {1, open, stranger}), open) << "the newest one";
  must(launcher.enable(open, false));
  EXPECT_EQ(taken(launcher, {1, stranger}), 1u);
}

TEST(CxiService, DefaultVniCountsWhereTheServiceAllowsIt) {
  OWN_SERVICES("FI_CXI_DEFAULT_VNI=77");
  // RNR messages carry the VNI; so does a second endpoint with the key.
  Launcher launcher;
  launcher.create({}, {});
  Net net(0);
  net.add(Options());
  net.add(with_key(launcher.create({}, {77}), 77));
  net.exchange(0, 1);
  net.exchange(1, 0);
}

TEST(CxiService, ALauncherGivesNicsAndKeys) {
  OWN_SERVICES();
  Launcher launcher;
  const uint32_t here = launcher.create({}, {234, 235}), there = launcher.create({}, {234}, "cxi1");
  const std::string ids = std::to_string(here) + "," + std::to_string(there);
  setenv("SLINGSHOT_VNIS", "234,235", 1);
  setenv("SLINGSHOT_DEVICES", "cxi0,cxi1", 1);
  setenv("SLINGSHOT_SVC_IDS", ids.c_str(), 1);
  {
    Net net(0);
    net.add(Options());
    net.add(with_key(here, 234));
    net.exchange(0, 1);
    EXPECT_EQ(launcher.show(here).processes, 1u);
    EXPECT_EQ(launcher.show(1).processes, 0u);
  }
  // One NIC alone: the other one is not offered, unless with a key.
  setenv("SLINGSHOT_DEVICES", "cxi1", 1);
  setenv("SLINGSHOT_SVC_IDS", std::to_string(there).c_str(), 1);
  EXPECT_EQ(open_domain("", "cxi1"), 0);
  EXPECT_EQ(open_domain("", "cxi0"), -FI_ENODATA);
  EXPECT_TRUE(find_info(with_key(1, 10), FI_SOURCE));
}

TEST(CxiService, WhatALauncherSaysIsReadStrictly) {
  OWN_SERVICES();
  const char *const names[] = {"SLINGSHOT_VNIS", "SLINGSHOT_DEVICES", "SLINGSHOT_SVC_IDS"};
  const std::vector<std::vector<const char *>> wrong = {
      {"x", "cxi0", "1"},          {"0", "cxi0", "1"},   {"65536", "cxi0", "1"},
      {"10,", "cxi0", "1"},        {"10 ", "cxi0", "1"}, {"-1", "cxi0", "1"},
      {"10", "cxi0", "1x"},        {"10", "cxi0", "0"},  {"10", "cxi0,cxi1", "1"},
      {"10", "cxi0,", "1,1"},      {"10", "", "1"},      {"", "cxi0", "1"},
      {"10", "cxi0", ""},          {"10", "cxi0", "99"}, {"20", "cxi0", "1"},
      {"10", "cxi0", "4294967297"}};
  for (const auto &values : wrong) {
    SCOPED_TRACE(std::string(values[0]) + " " + values[1] + " " + values[2]);
    for (size_t i = 0; i < 3; ++i) setenv(names[i], values[i], 1);
    EXPECT_EQ(open_domain(""), -FI_EINVAL);
    EXPECT_EQ(open_domain(bytes_of(1, 10)), 0) << "a key of one's own does not need them";
  }
  for (size_t i = 0; i < 3; ++i) setenv(names[i], wrong[0][i], 1);
  setenv("SLINGSHOT_VNIS", "10", 1);
  EXPECT_EQ(open_domain(""), 0);
}

// ---- several processes ----

TEST(CxiServiceProcesses, TwoVnisDoNotSeeEachOther) {
  OWN_SERVICES();
  Options options = with_key(1, 1);
  options.service = "44";
  Child child([&](int socket) {
    Node node(options);
    std::vector<uint8_t> in(8);
    must(fi_trecv(node.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 7, 0, &in));
    tell(socket, 1);
    hear(socket);
    node.progress();
    EXPECT_FALSE(poll(node.receive_cq()).has_value());
    tell(socket, 2);
  });
  EXPECT_EQ(hear(child.socket()), 1u);
  Options other = options;
  other.domain_auth_key = bytes_of(1, 10);
  Net net(0);
  net.add(other);  // the same PID, in its own VNI
  std::vector<uint8_t> out(8, 1), in(8);
  must(fi_trecv(net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 7, 0, &in));
  net.post([&] { return fi_tsend(net[0].ep, out.data(), 8, nullptr, net.at(0, 0), 7, &out); });
  EXPECT_EQ(net.wait(net[0].receive_cq()).context, &in) << "the address is its own";
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  // A PID that only the other VNI has is nobody's here.
  other.service = "45";
  net.add(other);
  net.post([&] { return fi_tsend(net[1].ep, out.data(), 8, nullptr, net.at(1, 0), 7, &out); });
  EXPECT_EQ(net.wait(net[1].tx_cq).err, 0);
  tell(child.socket(), 3);
  EXPECT_EQ(hear(child.socket()), 2u);
  child.join();
}

TEST(CxiServiceProcesses, APeerInAnotherVniIsNotConnected) {
  OWN_SERVICES();
  Child child([&](int socket) {
    Options options = with_key(1, 1);
    options.service = "50";
    Node node(options);
    tell_text(socket, node.name());
    hear(socket);
  });
  const std::string name = hear_text(child.socket());
  Net net(1, with_key(1, 10));
  const fi_addr_t to = net[0].insert(name);
  std::vector<uint8_t> out(8);
  net.post([&] { return fi_tsend(net[0].ep, out.data(), 8, nullptr, to, 7, &out); });
  EXPECT_NE(net.wait(net[0].tx_cq).err, 0);
  tell(child.socket(), 1);
  child.join();
}

// Queues work on a counter, which takes two commands. How much was taken.
struct Works {
  explicit Works(Net &net) : net_(net), start_(net[0].count(0)), target_(net[0].count(0)) {
    add_ = {.cntr = target_, .value = 1};
  }
  int queue() {
    works_.push_back(std::make_unique<fi_deferred_work>());
    fi_deferred_work &work = *works_.back();
    work = {};
    work.threshold = 1;
    work.triggering_cntr = start_;
    work.op_type = FI_OP_CNTR_ADD;
    work.op.cntr = &add_;
    return fi_control(net_[0].domain.fid(), FI_QUEUE_WORK, &work);
  }
  size_t queue_all() {
    size_t count = 0;
    while (queue() == 0) ++count;
    return count;
  }

 private:
  Net &net_;
  fid_cntr *const start_, *const target_;
  fi_op_cntr add_;
  std::vector<std::unique_ptr<fi_deferred_work>> works_;
};

TEST(CxiServiceProcesses, AServiceLimitsItsProcessesTogether) {
  OWN_SERVICES();
  // Made by another process, as a launcher does.
  uint32_t id = 0;
  Child maker([&](int socket) {
    Launcher launcher;
    weft_cxi_service service{};
    service.max_triggered = 20;
    tell(socket, launcher.create(service, {60}));
  });
  id = uint32_t(hear(maker.socket()));
  maker.join();
  Child child([&](int socket) {
    Net net(1, with_key(id, 60, FI_TRIGGER));
    Works works(net);
    size_t count = 0;
    while (count < 8 && works.queue() == 0) ++count;
    tell(socket, count);
    hear(socket);
  });
  EXPECT_EQ(hear(child.socket()), 8u);
  Launcher launcher;
  Net net(1, with_key(id, 60, FI_TRIGGER));
  EXPECT_EQ(launcher.show(id).processes, 2u);
  EXPECT_EQ(launcher.show(id).triggered, 16u);
  fi_cxi_dom_ops *ops = nullptr;
  must(fi_open_ops(net[0].domain.fid(), FI_CXI_DOM_OPS_6, 0, reinterpret_cast<void **>(&ops),
                   nullptr));
  size_t depth = 0;
  EXPECT_EQ(ops->get_dwq_depth(net[0].domain.fid(), &depth), 0);
  EXPECT_EQ(depth, 12u);
  {
    Works works(net);
    EXPECT_EQ(works.queue_all(), 2u);
    std::string why;
    EXPECT_EQ(launcher.destroy(id, &why), -FI_EBUSY);
    EXPECT_NE(why.find("uses service " + std::to_string(id)), std::string::npos) << why;
    child.kill();
    EXPECT_TRUE(net.until([&] { return works.queue() == 0; })) << "what it had is free";
    EXPECT_EQ(launcher.show(id).processes, 1u);
    must(fi_control(net[0].domain.fid(), FI_FLUSH_WORK, nullptr));
  }
}

TEST(CxiServiceProcesses, AKilledOwnerLeavesAServiceThatCanBeDestroyed) {
  OWN_SERVICES();
  uint32_t id = 0;
  Child child([&](int socket) {
    Launcher launcher;
    const uint32_t made = launcher.create({}, {70});
    Node node(with_key(made, 70));
    tell(socket, made);
    hear(socket);
  });
  id = uint32_t(hear(child.socket()));
  Launcher launcher;
  EXPECT_EQ(launcher.destroy(id), -FI_EBUSY);
  child.kill();
  EXPECT_EQ(launcher.destroy(id), 0);
  EXPECT_EQ(launcher.destroy(id), -FI_EINVAL);
}

TEST(CxiService, TheLimitOfTriggeredOperationsLeavesEight) {
  OWN_SERVICES("FI_CXI_ENABLE_TRIG_OP_LIMIT=1");
  Launcher launcher;
  weft_cxi_service service{};
  service.max_triggered = 12;
  Net net(1, with_key(launcher.create(service, {60}), 60, FI_TRIGGER));
  Works works(net);
  EXPECT_EQ(works.queue_all(), 2u) << "two commands each, of four";
  must(fi_control(net[0].domain.fid(), FI_FLUSH_WORK, nullptr));
  EXPECT_EQ(works.queue_all(), 2u);
  must(fi_control(net[0].domain.fid(), FI_FLUSH_WORK, nullptr));
}

// ---- weft/cxi_services.h ----

TEST(CxiService, WrongCallsOfALauncherAreRefused) {
  OWN_SERVICES();
  Launcher launcher;
  weft_cxi_services_ops &ops = launcher.ops();
  fid *const fabric = launcher.fabric();
  uint32_t id = 0;
  weft_cxi_service service{};
  char *text = nullptr;
  EXPECT_EQ(ops.create(fabric, "cxi9", &service, &id, &text), -FI_ENODEV);
  ASSERT_NE(text, nullptr);
  EXPECT_NE(std::string(text).find("cxi9"), std::string::npos);
  std::free(text);
  EXPECT_EQ(ops.create(fabric, nullptr, &service, &id, nullptr), -FI_EINVAL);
  EXPECT_EQ(ops.create(fabric, "cxi0", nullptr, &id, nullptr), -FI_EINVAL);
  service.member_count = 200;
  EXPECT_EQ(ops.create(fabric, "cxi0", &service, &id, nullptr), -FI_EINVAL);
  service.member_count = 0;
  service.classes = 1u << 9;
  EXPECT_EQ(ops.create(fabric, "cxi0", &service, &id, nullptr), -FI_EINVAL);
  EXPECT_EQ(ops.enable(fabric, "cxi0", 77, 1, nullptr), -FI_EINVAL);
  EXPECT_EQ(ops.services(fabric, "cxi0", nullptr, nullptr, nullptr), -FI_EINVAL);
  EXPECT_EQ(ops.services(nullptr, "cxi0", nullptr, nullptr, nullptr), -FI_EINVAL);
  size_t count = 0;
  EXPECT_EQ(ops.devices(fabric, nullptr, &count, nullptr), 0);
  EXPECT_EQ(count, 2u);
  weft_cxi_device device;
  count = 1;
  EXPECT_EQ(ops.devices(fabric, &device, &count, nullptr), 0);
  EXPECT_EQ(count, 2u);
  EXPECT_STREQ(device.name, "cxi0");
  EXPECT_TRUE(device.is_software);
  EXPECT_EQ(device.max_list_entries, 16384u);
  service.classes = WEFT_CXI_BULK_DATA;
  EXPECT_EQ(ops.create(fabric, "cxi0", &service, &id, nullptr), 0);
  EXPECT_EQ(launcher.show(id).classes, WEFT_CXI_BULK_DATA);
  EXPECT_EQ(open_domain(bytes_of(id, 5)), -FI_EINVAL) << "without the class of our queues";
}

}  // namespace
}  // namespace weft::conformance::rdm
