// SPDX-License-Identifier: BSD-2-Clause
// The command line of fi_info.
//
// Example:
//     #include "tools/fi_info/lists.h"
//     int run(int argc, char **argv) {
//       Options options;
//       const std::optional<int> status = parse_command_line(argc, argv, options);
//       return status ? *status : list_interfaces(options);
//     }
#ifndef WEFT_TOOLS_FI_INFO_OPTIONS_H
#define WEFT_TOOLS_FI_INFO_OPTIONS_H

#include <rdma/fabric.h>

#include <memory>
#include <optional>
#include <string>

namespace weft::info {

using InfoList = std::unique_ptr<fi_info, decltype(&fi_freeinfo)>;

struct Options {
  std::optional<std::string> node;
  std::optional<std::string> port;
  std::optional<std::string> source;
  std::optional<std::string> env_filter;   // -g: only variables whose name contains this
  std::optional<std::string> info_filter;  // -i: only structures whose text contains this
  bool env = false;
  bool list = false;
  bool verbose = false;
  bool json = false;
  InfoList hints{nullptr, &fi_freeinfo};
  bool filtered = false;  // an option filled the hints; otherwise fi_getinfo() gets none
};

// A value means that the program is to end at once, with this exit status.
std::optional<int> parse_command_line(int argc, char **argv, Options &options);

// Exit statuses have 8 bits, and some libfabric error numbers do not fit.
int exit_status(int err);

}  // namespace weft::info

#endif
