// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/descriptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>

namespace weft {
namespace {

using testing::HasSubstr;

// A valid descriptor. A test spoils one thing of it.
struct Sane {
  weft_param param{};
  std::array<const weft_param *, 1> params{&param};
  std::array<const char *, 1> devices{"netdev:eth*"};
  weft_provider_unit provider{};
  weft_layer_unit layer{};
  weft_hook_unit hook{};
  weft_op_tables overlay{};
  weft_unit unit{}, second{};
  std::array<const weft_unit *, 2> units{&unit, &second};
  weft_plugin_desc desc{};

  Sane() {
    param = {sizeof param, WEFT_TYPE_INT, "depth", "8", "entries", 1, 64};
    provider = {sizeof provider, 0,
                [](const weft_instance *, weft_provider *, weft_error *) -> int32_t { return 0; }};
    layer = {sizeof layer, 0,
             [](const weft_instance *, const weft_provider *, uint32_t, weft_provider *,
                weft_error *) -> int32_t { return 0; }};
    overlay.struct_size = sizeof overlay;
    hook.struct_size = sizeof hook;
    hook.overlay = &overlay;
    hook.create = [](const weft_instance *, void **, weft_error *) -> int32_t { return 0; };
    unit.magic = WEFT_UNIT_MAGIC;
    unit.struct_size = sizeof unit;
    unit.kind = WEFT_KIND_PROVIDER;
    unit.version = 0x10002;
    unit.name = "one";
    unit.summary = "does one thing";
    unit.offers_ep = WEFT_EP_BIT(FI_EP_MSG);
    unit.rank = -3;
    unit.maturity = WEFT_MATURITY_BETA;
    unit.security = WEFT_SECURITY_ROBUST;
    unit.devices = devices.data();
    unit.device_count = 1;
    unit.params = params.data();
    unit.param_count = 1;
    unit.provider = &provider;
    second = unit;
    second.name = "two";
    second.ofi_name = "ofi_two";
    desc.magic = WEFT_DESC_MAGIC;
    desc.struct_size = sizeof desc;
    desc.abi_major = WEFT_ABI_MAJOR;
    desc.abi_minor = WEFT_ABI_MINOR;
    desc.name = "package";
    desc.vendor = "Vendor";
    desc.version = "1";
    desc.license = "BSD-2-Clause";
    desc.units = units.data();
    desc.unit_count = 2;
  }
  void make_layer(uint32_t inner_min, uint32_t inner_max) {
    unit.kind = WEFT_KIND_LAYER;
    unit.provider = nullptr;
    unit.layer = &layer;
    unit.inner_min = inner_min;
    unit.inner_max = inner_max;
  }
  Sane(const Sane &) = delete;
  Sane &operator=(const Sane &) = delete;
};

Checked<PluginRecord> check(const Sane &sane, const CoreAbi &abi = {}) {
  return check_descriptor(&sane.desc, weft_error{}, abi);
}

TEST(Descriptor, IsReadInFull) {
  Sane sane;
  const Checked<PluginRecord> record = check(sane);
  ASSERT_TRUE(record) << record.error().cause;
  EXPECT_EQ(record->name, "package");
  ASSERT_EQ(record->units.size(), 2u);
  const UnitInfo &one = record->units[0];
  EXPECT_EQ(one.name, "one");
  EXPECT_EQ(one.ofi_name, "one");
  EXPECT_EQ(one.version, 0x10002u);
  EXPECT_EQ(one.rank, -3);
  EXPECT_EQ(one.vendor, "Vendor");
  ASSERT_EQ(one.devices.size(), 1u);
  ASSERT_EQ(one.params.size(), 1u);
  EXPECT_EQ(one.params[0].name, "depth");
  EXPECT_TRUE(one.params[0].has_default);
  EXPECT_EQ(one.params[0].maximum, 64);
  EXPECT_EQ(record->units[1].ofi_name, "ofi_two");
  EXPECT_EQ(find_unit(sane.desc, "two"), &sane.second);
  EXPECT_EQ(find_unit(sane.desc, "three"), nullptr);
}

TEST(Descriptor, LayersAndHooksAreReadToo) {
  Sane sane;
  sane.make_layer(1, WEFT_MAX_INNER);
  sane.unit.needs_ep = WEFT_EP_BIT(FI_EP_DGRAM);
  sane.second.kind = WEFT_KIND_HOOK;
  sane.second.provider = nullptr;
  sane.second.hook = &sane.hook;
  const Checked<PluginRecord> record = check(sane);
  ASSERT_TRUE(record) << record.error().cause;
  EXPECT_EQ(record->units[0].needs_ep, WEFT_EP_BIT(FI_EP_DGRAM));
  EXPECT_EQ(record->units[0].inner_min, 1u);
  EXPECT_EQ(record->units[0].inner_max, uint32_t{WEFT_MAX_INNER});
}

TEST(Descriptor, LongerStructsAndUnknownLowCapabilitiesAreIgnored) {
  Sane sane;
  sane.desc.struct_size += 64;
  sane.desc.abi_minor = 9;  // newer, but needs no newer core
  sane.desc.caps = sane.unit.caps = 0xffffffff;
  sane.unit.struct_size += 64;
  sane.param.struct_size += 64;
  EXPECT_TRUE(check(sane));
}

TEST(Descriptor, AUnitMaySayWhatToDoWithoutItsDevice) {
  Sane sane;
  sane.unit.device_remedy = "load\none.ko";
  const Checked<PluginRecord> record = check(sane);
  ASSERT_TRUE(record) << record.error().cause;
  EXPECT_EQ(record->units[0].device_remedy, "load one.ko");
  EXPECT_EQ(record->units[1].device_remedy, "");

  sane.unit.struct_size = offsetof(weft_unit, device_remedy);  // a plugin from before it was there
  const Checked<PluginRecord> older = check(sane);
  ASSERT_TRUE(older) << older.error().cause;
  EXPECT_EQ(older->units[0].device_remedy, "");
}

TEST(Descriptor, ReadsNothingBehindAShortStruct) {
  // The struct ends with its heap block: a sanitizer sees a read past it.
  for (const uint32_t size : {8u, 16u, 40u, 64u}) {
    const auto bytes = std::make_unique<unsigned char[]>(size);
    const uint32_t magic = WEFT_DESC_MAGIC;
    memcpy(bytes.get(), &magic, 4);
    memcpy(bytes.get() + 4, &size, 4);
    const auto record =
        check_descriptor(reinterpret_cast<const weft_plugin_desc *>(bytes.get()), weft_error{});
    ASSERT_FALSE(record);
    EXPECT_THAT(record.error().cause, HasSubstr("struct_size " + std::to_string(size)));
  }
}

TEST(Descriptor, RefusesOtherAbiVersions) {
  Sane sane;
  sane.desc.abi_major = 3;
  EXPECT_THAT(check(sane, {.major = 3, .minor = 0, .major_min = 2}),
              testing::Truly([](const auto &r) { return r.has_value(); }));
  EXPECT_FALSE(check(sane, {.major = 2, .minor = 0, .major_min = 1}));
  const auto old = check(sane, {.major = 5, .minor = 0, .major_min = 4});
  ASSERT_FALSE(old);
  EXPECT_THAT(old.error().cause, HasSubstr("this core loads 4 and newer"));
  // A minor is compared within one major only.
  sane.desc.min_core_minor = 9;
  EXPECT_TRUE(check(sane, {.major = 4, .minor = 0, .major_min = 3}));
  EXPECT_FALSE(check(sane, {.major = 3, .minor = 8, .major_min = 3}));
  EXPECT_TRUE(check(sane, {.major = 3, .minor = 9, .major_min = 3}));
}

TEST(Descriptor, GivesThePluginsReasonForDeclining) {
  weft_error why{};
  memset(why.text, 'x', sizeof why.text);  // not even terminated
  EXPECT_FALSE(check_descriptor(nullptr, why));
  strcpy(why.text, "needs Tuesday");
  EXPECT_THAT(check_descriptor(nullptr, why).error().cause, HasSubstr("needs Tuesday"));
}

TEST(Descriptor, QuotesCharactersThatTextFilesCannotHold) {
  Sane sane;
  sane.unit.summary = "tab\there\x01 \xff\xc3 \xe2\x82\xac end";
  const auto record = check(sane);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->units[0].summary, "tab here\\x01 \\xff\\xc3 \xe2\x82\xac end");
}

struct Spoiled {
  const char *name;
  std::function<void(Sane &)> spoil;
  const char *cause;
};
class Spoil : public testing::TestWithParam<Spoiled> {};

TEST_P(Spoil, IsRefusedWithTheReason) {
  Sane sane;
  GetParam().spoil(sane);
  const auto record = check(sane);
  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().stage, Stage::kNegotiate);
  EXPECT_THAT(record.error().cause, HasSubstr(GetParam().cause));
  EXPECT_FALSE(record.error().remedy.empty());
}

