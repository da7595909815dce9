// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/rules.h"

#include <arpa/inet.h>
#include <fnmatch.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstring>
#include <memory>

#include "core/base/info.h"
#include "core/base/same_word.h"
#include "core/select/candidates.h"

namespace weft {
namespace {

constexpr const char *kWildcards = "*?[\\";

bool glob(const std::string &pattern, const std::string &text) {
  if (pattern.find_first_of(kWildcards) == std::string::npos) return pattern == text;
  return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

// The same for names of providers, in upper and lower case.
bool name_glob(const std::string &pattern, const std::string &name) {
  if (pattern.find_first_of(kWildcards) == std::string::npos) return same_word(pattern, name);
  return ::fnmatch(pattern.c_str(), name.c_str(), FNM_CASEFOLD) == 0;
}

// A pattern for the name of a provider matches a stack by its name, by the names of its units, or
// by a unit alone, with either names of the units, also mixed.
class RuleNames {
 public:
  explicit RuleNames(const StackUnits &units)
      : units_(units), ofi_(stack_name(units)), own_(stack_own_name(units)) {}

  const std::string &ofi() const { return ofi_; }
  bool fit(const std::string &pattern) const {
    if (pattern.empty()) return true;
    for (const StackUnit &unit : units_)
      if (name_glob(pattern, unit->name) ||
          (!unit->ofi_name.empty() && name_glob(pattern, unit->ofi_name)))
        return true;
    if (pattern.find_first_of(kSeparators) == std::string::npos)
      return name_glob(pattern, ofi_) || name_glob(pattern, own_);
    return name_glob(renamed(pattern, true), ofi_) || name_glob(renamed(pattern, false), own_);
  }

 private:
  static constexpr const char *kSeparators = ";(+)";

  // The pattern with one of the names for each unit that it names.
  std::string renamed(std::string_view pattern, bool ofi) const {
    std::string out;
    while (true) {
      const size_t end = std::min(pattern.find_first_of(kSeparators), pattern.size());
      out += renamed_word(pattern.substr(0, end), ofi);
      if (end == pattern.size()) return out;
      out += pattern[end];
      pattern.remove_prefix(end + 1);
    }
  }
  std::string_view renamed_word(std::string_view word, bool ofi) const {
    for (const StackUnit &unit : units_) {
      if (unit->ofi_name.empty()) continue;
      if (same_word(word, unit->name) || same_word(word, unit->ofi_name))
        return ofi ? unit->ofi_name : unit->name;
    }
    return word;
  }

  const StackUnits &units_;
  const std::string ofi_, own_;
};

// A pattern matches the whole path or its last part.
bool is_program(const std::string &pattern, const std::string &path) {
  return glob(pattern, path) || glob(pattern, path.substr(path.rfind('/') + 1));
}

bool fits_process(const RankRule &rule, const RuleNames &names, const Place &place) {
  if (!names.fit(rule.provider)) return false;
  if (!rule.hostname.empty() && !glob(rule.hostname, place.hostname())) return false;
  return rule.executable.empty() || is_program(rule.executable, place.executable());
}

bool depends_on_info(const RankRule &rule) {
  return !rule.netdev.empty() || !rule.subnet.empty() || !rule.ep_type.empty();
}

const char *ep_word(int type) {
  switch (type) {
    case FI_EP_MSG:
      return "msg";
    case FI_EP_RDM:
      return "rdm";
    case FI_EP_DGRAM:
      return "dgram";
    default:
      return "";
  }
}

// Both addresses of an fi_info show its network. The source address is that of the device.
std::pair<const struct sockaddr *, size_t> address_of(const struct fi_info &info) {
  const bool is_sockaddr = info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IP ||
                           info.addr_format == FI_SOCKADDR_IN ||
                           info.addr_format == FI_SOCKADDR_IN6;
  if (!is_sockaddr || info.src_addr == nullptr) return {nullptr, 0};
  return {static_cast<const struct sockaddr *>(info.src_addr), info.src_addrlen};
}

// FI_ADDR_STR: "fi_sockaddr_in://10.0.0.2:7471" as an address.
std::optional<sockaddr_storage> parse_text_address(const struct fi_info &info, size_t &length) {
  if (info.addr_format != FI_ADDR_STR || info.src_addr == nullptr) return std::nullopt;
  const char *bytes = static_cast<const char *>(info.src_addr);
  const std::string_view text(bytes, strnlen(bytes, info.src_addrlen));
  const size_t scheme = text.find("://");
  if (scheme == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(scheme + 3);
  sockaddr_storage storage{};
  if (!rest.empty() && rest.front() == '[') {
    const std::string host(rest.substr(1, rest.find(']') - 1));
    auto *in6 = reinterpret_cast<sockaddr_in6 *>(&storage);
    if (inet_pton(AF_INET6, host.c_str(), &in6->sin6_addr) != 1) return std::nullopt;
    in6->sin6_family = AF_INET6;
    length = sizeof *in6;
  } else {
    const std::string host(rest.substr(0, rest.find_first_of(":/?")));
    auto *in = reinterpret_cast<sockaddr_in *>(&storage);
    if (inet_pton(AF_INET, host.c_str(), &in->sin_addr) != 1) return std::nullopt;
    in->sin_family = AF_INET;
    length = sizeof *in;
  }
  return storage;
}

const SupposedDevice *supposed(const Place &place, std::string_view name) {
  const auto found = std::ranges::find(place.devices, name, &SupposedDevice::real);
  return found != place.devices.end() ? &*found : nullptr;
}

// Calls `call(name)` for the names of the device of an offer until one returns true, and then
// returns true: the domain, the NIC, the network interface with its address.
template <class Call>
bool any_name(const struct fi_info &info, const struct sockaddr *addr, const Place &place,
              Call call) {
  const fi_domain_attr *domain = info.domain_attr;
  if (domain != nullptr && domain->name != nullptr && call(std::string(domain->name))) return true;
  const fid_nic *nic = info.nic;
  if (nic != nullptr && nic->device_attr != nullptr && nic->device_attr->name != nullptr &&
      call(std::string(nic->device_attr->name)))
    return true;
  if (addr == nullptr) return false;
  const std::string netdev = place.netdev_of(addr);
  return !netdev.empty() && call(netdev);
}

bool is_on(const std::string &pattern, const struct fi_info &info, const struct sockaddr *addr,
           const Place &place) {
  return any_name(info, addr, place, [&](const std::string &name) {
    const SupposedDevice *other = supposed(place, name);
    return glob(pattern, other != nullptr ? other->name : name);
  });
}

bool is_within(const std::string &subnet, const struct fi_info &info, const struct sockaddr *addr,
               size_t length, const Place &place) {
  const SupposedDevice *other = nullptr;
  if (!place.devices.empty())
    any_name(info, addr, place, [&](const std::string &name) {
      other = supposed(place, name);
      return other != nullptr && other->address_length != 0;
    });
  if (other != nullptr && other->address_length != 0)
    return in_subnet(reinterpret_cast<const struct sockaddr *>(&other->address),
                     other->address_length, subnet);
  return in_subnet(addr, length, subnet);
}

bool fits_info(const RankRule &rule, const Place &place, const struct fi_info &info) {
  if (!rule.ep_type.empty() &&
      (info.ep_attr == nullptr ||
       strcasecmp(rule.ep_type.c_str(), ep_word(ep_type_of(*info.ep_attr))) != 0))
    return false;
  if (rule.netdev.empty() && rule.subnet.empty()) return true;
  auto [addr, length] = address_of(info);
  size_t text_length = 0;
  const auto from_text = parse_text_address(info, text_length);
  if (from_text) {
    addr = reinterpret_cast<const struct sockaddr *>(&*from_text);
    length = text_length;
  }
  if (!rule.subnet.empty() && !is_within(rule.subnet, info, addr, length, place)) return false;
  return rule.netdev.empty() || is_on(rule.netdev, info, addr, place);
}

Judgement refused_by(const RankRule &rule, const std::string &what) {
  return {false, Cause::kSwitchedOff, "a rule of providers.rank switches " + what + " off",
          rule.origin.final ? "the key is final: ask who administers this host"
                            : "change the rule, or add a stronger one",
          rule.origin.where};
}

}  // namespace

bool in_subnet(const struct sockaddr *addr, size_t length, const std::string &subnet) {
  const size_t slash = subnet.find('/');
  if (addr == nullptr || slash == std::string::npos || length < sizeof(sa_family_t)) return false;
  unsigned prefix = 0;
  const char *end = subnet.data() + subnet.size();
  if (std::from_chars(subnet.data() + slash + 1, end, prefix).ptr != end) return false;
  const std::string network = subnet.substr(0, slash);
  unsigned char wanted[16], have[16];
  sa_family_t family;
  std::memcpy(&family, addr, sizeof family);
  size_t bits;
  if (family == AF_INET && length >= sizeof(sockaddr_in) &&
      inet_pton(AF_INET, network.c_str(), wanted) == 1) {
    std::memcpy(have, reinterpret_cast<const char *>(addr) + offsetof(sockaddr_in, sin_addr), 4);
    bits = 32;
  } else if (family == AF_INET6 && length >= sizeof(sockaddr_in6) &&
             inet_pton(AF_INET6, network.c_str(), wanted) == 1) {
    std::memcpy(have, reinterpret_cast<const char *>(addr) + offsetof(sockaddr_in6, sin6_addr), 16);
    bits = 128;
  } else {
    return false;
  }
  if (prefix > bits) return false;
  const size_t whole = prefix / 8;
  if (std::memcmp(wanted, have, whole) != 0) return false;
  const unsigned rest = prefix % 8;
  if (rest == 0) return true;
  const auto mask = static_cast<unsigned char>(0xff << (8 - rest));
  return (wanted[whole] & mask) == (have[whole] & mask);
}

Place Place::of_process() {
  Place place;
  place.hostname = [] {
    char name[HOST_NAME_MAX + 1] = "";
    return ::gethostname(name, sizeof name - 1) == 0 ? std::string(name) : std::string();
  };
  place.executable = [] {
    char path[PATH_MAX];
    const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
    return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string();
  };
  place.netdev_of = [](const struct sockaddr *addr) {
    struct ifaddrs *list = nullptr;
    if (::getifaddrs(&list) != 0) return std::string();
    const std::unique_ptr<struct ifaddrs, void (*)(struct ifaddrs *)> owned(list, ::freeifaddrs);
    sa_family_t family;
    std::memcpy(&family, addr, sizeof family);
    for (const struct ifaddrs *one = list; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      const auto *a = reinterpret_cast<const char *>(addr);
      const auto *b = reinterpret_cast<const char *>(one->ifa_addr);
      const bool same = family == AF_INET ? std::memcmp(a + offsetof(sockaddr_in, sin_addr),
                                                        b + offsetof(sockaddr_in, sin_addr), 4) == 0
                        : family == AF_INET6
                            ? std::memcmp(a + offsetof(sockaddr_in6, sin6_addr),
                                          b + offsetof(sockaddr_in6, sin6_addr), 16) == 0
                            : false;
      if (same) return std::string(one->ifa_name);
    }
    return std::string();
  };
  return place;
}

Judgement judge_stack(const Policy &policy, const StackUnits &units, const Place &place) {
  const RuleNames names(units);
  for (auto rule = policy.ranks.rbegin(); rule != policy.ranks.rend(); ++rule) {
    if (!rule->enable || !names.fit(rule->provider)) continue;
    if (depends_on_info(*rule)) return {};  // its offers will tell
    if (!fits_process(*rule, names, place)) continue;
    return *rule->enable ? Judgement{} : refused_by(*rule, names.ofi());
  }
  return {};
}

const Judgement &StackRules::judge(const StackUnits &units) {
  const auto [known, is_new] = known_.try_emplace(stack_own_name(units));
  if (is_new) known->second = judge_stack(policy_, units, place_);
  return known->second;
}

RuleOutcome judge_info(const Policy &policy, const StackUnits &units, const Place &place,
                       const struct fi_info &info) {
  RuleOutcome outcome;
  const RuleNames names(units);
  bool decided = false;
  for (auto rule = policy.ranks.rbegin(); rule != policy.ranks.rend(); ++rule) {
    const bool open = (rule->enable && !decided) || (rule->rank && !outcome.rank);
    if (!open || !fits_process(*rule, names, place) || !fits_info(*rule, place, info)) continue;
    if (rule->enable && !decided) {
      decided = true;
      if (!*rule->enable) {
        const char *domain = info.domain_attr != nullptr && info.domain_attr->name != nullptr
                                 ? info.domain_attr->name
                                 : "this domain";
        outcome.verdict = refused_by(*rule, domain);
      }
    }
    if (rule->rank && !outcome.rank) {
      outcome.rank = rule->rank;
      outcome.rank_rule = rule->origin.where;
    }
  }
  return outcome;
}

}  // namespace weft
