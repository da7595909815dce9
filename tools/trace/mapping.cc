// SPDX-License-Identifier: BSD-2-Clause
#include "tools/trace/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace weft::trace {
namespace {

// Sixteen times the largest trace file. A file with holes may have any size.
constexpr uint64_t kMaxFile = uint64_t{1} << 36;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Result<std::unique_ptr<Mapping>> Mapping::of(const std::string &path) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat found = {};
  if (fd.get() < 0 || fstat(fd.get(), &found) != 0) {
    const int code = errno;
    return fail(code, "%s: %s", path.c_str(), strerror(code));
  }
  if (!S_ISREG(found.st_mode) || found.st_size == 0)
    return fail(FI_EINVAL, "%s: not a trace: %s", path.c_str(),
                S_ISREG(found.st_mode) ? "it is empty" : "no ordinary file");
  if (uint64_t(found.st_size) > kMaxFile)
    return fail(FI_E2BIG, "%s: not a trace: it has %lld bytes", path.c_str(),
                static_cast<long long>(found.st_size));
  void *bytes = mmap(nullptr, size_t(found.st_size), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (bytes == MAP_FAILED) {
    const int code = errno;
    return fail(code, "%s: mmap: %s", path.c_str(), strerror(code));
  }
  return std::make_unique<Mapping>(bytes, size_t(found.st_size));
}

Mapping::~Mapping() {
  munmap(const_cast<uint8_t *>(bytes_.data()), bytes_.size());
}

}  // namespace weft::trace
