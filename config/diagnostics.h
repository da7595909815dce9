// SPDX-License-Identifier: BSD-2-Clause
// Diagnostics: collects what is wrong in one file while it is read, and delivers it in the order of
// the file.
//
// Example (statements):
//     Diagnostics diag;
//     const std::string_view keys[] = {"version", "providers"};
//     diag.error(Where{3, 1}, "unknown key " + quoted("providrs"), suggestion("providrs", keys));
//     // "unknown key 'providrs' (line 3, column 1): did you mean 'providers'?"
//     std::vector<std::string> lines;
//     diag.deliver(
//         "/etc/weft/10-site.yaml",
//         [](void *arg, uint32_t, const weft_where *, const char *text) {
//           static_cast<std::vector<std::string> *>(arg)->push_back(text);
//         },
//         &lines);
//
// Not a log, and not how a function reports its own failure: a reader adds the error here and
// returns std::nullopt.
#ifndef WEFT_CONFIG_DIAGNOSTICS_H
#define WEFT_CONFIG_DIAGNOSTICS_H

#include <weft/config.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::config {

// A place in the file; both count from 1, columns in characters.
struct Where {
  uint32_t line = 0;
  uint32_t column = 0;
};

class Diagnostics {
 public:
  // Text becomes "cause (line L, column C): remedy".
  void error(Where where, std::string_view cause, std::string_view remedy);
  void warning(Where where, std::string_view cause, std::string_view remedy);
  bool has_errors() const { return has_errors_; }

  // Calls `fn` (may be null) for each, from the top of the file down.
  void deliver(const char *file, weft_diag_fn fn, void *arg);

 private:
  struct Entry {
    uint32_t severity;
    Where where;
    std::string text;
  };
  void add(uint32_t severity, Where where, std::string_view cause, std::string_view remedy);

  std::vector<Entry> entries_;
  bool has_errors_ = false;
};

// Text of a file for a message: in single quotes, cut to a line, control characters escaped.
std::string quoted(std::string_view text);

// "did you mean 'providers'?", or, if no known word is near, "known here: 'enable', 'disable'".
std::string suggestion(std::string_view word, std::span<const std::string_view> known);

}  // namespace weft::config

#endif
