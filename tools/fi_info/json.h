// SPDX-License-Identifier: BSD-2-Clause
// What fi_info --json prints.
//
// Example:
//     void print_entry(const fi_info &info) {
//       print_json({{"provider", text_or_null(info.fabric_attr->prov_name)}});
//       print_json(info_json(info, fi_tostr(&info, FI_TYPE_INFO)));
//     }
#ifndef WEFT_TOOLS_FI_INFO_JSON_H
#define WEFT_TOOLS_FI_INFO_JSON_H

#include <rdma/fabric.h>

#include <nlohmann/json.hpp>
#include <string>

namespace weft::info {

using Json = nlohmann::ordered_json;

Json text_or_null(const char *text);

// Every attribute of an fi_info. `text`: what the library prints of it (fi_tostr); the addresses
// come from there.
Json info_json(const fi_info &info, const std::string &text);

void print_json(const Json &json);

}  // namespace weft::info

#endif
