// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/offers.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/string_view.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <utility>

#include "tools/names.h"
#include "tools/weft/hints.h"

namespace weft::cli {
namespace {

std::string or_empty(const char *text) {
  return std::string(absl::NullSafeStringView(text));
}

}  // namespace

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

Json offers_json(const std::vector<Offer> &offers) {
  Json list = Json::array();
  for (const Offer &offer : offers) list.push_back(offer_json(offer));
  return list;
}

void print_offers(const std::vector<Offer> &offers) {
  Table table({"STACK", "TYPE", "DOMAIN", "PROTOCOL", "ADDRESSES"});
  for (const Offer &offer : offers)
    table.add({offer.stack, offer.type, offer.domain, offer.protocol,
               absl::StrJoin(offer.addresses, ", ")},
              &offer == &offers.front() ? Emphasis::kGood : Emphasis::kNone);
  table.print();
}

}  // namespace weft::cli
