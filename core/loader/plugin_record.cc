// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/plugin_record.h"

#include <cstdarg>
#include <cstdio>
#include <utility>

namespace weft {
namespace {

std::string format_text(const char *format, va_list args) {
  char text[1024];  // causes and remedies end in a weft_error of 512 bytes or on a terminal
  // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): every caller started it
  std::vsnprintf(text, sizeof text, format, args);
  return text;
}

}  // namespace

tl::unexpected<Rejection> reject(Stage stage, const char *cause, ...) {
  va_list args;
  va_start(args, cause);
  auto rejection = vreject(stage, cause, args);
  va_end(args);
  return rejection;
}

tl::unexpected<Rejection> vreject(Stage stage, const char *cause, va_list args) {
  return tl::unexpected<Rejection>(
      Rejection{.stage = stage, .cause = format_text(cause, args), .remedy = {}});
}

tl::unexpected<Rejection> with_remedy(tl::unexpected<Rejection> rejection, const char *remedy,
                                      ...) {
  va_list args;
  va_start(args, remedy);
  rejection.value().remedy = format_text(remedy, args);
  va_end(args);
  return rejection;
}

Decision to_decision(std::string candidate, const Rejection &rejection, const std::string &path) {
  return {.candidate = std::move(candidate),
          .stage = rejection.stage,
          .reason = rejection.cause,
          .remedy = rejection.remedy,
          .rule = Rule::plugin(path)};
}

}  // namespace weft
