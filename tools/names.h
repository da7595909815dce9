// SPDX-License-Identifier: BSD-2-Clause
// Names and versions as the library itself tells them. The programs have no tables of their own:
// what a newer library can print, they can print and parse.
//
// Example (statements):
//     std::string known;
//     const std::string type = name_of(FI_EP_MSG, FI_TYPE_EP_TYPE);    // "FI_EP_MSG"
//     for (const Named &one : bit_names<uint64_t>(FI_TYPE_CAPS))
//       absl::StrAppend(&known, one.name, " ");
//
// Not for texts of whole structures: fi_tostr() writes them.
#ifndef WEFT_TOOLS_NAMES_H
#define WEFT_TOOLS_NAMES_H

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weft::tools {

template <class T>
std::string name_of(T value, fi_type type) {
  return std::string(absl::NullSafeStringView(fi_tostr(&value, type)));
}

struct Named {
  std::string name;  // "FI_EP_MSG"
  uint64_t value;
};

// Of the values that `value_at` gives for 0 to 63, those that the library can name.
template <class T, class ValueAt>
std::vector<Named> known_names(fi_type type, ValueAt value_at) {
  std::vector<Named> names;
  for (unsigned i = 0; i < 64; ++i) {
    const uint64_t value = value_at(i);
    if (std::string name = name_of(static_cast<T>(value), type); name.starts_with("FI_"))
      names.push_back({std::move(name), value});
  }
  return names;
}

template <class T>
std::vector<Named> bit_names(fi_type type) {
  return known_names<T>(type, [](unsigned bit) { return uint64_t{1} << bit; });
}

template <class T>
std::vector<Named> enum_names(fi_type type) {
  return known_names<T>(type, [](unsigned value) { return uint64_t{value}; });
}

// "2.6"
inline std::string version_text(uint32_t version) {
  return absl::StrCat(FI_MAJOR(version), ".", FI_MINOR(version));
}

// The version to pass to fi_getinfo(): a library refuses one that is newer than itself.
inline uint32_t api_version() {
  return std::min<uint32_t>(fi_version(), FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION));
}

}  // namespace weft::tools

#endif
