// SPDX-License-Identifier: BSD-2-Clause
#include "tools/fi_pingpong/options.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_format.h>
#include <absl/strings/string_view.h>
#include <getopt.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "tools/fi_pingpong/failure.h"

namespace weft::pingpong {
namespace {

constexpr uint64_t kMaxIterations = 999'999'999;  // the control message has room for 9 digits

void print_usage(FILE *to) {
  absl::FPrintF(
      to,
      "Usage: fi_pingpong [OPTIONS]                    start the server\n"
      "       fi_pingpong [OPTIONS] SERVER_ADDRESS     connect to the server\n"
      "\n"
      "Sends messages to and fro between two processes and prints how long that took.\n"
      "Both sides must be given the same -e, -I, -S, -m and -p.\n"
      "\n"
      " -B PORT      source port of the control connection (server: %u, client: any)\n"
      " -P PORT      destination port of the control connection (client: %u)\n"
      " -6           control connection over IPv6\n"
      " -p PROVIDER  provider, for instance tcp (default: the first that fits)\n"
      " -d DOMAIN    domain, for instance eth0\n"
      " -e TYPE      endpoint type: msg, rdm or dgram (dgram)\n"
      " -m MODE      transmit mode: msg or tagged (msg)\n"
      " -I NUMBER    messages in each direction for each size (10)\n"
      " -S SIZE      size of a message in bytes, or 'all' for 0 to 6291456 in 46 steps\n"
      "              (64 256 1024 4096 65536 1048576); what the provider cannot send is left out\n"
      " -c           check the contents of every message\n"
      " -v           tell what is being done\n"
      " -h           this help\n"
      " --timeout SECONDS\n"
      "              give up when the peer does nothing for that long (30); where given, a server\n"
      "              also waits no longer than that for its client\n"
      "\n"
      "The exit status is 0, or the number of the error that ended the test.\n",
      kDefaultPort, kDefaultPort);
}

uint64_t parse_number(const char *option, const char *text, uint64_t low, uint64_t high,
                      const char *wanted) {
  uint64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < low || value > high)
    fail(EINVAL, "%s %s: expected %s", option, text, wanted);
  return value;
}

uint16_t parse_port(const char *option, const char *text) {
  return static_cast<uint16_t>(parse_number(option, text, 1, 65535, "a port, 1 to 65535"));
}

fi_ep_type parse_endpoint_type(absl::string_view text) {
  if (text == "msg") return FI_EP_MSG;
  if (text == "rdm") return FI_EP_RDM;
  if (text == "dgram") return FI_EP_DGRAM;
  fail(EINVAL, "-e %s: expected msg, rdm or dgram", text);
}

}  // namespace

std::optional<Options> parse_command_line(int argc, char **argv, int *status) {
  enum { kTimeout = 256 };
  static const option kLongOptions[] = {{"help", no_argument, nullptr, 'h'},
                                        {"timeout", required_argument, nullptr, kTimeout},
                                        {nullptr, 0, nullptr, 0}};
  Options options;
  int option;
  while ((option = getopt_long(argc, argv, "B:P:6p:d:e:m:I:S:cvh", kLongOptions, nullptr)) != -1) {
    const absl::string_view text = absl::NullSafeStringView(optarg);
    switch (option) {
      case 'B':
        options.src_port = parse_port("-B", optarg);
        break;
      case 'P':
        options.dst_port = parse_port("-P", optarg);
        break;
      case '6':
        options.ipv6 = true;
        break;
      case 'p':
        options.provider = optarg;
        break;
      case 'd':
        options.domain = optarg;
        break;
      case 'e':
        options.type = parse_endpoint_type(text);
        break;
      case 'm':
        if (text != "msg" && text != "tagged") fail(EINVAL, "-m %s: expected msg or tagged", text);
        options.tagged = text == "tagged";
        break;
      case 'I':
        options.iterations =
            parse_number("-I", optarg, 1, kMaxIterations, "a number, 1 to 999999999");
        break;
      case 'S':
        options.size.reset();
        options.all_sizes = text == "all";
        if (!options.all_sizes)
          options.size =
              parse_number("-S", optarg, 0, UINT64_MAX / 4, "a number of bytes or 'all'");
        break;
      case 'c':
        options.verify = true;
        break;
      case 'v':
        options.verbose = true;
        break;
      case kTimeout:
        options.timeout = std::chrono::seconds(
            parse_number("--timeout", optarg, 1, 86400, "seconds, 1 to 86400"));
        options.timeout_given = true;
        break;
      case 'h':
        print_usage(stdout);
        *status = EXIT_SUCCESS;
        return std::nullopt;
      default:
        print_usage(stderr);
        *status = EXIT_FAILURE;
        return std::nullopt;
    }
  }
  if (argc - optind > 1) {
    fail(EINVAL, "unexpected argument '%s': there is one server address at most", argv[optind + 1]);
  }
  if (optind < argc) {
    options.server = argv[optind];
    if (options.server.empty()) {
      fail(EINVAL, "the server's address is empty");
    }
  }
  return options;
}

}  // namespace weft::pingpong
