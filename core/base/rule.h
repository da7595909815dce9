// SPDX-License-Identifier: BSD-2-Clause
// The place that a value or a decision comes from: a line of a file, a variable of the environment,
// a plugin.
//
// Example (statements):
//    const weft::Rule rule = weft::Rule::file("/etc/weft/10-site.yaml", 3, 5);
//    const weft::Rule given = weft::Rule::environment("FI_PROVIDER");
//    const bool overrides = given.is_variable("FI_PROVIDER") && rule.line == 3;
//
// Plain data, which is compared by its members. Its text ("/etc/weft/10-site.yaml:3:5") is made by
// core/base/render.h, and nobody reads that. Not for what the rule says.
#ifndef WEFT_CORE_BASE_RULE_H
#define WEFT_CORE_BASE_RULE_H

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

struct Rule {
  enum class Kind : uint8_t {
    kNone,         // nothing decided: it is so by itself
    kBuiltIn,      // a value that the library brings
    kDefault,      // the default that a unit declares
    kFile,         // a file of the configuration, at `line` and `column`
    kPlugin,       // a plugin's library or manifest, or a folder of plugins
    kEnvironment,  // a variable, at `column` of its value
    kSpelt,        // a variable that spells out a stack
    kStack,        // a stack of the configuration
    kCall,         // a request of another process
  };

  static Rule built_in() { return {.kind = Kind::kBuiltIn}; }
  static Rule of_declaration() { return {.kind = Kind::kDefault}; }
  static Rule file(std::string path, uint32_t line = 0, uint32_t column = 0) {
    return {Kind::kFile, std::move(path), line, column};
  }
  static Rule plugin(std::string path) { return {.kind = Kind::kPlugin, .name = std::move(path)}; }
  static Rule environment(std::string variable, uint32_t column = 0) {
    return {.kind = Kind::kEnvironment, .name = std::move(variable), .column = column};
  }
  static Rule spelt_in(std::string variable) {
    return {.kind = Kind::kSpelt, .name = std::move(variable)};
  }
  static Rule stack(std::string label) { return {.kind = Kind::kStack, .name = std::move(label)}; }
  static Rule call(std::string way) { return {.kind = Kind::kCall, .name = std::move(way)}; }

  bool empty() const { return kind == Kind::kNone; }
  bool is(Kind wanted) const { return kind == wanted; }
  bool is_variable(std::string_view variable) const {
    return kind == Kind::kEnvironment && name == variable;
  }
  bool operator==(const Rule &) const = default;

  Kind kind = Kind::kNone;
  std::string name = {};  // the path, the variable, the label of the stack, the way of the request
  uint32_t line = 0, column = 0;  // from 1; 0: unknown
};

}  // namespace weft

#endif
