// SPDX-License-Identifier: BSD-2-Clause
// The log: one line per fault or choice, filtered by FI_LOG_LEVEL, FI_LOG_PROV and FI_LOG_SUBSYS,
// to stderr or to what the application imported (fi_import_log).
//
// Example:
//    void work(const weft::Environment &environment) {
//      weft::Log log(environment);
//      if (log.enabled("tcp", FI_LOG_INFO, FI_LOG_CQ))
//        log.write("tcp", FI_LOG_INFO, FI_LOG_CQ, __func__, __LINE__, "ready");
//      log.notice("FI_LOG_LEVEL=loud: ...");  // shown whatever the filter says, once per process
//    }
//
// Without FI_LOG_LEVEL only notices are shown: mistakes in the configuration of the user or the
// site. There is nothing else on stderr, because some programs and tests compare it.
//
// A line has the format of stock libfabric:
//   libfabric:<pid>:<time>::<provider>:<subsystem>:<function>():<line><level> text
// Thread-safe; lines of different threads do not mix. Not for results: what a return value
// says is not logged.
#ifndef WEFT_CORE_API_LOG_H
#define WEFT_CORE_API_LOG_H

#include <rdma/fi_ext.h>
#include <rdma/providers/fi_log.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/environment.h"

namespace weft {

class Log {
 public:
  // Gets whole lines, newline included. Default: stderr.
  using Sink = std::function<void(std::string_view line)>;

  explicit Log(const Environment &environment, Sink sink = {});
  Log(const Log &) = delete;
  Log &operator=(const Log &) = delete;

  // `provider` is the name of the source, "core" or NULL for the library itself; `also_known_as`
  // (may be NULL) a second name that FI_LOG_PROV may use for it.
  bool enabled(const char *provider, fi_log_level level, fi_log_subsys subsys,
               const char *also_known_as = nullptr) const noexcept;
  // As enabled(), and at most once per FI_LOG_INTERVAL for this *showtime (milliseconds, zero at
  // first).
  bool ready(const char *provider, fi_log_level level, fi_log_subsys subsys,
             uint64_t *showtime) const noexcept;

  // Does not ask the filter. A trailing newline of `text` is optional.
  void write(const char *provider, fi_log_level level, fi_log_subsys subsys, const char *func,
             int line, std::string_view text) noexcept;

  // enabled() and write(): for the core's own lines.
  void say(fi_log_level level, fi_log_subsys subsys, const char *func, int line,
           std::string_view text) noexcept;

  // Shown even where logging is off. Each text once.
  void notice(std::string_view text) noexcept;

  // Lines go to the application's log `logging` until another is imported or until
  // fi_close(&logging->fid). Its calls are copied. `logging` belongs to the application, and gets
  // the operations of a fid. The application closes it before it frees it. -FI_EINVAL: it is no
  // log.
  int import(struct fid_logging *logging) noexcept;

 private:
  struct NameFilter {
    bool set = false, exclude = false;
    std::vector<std::string> names;
    bool passes(std::string_view name, std::string_view other) const;
  };

  void read_level(const Environment &environment);
  void read_interval(const Environment &environment);
  void read_subsystems(const Environment &environment);
  static NameFilter parse_names(const std::string *value);
  bool filter_passes(const char *provider, const char *also_known_as) const noexcept;
  static int close_import(struct fid *fid);
  const fi_provider *provider_record(const char *provider) const;

  Sink sink_;
  int level_ = -1;                      // the most verbose one shown; -1: none
  uint32_t subsystems_ = ~uint32_t{0};  // bit per fi_log_subsys
  std::chrono::milliseconds interval_{2000};
  NameFilter providers_;
  std::atomic<const fi_ops_log *> imported_{nullptr};  // of copies_
  struct ImportOps {
    fi_ops ops;  // of imported fids: how a call on one finds its log
    Log *log;
  } import_ops_;

  mutable std::mutex mutex_;
  struct fid *import_ = nullptr;   // whose calls imported_ has
  std::deque<fi_ops_log> copies_;  // each once; never freed: another thread may be in a call
  std::set<std::string, std::less<>> noticed_;
  // The fi_provider that an imported log gets for a source. Entries stay, because the application
  // may keep the pointer.
  mutable std::map<std::string, fi_provider, std::less<>> records_;
};

}  // namespace weft

#endif
