// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/test_loader.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "tests/paths.h"

namespace weft {
namespace {

using testing::ElementsAre;

weft_core_services toy_services() {
  weft_core_services services{};
  services.struct_size = sizeof services;
  services.info_alloc = []() -> fi_info * { return nullptr; };
  return services;
}

std::vector<std::string> unit_names(const Loader &loader) {
  std::vector<std::string> names;
  for (const UnitInfo &unit : loader.units()) names.push_back(unit.name);
  return names;
}

}  // namespace

std::string toy_plugin(int version) {
  return test::built("tests/loader-plugins/toy-" + std::to_string(version) + ".so");
}

LoaderTest::LoaderTest() {
  setenv("WEFT_TOY_LOG", log_.c_str(), 1);
  std::filesystem::create_directories(folder_.at("weft"));
}

LoaderTest::~LoaderTest() {
  unsetenv("WEFT_TOY_LOG");
}

LoaderOptions LoaderTest::options() const {
  LoaderOptions options;
  options.folders = {folder_.at("weft")};
  options.reader_library = test::built("lib/weft/weft-config.so");
  options.probe_program = test::built("lib/weft/weft-probe");
  options.quarantine_file = folder_.at("cache/quarantine");
  options.probe_budget = std::chrono::seconds(20);
  options.services = toy_services();
  return options;
}

LoaderOptions LoaderTest::index_only() const {
  LoaderOptions strict = options();
  strict.reader_library = "/nonexistent/weft-config.so";
  strict.probe_program = "/nonexistent/weft-probe";
  strict.quarantine_file.clear();
  strict.unprobed_allow = false;
  return strict;
}

LoaderOptions LoaderTest::without_probe() const {
  LoaderOptions given = options();
  given.probe_program.clear();
  return given;
}

LoaderOptions LoaderTest::with_slow_probe() const {
  LoaderOptions slow = options();
  slow.probe_program = folder_.write("slow", "#!/bin/bash\nprintf 'at\\tinit\\n' >&3\nsleep 100\n");
  chmod(slow.probe_program.c_str(), 0755);
  slow.probe_budget = std::chrono::seconds(1);  // enough to start it on a busy machine
  return slow;
}

void LoaderTest::install() const {
  folder_.copy(toy_plugin(), "weft/toy.so");
  std::filesystem::create_directories(folder_.at("weft/plugins.d"));
  const std::string command = test::built("lib/weft/weft-probe") + " --manifest " +
                              folder_.at("weft/toy.so") + " --output " +
                              folder_.at("weft/plugins.d/toy.yaml");
  ASSERT_EQ(std::system(command.c_str()), 0);
}

RefreshReport LoaderTest::refresh() const {
  Result<RefreshReport> report = Loader::refresh(options(), folder_.at("weft"));
  EXPECT_TRUE(report) << report.error().text;
  return report ? *report : RefreshReport{};
}

void expect_toy(const Loader &loader, const std::string &folder) {
  EXPECT_THAT(unit_names(loader), ElementsAre("absent", "toy", "toylayer", "hook1", "hook2"));
  const UnitInfo *toy = loader.find("toy");
  ASSERT_NE(toy, nullptr);
  EXPECT_EQ(toy->kind, uint32_t{WEFT_KIND_PROVIDER});
  EXPECT_EQ(toy->version, uint32_t{(1 << 16) | 3});
  EXPECT_EQ(toy->offers_ep, uint32_t{WEFT_EP_BIT(FI_EP_MSG) | WEFT_EP_BIT(FI_EP_RDM)});
  EXPECT_EQ(toy->summary, "a provider that provides nothing: \"toy\" \\ \xc3\xa9");
  EXPECT_EQ(toy->library, folder + "/toy.so");
  EXPECT_EQ(toy->plugin, "toybox");
  EXPECT_EQ(toy->vendor, "Toys & Co.");
  EXPECT_EQ(toy->support, "https://toys.example/help");
  EXPECT_THAT(toy->devices, ElementsAre("path:/nonexistent/toy*", "netdev:*"));
  EXPECT_EQ(toy->device_remedy, "");
  EXPECT_EQ(loader.find("absent")->device_remedy, "put a \"toy\" on the table");
  ASSERT_EQ(toy->params.size(), 2u);
  EXPECT_EQ(toy->params[0].name, "eager_size");
  EXPECT_EQ(toy->params[0].type, uint32_t{WEFT_TYPE_SIZE});
  EXPECT_EQ(toy->params[0].default_value, "16K");
  EXPECT_TRUE(toy->params[0].has_default);
  EXPECT_EQ(toy->params[0].maximum, 1 << 20);
  EXPECT_EQ(toy->params[0].help, "bytes that go at once; \"more\" costs a round trip");
  EXPECT_FALSE(toy->params[1].has_default);
  EXPECT_EQ(loader.find("ofi_toy"), loader.find("toylayer"));
  EXPECT_NE(loader.find("ofi_toy"), nullptr);
}

}  // namespace weft
