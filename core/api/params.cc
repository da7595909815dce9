// SPDX-License-Identifier: BSD-2-Clause
#include "core/api/params.h"

#include <rdma/fi_errno.h>
#include <strings.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>

namespace weft {
namespace {

bool same(std::string_view a, const char *b) {
  return a.size() == std::strlen(b) && ::strncasecmp(a.data(), b, a.size()) == 0;
}

// The whole text as an unsigned number, decimal or 0x...
std::optional<uint64_t> parse_digits(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  }
  uint64_t number = 0;
  const char *end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return number;
}

const char *type_name(fi_param_type type) {
  switch (type) {
    case FI_PARAM_STRING:
      return "a text";
    case FI_PARAM_INT:
      return "an integer";
    case FI_PARAM_BOOL:
      return "0/1, on/off, true/false or yes/no";
    case FI_PARAM_SIZE_T:
      return "a size, such as 4096 or 4K";
  }
  return "unknown";
}

}  // namespace

std::string variable_name(std::string_view provider, std::string_view name) {
  std::string variable = "FI_";
  if (!provider.empty() && provider != "core") variable.append(provider).append("_");
  variable.append(name);
  for (char &c : variable) {
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

Result<bool> parse_bool(std::string_view text) {
  for (const char *word : {"1", "yes", "true", "on"}) {
    if (same(text, word)) return true;
  }
  for (const char *word : {"0", "no", "false", "off"}) {
    if (same(text, word)) return false;
  }
  return fail(FI_EINVAL, "expected %s", type_name(FI_PARAM_BOOL));
}

Result<int> parse_int(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const auto digits = parse_digits(text);
  const uint64_t limit =
      static_cast<uint64_t>(std::numeric_limits<int>::max()) + (negative ? 1 : 0);
  if (!digits || *digits > limit) return fail(FI_EINVAL, "expected %s", type_name(FI_PARAM_INT));
  return static_cast<int>(negative ? -static_cast<int64_t>(*digits)
                                   : static_cast<int64_t>(*digits));
}

Result<size_t> parse_size(std::string_view text) {
  if (text == "-1") return SIZE_MAX;
  unsigned shift = 0;
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  if (!text.empty() && !hexadecimal) {
    switch (std::toupper(static_cast<unsigned char>(text.back()))) {
      case 'K':
        shift = 10;
        break;
      case 'M':
        shift = 20;
        break;
      case 'G':
        shift = 30;
        break;
      default:
        break;
    }
    if (shift != 0) text.remove_suffix(1);
  }
  const auto digits = parse_digits(text);
  if (!digits || *digits > (SIZE_MAX >> shift)) {
    return fail(FI_EINVAL, "expected %s", type_name(FI_PARAM_SIZE_T));
  }
  return static_cast<size_t>(*digits) << shift;
}

ParamTable::ParamTable(const Environment &environment,
                       std::function<void(std::string_view line)> notice)
    : environment_(environment), notice_(std::move(notice)) {}

int ParamTable::define(std::string_view provider, const char *name, fi_param_type type,
                       std::string help) {
  if (name == nullptr || *name == '\0' || help.empty()) return -FI_EINVAL;
  if (type < FI_PARAM_STRING || type > FI_PARAM_SIZE_T) return -FI_EINVAL;
  std::string variable = variable_name(provider, name);
  const std::lock_guard lock(mutex_);
  if (const auto found = by_variable_.find(variable); found != by_variable_.end()) {
    return found->second->type == type ? 0 : -FI_EINVAL;
  }
  const std::string *text = environment_.find(variable);
  auto &entry = defined_.emplace_back(
      std::make_unique<Defined>(Defined{std::move(variable), type, std::move(help), text}));
  by_variable_.emplace(entry->variable, entry.get());
  return 0;
}

int ParamTable::get(std::string_view provider, const char *name, void *value) {
  if (name == nullptr || value == nullptr) return -FI_EINVAL;
  const Defined *entry = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_variable_.find(variable_name(provider, name));
    if (found == by_variable_.end()) return -FI_ENOENT;
    entry = found->second;  // entries never go away
  }
  if (entry->text == nullptr) return -FI_ENODATA;
  const auto malformed = [&](const Error &error) {
    notice_(entry->variable + "=" + *entry->text + ": " + error.text + "; the value is ignored");
    return -FI_EINVAL;
  };
  switch (entry->type) {
    case FI_PARAM_STRING:
      *static_cast<const char **>(value) = entry->text->c_str();
      return 0;
    case FI_PARAM_INT: {
      const auto number = parse_int(*entry->text);
      if (!number) return malformed(number.error());
      *static_cast<int *>(value) = *number;
      return 0;
    }
    case FI_PARAM_BOOL: {
      const auto truth = parse_bool(*entry->text);
      if (!truth) return malformed(truth.error());
      *static_cast<int *>(value) = *truth ? 1 : 0;
      return 0;
    }
    case FI_PARAM_SIZE_T: {
      const auto size = parse_size(*entry->text);
      if (!size) return malformed(size.error());
      *static_cast<size_t *>(value) = *size;
      return 0;
    }
  }
  return -FI_EINVAL;
}

std::vector<ParamLine> ParamTable::lines() const {
  std::vector<ParamLine> lines;
  const std::lock_guard lock(mutex_);
  for (const auto &entry : defined_) {
    lines.push_back({entry->variable, entry->type, entry->help, entry->text != nullptr,
                     entry->text != nullptr ? *entry->text : std::string()});
  }
  return lines;
}

fi_param *make_param_array(const std::vector<ParamLine> &lines) noexcept {
  size_t size = sizeof(fi_param) * (lines.size() + 1);  // the last one is zero: an end mark
  for (const ParamLine &line : lines) {
    size +=
        line.variable.size() + 1 + line.help.size() + 1 + (line.is_set ? line.value.size() + 1 : 0);
  }
  auto *params = static_cast<fi_param *>(std::calloc(1, size));
  if (params == nullptr) return nullptr;
  char *text = reinterpret_cast<char *>(params + lines.size() + 1);
  const auto put = [&text](const std::string &string) {
    const char *start = text;
    std::memcpy(text, string.c_str(), string.size() + 1);
    text += string.size() + 1;
    return start;
  };
  for (size_t i = 0; i < lines.size(); i++) {
    params[i].name = put(lines[i].variable);
    params[i].type = lines[i].type;
    params[i].help_string = put(lines[i].help);
    if (lines[i].is_set) params[i].value = put(lines[i].value);
  }
  return params;
}

}  // namespace weft
