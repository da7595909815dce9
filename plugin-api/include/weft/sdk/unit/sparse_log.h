// SPDX-License-Identifier: BSD-2-Clause
// WEFT_WARN_SPARSE and WEFT_INFO_SPARSE: log lines that a stranger or a peer causes, who may cause
// as many as it likes.
//
// Example:
//    void refuse(const weft_instance *instance, const char *from, const char *why) {
//      WEFT_WARN_SPARSE(instance, FI_LOG_EP_CTRL, "a connection from %s is refused: %s", from, why);
//    }
//
// Each place in the code has eight lines at once, and after these one every two seconds, in the
// whole process, as with FI_WARN_SPARSE (rdma/providers/fi_log.h). The last line before a pause
// says that the next ones are left out, and the first one after it how many were. Arguments are
// evaluated only if the line will be shown. Not for what the application does, nor for faults of
// this process: each of those is told.
#ifndef WEFT_SDK_UNIT_SPARSE_LOG_H
#define WEFT_SDK_UNIT_SPARSE_LOG_H

#include <weft/sdk/unit/log.h>

#include <cstdint>
#include <mutex>
#include <string>

namespace weft::sdk {

// One place in the code. Thread-safe.
class SparseLine {
 public:
  static constexpr uint64_t kAtOnce = 8, kEveryNs = 2'000'000'000;

  constexpr SparseLine() = default;
  // Whether the line is shown, and what stands behind it.
  bool passes(uint64_t now_ns, std::string &note);
  bool passes(std::string &note);  // now

 private:
  std::mutex mutex_;
  uint64_t left_ = kAtOnce;
  uint64_t filled_at_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace weft::sdk

#define WEFT_LOG_SPARSE(instance, level, subsys, format, ...)                                      \
  do {                                                                                             \
    static ::weft::sdk::SparseLine weft_line_;                                                     \
    const weft_instance *const weft_log_ = (instance);                                             \
    ::std::string weft_note_;                                                                      \
    if (::weft::sdk::log_enabled(weft_log_, (level), (subsys)) && weft_line_.passes(weft_note_)) { \
      ::weft::sdk::log_line(weft_log_, (level), (subsys), __func__, __LINE__, format "%s",         \
                            __VA_ARGS__ __VA_OPT__(, ) weft_note_.c_str());                        \
    }                                                                                              \
  } while (false)

#define WEFT_WARN_SPARSE(instance, subsys, ...) \
  WEFT_LOG_SPARSE(instance, FI_LOG_WARN, subsys, __VA_ARGS__)
#define WEFT_INFO_SPARSE(instance, subsys, ...) \
  WEFT_LOG_SPARSE(instance, FI_LOG_INFO, subsys, __VA_ARGS__)

#endif
