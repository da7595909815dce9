// SPDX-License-Identifier: BSD-2-Clause

// fi_info: asks fi_getinfo which fabric interfaces there are and prints the answer. Options and the
// plain output are those of fi_info(1), so that scripts which grep it go on working; --json is for
// new ones.

#include <getopt.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

namespace {

using Json = nlohmann::ordered_json;
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
};

void PrintUsage(FILE *to) {
  std::fprintf(
      to,
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
      "  -t, --ep_type=TYPE       endpoint type: FI_EP_MSG, FI_EP_DGRAM, FI_EP_RDM\n"
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
      "the query fails.\n");
}

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// Exit statuses have 8 bits, and some libfabric error numbers do not fit.
int ExitStatus(int err) {
  return err > 0 && err < 256 ? err : EXIT_FAILURE;
}

// --- names <-> numbers -------------------------------------------------------------------------
//
// The library itself knows the names of its values (fi_tostr), so no table here can get out of step
// with it: what a newer library can print, this program can parse.

template <typename T>
std::string NameOf(T value, fi_type type) {
  const char *text = fi_tostr(&value, type);
  return text != nullptr ? text : "";
}

struct Named {
  std::string name;
  uint64_t value;
};

template <typename T>
std::vector<Named> BitNames(fi_type type) {
  std::vector<Named> names;
  for (unsigned bit = 0; bit < 64; ++bit) {
    const uint64_t value = uint64_t{1} << bit;
    std::string name = NameOf(static_cast<T>(value), type);
    if (name.starts_with("FI_")) {
      names.push_back({std::move(name), value});
    }
  }
  return names;
}

template <typename T>
std::vector<Named> EnumNames(fi_type type) {
  std::vector<Named> names;
  for (uint64_t value = 0; value < 64; ++value) {
    std::string name = NameOf(static_cast<T>(value), type);
    if (name.starts_with("FI_")) {
      names.push_back({std::move(name), value});
    }
  }
  return names;
}

bool Lookup(const std::vector<Named> &names, std::string_view word, const char *what,
            uint64_t *value) {
  for (const Named &named : names) {
    if (Lower(named.name) == Lower(word)) {
      *value = named.value;
      return true;
    }
  }
  std::fprintf(stderr, "error: Unrecognized %s: %.*s\nknown:", what, static_cast<int>(word.size()),
               word.data());
  for (const Named &named : names) {
    std::fprintf(stderr, " %s", named.name.c_str());
  }
  std::fprintf(stderr, "\n");
  return false;
}

bool ParseBits(std::string_view text, const std::vector<Named> &names, const char *what,
               uint64_t *bits) {
  while (true) {
    const size_t bar = text.find('|');
    std::string_view word = text.substr(0, bar);
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    uint64_t bit = 0;
    if (!Lookup(names, word, what, &bit)) {
      return false;
    }
    *bits |= bit;
    if (bar == std::string_view::npos) {
      return true;
    }
    text.remove_prefix(bar + 1);
  }
}

// --- JSON --------------------------------------------------------------------------------------

std::string Hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

Json Text(const char *text) {
  return text != nullptr ? Json(text) : Json(nullptr);
}

// A list of names, with a hexadecimal number for each bit that the library cannot name.
template <typename T>
Json Bits(T bits, fi_type type) {
  using Unsigned = std::make_unsigned_t<T>;
  Json out = Json::array();
  for (unsigned bit = 0; bit < sizeof(T) * 8; ++bit) {
    const Unsigned value = static_cast<Unsigned>(Unsigned{1} << bit);
    if ((static_cast<Unsigned>(bits) & value) == 0) {
      continue;
    }
    const std::string name = NameOf(static_cast<T>(value), type);
    out.push_back(name.starts_with("FI_") ? name : Hex(value));
  }
  return out;
}

Json CompletionOrder(uint64_t order) {
  // No fi_type names these, and FI_ORDER_STRICT shares its bits with the message orders.
  Json out = Json::array();
  if ((order & FI_ORDER_STRICT) == FI_ORDER_STRICT) {
    out.push_back("FI_ORDER_STRICT");
    order &= ~uint64_t{FI_ORDER_STRICT};
  }
  if ((order & FI_ORDER_DATA) != 0) {
    out.push_back("FI_ORDER_DATA");
    order &= ~uint64_t{FI_ORDER_DATA};
  }
  if (order != 0) {
    out.push_back(Hex(order));
  }
  return out;
}

const char *ResourceManagementName(fi_resource_mgmt value) {
  switch (value) {
    case FI_RM_UNSPEC:
      return "FI_RM_UNSPEC";
    case FI_RM_DISABLED:
      return "FI_RM_DISABLED";
    case FI_RM_ENABLED:
      return "FI_RM_ENABLED";
  }
  return "unknown";
}

