// SPDX-License-Identifier: BSD-2-Clause
// Result<T>: a value, or an errno of OFI with the reason in words. What control paths return.
//
// Example:
//    #include <sys/socket.h>
//    #include <weft/sdk/progress/unique_fd.h>
//    weft::Result<UniqueFd> open_socket() {
//      UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
//      if (fd.get() < 0) return weft::fail(errno, "socket: %s: see `ulimit -n`", strerror(errno));
//      return fd;
//    }
//    weft::Result<int> number_of_a_socket() {
//      WEFT_TRY(const UniqueFd fd, open_socket());  // returns the error to the caller
//      return fd.get();
//    }
//
// Not for the data path, which returns ssize_t as OFI does, and never across the C boundary: to_c()
// turns it into a code and text there. tl::expected has the shape of std::expected (C++23), which
// will replace it.
#ifndef WEFT_RESULT_H
#define WEFT_RESULT_H

#include <rdma/fi_errno.h>
#include <weft/plugin.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace weft {

struct [[nodiscard]] Error {
  int code = FI_EOTHER;  // positive FI_E...
  std::string text;      // cause (place): remedy
};

template <class T>
using Result = tl::expected<T, Error>;

// An error from a printf-style text. `code` is a positive errno (FI_E...).
__attribute__((format(printf, 2, 3))) inline tl::unexpected<Error> fail(int code,
                                                                        const char *format, ...) {
  char text[sizeof(weft_error{}.text)];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return tl::unexpected<Error>(Error{code, text});
}

// Writes an error into the struct of the C boundary and returns the negative code. `why` may be
// null.
inline int32_t to_c(const Error &error, weft_error *why) noexcept {
  if (why != nullptr) {
    why->struct_size = sizeof *why;
    why->code = -error.code;
    std::snprintf(why->text, sizeof why->text, "%s", error.text.c_str());
  }
  return -error.code;
}

inline Error from_c(int32_t code, const weft_error &why) {
  return Error{-code, std::string(why.text, strnlen(why.text, sizeof why.text))};
}

}  // namespace weft

#define WEFT_TRY_CONCAT_(a, b) a##b
#define WEFT_TRY_NAME_(line) WEFT_TRY_CONCAT_(weft_try_, line)
// WEFT_TRY(declaration, expression): declares from the value of a Result, or returns its error.
#define WEFT_TRY(declaration, ...)                                                     \
  auto WEFT_TRY_NAME_(__LINE__) = (__VA_ARGS__);                                       \
  if (!WEFT_TRY_NAME_(__LINE__))                                                       \
    return tl::unexpected<::weft::Error>(std::move(WEFT_TRY_NAME_(__LINE__)).error()); \
  declaration = *std::move(WEFT_TRY_NAME_(__LINE__))
// WEFT_CHECK(expression): the same for Result<void>.
#define WEFT_CHECK(...)                               \
  if (auto weft_check_ = (__VA_ARGS__); !weft_check_) \
  return tl::unexpected<::weft::Error>(std::move(weft_check_).error())

#endif
