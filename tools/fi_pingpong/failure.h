// SPDX-License-Identifier: BSD-2-Clause
// What ends a test early, and what -v prints.
//
// Example (statements):
//     const int port = check(-FI_ENODATA, "fi_getinfo");    // throws on a negative result
//     if (port == 0) fail(FI_EINVAL, "port %d is none", port);
//     debug("control: listening on port %d", port);         // stderr, only with -v
#ifndef WEFT_TOOLS_FI_PINGPONG_FAILURE_H
#define WEFT_TOOLS_FI_PINGPONG_FAILURE_H

#include <absl/strings/str_format.h>
#include <rdma/fi_errno.h>
#include <weft/printable.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

namespace weft::pingpong {

// Why the test ended early: an error number for the exit status, and a text for the user.
class Failure : public std::exception {
 public:
  Failure(int err, std::string text) : err_(err), text_(std::move(text)) {}
  int err() const { return err_; }
  const char *what() const noexcept override { return text_.c_str(); }

 private:
  int err_;
  std::string text_;
};

// Out of line: it stands in the loops that are timed.
template <class... Args>
[[noreturn, gnu::noinline, gnu::cold]] void fail(int err, const absl::FormatSpec<Args...> &format,
                                                 const Args &...args) {
  throw Failure(err, absl::StrFormat(format, args...));
}

// For libfabric calls, which return a negative error number.
inline int check(int64_t ret, const char *call) {
  const int value = static_cast<int>(ret);
  if (ret < 0) fail(-value, "%s: %s", call, fi_strerror(-value));
  return value;
}

inline bool verbose_output = false;

template <class... Args>
void debug(const absl::FormatSpec<Args...> &format, const Args &...args) {
  if (verbose_output)
    absl::FPrintF(stderr, "[debug] %s\n", printable(absl::StrFormat(format, args...)));
}

}  // namespace weft::pingpong

#endif
