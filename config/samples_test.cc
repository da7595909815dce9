// SPDX-License-Identifier: BSD-2-Clause
// The samples and the examples of the man page are accepted, and do what their comments say.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "config/test_reader.h"

namespace weft::config {
namespace {

std::string text_of(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Samples, AllAreAccepted) {
  std::map<std::string, size_t> stacks;
  for (const auto &entry : std::filesystem::directory_iterator(WEFT_CONFIG_SOURCES "/samples")) {
    const auto policy = read_policy(text_of(entry.path()));
    EXPECT_EQ(policy.code, 0) << entry.path() << ::testing::PrintToString(policy.placed());
    EXPECT_THAT(policy.placed(), ::testing::IsEmpty()) << entry.path();
    if (policy.view == nullptr) continue;
    stacks[entry.path().filename()] = policy->stacks.size();
    // Each sample defines every stack that it uses.
    if (!policy->use) continue;
    for (const auto &name : policy->use->value)
      EXPECT_TRUE(std::any_of(policy->stacks.begin(), policy->stacks.end(),
                              [&](const StackSpec &stack) { return stack.name == name.value; }))
          << entry.path() << ": " << name.value;
  }
  EXPECT_EQ(stacks, (std::map<std::string, size_t>{
                        {"cluster.yaml", 2}, {"debug.yaml", 1}, {"laptop.yaml", 0}}));
}

TEST(Samples, Cluster) {
  const auto policy = read_policy(text_of(WEFT_CONFIG_SOURCES "/samples/cluster.yaml"));
  ASSERT_EQ(policy.code, 0);
  ASSERT_EQ(policy->ranks.size(), 4u);
  EXPECT_EQ(policy->ranks[3].hostname, "login*");
  EXPECT_FALSE(policy->unprobed_allow.value().value);
  EXPECT_EQ(policy->probe_budget_ms.value().value, 3000);
  ASSERT_EQ(policy->params.size(), 2u);
  EXPECT_EQ(policy->params[0].value.value, "ib*,eno*,!docker*");
  EXPECT_EQ(policy->final_keys[1].value, "plugins");
}

TEST(Samples, ExamplesOfTheManualPage) {
  const std::string page = text_of(WEFT_CONFIG_SOURCES "/../docs/man/weft.yaml.5");
  size_t examples = 0;
  const std::string begin = ".Bd -literal -offset indent\n";
  for (size_t at = page.find(begin); at != std::string::npos; at = page.find(begin, at)) {
    at += begin.size();
    std::string example = page.substr(at, page.find("\n.Ed", at) + 1 - at);
    for (size_t quote; (quote = example.find("\\(dq")) != std::string::npos;)
      example.replace(quote, 4, "\"");
    if (example.rfind("version: 1\n", 0) != 0) continue;
    ++examples;
    const auto policy = read_policy(example);
    EXPECT_EQ(policy.code, 0) << example << ::testing::PrintToString(policy.placed());
  }
  EXPECT_EQ(examples, 2u);
}

}  // namespace
}  // namespace weft::config
