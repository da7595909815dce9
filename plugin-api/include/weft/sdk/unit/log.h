// SPDX-License-Identifier: BSD-2-Clause
// Log lines of a unit, through the core's filter (FI_LOG_LEVEL, FI_LOG_SUBSYS, FI_LOG_PROV).
//
// Example:
//    void no_answer(const weft_instance *instance, const char *peer, int ms) {
//      WEFT_WARN(instance, FI_LOG_EP_CTRL, "connect %s: no answer in %d ms", peer, ms);
//      WEFT_INFO(instance, FI_LOG_CORE, "trying the next address");
//    }
//
// Arguments are evaluated only if the line will be shown. No newline at the end. errno survives.
// Log a fault once, where it is detected: a function that returns an error to its caller does not
// log it as well.
#ifndef WEFT_SDK_UNIT_LOG_H
#define WEFT_SDK_UNIT_LOG_H

#include <rdma/providers/fi_log.h>
#include <weft/plugin.h>

namespace weft::sdk {

inline bool log_enabled(const weft_instance *instance, enum fi_log_level level,
                        enum fi_log_subsys subsys) {
  return instance->core->log_enabled(instance, level, subsys) != 0;
}

// Writes the line without asking the filter; cut after a kilobyte.
__attribute__((format(printf, 6, 7))) void log_line(const weft_instance *instance,
                                                    enum fi_log_level level,
                                                    enum fi_log_subsys subsys, const char *func,
                                                    int line, const char *format, ...) noexcept;

}  // namespace weft::sdk

#define WEFT_LOG(instance, level, subsys, ...)                                              \
  do {                                                                                      \
    const weft_instance *const weft_log_ = (instance);                                      \
    if (::weft::sdk::log_enabled(weft_log_, (level), (subsys))) {                           \
      ::weft::sdk::log_line(weft_log_, (level), (subsys), __func__, __LINE__, __VA_ARGS__); \
    }                                                                                       \
  } while (false)

#define WEFT_WARN(instance, subsys, ...) WEFT_LOG(instance, FI_LOG_WARN, subsys, __VA_ARGS__)
#define WEFT_TRACE(instance, subsys, ...) WEFT_LOG(instance, FI_LOG_TRACE, subsys, __VA_ARGS__)
#define WEFT_INFO(instance, subsys, ...) WEFT_LOG(instance, FI_LOG_INFO, subsys, __VA_ARGS__)
#define WEFT_DEBUG(instance, subsys, ...) WEFT_LOG(instance, FI_LOG_DEBUG, subsys, __VA_ARGS__)

#endif
