// SPDX-License-Identifier: BSD-2-Clause
#include "config/tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <utility>

namespace weft::config {

namespace {

// Turns offsets into places: yaml-cpp counts columns in bytes, people in characters.
class Places {
 public:
  explicit Places(std::string_view text) : text_(text) {
    starts_.push_back(0);
    const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return c >= 0; });
    if (!ascii) continuations_.reserve(text.size() + 1);
    uint32_t continuations = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      if (!ascii) continuations_.push_back(continuations);
      if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) ++continuations;
      if (text[i] == '\n') starts_.push_back(static_cast<uint32_t>(i + 1));
    }
    if (!ascii) continuations_.push_back(continuations);
  }

  Where at(size_t offset) const {
    offset = std::min(offset, text_.size());
    const size_t line = line_of(offset);
    size_t column = offset - starts_[line];
    if (!continuations_.empty()) column -= continuations_[offset] - continuations_[starts_[line]];
    return {static_cast<uint32_t>(line + 1), static_cast<uint32_t>(column + 1)};
  }

  bool indented_with_tab(size_t offset) const {
    offset = std::min(offset, text_.size());
    for (size_t i = starts_[line_of(offset)]; i < text_.size(); ++i) {
      if (text_[i] == '\t') return true;
      if (text_[i] != ' ') return false;
    }
    return false;
  }

 private:
  size_t line_of(size_t offset) const {
    return static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), offset) -
                               starts_.begin()) -
           1;
  }

  std::string_view text_;
  std::vector<uint32_t> starts_;         // offset of each line
  std::vector<uint32_t> continuations_;  // UTF-8 continuation bytes before an offset; empty: ASCII
};

// Length of the UTF-8 sequence at the start of `text`, 0 if there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Overlong forms, surrogates, beyond U+10FFFF.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
      (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F))
    return 0;
  return length;
}

// Needed because yaml-cpp guesses encodings and passes control characters on.
bool check_text(std::string_view text, const Places &places, Diagnostics &diag) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = utf8_length(text.substr(i));
    const bool line_end = byte == '\n' || (byte == '\r' && text.substr(i + 1, 1) == "\n");
    if (length == 0 || byte == 0x7F || (byte < 0x20 && byte != '\t' && !line_end)) {
      char cause[64];
      std::snprintf(cause, sizeof cause, "byte 0x%02x is not %s", static_cast<unsigned>(byte),
                    length == 0 ? "UTF-8" : "text");
      diag.error(places.at(i), cause,
                 "save the file as plain text in UTF-8, with lines that end in LF or CR LF");
      return false;
    }
    i += length;
  }
  return true;
}

// Ends yaml-cpp's parsing from inside an event; the error was reported.
struct Stop {};

class Builder : public YAML::EventHandler {
 public:
  Builder(std::string_view text, const Places &places, Diagnostics &diag)
      : text_(text), places_(places), diag_(diag) {}

  std::optional<Node> take() { return std::move(root_); }

  // Where the innermost list or map began that is not complete.
  std::optional<Where> innermost() const {
    if (open_.empty()) return std::nullopt;
    return open_.back()->where;
  }

  void OnDocumentStart(const YAML::Mark &mark) override {
    if (!seen_document_) {
      seen_document_ = true;
      return;
    }
    // yaml-cpp also calls this without end for text that it cannot parse, such as a leading comma.
    const size_t pos = position(mark);
    if (text_.substr(pos, 3) == "---")
      diag_.error(places_.at(pos), "a second document begins", "one file holds one: remove '---'");
    else
      diag_.error(places_.at(pos), "text that belongs to nothing",
                  "write the file as 'key: value' lines");
    throw Stop{};
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark &mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    Node node;
    size_t pos = position(mark);
    // An empty entry of a list is placed at what follows it: go back to its dash.
    if (!open_.empty() && open_.back()->kind == Node::Kind::kList && !is_null_word(pos)) {
      size_t back = pos;
      while (back > 0 &&
             std::string_view(" \t\r\n").find(text_[back - 1]) != std::string_view::npos)
        --back;
      if (back > 0 && text_[back - 1] == '-') pos = back - 1;
    }
    node.where = places_.at(pos);
    if (!open_.empty() && open_.back()->kind == Node::Kind::kMap &&
        open_.back()->items.size() % 2 == 1)
      node.where = open_.back()->items.back().where;
    add(std::move(node));
  }

  void OnAlias(const YAML::Mark &mark, YAML::anchor_t) override {
    refuse_alias(position(mark));
    Node node;
    node.kind = Node::Kind::kBad;
    node.where = places_.at(position(mark));
    add(std::move(node));
  }

