// SPDX-License-Identifier: BSD-2-Clause
// The tree of one YAML document with the place of every node. The only header between the schema
// and yaml-cpp.
//
// Example (statements):
//     Diagnostics diag;
//     const std::optional<Node> root = parse_tree("version: 1\n", diag);
//     const std::string &key = root->items[0].text;    // "version", at line 1, column 1
//     const std::string &value = root->items[1].text;  // "1"
//
// Accepts a subset of YAML: one document in UTF-8, at most 1 MiB and 32 levels, every key a word
// that is given once. Tags, anchors and aliases are refused: with them a small file could become
// large, and plain text could change its meaning. Nodes have no types: the schema decides whether
// text is a number.
#ifndef WEFT_CONFIG_TREE_H
#define WEFT_CONFIG_TREE_H

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"

namespace weft::config {

inline constexpr size_t kMaxText = size_t{1} << 20;
inline constexpr size_t kMaxDepth = 32;

struct Node {
  enum class Kind {
    kBad,   // the error is already reported
    kNull,  // nothing, "~" or "null"
    kScalar,
    kList,
    kMap,
  };
  Kind kind = Kind::kNull;
  bool plain = true;  // a scalar without quotes
  Where where;        // a null value in a map stands where its key stands
  std::string text;
  std::vector<Node> items;  // entries of a list; key, value, key, value... of a map
};

// Nothing where no tree could be made; then `diag` has an error. With a tree, `diag` may have
// errors too.
std::optional<Node> parse_tree(std::string_view text, Diagnostics &diag);

}  // namespace weft::config

#endif
