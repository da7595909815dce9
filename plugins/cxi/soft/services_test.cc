// SPDX-License-Identifier: BSD-2-Clause
// The services of a NIC in software: what they allow, what they limit, and who uses them.
#include "plugins/cxi/nic/service.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "plugins/cxi/soft/devices.h"
#include "plugins/cxi/soft/registry.h"
#include "plugins/cxi/soft/test_nic.h"
#include "plugins/cxi/soft/test_process.h"

namespace weft::cxi {
namespace {

struct OneNic : TestFolder {
  std::unique_ptr<Registry> open(const RegistryLimits &limits = {}) const {
    return must(Registry::open(path, 1, limits));
  }
};

Service job() {
  Service service;
  service.members = {{.is_group = false, .id = geteuid()}};
  service.vnis = {{20, 20}, {100, 200}};
  service.classes = {TrafficClass::kLowLatency, TrafficClass::kBestEffort};
  service.max_list_entries = 10;
  service.max_triggered = 4;
  return service;
}

TEST(Services, TheFirstOneIsForEverybody) {
  const OneNic nic;
  const auto services = nic.open({.list_entries = 99, .triggered = 7})->services();
  ASSERT_EQ(services.size(), 1u);
  EXPECT_EQ(services[0].id, Service::kDefault);
  EXPECT_TRUE(services[0].is_enabled);
  EXPECT_TRUE(services[0].members.empty());
  EXPECT_TRUE(services[0].classes.empty());
  EXPECT_EQ(services[0].max_list_entries, 99u);
  EXPECT_EQ(services[0].max_triggered, 7u);
  EXPECT_TRUE(allows(services[0], 1));
  EXPECT_TRUE(allows(services[0], 10));
  EXPECT_FALSE(allows(services[0], 11));
}

TEST(Services, OneIsMadeSeenByAllAndDestroyed) {
  const OneNic nic;
  auto launcher = nic.open(), other = nic.open();
  const uint32_t id = must(launcher->create(job()));
  EXPECT_GT(id, Service::kDefault);
  const auto seen = other->services();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].id, id);
  EXPECT_EQ(seen[1].members.at(0).id, geteuid());
  EXPECT_EQ(text_of(seen[1].vnis), "20, 100-200");
  EXPECT_EQ(seen[1].classes, job().classes);
  EXPECT_EQ(seen[1].max_list_entries, 10u);
  must(other->destroy(id));
  EXPECT_EQ(launcher->destroy(id).error().code, FI_EINVAL) << "it is gone";
  EXPECT_NE(must(launcher->create(job())), id) << "a number is not used again at once";
}

TEST(Services, WhatMakesNoSenseIsRefusedInWords) {
  const OneNic nic;
  auto own = nic.open({.list_entries = 100, .triggered = 8});
  const auto refused = [&](const Service &service, const char *words) {
    const auto made = own->create(service);
    ASSERT_FALSE(made.has_value()) << words;
    EXPECT_EQ(made.error().code, FI_EINVAL);
    EXPECT_NE(made.error().text.find(words), std::string::npos) << made.error().text;
  };
  Service service = job();
  service.members = {{true, 1}, {true, 2}, {true, 3}};
  refused(service, "at most 2");
  service = job();
  service.vnis = {{5, 4}};
  refused(service, "lower one first");
  service.vnis = {{0, 4}};
  refused(service, "1 to 65535");
  service.vnis.assign(5, {1, 1});
  refused(service, "ranges");
  service = job();
  service.max_list_entries = 101;
  refused(service, "the NIC has 100 and 8");
  service = job();
  service.classes = {TrafficClass(9)};
  refused(service, "traffic class 9");
  EXPECT_EQ(own->destroy(Service::kDefault).error().code, FI_EINVAL);
  EXPECT_EQ(own->enable(77, true).error().code, FI_EINVAL);
  EXPECT_EQ(own->use(77, "cxi0").error().code, FI_EINVAL);
  while (own->create(job())) {
  }
  EXPECT_EQ(own->create(job()).error().code, FI_ENOSPC);
}

