// SPDX-License-Identifier: BSD-2-Clause
// The tools to write a schema with: each function checks that a node has one shape and returns the
// typed value, or std::nullopt after it reported what is wrong. `what` names the key in messages.
//
// Example:
//     inline std::optional<int64_t> major_of(const Node &abi, Diagnostics &diag) {
//       static constexpr std::string_view kKeys[] = {"major", "minor"};
//       std::optional<int64_t> major;
//       read_map(abi, "'abi'", kKeys, "abi: {major: 1, minor: 0}", diag,
//                [&](const Node &key, const Node &value) {
//                  if (key.text == "major")
//                    major = read_integer(value, "'abi.major'", 1, 65535, diag);
//                });
//       return major;
//     }
//
// The names and limits of keys are in policy_keys.h and manifest.cc, not here.
#ifndef WEFT_CONFIG_SCHEMA_H
#define WEFT_CONFIG_SCHEMA_H

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"
#include "config/tree.h"

namespace weft::config {

using Words = std::span<const std::string_view>;

// False after a report unless the node is of `kind`. `example` shows what would be right.
bool expect(const Node &node, Node::Kind kind, std::string_view what, std::string_view example,
            Diagnostics &diag);

using EachEntry = std::function<void(const Node &key, const Node &value)>;
// Calls `each` for every entry whose key is one of `known`; with no `known`, for every entry whose
// key is a word.
bool read_map(const Node &node, std::string_view what, Words known, std::string_view example,
              Diagnostics &diag, const EachEntry &each);

using EachItem = std::function<void(const Node &item)>;
bool read_list(const Node &node, std::string_view what, std::string_view example, Diagnostics &diag,
               const EachItem &each);

// Text without control characters, not empty; the caller interprets it.
std::optional<std::string> read_text(const Node &node, std::string_view what, Diagnostics &diag);
// The same, but may be empty and may have line ends and tabs: text for people.
std::optional<std::string> read_prose(const Node &node, std::string_view what, Diagnostics &diag);

// The name of a unit: a-z 0-9 - _.
std::optional<std::string> read_name(const Node &node, std::string_view what, Diagnostics &diag);
bool check_name(const Node &node, std::string_view what, Diagnostics &diag);
// The name of a parameter: a-z 0-9 _.
bool check_param_name(const Node &node, std::string_view what, Diagnostics &diag);
// The name of a stack, which the user chooses: A-Z a-z 0-9 - _.
bool check_label(const Node &node, std::string_view what, Diagnostics &diag);

// A decimal number without quotes.
std::optional<int64_t> read_integer(const Node &node, std::string_view what, int64_t minimum,
                                    int64_t maximum, Diagnostics &diag);
// true/false, yes/no, on/off, 1/0 without quotes.
std::optional<bool> read_bool(const Node &node, std::string_view what, Diagnostics &diag);
// The index of the text in `words`.
std::optional<size_t> read_word(const Node &node, std::string_view what, Words words,
                                Diagnostics &diag);

// The value of a parameter, as text: a scalar as it is, a list joined by commas.
std::optional<std::string> read_value(const Node &node, std::string_view what, Diagnostics &diag);

// Patterns as in the shell: * ? [a-z] [!a-z].
std::optional<std::string> read_glob(const Node &node, std::string_view what, Diagnostics &diag);
// 172.17.0.0/16, fd00::/8.
std::optional<std::string> read_subnet(const Node &node, std::string_view what, Diagnostics &diag);

}  // namespace weft::config

#endif
