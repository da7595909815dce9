// SPDX-License-Identifier: BSD-2-Clause
#include "core/api/environment.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace weft {
namespace {

// This function lies in libfabric.so.1 like everything that is linked into it.
std::string folder_of_this_library() {
  Dl_info found{};
  if (dladdr(reinterpret_cast<const void *>(&folder_of_this_library), &found) == 0) return "";
  if (found.dli_fname == nullptr) return "";
  std::error_code error;
  const auto path = std::filesystem::canonical(found.dli_fname, error);
  return error ? std::string() : path.parent_path().string();
}

}  // namespace

Environment Environment::of_process() {
  Environment environment;
  environment.library_folder = folder_of_this_library();
  environment.secure = getauxval(AT_SECURE) != 0;
  if (environment.secure) return environment;
  for (char **entry = environ; entry != nullptr && *entry != nullptr; entry++) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (name.starts_with("FI_") || name.starts_with("XDG_") || name == "HOME" ||
        name == "WEFT_WHY") {
      environment.variables.emplace(name, text.substr(equals + 1));
    }
  }
  return environment;
}

const std::string *Environment::find(std::string_view name) const {
  const auto found = variables.find(std::string(name));
  return found == variables.end() ? nullptr : &found->second;
}

}  // namespace weft
