// SPDX-License-Identifier: BSD-2-Clause
// YAML itself, through the policy reader: what is accepted, and the errors for the rest.
#include <time.h>

#include <functional>
#include <thread>

#include "config/test_reader.h"

namespace weft::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Yaml, PlacesCountCharacters) {
  EXPECT_THAT(body_errors("params: {tcp: {a: \"äöü€\", x: {}, B: 1}}\n"),
              ElementsAre("2:30 'x' must be text, a number or a list, not a map: write it as one "
                          "word or in quotes",
                          "2:34 the parameter 'B' is no name: names are made of a-z 0-9 _"));
  // After a byte order mark, with CR LF.
  EXPECT_THAT(policy_errors("\xEF\xBB\xBFversion: 1\r\nusr: []\r\n"),
              ElementsAre("2:1 unknown key 'usr': did you mean 'use'?"));
  EXPECT_EQ(read_policy("\xEF\xBB\xBFversion: 1\r\nuse: [a]\r\n").code, 0);
  EXPECT_EQ(read_policy("---\nversion: 1\n...\n").code, 0);
  EXPECT_EQ(read_policy("%YAML 1.2\n---\nversion: 1\n").code, 0);
}

TEST(Yaml, TagsAnchorsAliases) {
  EXPECT_THAT(
      body_errors("params: {tcp: {a: !docker*, b: !!str 5, c: [x, !y z]}}\n"),
      ElementsAre("2:19 a tag, '!docker*': tags are not accepted; put text that begins with "
                  "'!' in quotes",
                  "2:32 a tag, '!!str': tags are not accepted; put text that begins with "
                  "'!' in quotes",
                  "2:48 a tag, '!y': tags are not accepted; put text that begins with '!' "
                  "in quotes"));
  EXPECT_THAT(
      body_errors("params: !m {tcp: {}}\nuse: !s [a]\n"),
      ElementsAre("2:9 a tag, '!m': tags are not accepted; put text that begins with '!' in "
                  "quotes",
                  "3:6 a tag, '!s': tags are not accepted; put text that begins with '!' in "
                  "quotes"));
  const std::string anchors = ": anchors are not accepted; put text that begins with '&' in quotes";
  const std::string aliases = ": aliases are not accepted; put text that begins with '*' in quotes";
  EXPECT_THAT(body_errors("use: &u [&a x, *a]\nparams: *u\n"),
              ElementsAre("2:6 an anchor, '&u'" + anchors, "2:10 an anchor, '&a'" + anchors,
                          "2:16 an alias, '*a'" + aliases, "3:9 an alias, '*u'" + aliases));
  EXPECT_THAT(body_errors("providers: {rank: [{match: {netdev: *ib}, rank: 1}]}\n"),
              ElementsAre("2:37 an alias, '*ib'" + aliases));
  EXPECT_THAT(body_errors("use: [*]\n"), ElementsAre(HasSubstr(aliases)));
  EXPECT_THAT(body_errors("use: [& a]\n"), ElementsAre(HasSubstr(anchors)));
  // Each level ten times the one below: 10^9 entries if aliases were followed.
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c <= 'j'; ++c) {
    bomb += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 10; ++i) bomb += std::string(i == 0 ? "*" : ",*") + char(c - 1);
    bomb += "]\n";
  }
  EXPECT_EQ(read_policy(bomb).code, -FI_EINVAL);
}

TEST(Yaml, Keys) {
  EXPECT_THAT(body_errors("? [a]\n: b\n"),
              ElementsAre("2:3 a key that is no word: write 'key: value'"));
  EXPECT_THAT(body_errors("params: {~: {}, {a: b}: c, : d}\n"),
              ElementsAre("2:10 no key: write 'key: value'",
                          "2:17 a key that is no word: write 'key: value'",
                          "2:28 no key: write 'key: value'"));
  EXPECT_THAT(body_errors("use: [a: b]\n"),
              ElementsAre("2:7 an entry of 'use' must be text, not a map: write a name"));
}

