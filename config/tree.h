// SPDX-License-Identifier: BSD-2-Clause
// The tree of one YAML document with the place of every node. The only header between the schema
// and yaml-cpp.
//
//   std::optional<Node> root = parse_tree("version: 1\n", diag);
//   root->items[0].text;    // "version", at line 1, column 1
//   root->items[1].text;    // "1"
//
// The YAML taken is a subset on purpose: one document in UTF-8, at most 1 MiB and 32 levels, every
// key a word and given once; no tags, anchors or aliases, whose only use here would be to make
// small files large and plain text surprising. No types either: whether text is a number is the
// schema's business.
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
    kBad,   // was reported; nothing more to say about it
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
