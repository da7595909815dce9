// SPDX-License-Identifier: BSD-2-Clause
// write-config-docs [--check] SCHEMA MANUAL: writes the JSON Schema of weft.yaml and the section
// KEYS of its manual page from the table of keys (policy_keys.h). With --check it writes nothing,
// and fails where a document is not what it would write.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "config/policy_docs.h"

namespace {

std::string read_file(const char *path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The manual page with the lines between ".Sh KEYS" and the next section replaced. Empty if it has
// no such section.
std::string with_keys(const std::string &page) {
  const std::string heading = "\n.Sh KEYS\n";
  const size_t begin = page.find(heading);
  if (begin == std::string::npos) return "";
  const size_t end = page.find("\n.Sh ", begin + heading.size() - 1);
  if (end == std::string::npos) return "";
  return page.substr(0, begin + heading.size()) +
         ".\\\" Written by the target config-docs from config/policy_keys.h.\n" +
         weft::config::policy_manual("") + page.substr(end + 1);
}

int line_of_difference(const std::string &a, const std::string &b) {
  int line = 1;
  for (size_t i = 0; i < a.size() && i < b.size() && a[i] == b[i]; ++i) line += a[i] == '\n';
  return line;
}

bool settle(const char *path, const std::string &wanted, bool check) {
  const std::string found = read_file(path);
  if (found == wanted) return true;
  if (check) {
    std::fprintf(stderr,
                 "%s:%d: differs from config/policy_keys.h: build the target config-docs, which "
                 "writes it\n",
                 path, line_of_difference(found, wanted));
    return false;
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << wanted << std::flush;
  if (!file) std::fprintf(stderr, "%s cannot be written\n", path);
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char **argv) {
  const bool check = argc > 1 && std::strcmp(argv[1], "--check") == 0;
  if (argc != (check ? 4 : 3)) {
    std::fprintf(stderr, "usage: write-config-docs [--check] SCHEMA MANUAL\n");
    return 2;
  }
  const char *schema = argv[argc - 2], *manual = argv[argc - 1];
  const std::string page = with_keys(read_file(manual));
  if (page.empty()) {
    std::fprintf(stderr, "%s has no section KEYS with a section behind it\n", manual);
    return 1;
  }
  const bool schema_is_right = settle(schema, weft::config::policy_schema(), check);
  const bool page_is_right = settle(manual, page, check);
  return schema_is_right && page_is_right ? 0 : 1;
}