TEST(Services, OnlyMembersUseOneThatIsEnabled) {
  const OneNic nic;
  auto own = nic.open();
  Service service = job();
  service.members = {{.is_group = false, .id = geteuid() + 1}};
  const auto stranger = own->use(must(own->create(service)), "cxi0");
  ASSERT_FALSE(stranger.has_value());
  EXPECT_EQ(stranger.error().code, FI_EPERM);
  EXPECT_NE(stranger.error().text.find("weft cxi service list"), std::string::npos);
  service.members = {{.is_group = false, .id = geteuid() + 1}, {.is_group = true, .id = getegid()}};
  const uint32_t id = must(own->create(service));
  must(own->use(id, "cxi0"));
  must(own->enable(id, false));
  const auto disabled = own->use(id, "cxi0");
  ASSERT_FALSE(disabled.has_value());
  EXPECT_EQ(disabled.error().code, FI_EINVAL);
  EXPECT_NE(disabled.error().text.find("enable"), std::string::npos);
  must(own->enable(id, true));
  must(own->use(id, "cxi0"));
}

TEST(Services, OneLimitsItsProcessesTogetherAndTheNicAll) {
  const OneNic nic;
  auto a = nic.open({.list_entries = 12, .triggered = 8}), b = nic.open();
  const uint32_t id = must(a->create(job()));
  const auto of_a = must(a->use(id, "cxi0")).pool, of_b = must(b->use(id, "cxi0")).pool;
  const auto usual = must(b->use(Service::kDefault, "cxi0")).pool;
  for (int i = 0; i < 10; ++i)
    EXPECT_TRUE((i % 2 == 0 ? of_a : of_b)->take(Resource::kListEntry)) << i;
  EXPECT_FALSE(of_a->take(Resource::kListEntry));
  EXPECT_EQ(of_b->used(Resource::kListEntry), 10u);
  EXPECT_EQ(of_b->limit(Resource::kListEntry), 10u);
  // Two are left of the NIC.
  EXPECT_TRUE(usual->take(Resource::kListEntry));
  EXPECT_TRUE(usual->take(Resource::kListEntry));
  EXPECT_FALSE(usual->take(Resource::kListEntry));
  EXPECT_EQ(usual->used(Resource::kListEntry), 12u) << "of which ten are others'";
  of_b->give(Resource::kListEntry);
  EXPECT_TRUE(usual->take(Resource::kListEntry));
  EXPECT_FALSE(of_a->take(Resource::kListEntry)) << "the NIC has none";
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(of_a->take(Resource::kTriggered));
  EXPECT_FALSE(of_b->take(Resource::kTriggered));
  EXPECT_TRUE(usual->take(Resource::kTriggered));

  const ServiceUse use = a->usage(id), all = a->usage(0);
  EXPECT_EQ(use.list_entries, 9u);
  EXPECT_EQ(use.triggered, 4u);
  ASSERT_EQ(use.processes.size(), 1u);
  EXPECT_EQ(use.processes[0].id, uint32_t(getpid()));
  EXPECT_EQ(all.list_entries, 12u);
}

TEST(Services, OneInUseStaysUntilItsProcessesHaveEnded) {
  const OneNic nic;
  auto own = nic.open({.list_entries = 100, .triggered = 8});
  const uint32_t id = must(own->create(job()));
  TestProcess other([&](const auto &ready) {
    const auto its = nic.open();
    const auto opened = must(its->use(id, "cxi0"));
    for (int i = 0; i < 10; ++i)
      if (!opened.pool->take(Resource::kListEntry)) return;
    ready();
    pause();
  });
  const auto busy = own->destroy(id);
  ASSERT_FALSE(busy.has_value());
  EXPECT_EQ(busy.error().code, FI_EBUSY);
  EXPECT_NE(busy.error().text.find(std::to_string(other.pid())), std::string::npos);
  ServiceUse use = own->usage(id);
  ASSERT_EQ(use.processes.size(), 1u);
  EXPECT_EQ(use.processes[0].id, uint32_t(other.pid()));
  EXPECT_EQ(use.processes[0].list_entries, 10u);
  const auto mine = must(own->use(id, "cxi0"));
  EXPECT_EQ(mine.pool->used(Resource::kListEntry), 10u);
  other.kill_it();
  EXPECT_TRUE(mine.pool->take(Resource::kListEntry)) << "what the killed one had is free";
  EXPECT_EQ(mine.pool->used(Resource::kListEntry), 1u);
  EXPECT_EQ(own->destroy(id).error().code, FI_EBUSY) << "we use it";
  EXPECT_EQ(own->usage(id).processes.size(), 1u);
}

