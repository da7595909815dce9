// SPDX-License-Identifier: BSD-2-Clause
// The functions that libfabric.so.1 exports, and nothing else. Each checks the arguments that every
// implementation must check, turns exceptions into errnos, and calls a part of the process object.
// Callers of old symbol versions have shorter structs, see core/base/info.h. Which version has
// which layout: core/install/libfabric.map.
#pragma GCC visibility push(default)
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#pragma GCC visibility pop

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "core/api/named_objects.h"
#include "core/api/process.h"
#include "core/base/guarded_call.h"
#include "core/base/info.h"
#include "core/base/tostr.h"

namespace weft {
namespace {

constexpr uint32_t kApiVersion = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);

// Runs the body of an exported function. An exception becomes an errno; the log gets its text.
template <class F>
int exported(F body) noexcept {
  return guarded(body, [](int error, const char *text) {
    if (error != FI_ENOMEM) process().log.say(FI_LOG_WARN, FI_LOG_CORE, "guarded", __LINE__, text);
    return -error;
  });
}

// No address of any format is longer. What claims to be is read far beyond its memory.
constexpr size_t kLongestAddress = 4096;

bool is_address(const char *name, const void *address, size_t length) {
  if (address == nullptr || length <= kLongestAddress) return true;
  process().log.say(FI_LOG_WARN, FI_LOG_CORE, "fi_getinfo", __LINE__,
                    std::string("hints.") + name + "len is " + std::to_string(length) +
                        ": no address is longer than " + std::to_string(kLongestAddress) +
                        " bytes");
  return false;
}
bool has_addresses(const fi_info &hints) {
  return is_address("src_addr", hints.src_addr, hints.src_addrlen) &&
         is_address("dest_addr", hints.dest_addr, hints.dest_addrlen);
}

int getinfo(InfoLayout layout, uint32_t version, const char *node, const char *service,
            uint64_t flags, const fi_info *hints, fi_info **info) {
  if (info == nullptr) return -FI_EINVAL;
  *info = nullptr;
  return exported([&] {
    if (FI_VERSION_LT(kApiVersion, version)) {
      process().log.say(FI_LOG_WARN, FI_LOG_CORE, "fi_getinfo", __LINE__,
                        "the application asks for API " + std::to_string(FI_MAJOR(version)) + "." +
                            std::to_string(FI_MINOR(version)) + ", this library has " +
                            std::to_string(FI_MAJOR_VERSION) + "." +
                            std::to_string(FI_MINOR_VERSION) + ": install a newer library");
      return -FI_ENOSYS;
    }
    if (hints != nullptr && !has_addresses(*hints)) return -FI_EINVAL;
    InfoPtr widened;
    if (hints != nullptr && layout != InfoLayout::kNewest) {
      widened.reset(dup_info(hints, layout));
      if (widened == nullptr) return -FI_ENOMEM;
      hints = widened.get();
    }
    fi_info *list = nullptr;
    const int ret = process().front.getinfo(version, node, service, flags, hints, &list);
    if (ret != 0) {
      free_info(list);
      return ret;
    }
    hide_newer(list, layout);
    *info = list;
    return 0;
  });
}

int fabric(InfoLayout layout, const fi_fabric_attr *attr, fid_fabric **out, void *context) {
  if (attr == nullptr || out == nullptr) return -FI_EINVAL;
  *out = nullptr;
  return exported([&] {
    fi_fabric_attr full = widen(*attr, layout);
    const int ret = process().front.fabric(&full, nullptr, 0, out, context);
    if (ret == 0) process().fabric_opened();
    return ret;
  });
}

std::string source_name(const fi_provider *provider) {
  return provider != nullptr && provider->name != nullptr ? provider->name : "core";
}

}  // namespace
}  // namespace weft

// Exports an implementation as a versioned symbol: "@" is an old one, "@@" the one for new
// programs.
#define WEFT_SYMVER(implementation, symbol) __asm__(".symver " #implementation "," symbol)

// One name cannot be defined seven times, so each implementation has its own name.
#define WEFT_EXPORTED extern "C" __attribute__((visibility("default"), used))

