// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/params.h"

#include <strings.h>
#include <weft/nearest.h>
#include <weft/printable.h>

#include <charconv>
#include <optional>

#include "core/base/render.h"

namespace weft {
namespace {

std::string quoted(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string out = "\"" + printable(text.substr(0, kLongest));
  if (text.size() > kLongest) out += "...";
  return out + "\"";
}

tl::unexpected<Error> bad(std::string_view text, const std::string &expected) {
  return tl::unexpected<Error>(Error{FI_EINVAL, quoted(text) + " is not " + expected});
}

Result<ParamValue> parse_bool(std::string_view text) {
  static constexpr struct {
    std::string_view word;
    int64_t value;
  } kWords[] = {{"1", 1}, {"yes", 1}, {"true", 1},  {"on", 1},
                {"0", 0}, {"no", 0},  {"false", 0}, {"off", 0}};
  for (const auto &[word, value] : kWords) {
    if (word.size() == text.size() && strncasecmp(word.data(), text.data(), word.size()) == 0)
      return ParamValue{value, {}};
  }
  std::vector<std::string_view> words;
  for (const auto &[word, value] : kWords) words.push_back(word);
  const std::string close = text.size() > 1 ? nearest(text, words) : std::string();
  return bad(text, "a truth value: write yes or no" +
                       (close.empty() ? "" : "; did you mean \"" + close + "\"?"));
}

struct Number {
  int64_t value = 0;
  std::string_view rest;
};

// A decimal or (0x) hexadecimal number at the beginning of `text`.
std::optional<Number> leading_number(std::string_view text) {
  const bool negative = !text.empty() && text.front() == '-';
  std::string_view digits = text.substr(negative ? 1 : 0);
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) {
    base = 16;
    digits.remove_prefix(2);
  }
  uint64_t magnitude = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  if (error != std::errc{}) return std::nullopt;
  const uint64_t limit = static_cast<uint64_t>(INT64_MAX) + (negative ? 1 : 0);
  if (magnitude > limit) return std::nullopt;
  Number number;
  number.value = negative ? static_cast<int64_t>(0 - magnitude) : static_cast<int64_t>(magnitude);
  number.rest = digits.substr(static_cast<size_t>(end - digits.data()));
  return number;
}

bool is_limited(const ParamType &param) {
  return param.minimum != 0 || param.maximum != 0;
}

std::string range_of(const ParamType &param) {
  return std::to_string(param.minimum) + " to " + std::to_string(param.maximum);
}

Result<ParamValue> in_range(const ParamType &param, int64_t value, std::string_view text) {
  if (is_limited(param) && (value < param.minimum || value > param.maximum)) {
    return tl::unexpected<Error>(
        Error{FI_EINVAL, quoted(text) + " is out of range: " + range_of(param)});
  }
  return ParamValue{value, {}};
}

Result<ParamValue> parse_int(const ParamType &param, std::string_view text) {
  const std::optional<Number> number = leading_number(text);
  if (!number || !number->rest.empty())
    return bad(text, "an integer" + (is_limited(param) ? " from " + range_of(param) : ""));
  return in_range(param, number->value, text);
}

Result<ParamValue> parse_size(const ParamType &param, std::string_view text) {
  const std::optional<Number> number = leading_number(text);
  const std::string expected = "a size: write bytes, or K, M, G after the number (powers of 1024)" +
                               (is_limited(param) ? ", " + range_of(param) : "");
  if (!number || number->value < 0) return bad(text, expected);
  int shift = 0;
  if (number->rest.size() == 1) {
    switch (number->rest.front()) {
      case 'K':
      case 'k':
        shift = 10;
        break;
      case 'M':
      case 'm':
        shift = 20;
        break;
      case 'G':
      case 'g':
        shift = 30;
        break;
      default:
        return bad(text, expected);
    }
  } else if (!number->rest.empty()) {
    return bad(text, expected);
  }
  if (number->value > (INT64_MAX >> shift)) return bad(text, "a size below 8 EiB");
  return in_range(param, number->value << shift, text);
}

Result<ParamValue> parse_list(std::string_view text) {
  if (text.empty()) return ParamValue{};
  size_t column = 0;
  for (std::string_view rest = text;;) {
    const size_t end = rest.find(',');
    const std::string_view entry = rest.substr(0, end);
    const std::string where = ": entry at column " + std::to_string(column + 1);
    if (entry.empty()) return bad(text, "a list" + where + " is empty");
    if (entry.front() == ' ' || entry.back() == ' ')
      return bad(text, "a list" + where + " has blanks around it");
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
    column += end + 1;
  }
  return ParamValue{0, std::string(text)};
}

}  // namespace