  void OnScalar(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                const std::string &value) override {
    refuse_anchor(mark, anchor);
    Node node;
    node.kind = Node::Kind::kScalar;
    node.where = places_.at(position(mark));
    node.plain = tag == "?";
    if (!refuse_tag(mark, tag)) node.kind = Node::Kind::kBad;
    if (!node.plain && !quote_is_closed(position(mark))) {
      diag_.error(node.where, "a quote that is never closed", "close it on the same line");
      throw Stop{};
    }
    if (value.find('\0') != std::string::npos) {
      diag_.error(node.where, "text with a NUL character", "remove the \\0");
      node.kind = Node::Kind::kBad;
    }
    node.text = value;
    add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::kList);
  }
  void OnSequenceEnd() override { open_.pop_back(); }

  void OnMapStart(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::kMap);
  }
  void OnMapEnd() override {
    check_keys(*open_.back());
    open_.pop_back();
  }

  void refuse_alias(size_t pos) {
    diag_.error(places_.at(pos), "an alias, " + source_word(pos),
                "aliases are not accepted; put text that begins with '*' in quotes");
  }
  void refuse_anchor(size_t pos) {
    diag_.error(places_.at(pos), "an anchor, " + source_word(pos),
                "anchors are not accepted; put text that begins with '&' in quotes");
  }
  void refuse_tag(size_t pos) {
    diag_.error(places_.at(pos), "a tag, " + source_word(pos),
                "tags are not accepted; put text that begins with '!' in quotes");
  }

 private:
  size_t position(const YAML::Mark &mark) const {
    return mark.pos < 0 ? 0 : std::min(static_cast<size_t>(mark.pos), text_.size());
  }

  bool is_null_word(size_t pos) const {
    const std::string_view rest = text_.substr(pos);
    const std::string_view word = rest.substr(0, rest.find_first_of(" \t\r\n,]"));
    return word == "~" || word == "null" || word == "Null" || word == "NULL";
  }

  // yaml-cpp takes the end of the file for a quote.
  bool quote_is_closed(size_t pos) const {
    const char quote = pos < text_.size() ? text_[pos] : '\0';
    if (quote != '"' && quote != '\'') return true;  // block text
    for (size_t i = pos + 1; i < text_.size(); ++i) {
      if (quote == '"' && text_[i] == '\\')
        ++i;
      else if (text_[i] == quote && (quote == '"' || text_.substr(i + 1, 1) != "'"))
        return true;
      else if (text_[i] == quote)
        ++i;  // '' inside single quotes
    }
    return false;
  }

  std::string source_word(size_t pos) const {
    const std::string_view rest = text_.substr(pos);
    return quoted(rest.substr(0, rest.find_first_of(" \t\r\n,[]{}")));
  }

  void refuse_anchor(const YAML::Mark &mark, YAML::anchor_t anchor) {
    if (anchor != 0) refuse_anchor(position(mark));
  }

  // "?" and "!" are what yaml-cpp gives to plain and to quoted text that has no tag.
  bool refuse_tag(const YAML::Mark &mark, const std::string &tag) {
    if (tag.empty() || tag == "?" || tag == "!") return true;
    refuse_tag(position(mark));
    return false;
  }

  void open(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
            Node::Kind kind) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    Node node;
    node.kind = kind;
    node.where = places_.at(position(mark));
    // yaml-cpp recurses only after this event, so stopping here bounds its stack.
    if (open_.size() == kMaxDepth) {
      diag_.error(node.where, "more than " + std::to_string(kMaxDepth) + " levels of nesting",
                  "no key needs so many; close what was opened");
      throw Stop{};
    }
    open_.push_back(add(std::move(node)));
  }

  // A node stays where it is put while it is open: its siblings come after it was closed.
  Node *add(Node node) {
    if (open_.empty()) return &root_.emplace(std::move(node));
    return &open_.back()->items.emplace_back(std::move(node));
  }

  void check_keys(const Node &map) {
    std::map<std::string_view, Where> seen;
    for (size_t i = 0; i < map.items.size(); i += 2) {
      const Node &key = map.items[i];
      if (key.kind == Node::Kind::kBad) continue;
      if (key.kind != Node::Kind::kScalar) {
        diag_.error(key.where, key.kind == Node::Kind::kNull ? "no key" : "a key that is no word",
                    "write 'key: value'");
        continue;
      }
      const auto [first, is_new] = seen.emplace(key.text, key.where);
      if (!is_new)
        diag_.error(key.where, "duplicate key " + quoted(key.text),
                    "it was given in line " + std::to_string(first->second.line) +
                        " already; keep one of them");
    }
  }

  std::string_view text_;
  const Places &places_;
  Diagnostics &diag_;
  std::optional<Node> root_;
  std::vector<Node *> open_;
  bool seen_document_ = false;
};

