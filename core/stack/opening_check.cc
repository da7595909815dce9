// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/opening_check.h"

#include <rdma/fi_errno.h>
#include <weft/plugin.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "core/match/match.h"

namespace weft {
namespace {

bool same_name(const char *one, const char *other) {
  return one != nullptr && other != nullptr && std::strcmp(one, other) == 0;
}

// What an application opens something with, as hints.
class Hints {
 public:
  Hints(uint32_t api_version, const fi_info &info, uint32_t replaced_protocol)
      : own_(info, layout_of(api_version)) {
    if (own_.ep.protocol == replaced_protocol) own_.ep.protocol = FI_PROTO_UNSPEC;
    own_.info.src_addr = own_.info.dest_addr = nullptr;
    own_.info.src_addrlen = own_.info.dest_addrlen = 0;
    own_.info.handle = nullptr;
    domain_name_ = own_.domain.name;
    own_.domain.name = nullptr;
    own_.domain.domain = nullptr;
    // Which version of which stack it is, fi_fabric has found out.
    own_.fabric = {};
  }

  const fi_info &get() const { return own_.info; }
  bool is_of_the_domain(const fi_info &offer) const {
    return offer.domain_attr != nullptr && same_name(domain_name_, offer.domain_attr->name);
  }

  // Two infos with the same key fit or do not fit together.
  std::string key(uint32_t api_version) const {
    std::string key;
    const auto add = [&key](const void *bytes, size_t size) {
      key.append(static_cast<const char *>(bytes), size);
    };
    const auto add_part = [&](const auto *part, auto plain) {
      add(part == nullptr ? "0" : "1", 1);
      if (part != nullptr) add(&plain, sizeof plain);
    };
    const auto add_key = [&](const uint8_t *bytes, size_t size) {
      if (bytes != nullptr && size != FI_AV_AUTH_KEY) add(bytes, size);
    };
    fi_ep_attr ep = own_.ep;
    fi_domain_attr domain = own_.domain;
    ep.auth_key = domain.auth_key = nullptr;
    add(&api_version, sizeof api_version);
    add(&own_.info.caps, sizeof own_.info.caps);
    add(&own_.info.mode, sizeof own_.info.mode);
    add(&own_.info.addr_format, sizeof own_.info.addr_format);
    add_part(own_.info.tx_attr, own_.tx);
    add_part(own_.info.rx_attr, own_.rx);
    add_part(own_.info.ep_attr, ep);
    add_part(own_.info.domain_attr, domain);
    add_key(own_.ep.auth_key, own_.ep.auth_key_size);
    add_key(own_.domain.auth_key, own_.domain.auth_key_size);
    if (domain_name_ != nullptr) add(domain_name_, std::strlen(domain_name_) + 1);
    return key;
  }

 private:
  BorrowedInfo own_;
  const char *domain_name_ = nullptr;
};

// What a unit says of hints, where there were none.
std::string of_an_opening(std::string text) {
  constexpr std::string_view kHints = "hints.";
  for (size_t at = 0; (at = text.find(kHints, at)) != std::string::npos;)
    text.replace(at, kHints.size(), "info.");
  return text;
}

Result<void> check_attributes(uint32_t api_version, const Hints &hints,
                              const OpeningCheck::Ask &ask) {
  // Whoever holds an info was offered it: a provider that answers only who names it answers here.
  const Result<InfoPtr> answer = ask(hints.get(), WEFT_GETINFO_OPENING | WEFT_GETINFO_NAMED);
  if (!answer)
    return fail(answer.error().code == FI_ENODATA ? FI_EINVAL : answer.error().code, "%s",
                of_an_opening(answer.error().text).c_str());
  const InfoPtr &offers = *answer;
  bool has_the_domain = false;
  for (const fi_info *offer = offers.get(); offer != nullptr; offer = offer->next)
    has_the_domain = has_the_domain || hints.is_of_the_domain(*offer);
  std::optional<Match> nearest;
  for (const fi_info *offer = offers.get(); offer != nullptr; offer = offer->next) {
    if (has_the_domain && !hints.is_of_the_domain(*offer)) continue;
    Match match = match_info(api_version, 0, &hints.get(), *offer);
    if (match.accepted) return {};
    if (!nearest || match.distance() < nearest->distance()) nearest = std::move(match);
  }
  return fail(FI_EINVAL, "%s",
              nearest ? nearest->reason("info.").c_str() : "nothing is offered any more");
}

}  // namespace

Result<void> OpeningCheck::check(uint32_t api_version, const fi_info &info,
                                 uint32_t replaced_protocol, const Ask &ask) {
  const Hints hints(api_version, info, replaced_protocol);
  std::string key = hints.key(api_version);
  {
    const std::lock_guard lock(mutex_);
    if (fitting_.contains(key)) return {};
  }
  WEFT_CHECK(check_attributes(api_version, hints, ask));
  const std::lock_guard lock(mutex_);
  if (fitting_.size() >= kMost) fitting_.clear();
  fitting_.insert(std::move(key));
  return {};
}

}  // namespace weft
