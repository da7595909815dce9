// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/unit/log.h"

#include <weft/sdk/progress/engine.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

namespace weft::sdk {

void log_line(const weft_instance *instance, enum fi_log_level level, enum fi_log_subsys subsys,
              const char *func, int line, const char *format, ...) noexcept {
  const int saved = errno;
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  instance->core->log(instance, level, subsys, func, line, text);
  errno = saved;
}

bool SparseLine::passes(std::string &note) {
  return passes(now_ns(), note);
}

bool SparseLine::passes(uint64_t now_ns, std::string &note) {
  const std::lock_guard lock(mutex_);
  if (left_ == kAtOnce) filled_at_ = now_ns;  // it is full: no time is saved up
  const uint64_t more = (now_ns - filled_at_) / kEveryNs;
  left_ = std::min(left_ + more, kAtOnce);
  filled_at_ += more * kEveryNs;
  if (left_ == 0) {
    ++left_out_;
    return false;
  }
  --left_;
  if (left_out_ != 0) note = " (" + std::to_string(left_out_) + " more such lines were left out)";
  left_out_ = 0;
  if (left_ == 0)
    note += " (of further such lines one in " + std::to_string(kEveryNs / 1'000'000'000) +
            " s is shown)";
  return true;
}

}  // namespace weft::sdk