std::string Version(uint32_t version) {
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

// How to print an address depends on its format, which the library knows; its text of the whole
// fi_info has the address in a line of its own.
Json Address(const std::string &info_text, const char *key, const void *address, size_t length) {
  if (address == nullptr) {
    return nullptr;
  }
  const std::string label = std::string(key) + ": ";
  const size_t at = info_text.find(label);
  if (at != std::string::npos) {
    const size_t begin = at + label.size();
    return info_text.substr(begin, info_text.find('\n', begin) - begin);
  }
  std::string hex = "0x";
  for (size_t i = 0; i < length; ++i) {
    char byte[3];
    std::snprintf(byte, sizeof(byte), "%02x", static_cast<const unsigned char *>(address)[i]);
    hex += byte;
  }
  return hex;
}

Json TxAttr(const fi_tx_attr &attr) {
  return {{"caps", Bits(attr.caps, FI_TYPE_CAPS)},
          {"mode", Bits(attr.mode, FI_TYPE_MODE)},
          {"op_flags", Bits(attr.op_flags, FI_TYPE_OP_FLAGS)},
          {"msg_order", Bits(attr.msg_order, FI_TYPE_MSG_ORDER)},
          {"comp_order", CompletionOrder(attr.comp_order)},
          {"inject_size", attr.inject_size},
          {"size", attr.size},
          {"iov_limit", attr.iov_limit},
          {"rma_iov_limit", attr.rma_iov_limit},
          {"tclass", Hex(attr.tclass)}};
}

Json RxAttr(const fi_rx_attr &attr) {
  return {{"caps", Bits(attr.caps, FI_TYPE_CAPS)},
          {"mode", Bits(attr.mode, FI_TYPE_MODE)},
          {"op_flags", Bits(attr.op_flags, FI_TYPE_OP_FLAGS)},
          {"msg_order", Bits(attr.msg_order, FI_TYPE_MSG_ORDER)},
          {"comp_order", CompletionOrder(attr.comp_order)},
          {"total_buffered_recv", attr.total_buffered_recv},
          {"size", attr.size},
          {"iov_limit", attr.iov_limit}};
}

Json EpAttr(const fi_ep_attr &attr) {
  return {{"type", NameOf(attr.type, FI_TYPE_EP_TYPE)},
          {"protocol", NameOf(attr.protocol, FI_TYPE_PROTOCOL)},
          {"protocol_version", attr.protocol_version},
          {"max_msg_size", attr.max_msg_size},
          {"msg_prefix_size", attr.msg_prefix_size},
          {"max_order_raw_size", attr.max_order_raw_size},
          {"max_order_war_size", attr.max_order_war_size},
          {"max_order_waw_size", attr.max_order_waw_size},
          {"mem_tag_format", Hex(attr.mem_tag_format)},
          {"tx_ctx_cnt", attr.tx_ctx_cnt},
          {"rx_ctx_cnt", attr.rx_ctx_cnt},
          {"auth_key_size", attr.auth_key_size}};
}

Json DomainAttr(const fi_domain_attr &attr) {
  return {{"name", Text(attr.name)},
          {"threading", NameOf(attr.threading, FI_TYPE_THREADING)},
          {"control_progress", NameOf(attr.control_progress, FI_TYPE_PROGRESS)},
          {"data_progress", NameOf(attr.data_progress, FI_TYPE_PROGRESS)},
          {"resource_mgmt", ResourceManagementName(attr.resource_mgmt)},
          {"av_type", NameOf(attr.av_type, FI_TYPE_AV_TYPE)},
          {"mr_mode", Bits(attr.mr_mode, FI_TYPE_MR_MODE)},
          {"mr_key_size", attr.mr_key_size},
          {"cq_data_size", attr.cq_data_size},
          {"cq_cnt", attr.cq_cnt},
          {"ep_cnt", attr.ep_cnt},
          {"tx_ctx_cnt", attr.tx_ctx_cnt},
          {"rx_ctx_cnt", attr.rx_ctx_cnt},
          {"max_ep_tx_ctx", attr.max_ep_tx_ctx},
          {"max_ep_rx_ctx", attr.max_ep_rx_ctx},
          {"max_ep_stx_ctx", attr.max_ep_stx_ctx},
          {"max_ep_srx_ctx", attr.max_ep_srx_ctx},
          {"cntr_cnt", attr.cntr_cnt},
          {"mr_iov_limit", attr.mr_iov_limit},
          {"caps", Bits(attr.caps, FI_TYPE_CAPS)},
          {"mode", Bits(attr.mode, FI_TYPE_MODE)},
          {"auth_key_size", attr.auth_key_size},
          {"max_err_data", attr.max_err_data},
          {"mr_cnt", attr.mr_cnt},
          {"tclass", Hex(attr.tclass)},
          {"max_ep_auth_key", attr.max_ep_auth_key},
          {"max_group_id", attr.max_group_id},
          {"max_cntr_value", attr.max_cntr_value},
          {"max_err_cntr_value", attr.max_err_cntr_value}};
}

Json FabricAttr(const fi_fabric_attr &attr) {
  return {{"name", Text(attr.name)},
          {"prov_name", Text(attr.prov_name)},
          {"prov_version", Version(attr.prov_version)},
          {"api_version", Version(attr.api_version)}};
}

const char *LinkStateName(fi_link_state state) {
  switch (state) {
    case FI_LINK_UNKNOWN:
      return "FI_LINK_UNKNOWN";
    case FI_LINK_DOWN:
      return "FI_LINK_DOWN";
    case FI_LINK_UP:
      return "FI_LINK_UP";
  }
  return "unknown";
}

Json Nic(const fid_nic &nic) {
  Json out = Json::object();
  if (const fi_device_attr *device = nic.device_attr) {
    out["device_attr"] = {{"name", Text(device->name)},
                          {"device_id", Text(device->device_id)},
                          {"device_version", Text(device->device_version)},
                          {"vendor_id", Text(device->vendor_id)},
                          {"driver", Text(device->driver)},
                          {"firmware", Text(device->firmware)}};
  }
  if (const fi_bus_attr *bus = nic.bus_attr) {
    if (bus->bus_type == FI_BUS_PCI) {
      const fi_pci_attr &pci = bus->attr.pci;
      out["bus_attr"] = {{"bus_type", "FI_BUS_PCI"},
                         {"pci",
                          {{"domain_id", pci.domain_id},
                           {"bus_id", pci.bus_id},
                           {"device_id", pci.device_id},
                           {"function_id", pci.function_id}}}};
    } else {
      out["bus_attr"] = {{"bus_type", "FI_BUS_UNKNOWN"}};
    }
  }
  if (const fi_link_attr *link = nic.link_attr) {
    out["link_attr"] = {{"address", Text(link->address)},
                        {"mtu", link->mtu},
                        {"speed", link->speed},
                        {"state", LinkStateName(link->state)},
                        {"network_type", Text(link->network_type)}};
  }
  return out;
}

Json InfoJson(const fi_info &info, const std::string &text) {
  Json out = {{"caps", Bits(info.caps, FI_TYPE_CAPS)},
              {"mode", Bits(info.mode, FI_TYPE_MODE)},
              {"addr_format", NameOf(info.addr_format, FI_TYPE_ADDR_FORMAT)},
              {"src_addrlen", info.src_addrlen},
              {"dest_addrlen", info.dest_addrlen},
              {"src_addr", Address(text, "src_addr", info.src_addr, info.src_addrlen)},
              {"dest_addr", Address(text, "dest_addr", info.dest_addr, info.dest_addrlen)}};
  out["tx_attr"] = info.tx_attr != nullptr ? TxAttr(*info.tx_attr) : Json(nullptr);
  out["rx_attr"] = info.rx_attr != nullptr ? RxAttr(*info.rx_attr) : Json(nullptr);
  out["ep_attr"] = info.ep_attr != nullptr ? EpAttr(*info.ep_attr) : Json(nullptr);
  out["domain_attr"] = info.domain_attr != nullptr ? DomainAttr(*info.domain_attr) : Json(nullptr);
  out["fabric_attr"] = info.fabric_attr != nullptr ? FabricAttr(*info.fabric_attr) : Json(nullptr);
  out["nic"] = info.nic != nullptr ? Nic(*info.nic) : Json(nullptr);
  return out;
}

void PrintJson(const Json &json) {
  // Names come from devices and from the environment: bytes that are not UTF-8 must not end the
  // program.
  std::printf("%s\n", json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

// --- the queries -------------------------------------------------------------------------------

const char *ParamTypeName(fi_param_type type) {
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

int ListEnvironment(const Options &options) {
  fi_param *raw = nullptr;
  int count = 0;
  if (const int ret = fi_getparams(&raw, &count); ret != 0) {
    std::fprintf(stderr, "fi_getparams: %d (%s)\n", ret, fi_strerror(-ret));
    return ExitStatus(-ret);
  }
  const std::unique_ptr<fi_param, decltype(&fi_freeparams)> params(raw, &fi_freeparams);
  Json json = Json::array();
  size_t shown = 0;
  for (int i = 0; i < count; ++i) {
    const fi_param &param = raw[i];
    if (options.env_filter &&
        Lower(param.name).find(Lower(*options.env_filter)) == std::string::npos) {
      continue;
    }
    ++shown;
    const char *help = param.help_string != nullptr ? param.help_string : "";
    if (options.json) {
      json.push_back({{"name", param.name},
                      {"type", ParamTypeName(param.type)},
                      {"help", help},
                      {"value", Text(param.value)}});
      continue;
    }
    std::printf("# %s: %s\n# %s\n", param.name, ParamTypeName(param.type), help);
    if (param.value != nullptr) {
      std::printf("%s=%s\n", param.name, param.value);
    }
    std::printf("\n");
  }
  if (options.json) {
    PrintJson(json);
  }
  if (shown == 0 && options.env_filter) {
    std::fprintf(stderr, "fi_info: no environment variable has '%s' in its name; -e lists all\n",
                 options.env_filter->c_str());
    return ExitStatus(FI_ENODATA);
  }
  return EXIT_SUCCESS;
}

// The library refuses an API version that is newer than itself.
uint32_t ApiVersion() {
  return std::min<uint32_t>(fi_version(), FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION));
}

int GetInfoFailed(int ret, const Options &options) {
  std::fprintf(stderr, "fi_getinfo: %d (%s)\n", ret, fi_strerror(-ret));
  if (ret == -FI_ENODATA) {
    std::fprintf(stderr,
                 "fi_info: no interface of any provider matches; leave out filters to see which "
                 "one excludes it, or run with FI_LOG_LEVEL=info\n");
  }
  if (options.json) {
    PrintJson(Json::array());
  }
  return ExitStatus(-ret);
}

int ListProviders(const Options &options) {
  fi_info *raw = nullptr;
  const int ret = fi_getinfo(ApiVersion(), nullptr, nullptr, FI_PROV_ATTR_ONLY, nullptr, &raw);
  if (ret != 0) {
    return GetInfoFailed(ret, options);
  }
  const InfoList infos(raw, &fi_freeinfo);
  Json json = Json::array();
  for (const fi_info *info = raw; info != nullptr; info = info->next) {
    const fi_fabric_attr &fabric = *info->fabric_attr;
    if (options.json) {
      json.push_back({{"name", fabric.prov_name}, {"version", Version(fabric.prov_version)}});
    } else {
      std::printf("%s:\n    version: %s\n", fabric.prov_name, Version(fabric.prov_version).c_str());
    }
  }
  if (options.json) {
    PrintJson(json);
  }
  return EXIT_SUCCESS;
}

void PrintSummary(const fi_info &info) {
  const auto or_none = [](const char *text) { return text != nullptr ? text : "(null)"; };
  std::printf("provider: %s\n", or_none(info.fabric_attr->prov_name));
  std::printf("    fabric: %s\n", or_none(info.fabric_attr->name));
  std::printf("    domain: %s\n", or_none(info.domain_attr->name));
  std::printf("    version: %s\n", Version(info.fabric_attr->prov_version).c_str());
  std::printf("    type: %s\n", NameOf(info.ep_attr->type, FI_TYPE_EP_TYPE).c_str());
  std::printf("    protocol: %s\n", NameOf(info.ep_attr->protocol, FI_TYPE_PROTOCOL).c_str());
}

// fi_getinfo takes one node. When a destination and a source are both asked for, the source goes
// into the hints, as an address string or as a socket address.
int SetSourceHint(const Options &options, fi_info *hints) {
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
    std::fprintf(stderr, "fi_info: cannot resolve the source address '%s': %s\n", source.c_str(),
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

int ListInterfaces(const Options &options, fi_info *hints, bool filtered) {
  const char *node = options.node ? options.node->c_str() : nullptr;
  const char *service = options.port ? options.port->c_str() : nullptr;
  uint64_t flags = 0;
  if (options.source && node == nullptr) {
    node = options.source->c_str();
    flags = FI_SOURCE;
  } else if (options.source) {
    if (const int err = SetSourceHint(options, hints); err != 0) {
      return ExitStatus(err);
    }
    filtered = true;
  }
  fi_info *raw = nullptr;
  const int ret = fi_getinfo(ApiVersion(), node, service, flags, filtered ? hints : nullptr, &raw);
  if (ret != 0) {
    return GetInfoFailed(ret, options);
  }
  const InfoList infos(raw, &fi_freeinfo);
  Json json = Json::array();
  size_t shown = 0;
  for (const fi_info *info = raw; info != nullptr; info = info->next) {
    const char *text = fi_tostr(info, FI_TYPE_INFO);
    const std::string info_text = text != nullptr ? text : "";
    if (options.info_filter && info_text.find(*options.info_filter) == std::string::npos) {
      continue;
    }
    ++shown;
    if (options.json) {
      json.push_back(InfoJson(*info, info_text));
    } else if (options.verbose || options.info_filter) {
      std::printf("---\n%s", info_text.c_str());
    } else {
      PrintSummary(*info);
    }
  }
  if (options.json) {
    PrintJson(json);
  }
  if (shown == 0) {
    std::fprintf(stderr, "fi_info: no fi_info structure contains '%s': %s\n",
                 options.info_filter ? options.info_filter->c_str() : "", fi_strerror(FI_ENODATA));
    return ExitStatus(FI_ENODATA);
  }
  return EXIT_SUCCESS;
}

void PrintVersion() {
  std::printf("fi_info: %d.%d.%d\n", FI_MAJOR_VERSION, FI_MINOR_VERSION, FI_REVISION_VERSION);
  std::printf("libfabric: %s\n", fi_tostr("", FI_TYPE_VERSION));
  std::printf("libfabric api: %s\n", Version(fi_version()).c_str());
}

void Replace(char **member, const char *value) {
  std::free(*member);
  *member = strdup(value);
}

}  // namespace

int main(int argc, char **argv) {
  enum { kVersion = 256, kJson };
  static const option kLongOptions[] = {{"help", no_argument, nullptr, 'h'},
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
  Options options;
  const InfoList hints(fi_allocinfo(), &fi_freeinfo);
  if (hints == nullptr) {
    std::fprintf(stderr, "fi_info: out of memory\n");
    return ExitStatus(FI_ENOMEM);
  }
  // Nothing is to be hidden because an application would have to do something for it.
  hints->mode = ~uint64_t{0};
  hints->domain_attr->mode = ~uint64_t{0};
  hints->domain_attr->mr_mode = ~(FI_MR_BASIC | FI_MR_SCALABLE);

  bool filtered = false;  // whether any filter needs the hints; without hints the library decides
  bool mode_given = false;
  uint64_t value = 0;
  int option;
  while ((option = getopt_long(argc, argv, "hn:P:s:c:m:t:d:f:a:p:eg:i:lv", kLongOptions,
                               nullptr)) != -1) {
    filtered =
        filtered || (option < 128 && std::string_view("cmtadfp").find(static_cast<char>(option)) !=
                                         std::string_view::npos);
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
        if (!ParseBits(optarg, BitNames<uint64_t>(FI_TYPE_CAPS), "capability", &hints->caps)) {
          return ExitStatus(FI_EINVAL);
        }
        break;
      case 'm':
        if (!mode_given) {
          hints->mode = 0;
          mode_given = true;
        }
        if (!ParseBits(optarg, BitNames<uint64_t>(FI_TYPE_MODE), "mode", &hints->mode)) {
          return ExitStatus(FI_EINVAL);
        }
        break;
      case 't':
        if (!Lookup(EnumNames<fi_ep_type>(FI_TYPE_EP_TYPE), optarg, "endpoint type", &value)) {
          return ExitStatus(FI_EINVAL);
        }
        hints->ep_attr->type = static_cast<fi_ep_type>(value);
        break;
      case 'a':
        if (!Lookup(EnumNames<uint32_t>(FI_TYPE_ADDR_FORMAT), optarg, "address format", &value)) {
          return ExitStatus(FI_EINVAL);
        }
        hints->addr_format = static_cast<uint32_t>(value);
        break;
      case 'd':
        Replace(&hints->domain_attr->name, optarg);
        break;
      case 'f':
        Replace(&hints->fabric_attr->name, optarg);
        break;
      case 'p':
        Replace(&hints->fabric_attr->prov_name, optarg);
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
        PrintVersion();
        return EXIT_SUCCESS;
      case kJson:
        options.json = true;
        break;
      case 'h':
        PrintUsage(stdout);
        return EXIT_SUCCESS;
      default:
        PrintUsage(stderr);
        return EXIT_FAILURE;
    }
  }
  if (optind < argc) {
    std::fprintf(stderr, "fi_info: unexpected argument '%s': every filter is an option\n",
                 argv[optind]);
    PrintUsage(stderr);
    return EXIT_FAILURE;
  }
  if (options.env) {
    return ListEnvironment(options);
  }
  if (options.list) {
    return ListProviders(options);
  }
  return ListInterfaces(options, hints.get(), filtered);
}
