// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/nic/service.h"

#include <unistd.h>

#include <algorithm>

namespace weft::cxi {
namespace {

constexpr const char *kTrafficNames[kTrafficClasses] = {"dedicated_access", "low_latency",
                                                        "bulk_data", "best_effort"};

std::string members_text(const std::vector<Service::Member> &members) {
  std::string text;
  for (const Service::Member &member : members) {
    if (!text.empty()) text += ", ";
    text += (member.is_group ? "group " : "user ") + std::to_string(member.id);
  }
  return text;
}

}  // namespace

User User::own() {
  User user{.id = ::geteuid(), .groups = {::getegid()}};
  const int count = ::getgroups(0, nullptr);
  if (count <= 0) return user;
  std::vector<gid_t> more(size_t(count), 0);
  const int found = ::getgroups(count, more.data());
  for (int i = 0; i < found; ++i) user.groups.push_back(more[size_t(i)]);
  return user;
}

bool User::is_in(uint32_t group) const {
  return std::ranges::find(groups, group) != groups.end();
}

bool is_member(const Service &service, const User &user) {
  return service.members.empty() ||
         std::ranges::any_of(service.members, [&](const Service::Member &member) {
           return member.is_group ? user.is_in(member.id) : member.id == user.id;
         });
}

Result<Service> usable_service(const std::vector<Service> &services, uint32_t id, const User &user,
                               const std::string &nic) {
  const auto found = std::ranges::find(services, id, &Service::id);
  if (found == services.end())
    return fail(FI_EINVAL, "cxi: %s has no service %u: `weft cxi service list` has those it has",
                nic.c_str(), id);
  if (!found->is_enabled)
    return fail(FI_EINVAL, "cxi: service %u of %s is disabled: `weft cxi service enable %u`", id,
                nic.c_str(), id);
  if (!is_member(*found, user))
    return fail(FI_EPERM,
                "cxi: service %u of %s is not for user %u, but for %s: `weft cxi service list` has "
                "others",
                id, nic.c_str(), user.id, members_text(found->members).c_str());
  return *found;
}

bool allows(const Service &service, Vni vni) {
  return service.vnis.empty() || std::ranges::any_of(service.vnis, [&](const Service::Vnis &range) {
           return range.first <= vni && vni <= range.last;
         });
}

bool allows(const Service &service, TrafficClass traffic) {
  return service.classes.empty() ||
         std::ranges::find(service.classes, traffic) != service.classes.end();
}

Result<void> check_vni(const Service &service, Vni vni) {
  if (allows(service, vni)) return {};
  return fail(FI_EINVAL,
              "cxi: VNI %u is none of service %u, which has %s: put one of those into the "
              "authorization key or SLINGSHOT_VNIS",
              vni, service.id, text_of(service.vnis).c_str());
}

Result<void> check_profile(const Service &service, const Profile &profile) {
  WEFT_CHECK(check_vni(service, profile.vni));
  if (allows(service, profile.traffic)) return {};
  std::string classes;
  for (const TrafficClass one : service.classes)
    classes += (classes.empty() ? "" : ", ") + std::string(name_of(one));
  return fail(FI_EINVAL,
              "cxi: the traffic class %s is none of service %u, which has %s: use another service",
              name_of(profile.traffic), service.id, classes.c_str());
}

Result<void> check_new(const Service &service) {
  if (service.members.size() > kMaxServiceMembers)
    return fail(FI_EINVAL, "cxi: a service for %zu members: at most %zu; a group has many users",
                service.members.size(), kMaxServiceMembers);
  if (service.vnis.size() > kMaxServiceVnis)
    return fail(FI_EINVAL, "cxi: a service with %zu VNIs: at most %zu, or ranges of them",
                service.vnis.size(), kMaxServiceVnis);
  for (const Service::Vnis &range : service.vnis)
    if (range.first == 0 || range.last < range.first)
      return fail(FI_EINVAL, "cxi: VNIs %u to %u: they are 1 to 65535, the lower one first",
                  range.first, range.last);
  for (const TrafficClass one : service.classes)
    if (unsigned(one) >= kTrafficClasses)
      return fail(FI_EINVAL, "cxi: there is no traffic class %u", unsigned(one));
  return {};
}

std::string text_of(const std::vector<Service::Vnis> &vnis) {
  if (vnis.empty()) return "all";
  std::string text;
  for (const Service::Vnis &range : vnis) {
    if (!text.empty()) text += ", ";
    text += std::to_string(range.first);
    if (range.last != range.first) text += "-" + std::to_string(range.last);
  }
  return text;
}

const char *name_of(TrafficClass traffic) {
  return unsigned(traffic) < kTrafficClasses ? kTrafficNames[unsigned(traffic)] : "unknown";
}

}  // namespace weft::cxi
