// SPDX-License-Identifier: BSD-2-Clause
// The hints of fi_getinfo() as options of a command line.
//
// Example:
//     #include "tools/weft/command.h"
//     void add_names(CLI::App &app, Action &action) {
//       CLI::App *command = app.add_subcommand("names", "The providers that have what is asked");
//       auto hints = std::make_shared<HintOptions>();
//       add_hint_options(*command, *hints);
//       command->callback([hints, &action] {
//         action = [hints]() -> Result<int> {
//           WEFT_TRY(const Offers offers, ask(*hints));
//           for (const fi_info *one = offers.list.get(); one != nullptr; one = one->next)
//             std::puts(one->fabric_attr->prov_name);
//           return offers.ret == 0 ? kExitOk : kExitNo;
//         };
//       });
//     }
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

// The same options in one text: "--ep rdm --caps 'tagged|rma'".
Result<HintOptions> parse_hints(const std::string &text);

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
