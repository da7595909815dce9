// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/hook-fault/rules.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

namespace weft::fault {
namespace {

struct OperationName {
  std::string_view name;
  uint32_t bits;
};
constexpr uint32_t bit(Operation operation) {
  return 1u << operation;
}
constexpr uint32_t kMessages = bit(kSend) | bit(kTsend) | bit(kInject) | bit(kTinject);
constexpr uint32_t kPosts = bit(kCqRead) - 1;
constexpr uint32_t kCompleting = kPosts & ~(bit(kInject) | bit(kTinject) | bit(kInjectWrite));
constexpr OperationName kOperationNames[] = {
    {"send", bit(kSend)},       {"tsend", bit(kTsend)},    {"inject", bit(kInject)},
    {"tinject", bit(kTinject)}, {"recv", bit(kRecv)},      {"trecv", bit(kTrecv)},
    {"read", bit(kRead)},       {"write", bit(kWrite)},    {"inject_write", bit(kInjectWrite)},
    {"atomic", bit(kAtomic)},   {"cq_read", bit(kCqRead)}, {"message", kMessages},
    {"post", kPosts},
};

enum class Argument { kNone, kNumber, kErrno };
struct ActionName {
  std::string_view name;
  Action action;
  Argument argument;
  uint32_t operations;  // operations that allow it
  std::string_view what;
};
constexpr ActionName kActionNames[] = {
    {"drop", Action::kDrop, Argument::kNone, kMessages, "send, tsend, inject and tinject"},
    {"dup", Action::kDuplicate, Argument::kNone, kMessages, "send, tsend, inject and tinject"},
    {"reorder", Action::kReorder, Argument::kNone, kMessages, "send, tsend, inject and tinject"},
    {"delay", Action::kDelay, Argument::kNumber, kMessages, "send, tsend, inject and tinject"},
    {"truncate", Action::kTruncate, Argument::kNumber, kMessages,
     "send, tsend, inject and tinject"},
    {"corrupt", Action::kCorrupt, Argument::kNone, kMessages, "send, tsend, inject and tinject"},
    {"error", Action::kError, Argument::kErrno, kCompleting, "what has a completion (no inject)"},
    {"fail", Action::kFail, Argument::kErrno, kPosts | bit(kCqRead), ""},
    {"eagain", Action::kAgain, Argument::kNone, kPosts | bit(kCqRead), ""},
    {"full", Action::kFull, Argument::kNone, kPosts, "what is posted, not cq_read"},
    {"kill", Action::kKill, Argument::kNone, kPosts, "what is posted, not cq_read"},
    {"overrun", Action::kOverrun, Argument::kNone, bit(kCqRead), "cq_read"},
};

struct ErrnoName {
  std::string_view name;
  int code;
};
constexpr ErrnoName kErrnos[] = {
    {"EIO", FI_EIO},
    {"EAGAIN", FI_EAGAIN},
    {"ENOMEM", FI_ENOMEM},
    {"EACCES", FI_EACCES},
    {"EBUSY", FI_EBUSY},
    {"EINVAL", FI_EINVAL},
    {"ENOSPC", FI_ENOSPC},
    {"ENOSYS", FI_ENOSYS},
    {"EMSGSIZE", FI_EMSGSIZE},
    {"ENETDOWN", FI_ENETDOWN},
    {"ENETUNREACH", FI_ENETUNREACH},
    {"ECONNABORTED", FI_ECONNABORTED},
    {"ECONNRESET", FI_ECONNRESET},
    {"ENOTCONN", FI_ENOTCONN},
    {"ESHUTDOWN", FI_ESHUTDOWN},
    {"ETIMEDOUT", FI_ETIMEDOUT},
    {"ECONNREFUSED", FI_ECONNREFUSED},
    {"EHOSTUNREACH", FI_EHOSTUNREACH},
    {"EREMOTEIO", FI_EREMOTEIO},
    {"ECANCELED", FI_ECANCELED},
    {"EKEYREJECTED", FI_EKEYREJECTED},
    {"EOTHER", FI_EOTHER},
    {"EOPBADSTATE", FI_EOPBADSTATE},
    {"ETRUNC", FI_ETRUNC},
    {"ENOKEY", FI_ENOKEY},
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Rules> parse() {
    Rules rules;
    bool seeded = false;
    for (std::string_view item : split(text_, ';')) {
      item = trimmed(item);
      if (item.empty()) continue;
      if (item.starts_with("seed=")) {
        if (seeded) return error(item, "the seed is given twice");
        WEFT_TRY(rules.seed, whole(item.substr(5), false));
        seeded = true;
        continue;
      }
      WEFT_TRY(Rule rule, parse_rule(item));
      if (rules.rules.size() == kMaxRules)
        return error(item, "more than " + std::to_string(kMaxRules) + " rules");
      rules.rules.push_back(std::move(rule));
    }
    return rules;
  }

 private:
  // Every view is a part of the text, so its address gives the column.
  tl::unexpected<Error> error(std::string_view at, const std::string &text) const {
    return fail(FI_EINVAL, "rules, column %zu: %s",
                static_cast<size_t>(at.data() - text_.data()) + 1, text.c_str());
  }
  static std::string quoted(std::string_view word) {
    return "\"" + std::string(word.substr(0, 40)) + "\"";
  }

  static std::vector<std::string_view> split(std::string_view text, char by) {
    std::vector<std::string_view> parts;
    for (size_t begin = 0;;) {
      const size_t end = text.find(by, begin);
      parts.push_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
      if (end == std::string_view::npos) return parts;
      begin = end + 1;
    }
  }

  // Digits, and with `bytes` a K, M or G after them.
  Result<uint64_t> whole(std::string_view word, bool bytes) const {
    const std::string_view at = word;
    unsigned shift = 0;
    if (bytes && !word.empty()) {
      const char unit = word.back();
      shift = unit == 'K' || unit == 'k' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
      if (shift != 0) word.remove_suffix(1);
    }
    uint64_t value = 0;
    const char *end = word.data() + word.size();
    const auto [stop, failed] = std::from_chars(word.data(), end, value);
    if (word.empty() || failed != std::errc() || stop != end || value > (UINT64_MAX >> shift))
      return error(at, quoted(at) + " is no whole number that fits");
    return value << shift;
  }

  Result<Rule> parse_rule(std::string_view item) const {
    Rule rule;
    rule.text = std::string(item);
    std::vector<std::string_view> parts = split(item, ':');
    for (std::string_view &part : parts) part = trimmed(part);
    if (parts.size() < 2)
      return error(item, quoted(item) +
                             " is no rule: it has to be OPERATION:ACTION, with "
                             "conditions between");
    for (std::string_view name : split(parts[0], ',')) {
      name = trimmed(name);
      const auto found = std::find_if(std::begin(kOperationNames), std::end(kOperationNames),
                                      [&](const OperationName &one) { return one.name == name; });
      if (found == std::end(kOperationNames))
        return error(name, "unknown operation " + quoted(name) +
                               "; known: " + list(std::span(kOperationNames)));
      rule.operations |= found->bits;
    }
    uint32_t seen = 0;
    for (size_t i = 1; i + 1 < parts.size(); ++i) WEFT_CHECK(parse_condition(parts[i], rule, seen));
    return with_action(parts.back(), std::move(rule));
  }

  template <class Names>
  static std::string list(Names names) {
    std::string text;
    for (const auto &one : names) text += (text.empty() ? "" : " ") + std::string(one.name);
    return text;
  }

  Result<void> parse_condition(std::string_view part, Rule &rule, uint32_t &seen) const {
    const size_t end = part.find_first_of("=<>");
    const std::string_view name = part.substr(0, end);
    static constexpr std::string_view kNames[] = {"size", "p", "nth", "every", "count", "peer"};
    const auto found = std::find(std::begin(kNames), std::end(kNames), name);
    if (found == std::end(kNames) || end == std::string_view::npos)
      return error(part, "unknown condition " + quoted(part) +
                             "; known: size p nth every count peer, and a value after each");
    const bool is_size = name == "size";
    std::string_view rest = part.substr(end + 1);
    const char sign = part[end];
    const bool or_equal = sign != '=' && rest.starts_with('=');
    if (or_equal) rest.remove_prefix(1);
    if (!is_size && sign != '=') return error(part, quoted(name) + " takes an =");
    if (!is_size) {
      const uint32_t mark = 1u << (found - std::begin(kNames));
      if ((seen & mark) != 0) return error(part, quoted(name) + " is given twice");
      seen |= mark;
    }
    if (name == "p") {
      const char *stop = nullptr;
      double value = 0;
      const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), value);
      stop = result.ptr;
      if (rest.empty() || result.ec != std::errc() || stop != rest.data() + rest.size() ||
          !(value >= 0 && value <= 1))
        return error(rest, quoted(rest) + " is no probability: from 0 to 1");
      rule.probability = value;
      return {};
    }
    WEFT_TRY(const uint64_t value, whole(rest, is_size));
    if (is_size) {
      if (rule.operations & bit(kCqRead)) return error(part, "cq_read has no size");
      if (sign == '=') {
        rule.least = std::max(rule.least, value);
        rule.most = std::min(rule.most, value);
      } else if (sign == '>') {
        if (!or_equal && value == UINT64_MAX) return error(rest, "nothing is larger");
        rule.least = std::max(rule.least, or_equal ? value : value + 1);
      } else {
        if (!or_equal && value == 0) return error(rest, "nothing is smaller");
        rule.most = std::min(rule.most, or_equal ? value : value - 1);
      }
      if (rule.least > rule.most) return error(part, "no size is like that");
      return {};
    }
    if (value == 0 && name != "peer") return error(rest, quoted(name) + " counts from 1");
    if (name == "nth") rule.nth = value;
    if (name == "every") rule.every = value;
    if (name == "count") rule.times = value;
    if (name == "peer") {
      if (rule.operations & bit(kCqRead)) return error(part, "cq_read has no peer");
      rule.peer = value;
    }
    return {};
  }

