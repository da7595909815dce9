// SPDX-License-Identifier: BSD-2-Clause
#include "config/schema.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace weft::config {

namespace {

constexpr size_t kMaxName = 63;

std::string_view kind_name(Node::Kind kind) {
  switch (kind) {
    case Node::Kind::kScalar:
      return "text";
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a map";
    default:
      return "nothing";
  }
}

std::string is_not(std::string_view what, std::string_view wanted, const Node &node) {
  std::string out(what);
  out.append(" must be ").append(wanted).append(", not ").append(kind_name(node.kind));
  return out;
}

std::string is_no(std::string_view what, std::string_view wanted, const Node &node) {
  std::string out(what);
  out.append(" must be ").append(wanted).append(", not ").append(quoted(node.text));
  return out;
}

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

template <class Allowed>
bool check_chars(const Node &node, std::string_view what, std::string_view allowed_text,
                 Diagnostics &diag, Allowed allowed) {
  const std::string &text = node.text;
  if (text.empty()) {
    diag.error(node.where, std::string(what) + " is empty", "give a name or remove it");
    return false;
  }
  if (!std::all_of(text.begin(), text.end(), allowed)) {
    diag.error(node.where, std::string(what) + " " + quoted(text) + " is no name",
               std::string("names are made of ").append(allowed_text));
    return false;
  }
  if (text.size() > kMaxName) {
    diag.error(node.where,
               std::string(what) + " " + quoted(text) + " has " + std::to_string(text.size()) +
                   " characters",
               "the most is " + std::to_string(kMaxName));
    return false;
  }
  return true;
}

bool has_control(std::string_view text, std::string_view but) {
  return std::any_of(text.begin(), text.end(), [&](char c) {
    return (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) &&
           but.find(c) == std::string_view::npos;
  });
}

// Scalar that holds one line of text; may be empty.
bool check_line(const Node &node, std::string_view what, std::string_view wanted,
                Diagnostics &diag) {
  if (node.kind == Node::Kind::kBad) return false;
  if (node.kind != Node::Kind::kScalar) {
    diag.error(node.where, is_not(what, wanted, node),
               node.kind == Node::Kind::kNull ? "give a value or remove the key"
                                              : "write it as one word or in quotes");
    return false;
  }
  if (has_control(node.text, "\t")) {
    diag.error(node.where, std::string(what) + " has a control character or a line end",
               "write it on one line");
    return false;
  }
  return true;
}

}  // namespace

bool expect(const Node &node, Node::Kind kind, std::string_view what, std::string_view example,
            Diagnostics &diag) {
  if (node.kind == kind) return true;
  if (node.kind != Node::Kind::kBad)
    diag.error(node.where, is_not(what, kind_name(kind), node),
               std::string("write ").append(example));
  return false;
}

bool read_map(const Node &node, std::string_view what, Words known, std::string_view example,
              Diagnostics &diag, const EachEntry &each) {
  if (!expect(node, Node::Kind::kMap, what, example, diag)) return false;
  for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
    const Node &key = node.items[i];
    if (key.kind != Node::Kind::kScalar) continue;  // was reported with the tree
    if (known.empty() || std::find(known.begin(), known.end(), key.text) != known.end())
      each(key, node.items[i + 1]);
    else
      diag.error(key.where, "unknown key " + quoted(key.text), suggestion(key.text, known));
  }
  return true;
}

bool read_list(const Node &node, std::string_view what, std::string_view example, Diagnostics &diag,
               const EachItem &each) {
  if (!expect(node, Node::Kind::kList, what, example, diag)) return false;
  for (const Node &item : node.items) each(item);
  return true;
}

std::optional<std::string> read_text(const Node &node, std::string_view what, Diagnostics &diag) {
  if (!check_line(node, what, "text", diag)) return std::nullopt;
  if (node.text.empty()) {
    diag.error(node.where, std::string(what) + " is empty", "give a value or remove it");
    return std::nullopt;
  }
  return node.text;
}

