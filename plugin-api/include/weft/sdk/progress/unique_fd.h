// SPDX-License-Identifier: BSD-2-Clause
// UniqueFd: a descriptor with one owner, which closes it.
//
// Example:
//    UniqueFd duplicate(const UniqueFd &from) { return UniqueFd(::dup(from.get())); }
//    int give_away(UniqueFd fd) { return fd.release(); }
#ifndef WEFT_SDK_PROGRESS_UNIQUE_FD_H
#define WEFT_SDK_PROGRESS_UNIQUE_FD_H

#include <unistd.h>

#include <utility>

namespace weft::sdk {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd &operator=(UniqueFd &&other) noexcept {
    reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace weft::sdk

#endif
