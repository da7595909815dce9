// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/names.h"

#include <unistd.h>
#include <weft/sdk/addresses/host_name.h>

#include <cstring>
#include <string_view>

namespace weft::shm {
namespace {

constexpr std::string_view kOpen = "fi_shm://", kWhole = "fi_ns://", kMark = "://";

std::string own_name() {
  return std::string(kOpen) + std::to_string(getpid());
}

// What stands behind the prefix, which may be missing.
std::string_view bare(std::string_view text) {
  const size_t mark = text.find(kMark);
  return mark == std::string_view::npos ? text : text.substr(mark + kMark.size());
}

// With one of our prefixes. A program may have one of its own, and then its name is whole.
Result<std::string> prefixed(std::string_view text) {
  if (text.starts_with("fi_sockaddr") || text.starts_with("fi_addr_"))
    return fail(FI_ENODATA, "shm: \"%.*s\" is no name within this host, but an address",
                int(std::min<size_t>(text.size(), 100)), text.data());
  const bool is_open = text.starts_with(kOpen);
  if (!is_open && bare(text).empty())
    return fail(FI_ENODATA, "shm: \"%.*s\" names no endpoint", int(text.size()), text.data());
  const std::string whole = std::string(is_open ? kOpen : kWhole) + std::string(bare(text));
  const auto address = sdk::read_address(FI_ADDR_STR, whole.c_str());
  if (!address) return fail(FI_ENODATA, "shm: %s", address.error().text.c_str());
  return whole;
}

std::string_view text_at(const void *address, size_t length) {
  const char *const text = static_cast<const char *>(address);
  return {text, strnlen(text, length)};
}

// By node and service.
std::string asked(const char *node, const char *service) {
  if (node != nullptr && std::strstr(node, "://") != nullptr) return node;
  if (node != nullptr && service != nullptr) return std::string(kWhole) + node + ":" + service;
  if (service != nullptr) return std::string(kWhole) + service;
  if (node != nullptr) return std::string(kOpen) + node;
  return own_name();
}

}  // namespace

// A name that is made unique is not used again, by whatever process: what is on its way to an
// endpoint that is gone must not reach another one.
Result<sdk::Address> WantedName::name(unsigned user, unsigned number) const {
  if (is_whole) return sdk::read_address(FI_ADDR_STR, (std::string(kOpen) + text).c_str());
  const std::string process = std::to_string(getpid());
  const std::string end = ":" + std::to_string(user) + ":" +
                          (text == process ? "" : process + "-") + std::to_string(number);
  const std::string_view begin =
      std::string_view(text).substr(0, sdk::kHostNameSize - 1 - end.size());
  return sdk::read_address(FI_ADDR_STR, (std::string(kOpen).append(begin) + end).c_str());
}

Result<WantedName> wanted_name(const fi_info &info) {
  const std::string own = own_name();
  const std::string_view text =
      info.src_addr != nullptr ? text_at(info.src_addr, info.src_addrlen) : std::string_view(own);
  return WantedName{.text = std::string(bare(text)), .is_whole = !text.starts_with(kOpen)};
}

Result<WantedName> wanted_name(const void *address, size_t length) {
  if (address == nullptr) return fail(FI_EINVAL, "a name is missing (it is null)");
  const std::string_view text = text_at(address, length);
  const WantedName wanted{.text = std::string(bare(text)), .is_whole = true};
  if (wanted.text.empty()) return fail(FI_EINVAL, "a name is missing (it is empty)");
  WEFT_CHECK(wanted.name(0, 0));
  return wanted;
}

Result<AskedNames> asked_names(const sdk::GetinfoQuery &query) {
  const fi_info *const hints = query.hints;
  if (hints != nullptr && hints->addr_format != FI_FORMAT_UNSPEC &&
      hints->addr_format != FI_ADDR_STR)
    return fail(FI_ENODATA, "hints.addr_format %u: shm has FI_ADDR_STR", hints->addr_format);
  AskedNames names;
  const bool is_asked = query.node != nullptr || query.service != nullptr;
  const bool is_source = (query.flags & FI_SOURCE) != 0;
  if (is_source) {
    WEFT_TRY(names.source, prefixed(asked(query.node, query.service)));
  } else {
    if (hints != nullptr && hints->src_addr != nullptr) {
      WEFT_TRY(names.source, prefixed(text_at(hints->src_addr, hints->src_addrlen)));
    } else {
      names.source = own_name();
    }
    if (is_asked) {
      WEFT_TRY(names.destination, prefixed(asked(query.node, query.service)));
    }
  }
  if (names.destination.empty() && hints != nullptr && hints->dest_addr != nullptr) {
    WEFT_TRY(names.destination, prefixed(text_at(hints->dest_addr, hints->dest_addrlen)));
  }
  return names;
}

}  // namespace weft::shm
