// SPDX-License-Identifier: BSD-2-Clause
#include "tools/fi_info/options.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>
#include <getopt.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tools/names.h"

namespace weft::info {
namespace {

using tools::Named;

enum { kVersion = 256, kJson };
constexpr option kLongOptions[] = {{"help", no_argument, nullptr, 'h'},
                                   {"node", required_argument, nullptr, 'n'},
                                   {"port", required_argument, nullptr, 'P'},
                                   {"src_addr", required_argument, nullptr, 's'},
                                   {"caps", required_argument, nullptr, 'c'},
                                   {"mode", required_argument, nullptr, 'm'},
                                   {"ep_type", required_argument, nullptr, 't'},
                                   {"domain", required_argument, nullptr, 'd'},
                                   {"fabric", required_argument, nullptr, 'f'},
                                   {"addr_format", required_argument, nullptr, 'a'},
                                   {"provider", required_argument, nullptr, 'p'},
                                   {"env", no_argument, nullptr, 'e'},
                                   {"getenv", required_argument, nullptr, 'g'},
                                   {"info", required_argument, nullptr, 'i'},
                                   {"list", no_argument, nullptr, 'l'},
                                   {"verbose", no_argument, nullptr, 'v'},
                                   {"version", no_argument, nullptr, kVersion},
                                   {"json", no_argument, nullptr, kJson},
                                   {nullptr, 0, nullptr, 0}};

void print_usage(FILE *to) {
  std::fputs(
      "Usage: fi_info [OPTIONS]\n"
      "\n"
      "Lists the fabric interfaces that match every given filter; without filters, all of them.\n"
      "\n"
      "Filters:\n"
      "  -n, --node=NAME          destination node, a host name or an address\n"
      "  -P, --port=PORT          port number or service name that goes with the node or source\n"
      "  -s, --src_addr=ADDR      source node, a host name or an address\n"
      "  -c, --caps=CAP|CAP...    capabilities, all of which must be there: 'FI_MSG|FI_RMA'\n"
      "  -m, --mode=MODE|MODE...  modes that the application accepts (default: all)\n"
      "  -t, --ep_type=TYPE       endpoint type: FI_EP_MSG, FI_EP_DGRAM, FI_EP_RDM,\n"
      "                           FI_EP_SOCK_STREAM, FI_EP_SOCK_DGRAM\n"
      "  -a, --addr_format=FMT    address format: FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_ADDR_STR...\n"
      "  -p, --provider=NAME      provider, as --list prints it\n"
      "  -d, --domain=NAME        domain\n"
      "  -f, --fabric=NAME        fabric\n"
      "\n"
      "What is printed:\n"
      "  -l, --list               the providers and their versions\n"
      "  -e, --env                the environment variables that providers and the library read\n"
      "  -g, --getenv=SUBSTR      as --env, only those whose name contains SUBSTR (in any case)\n"
      "  -i, --info=SUBSTR        whole fi_info structures, only those whose text contains SUBSTR\n"
      "  -v, --verbose            whole fi_info structures instead of a summary\n"
      "      --json               the same facts as JSON, every attribute (also with -l, -e, -g)\n"
      "      --version            versions of this program, of the library and of its API\n"
      "  -h, --help               this help\n"
      "\n"
      "The exit status is 0, or the error number when nothing matches (61, no data available) or\n"
      "the query fails.\n",
      to);
}

void print_version() {
  absl::PrintF("fi_info: %d.%d.%d\n", FI_MAJOR_VERSION, FI_MINOR_VERSION, FI_REVISION_VERSION);
  absl::PrintF("libfabric: %s\n", fi_tostr("", FI_TYPE_VERSION));
  absl::PrintF("libfabric api: %s\n", tools::version_text(fi_version()));
}

// True if the library has such a name; otherwise prints the names that it has.
bool look_up(const std::vector<Named> &names, absl::string_view word, const char *what,
             uint64_t *value) {
  for (const Named &named : names) {
    if (absl::EqualsIgnoreCase(named.name, word)) {
      *value = named.value;
      return true;
    }
  }
  absl::FPrintF(stderr, "error: Unrecognized %s: %s\nknown:", what, word);
  for (const Named &named : names) absl::FPrintF(stderr, " %s", named.name);
  absl::FPrintF(stderr, "\n");
  return false;
}

bool parse_bits(const char *text, const std::vector<Named> &names, const char *what,
                uint64_t *bits) {
  for (const absl::string_view word : absl::StrSplit(text, '|')) {
    uint64_t bit = 0;
    if (!look_up(names, absl::StripAsciiWhitespace(word), what, &bit)) return false;
    *bits |= bit;
  }
  return true;
}

void replace(char **member, const char *value) {
  std::free(*member);
  *member = strdup(value);
}

// An option that is a filter goes into the hints. False: its value names nothing that is known.
bool set_hint(int option, const char *text, bool first_mode, fi_info &hints) {
  uint64_t value = 0;
  switch (option) {
    case 'c':
      return parse_bits(text, tools::bit_names<uint64_t>(FI_TYPE_CAPS), "capability", &hints.caps);
    case 'm':
      if (first_mode) hints.mode = 0;
      return parse_bits(text, tools::bit_names<uint64_t>(FI_TYPE_MODE), "mode", &hints.mode);
    case 't':
      if (!look_up(tools::enum_names<fi_ep_type>(FI_TYPE_EP_TYPE), text, "endpoint type", &value))
        return false;
      hints.ep_attr->type = static_cast<fi_ep_type>(value);
      return true;
    case 'a':
      if (!look_up(tools::enum_names<uint32_t>(FI_TYPE_ADDR_FORMAT), text, "address format",
                   &value))
        return false;
      hints.addr_format = static_cast<uint32_t>(value);
      return true;
    case 'd':
      replace(&hints.domain_attr->name, text);
      return true;
    case 'f':
      replace(&hints.fabric_attr->name, text);
      return true;
    default:  // 'p'
      replace(&hints.fabric_attr->prov_name, text);
      return true;
  }
}

}  // namespace

int exit_status(int err) {
  return err > 0 && err < 256 ? err : EXIT_FAILURE;
}

std::optional<int> parse_command_line(int argc, char **argv, Options &options) {
  options.hints.reset(fi_allocinfo());
  if (options.hints == nullptr) {
    absl::FPrintF(stderr, "fi_info: out of memory\n");
    return exit_status(FI_ENOMEM);
  }
  // No interface is left out because it requires something of the application.
  options.hints->mode = ~uint64_t{0};
  options.hints->domain_attr->mode = ~uint64_t{0};
  options.hints->domain_attr->mr_mode = ~(FI_MR_BASIC | FI_MR_SCALABLE);

  bool mode_given = false;
  int option;
  while ((option = getopt_long(argc, argv, "hn:P:s:c:m:t:d:f:a:p:eg:i:lv", kLongOptions,
                               nullptr)) != -1) {
    switch (option) {
      case 'n':
        options.node = optarg;
        break;
      case 'P':
        options.port = optarg;
        break;
      case 's':
        options.source = optarg;
        break;
      case 'c':
      case 'm':
      case 't':
      case 'a':
      case 'd':
      case 'f':
      case 'p':
        options.filtered = true;
        if (!set_hint(option, optarg, !mode_given, *options.hints)) return exit_status(FI_EINVAL);
        mode_given = mode_given || option == 'm';
        break;
      case 'e':
        options.env = true;
        break;
      case 'g':
        options.env = true;
        options.env_filter = optarg;
        break;
      case 'i':
        options.info_filter = optarg;
        break;
      case 'l':
        options.list = true;
        break;
      case 'v':
        options.verbose = true;
        break;
      case kVersion:
        print_version();
        return EXIT_SUCCESS;
      case kJson:
        options.json = true;
        break;
      case 'h':
        print_usage(stdout);
        return EXIT_SUCCESS;
      default:
        print_usage(stderr);
        return EXIT_FAILURE;
    }
  }
  if (optind < argc) {
    absl::FPrintF(stderr, "fi_info: unexpected argument '%s': every filter is an option\n",
                  argv[optind]);
    print_usage(stderr);
    return EXIT_FAILURE;
  }
  return std::nullopt;
}

}  // namespace weft::info
