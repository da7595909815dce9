// SPDX-License-Identifier: BSD-2-Clause
// What the file of a plugin says of itself before any of its code runs.
//
//   WEFT_TRY(const ElfFacts facts, read_elf("/opt/frobco/frob.so"));
//   facts.exported == std::vector<std::string>{"weft_plugin_query"}
//   WEFT_TRY(const Missing missing, try_linking("/opt/frobco/frob.so"));
//
// Reading is libelf's, linking is tried by the dynamic linker itself, in a process of its own that
// runs nothing of the file.
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
  std::vector<std::string> libraries;  // not found, of its own or of what it needs
  std::vector<std::string> symbols;    // that nothing it needs defines
};

Result<Missing> try_linking(const std::string &path);

}  // namespace weft::cli

#endif