std::optional<std::string> read_prose(const Node &node, std::string_view what, Diagnostics &diag) {
  if (!expect(node, Node::Kind::kScalar, what, "it in quotes", diag)) return std::nullopt;
  if (has_control(node.text, "\t\n")) {
    diag.error(node.where, std::string(what) + " has a control character", "remove it");
    return std::nullopt;
  }
  return node.text;
}

bool check_name(const Node &node, std::string_view what, Diagnostics &diag) {
  return check_chars(node, what, "a-z 0-9 - _", diag,
                     [](char c) { return is_lower(c) || is_digit(c) || c == '-' || c == '_'; });
}

bool check_param_name(const Node &node, std::string_view what, Diagnostics &diag) {
  return check_chars(node, what, "a-z 0-9 _", diag,
                     [](char c) { return is_lower(c) || is_digit(c) || c == '_'; });
}

bool check_label(const Node &node, std::string_view what, Diagnostics &diag) {
  return check_chars(node, what, "A-Z a-z 0-9 - _", diag, [](char c) {
    return is_lower(c) || is_upper(c) || is_digit(c) || c == '-' || c == '_';
  });
}

std::optional<std::string> read_name(const Node &node, std::string_view what, Diagnostics &diag) {
  if (!check_line(node, what, "a name", diag) || !check_name(node, what, diag)) return std::nullopt;
  return node.text;
}

std::optional<int64_t> read_integer(const Node &node, std::string_view what, int64_t minimum,
                                    int64_t maximum, Diagnostics &diag) {
  if (!check_line(node, what, "a number", diag)) return std::nullopt;
  const std::string_view text = node.text;
  const std::string_view digits = text.substr(text.substr(0, 1) == "-" ? 1 : 0);
  if (!node.plain || digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) {
    diag.error(node.where, is_no(what, "a whole number", node),
               "write decimal digits, without quotes");
    return std::nullopt;
  }
  if (digits.size() > 1 && digits[0] == '0') {
    diag.error(node.where, is_no(what, "a decimal number", node), "remove the leading zeros");
    return std::nullopt;
  }
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || value < minimum || value > maximum) {
    diag.error(node.where, std::string(what) + " is out of range: " + quoted(text),
               "it may be " + std::to_string(minimum) + " to " + std::to_string(maximum));
    return std::nullopt;
  }
  return value;
}

std::optional<bool> read_bool(const Node &node, std::string_view what, Diagnostics &diag) {
  if (!check_line(node, what, "true or false", diag)) return std::nullopt;
  static constexpr std::array<std::string_view, 4> kTrue = {"true", "yes", "on", "1"};
  static constexpr std::array<std::string_view, 4> kFalse = {"false", "no", "off", "0"};
  if (node.plain) {
    if (std::find(kTrue.begin(), kTrue.end(), node.text) != kTrue.end()) return true;
    if (std::find(kFalse.begin(), kFalse.end(), node.text) != kFalse.end()) return false;
  }
  diag.error(node.where, is_no(what, "true or false", node),
             "yes/no, on/off and 1/0 do as well, without quotes");
  return std::nullopt;
}

std::optional<size_t> read_word(const Node &node, std::string_view what, Words words,
                                Diagnostics &diag) {
  if (!check_line(node, what, "a word", diag)) return std::nullopt;
  const auto found = std::find(words.begin(), words.end(), node.text);
  if (found == words.end()) {
    diag.error(node.where, std::string(what) + " cannot be " + quoted(node.text),
               suggestion(node.text, words));
    return std::nullopt;
  }
  return static_cast<size_t>(found - words.begin());
}

