// SPDX-License-Identifier: BSD-2-Clause
// weft cxi service: lists, makes, enables and destroys services of the NICs of cxi.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <memory>

#include "tools/weft/command.h"
#include "tools/weft/cxi.h"
#include "tools/weft/text.h"

namespace weft::cli {
namespace {

struct CxiOptions {
  std::string device;
  uint32_t id = 0;
  std::vector<std::string> users, groups, vnis, classes;
  uint32_t list_entries = 0, triggered = 0;
  bool json = false;
};

std::string share(uint32_t used, uint32_t most) {
  return absl::StrCat(used, " of ", most);
}

Json json_of(const weft_cxi_service &service, const std::string &device) {
  Json members = Json::array(), vnis = Json::array();
  for (size_t i = 0; i < service.member_count; ++i)
    members.push_back(
        {{"kind", service.members[i].is_group ? "group" : "user"}, {"id", service.members[i].id}});
  for (size_t i = 0; i < service.vni_count; ++i)
    vnis.push_back({{"first", service.vnis[i].first}, {"last", service.vnis[i].last}});
  return {{"device", device},
          {"id", service.id},
          {"enabled", service.is_enabled != 0},
          {"usable", service.is_usable != 0},
          {"members", members},
          {"vnis", vnis},
          {"classes", classes_text(service)},
          {"max_list_entries", service.max_list_entries},
          {"list_entries", service.list_entries},
          {"max_triggered", service.max_triggered},
          {"triggered", service.triggered},
          {"process_count", service.processes}};
}

// The NICs that are meant: the one that was named, or all.
Result<std::vector<weft_cxi_device>> chosen(const CxiNics &nics, const CxiOptions &options) {
  WEFT_TRY(std::vector<weft_cxi_device> all, nics.devices());
  if (options.device.empty()) return all;
  std::vector<std::string> known;
  for (const weft_cxi_device &one : all) {
    if (options.device == one.name) return std::vector<weft_cxi_device>{one};
    known.push_back(one.name);
  }
  const std::string close = nearest_word(options.device, known);
  return fail(
      FI_ENODEV, "there is no NIC %s%s", options.device.c_str(),
      (close.empty() ? std::string() : absl::StrCat(": did you mean ", close, "?")).c_str());
}

Result<int> list(const CxiOptions &options) {
  WEFT_TRY(const CxiNics nics, CxiNics::open());
  WEFT_TRY(const std::vector<weft_cxi_device> devices, chosen(nics, options));
  Json all = Json::array();
  Table table(
      {"NIC", "ID", "STATE", "FOR", "VNIS", "CLASSES", "ENTRIES", "TRIGGERED", "PROCESSES"});
  for (const weft_cxi_device &device : devices) {
    WEFT_TRY(const std::vector<weft_cxi_service> services, nics.services(device.name));
    for (const weft_cxi_service &one : services) {
      all.push_back(json_of(one, device.name));
      const char *const state = !one.is_enabled ? "disabled"
                                : one.is_usable ? "enabled"
                                                : "others'";
      table.add({device.name, absl::StrCat(one.id), state, members_text(one), vnis_text(one),
                 classes_text(one), share(one.list_entries, one.max_list_entries),
                 share(one.triggered, one.max_triggered), absl::StrCat(one.processes)},
                one.is_usable ? Emphasis::kNone : Emphasis::kDoubtful);
    }
  }
  if (options.json)
    print_json(all);
  else
    table.print();
  return kExitOk;
}

// Of a program that has ended meanwhile there is no word.
Json processes_of(const CxiNics &nics, const std::string &device, uint32_t id) {
  Json list = Json::array();
  if (const auto all = nics.processes(device, id))
    for (const weft_cxi_process &one : *all)
      list.push_back(
          {{"pid", one.id}, {"list_entries", one.list_entries}, {"triggered", one.triggered}});
  return list;
}

Result<int> show(const CxiOptions &options) {
  WEFT_TRY(const CxiNics nics, CxiNics::open());
  WEFT_TRY(const std::vector<weft_cxi_device> devices, chosen(nics, options));
  const std::string device = devices.front().name;
  WEFT_TRY(const weft_cxi_service one, nics.service(device, options.id));
  const Json processes = processes_of(nics, device, options.id);
  if (options.json) {
    Json whole = json_of(one, device);
    whole["processes"] = processes;
    print_json(whole);
    return kExitOk;
  }
  constexpr size_t kWidth = 18;
  print_field("service", absl::StrCat(one.id, " of ", device), kWidth);
  print_field("state", one.is_enabled ? "enabled" : "disabled", kWidth);
  print_field("for", members_text(one), kWidth);
  print_field("this user", one.is_usable ? "may use it" : "may not use it", kWidth);
  print_field("VNIs", vnis_text(one), kWidth);
  print_field("traffic classes", classes_text(one), kWidth);
  print_field("list entries", share(one.list_entries, one.max_list_entries), kWidth);
  print_field("triggered", share(one.triggered, one.max_triggered), kWidth);
  print_field("processes", absl::StrCat(processes.size()), kWidth);
  Table table({"PID", "ENTRIES", "TRIGGERED"});
  for (const Json &process : processes)
    table.add({process["pid"].dump(), process["list_entries"].dump(), process["triggered"].dump()});
  if (!table.empty()) table.print(2);
  return kExitOk;
}

Result<int> create(const CxiOptions &options) {
  weft_cxi_service wanted{};
  wanted.max_list_entries = options.list_entries;
  wanted.max_triggered = options.triggered;
  for (const std::string &name : options.users) WEFT_CHECK(add_member(wanted, name, false));
  for (const std::string &name : options.groups) WEFT_CHECK(add_member(wanted, name, true));
  for (const std::string &words : options.vnis) WEFT_CHECK(add_vnis(wanted, words));
  for (const std::string &word : options.classes) WEFT_CHECK(add_class(wanted, word));
  WEFT_TRY(const CxiNics nics, CxiNics::open());
  WEFT_TRY(const std::vector<weft_cxi_device> devices, chosen(nics, options));
  const std::string device = devices.front().name;
  WEFT_TRY(const uint32_t id, nics.create(device, wanted));
  if (options.json)
    print_json({{"device", device}, {"id", id}});
  else
    absl::PrintF("service %u of %s: SLINGSHOT_VNIS=%s SLINGSHOT_DEVICES=%s SLINGSHOT_SVC_IDS=%u\n",
                 id, device, wanted.vni_count == 0 ? "VNI" : absl::StrCat(wanted.vnis[0].first),
                 device, id);
  return kExitOk;
}

template <class F>
Result<int> change(const CxiOptions &options, const char *done, F call) {
  WEFT_TRY(const CxiNics nics, CxiNics::open());
  WEFT_TRY(const std::vector<weft_cxi_device> devices, chosen(nics, options));
  const std::string device = devices.front().name;
  WEFT_CHECK(call(nics, device));
  if (options.json)
    print_json({{"device", device}, {"id", options.id}, {"done", done}});
  else
    absl::PrintF("service %u of %s is %s\n", options.id, device, done);
  return kExitOk;
}

Result<int> enable(const CxiOptions &options) {
  return change(options, "enabled", [&](const CxiNics &nics, const std::string &device) {
    return nics.enable(device, options.id, true);
  });
}

Result<int> disable(const CxiOptions &options) {
  return change(options, "disabled", [&](const CxiNics &nics, const std::string &device) {
    return nics.enable(device, options.id, false);
  });
}

Result<int> destroy(const CxiOptions &options) {
  return change(options, "destroyed", [&](const CxiNics &nics, const std::string &device) {
    return nics.destroy(device, options.id);
  });
}

void add_parts(CLI::App *command, CxiOptions &options) {
  command->add_option("--user", options.users, "A user who may use it, by name or number");
  command->add_option("--group", options.groups,
                      "A group that may; without a user or a group everybody may");
  command->add_option("--vni", options.vnis,
                      "VNIs: 10 or 100-200, separated by commas (default: all)");
  command->add_option("--class", options.classes,
                      "A traffic class: dedicated_access, low_latency, bulk_data or best_effort "
                      "(default: all)");
  command->add_option("--list-entries", options.list_entries,
                      "List entries for all its processes together (default: all of the NIC)");
  command->add_option(
      "--triggered", options.triggered,
      "Triggered commands for all its processes together (default: all of the NIC)");
}

}  // namespace

void add_cxi(CLI::App &app, Action &action) {
  CLI::App *command = app.add_subcommand("cxi", "The NICs of Slingshot: their services");
  command->require_subcommand(1);
  CLI::App *service = command->add_subcommand(
      "service", "What a job may use of a NIC: members, VNIs, traffic classes, limits");
  service->require_subcommand(1);
  service->footer("weft-cxi(7) says what a service is, and how a program names one.");
  const auto options = std::make_shared<CxiOptions>();
  const auto common = [&](const char *name, const char *what, bool takes_id,
                          Result<int> (*run)(const CxiOptions &)) {
    CLI::App *sub = service->add_subcommand(name, what);
    if (takes_id)
      sub->add_option("ID", options->id, "The service; `weft cxi service list` lists them")
          ->required();
    sub->add_option(
        "--device", options->device,
        takes_id || run == create ? "The NIC (default: the first)" : "The NIC (default: all)");
    sub->add_flag("--json", options->json, "JSON instead of text");
    sub->callback([&action, options, run] { action = [options, run] { return run(*options); }; });
    return sub;
  };
  common("list", "The services of the NICs, and who they are for", false, list);
  common("show", "One service, and the processes that use it", true, show);
  add_parts(common("create", "Makes a service, and says how a job gets it", false, create),
            *options);
  common("enable", "Lets processes begin to use it", true, enable);
  common("disable", "Lets no more processes begin to use it; those that do go on", true, disable);
  common("destroy", "Removes a service that no process uses", true, destroy);
}

}  // namespace weft::cli
