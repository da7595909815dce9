// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/index.h"

#include <array>
#include <charconv>
#include <filesystem>
#include <limits>

#include "core/loader/descriptor.h"

namespace weft {
namespace {

constexpr std::string_view kMagic = "weft-index";
constexpr uint32_t kFormat = 3;
constexpr std::array<std::string_view, 4> kVerdicts = {"unprobed", "ok", "rejected", "quarantined"};

std::string core_abi() {
  return std::to_string(WEFT_ABI_MAJOR) + "." + std::to_string(WEFT_ABI_MINOR);
}

void append_field(std::string &out, std::string_view text) {
  out += '\t';
  for (char c : text) switch (c) {
      case '\t':
        out += "\\t";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\0':
        break;
      default:
        out += c;
    }
}

template <class T>
requires std::is_integral_v<T>
void append_field(std::string &out, T number) {
  out += '\t';
  out += std::to_string(number);
}

template <class... Fields>
void append_line(std::string &out, std::string_view word, const Fields &...fields) {
  out += word;
  (append_field(out, fields), ...);
  out += '\n';
}

std::string relative_to(const std::string &path, const std::string &folder) {
  if (path.empty() || folder.empty()) return path;
  std::string relative = std::filesystem::path(path).lexically_relative(folder);
  return relative.empty() ? path : relative;
}

std::string resolve(const std::string &path, const std::string &folder) {
  if (path.empty()) return path;
  return (std::filesystem::path(folder) / path).lexically_normal();  // an absolute path stays one
}

// One line, cut into fields one after the other. The first fault sticks.
class Fields {
 public:
  explicit Fields(std::string_view line) : rest_(line) {}

  std::string_view word() {
    if (ended_) bad_ = true;
    const size_t tab = rest_.find('\t');
    std::string_view field = rest_.substr(0, tab);
    if (tab == std::string_view::npos)
      ended_ = true;
    else
      rest_.remove_prefix(tab + 1);
    return bad_ ? std::string_view() : field;
  }

  std::string text() {
    std::string out;
    const std::string_view field = word();
    for (size_t i = 0; i < field.size(); ++i) {
      if (field[i] != '\\') {
        if (field[i] == '\0') bad_ = true;
        out += field[i];
        continue;
      }
      const char next = ++i < field.size() ? field[i] : '\0';
      if (next == 't')
        out += '\t';
      else if (next == 'n')
        out += '\n';
      else if (next == '\\')
        out += '\\';
      else
        bad_ = true;
    }
    return out;
  }

  template <class T>
  void number(T &out, T least, T most) {
    const std::string_view field = word();
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), out);
    if (error != std::errc() || end != field.data() + field.size() || out < least || out > most)
      bad_ = true;
  }
  template <class T>
  void number(T &out) {
    number(out, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }

  void refuse() { bad_ = true; }
  bool good() const { return ended_ && !bad_; }

 private:
  std::string_view rest_;
  bool ended_ = false, bad_ = false;
};

class Parser {
 public:
  Parser(std::string_view text, const std::string &folder) : text_(text), folder_(folder) {}

  Result<Index> run() {
    if (text_.size() > kMaxIndexSize)
      return fail(FI_E2BIG, "the index has %zu bytes, at most %zu are read", text_.size(),
                  kMaxIndexSize);
    size_t expected = 0;
    bool ended = false;
    while (!text_.empty()) {
      const size_t newline = text_.find('\n');
      ++line_;
      if (newline == std::string_view::npos) return refuse("has no end");
      Fields fields(text_.substr(0, newline));
      text_.remove_prefix(newline + 1);
      const std::string_view word = fields.word();
      if (ended) return refuse("stands after the end");
      if (line_ == 1) {
        WEFT_CHECK(header(word, fields, expected));
        continue;
      }
      if (word == "end") {
        ended = true;
      } else if (!record_line(word, fields)) {
        return refuse("is not understood");
      }
      if (!fields.good()) return refuse("has a bad value or a wrong number of fields");
    }
    if (!ended || index_.plugins.size() != expected)
      return fail(FI_EINVAL, "the index is cut short: it has %zu of %zu plugins",
                  index_.plugins.size(), expected);
    return std::move(index_);
  }