TEST(Yaml, SyntaxErrors) {
  EXPECT_THAT(body_errors("use: [a\nparams: {}\n"),
              ElementsAre("3:7 the list that began at line 2, column 6 does not go on like this: "
                          "add ',' between entries and ']' at the end"));
  EXPECT_THAT(body_errors("params: {tcp: {a: b}\n"),
              ElementsAre("3:1 the map that began at line 2, column 9 does not go on like this: "
                          "write {key: value, key: value}"));
  EXPECT_THAT(body_errors("providers:\n\tdisable: [udp]\n"),
              ElementsAre("3:9 a tab in the indentation: indent with blanks"));
  EXPECT_THAT(body_errors("providers:\n  disable: []\n enable: []\n"),
              ElementsAre("4:2 this does not continue the keys above it: write 'key: value' in the "
                          "same column as they"));
  EXPECT_THAT(body_errors("params: tcp: a\n"),
              ElementsAre("2:12 a ':' that makes no key here: write one 'key: value' per line, and "
                          "put text that contains ': ' in quotes"));
  for (const char *text :
       {"params: {tcp: {a: \"b}}\n", "params: {tcp: {a: 'b}}\n", "params: {x: 1, a: \"b",
        "params: {x: 1, a: 'b''", "params: {x: 1, a: \"b\\\"\n\n", "params: [2, 3, a: \""})
    EXPECT_THAT(body_errors(text),
                ElementsAre("2:19 a quote that is never closed: close it on the same line"))
        << text;
  EXPECT_EQ(read_policy("version: 1\nparams: {a: {b: 'it''s', c: \"say \\\"no\\\"\", d: ''}}").code,
            0);
  EXPECT_THAT(
      body_errors("params: {tcp: {a: \"\\d\"}}\n"),
      ElementsAre("2:22 an unknown escape in double quotes: write '\\\\' for a backslash, or "
                  "use single quotes"));
  EXPECT_THAT(body_errors("use: @a\n"),
              ElementsAre("2:6 a value cannot begin with this character: put it in quotes"));
  EXPECT_THAT(body_errors("use: ]\n"),
              ElementsAre("2:6 a closing bracket that none opened: remove it"));
  EXPECT_THAT(body_errors("use:\n  - a\n  b\n"), ::testing::SizeIs(1));
}

TEST(Yaml, OneDocument) {
  EXPECT_THAT(policy_errors("version: 1\n---\nversion: 1\n"),
              ElementsAre("2:1 a second document begins: one file holds one: remove '---'"));
  // Here yaml-cpp 0.7 returns empty documents without end.
  EXPECT_THAT(policy_errors(","), ElementsAre("1:1 text that belongs to nothing: write the file as "
                                              "'key: value' lines"));
}

TEST(Yaml, OnlyText) {
  const std::string remedy =
      ": save the file as plain text in UTF-8, with lines that end in LF or CR LF";
  const auto refused = [&](const std::string &bytes, const std::string &cause) {
    EXPECT_THAT(body_errors("# ä " + bytes + "\n"), ElementsAre("2:5 byte " + cause + remedy))
        << cause;
  };
  refused(std::string(1, '\0'), "0x00 is not text");
  refused("\x1b[2J", "0x1b is not text");
  refused("\x7f", "0x7f is not text");
  refused("\rx", "0x0d is not text");
  refused("\xff", "0xff is not UTF-8");
  refused("\x80", "0x80 is not UTF-8");
  refused("\xc0\xaf", "0xc0 is not UTF-8");          // overlong
  refused("\xe0\x80\xaf", "0xe0 is not UTF-8");      // overlong
  refused("\xed\xa0\x80", "0xed is not UTF-8");      // surrogate
  refused("\xf0\x80\x80\x80", "0xf0 is not UTF-8");  // overlong
  refused("\xf4\x90\x80\x80", "0xf4 is not UTF-8");  // beyond U+10FFFF
  refused("\xe2\x82", "0xe2 is not UTF-8");          // cut short
  EXPECT_EQ(read_policy("version: 1 # \xc2\xa2 \xe2\x82\xac \xf0\x90\x8d\x88 \t\n").code, 0);
  EXPECT_THAT(policy_errors(std::string_view("\xff\xfev\0e\0", 6)),
              ElementsAre("1:1 byte 0xff is not UTF-8" + remedy));
  EXPECT_THAT(policy_errors("version: 1\xe2"), ElementsAre("1:11 byte 0xe2 is not UTF-8" + remedy));
}

