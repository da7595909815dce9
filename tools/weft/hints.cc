// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/hints.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <netdb.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <sys/socket.h>

#include <cstring>
#include <vector>

#include "tools/names.h"
#include "tools/weft/text.h"

namespace weft::cli {
namespace {

using tools::bit_names;
using tools::enum_names;
using tools::Named;

// With the prefix "FI_EP_" it is "msg" for "FI_EP_MSG", "EP_MSG" and "msg".
std::string bare(absl::string_view word, absl::string_view prefix) {
  const std::string text = absl::AsciiStrToLower(word), whole = absl::AsciiStrToLower(prefix);
  for (const std::string &front : {whole, whole.substr(whole.find('_') + 1), std::string("fi_")})
    if (absl::string_view rest = text; !front.empty() && absl::ConsumePrefix(&rest, front))
      return std::string(rest);
  return text;
}

Result<uint64_t> value_of(absl::string_view word, const std::vector<Named> &names,
                          absl::string_view prefix, const char *what) {
  std::vector<std::string> known;
  for (const Named &named : names) {
    const std::string name = bare(named.name, prefix);
    if (name == "unspec") continue;
    if (name == bare(word, prefix)) return named.value;
    known.push_back(name);
  }
  const std::string close = nearest_word(bare(word, prefix), known);
  if (!close.empty())
    return fail(FI_EINVAL, "unknown %s '%.*s': did you mean '%s'?", what,
                static_cast<int>(word.size()), word.data(), close.c_str());
  return fail(FI_EINVAL, "unknown %s '%.*s'; known: %s", what, static_cast<int>(word.size()),
              word.data(), absl::StrJoin(known, " ").c_str());
}

Result<uint64_t> bits_of(const std::string &text, const std::vector<Named> &names,
                         const char *what) {
  uint64_t bits = 0;
  for (const absl::string_view word : absl::StrSplit(text, absl::ByAnyChar("|,"))) {
    WEFT_TRY(const uint64_t bit, value_of(absl::StripAsciiWhitespace(word), names, "FI_", what));
    bits |= bit;
  }
  return bits;
}

void set(char **member, const std::string &value) {
  if (value.empty()) return;
  std::free(*member);
  *member = ::strdup(value.c_str());
}

}  // namespace

void add_hint_options(CLI::App &command, HintOptions &options) {
  const std::string group = "What the application asks for";
  command.add_option("-t,--ep", options.ep, "endpoint type: msg, rdm or dgram")->group(group);
  command
      .add_option("-c,--caps", options.caps, "capabilities, all of which must be there: 'msg|rma'")
      ->group(group);
  command.add_option("-m,--mode", options.mode, "modes that it accepts (default: all)")
      ->group(group);
  command.add_option("-p,--provider", options.provider, "provider: tcp, 'tcp;ofi_rxm'")
      ->group(group);
  command.add_option("-d,--domain", options.domain, "domain")->group(group);
  command.add_option("-f,--fabric", options.fabric, "fabric")->group(group);
  command.add_option("-a,--addr_format", options.addr_format, "address format: sockaddr_in, ...")
      ->group(group);
  command.add_option("-n,--node", options.node, "destination, a host name or an address")
      ->group(group);
  command.add_option("-P,--port", options.service, "port number or service name")->group(group);
}

Result<HintOptions> parse_hints(const std::string &text) {
  HintOptions options;
  CLI::App app;
  app.set_help_flag("");
  add_hint_options(app, options);
  try {
    app.parse(text);
  } catch (const CLI::ParseError &error) {
    return fail(FI_EINVAL,
                "hints '%s': %s: write them as for `weft info`: --ep rdm --caps 'tagged|rma'",
                text.c_str(), error.what());
  }
  return options;
}

Result<Offers> ask(const HintOptions &options) {
  const std::unique_ptr<fi_info, decltype(&fi_freeinfo)> hints(fi_allocinfo(), &fi_freeinfo);
  if (hints == nullptr) return fail(FI_ENOMEM, "out of memory");
  // No interface is left out because it requires something of the application.
  hints->mode = ~uint64_t{0};
  hints->domain_attr->mode = ~uint64_t{0};
  hints->domain_attr->mr_mode = ~(FI_MR_BASIC | FI_MR_SCALABLE);
  if (!options.ep.empty()) {
    WEFT_TRY(const uint64_t type, value_of(options.ep, enum_names<fi_ep_type>(FI_TYPE_EP_TYPE),
                                           "FI_EP_", "endpoint type"));
    hints->ep_attr->type = static_cast<fi_ep_type>(type);
  }
  if (!options.caps.empty()) {
    WEFT_TRY(hints->caps, bits_of(options.caps, bit_names<uint64_t>(FI_TYPE_CAPS), "capability"));
  }
  if (!options.mode.empty()) {
    WEFT_TRY(hints->mode, bits_of(options.mode, bit_names<uint64_t>(FI_TYPE_MODE), "mode"));
  }
  if (!options.addr_format.empty()) {
    WEFT_TRY(const uint64_t format,
             value_of(options.addr_format, enum_names<uint32_t>(FI_TYPE_ADDR_FORMAT), "FI_",
                      "address format"));
    hints->addr_format = static_cast<uint32_t>(format);
  }
  set(&hints->fabric_attr->prov_name, options.provider);
  set(&hints->fabric_attr->name, options.fabric);
  set(&hints->domain_attr->name, options.domain);
  const auto or_null = [](const std::string &text) {
    return text.empty() ? nullptr : text.c_str();
  };
  Offers offers;
  fi_info *list = nullptr;
  offers.ret = fi_getinfo(tools::api_version(), or_null(options.node), or_null(options.service), 0,
                          hints.get(), &list);
  if (offers.ret == 0) offers.list.reset(list);
  return offers;
}

std::string ep_type_word(fi_ep_type type) {
  return bare(tools::name_of(type, FI_TYPE_EP_TYPE), "FI_EP_");
}

std::string source_address(const fi_info &info) {
  if (info.src_addr == nullptr) return {};
  const bool socket = info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IN ||
                      info.addr_format == FI_SOCKADDR_IN6;
  char host[NI_MAXHOST];
  if (socket && getnameinfo(static_cast<const sockaddr *>(info.src_addr),
                            static_cast<socklen_t>(info.src_addrlen), host, sizeof host, nullptr, 0,
                            NI_NUMERICHOST) == 0)
    return host;
  // Other formats: the library prints the address in a line of its own.
  const std::string whole(absl::NullSafeStringView(fi_tostr(&info, FI_TYPE_INFO)));
  const std::string label = "src_addr: ";
  const size_t at = whole.find(label);
  if (at == std::string::npos) return {};
  const size_t begin = at + label.size();
  return whole.substr(begin, whole.find('\n', begin) - begin);
}

}  // namespace weft::cli
