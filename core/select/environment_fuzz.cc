// SPDX-License-Identifier: BSD-2-Clause
// Fuzz target: the values of FI_PROVIDER, FI_HOOK, FI_PROVIDER_PATH and of parameters. The first
// byte selects the parser. An accepted value that is written out again must parse to the same.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/match/match.h"
#include "core/select/environment.h"
#include "core/stack/params.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::string written(const weft::ProviderFilter &filter) {
  std::string text = filter.exclude ? "^" : "";
  for (size_t i = 0; i < filter.items.size(); ++i) {
    if (i > 0) text += ',';
    text += weft::text_of(filter.items[i]);
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const uint8_t what = data[0];
  const std::string_view text(reinterpret_cast<const char *>(data) + 1, size - 1);
  switch (what % 8) {
    case 0:
      if (const auto filter = weft::parse_provider_filter(text)) require(written(*filter) == text);
      break;
    case 1:
      if (const auto hooks = weft::parse_hooks(text)) {
        for (const weft::Word &word : *hooks)
          require(text.substr(word.column - 1, word.text.size()) == word.text);
      }
      break;
    case 2:
      if (const auto folders = weft::parse_provider_path(text)) {
        for (const std::string &folder : *folders) require(!folder.empty());
      }
      break;
    case 3: {
      const bool admitted = weft::prov_name_admits(text, "tcp;ofi_rxm");
      constexpr const char *kTree = "(shm+tcp;ofi_rxm);link";
      const bool in_tree = weft::prov_name_admits(text, kTree);
      if (!text.empty() && text.front() == '^')
        require(in_tree != weft::prov_name_admits(text.substr(1), kTree) ||
                text.substr(0, 2) == "^^");
      if (text.find_first_of("(+)") == std::string_view::npos && text.find(',') == text.npos &&
          text.find(';') != text.npos && text.front() != '^')
        require(!in_tree);  // a chain is no tree
      require(weft::prov_name_units(text) >= 1);
      if (!text.empty() && text.front() == '^')
        require(admitted != weft::prov_name_admits(text.substr(1), "tcp;ofi_rxm") ||
                text.substr(0, 2) == "^^");
      break;
    }
    default: {
      const weft::ParamType param{what % 8 - 3u, "p", -5, 1 << 20};
      if (const auto value = weft::parse_param(param, text)) {
        if (param.type == WEFT_TYPE_INT || param.type == WEFT_TYPE_SIZE)
          require(value->number >= param.minimum && value->number <= param.maximum);
        if (param.type == WEFT_TYPE_STRING || param.type == WEFT_TYPE_LIST)
          require(value->text == text);
      }
    }
  }
  return 0;
}
