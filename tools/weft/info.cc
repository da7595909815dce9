// SPDX-License-Identifier: BSD-2-Clause
// weft info: what a program would get from fi_getinfo() on this machine now.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <memory>

#include "tools/names.h"
#include "tools/weft/command.h"
#include "tools/weft/decisions.h"
#include "tools/weft/hints.h"
#include "tools/weft/library.h"

namespace weft::cli {
namespace {

struct InfoOptions {
  HintOptions hints;
  bool json = false;
};

// One domain of one stack, with its source addresses.
struct Offer {
  std::string stack, type, domain, fabric, protocol, version;
  std::vector<std::string> addresses;
};

std::string or_empty(const char *text) {
  return std::string(absl::NullSafeStringView(text));
}

std::vector<Offer> offers_of(const fi_info *list) {
  std::vector<Offer> offers;
  for (const fi_info *info = list; info != nullptr; info = info->next) {
    Offer offer;
    if (info->fabric_attr != nullptr) {
      offer.stack = or_empty(info->fabric_attr->prov_name);
      offer.fabric = or_empty(info->fabric_attr->name);
      offer.version = tools::version_text(info->fabric_attr->prov_version);
    }
    if (info->domain_attr != nullptr) offer.domain = or_empty(info->domain_attr->name);
    if (info->ep_attr != nullptr) {
      offer.type = ep_type_word(info->ep_attr->type);
      offer.protocol = tools::name_of(info->ep_attr->protocol, FI_TYPE_PROTOCOL);
    }
    auto same = std::find_if(offers.begin(), offers.end(), [&](const Offer &other) {
      return other.stack == offer.stack && other.type == offer.type &&
             other.domain == offer.domain && other.protocol == offer.protocol;
    });
    if (same == offers.end()) same = offers.insert(offers.end(), std::move(offer));
    const std::string address = source_address(*info);
    if (!address.empty() &&
        std::find(same->addresses.begin(), same->addresses.end(), address) == same->addresses.end())
      same->addresses.push_back(address);
  }
  return offers;
}

// "tcp (msg) on eth0, 10.0.0.2"
std::string summary(const Offer &offer) {
  std::string text = absl::StrCat(offer.stack, " (", offer.type, ") on ", offer.domain);
  if (!offer.addresses.empty() && offer.addresses.front() != offer.domain)
    absl::StrAppend(&text, ", ", offer.addresses.front());
  return text;
}

Json offer_json(const Offer &offer) {
  return {{"stack", offer.stack},        {"version", offer.version}, {"type", offer.type},
          {"domain", offer.domain},      {"fabric", offer.fabric},   {"protocol", offer.protocol},
          {"addresses", offer.addresses}};
}

Json library_json(const Library &library) {
  return {{"path", library.path()},
          {"weft", WEFT_VERSION},
          {"version", or_empty(fi_tostr("", FI_TYPE_VERSION))},
          {"api", tools::version_text(fi_version())},
          {"plugins", library.plugin_folder()}};
}

Result<int> run(const InfoOptions &options) {
  WEFT_TRY(const Library library, Library::open());
  WEFT_TRY(const Offers found, ask(options.hints));
  const std::vector<Offer> offers = offers_of(found.list.get());
  const Result<Json> why = library.why("");
  const std::vector<Candidate> candidates = why ? by_candidate(*why) : std::vector<Candidate>();
  std::string reason;
  for (const Candidate &candidate : candidates)
    if (!offers.empty() && candidate.name == offers.front().stack) reason = candidate.last().reason;

  if (options.json) {
    Json list = Json::array();
    for (const Offer &offer : offers) list.push_back(offer_json(offer));
    Json json = {{"library", library_json(library)}, {"offers", std::move(list)}};
    json["chosen"] = offers.empty() ? Json(nullptr) : offer_json(offers.front());
    if (!offers.empty()) json["chosen"]["reason"] = reason;
    json["error"] = found.ret == 0 ? Json(nullptr) : Json(fi_strerror(-found.ret));
    print_json(json);
    return offers.empty() ? kExitNo : kExitOk;
  }
  print_field("library",
              absl::StrCat(library.path(), " (weft " WEFT_VERSION ", libfabric API ",
                           tools::version_text(fi_version()), ")"),
              8);
  print_field("plugins", library.plugin_folder(), 8);
  if (offers.empty()) {
    print_field("chosen", absl::StrCat("nothing: ", fi_strerror(-found.ret)), 8);
    if (!candidates.empty()) {
      absl::PrintF("\n");
      print_candidates(candidates);
    }
    return kExitNo;
  }
  print_field("chosen", summary(offers.front()), 8);
  if (!reason.empty()) print_field("because", reason, 8);
  absl::PrintF("\nWhat fi_getinfo() gives, best first:\n");
  Table table({"STACK", "TYPE", "DOMAIN", "PROTOCOL", "ADDRESSES"});
  for (const Offer &offer : offers)
    table.add({offer.stack, offer.type, offer.domain, offer.protocol,
               absl::StrJoin(offer.addresses, ", ")},
              &offer == &offers.front() ? Emphasis::kGood : Emphasis::kNone);
  table.print();
  return kExitOk;
}

}  // namespace

void add_info(CLI::App &app, Action &action) {
  const auto options = std::make_shared<InfoOptions>();
  CLI::App *command = app.add_subcommand(
      "info", "What this machine gives a program now: stacks, interfaces, the chosen one");
  add_hint_options(*command, options->hints);
  command->add_flag("--json", options->json, "JSON instead of text");
  command->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace weft::cli
