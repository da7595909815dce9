// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/device.h"

#include <fnmatch.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace weft {
namespace {

namespace fs = std::filesystem;

bool path_exists(const std::string &pattern) {
  glob_t found{};
  const bool any = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0 && found.gl_pathc > 0;
  globfree(&found);
  return any;
}

// "0x15b3\n" -> "15b3"
std::string read_id(const fs::path &path) {
  std::string id;
  std::ifstream(path) >> id;
  return id.starts_with("0x") ? id.substr(2) : id;
}

template <class Match>
bool any_entry(const fs::path &folder, Match match) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (match(it->path())) return true;
  return false;
}

bool present(std::string_view device, const std::string &sysfs) {
  const size_t colon = device.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view kind = device.substr(0, colon);
  std::string pattern(device.substr(colon + 1));
  if (kind == "path") return path_exists(pattern);
  if (kind == "netdev")
    return any_entry(sysfs + "/class/net", [&](const fs::path &entry) {
      return fnmatch(pattern.c_str(), entry.filename().c_str(), 0) == 0;
    });
  if (kind == "pci") {
    std::transform(pattern.begin(), pattern.end(), pattern.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return any_entry(sysfs + "/bus/pci/devices", [&](const fs::path &entry) {
      const std::string id = read_id(entry / "vendor") + ":" + read_id(entry / "device");
      return fnmatch(pattern.c_str(), id.c_str(), 0) == 0;
    });
  }
  return false;  // a kind of a later minor: this core cannot see such a device
}

}  // namespace

Checked<void> check_devices(const UnitInfo &unit, const std::string &sysfs) {
  if (unit.devices.empty()) return {};
  std::string all;
  for (const std::string &device : unit.devices) {
    if (present(device, sysfs)) return {};
    all += (all.empty() ? "" : ", ") + device;
  }
  return with_remedy(reject(Stage::kDevice, "none of its devices is present: %s", all.c_str()),
                     "%s",
                     unit.device_remedy.empty()
                         ? "install the device or load its kernel driver, or disable the unit in "
                           "the site's configuration"
                         : unit.device_remedy.c_str());
}

}  // namespace weft
