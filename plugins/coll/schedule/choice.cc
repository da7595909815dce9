// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/schedule/choice.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>

namespace weft::coll {
namespace {

constexpr uint64_t kKibi = 1024;

std::optional<uint64_t> number_of(std::string_view text, bool may_have_suffix) {
  uint64_t factor = 1;
  if (may_have_suffix && (text.ends_with('K') || text.ends_with('M'))) {
    factor = text.ends_with('K') ? kKibi : kKibi * kKibi;
    text.remove_suffix(1);
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (__builtin_mul_overflow(value, factor, &value)) return std::nullopt;
  return value;
}

// What stands before `separator`; the rest, without it, stays in `text`.
std::string_view cut_off(std::string_view &text, char separator) {
  const size_t at = text.find(separator);
  const std::string_view part = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return part;
}

std::string names_of_algorithms(fi_collective_op coll) {
  std::string names;
  for (int i = 0; i <= int(Algorithm::kPairwise); ++i) {
    const auto algorithm = Algorithm(i);
    if (!Schedule::of({.coll = coll, .algorithm = algorithm})) continue;
    if (!names.empty()) names += ", ";
    names += name_of(algorithm);
  }
  return names;
}

}  // namespace

Choice::Choice()
    : rules_{
          // In a crowd members take turns. There it counts how many messages there are, and how few
          // of them go from one CPU to another: two leaders need the fewest of both, and so does a
          // broadcast by recursive doubling. Elsewhere each leader has half of all messages to send
          // or to receive, one after the other. For an allreduce leaders need memory for the
          // operands of all.
          {FI_BARRIER, Algorithm::kDissemination, kAny, 2},
          {FI_BARRIER, Algorithm::kLeaders, kAny, 8},
          {FI_BARRIER, Algorithm::kLeaders, kAny, 64, Placement::kCrowd},
          {FI_BARRIER, Algorithm::kDissemination},
          {FI_BROADCAST, Algorithm::kRecursiveDoubling, 64 * kKibi, 64, Placement::kCrowd},
          {FI_BROADCAST, Algorithm::kLeaders, kAny, 64, Placement::kCrowd},
          {FI_BROADCAST, Algorithm::kRecursiveDoubling, kKibi * kKibi, 8, Placement::kHost},
          {FI_BROADCAST, Algorithm::kBinomial, kKibi * kKibi, 8},
          {FI_BROADCAST, Algorithm::kBinomial, kAny, 2},
          {FI_BROADCAST, Algorithm::kPipeline, kAny, 8},
          {FI_BROADCAST, Algorithm::kBinomial, 128 * kKibi},
          {FI_BROADCAST, Algorithm::kPipeline, kAny, 32, Placement::kHost},
          {FI_BROADCAST, Algorithm::kScatterAllgather, kAny, 256},
          {FI_BROADCAST, Algorithm::kBinomial},
          {FI_ALLREDUCE, Algorithm::kRecursiveDoubling, kKibi * kKibi, 2},
          {FI_ALLREDUCE, Algorithm::kLeaders, kKibi * kKibi, 16, Placement::kCrowd},
          {FI_ALLREDUCE, Algorithm::kLeaders, 64 * kKibi, 64, Placement::kCrowd},
          {FI_ALLREDUCE, Algorithm::kRabenseifner, kAny, 64, Placement::kCrowd},
          {FI_ALLREDUCE, Algorithm::kRecursiveDoubling, 32 * kKibi, 32},
          {FI_ALLREDUCE, Algorithm::kRecursiveDoubling, 4 * kKibi},
          {FI_ALLREDUCE, Algorithm::kRabenseifner, kKibi * kKibi},
          {FI_ALLREDUCE, Algorithm::kRing, kAny, 64},
          {FI_ALLREDUCE, Algorithm::kRabenseifner},
          {FI_ALLGATHER, Algorithm::kBruck, 512},
          {FI_ALLGATHER, Algorithm::kRecursiveDoubling, 16 * kKibi},
          {FI_ALLGATHER, Algorithm::kRing},
          {FI_ALLTOALL, Algorithm::kPairwise, kAny, 2},
          {FI_ALLTOALL, Algorithm::kBruck, 8 * kKibi, 8},
          {FI_ALLTOALL, Algorithm::kBruck, 8 * kKibi, 16, Placement::kCrowd},
          {FI_ALLTOALL, Algorithm::kBruck, 4 * kKibi, 16},
          {FI_ALLTOALL, Algorithm::kBruck, 512},
          {FI_ALLTOALL, Algorithm::kPairwise},
          {FI_REDUCE_SCATTER, Algorithm::kRecursiveHalving, 16 * kKibi},
          {FI_REDUCE_SCATTER, Algorithm::kPairwise},
          {FI_REDUCE, Algorithm::kBinomial, 4 * kKibi},
          {FI_REDUCE, Algorithm::kRabenseifner},
          {FI_SCATTER, Algorithm::kBinomial},
          {FI_GATHER, Algorithm::kBinomial},
      },
      hash_(hash_of_lines()) {}

Result<Choice::Rule> Choice::parse(const std::string &item) {
  constexpr const char *kForm =
      "COLLECTIVE[:BYTES[:MEMBERS[:WHERE]]]=ALGORITHM, as in allreduce:4K=ring";
  std::string_view right = item;
  std::string_view left = cut_off(right, '=');
  const std::string_view coll_name = cut_off(left, ':');
  const auto coll = collective_named(coll_name);
  if (!coll)
    return fail(FI_EINVAL, "\"%s\": there is no collective \"%.*s\": write %s", item.c_str(),
                int(coll_name.size()), coll_name.data(), kForm);
  const auto algorithm = algorithm_named(right);
  if (!algorithm || !Schedule::of({.coll = *coll, .algorithm = *algorithm}))
    return fail(FI_EINVAL, "\"%s\": %.*s has no algorithm \"%.*s\": it has %s", item.c_str(),
                int(coll_name.size()), coll_name.data(), int(right.size()), right.data(),
                names_of_algorithms(*coll).c_str());
  Rule rule{.coll = *coll, .algorithm = *algorithm};
  const std::string_view bytes = cut_off(left, ':');
  const auto bytes_limit = bytes.empty() ? kAny : number_of(bytes, true);
  const std::string_view members = cut_off(left, ':');
  const auto members_limit = members.empty() ? kAny : number_of(members, false);
  if (!bytes_limit || !members_limit)
    return fail(FI_EINVAL, "\"%s\": BYTES and MEMBERS are numbers: write %s", item.c_str(), kForm);
  if (left == "crowd")
    rule.placement = Placement::kCrowd;
  else if (left == "host")
    rule.placement = Placement::kHost;
  else if (!left.empty())
    return fail(FI_EINVAL,
                "\"%s\": behind MEMBERS there is \"host\", \"crowd\" or nothing: write %s",
                item.c_str(), kForm);
  rule.bytes = *bytes_limit;
  rule.members = *members_limit;
  return rule;
}

Result<Choice> Choice::with(std::span<const std::string> items) {
  Choice choice;
  std::vector<Rule> wanted;
  for (const std::string &item : items) {
    WEFT_TRY(const Rule rule, parse(item));
    wanted.push_back(rule);
  }
  choice.rules_.insert(choice.rules_.begin(), wanted.begin(), wanted.end());
  choice.hash_ = choice.hash_of_lines();
  return choice;
}

void Choice::choose(Task &task) const {
  const auto found = std::ranges::find_if(rules_, [&](const Rule &rule) {
    return rule.coll == task.coll && task.bytes() <= rule.bytes && task.size <= rule.members &&
           task.placement >= rule.placement;
  });
  if (found != rules_.end()) task.algorithm = found->algorithm;
}

std::vector<std::string> Choice::lines() const {
  std::vector<std::string> lines;
  for (const Rule &rule : rules_) {
    std::string line(name_of(rule.coll));
    const auto add = [&](uint64_t limit, bool anyway) {
      if (limit != kAny || anyway) line += ":" + (limit != kAny ? std::to_string(limit) : "");
    };
    const bool has_placement = rule.placement != Placement::kHosts;
    add(rule.bytes, rule.members != kAny || has_placement);
    add(rule.members, has_placement);
    if (has_placement) line += rule.placement == Placement::kHost ? ":host" : ":crowd";
    lines.push_back(line + "=" + std::string(name_of(rule.algorithm)));
  }
  return lines;
}

uint64_t Choice::hash_of_lines() const {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const std::string &line : lines())
    for (const char c : line + "\n") hash = (hash ^ uint8_t(c)) * 0x100000001b3;
  return hash;
}

}  // namespace weft::coll
