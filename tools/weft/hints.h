// SPDX-License-Identifier: BSD-2-Clause
// The hints of fi_getinfo() as options of a command line.
//
//   auto hints = std::make_shared<HintOptions>();
//   add_hint_options(*subcommand, *hints);
//   WEFT_TRY(Offers offers, ask(*hints));             // offers.ret: 0 or -FI_E...
//   for (const fi_info *info = offers.list.get(); info != nullptr; info = info->next) ...
#ifndef WEFT_TOOLS_WEFT_HINTS_H
#define WEFT_TOOLS_WEFT_HINTS_H

#include <rdma/fabric.h>
#include <weft/result.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace weft::cli {

struct HintOptions {
  std::string ep, caps, mode, provider, domain, fabric, addr_format, node, service;
};

void add_hint_options(CLI::App &command, HintOptions &options);

struct Offers {
  int ret = 0;
  std::unique_ptr<fi_info, decltype(&fi_freeinfo)> list{nullptr, &fi_freeinfo};
};

// An unknown word is an error. "Nothing matches" is a result, in Offers::ret.
Result<Offers> ask(const HintOptions &options);

// "msg" of FI_EP_MSG
std::string ep_type_word(fi_ep_type type);
// The source address of an entry, without its port: "10.0.0.2"; empty: it has none.
std::string source_address(const fi_info &info);

}  // namespace weft::cli

#endif
