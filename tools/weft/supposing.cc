// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/supposing.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <fcntl.h>
#include <net/if.h>
#include <unistd.h>
#include <weft/printable.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace weft::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char *kFacts = "What rules of the policy see";

}  // namespace

std::string check_not_empty(const std::string &path) {
  return path.empty() ? "the name of a file is empty" : "";
}

void add_place_option(CLI::App &command, SupposingOptions &options) {
  command
      .add_option("--as-file", options.as_file,
                  "the place that FILE is read at (default: its name in /etc/weft)")
      ->check(check_not_empty);
}

void add_file_option(CLI::App &command, SupposingOptions &options) {
  command
      .add_option("FILE", options.file,
                  "a file that is read as if it were installed (default: what is installed)")
      ->check(check_not_empty);
  add_place_option(command, options);
}

void add_fact_options(CLI::App &command, SupposingOptions &options) {
  command.add_option("--host,--hostname", options.host, "the name of the host")->group(kFacts);
  command.add_option("--executable", options.executable, "the program that runs")->group(kFacts);
  command
      .add_option("--netdev", options.netdevs,
                  "takes an interface of this machine for another: eth0=ib0, or eth0=ib0,10.1.0.7 "
                  "with an address of its network")
      ->group(kFacts);
}

std::vector<std::string> fact_words(const SupposingOptions &options) {
  std::vector<std::string> words;
  if (!options.host.empty()) words.push_back("--host=" + options.host);
  if (!options.executable.empty()) words.push_back("--executable=" + options.executable);
  for (const std::string &netdev : options.netdevs) words.push_back("--netdev=" + netdev);
  return words;
}

void warn_of_absent_devices(const char *command, const SupposingOptions &options) {
  for (const std::string &netdev : options.netdevs) {
    const std::string name = netdev.substr(0, netdev.find('='));
    std::error_code error;
    // A NIC without a network interface has a class of its own.
    const bool is_there = name.empty() || name.find('/') != std::string::npos ||
                          if_nametoindex(name.c_str()) != 0 ||
                          fs::exists(fs::path("/sys/class/infiniband") / name, error) ||
                          fs::exists(fs::path("/sys/class/cxi") / name, error);
    if (!is_there)
      absl::FPrintF(stderr,
                    "%s: warning: --netdev %s: this machine has no interface %s; `ip link` shows "
                    "those that it has\n",
                    command, printable(netdev), printable(name));
  }
}

std::string absolute_path(const std::string &path) {
  return fs::absolute(path).lexically_normal();
}

std::string installed_place(const Library &library, const std::string &file,
                            const std::string &as_file) {
  if (!as_file.empty()) return absolute_path(as_file);
  const std::string path = absolute_path(file), name = fs::path(path).filename();
  if (library.suppose("file", path, path)) return path;
  return absl::StrCat("/etc/weft/", name, absl::EndsWith(name, ".yaml") ? "" : ".yaml");
}

Result<void> check_readable(const std::string &file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return fail(errno, "%s: %s: give a file that you may read", file.c_str(), std::strerror(errno));
  ::close(fd);
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    return fail(FI_EINVAL, "%s is no file: give a file in the format of weft.yaml(5)",
                file.c_str());
  return {};
}

Result<void> suppose(const Library &library, const SupposingOptions &options) {
  if (options.file.empty() && !options.as_file.empty())
    return fail(FI_EINVAL, "--as-file %s, and no FILE: give the file that is read there",
                options.as_file.c_str());
  if (!options.file.empty()) {
    WEFT_CHECK(check_readable(options.file));
    WEFT_CHECK(library.suppose("file", installed_place(library, options.file, options.as_file),
                               absolute_path(options.file)));
  }
  if (!options.host.empty()) WEFT_CHECK(library.suppose("hostname", "", options.host));
  if (!options.executable.empty())
    WEFT_CHECK(library.suppose("executable", "", options.executable));
  for (const std::string &netdev : options.netdevs) {
    const size_t equals = netdev.find('=');
    if (equals == std::string::npos)
      return fail(FI_EINVAL,
                  "--netdev %s: write it like eth0=ib0, an interface of this machine first",
                  netdev.c_str());
    WEFT_CHECK(library.suppose("netdev", netdev.substr(0, equals), netdev.substr(equals + 1)));
  }
  return {};
}

}  // namespace weft::cli
