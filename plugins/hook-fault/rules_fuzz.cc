// SPDX-License-Identifier: BSD-2-Clause
// Any text gives an error with a column, or rules whose texts parse to the same rules again.
#include <cstdlib>
#include <string>

#include "plugins/hook-fault/rules.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace weft;
  const std::string text(reinterpret_cast<const char *>(data), size);
  const Result<fault::Rules> rules = fault::parse_rules(text);
  if (!rules) {
    if (rules.error().text.find("column ") == std::string::npos) std::abort();
    return 0;
  }
  std::string again = "seed=" + std::to_string(rules->seed);
  for (const fault::Rule &rule : rules->rules) {
    if (rule.operations == 0 || rule.least > rule.most) std::abort();
    again += ";" + rule.text;
  }
  const Result<fault::Rules> second = fault::parse_rules(again);
  if (!second || second->seed != rules->seed || second->rules.size() != rules->rules.size())
    std::abort();
  for (size_t i = 0; i < second->rules.size(); ++i) {
    const fault::Rule &a = rules->rules[i], &b = second->rules[i];
    if (a.operations != b.operations || a.least != b.least || a.most != b.most || a.nth != b.nth ||
        a.every != b.every || a.times != b.times || a.peer != b.peer || a.action != b.action ||
        a.number != b.number || a.probability != b.probability)
      std::abort();
  }
  return 0;
}
