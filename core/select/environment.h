// SPDX-License-Identifier: BSD-2-Clause
// The grammar of FI_PROVIDER, FI_HOOK and FI_PROVIDER_PATH.
//
//   Result<ProviderFilter> filter = parse_provider_filter("tcp;ofi_rxm,udp");
//   Result<std::vector<Word>> hooks = parse_hooks("trace;profile");            // outermost first
//   Result<std::vector<std::string>> folders = parse_provider_path("/opt/a:/opt/b");
//
// What stock libfabric takes is taken with the same meaning; what it would silently misunderstand
// (blanks, empty names, a `^` in the middle) is an error that shows the column. Whether the names
// exist is not known here.
#ifndef WEFT_CORE_SELECT_ENVIRONMENT_H
#define WEFT_CORE_SELECT_ENVIRONMENT_H

#include <weft/result.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct Word {
  std::string text;
  size_t column = 0;  // from 1
};

// One entry of FI_PROVIDER: a unit, or the units of a stack from the wire up ("ofi_rxm;tcp" is
// taken as well).
struct FilterItem {
  std::vector<Word> units;
};

struct ProviderFilter {
  std::string text;
  bool exclude = false;  // "^a,b"
  std::vector<FilterItem> items;
};

// Text of the errors: "column 5: '^' stands only at the very beginning".
Result<ProviderFilter> parse_provider_filter(std::string_view text);
Result<std::vector<Word>> parse_hooks(std::string_view text);

// Folders, most preferred first. "@" in front (stock: the first of one name wins, not the newest)
// is how it is here anyway; "+FILE" (a preferred library) puts the folder of that file in front.
Result<std::vector<std::string>> parse_provider_path(std::string_view text);

}  // namespace weft

#endif
