// SPDX-License-Identifier: BSD-2-Clause
// The command line of fi_pingpong.
//
// Example:
//     #include "tools/fi_pingpong/ping_pong.h"
//     int run(int argc, char **argv) {
//       int status = EXIT_SUCCESS;
//       const std::optional<Options> options = parse_command_line(argc, argv, &status);
//       if (options) PingPong(*options).run();
//       return status;  // not 0: an unknown option
//     }
//
// A value that cannot be used throws a Failure.
#ifndef WEFT_TOOLS_FI_PINGPONG_OPTIONS_H
#define WEFT_TOOLS_FI_PINGPONG_OPTIONS_H

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace weft::pingpong {

inline constexpr uint16_t kDefaultPort = 47592;

struct Options {
  std::string server;  // empty: this side is the server
  uint16_t src_port = 0;
  uint16_t dst_port = 0;
  bool ipv6 = false;
  std::optional<std::string> provider;
  std::optional<std::string> domain;
  fi_ep_type type = FI_EP_DGRAM;
  bool tagged = false;
  uint64_t iterations = 10;
  std::optional<uint64_t> size;  // unset: several
  bool all_sizes = false;        // -S all rather than the default sizes
  bool verify = false;
  bool verbose = false;
  std::chrono::seconds timeout{30};
  bool timeout_given = false;

  bool is_server() const { return server.empty(); }
};

// Returns nothing when the program is to end at once with *status.
std::optional<Options> parse_command_line(int argc, char **argv, int *status);

}  // namespace weft::pingpong

#endif
