// SPDX-License-Identifier: BSD-2-Clause
// The output of the commands: tables, paragraphs, JSON.
//
// Example (statements):
//     Table table({"UNIT", "VERDICT", "REASON"});
//     table.add({"tcp", "yes", "selected"});
//     table.print();                   // columns as wide as they must be
//     print_json({{"unit", "tcp"}});
//
// On a terminal the last column is wrapped and some words are emphasized. Elsewhere every row is
// one line without escape sequences, so that grep and awk work. What is shown may come from a file
// or another process: all of it is made printable (weft/printable.h).
#ifndef WEFT_TOOLS_WEFT_TEXT_H
#define WEFT_TOOLS_WEFT_TEXT_H

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

using Json = nlohmann::ordered_json;

enum class Emphasis { kNone, kStrong, kGood, kDoubtful, kBad };

// The printable text, with escape sequences if stdout is a terminal that has them and NO_COLOR is
// not set.
std::string emphasized(std::string_view text, Emphasis emphasis);

// Columns of stdout; 0: no terminal, do not wrap.
size_t terminal_width();

// Breaks at blanks; a word that is longer than `width` stays whole. `width` 0: one line.
std::vector<std::string> wrapped(std::string_view text, size_t width);

// "label     text", the text wrapped and indented to the same column.
void print_field(std::string_view label, std::string_view text, size_t label_width,
                 size_t indent = 0);

class Table {
 public:
  explicit Table(std::vector<std::string> heads) : heads_(std::move(heads)) {}
  void add(std::vector<std::string> cells, Emphasis emphasis = Emphasis::kNone);
  // An indented line of its own below the last row ("remedy: ...").
  void note(std::string text);
  void print(size_t indent = 0) const;
  bool empty() const { return rows_.empty(); }

 private:
  struct Row {
    std::vector<std::string> cells;
    Emphasis emphasis;
    std::vector<std::string> notes;
  };
  std::vector<std::string> heads_;
  std::vector<Row> rows_;
};

// Bytes that are not UTF-8 (names of devices, the environment) are replaced, never an error. The
// output is ASCII, so that no character of it controls a terminal.
void print_json(const Json &json);

// Members of JSON that another program wrote. The result is empty or false where the member is
// absent or has another type.
std::string text_of(const Json &object, std::string_view key);
bool flag_of(const Json &object, std::string_view key);
std::vector<std::string> texts_of(const Json &object, std::string_view key);
Json array_of(const Json &object, std::string_view key);

// The known word that the user probably meant; empty: none is close.
std::string nearest_word(std::string_view word, const std::vector<std::string> &known);

}  // namespace weft::cli

#endif
