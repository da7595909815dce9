// SPDX-License-Identifier: BSD-2-Clause
// Facts about the file of a plugin, without running its code.
//
// Example:
//     Result<bool> could_be_a_plugin(const std::string &path) {
//       WEFT_TRY(const ElfFacts facts, read_elf(path));
//       WEFT_TRY(const Missing missing, try_linking(path));
//       return facts.exported == std::vector<std::string>{"weft_plugin_query"} &&
//              missing.libraries.empty() && missing.symbols.empty();
//     }
//
// libelf reads the file. The dynamic linker tries the linking, in a process of its own, and runs no
// code of the file.
#ifndef WEFT_TOOLS_WEFT_ELF_FILE_H
#define WEFT_TOOLS_WEFT_ELF_FILE_H

#include <weft/result.h>

#include <string>
#include <vector>

namespace weft::cli {

struct ElfFacts {
  std::vector<std::string> exported;  // defined dynamic symbols that others can bind to
  std::vector<std::string> needed;    // DT_NEEDED
};

Result<ElfFacts> read_elf(const std::string &path);

struct Missing {
  std::vector<std::string> libraries;  // needed, directly or not, and not found
  std::vector<std::string> symbols;    // undefined in all libraries that it needs
};

Result<Missing> try_linking(const std::string &path);

}  // namespace weft::cli

#endif