 private:
  tl::unexpected<Error> refuse(const char *what) const {
    return fail(FI_EINVAL, "line %zu of the index %s", line_, what);
  }

  Result<void> header(std::string_view word, Fields &fields, size_t &expected) {
    if (word != kMagic) return fail(FI_EINVAL, "not an index: it does not begin with weft-index");
    uint32_t version = 0;
    fields.number(version);
    const std::string abi = fields.text();
    if (version != kFormat || abi != core_abi())
      return fail(FI_EINVAL,
                  "the index is of format %u for ABI %s; this core writes format %u for %s",
                  version, abi.c_str(), kFormat, core_abi().c_str());
    fields.number(index_.manifests_mtime_ns);
    fields.number(expected, size_t{0}, kMaxIndexPlugins);
    if (!fields.good()) return refuse("has a bad value or a wrong number of fields");
    return {};
  }

  bool record_line(std::string_view word, Fields &fields) {
    if (word == "plugin") return plugin(fields);
    if (index_.plugins.empty()) return false;
    PluginRecord &record = index_.plugins.back();
    if (word == "verdict") return verdict(fields, record);
    if (word == "retry") return retry(fields, record);
    if (word == "about") return about(fields, record);
    if (word == "unit") return unit(fields, record);
    if (record.units.empty()) return false;
    if (word == "device") {
      record.units.back().devices.push_back(fields.text());
      return record.units.back().devices.size() <= kMaxDevices;
    }
    if (word == "device_remedy") {
      record.units.back().device_remedy = fields.text();
      return true;
    }
    return word == "param" && param(fields, record.units.back());
  }

  bool plugin(Fields &fields) {
    if (index_.plugins.size() == kMaxIndexPlugins) return false;
    PluginRecord &record = index_.plugins.emplace_back();
    record.library = resolve(fields.text(), folder_);
    fields.number(record.library_stamp.size);
    fields.number(record.library_stamp.mtime_ns);
    record.manifest = resolve(fields.text(), folder_);
    fields.number(record.manifest_stamp.size);
    fields.number(record.manifest_stamp.mtime_ns);
    return !record.library.empty();
  }

  static bool verdict(Fields &fields, PluginRecord &record) {
    const std::string_view word = fields.word();
    size_t i = 0;
    while (i < kVerdicts.size() && kVerdicts[i] != word) ++i;
    if (i == kVerdicts.size()) return false;
    record.verdict = static_cast<Verdict>(i);
    if (!stage_from_name(fields.word(), record.rejection.stage)) return false;
    record.rejection.cause = fields.text();
    record.rejection.remedy = fields.text();
    record.rejection.misbehaved = record.verdict == Verdict::kQuarantined;
    return true;
  }

  static bool retry(Fields &fields, PluginRecord &record) {
    fields.number(record.failures, 1u, std::numeric_limits<uint32_t>::max());
    fields.number(record.retry_at, int64_t{1}, std::numeric_limits<int64_t>::max());
    record.rejection.passing = true;
    return record.verdict == Verdict::kQuarantined;
  }

  static bool about(Fields &fields, PluginRecord &record) {
    if (!record.name.empty()) return false;
    record.name = fields.text();
    record.vendor = fields.text();
    record.version = fields.text();
    record.license = fields.text();
    record.support = fields.text();
    fields.number(record.abi_major);
    fields.number(record.abi_minor);
    fields.number(record.min_core_minor);
    return valid_name(record.name, true);
  }

