// SPDX-License-Identifier: BSD-2-Clause
// Any answer of a process to the question for its counters. No sample of what is exported comes
// twice, and no text has a control character.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "tools/stats/counters.h"
#include "tools/stats/output.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace weft::stats;
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  const auto fabrics = nlohmann::ordered_json::parse(text, nullptr, false);
  const std::vector<Counted> counted = counted_of(7, "app", fabrics);
  for (const Counted &one : counted) {
    for (const std::string *part :
         {&one.name, &one.what, &one.element, &one.hook, &one.stack, &one.fabric_name})
      if (std::any_of(part->begin(), part->end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
        std::abort();
  }
  for (const Counted &one : since(counted, counted)) {
    if (one.value > UINT64_MAX / 2 && counted.size() == 1) std::abort();
  }
  (void)to_json(counted).dump();
  std::istringstream lines(prometheus({}, counted));
  std::set<std::string> samples;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) continue;
    if (line.starts_with("# TYPE ")) {
      if (!line.ends_with(" counter")) std::abort();
      continue;
    }
    const size_t end = line.rfind("} ");
    if (end == std::string::npos || !samples.insert(line.substr(0, end)).second) std::abort();
  }
  return 0;
}
