// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/suppositions.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

std::string places_of(const PolicySources &sources) {
  std::string all;
  for (const std::string &folder : sources.system_folders)
    all += (all.empty() ? "" : ", ") + folder + "/NAME.yaml";
  return sources.user_file.empty() ? all : all + ", " + sources.user_file;
}

// "ib0" or "ib0,10.1.0.7"
Result<SupposedDevice> parse_device(const std::string &real, const std::string &text) {
  const size_t comma = text.find(',');
  SupposedDevice device{.real = real, .name = text.substr(0, comma)};
  if (device.real.empty() || device.name.empty())
    return fail(FI_EINVAL,
                "%s=%s: an interface without a name: write eth0=ib0 or eth0=ib0,10.1.0.7",
                real.c_str(), text.c_str());
  if (comma == std::string::npos) return device;
  const std::string address = text.substr(comma + 1);
  sockaddr_in in{};
  sockaddr_in6 in6{};
  if (inet_pton(AF_INET, address.c_str(), &in.sin_addr) == 1) {
    in.sin_family = AF_INET;
    std::memcpy(&device.address, &in, sizeof in);
    device.address_length = sizeof in;
  } else if (inet_pton(AF_INET6, address.c_str(), &in6.sin6_addr) == 1) {
    in6.sin6_family = AF_INET6;
    std::memcpy(&device.address, &in6, sizeof in6);
    device.address_length = sizeof in6;
  } else {
    return fail(FI_EINVAL, "%s=%s: \"%s\" is no address: write it like 10.1.0.7 or fd00::7",
                real.c_str(), text.c_str(), address.c_str());
  }
  return device;
}

}  // namespace

Result<void> Suppositions::add(std::string_view what, const std::string &name,
                               const std::string &value, const PolicySources &sources) {
  if (what == "file") {
    if (!is_read(sources, name))
      return fail(FI_EINVAL, "no file is read at %s: give one of %s", name.c_str(),
                  places_of(sources).c_str());
    files_[name] = value;
    return {};
  }
  if (what == "netdev") {
    WEFT_TRY(SupposedDevice device, parse_device(name, value));
    const auto twice = std::ranges::find(devices_, device.real, &SupposedDevice::real);
    if (twice != devices_.end())
      return fail(FI_EINVAL, "%s is supposed to be %s and %s: give one", name.c_str(),
                  twice->name.c_str(), device.name.c_str());
    devices_.push_back(std::move(device));
    return {};
  }
  if (what != "hostname" && what != "executable")
    return fail(FI_EINVAL,
                "\"%s\" cannot be supposed: known are file, hostname, executable, netdev",
                std::string(what).c_str());
  if (value.empty()) return fail(FI_EINVAL, "an empty %s: give a name", std::string(what).c_str());
  (what == "hostname" ? hostname_ : executable_) = value;
  return {};
}

Place Suppositions::applied_to(Place place) const {
  if (hostname_) place.hostname = [name = *hostname_] { return name; };
  if (executable_) place.executable = [path = *executable_] { return path; };
  place.devices = devices_;
  return place;
}

}  // namespace weft