constexpr char kLong[2048] = {};
const char *long_text() {
  static std::array<char, 2048> text = [] {
    std::array<char, 2048> all{};
    all.fill('a');
    return all;
  }();
  return text.data();
}

INSTANTIATE_TEST_SUITE_P(
    Descriptor, Spoil,
    testing::Values(
        Spoiled{"magic", [](Sane &s) { s.desc.magic = 1; }, "magic 0x00000001"},
        Spoiled{"no_name", [](Sane &s) { s.desc.name = nullptr; }, "the plugin is named '(null)'"},
        Spoiled{"long_name", [](Sane &s) { s.desc.name = long_text(); }, "no end within 64"},
        Spoiled{"long_vendor", [](Sane &s) { s.desc.vendor = long_text(); }, "no end within 1024"},
        Spoiled{"no_vendor", [](Sane &s) { s.desc.vendor = nullptr; }, "names no vendor"},
        Spoiled{"no_version", [](Sane &s) { s.desc.version = ""; }, "names no version"},
        Spoiled{"no_license", [](Sane &s) { s.desc.license = kLong; }, "names no license"},
        Spoiled{"no_units", [](Sane &s) { s.desc.units = nullptr; }, "unit_count is 2 (no array)"},
        Spoiled{"zero_units", [](Sane &s) { s.desc.unit_count = 0; }, "unit_count is 0"},
        Spoiled{"many_units", [](Sane &s) { s.desc.unit_count = 65; }, "unit_count is 65"},
        Spoiled{"null_unit", [](Sane &s) { s.units[1] = nullptr; }, "units[1] is NULL"},
        Spoiled{"unit_magic", [](Sane &s) { s.second.magic = 7; }, "units[1] begins with magic"},
        Spoiled{"unit_size", [](Sane &s) { s.unit.struct_size = 24; },
                "units[0] has struct_size 24"},
        Spoiled{"unit_name", [](Sane &s) { s.unit.name = "A b"; }, "named 'A b'"},
        Spoiled{"unit_empty", [](Sane &s) { s.unit.name = ""; }, "named ''"},
        Spoiled{"unit_escape", [](Sane &s) { s.unit.name = "a\033[31m"; }, "named 'a\\x1b[31m'"},
        Spoiled{"ofi_name", [](Sane &s) { s.unit.ofi_name = "x;y"; }, "ofi_name 'x;y'"},
        Spoiled{"long_ofi", [](Sane &s) { s.unit.ofi_name = long_text(); },
                "ofi_name of unit 'one'"},
        Spoiled{"same_name", [](Sane &s) { s.second.name = "one"; },
                "another unit of the same file"},
        Spoiled{"same_ofi", [](Sane &s) { s.second.ofi_name = "one"; }, "another unit of the same"},
        Spoiled{"kind", [](Sane &s) { s.unit.kind = 4; }, "kind 4"},
        Spoiled{"two_tables", [](Sane &s) { s.unit.layer = &s.layer; }, "layer=1"},
        Spoiled{"other_table", [](Sane &s) { s.unit.kind = WEFT_KIND_HOOK; }, "exactly the one"},
        Spoiled{"no_create", [](Sane &s) { s.provider.create = nullptr; }, "no create"},
        Spoiled{"short_table", [](Sane &s) { s.provider.struct_size = 8; }, "struct_size 8"},
        Spoiled{"ep", [](Sane &s) { s.unit.offers_ep = 1u << 20; }, "endpoint types beyond"},
        Spoiled{"inner", [](Sane &s) { s.unit.inner_max = 1; }, "only a layer takes any"},
        Spoiled{"no_inner", [](Sane &s) { s.make_layer(0, 0); }, "takes 0 to 0 inner providers"},
        Spoiled{"least_inner", [](Sane &s) { s.make_layer(0, 1); }, "takes 0 to 1 inner"},
        Spoiled{"inner_order", [](Sane &s) { s.make_layer(3, 2); }, "takes 3 to 2 inner"},
        Spoiled{"many_inner", [](Sane &s) { s.make_layer(1, WEFT_MAX_INNER + 1); },
                "at least 1 and at most 16"},
        Spoiled{"maturity", [](Sane &s) { s.unit.maturity = 0; }, "maturity 0"},
        Spoiled{"security", [](Sane &s) { s.unit.security = 9; }, "security 9"},
        Spoiled{"devices", [](Sane &s) { s.unit.device_count = 1000000; }, "1000000 devices"},
        Spoiled{"no_devices", [](Sane &s) { s.unit.devices = nullptr; }, "(no array)"},
        Spoiled{"device", [](Sane &s) { s.devices[0] = "eth0"; }, "must look like"},
        Spoiled{"device_remedy",
                [](Sane &s) {
                  static const std::string endless(kMaxText, 'x');
                  s.unit.device_remedy = endless.c_str();
                },
                "the device_remedy of unit 'one' has no end"},
        Spoiled{"null_device", [](Sane &s) { s.devices[0] = nullptr; }, "devices[0]"},
        Spoiled{"params", [](Sane &s) { s.unit.param_count = 1u << 31; }, "2147483648 parameters"},
        Spoiled{"null_param", [](Sane &s) { s.params[0] = nullptr; }, "params[0] of unit 'one'"},
        Spoiled{"param_size", [](Sane &s) { s.param.struct_size = 8; }, "has struct_size 8"},
        Spoiled{"param_name", [](Sane &s) { s.param.name = "a-b"; }, "named 'a-b'"},
        Spoiled{"param_type", [](Sane &s) { s.param.type = 6; }, "type 6"},
        Spoiled{"param_help", [](Sane &s) { s.param.help = long_text(); }, "no end within 1024"},
        Spoiled{"param_limits", [](Sane &s) { s.param.minimum = 65; },
                "minimum 65 above maximum 64"},
        Spoiled{"text_limits", [](Sane &s) { s.param.type = WEFT_TYPE_STRING; }, "is no number"},
        Spoiled{"core_caps", [](Sane &s) { s.desc.required_core_caps = 6; }, "lacks 0x6"},
        Spoiled{"caps", [](Sane &s) { s.desc.caps = UINT64_C(1) << 63; }, "0x8000000000000000"},
        Spoiled{"unit_caps", [](Sane &s) { s.unit.caps = UINT64_C(1) << 32; }, "unit 'one' sets"}),
    [](const auto &info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft
