// SPDX-License-Identifier: BSD-2-Clause
#include "tools/fi_info/lists.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_format.h>
#include <netdb.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>
#include <weft/printable.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tools/fi_info/json.h"
#include "tools/names.h"

namespace weft::info {
namespace {

const char *param_type_name(fi_param_type type) {
  static constexpr std::pair<fi_param_type, const char *> kNames[] = {
      {FI_PARAM_BOOL, "Boolean (0/1, on/off, true/false, yes/no)"},
      {FI_PARAM_INT, "Integer"},
      {FI_PARAM_SIZE_T, "size_t"},
      {FI_PARAM_STRING, "String"},
  };
  for (const auto &[known, name] : kNames)
    if (known == type) return name;
  return "Unknown";
}

int get_info_failed(int ret, const Options &options) {
  absl::FPrintF(stderr, "fi_getinfo: %d (%s)\n", ret, fi_strerror(-ret));
  if (ret == -FI_ENODATA) {
    absl::FPrintF(stderr,
                  "fi_info: no interface of any provider matches; leave out filters to see which "
                  "one excludes it, or run with FI_LOG_LEVEL=info\n");
  }
  if (options.json) {
    print_json(Json::array());
  }
  return exit_status(-ret);
}

void print_summary(const fi_info &info) {
  const auto or_none = [](const char *text) {
    return printable(text != nullptr ? text : "(null)");
  };
  absl::PrintF("provider: %s\n", or_none(info.fabric_attr->prov_name));
  absl::PrintF("    fabric: %s\n", or_none(info.fabric_attr->name));
  absl::PrintF("    domain: %s\n", or_none(info.domain_attr->name));
  absl::PrintF("    version: %s\n", tools::version_text(info.fabric_attr->prov_version));
  absl::PrintF("    type: %s\n", tools::name_of(info.ep_attr->type, FI_TYPE_EP_TYPE));
  absl::PrintF("    protocol: %s\n", tools::name_of(info.ep_attr->protocol, FI_TYPE_PROTOCOL));
}

// fi_getinfo takes one node. With both a destination and a source, the source goes into the hints,
// as an address string or as a socket address.
int set_source_hint(Options &options) {
  fi_info *hints = options.hints.get();
  const std::string &source = *options.source;
  if (source.starts_with("fi_")) {
    hints->src_addr = strdup(source.c_str());
    hints->src_addrlen = source.size() + 1;
    hints->addr_format = FI_ADDR_STR;
    return hints->src_addr != nullptr ? 0 : FI_ENOMEM;
  }
  addrinfo want = {};
  want.ai_socktype = SOCK_STREAM;
  if (hints->addr_format == FI_SOCKADDR_IN) want.ai_family = AF_INET;
  if (hints->addr_format == FI_SOCKADDR_IN6) want.ai_family = AF_INET6;
  addrinfo *raw = nullptr;
  if (const int ret = getaddrinfo(source.c_str(), nullptr, &want, &raw); ret != 0) {
    absl::FPrintF(stderr, "fi_info: cannot resolve the source address '%s': %s\n", source,
                  gai_strerror(ret));
    return FI_EINVAL;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(raw, &freeaddrinfo);
  hints->src_addr = std::malloc(raw->ai_addrlen);
  if (hints->src_addr == nullptr) {
    return FI_ENOMEM;
  }
  std::memcpy(hints->src_addr, raw->ai_addr, raw->ai_addrlen);
  hints->src_addrlen = raw->ai_addrlen;
  hints->addr_format = raw->ai_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
  return 0;
}

}  // namespace

int list_environment(const Options &options) {
  fi_param *raw = nullptr;
  int count = 0;
  if (const int ret = fi_getparams(&raw, &count); ret != 0) {
    absl::FPrintF(stderr, "fi_getparams: %d (%s)\n", ret, fi_strerror(-ret));
    return exit_status(-ret);
  }
  const std::unique_ptr<fi_param, decltype(&fi_freeparams)> params(raw, &fi_freeparams);
  Json json = Json::array();
  size_t shown = 0;
  for (int i = 0; i < count; ++i) {
    const fi_param &param = raw[i];
    if (options.env_filter && !absl::StrContains(absl::AsciiStrToLower(param.name),
                                                 absl::AsciiStrToLower(*options.env_filter))) {
      continue;
    }
    ++shown;
    const std::string help(absl::NullSafeStringView(param.help_string));
    if (options.json) {
      json.push_back({{"name", param.name},
                      {"type", param_type_name(param.type)},
                      {"help", help},
                      {"value", text_or_null(param.value)}});
      continue;
    }
    absl::PrintF("# %s: %s\n# %s\n", printable(param.name), param_type_name(param.type),
                 printable(help));
    if (param.value != nullptr) {
      absl::PrintF("%s=%s\n", printable(param.name), printable(param.value));
    }
    absl::PrintF("\n");
  }
  if (options.json) {
    print_json(json);
  }
  if (shown == 0 && options.env_filter) {
    absl::FPrintF(stderr, "fi_info: no environment variable has '%s' in its name; -e lists all\n",
                  *options.env_filter);
    return exit_status(FI_ENODATA);
  }
  return EXIT_SUCCESS;
}

int list_providers(const Options &options) {
  fi_info *raw = nullptr;
  const int ret =
      fi_getinfo(tools::api_version(), nullptr, nullptr, FI_PROV_ATTR_ONLY, nullptr, &raw);
  if (ret != 0) {
    return get_info_failed(ret, options);
  }
  const InfoList infos(raw, &fi_freeinfo);
  Json json = Json::array();
  for (const fi_info *info = raw; info != nullptr; info = info->next) {
    const fi_fabric_attr &fabric = *info->fabric_attr;
    if (options.json) {
      json.push_back(
          {{"name", fabric.prov_name}, {"version", tools::version_text(fabric.prov_version)}});
    } else {
      absl::PrintF("%s:\n    version: %s\n", printable(fabric.prov_name),
                   tools::version_text(fabric.prov_version));
    }
  }
  if (options.json) {
    print_json(json);
  }
  return EXIT_SUCCESS;
}

int list_interfaces(Options &options) {
  const char *node = options.node ? options.node->c_str() : nullptr;
  const char *service = options.port ? options.port->c_str() : nullptr;
  uint64_t flags = 0;
  if (options.source && node == nullptr) {
    node = options.source->c_str();
    flags = FI_SOURCE;
  } else if (options.source) {
    if (const int err = set_source_hint(options); err != 0) {
      return exit_status(err);
    }
    options.filtered = true;
  }
  fi_info *raw = nullptr;
  const int ret = fi_getinfo(tools::api_version(), node, service, flags,
                             options.filtered ? options.hints.get() : nullptr, &raw);
  if (ret != 0) {
    return get_info_failed(ret, options);
  }
  const InfoList infos(raw, &fi_freeinfo);
  Json json = Json::array();
  size_t shown = 0;
  for (const fi_info *info = raw; info != nullptr; info = info->next) {
    const std::string info_text(absl::NullSafeStringView(fi_tostr(info, FI_TYPE_INFO)));
    if (options.info_filter && !absl::StrContains(info_text, *options.info_filter)) {
      continue;
    }
    ++shown;
    if (options.json) {
      json.push_back(info_json(*info, info_text));
    } else if (options.verbose || options.info_filter) {
      absl::PrintF("---\n%s", printable_lines(info_text));
    } else {
      print_summary(*info);
    }
  }
  if (options.json) {
    print_json(json);
  }
  if (shown == 0) {
    absl::FPrintF(stderr, "fi_info: no fi_info structure contains '%s': %s\n",
                  options.info_filter.value_or(""), fi_strerror(FI_ENODATA));
    return exit_status(FI_ENODATA);
  }
  return EXIT_SUCCESS;
}

}  // namespace weft::info
