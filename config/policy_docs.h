// SPDX-License-Identifier: BSD-2-Clause
// The documents that come from the table of keys (policy_keys.h): the JSON Schema of weft.yaml, and
// the section KEYS of its manual page.
//
// Example (statements):
//     const std::string schema = policy_schema();             // docs/weft.yaml.schema.json
//     const std::string keys = policy_manual("providers");    // mdoc(7): a list of three keys
//
// The program write-config-docs puts them into docs/. What the manual page says of a key beyond its
// line in the table is in policy_docs_text.cc. Not part of the reader.
#ifndef WEFT_CONFIG_POLICY_DOCS_H
#define WEFT_CONFIG_POLICY_DOCS_H

#include <string>
#include <string_view>

namespace weft::config {

std::string policy_schema();

// The keys beneath a path, as a list of mdoc(7); "" is the top of the file.
std::string policy_manual(std::string_view parent);

// What the manual page says of a key behind its meaning; "" for most.
std::string_view manual_text(std::string_view path);

}  // namespace weft::config

#endif