  static bool unit(Fields &fields, PluginRecord &record) {
    if (record.name.empty() || record.units.size() == WEFT_MAX_UNITS) return false;
    UnitInfo &unit = record.units.emplace_back();
    unit.plugin = record.name;
    unit.vendor = record.vendor;
    unit.plugin_version = record.version;
    unit.license = record.license;
    unit.support = record.support;
    unit.library = record.library;
    unit.manifest = record.manifest;
    fields.number(unit.kind, uint32_t{WEFT_KIND_PROVIDER}, uint32_t{WEFT_KIND_HOOK});
    unit.name = fields.text();
    unit.ofi_name = fields.text();
    fields.number(unit.version);
    fields.number(unit.needs_ep);
    fields.number(unit.inner_min, 0u, uint32_t{WEFT_MAX_INNER});
    fields.number(unit.inner_max, 0u, uint32_t{WEFT_MAX_INNER});
    fields.number(unit.offers_ep);
    fields.number(unit.rank);
    fields.number(unit.maturity, uint32_t{WEFT_MATURITY_STABLE},
                  uint32_t{WEFT_MATURITY_EXPERIMENTAL});
    fields.number(unit.security, uint32_t{WEFT_SECURITY_NO_NETWORK},
                  uint32_t{WEFT_SECURITY_TRUSTED_PEERS});
    unit.summary = fields.text();
    return valid_name(unit.name, true) && valid_name(unit.ofi_name, true) &&
           unit.inner_min <= unit.inner_max;
  }

  static bool param(Fields &fields, UnitInfo &unit) {
    if (unit.params.size() == kMaxParams) return false;
    ParamInfo &param = unit.params.emplace_back();
    uint32_t has_default = 0;
    fields.number(param.type, uint32_t{WEFT_TYPE_BOOL}, uint32_t{WEFT_TYPE_LIST});
    param.name = fields.text();
    fields.number(has_default, 0u, 1u);
    param.default_value = fields.text();
    fields.number(param.minimum);
    fields.number(param.maximum);
    param.help = fields.text();
    param.has_default = has_default == 1;
    return valid_name(param.name, false) && param.minimum <= param.maximum;
  }

  std::string_view text_;
  const std::string &folder_;
  size_t line_ = 0;
  Index index_;
};

}  // namespace

Result<Index> parse_index(std::string_view text, const std::string &folder) {
  return Parser(text, folder).run();
}

std::string write_index(const Index &index, const std::string &folder) {
  std::string out;
  append_line(out, kMagic, kFormat, core_abi(), index.manifests_mtime_ns, index.plugins.size());
  for (const PluginRecord &record : index.plugins) {
    append_line(out, "plugin", relative_to(record.library, folder), record.library_stamp.size,
                record.library_stamp.mtime_ns, relative_to(record.manifest, folder),
                record.manifest_stamp.size, record.manifest_stamp.mtime_ns);
    append_line(out, "verdict", kVerdicts[static_cast<size_t>(record.verdict)],
                stage_name(record.rejection.stage), record.rejection.cause,
                record.rejection.remedy);
    if (record.verdict == Verdict::kQuarantined && record.retry_at > 0)
      append_line(out, "retry", record.failures, record.retry_at);
    if (record.name.empty()) continue;
    append_line(out, "about", record.name, record.vendor, record.version, record.license,
                record.support, record.abi_major, record.abi_minor, record.min_core_minor);
    for (const UnitInfo &unit : record.units) {
      append_line(out, "unit", unit.kind, unit.name, unit.ofi_name, unit.version, unit.needs_ep,
                  unit.inner_min, unit.inner_max, unit.offers_ep, unit.rank, unit.maturity,
                  unit.security, unit.summary);
      for (const std::string &device : unit.devices) append_line(out, "device", device);
      if (!unit.device_remedy.empty()) append_line(out, "device_remedy", unit.device_remedy);
      for (const ParamInfo &param : unit.params)
        append_line(out, "param", param.type, param.name, int{param.has_default},
                    param.default_value, param.minimum, param.maximum, param.help);
    }
  }
  append_line(out, "end");
  return out;
}

bool stage_from_name(std::string_view name, Stage &stage) {
  for (int i = 0; i <= static_cast<int>(Stage::kSelected); ++i)
    if (stage_name(static_cast<Stage>(i)) == name) {
      stage = static_cast<Stage>(i);
      return true;
    }
  return false;
}

}  // namespace weft