std::optional<std::string> read_value(const Node &node, std::string_view what, Diagnostics &diag) {
  if (node.kind != Node::Kind::kList) {
    if (!check_line(node, what, "text, a number or a list", diag)) return std::nullopt;
    return node.text;
  }
  std::string joined;
  bool good = true;
  for (const Node &item : node.items) {
    const std::optional<std::string> text =
        read_text(item, std::string("an entry of ").append(what), diag);
    if (!text) {
      good = false;
    } else if (text->find(',') != std::string::npos) {
      diag.error(item.where,
                 std::string("an entry of ").append(what) + " has a comma: " + quoted(*text),
                 "commas separate entries; write two entries");
      good = false;
    } else {
      if (!joined.empty()) joined += ',';
      joined += *text;
    }
  }
  if (!good) return std::nullopt;
  return joined;
}

std::optional<std::string> read_glob(const Node &node, std::string_view what, Diagnostics &diag) {
  const std::optional<std::string> text = read_text(node, what, diag);
  if (!text) return std::nullopt;
  const std::string &glob = *text;
  const auto bad = [&](std::string_view cause, std::string_view remedy) {
    diag.error(node.where, std::string(what) + " " + quoted(glob) + std::string(cause), remedy);
    return std::nullopt;
  };
  for (size_t i = 0; i < glob.size(); ++i) {
    if (glob[i] == '\\')
      return bad(" has a backslash", "for a plain *, ? or [ write [*], [?] or [[]");
    if (glob[i] != '[') continue;
    // A set: [abc], [a-z], [!a-z]; a ']' that comes first is part of it.
    size_t first = i + 1;
    if (first < glob.size() && (glob[first] == '!' || glob[first] == '^')) ++first;
    const size_t end = first < glob.size() ? glob.find(']', first + 1) : std::string::npos;
    if (end == std::string::npos) return bad(" has a '[' without its ']'", "close the set");
    for (size_t j = first; j + 2 < end; ++j) {
      if (glob[j + 1] != '-') continue;
      if (static_cast<unsigned char>(glob[j]) > static_cast<unsigned char>(glob[j + 2]))
        return bad(" has a range that runs backwards", "write the lesser character first");
      j += 2;
    }
    i = end;
  }
  return text;
}

std::optional<std::string> read_subnet(const Node &node, std::string_view what, Diagnostics &diag) {
  const std::optional<std::string> text = read_text(node, what, diag);
  if (!text) return std::nullopt;
  const auto bad = [&](std::string_view remedy) {
    diag.error(node.where, is_no(what, "a subnet", node), remedy);
    return std::nullopt;
  };
  const size_t slash = text->find('/');
  const std::string address = text->substr(0, slash);
  std::array<unsigned char, 16> bytes{};
  const int family = address.find(':') == std::string::npos ? AF_INET : AF_INET6;
  const unsigned bits = family == AF_INET ? 32 : 128;
  if (inet_pton(family, address.c_str(), bytes.data()) != 1)
    return bad("write it like 172.17.0.0/16 or fd00::/8");
  if (slash == std::string::npos)
    return bad("add the length of the prefix, " + address + "/" + std::to_string(bits) +
               " for one address");
  const std::string_view digits = std::string_view(*text).substr(slash + 1);
  unsigned prefix = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), prefix);
  if (failure != std::errc() || end != digits.data() + digits.size() || prefix > bits ||
      (digits.size() > 1 && digits[0] == '0'))
    return bad("the length of the prefix may be 0 to " + std::to_string(bits));
  std::array<unsigned char, 16> network = bytes;
  for (unsigned bit = prefix; bit < bits; ++bit)
    network[bit / 8] = static_cast<unsigned char>(network[bit / 8] & ~(0x80u >> (bit % 8)));
  if (network != bytes) {
    char name[INET6_ADDRSTRLEN];
    inet_ntop(family, network.data(), name, sizeof name);
    return bad("bits beyond the prefix are set: write " + std::string(name) + "/" +
               std::to_string(prefix));
  }
  return text;
}

}  // namespace weft::config