std::string_view type_name(uint32_t type) {
  switch (type) {
    case WEFT_TYPE_BOOL:
      return "bool";
    case WEFT_TYPE_INT:
      return "int";
    case WEFT_TYPE_SIZE:
      return "size";
    case WEFT_TYPE_STRING:
      return "string";
    case WEFT_TYPE_LIST:
      return "list";
    default:
      return "unknown type";
  }
}

Result<ParamValue> parse_param(const ParamType &param, std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return bad(text, "text without NUL bytes");
  switch (param.type) {
    case WEFT_TYPE_BOOL:
      return parse_bool(text);
    case WEFT_TYPE_INT:
      return parse_int(param, text);
    case WEFT_TYPE_SIZE:
      return parse_size(param, text);
    case WEFT_TYPE_STRING:
      return ParamValue{0, std::string(text)};
    case WEFT_TYPE_LIST:
      return parse_list(text);
    default:
      return fail(FI_EINVAL, "declared with unknown type %u (a fault of the plugin)", param.type);
  }
}

Result<ParamSet> resolve_params(std::string_view unit_name, const weft_unit &unit,
                                const std::vector<Setting> &settings) {
  const std::string owner(unit_name);
  std::vector<std::string> names;
  for (uint32_t i = 0; i < unit.param_count; ++i) names.emplace_back(unit.params[i]->name);

  std::vector<const Setting *> chosen(unit.param_count);
  for (const Setting &setting : settings) {
    size_t index = 0;
    while (index < names.size() && names[index] != setting.key) ++index;
    if (index == names.size()) {
      const std::string close = nearest(setting.key, names);
      return fail(FI_EINVAL, "%s has no parameter %s (%s)%s%s%s", owner.c_str(),
                  quoted(setting.key).c_str(), text_of(setting.where).c_str(),
                  close.empty() ? "" : ": did you mean \"", close.c_str(),
                  close.empty() ? "" : "\"?");
    }
    const weft_param &param = *unit.params[index];
    const Result<ParamValue> value =
        parse_param({param.type, param.name, param.minimum, param.maximum}, setting.value);
    if (!value) {
      return fail(FI_EINVAL, "%s: parameter %s: %s (%s)", owner.c_str(), param.name,
                  value.error().text.c_str(), text_of(setting.where).c_str());
    }
    chosen[index] = &setting;
  }

  ParamSet set;
  for (uint32_t i = 0; i < unit.param_count; ++i) {
    const weft_param &param = *unit.params[i];
    weft_value value{};
    value.struct_size = sizeof value;
    value.type = param.type;
    value.is_default = chosen[i] == nullptr;
    const char *text = chosen[i] != nullptr ? chosen[i]->value.c_str() : param.default_value;
    if (text != nullptr) {
      Result<ParamValue> parsed =
          parse_param({param.type, param.name, param.minimum, param.maximum}, text);
      if (!parsed) {
        return fail(FI_EINVAL, "%s: default of parameter %s: %s (a fault of the plugin)",
                    owner.c_str(), param.name, parsed.error().text.c_str());
      }
      value.number = parsed->number;
      if (param.type == WEFT_TYPE_STRING || param.type == WEFT_TYPE_LIST)
        value.string_core = set.texts_.emplace_back(std::move(parsed->text)).c_str();
    }
    value.origin_core = chosen[i] != nullptr
                            ? set.texts_.emplace_back(text_of(chosen[i]->where)).c_str()
                            : "default";
    set.values_.push_back(value);
  }
  return set;
}

}  // namespace weft
