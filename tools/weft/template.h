// SPDX-License-Identifier: BSD-2-Clause
// Text of the templates of `weft plugin new`: placeholders, the words of an example, and the names
// that a new plugin may have.
//
// Example (statements):
//     const Words values = {{"name", "frob"}};
//     Result<std::string> text = fill("the provider @name@", values);  // "the provider frob"
//     std::string code = reword("class Loop {};", {{"Loop", "Frob"}});  // "class Frob {};"
//
// A template is a file with placeholders (`@name@`), or a file of an example, in which some words
// stand for placeholders: a table of the template says which. Not for CMake's configure_file(),
// which has no error for a placeholder without a value.
#ifndef WEFT_TOOLS_WEFT_TEMPLATE_H
#define WEFT_TOOLS_WEFT_TEMPLATE_H

#include <weft/result.h>

#include <map>
#include <string>
#include <string_view>

namespace weft::cli {

using Words = std::map<std::string, std::string>;

// Puts the value for each `@word@`. An error for a word without a value.
Result<std::string> fill(std::string_view text, const Words &values);

// Replaces words; where several begin at one place, the longest. What it has put in is not looked
// at again.
std::string reword(std::string_view text, const Words &words);

// An error unless `name` can be a unit, a part of a C++ identifier, of a file name and of the name
// of a package: a-z, 0-9, - and _, a letter first, 40 bytes at most.
Result<void> check_unit_name(const std::string &name);

// An error unless `vendor` can stand in a C++ string, in CMake and in a package.
Result<void> check_vendor(const std::string &vendor);

// "frob-2" as a C++ class: "Frob2".
std::string class_name(std::string_view name);

}  // namespace weft::cli

#endif
