// SPDX-License-Identifier: BSD-2-Clause
#include "core/api/log.h"

#include <rdma/fi_errno.h>
#include <strings.h>
#include <unistd.h>
#include <weft/nearest.h>
#include <weft/printable.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "core/api/no_ops.h"

namespace weft {
namespace {

constexpr std::string_view kLevels[] = {"warn", "trace", "info", "debug"};
constexpr std::string_view kSubsystems[] = {"core", "fabric", "domain", "ep_ctrl", "ep_data",
                                            "av",   "cq",     "eq",     "mr",      "cntr"};
static_assert(std::size(kLevels) == FI_LOG_MAX);
static_assert(std::size(kSubsystems) == FI_LOG_SUBSYS_MAX);

constexpr const char *kCore = "core";

bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

template <size_t N>
int index_of(const std::string_view (&names)[N], std::string_view name) {
  for (size_t i = 0; i < N; i++) {
    if (same(names[i], name)) return static_cast<int>(i);
  }
  return -1;
}

template <size_t N>
std::string known(const std::string_view (&names)[N], std::string_view wrong) {
  std::string text = "known are";
  for (size_t i = 0; i < N; i++) text.append(i == 0 ? " " : ", ").append(names[i]);
  const std::string meant = nearest(wrong, names);
  if (!meant.empty()) text += "; did you mean \"" + meant + "\"?";
  return text;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// One write per line, so that lines of threads and processes that share stderr do not mix.
void to_stderr(std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return;  // nothing can be done about a closed stderr
    }
    line.remove_prefix(static_cast<size_t>(written));
  }
}

template <class T>
const char *index_name(const T &names, int index) {
  return index >= 0 && static_cast<size_t>(index) < std::size(names) ? names[index].data() : "?";
}

bool same_calls(const fi_ops_log &a, const fi_ops_log &b) {
  return a.size == b.size && a.enabled == b.enabled && a.ready == b.ready && a.log == b.log;
}

uint64_t now_ms() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

Log::Log(const Environment &environment, Sink sink)
    : sink_(sink ? std::move(sink) : Sink(to_stderr)),
      import_ops_{{.size = sizeof(fi_ops),
                   .close = close_import,
                   .bind = no_bind,
                   .control = no_control,
                   .ops_open = no_ops_open,
                   .tostr = plain_tostr,
                   .ops_set = no_ops_set},
                  this} {
  read_level(environment);
  read_subsystems(environment);
  read_interval(environment);
  providers_ = parse_names(environment.find("FI_LOG_PROV"));
}

void Log::read_level(const Environment &environment) {
  const std::string *value = environment.find("FI_LOG_LEVEL");
  if (value == nullptr || value->empty()) return;
  const int level = index_of(kLevels, *value);
  if (level >= 0) {
    level_ = level;
    return;
  }
  notice("FI_LOG_LEVEL=" + *value + ": unknown level; " + known(kLevels, *value) +
         "; as without the variable, nothing is logged but mistakes of the configuration");
}

void Log::read_interval(const Environment &environment) {
  const std::string *value = environment.find("FI_LOG_INTERVAL");
  if (value == nullptr || value->empty()) return;
  uint32_t milliseconds = 0;
  const char *end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, milliseconds);
  if (error == std::errc() && stop == end) {
    interval_ = std::chrono::milliseconds(milliseconds);
  } else {
    notice("FI_LOG_INTERVAL=" + *value + ": not a number of milliseconds; using " +
           std::to_string(interval_.count()));
  }
}

void Log::read_subsystems(const Environment &environment) {
  const NameFilter filter = parse_names(environment.find("FI_LOG_SUBSYS"));
  if (!filter.set) return;
  uint32_t named = 0;
  for (const std::string &name : filter.names) {
    const int index = index_of(kSubsystems, name);
    if (index >= 0) {
      named |= uint32_t{1} << index;
    } else {
      notice("FI_LOG_SUBSYS: unknown subsystem \"" + name + "\" is ignored; " +
             known(kSubsystems, name));
    }
  }
  // A list that has only mistakes must not silence the log.
  if (named != 0) subsystems_ = filter.exclude ? ~named : named;
}

Log::NameFilter Log::parse_names(const std::string *value) {
  NameFilter filter;
  if (value == nullptr) return filter;
  std::string_view rest = trimmed(*value);
  if (rest.starts_with('^')) {
    filter.exclude = true;
    rest.remove_prefix(1);
  }
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view name = trimmed(rest.substr(0, comma));
    if (!name.empty()) filter.names.emplace_back(name);
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  filter.set = !filter.names.empty();
  return filter;
}

bool Log::NameFilter::passes(std::string_view name, std::string_view other) const {
  if (!set) return true;
  for (const std::string &listed : names) {
    if (same(listed, name) || (!other.empty() && same(listed, other))) return !exclude;
  }
  return exclude;
}

bool Log::filter_passes(const char *provider, const char *also_known_as) const noexcept {
  return providers_.passes(provider != nullptr ? provider : kCore,
                           also_known_as != nullptr ? also_known_as : "");
}

const fi_provider *Log::provider_record(const char *provider) const {
  const std::string_view name = provider != nullptr ? provider : kCore;
  const std::lock_guard lock(mutex_);
  auto found = records_.find(name);
  if (found == records_.end()) {
    found = records_.emplace(name, fi_provider{}).first;
    found->second.name = found->first.c_str();
    found->second.fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
  }
  return &found->second;
}

