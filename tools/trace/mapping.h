// SPDX-License-Identifier: BSD-2-Clause
// Mapping: the bytes of a file, mapped for reading.
//
// Example:
//     #include <algorithm>
//     Result<size_t> zeros_in(const std::string &path) {
//       WEFT_TRY(const std::unique_ptr<Mapping> mapping, Mapping::of(path));
//       return size_t(std::ranges::count(mapping->bytes(), 0));
//     }
//
// An empty file is an error. Not for files that shrink while they are read: a read beyond the end
// is a SIGBUS.
#ifndef WEFT_TOOLS_TRACE_MAPPING_H
#define WEFT_TOOLS_TRACE_MAPPING_H

#include <weft/result.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace weft::trace {

class Mapping {
 public:
  static Result<std::unique_ptr<Mapping>> of(const std::string &path);
  Mapping(const void *bytes, size_t size) : bytes_(static_cast<const uint8_t *>(bytes), size) {}
  ~Mapping();
  Mapping(const Mapping &) = delete;
  Mapping &operator=(const Mapping &) = delete;
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  std::span<const uint8_t> bytes_;
};

// Puts the path in front of an error.
template <class T>
Result<T> of_file(Result<T> result, const std::string &path) {
  if (result) return result;
  return fail(result.error().code, "%s: %s", path.c_str(), result.error().text.c_str());
}

}  // namespace weft::trace

#endif
