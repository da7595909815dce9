// SPDX-License-Identifier: BSD-2-Clause
// What thousands of names in files and variables cost each program.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "core/select/candidates.h"
#include "core/select/rules.h"
#include "core/select/test_policy.h"

namespace weft {
namespace {

// "nm0, nm1, ...", each name between `before` and `after`.
std::string many(size_t count, const std::string &before, const std::string &after) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += before + "nm" + std::to_string(i) + after;
  return text;
}

struct ManyNames {
  const char *what;
  std::string (*file)(size_t count);
  std::string (*variable)(size_t count);  // FI_PROVIDER
};

constexpr ManyNames kManyNames[] = {
    {"disable", [](size_t n) { return "providers: {disable: [" + many(n, "", ", ") + "tcp]}\n"; },
     nullptr},
    {"enable", [](size_t n) { return "providers: {enable: [" + many(n, "", ", ") + "tcp]}\n"; },
     nullptr},
    {"rank",
     [](size_t n) {
       return "providers:\n rank:\n" + many(n, " - {match: {provider: ", "}, enable: true}\n");
     },
     nullptr},
    {"use", [](size_t n) { return "use: [" + many(n, "", ", ") + "tcp]\n"; }, nullptr},
    {"stacks and use",
     [](size_t n) {
       return "stacks:\n" + many(n / 4, " ", ": [{provider: tcp}]\n") + "use: [" +
              many(n / 4, "", "x, ") + "nm0]\n";
     },
     nullptr},
    {"params", [](size_t n) { return "params:\n" + many(n, " ", ": {a: 1}\n"); }, nullptr},
    {"final",
     [](size_t n) {
       return "params:\n" + many(n, " ", ": {a: 1}\n") + "final: [" + many(n, "params.", ".b, ") +
              "params.tcp]\n";
     },
     nullptr},
    {"rank and stacks",
     [](size_t n) {
       return "providers:\n rank:\n" + many(n / 2, " - {match: {provider: ", "}, enable: true}\n") +
              "stacks:\n" + many(n / 4, " ", ": [{provider: tcp}]\n");
     },
     nullptr},
    {"stacks and FI_PROVIDER",
     [](size_t n) { return "stacks:\n" + many(n / 4, " ", ": [{provider: tcp}]\n"); },
     [](size_t n) { return many(n, "", ";udp,") + many(n, "u", ",") + "tcp"; }},
    {"FI_PROVIDER", [](size_t) { return std::string("use: []\n"); },
     [](size_t n) { return many(n, "", ",") + "tcp"; }},
    {"FI_PROVIDER=^", [](size_t) { return std::string("use: []\n"); },
     [](size_t n) { return "^" + many(n, "", ",") + "tcp"; }},
    {"FI_PROVIDER, branches", [](size_t) { return std::string("use: []\n"); },
     [](size_t n) { return "(" + many(n, "", "+") + "tcp);rxm"; }},
    {"FI_PROVIDER, stacks with branches", [](size_t) { return std::string("use: []\n"); },
     [](size_t n) { return many(n / 2, "(", "+tcp);rxm,") + "tcp"; }},
    {"local",
     [](size_t n) {
       return "local: shm\nstacks:\n" + many(n / 4, " ", ": [{layer: rxm}, {provider: tcp}]\n");
     },
     nullptr}};

// With so many times the names, what is proportional takes about that many times as much of the
// processor's time, and what is quadratic hundreds of times.
TEST_F(PolicyTest, ThousandsOfNamesCostInProportion) {
  constexpr size_t kFew = 800, kTimes = 24;
  const std::vector<UnitInfo> units = {unit("tcp"), unit("udp"), unit("verbs"),
                                       unit("rxm", WEFT_KIND_LAYER, "ofi_rxm")};
  const auto cost = [&](const ManyNames &names, size_t count) {
    // A weaker file has the same names, so that each of them meets its like.
    const std::string text = "version: 1\n" + names.file(count);
    vendor("version: 1\nproviders: {disable: [" + many(count, "", ", ") + "udp]}\n");
    site(text);
    std::map<std::string, std::string> environment;
    if (names.variable != nullptr) environment["FI_PROVIDER"] = names.variable(count);
    const std::clock_t begin = std::clock();
    const Policy policy = load(environment);
    EXPECT_TRUE(policy.files.at(1).used) << names.what;
    DecisionRecord notes;
    const Place place = Place::of_process();
    StackRules rules(policy, place);
    for (const Candidate &one : make_candidates(policy, units, notes))
      (void)rules.judge(one.units());
    EXPECT_FALSE(policy_json(policy, units).empty());
    return double(std::clock() - begin);
  };
  for (const ManyNames &names : kManyNames) {
    double few = cost(names, kFew);
    for (int again = 0; again < 3; ++again) few = std::min(few, cost(names, kFew));
    EXPECT_LT(cost(names, kFew * kTimes), few * kTimes * 4) << names.what;
  }
}

}  // namespace
}  // namespace weft
