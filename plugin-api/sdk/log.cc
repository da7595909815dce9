// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/log.h"

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

}  // namespace weft::sdk