bool Log::enabled(const char *provider, fi_log_level level, fi_log_subsys subsys,
                  const char *also_known_as) const noexcept try {
  if (const fi_ops_log *imported = imported_.load(std::memory_order_acquire)) {
    if (FI_CHECK_OP(imported, struct fi_ops_log, enabled)) {
      const uint64_t flags = filter_passes(provider, also_known_as) ? 0 : FI_LOG_PROV_FILTERED;
      return imported->enabled(provider_record(provider), level, subsys, flags) != 0;
    }
  }
  const auto bit = static_cast<unsigned>(subsys);
  return static_cast<int>(level) >= 0 && static_cast<int>(level) <= level_ && bit < 32 &&
         (subsystems_ >> bit & 1) != 0 && filter_passes(provider, also_known_as);
} catch (...) {
  return false;  // no memory for the provider's record
}

bool Log::ready(const char *provider, fi_log_level level, fi_log_subsys subsys,
                uint64_t *showtime) const noexcept try {
  if (const fi_ops_log *imported = imported_.load(std::memory_order_acquire)) {
    if (FI_CHECK_OP(imported, struct fi_ops_log, ready)) {
      const uint64_t flags = filter_passes(provider, nullptr) ? 0 : FI_LOG_PROV_FILTERED;
      return imported->ready(provider_record(provider), level, subsys, flags, showtime) != 0;
    }
  }
  if (!enabled(provider, level, subsys)) return false;
  if (showtime == nullptr) return true;
  const uint64_t now = now_ms();
  uint64_t next = __atomic_load_n(showtime, __ATOMIC_RELAXED);
  if (now < next) return false;
  // Of threads that arrive at the same time one logs.
  return __atomic_compare_exchange_n(showtime, &next,
                                     now + static_cast<uint64_t>(interval_.count()), false,
                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED);
} catch (...) {
  return false;
}

void Log::write(const char *provider, fi_log_level level, fi_log_subsys subsys, const char *func,
                int line, std::string_view text) noexcept try {
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::string clean;
  clean.reserve(text.size() + 128);
  if (const fi_ops_log *imported = imported_.load(std::memory_order_acquire)) {
    if (FI_CHECK_OP(imported, struct fi_ops_log, log)) {
      clean += printable(text);
      clean += '\n';
      imported->log(provider_record(provider), level, subsys, func != nullptr ? func : "", line,
                    clean.c_str());
      return;
    }
  }
  char prefix[256];
  std::snprintf(prefix, sizeof prefix, "libfabric:%d:%lld::%s:%s:%s():%d<%s> ",
                static_cast<int>(::getpid()), static_cast<long long>(std::time(nullptr)),
                provider != nullptr ? provider : kCore, index_name(kSubsystems, subsys),
                func != nullptr ? func : "", line, index_name(kLevels, level));
  clean += prefix;
  clean += printable(text);
  clean += '\n';
  sink_(clean);
} catch (...) {  // no memory: the line is lost
}

void Log::notice(std::string_view text) noexcept try {
  if (text.ends_with('\n')) text.remove_suffix(1);
  {
    const std::lock_guard lock(mutex_);
    if (!noticed_.emplace(text).second) return;
  }
  std::string line;
  if (const fi_ops_log *imported = imported_.load(std::memory_order_acquire);
      imported != nullptr && FI_CHECK_OP(imported, struct fi_ops_log, log)) {
    line += printable(text);
    line += '\n';
    imported->log(provider_record(kCore), FI_LOG_WARN, FI_LOG_CORE, "notice", 0, line.c_str());
    return;
  }
  line = "libfabric: ";
  line += printable(text);
  line += '\n';
  sink_(line);
} catch (...) {
}

void Log::say(fi_log_level level, fi_log_subsys subsys, const char *func, int line,
              std::string_view text) noexcept {
  if (enabled(nullptr, level, subsys)) write(nullptr, level, subsys, func, line, text);
}

int Log::import(struct fid_logging *logging) noexcept try {
  if (logging == nullptr || logging->fid.fclass != FI_CLASS_LOG || logging->ops == nullptr)
    return -FI_EINVAL;
  // A table of an older release is shorter: nothing behind it is read.
  fi_ops_log calls{};
  const size_t size = std::min(logging->ops->size, sizeof calls);
  std::memcpy(&calls, logging->ops, size);
  calls.size = size;
  const std::lock_guard lock(mutex_);
  auto copy = std::find_if(copies_.begin(), copies_.end(),
                           [&](const fi_ops_log &one) { return same_calls(one, calls); });
  if (copy == copies_.end()) copy = copies_.insert(copy, calls);
  import_ = &logging->fid;
  logging->fid.ops = &import_ops_.ops;
  imported_.store(&*copy, std::memory_order_release);
  return 0;
} catch (...) {
  return -FI_ENOMEM;
}

int Log::close_import(struct fid *fid) {
  Log &log = *container_of(fid->ops, ImportOps, ops)->log;
  const std::lock_guard lock(log.mutex_);
  if (log.import_ != fid) return 0;  // another log was imported later
  log.import_ = nullptr;
  log.imported_.store(nullptr, std::memory_order_release);
  return 0;
}

}  // namespace weft