#define WEFT_INFO_FUNCTIONS(suffix, layout, at, version)                                        \
  WEFT_EXPORTED int weft_getinfo_##suffix(uint32_t api_version, const char *node,               \
                                          const char *service, uint64_t flags,                  \
                                          const struct fi_info *hints, struct fi_info **info);  \
  WEFT_EXPORTED int weft_getinfo_##suffix(uint32_t api_version, const char *node,               \
                                          const char *service, uint64_t flags,                  \
                                          const struct fi_info *hints, struct fi_info **info) { \
    return weft::getinfo(layout, api_version, node, service, flags, hints, info);               \
  }                                                                                             \
  WEFT_EXPORTED void weft_freeinfo_##suffix(struct fi_info *info);                              \
  WEFT_EXPORTED void weft_freeinfo_##suffix(struct fi_info *info) {                             \
    weft::free_info(info, layout);                                                              \
  }                                                                                             \
  WEFT_EXPORTED struct fi_info *weft_dupinfo_##suffix(const struct fi_info *info);              \
  WEFT_EXPORTED struct fi_info *weft_dupinfo_##suffix(const struct fi_info *info) {             \
    return weft::dup_info(info, layout);                                                        \
  }                                                                                             \
  WEFT_SYMVER(weft_getinfo_##suffix, "fi_getinfo" at version);                                  \
  WEFT_SYMVER(weft_freeinfo_##suffix, "fi_freeinfo" at version);                                \
  WEFT_SYMVER(weft_dupinfo_##suffix, "fi_dupinfo" at version)

WEFT_INFO_FUNCTIONS(1_0, weft::InfoLayout::kFabric1_0, "@", "FABRIC_1.0");
WEFT_INFO_FUNCTIONS(1_1, weft::InfoLayout::kFabric1_1, "@", "FABRIC_1.1");
WEFT_INFO_FUNCTIONS(1_2, weft::InfoLayout::kFabric1_2, "@", "FABRIC_1.2");
WEFT_INFO_FUNCTIONS(1_3, weft::InfoLayout::kFabric1_3, "@", "FABRIC_1.3");
WEFT_INFO_FUNCTIONS(1_7, weft::InfoLayout::kFabric1_7, "@", "FABRIC_1.7");
WEFT_INFO_FUNCTIONS(1_8, weft::InfoLayout::kFabric1_8, "@", "FABRIC_1.8");
WEFT_INFO_FUNCTIONS(1_9, weft::InfoLayout::kFabric1_9, "@@", "FABRIC_1.9");

WEFT_EXPORTED int weft_fabric_1_0(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
                                  void *context);
WEFT_EXPORTED int weft_fabric_1_0(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
                                  void *context) {
  return weft::fabric(weft::InfoLayout::kFabric1_0, attr, fabric, context);
}
WEFT_SYMVER(weft_fabric_1_0, "fi_fabric@FABRIC_1.0");

WEFT_EXPORTED int weft_fabric_1_1(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
                                  void *context);
WEFT_EXPORTED int weft_fabric_1_1(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
                                  void *context) {
  return weft::fabric(weft::InfoLayout::kFabric1_1, attr, fabric, context);
}
WEFT_SYMVER(weft_fabric_1_1, "fi_fabric@@FABRIC_1.1");

// ---- symbols with one version: the map gives it ----

// Exists since FABRIC_1.8 and was not versioned again when 1.9 made domain_attr longer: read no
// more than 1.8 has.
int fi_fabric2(struct fi_info *info, struct fid_fabric **fabric, uint64_t flags, void *context) {
  if (info == nullptr || info->fabric_attr == nullptr || fabric == nullptr) return -FI_EINVAL;
  *fabric = nullptr;
  return weft::exported([&] {
    const weft::InfoPtr widened(weft::dup_info(info, weft::InfoLayout::kFabric1_8));
    if (widened == nullptr) return -FI_ENOMEM;
    weft::Process &process = weft::process();
    const int ret =
        process.front.fabric(widened->fabric_attr, widened.get(), flags, fabric, context);
    if (ret == 0) process.fabric_opened();
    return ret;
  });
}

uint32_t fi_version(void) {
  return weft::kApiVersion;
}

const char *fi_strerror(int errnum) {
  return weft::error_text(errnum);
}

char *fi_tostr_r(char *buf, size_t len, const void *data, enum fi_type datatype) {
  weft::to_text(data, datatype, buf, len);
  return buf;
}

char *fi_tostr(const void *data, enum fi_type datatype) {
  // One per thread, so that threads do not overwrite each other's text. Made when needed. A whole
  // fi_info takes about 4 KiB.
  constexpr size_t kSize = 8192;
  static thread_local std::unique_ptr<char[]> buffer;
  if (buffer == nullptr) buffer.reset(new (std::nothrow) char[kSize]);
  if (buffer == nullptr) {
    static char no_memory[] = "(no memory)";
    return no_memory;
  }
  return fi_tostr_r(buffer.get(), kSize, data, datatype);
}

int fi_log_enabled(const struct fi_provider *prov, enum fi_log_level level,
                   enum fi_log_subsys subsys) {
  return weft::exported([&] {
           return weft::process().log.enabled(prov ? prov->name : nullptr, level, subsys) ? 1 : 0;
         }) == 1;
}

int fi_log_ready(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys,
                 uint64_t *showtime) {
  return weft::exported([&] {
           return weft::process().log.ready(prov ? prov->name : nullptr, level, subsys, showtime)
                      ? 1
                      : 0;
         }) == 1;
}

void fi_log(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys,
            const char *func, int line, const char *fmt, ...) {
  if (fmt == nullptr) return;
  va_list args;
  va_start(args, fmt);
  weft::exported([&] {
    char text[1024];
    va_list again;
    va_copy(again, args);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it does not see va_start outside
    const int length = std::vsnprintf(text, sizeof text, fmt, args);
    std::string longer;
    const char *shown = text;
    if (length >= static_cast<int>(sizeof text)) {
      longer.resize(static_cast<size_t>(length));
      std::vsnprintf(longer.data(), longer.size() + 1, fmt, again);
      shown = longer.c_str();
    }
    va_end(again);
    if (length >= 0)
      weft::process().log.write(prov ? prov->name : nullptr, level, subsys, func, line, shown);
    return 0;
  });
  va_end(args);
}

int fi_param_define(const struct fi_provider *provider, const char *param_name,
                    enum fi_param_type type, const char *help_string_fmt, ...) {
  if (help_string_fmt == nullptr) return -FI_EINVAL;
  va_list args;
  va_start(args, help_string_fmt);
  const int ret = weft::exported([&] {
    va_list again;
    va_copy(again, args);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it does not see va_start outside
    const int length = std::vsnprintf(nullptr, 0, help_string_fmt, args);
    std::string help(length > 0 ? static_cast<size_t>(length) : 0, '\0');
    if (length > 0) std::vsnprintf(help.data(), help.size() + 1, help_string_fmt, again);
    va_end(again);
    return weft::process().params.define(weft::source_name(provider), param_name, type,
                                         std::move(help));
  });
  va_end(args);
  return ret;
}

int fi_param_get(struct fi_provider *provider, const char *param_name, void *value) {
  return weft::exported(
      [&] { return weft::process().params.get(weft::source_name(provider), param_name, value); });
}

int fi_getparams(struct fi_param **params, int *count) {
  if (params == nullptr || count == nullptr) return -FI_EINVAL;
  *params = nullptr;
  *count = 0;
  return weft::exported([&] {
    const std::vector<weft::ParamLine> lines = weft::process().parameters();
    *params = weft::make_param_array(lines);
    if (*params == nullptr) return -FI_ENOMEM;
    *count = static_cast<int>(lines.size());
    return 0;
  });
}

void fi_freeparams(struct fi_param *params) {
  std::free(params);
}

int fi_open(uint32_t version, const char *name, void *attr, size_t attr_len, uint64_t flags,
            struct fid **fid, void *context) {
  return weft::exported([&] {
    return weft::open_named(weft::process(), version, name, attr, attr_len, flags, fid, context);
  });
}