// What yaml-cpp found wrong, in terms of what people wrote.
void report_syntax(const YAML::Exception &e, std::string_view text, const Places &places,
                   Builder &builder, Diagnostics &diag) {
  namespace msg = YAML::ErrorMsg;
  const std::string_view what = e.msg;
  const size_t pos = e.mark.pos < 0 ? 0 : std::min(static_cast<size_t>(e.mark.pos), text.size());
  const Where where = places.at(pos);
  const auto is_one_of = [&](std::initializer_list<const char *> messages) {
    return std::find(messages.begin(), messages.end(), what) != messages.end();
  };

  if (is_one_of({msg::UNKNOWN_ANCHOR, msg::ALIAS_NOT_FOUND, msg::CHAR_IN_ALIAS}))
    return builder.refuse_alias(pos);
  if (is_one_of({msg::ANCHOR_NOT_FOUND, msg::CHAR_IN_ANCHOR, msg::MULTIPLE_ANCHORS}))
    return builder.refuse_anchor(pos);
  if (is_one_of({msg::TAG_WITH_NO_SUFFIX, msg::END_OF_VERBATIM_TAG, msg::CHAR_IN_TAG_HANDLE,
                 msg::MULTIPLE_TAGS}))
    return builder.refuse_tag(pos);

  if (is_one_of({msg::TAB_IN_INDENTATION}) || places.indented_with_tab(pos))
    return diag.error(where, "a tab in the indentation", "indent with blanks");

  if (is_one_of({msg::END_OF_SEQ_FLOW, msg::END_OF_MAP_FLOW})) {
    const bool list = what == msg::END_OF_SEQ_FLOW;
    const Where opened = builder.innermost().value_or(where);
    return diag.error(
        where,
        std::string(list ? "the list" : "the map") + " that began at line " +
            std::to_string(opened.line) + ", column " + std::to_string(opened.column) +
            " does not go on like this",
        list ? "add ',' between entries and ']' at the end" : "write {key: value, key: value}");
  }

  struct Translation {
    const char *message, *cause, *remedy;
  };
  static const Translation kTranslations[] = {
      {msg::END_OF_MAP, "this does not continue the keys above it",
       "write 'key: value' in the same column as they"},
      {msg::END_OF_SEQ, "this does not continue the list above it",
       "begin each entry with '- ' in the same column"},
      {msg::MAP_VALUE, "a ':' that makes no key here",
       "write one 'key: value' per line, and put text that contains ': ' in quotes"},
      {msg::MAP_KEY, "a key is not possible here", "write one 'key: value' per line"},
      {msg::BLOCK_ENTRY, "a list entry is not possible here",
       "begin each entry with '- ' on its own line, or write [a, b]"},
      {msg::FLOW_END, "a closing bracket that none opened", "remove it"},
      {msg::EOF_IN_SCALAR, "a quote is not closed before this place", "close it"},
      {msg::DOC_IN_SCALAR, "'---' or '...' inside quotes", "close the quote before it"},
      {msg::INVALID_ESCAPE, "an unknown escape in double quotes",
       "write '\\\\' for a backslash, or use single quotes"},
      {msg::UNKNOWN_TOKEN, "a value cannot begin with this character", "put it in quotes"},
  };
  for (const Translation &t : kTranslations)
    if (what.substr(0, std::string_view(t.message).size()) == t.message)
      return diag.error(where, t.cause, t.remedy);
  diag.error(where, "no valid YAML: " + std::string(what),
             "check indentation, quotes and brackets");
}

}  // namespace

std::optional<Node> parse_tree(std::string_view text, Diagnostics &diag) {
  if (text.size() > kMaxText) {
    diag.error({1, 1}, "the file has " + std::to_string(text.size()) + " bytes",
               "the most is " + std::to_string(kMaxText));
    return std::nullopt;
  }
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  const Places places(text);
  if (!check_text(text, places, diag)) return std::nullopt;

  Builder builder(text, places, diag);
  try {
    // The line end at the end lets yaml-cpp tell an open quote as it does one before a last line
    // end.
    std::istringstream stream{std::string(text) + "\n"};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {  // the builder stops it at a second one
    }
  } catch (const Stop &) {
    return std::nullopt;
  } catch (const YAML::Exception &e) {
    report_syntax(e, text, places, builder, diag);
    return std::nullopt;
  }
  std::optional<Node> root = builder.take();
  if (!root) {  // nothing but blanks and comments
    root.emplace();
    root->where = {1, 1};
  }
  return root;
}

}  // namespace weft::config
