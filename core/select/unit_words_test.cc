// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/unit_words.h"

#include <gtest/gtest.h>

#include "core/base/render.h"

namespace weft {
namespace {

TEST(UnitWords, AreAsFarAsTheFirstAttributeThatTheyName) {
  for (const auto &[words, distance] : std::initializer_list<std::pair<const char *, uint32_t>>{
           {"tcp: hints.tx_attr.size 4096 is above 1024", 1},
           {"rxm: tcp: hints.ep_attr.type: FI_EP_RDM wanted; hints.tx_attr.size 9 is above 8", 16},
           {"cxi: hints.fabric_attr.prov_name does not ask for a NIC in software", 64},
           {"hints.fabric_attr.api_version 9", 32},
           {"hints.nic.device_attr.name: \"a\" wanted", 8},
           {"verbs: no memory of devices (hints.caps)", 8},
           {"say so in hints.caps.", 8},
           {"hints.addr_format 5: tcp has FI_SOCKADDR", 8},
           {"hints.domain_attr.frobs 9 is above 8", 1},
           {"hints.", 1}})
    EXPECT_EQ(distance_of(said_by_unit(Stage::kGetinfo, words)), distance) << words;
  for (const char *none : {"", "tcp: no such host", "hints", "caps"}) {
    EXPECT_EQ(distance_in_words(none), std::nullopt) << none;
    for (const Stage stage : {Stage::kGetinfo, Stage::kHints})
      EXPECT_EQ(distance_of(said_by_unit(stage, none)), distance_of(stage)) << none;
  }
}

// A layer quotes what the core refused in its name beneath it.
TEST(UnitWords, AreAsFarAsTheRefusalThatTheyQuote) {
  for (const AttributeGroup &group : kAttributes) {
    std::string_view rest = group.names;
    while (!rest.empty()) {
      const std::string name(rest.substr(0, rest.find(' ')));
      rest.remove_prefix(std::min(name.size() + 1, rest.size()));
      for (const char *follows : {" 4096 is above 1024", ": a wanted, b offered", " lacks b"})
        EXPECT_EQ(distance_in_words("rxm: tcp: hints." + name + follows), group.distance) << name;
    }
  }
}

TEST(UnitWords, MayHaveThePlaceOfARule) {
  const Rule place = Rule::file("a.yaml", 2, 5);
  EXPECT_TRUE(is_in_words(place, "tcp: no such interface (a.yaml:2:5)"));
  EXPECT_FALSE(is_in_words(place, "tcp: no such interface"));
}

}  // namespace
}  // namespace weft
