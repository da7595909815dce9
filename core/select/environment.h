// SPDX-License-Identifier: BSD-2-Clause
// The grammar of FI_PROVIDER, FI_HOOK and FI_PROVIDER_PATH.
//
// Example (statements):
//     Result<ProviderFilter> filter = parse_provider_filter("tcp;ofi_rxm,udp");
//     Result<std::vector<Word>> hooks = parse_hooks("trace;profile");  // outermost first
//     Result<std::vector<std::string>> folders = parse_provider_path("/opt/a:/opt/b");
//     Result<ProviderFilter> wrong = parse_provider_filter("tcp,^udp");
//     if (!wrong) {
//       const std::string &why = wrong.error().text;  // "column 5: '^' stands only at the very ..."
//     }
//
// Values that stock libfabric accepts have the same meaning here. Values that it would silently
// misunderstand (blanks, empty names, a `^` in the middle) are errors that show the column. Nothing
// here checks that the names exist.
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

// One entry of FI_PROVIDER: a unit, the label of a stack, or the units of a stack from the wire up,
// as it is named in prov_name: "tcp;ofi_rxm", "(shm+tcp;ofi_rxm);link". Of a stack without branches
// the other direction ("ofi_rxm;tcp") is accepted as well.
struct FilterItem {
  std::vector<FilterItem> branches;  // what the first unit stands over; empty: it is no such layer
  std::vector<Word> units;
};

// Calls `call(word)` for the units of the branches, and then for those above them.
template <class Call>
void each_word(const FilterItem &item, const Call &call) {
  for (const FilterItem &branch : item.branches) each_word(branch, call);
  for (const Word &word : item.units) call(word);
}

// As it was written.
std::string text_of(const FilterItem &item);

struct ProviderFilter {
  std::string text;
  bool exclude = false;  // "^a,b"
  std::vector<FilterItem> items;
};

// Text of the errors: "column 5: '^' stands only at the very beginning".
Result<ProviderFilter> parse_provider_filter(std::string_view text);
Result<std::vector<Word>> parse_hooks(std::string_view text);

// Folders, most preferred first. "@" in front changes nothing: in stock libfabric it lets the first
// provider of a name win, not the newest, and weft always does so. "+FILE" (a preferred library)
// puts the folder of that file in front.
Result<std::vector<std::string>> parse_provider_path(std::string_view text);

// "FI_PROVIDER=tcp,udp", for messages. Of a long value only the beginning is there.
std::string as_given(std::string_view variable, std::string_view value);

}  // namespace weft

#endif
