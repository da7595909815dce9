// SPDX-License-Identifier: BSD-2-Clause
//
// Logging for providers through the core: one line, by provider, level and subsystem, filtered by
// FI_LOG_LEVEL, FI_LOG_SUBSYS and FI_LOG_PROV, to stderr or to what fi_import_log installed.
// See fi_provider(3) and fabric(7).
//
// Example:
//    #include <rdma/providers/fi_prov.h>
//    static void complain(const struct fi_provider *me, const char *peer, int ms) {
//      FI_WARN(me, FI_LOG_EP_CTRL, "connect to %s: no answer in %d ms\n", peer, ms);
//    }
//
// Not for reporting errors to the caller: return a negative errno as well.

#ifndef FI_LOG_H
#define FI_LOG_H

#include <errno.h>
#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The part of a provider that speaks.
enum fi_log_subsys {
  FI_LOG_CORE,       // start-up, fi_getinfo, all that has no object yet
  FI_LOG_FABRIC,     // fabrics
  FI_LOG_DOMAIN,     // domains
  FI_LOG_EP_CTRL,    // endpoints: open, bind, connect, options
  FI_LOG_EP_DATA,    // endpoints: data transfers
  FI_LOG_AV,         // address vectors
  FI_LOG_CQ,         // completion queues
  FI_LOG_EQ,         // event queues
  FI_LOG_MR,         // memory regions
  FI_LOG_CNTR,       // counters
  FI_LOG_SUBSYS_MAX  // their number, as in 1.17
};

// From always worth reading to very many. FI_LOG_LEVEL shows its own level and those before it.
enum fi_log_level {
  FI_LOG_WARN,   // a fault that the user should know of
  FI_LOG_TRACE,  // which calls are made
  FI_LOG_INFO,   // what was chosen, and why
  FI_LOG_DEBUG,  // everything; compiled in with ENABLE_DEBUG only
  FI_LOG_MAX     // their number, as in 1.17
};

// 1 if such a line would be shown, else 0.
int fi_log_enabled(const struct fi_provider *prov, enum fi_log_level level,
                   enum fi_log_subsys subsys);

// As fi_log_enabled, and at most once in a while: *showtime, zero at first, is when this place in
// the code may speak next, in milliseconds of the library's clock.
int fi_log_ready(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys,
                 uint64_t *showtime);

// Writes the line without asking the filter. `fmt` ends in a newline.
void fi_log(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys,
            const char *func, int line, const char *fmt, ...) FI_FORMAT_PRINTF(6, 7);

// Writes where `condition` holds. A log line must not change what the caller's error path reads,
// so errno survives it.
#define FI_LOG_IF_(condition, prov, level, subsystem, ...)             \
  do {                                                                 \
    if (condition) {                                                   \
      int fi_log_errno_ = errno;                                       \
      fi_log(prov, level, subsystem, __func__, __LINE__, __VA_ARGS__); \
      errno = fi_log_errno_;                                           \
    }                                                                  \
  } while (0)

#define FI_LOG(prov, level, subsystem, ...) \
  FI_LOG_IF_(fi_log_enabled(prov, level, subsystem), prov, level, subsystem, __VA_ARGS__)

// At most one line per interval from this place in the code.
#define FI_LOG_SPARSE(prov, level, subsystem, ...)                                              \
  do {                                                                                          \
    static uint64_t fi_log_showtime_;                                                           \
    FI_LOG_IF_(fi_log_ready(prov, level, subsystem, &fi_log_showtime_), prov, level, subsystem, \
               __VA_ARGS__);                                                                    \
  } while (0)

#define FI_WARN(prov, subsystem, ...) FI_LOG(prov, FI_LOG_WARN, subsystem, __VA_ARGS__)
#define FI_WARN_SPARSE(prov, subsystem, ...) \
  FI_LOG_SPARSE(prov, FI_LOG_WARN, subsystem, __VA_ARGS__)
#define FI_TRACE(prov, subsystem, ...) FI_LOG(prov, FI_LOG_TRACE, subsystem, __VA_ARGS__)
#define FI_INFO(prov, subsystem, ...) FI_LOG(prov, FI_LOG_INFO, subsystem, __VA_ARGS__)

// The first time that warnings are shown, then never again from this place in the code. Of threads
// that arrive together one writes.
#define FI_WARN_ONCE(prov, subsystem, ...)                                     \
  do {                                                                         \
    static int fi_log_warned_;                                                 \
    FI_LOG_IF_(!__atomic_load_n(&fi_log_warned_, __ATOMIC_RELAXED) &&          \
                   fi_log_enabled(prov, FI_LOG_WARN, subsystem) &&             \
                   !__atomic_exchange_n(&fi_log_warned_, 1, __ATOMIC_RELAXED), \
               prov, FI_LOG_WARN, subsystem, __VA_ARGS__);                     \
  } while (0)

// Arguments are not even compiled in a release build: they may name debug-only variables.
#if defined(ENABLE_DEBUG) && ENABLE_DEBUG
#define FI_DBG(prov, subsystem, ...) FI_LOG(prov, FI_LOG_DEBUG, subsystem, __VA_ARGS__)
#define FI_DBG_TRACE(prov, subsystem, ...) FI_LOG(prov, FI_LOG_TRACE, subsystem, __VA_ARGS__)
#else
#define FI_DBG(prov, subsystem, ...) \
  do {                               \
  } while (0)
#define FI_DBG_TRACE(prov, subsystem, ...) \
  do {                                     \
  } while (0)
#endif

#ifdef __cplusplus
}
#endif

#endif  // FI_LOG_H
