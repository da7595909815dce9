// SPDX-License-Identifier: BSD-2-Clause
// The samples and the examples of the man page are accepted, and do what their comments say.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "config/test_reader.h"
#include "tests/paths.h"

namespace weft::config {
namespace {

std::string text_of(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Samples, AllAreAccepted) {
  std::map<std::string, size_t> stacks;
  for (const auto &entry : std::filesystem::directory_iterator(test::source("config/samples"))) {
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
  EXPECT_EQ(stacks, (std::map<std::string, size_t>{{"containers.yaml", 0},
                                                   {"debug.yaml", 1},
                                                   {"ethernet.yaml", 0},
                                                   {"infiniband.yaml", 2},
                                                   {"laptop.yaml", 0},
                                                   {"slingshot.yaml", 0}}));
}

TEST(Samples, InfiniBand) {
  const auto policy = read_policy(text_of(test::source("config/samples/infiniband.yaml")));
  ASSERT_EQ(policy.code, 0);
  ASSERT_EQ(policy->ranks.size(), 4u);
  EXPECT_EQ(policy->ranks[3].hostname, "login*");
  EXPECT_FALSE(policy->unprobed_allow.value().value);
  EXPECT_EQ(policy->probe_budget_ms.value().value, 3000);
  ASSERT_EQ(policy->params.size(), 2u);
  EXPECT_EQ(policy->params[0].value.value, "ib0,eno*,eth*,!docker*");
  EXPECT_EQ(policy->final_keys[1].value, "plugins");
}

TEST(Samples, ExamplesOfTheManualPage) {
  const std::string page = text_of(test::source("docs/man/weft.yaml.5"));
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

// The keys that the reader knows where `text` has an unknown word: it lists them in its error.
std::vector<std::string> known_keys(const std::string &text) {
  const std::string told = ::testing::PrintToString(read_policy("version: 1\n" + text).placed());
  const size_t list = told.find("known here: ");
  EXPECT_NE(list, std::string::npos) << told;
  if (list == std::string::npos) return {};
  std::vector<std::string> keys;
  size_t begin = told.find('\'', list);
  while (begin != std::string::npos) {
    const size_t end = told.find('\'', begin + 1);
    if (end == std::string::npos) break;
    keys.push_back(told.substr(begin + 1, end - begin - 1));
    begin = told.find('\'', end + 1);
  }
  return keys;
}

// A text with an unknown key at each level, and where the JSON Schema has that level.
struct Level {
  const char *text, *properties;
};
constexpr Level kLevels[] = {
    {"zzzzzzzz: 1\n", "/properties"},
    {"providers: {zzzzzzzz: 1}\n", "/properties/providers/properties"},
    {"plugins: {zzzzzzzz: 1}\n", "/properties/plugins/properties"},
    {"providers: {rank: [{match: {}, rank: 1, zzzzzzzz: 1}]}\n", "/$defs/rule/properties"},
    {"providers: {rank: [{match: {zzzzzzzz: 1}, rank: 1}]}\n",
     "/$defs/rule/properties/match/properties"},
    {"stacks: {a: [{provider: tcp, zzzzzzzz: 1}]}\n", "/$defs/element/properties"},
};

TEST(Samples, TheManualPageHasEveryKey) {
  const std::string page = text_of(test::source("docs/man/weft.yaml.5"));
  for (const Level &level : kLevels) {
    for (const std::string &key : known_keys(level.text))
      EXPECT_TRUE(page.find("\n.It Ic " + key + " ") != std::string::npos ||
                  page.find("\n.It Ic " + key + "\n") != std::string::npos)
          << key;
  }
  for (const std::string &key : known_keys("final: [zzzzzzzz]\n"))
    EXPECT_NE(page.find("\n.Li " + key + " "), std::string::npos) << "final: [" << key << "]";
}

TEST(Samples, TheSchemaHasTheKeysOfTheReader) {
  const auto schema = nlohmann::json::parse(text_of(test::source("docs/weft.yaml.schema.json")));
  for (const Level &level : kLevels) {
    std::vector<std::string> keys;
    for (const auto &[key, value] :
         schema.at(nlohmann::json::json_pointer(level.properties)).items())
      keys.push_back(key);
    EXPECT_THAT(keys, ::testing::UnorderedElementsAreArray(known_keys(level.text)))
        << level.properties;
  }
}

}  // namespace
}  // namespace weft::config