  Result<Rule> with_action(std::string_view part, Rule rule) const {
    const size_t end = part.find('=');
    const std::string_view name = trimmed(part.substr(0, end));
    const auto found = std::find_if(std::begin(kActionNames), std::end(kActionNames),
                                    [&](const ActionName &one) { return one.name == name; });
    if (found == std::end(kActionNames))
      return error(part,
                   "unknown action " + quoted(name) + "; known: " + list(std::span(kActionNames)));
    if ((rule.operations & ~found->operations) != 0)
      return error(part, std::string(name) + " is for " + std::string(found->what) + " only");
    rule.action = found->action;
    const bool has_value = end != std::string_view::npos;
    if (has_value != (found->argument != Argument::kNone))
      return error(part,
                   std::string(name) +
                       (has_value ? " takes no value"
                                  : " needs a value: " + std::string(name) +
                                        (found->argument == Argument::kErrno ? "=EIO" : "=10")));
    if (found->argument == Argument::kNumber) {
      WEFT_TRY(rule.number,
               whole(trimmed(part.substr(end + 1)), found->action == Action::kTruncate));
      if (rule.action == Action::kDelay && (rule.number == 0 || rule.number > 1000000))
        return error(part, "a delay is 1 to 1000000 calls");
    } else if (found->argument == Argument::kErrno) {
      std::string_view value = trimmed(part.substr(end + 1));
      const std::string_view at = value;
      if (value.starts_with("FI_")) value.remove_prefix(3);
      const auto code = std::find_if(std::begin(kErrnos), std::end(kErrnos),
                                     [&](const ErrnoName &one) { return one.name == value; });
      if (code == std::end(kErrnos))
        return error(at, "unknown errno " + quoted(at) + "; known: " + list(std::span(kErrnos)));
      rule.number = static_cast<uint64_t>(code->code);
    }
    return rule;
  }

  const std::string_view text_;
};

}  // namespace

Result<Rules> parse_rules(std::string_view text) {
  return Parser(text).parse();
}

uint64_t mixed(uint64_t seed, uint64_t object, uint32_t operation, uint64_t call, uint32_t rule) {
  // One round of a multiply-xorshift mixer per word.
  uint64_t state = 0x243f6a8885a308d3;
  for (const uint64_t word : {seed, object, uint64_t{operation}, call, uint64_t{rule}}) {
    state ^= word;
    state = (state ^ (state >> 32)) * 0xd6e8feb86659fd93;
    state = (state ^ (state >> 29)) * 0xa0761d6478bd642f;
    state ^= state >> 32;
  }
  return state;
}

double chance(uint64_t seed, uint64_t object, uint32_t operation, uint64_t call, uint32_t rule) {
  return std::ldexp(static_cast<double>(mixed(seed, object, operation, call, rule) >> 11), -53);
}

}  // namespace weft::fault
