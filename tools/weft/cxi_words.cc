// SPDX-License-Identifier: BSD-2-Clause
// The parts of a service of cxi as words, and words as parts.
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <grp.h>
#include <pwd.h>

#include "tools/weft/cxi.h"
#include "tools/weft/text.h"

namespace weft::cli {
namespace {

struct NamedClass {
  const char *name;
  uint32_t bit;
};
constexpr NamedClass kClasses[] = {{"dedicated_access", WEFT_CXI_DEDICATED_ACCESS},
                                   {"low_latency", WEFT_CXI_LOW_LATENCY},
                                   {"bulk_data", WEFT_CXI_BULK_DATA},
                                   {"best_effort", WEFT_CXI_BEST_EFFORT}};

bool read_vni(const std::string &word, uint16_t &vni) {
  uint32_t value = 0;
  if (!absl::SimpleAtoi(word, &value) || value < 1 || value > UINT16_MAX) return false;
  vni = uint16_t(value);
  return true;
}

}  // namespace

std::string members_text(const weft_cxi_service &service) {
  std::vector<std::string> words;
  for (size_t i = 0; i < service.member_count; ++i)
    words.push_back(
        absl::StrCat(service.members[i].is_group ? "group " : "user ", service.members[i].id));
  return words.empty() ? "everybody" : absl::StrJoin(words, ", ");
}

std::string vnis_text(const weft_cxi_service &service) {
  std::vector<std::string> words;
  for (size_t i = 0; i < service.vni_count; ++i) {
    const auto [first, last] = service.vnis[i];
    words.push_back(first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last));
  }
  return words.empty() ? "all" : absl::StrJoin(words, ",");
}

std::string classes_text(const weft_cxi_service &service) {
  std::vector<std::string> words;
  for (const NamedClass &one : kClasses)
    if (service.classes & one.bit) words.push_back(one.name);
  return words.empty() ? "all" : absl::StrJoin(words, ",");
}

Result<void> add_vnis(weft_cxi_service &service, const std::string &words) {
  const std::vector<std::string> all = absl::StrSplit(words, ',');
  for (const std::string &word : all) {
    const std::vector<std::string> ends = absl::StrSplit(word, '-');
    weft_cxi_vnis range{};
    if (ends.size() > 2 || !read_vni(ends.front(), range.first) ||
        !read_vni(ends.back(), range.last) || range.last < range.first)
      return fail(FI_EINVAL, "'%s' is no VNI: they are 1 to 65535, or a range: 100-200",
                  word.c_str());
    if (service.vni_count == WEFT_CXI_MAX_VNIS)
      return fail(FI_EINVAL, "more than %d VNIs: give ranges", WEFT_CXI_MAX_VNIS);
    service.vnis[service.vni_count++] = range;
  }
  return {};
}

Result<void> add_class(weft_cxi_service &service, const std::string &word) {
  std::vector<std::string> known;
  for (const NamedClass &one : kClasses) {
    if (word == one.name) {
      service.classes |= one.bit;
      return {};
    }
    known.push_back(one.name);
  }
  const std::string close = nearest_word(word, known);
  return fail(FI_EINVAL, "unknown traffic class '%s'%s", word.c_str(),
              (close.empty() ? absl::StrCat("; known: ", absl::StrJoin(known, " "))
                             : absl::StrCat(": did you mean '", close, "'?"))
                  .c_str());
}

Result<void> add_member(weft_cxi_service &service, const std::string &name, bool is_group) {
  if (service.member_count == WEFT_CXI_MAX_MEMBERS)
    return fail(FI_EINVAL, "more than %d members: a group has many users", WEFT_CXI_MAX_MEMBERS);
  uint32_t id = 0;
  if (!absl::SimpleAtoi(name, &id)) {
    const passwd *const user = is_group ? nullptr : getpwnam(name.c_str());
    const group *const found = is_group ? getgrnam(name.c_str()) : nullptr;
    if (user == nullptr && found == nullptr)
      return fail(FI_EINVAL, "there is no %s '%s' on this host: give its number",
                  is_group ? "group" : "user", name.c_str());
    id = user != nullptr ? user->pw_uid : found->gr_gid;
  }
  service.members[service.member_count++] = {.id = id, .is_group = is_group};
  return {};
}

}  // namespace weft::cli