TEST(Services, AForkedChildEndsNothingOfItsParent) {
  const OneNic nic;
  auto own = nic.open();
  auto opened = must(own->use(Service::kDefault, "cxi0"));
  EXPECT_TRUE(opened.pool->take(Resource::kListEntry));
  const TestProcess child([&](const auto &ready) {
    opened.pool.reset();
    own.reset();
    ready();
    pause();
  });
  EXPECT_EQ(own->usage(Service::kDefault).list_entries, 1u);
}

// ---- what an Lni refuses ----

TEST(Services, AnLniKeepsToItsService) {
  Host host;
  Service service = job();
  service.id = 5;
  auto lni = must(host.engine.open(1, service));
  EXPECT_EQ(must(lni->endpoint(150, 7))->vni(), 150);
  const auto refused = lni->endpoint(10, 7);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, FI_EINVAL);
  EXPECT_NE(refused.error().text.find("20, 100-200"), std::string::npos) << refused.error().text;
  auto queue = must(lni->transmit_queue(4, {.vni = 20}));
  EXPECT_TRUE(queue->set_profile({.vni = 101, .traffic = TrafficClass::kLowLatency}).has_value());
  EXPECT_EQ(queue->set_profile({.vni = 99}).error().code, FI_EINVAL);
  const auto bulk = queue->set_profile({.vni = 20, .traffic = TrafficClass::kBulk});
  ASSERT_FALSE(bulk.has_value());
  EXPECT_NE(bulk.error().text.find("bulk_data"), std::string::npos);
  EXPECT_EQ(lni->transmit_queue(4, {.vni = 10}).error().code, FI_EINVAL);
  EXPECT_EQ(lni->trigger_queue({.vni = 10}).error().code, FI_EINVAL);
  EXPECT_TRUE(lni->trigger_queue({.vni = 200}).has_value());
}

TEST(Services, ADeviceHasThem) {
  const TestFolder folder;
  setenv("WEFT_RUNTIME_DIR", folder.path.c_str(), 1);
  {
    auto devices = must(SoftDevices::make({}));
    auto device = must(devices->open("cxi1"));
    EXPECT_EQ(device->wait_fd(), -1) << "nothing is open yet";
    const uint32_t id = must(device->create_service(job()));
    EXPECT_EQ(device->services().size(), 2u);
    EXPECT_EQ(must(devices->open("cxi0"))->services().size(), 1u) << "of each NIC its own";
    {
      auto lni = must(device->open_lni(id));
      EXPECT_EQ(lni->endpoint(10, 3).error().code, FI_EINVAL);
      EXPECT_EQ(must(lni->endpoint(20, 3))->pid(), 3);
      EXPECT_EQ(must(device->usage(id)).processes.size(), 1u);
      EXPECT_EQ(device->destroy_service(id).error().code, FI_EBUSY);
      must(device->enable_service(id, false));
    }
    EXPECT_EQ(device->open_lni(id).error().code, FI_EINVAL);
    must(device->destroy_service(id));
    EXPECT_EQ(device->open_lni(id).error().code, FI_EINVAL);
  }
  unsetenv("WEFT_RUNTIME_DIR");
}

}  // namespace
}  // namespace weft::cxi