TEST(Yaml, Size) {
  const std::string head = "version: 1\n#";
  const size_t most = size_t{1} << 20;
  EXPECT_EQ(read_policy(head + std::string(most - head.size(), '#')).code, 0);
  EXPECT_THAT(policy_errors(head + std::string(most - head.size() + 1, '#')),
              ElementsAre("1:1 the file has 1048577 bytes: the most is 1048576"));
}

TEST(Yaml, Depth) {
  const auto nested = [](size_t levels) {
    return "version: 1\nx:\n  " + std::string(levels, '[') + std::string(levels, ']') + "\n";
  };
  EXPECT_THAT(policy_errors(nested(31)), ElementsAre(HasSubstr("2:1 unknown key 'x'")));
  EXPECT_THAT(
      policy_errors(nested(32)),
      ElementsAre("3:34 more than 32 levels of nesting: no key needs so many; close what was "
                  "opened"));
}

// Texts that would make a careless reader recurse deeply, loop, or take quadratic time. Four times
// the text may take little more than four times the time. The bound is generous because it must
// hold on a loaded machine and under a sanitizer.
TEST(Yaml, HostileTextsTakeLinearTime) {
  const auto repeat = [](std::string_view head, std::string_view unit, std::string_view tail) {
    return [=](size_t size) {
      std::string out(head);
      while (out.size() + unit.size() + tail.size() <= size) out += unit;
      return out += tail;
    };
  };
  struct Case {
    const char *name;
    std::function<std::string(size_t)> text;
  };
  const std::vector<Case> cases = {
      {"brackets", repeat("", "[", "")},
      {"braces", repeat("", "{", "")},
      {"dashes", repeat("", "- ", "")},
      {"questions", repeat("", "? ", "")},
      {"colons", repeat("", ": ", "")},
      {"commas", repeat("", ",", "")},
      {"compact maps", repeat("", "[? ", "")},
      {"entries", repeat("use: [", "a,", "]")},
      {"entries on lines", repeat("use: [\n", "a,\n", "]")},
      {"empty entries", repeat("use:\n", "-\n", "")},
      {"empty entries and blanks", repeat("use:\n", "-                \n", "")},
      {"duplicate keys", repeat("", "a: b\n", "")},
      {"duplicate flow keys", repeat("{", "a: b,", "}")},
      {"both lists", repeat("providers: {disable: [b], enable: [", "a,", "]}")},
      {"anchors", repeat("use: [", "&a b,", "]")},
      {"aliases", repeat("use: [&a b,", "*a,", "]")},
      {"tags", repeat("use: [", "!a b,", "]")},
      {"hooks", repeat("stacks: {a: [", "{hook: x},", "{provider: tcp}]}")},
      {"stacks", repeat("stacks:\n", "  a: []\n", "")},
      {"rules", repeat("providers: {rank: [", "{},", "]}")},
      {"values", repeat("params: {tcp: {a: [", "x,", "]}}")},
      {"sets", repeat("providers: {rank: [{match: {netdev: \"", "[a]", "\"}, rank: 1}]}")},
      {"characters", repeat("use: [", "é,", "]")},
      {"finals", repeat("final: [", "params.a.b.c,", "]")},
      {"blank lines", repeat("a", "\n", "b")},
      {"block text", repeat("a: |\n", "  x\n", "")},
      {"folded text", repeat("a: >\n  x", "\n", "  y")},
      {"quotes", repeat("use: [", "\"\",", "]")},
      {"documents", repeat("", "---\n", "")},
  };
  // Sanitizers take twenty times the time, and release reads the large texts.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr size_t kSize = size_t{1} << 16;
#else
  constexpr size_t kSize = size_t{1} << 18;
#endif
  for (const Case &c : cases) {
    // CPU time of this thread, so that other load on the machine does not count.
    const auto seconds = [&](size_t size) {
      const std::string text = c.text(size);
      const auto now = [] {
        timespec time{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
      };
      const double start = now();
      EXPECT_EQ(read_policy(text).code, -FI_EINVAL) << c.name;
      return now() - start;
    };
    const double quarter = seconds(kSize / 4);
    const double whole = seconds(kSize);
    // Linear gives 4, quadratic 16; below a quarter of a second the difference is noise.
    EXPECT_LT(whole, 10 * quarter + 0.25) << c.name << ": " << quarter << " s for a quarter, "
                                          << whole << " s for " << kSize << " bytes";
  }
}

TEST(Yaml, LongNamesAreNotCopiedToEachOfTheirKeys) {
  std::string text = "version: 1\nparams:\n  ? " + std::string(500'000, 't') + "\n  :\n";
  for (int i = 0; i < 30'000; ++i) text += "    k" + std::to_string(i) + ": v\n";
  EXPECT_THAT(policy_errors(text), ElementsAre("3:5 the unit '" + std::string(40, 't') +
                                               "...' has 500000 characters: the most is 63"));
}

TEST(Boundary, Table) {
  EXPECT_EQ(reader().version, uint32_t{WEFT_CONFIG_VERSION});
  EXPECT_EQ(reader().struct_size, sizeof(weft_config_reader));
  EXPECT_EQ(reader().policy_size, sizeof(weft_policy));
}

TEST(Boundary, MissingArguments) {
  std::vector<Diagnostic> told;
  EXPECT_EQ(reader().read_policy(kPath, "version: 1\n", 11, collect, &told, nullptr), -FI_EINVAL);
  weft_policy *policy = reinterpret_cast<weft_policy *>(&told);
  EXPECT_EQ(reader().read_policy(kPath, nullptr, 5, collect, &told, &policy), -FI_EINVAL);
  weft_manifest *manifest = nullptr;
  EXPECT_EQ(reader().read_manifest(kPath, nullptr, 5, collect, &told, &manifest), -FI_EINVAL);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[0].text, "the reader was called without text or without a place for the result");

  // The reader works without a callback, a path or any text.
  EXPECT_EQ(reader().read_policy(nullptr, nullptr, 0, nullptr, nullptr, &policy), -FI_EINVAL);
  reader().free_policy(policy);
  EXPECT_EQ(reader().read_policy(nullptr, "{version: 1, use: [a]}", 22, nullptr, nullptr, &policy),
            0);
  ASSERT_NE(policy, nullptr);
  EXPECT_EQ(policy->use->value[0].origin.where, Rule::file("", 1, 20));
  reader().free_policy(policy);
  reader().free_policy(nullptr);
  reader().free_manifest(nullptr);
}

TEST(Boundary, TextAndPathMayGoAfterReading) {
  auto path = std::make_unique<std::string>("/tmp/gone.yaml");
  auto text = std::make_unique<std::string>("version: 1\nparams: {tcp: {interfaces: [lo]}}\n");
  weft_policy *policy = nullptr;
  ASSERT_EQ(
      reader().read_policy(path->c_str(), text->data(), text->size(), nullptr, nullptr, &policy),
      0);
  path.reset();
  text.reset();
  EXPECT_EQ(policy->params[0].value.origin.where, Rule::file("/tmp/gone.yaml", 2, 16));
  EXPECT_EQ(policy->params[0].unit, "tcp");
  EXPECT_EQ(policy->params[0].value.value, "lo");
  reader().free_policy(policy);
}

TEST(Boundary, ThreadsReadAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([i] {
      const std::string name = "unit" + std::to_string(i);
      for (int round = 0; round < 50; ++round) {
        const auto policy = read_policy("version: 1\nproviders: {disable: [" + name + "]}\n");
        ASSERT_EQ(policy.code, 0);
        EXPECT_EQ(policy->disable[0].value, name);
        EXPECT_EQ(read_policy("version: [\n").code, -FI_EINVAL);
      }
    });
  for (std::thread &thread : threads) thread.join();
}

}  // namespace
}  // namespace weft::config
