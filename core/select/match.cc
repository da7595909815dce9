// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/match.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/base/tostr.h"

namespace weft {
namespace {

// ---- the vocabulary: which bits mean what
// ---------------------------------------------------------

constexpr uint64_t kMessageModifiers = FI_SEND | FI_RECV;
constexpr uint64_t kMemoryModifiers = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

// Secondary capabilities that may be given unasked, because having them costs nothing. Source
// addresses, remote events, fences and triggers make an implementation do more for each operation,
// so they are there only if asked for.
constexpr uint64_t kFreeSecondary =
    FI_MULTI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SHARED_AV | FI_RMA_PMEM;

constexpr uint64_t kTxCaps = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_READ | FI_WRITE |
                             FI_SEND | FI_HMEM | FI_TRIGGER | FI_FENCE | FI_MULTICAST |
                             FI_RMA_PMEM | FI_NAMED_RX_CTX | FI_COLLECTIVE;
constexpr uint64_t kRxCaps =
    FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RECV | FI_HMEM |
    FI_TRIGGER | FI_RMA_PMEM | FI_DIRECTED_RECV | FI_TAGGED_DIRECTED_RECV | FI_EXACT_DIRECTED_RECV |
    FI_MULTI_RECV | FI_TAGGED_MULTI_RECV | FI_SOURCE | FI_RMA_EVENT | FI_SOURCE_ERR | FI_COLLECTIVE;

// FI_MR_BASIC is short for these three.
constexpr int kBasicBits = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
constexpr int kOldForms = FI_MR_BASIC | FI_MR_SCALABLE;

// The API version in which mr_mode became a set of requirements.
constexpr uint32_t kMrBits = FI_VERSION(1, 5);

struct OrderAlias {
  uint64_t both, rma, atomic;
};
constexpr OrderAlias kOrderAliases[] = {
    {FI_ORDER_RAR, FI_ORDER_RMA_RAR, FI_ORDER_ATOMIC_RAR},
    {FI_ORDER_RAW, FI_ORDER_RMA_RAW, FI_ORDER_ATOMIC_RAW},
    {FI_ORDER_WAR, FI_ORDER_RMA_WAR, FI_ORDER_ATOMIC_WAR},
    {FI_ORDER_WAW, FI_ORDER_RMA_WAW, FI_ORDER_ATOMIC_WAW},
};

// An order among reads and writes holds for RMA and for atomics. The reverse is not true: each kind
// may be in order without being so toward the other.
uint64_t with_aliases(uint64_t order) {
  for (const OrderAlias &alias : kOrderAliases) {
    if ((order & alias.both) != 0) order |= alias.rma | alias.atomic;
  }
  return order;
}

// The place of a value in a list that goes from hard to easy for a provider; 0 if it says nothing.
template <class T, size_t N>
size_t place(const T (&list)[N], T value) {
  return size_t(std::find(list, list + N, value) - list + 1) % (N + 1);
}

// How much an application promises to serialise.
size_t serialisation(fi_threading threading) {
  static constexpr fi_threading kHardToEasy[] = {FI_THREAD_SAFE, FI_THREAD_FID, FI_THREAD_ENDPOINT,
                                                 FI_THREAD_COMPLETION, FI_THREAD_DOMAIN};
  return place(kHardToEasy, threading);
}

// How much of the progress an application is ready to make itself.
size_t self_driven(fi_progress progress) {
  static constexpr fi_progress kHardToEasy[] = {FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL,
                                                FI_PROGRESS_CONTROL_UNIFIED};
  return place(kHardToEasy, progress);
}

// A capability without its modifiers means all of them.
uint64_t with_modifiers(uint64_t caps, uint64_t offered) {
  if ((caps & (FI_MSG | FI_TAGGED | FI_MULTICAST)) != 0 && (caps & kMessageModifiers) == 0)
    caps |= offered & kMessageModifiers;
  if ((caps & (FI_RMA | FI_ATOMIC)) != 0 && (caps & kMemoryModifiers) == 0)
    caps |= offered & kMemoryModifiers;
  return caps;
}

uint64_t tx_part(uint64_t caps) {
  uint64_t part = caps & kTxCaps;
  if ((part & FI_SEND) == 0) part &= ~(FI_MSG | FI_TAGGED | FI_MULTICAST);
  if ((part & (FI_READ | FI_WRITE)) == 0) part &= ~(FI_RMA | FI_ATOMIC);
  return part;
}

uint64_t rx_part(uint64_t caps) {
  uint64_t part = caps & kRxCaps;
  if ((part & FI_RECV) == 0) part &= ~(FI_MSG | FI_TAGGED);
  if ((part & (FI_REMOTE_READ | FI_REMOTE_WRITE)) == 0) part &= ~(FI_RMA | FI_ATOMIC);
  return part;
}

// What the application asked for over all; 0: nothing in particular.
uint64_t wanted_caps(const fi_info *hints) {
  if (hints == nullptr || hints->caps == 0) return 0;
  uint64_t caps = hints->caps;
  if (hints->tx_attr != nullptr) caps |= hints->tx_attr->caps;
  if (hints->rx_attr != nullptr) caps |= hints->rx_attr->caps;
  return caps;
}

uint64_t returned_caps(const fi_info *hints, const fi_info &offer) {
  const uint64_t wanted = wanted_caps(hints);
  if (wanted == 0) return offer.caps;
  uint64_t free_caps = kFreeSecondary;
  if ((wanted & (FI_MSG | FI_TAGGED)) == 0) free_caps &= ~FI_MULTI_RECV;
  if ((wanted & (FI_RMA | FI_ATOMIC)) == 0) free_caps &= ~FI_RMA_PMEM;
  return with_modifiers(wanted, offer.caps) | (offer.caps & free_caps);
}

// The same of the domain, of which capabilities of endpoints want what is a domain's, too.
uint64_t returned_domain_caps(const fi_info *hints, const fi_info &offer) {
  const uint64_t offered = offer.domain_attr->caps;
  const uint64_t own =
      hints != nullptr && hints->domain_attr != nullptr ? hints->domain_attr->caps : 0;
  const uint64_t wanted = wanted_caps(hints) | own;
  return wanted == 0 ? offered : offered & (wanted | kFreeSecondary);
}

// Whether peers reach memory of an endpoint with these capabilities.
bool is_target(uint64_t caps) {
  return (caps & (FI_RMA | FI_ATOMIC)) != 0 &&
         ((caps & kMemoryModifiers) == 0 || (caps & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0);
}

// What registration requires at such an endpoint: one whose memory no peer reaches needs no rules
// for the keys of peers.
int required_mr_bits(int offered, uint64_t caps) {
  int bits = offered & ~kOldForms;
  if (bits == 0 && (offered & kOldForms) == FI_MR_BASIC) bits = kBasicBits;
  if ((caps & FI_HMEM) == 0) bits &= ~FI_MR_HMEM;
  if ((caps & FI_COLLECTIVE) == 0) bits &= ~FI_MR_COLLECTIVE;
  if ((caps & FI_RMA_EVENT) == 0) bits &= ~FI_MR_RMA_EVENT;
  if (!is_target(caps)) {
    bits &= ~(FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_RMA_EVENT);
    // Nothing is ever registered: neither peers nor local operations ask for it.
    if ((bits & (FI_MR_LOCAL | FI_MR_HMEM | FI_MR_COLLECTIVE)) == 0) bits = 0;
  }
  return bits;
}

// Whether basic registration (addresses are virtual, the provider chooses the keys) is what the
// provider does or can do.
bool can_basic(int offered, int required, uint64_t caps) {
  if ((required & ~(kBasicBits | FI_MR_LOCAL)) != 0) return false;
  if ((offered & FI_MR_BASIC) != 0 || !is_target(caps)) return true;
  const int keys = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
  return (required & keys) == keys;
}

bool can_scalable(int required) {
  return (required & ~FI_MR_LOCAL) == 0;
}

// mr_mode in the hints, in the sense of the application's API version.
struct MrWish {
  bool any = false;                      // nothing was said
  bool basic = false, scalable = false;  // an old form; both: either of them
  bool invalid = false;
  int bits = 0;  // new form: what the application is ready to do
};

MrWish mr_wish(uint32_t version, const fi_info *hints) {
  MrWish wish;
  if (hints == nullptr || hints->domain_attr == nullptr) {
    wish.any = true;
    return wish;
  }
  const int mode = hints->domain_attr->mr_mode;
  if (mode == FI_MR_BASIC) {
    wish.basic = true;
  } else if (mode == FI_MR_SCALABLE) {
    wish.scalable = true;
  } else if (FI_VERSION_LT(version, kMrBits)) {
    wish.basic = wish.scalable = mode == FI_MR_UNSPEC;
    wish.invalid = mode != FI_MR_UNSPEC;
  } else {
    wish.bits = mode;
    wish.invalid = (mode & kOldForms) != 0;
  }
  return wish;
}

// ---- comparing
// ------------------------------------------------------------------------------------

bool same_word(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool one_admits(std::string_view wanted, const std::vector<std::string_view> &elements) {
  const std::vector<std::string_view> names = split(wanted, ';');
  if (names.size() == 1) {
    return std::any_of(elements.begin(), elements.end(),
                       [&](std::string_view element) { return same_word(element, names[0]); });
  }
  return std::equal(names.begin(), names.end(), elements.begin(), elements.end(), same_word) ||
         std::equal(names.rbegin(), names.rend(), elements.begin(), elements.end(), same_word);
}

// Collects what does not fit. The names of fields are those of the C API.
class Check {
 public:
  void reject(std::string text) {
    const uint32_t distance = distance_of_refusal(text);
    // Without an attribute it is a fault of the plugin.
    refusals_.push_back({std::move(text), distance != 0 ? distance : 16});
  }
  std::vector<Refusal> take() { return std::move(refusals_); }

  void at_most(const char *field, uint64_t wanted, uint64_t offered) {
    if (wanted == 0 || wanted <= offered) return;
    reject(std::string("hints.") + field + " " + std::to_string(wanted) + " is above " +
           std::to_string(offered));
  }
  // As at_most, where an offer of 0 means that no limit is stated.
  void at_most_if_stated(const char *field, uint64_t wanted, uint64_t offered) {
    if (offered != 0) at_most(field, wanted, offered);
  }
  void subset(const char *field, uint64_t wanted, uint64_t offered, fi_type type) {
    if ((wanted & ~offered) == 0) return;
    reject(std::string("hints.") + field + ": " + text(wanted & ~offered, type) +
           " wanted, offered is " + text(offered, type));
  }
  // What the provider needs must be among what the application is ready for.
  void requires_bits(const char *field, uint64_t ready, uint64_t required, fi_type type) {
    if ((required & ~ready) == 0) return;
    reject(std::string("hints.") + field + " lacks " + text(required & ~ready, type) +
           ", which is required here");
  }
  template <class Value>
  void differs(const char *field, Value wanted, Value offered, fi_type type) {
    reject(std::string("hints.") + field + ": " + text(wanted, type) + " wanted, " +
           text(offered, type) + " offered");
  }
  void name(const char *field, const char *wanted, const char *offered) {
    if (wanted == nullptr || (offered != nullptr && std::strcmp(wanted, offered) == 0)) return;
    reject(std::string("hints.") + field + ": \"" + wanted + "\" wanted, " +
           (offered == nullptr ? std::string("none offered")
                               : "\"" + std::string(offered) + "\" offered"));
  }

  template <class Value>
  static std::string text(Value value, fi_type type) {
    char buffer[1024];
    to_text(&value, type, buffer, sizeof buffer);
    return buffer[0] == '\0' ? "nothing" : buffer;
  }

 private:
  std::vector<Refusal> refusals_;
};

// ---- the attributes one by one
// --------------------------------------------------------------------

bool is_socket_format(uint32_t format) {
  return format == FI_SOCKADDR || format == FI_SOCKADDR_IP || format == FI_SOCKADDR_IN ||
         format == FI_SOCKADDR_IN6;
}

// Whether addresses of the offered format are of the wanted kind.
bool format_fits(uint32_t wanted, const fi_info &offer) {
  const uint32_t offered = offer.addr_format;
  if (wanted == offered) return true;
  const auto family = [&]() -> int {
    if (offered == FI_SOCKADDR_IN) return AF_INET;
    if (offered == FI_SOCKADDR_IN6) return AF_INET6;
    for (const auto &[addr, length] : {std::pair(offer.src_addr, offer.src_addrlen),
                                       std::pair(offer.dest_addr, offer.dest_addrlen)}) {
      if (addr == nullptr || length < sizeof(sa_family_t)) continue;
      sa_family_t value;
      std::memcpy(&value, addr, sizeof value);
      return value;
    }
    return AF_UNSPEC;  // whatever will be opened
  };
  switch (wanted) {
    case FI_SOCKADDR:
      return is_socket_format(offered) || offered == FI_SOCKADDR_IB;
    case FI_SOCKADDR_IP:
      return is_socket_format(offered);
    case FI_SOCKADDR_IN:
      return (offered == FI_SOCKADDR || offered == FI_SOCKADDR_IP) &&
             (family() == AF_INET || family() == AF_UNSPEC);
    case FI_SOCKADDR_IN6:
      return (offered == FI_SOCKADDR || offered == FI_SOCKADDR_IP) &&
             (family() == AF_INET6 || family() == AF_UNSPEC);
    default:
      return false;
  }
}

struct Endpoint {  // an IP address and a port; zeros are wildcards
  int family = AF_UNSPEC;
  unsigned char address[16] = {};
  uint16_t port = 0;
};

Endpoint endpoint_of(const void *addr, size_t length) {
  Endpoint endpoint;
  sa_family_t family = AF_UNSPEC;
  if (addr == nullptr || length < sizeof family) return endpoint;
  std::memcpy(&family, addr, sizeof family);
  if (family == AF_INET && length >= sizeof(sockaddr_in)) {
    sockaddr_in in;
    std::memcpy(&in, addr, sizeof in);
    std::memcpy(endpoint.address, &in.sin_addr, sizeof in.sin_addr);
    endpoint.port = in.sin_port;
    endpoint.family = family;
  } else if (family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in6;
    std::memcpy(&in6, addr, sizeof in6);
    std::memcpy(endpoint.address, &in6.sin6_addr, sizeof in6.sin6_addr);
    endpoint.port = in6.sin6_port;
    endpoint.family = family;
  }
  return endpoint;
}

bool is_wildcard(const Endpoint &endpoint) {
  return std::all_of(std::begin(endpoint.address), std::end(endpoint.address),
                     [](unsigned char byte) { return byte == 0; });
}

std::string address_text(const Endpoint &endpoint) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(endpoint.family, endpoint.address, text, sizeof text);
  return text;
}

void check_addresses(Check &check, uint64_t flags, const fi_info &hints, const fi_info &offer) {
  if (hints.addr_format != FI_FORMAT_UNSPEC && !format_fits(hints.addr_format, offer))
    check.differs("addr_format", hints.addr_format, offer.addr_format, FI_TYPE_ADDR_FORMAT);

  // With FI_SOURCE, node and service say what src_addr would.
  const bool source_counts = (flags & FI_SOURCE) == 0 && hints.src_addr != nullptr;
  if (source_counts && hints.src_addrlen == 0)
    check.reject("hints.src_addrlen is 0 although hints.src_addr is set");
  if (hints.dest_addr != nullptr && hints.dest_addrlen == 0)
    check.reject("hints.dest_addrlen is 0 although hints.dest_addr is set");
  const bool text_addresses = hints.addr_format == FI_ADDR_STR || offer.addr_format == FI_ADDR_STR;
  if (!source_counts || text_addresses) return;
  const Endpoint wanted = endpoint_of(hints.src_addr, hints.src_addrlen);
  const Endpoint offered = endpoint_of(offer.src_addr, offer.src_addrlen);
  if (wanted.family == AF_UNSPEC || offered.family == AF_UNSPEC) return;
  if (wanted.family != offered.family) {
    check.reject("hints.src_addr: " + address_text(wanted) +
                 " wanted, an address of this family is not offered (" + address_text(offered) +
                 ")");
  } else if (!is_wildcard(wanted) && !is_wildcard(offered) &&
             std::memcmp(wanted.address, offered.address, sizeof wanted.address) != 0) {
    check.reject("hints.src_addr: " + address_text(wanted) + " wanted, " + address_text(offered) +
                 " offered");
  }
}

// Whether tags in the offered layout can carry the fields of the wanted one. A field may be made of
// several neighbouring ones, since their masks can be set together.
bool tag_format_fits(uint64_t wanted, uint64_t offered) {
  if (wanted == offered || wanted == FI_TAG_BITS || offered == FI_TAG_BITS) return true;
  // The named formats leave bits out that a free layout may ask for; only all free bits serve them.
  if (wanted < FI_TAG_MAX_FORMAT && (wanted == FI_TAG_MPI || wanted == FI_TAG_CCL)) {
    return std::bit_width(offered) == 64;
  }
  if (offered == FI_TAG_MPI || offered == FI_TAG_CCL) return false;
  const auto fields = [](uint64_t format) {
    std::vector<int> sizes;
    int bit = std::bit_width(format) - 1;
    while (bit >= 0) {
      const uint64_t value = (format >> bit) & 1;
      int size = 0;
      while (bit >= 0 && ((format >> bit) & 1) == value) --bit, ++size;
      sizes.push_back(size);
    }
    return sizes;
  };
  const std::vector<int> available = fields(offered);
  size_t next = 0;
  for (const int size : fields(wanted)) {
    int room = 0;
    while (room < size && next < available.size()) room += available[next++];
    if (room < size) return false;
  }
  return true;
}

void check_contexts(Check &check, const char *field, size_t wanted, size_t offered,
                    size_t per_endpoint, size_t sharing) {
  if (wanted == FI_SHARED_CONTEXT) {
    if (sharing == 0 && offered != FI_SHARED_CONTEXT)
      check.reject(std::string("hints.") + field +
                   ": FI_SHARED_CONTEXT wanted, shared contexts are not offered");
    return;
  }
  check.at_most(field, wanted, std::max(offered == FI_SHARED_CONTEXT ? 0 : offered, per_endpoint));
}

void check_ep(Check &check, uint32_t version, const fi_info &hints, const fi_info &offer) {
  if (hints.ep_attr == nullptr) return;
  const fi_ep_attr &want = *hints.ep_attr;
  const fi_ep_attr &have = *offer.ep_attr;
  if (want.type != FI_EP_UNSPEC && want.type != have.type)
    check.differs("ep_attr.type", want.type, have.type, FI_TYPE_EP_TYPE);
  if (want.protocol != FI_PROTO_UNSPEC && want.protocol != have.protocol)
    check.differs("ep_attr.protocol", want.protocol, have.protocol, FI_TYPE_PROTOCOL);
  check.at_most("ep_attr.protocol_version", want.protocol_version, have.protocol_version);
  check.at_most("ep_attr.max_msg_size", want.max_msg_size, have.max_msg_size);
  // The application says how much room it can put in front of buffers.
  if (want.msg_prefix_size != 0 && have.msg_prefix_size > want.msg_prefix_size)
    check.reject("hints.ep_attr.msg_prefix_size: " + std::to_string(want.msg_prefix_size) +
                 " given, " + std::to_string(have.msg_prefix_size) + " needed");
  check.at_most("ep_attr.max_order_raw_size", want.max_order_raw_size, have.max_order_raw_size);
  check.at_most("ep_attr.max_order_war_size", want.max_order_war_size, have.max_order_war_size);
  check.at_most("ep_attr.max_order_waw_size", want.max_order_waw_size, have.max_order_waw_size);
  if ((offer.caps & FI_TAGGED) != 0 && !tag_format_fits(want.mem_tag_format, have.mem_tag_format)) {
    char text[96];
    std::snprintf(text, sizeof text,
                  "hints.ep_attr.mem_tag_format: 0x%" PRIx64 " wanted, 0x%" PRIx64 " offered",
                  want.mem_tag_format, have.mem_tag_format);
    check.reject(text);
  }
  check_contexts(check, "ep_attr.tx_ctx_cnt", want.tx_ctx_cnt, have.tx_ctx_cnt,
                 offer.domain_attr->max_ep_tx_ctx, offer.domain_attr->max_ep_stx_ctx);
  check_contexts(check, "ep_attr.rx_ctx_cnt", want.rx_ctx_cnt, have.rx_ctx_cnt,
                 offer.domain_attr->max_ep_rx_ctx, offer.domain_attr->max_ep_srx_ctx);
  if (FI_VERSION_GE(version, kMrBits)) {
    check.at_most("ep_attr.auth_key_size", want.auth_key_size, have.auth_key_size);
    if (want.auth_key_size != 0 && want.auth_key == nullptr)
      check.reject("hints.ep_attr.auth_key is NULL although auth_key_size is set");
  }
}

// A traffic class is a wish for scheduling that no result depends on: a provider that has none at
// all still serves, and says so in what it returns. One that has classes must have the wanted one.
void check_tclass(Check &check, const char *field, uint32_t wanted, uint32_t offered) {
  if (wanted == FI_TC_UNSPEC || offered == FI_TC_UNSPEC || wanted == offered ||
      wanted == FI_TC_BEST_EFFORT)
    return;
  char text[128];
  std::snprintf(text, sizeof text, "hints.%s: 0x%x wanted, 0x%x offered", field, wanted, offered);
  check.reject(text);
}

void check_tx(Check &check, const fi_info &hints, const fi_info &offer, uint64_t mode_ready) {
  if (hints.tx_attr == nullptr) {
    check.requires_bits("mode", mode_ready, offer.tx_attr->mode, FI_TYPE_MODE);
    return;
  }
  const fi_tx_attr &want = *hints.tx_attr;
  const fi_tx_attr &have = *offer.tx_attr;
  // Bits that say nothing about transmitting are held against the whole only.
  check.subset("tx_attr.caps", want.caps & kTxCaps, have.caps != 0 ? have.caps : offer.caps,
               FI_TYPE_CAPS);
  if (want.mode == 0) {
    check.requires_bits("mode", mode_ready, have.mode, FI_TYPE_MODE);
  } else {
    check.requires_bits("tx_attr.mode", want.mode, have.mode, FI_TYPE_MODE);
  }
  check.subset("tx_attr.op_flags", want.op_flags, have.op_flags, FI_TYPE_OP_FLAGS);
  check.subset("tx_attr.msg_order", want.msg_order, with_aliases(have.msg_order),
               FI_TYPE_MSG_ORDER);
  check.subset("tx_attr.comp_order", want.comp_order, have.comp_order, FI_TYPE_MSG_ORDER);
  check.at_most("tx_attr.inject_size", want.inject_size, have.inject_size);
  check.at_most("tx_attr.size", want.size, have.size);
  check.at_most("tx_attr.iov_limit", want.iov_limit, have.iov_limit);
  check.at_most("tx_attr.rma_iov_limit", want.rma_iov_limit, have.rma_iov_limit);
  check_tclass(check, "tx_attr.tclass", want.tclass, have.tclass);
}

void check_rx(Check &check, const fi_info &hints, const fi_info &offer, uint64_t mode_ready) {
  if (hints.rx_attr == nullptr) {
    check.requires_bits("mode", mode_ready, offer.rx_attr->mode, FI_TYPE_MODE);
    return;
  }
  const fi_rx_attr &want = *hints.rx_attr;
  const fi_rx_attr &have = *offer.rx_attr;
  check.subset("rx_attr.caps", want.caps & kRxCaps, have.caps != 0 ? have.caps : offer.caps,
               FI_TYPE_CAPS);
  if (want.mode == 0) {
    check.requires_bits("mode", mode_ready, have.mode, FI_TYPE_MODE);
  } else {
    check.requires_bits("rx_attr.mode", want.mode, have.mode, FI_TYPE_MODE);
  }
  check.subset("rx_attr.op_flags", want.op_flags, have.op_flags, FI_TYPE_OP_FLAGS);
  check.subset("rx_attr.msg_order", want.msg_order, with_aliases(have.msg_order),
               FI_TYPE_MSG_ORDER);
  check.subset("rx_attr.comp_order", want.comp_order, have.comp_order, FI_TYPE_MSG_ORDER);
  // total_buffered_recv is a wish that providers may ignore.
  check.at_most("rx_attr.size", want.size, have.size);
  check.at_most("rx_attr.iov_limit", want.iov_limit, have.iov_limit);
}

void check_mr_mode(Check &check, uint32_t version, const fi_info *hints, const fi_info &offer) {
  const int offered = offer.domain_attr->mr_mode;
  const uint64_t caps = returned_caps(hints, offer);
  const int required = required_mr_bits(offered, caps);
  const bool basic = can_basic(offered, required, caps);
  const bool scalable = can_scalable(required);
  const bool old_api = FI_VERSION_LT(version, kMrBits);
  const auto text = [](int bits) { return Check::text(bits, FI_TYPE_MR_MODE); };
  const MrWish wish = mr_wish(version, hints);
  if (wish.invalid) {
    check.reject("hints.domain_attr.mr_mode: " + text(hints->domain_attr->mr_mode) +
                 (old_api ? " is unknown to API versions before 1.5"
                          : ": FI_MR_BASIC and FI_MR_SCALABLE stand alone"));
    return;
  }
  if (!old_api && !wish.basic && !wish.scalable) {
    if (!wish.any && (required & ~wish.bits) != 0)
      check.reject("hints.domain_attr.mr_mode lacks " + text(required & ~wish.bits) +
                   ", which is required here");
    return;
  }
  const bool basic_will_do = wish.basic || wish.any;
  const bool scalable_will_do = wish.scalable || wish.any;
  if ((basic_will_do && basic) || (scalable_will_do && scalable)) {
    // Applications of that age agree to FI_MR_LOCAL by a mode bit.
    if (hints != nullptr && (required & FI_MR_LOCAL) != 0)
      check.requires_bits("mode", hints->mode, FI_LOCAL_MR, FI_TYPE_MODE);
    return;
  }
  std::string wanted = wish.any || (wish.basic && wish.scalable) ? "FI_MR_BASIC or FI_MR_SCALABLE"
                       : wish.basic                              ? "FI_MR_BASIC"
                                                                 : "FI_MR_SCALABLE";
  check.reject("hints.domain_attr.mr_mode: " + wanted + " wanted, " +
               (required != 0 ? text(required) + " required here" : "FI_MR_SCALABLE offered"));
}

void check_domain(Check &check, uint32_t version, const fi_info &hints, const fi_info &offer) {
  const fi_domain_attr &have = *offer.domain_attr;
  check.requires_bits("mode", hints.mode | (hints.domain_attr ? hints.domain_attr->mode : 0),
                      have.mode, FI_TYPE_MODE);
  if (hints.domain_attr == nullptr) return;
  const fi_domain_attr &want = *hints.domain_attr;
  if (want.domain != nullptr && have.domain != nullptr && want.domain != have.domain)
    check.reject("hints.domain_attr.domain: another open domain is offered");
  check.name("domain_attr.name", want.name, have.name);
  if (want.threading != FI_THREAD_UNSPEC &&
      serialisation(have.threading) > serialisation(want.threading))
    check.differs("domain_attr.threading", want.threading, have.threading, FI_TYPE_THREADING);
  if (want.control_progress != FI_PROGRESS_UNSPEC &&
      self_driven(have.control_progress) > self_driven(want.control_progress))
    check.differs("domain_attr.control_progress", want.control_progress, have.control_progress,
                  FI_TYPE_PROGRESS);
  if (want.data_progress != FI_PROGRESS_UNSPEC &&
      self_driven(have.data_progress) > self_driven(want.data_progress))
    check.differs("domain_attr.data_progress", want.data_progress, have.data_progress,
                  FI_TYPE_PROGRESS);
  if (want.resource_mgmt == FI_RM_ENABLED && have.resource_mgmt != FI_RM_ENABLED)
    check.reject("hints.domain_attr.resource_mgmt: FI_RM_ENABLED wanted, not offered");
  if (want.av_type != FI_AV_UNSPEC && have.av_type != FI_AV_UNSPEC && want.av_type != have.av_type)
    check.differs("domain_attr.av_type", want.av_type, have.av_type, FI_TYPE_AV_TYPE);
  // mr_key_size is the room that an application has for keys: more than is needed does no harm.
  check.at_most("domain_attr.cq_data_size", want.cq_data_size, have.cq_data_size);
  check.at_most_if_stated("domain_attr.cq_cnt", want.cq_cnt, have.cq_cnt);
  check.at_most_if_stated("domain_attr.ep_cnt", want.ep_cnt, have.ep_cnt);
  check.at_most_if_stated("domain_attr.tx_ctx_cnt", want.tx_ctx_cnt, have.tx_ctx_cnt);
  check.at_most_if_stated("domain_attr.rx_ctx_cnt", want.rx_ctx_cnt, have.rx_ctx_cnt);
  check.at_most("domain_attr.max_ep_tx_ctx", want.max_ep_tx_ctx, have.max_ep_tx_ctx);
  check.at_most("domain_attr.max_ep_rx_ctx", want.max_ep_rx_ctx, have.max_ep_rx_ctx);
  check.at_most("domain_attr.max_ep_stx_ctx", want.max_ep_stx_ctx, have.max_ep_stx_ctx);
  check.at_most("domain_attr.max_ep_srx_ctx", want.max_ep_srx_ctx, have.max_ep_srx_ctx);
  check.at_most_if_stated("domain_attr.cntr_cnt", want.cntr_cnt, have.cntr_cnt);
  check.at_most("domain_attr.mr_iov_limit", want.mr_iov_limit, have.mr_iov_limit);
  check.subset("domain_attr.caps", want.caps, have.caps, FI_TYPE_CAPS);
  if (FI_VERSION_GE(version, kMrBits)) {
    if (want.auth_key_size == FI_AV_AUTH_KEY) {
      if (have.auth_key_size != FI_AV_AUTH_KEY && have.max_ep_auth_key == 0)
        check.reject("hints.domain_attr.auth_key_size: FI_AV_AUTH_KEY wanted, not offered");
    } else {
      check.at_most("domain_attr.auth_key_size", want.auth_key_size,
                    have.auth_key_size == FI_AV_AUTH_KEY ? 0 : have.auth_key_size);
      if (want.auth_key_size != 0 && want.auth_key == nullptr)
        check.reject("hints.domain_attr.auth_key is NULL although auth_key_size is set");
    }
  }
  check.at_most("domain_attr.max_err_data", want.max_err_data, have.max_err_data);
  check.at_most_if_stated("domain_attr.mr_cnt", want.mr_cnt, have.mr_cnt);
  check_tclass(check, "domain_attr.tclass", want.tclass, have.tclass);
  check.at_most("domain_attr.max_ep_auth_key", want.max_ep_auth_key, have.max_ep_auth_key);
  check.at_most("domain_attr.max_group_id", want.max_group_id, have.max_group_id);
  check.at_most_if_stated("domain_attr.max_cntr_value", want.max_cntr_value, have.max_cntr_value);
  check.at_most_if_stated("domain_attr.max_err_cntr_value", want.max_err_cntr_value,
                          have.max_err_cntr_value);
}

void check_fabric(Check &check, const fi_info &hints, const fi_info &offer) {
  if (hints.fabric_attr == nullptr) return;
  const fi_fabric_attr &want = *hints.fabric_attr;
  const fi_fabric_attr &have = *offer.fabric_attr;
  if (want.fabric != nullptr && have.fabric != nullptr && want.fabric != have.fabric)
    check.reject("hints.fabric_attr.fabric: another open fabric is offered");
  check.name("fabric_attr.name", want.name, have.name);
  if (want.prov_name != nullptr && have.prov_name != nullptr &&
      !prov_name_admits(want.prov_name, have.prov_name))
    check.name("fabric_attr.prov_name", want.prov_name, have.prov_name);
  if (want.prov_version > have.prov_version)
    check.reject("hints.fabric_attr.prov_version: " + std::to_string(FI_MAJOR(want.prov_version)) +
                 "." + std::to_string(FI_MINOR(want.prov_version)) + " wanted, " +
                 std::to_string(FI_MAJOR(have.prov_version)) + "." +
                 std::to_string(FI_MINOR(have.prov_version)) + " offered");
}

// A device in the hints restricts the answer to that device, by the texts that identify it.
void check_nic(Check &check, const fi_info &hints, const fi_info &offer) {
  if (hints.nic == nullptr) return;
  if (hints.nic->device_attr != nullptr) {
    const fi_device_attr *have = offer.nic != nullptr ? offer.nic->device_attr : nullptr;
    const fi_device_attr &want = *hints.nic->device_attr;
    const fi_device_attr none{};
    if (have == nullptr) have = &none;
    check.name("nic.device_attr.name", want.name, have->name);
    check.name("nic.device_attr.device_id", want.device_id, have->device_id);
    check.name("nic.device_attr.device_version", want.device_version, have->device_version);
    check.name("nic.device_attr.vendor_id", want.vendor_id, have->vendor_id);
    check.name("nic.device_attr.driver", want.driver, have->driver);
    check.name("nic.device_attr.firmware", want.firmware, have->firmware);
  }
  if (hints.nic->bus_attr != nullptr && hints.nic->bus_attr->bus_type == FI_BUS_PCI) {
    const fi_bus_attr *have = offer.nic != nullptr ? offer.nic->bus_attr : nullptr;
    const fi_pci_attr &want = hints.nic->bus_attr->attr.pci;
    if (have == nullptr || have->bus_type != FI_BUS_PCI ||
        have->attr.pci.domain_id != want.domain_id || have->attr.pci.bus_id != want.bus_id ||
        have->attr.pci.device_id != want.device_id ||
        have->attr.pci.function_id != want.function_id)
      check.reject("hints.nic.bus_attr: another device is offered");
  }
  if (hints.nic->link_attr != nullptr) {
    const fi_link_attr *have = offer.nic != nullptr ? offer.nic->link_attr : nullptr;
    const fi_link_attr &want = *hints.nic->link_attr;
    const fi_link_attr none{};
    if (have == nullptr) have = &none;
    check.name("nic.link_attr.address", want.address, have->address);
    check.name("nic.link_attr.network_type", want.network_type, have->network_type);
    check.at_most("nic.link_attr.mtu", want.mtu, have->mtu);
    check.at_most("nic.link_attr.speed", want.speed, have->speed);
    if (want.state == FI_LINK_UP && have->state != FI_LINK_UP)
      check.reject("hints.nic.link_attr.state: FI_LINK_UP wanted, not offered");
  }
}

const char *missing_part(const fi_info &offer) {
  if (offer.tx_attr == nullptr) return "tx_attr";
  if (offer.rx_attr == nullptr) return "rx_attr";
  if (offer.ep_attr == nullptr) return "ep_attr";
  if (offer.domain_attr == nullptr) return "domain_attr";
  if (offer.fabric_attr == nullptr) return "fabric_attr";
  return nullptr;
}

// ---- narrowing
// ------------------------------------------------------------------------------------

template <class Value>
void take_if_set(Value &returned, Value wanted) {
  if (wanted != Value{}) returned = wanted;
}

void narrow_mr_mode(uint32_t version, const fi_info *hints, fi_info &offer, uint64_t caps) {
  int &mode = offer.domain_attr->mr_mode;
  const int offered = mode;
  const int required = required_mr_bits(offered, caps);
  const MrWish wish = mr_wish(version, hints);
  const bool old_api = FI_VERSION_LT(version, kMrBits);
  if (!old_api && !wish.basic && !wish.scalable) {
    mode = required;
    return;
  }
  // The old forms; where both will do, the one that applications of that age know best.
  const bool basic = (wish.basic || wish.any) && can_basic(offered, required, caps);
  mode = basic ? FI_MR_BASIC : FI_MR_SCALABLE;
  if ((required & FI_MR_LOCAL) != 0) offer.mode |= FI_LOCAL_MR;
}

bool take_key(uint8_t *&key, size_t &size, const uint8_t *wanted, size_t wanted_size) {
  if (wanted == nullptr || wanted_size == 0 || wanted_size == FI_AV_AUTH_KEY) return true;
  auto *copy = static_cast<uint8_t *>(std::malloc(wanted_size));
  if (copy == nullptr) return false;
  std::memcpy(copy, wanted, wanted_size);
  std::free(key);
  key = copy;
  size = wanted_size;
  return true;
}

}  // namespace

bool prov_name_admits(std::string_view wanted, std::string_view stack) {
  const bool exclude = !wanted.empty() && wanted.front() == '^';
  if (exclude) wanted.remove_prefix(1);
  const std::vector<std::string_view> elements = split(stack, ';');
  for (const std::string_view one : split(wanted, ',')) {
    if (one_admits(one, elements)) return !exclude;
  }
  return exclude;
}

Match match_info(uint32_t version, uint64_t flags, const fi_info *hints, const fi_info &offer) {
  Check check;
  if (const char *part = missing_part(offer); part != nullptr) {
    check.reject(std::string("the provider's offer has no ") + part +
                 " (a fault of the plugin: report it to its vendor)");
  } else if (hints == nullptr) {
    check_mr_mode(check, version, nullptr, offer);
  } else {
    check.subset("caps", wanted_caps(hints), offer.caps, FI_TYPE_CAPS);
    const bool old_mode = FI_VERSION_LT(version, kMrBits);
    // Since 1.5 this one is said in mr_mode.
    const uint64_t mode_ready = hints->mode | (old_mode ? 0 : FI_LOCAL_MR);
    check.requires_bits("mode", mode_ready, offer.mode, FI_TYPE_MODE);
    check_addresses(check, flags, *hints, offer);
    check_ep(check, version, *hints, offer);
    check_tx(check, *hints, offer, mode_ready | offer.mode);
    check_rx(check, *hints, offer, mode_ready | offer.mode);
    check_mr_mode(check, version, hints, offer);
    check_domain(check, version, *hints, offer);
    check_fabric(check, *hints, offer);
    check_nic(check, *hints, offer);
  }
  Match match;
  match.refusals = check.take();
  match.accepted = match.refusals.empty();
  for (const Refusal &one : match.refusals)
    match.reason += (match.reason.empty() ? "" : "; ") + one.text;
  return match;
}

uint32_t distance_of_refusal(std::string_view text) {
  struct Kind {
    std::string_view attribute;  // or what it begins with
    uint32_t distance;
  };
  static constexpr Kind kKinds[] = {{"fabric_attr.prov_name", 64},
                                    {"fabric_attr.name", 8},
                                    {"fabric_attr", 32},
                                    {"domain_attr.domain", 32},
                                    {"domain_attr.name", 8},
                                    {"nic", 8},
                                    {"ep_attr.type", 16},
                                    {"ep_attr.protocol", 16},
                                    {"addr_format", 8},
                                    {"src_addr", 8},
                                    {"dest_addr", 8},
                                    {"caps", 8},
                                    {"tx_attr.caps", 8},
                                    {"rx_attr.caps", 8},
                                    {"domain_attr.caps", 8},
                                    {"mode", 4},
                                    {"tx_attr.mode", 4},
                                    {"rx_attr.mode", 4},
                                    {"domain_attr.mr_mode", 4},
                                    {"domain_attr.mode", 4},
                                    {"domain_attr.threading", 2},
                                    {"domain_attr.control_progress", 2},
                                    {"domain_attr.data_progress", 2},
                                    {"domain_attr.av_type", 2},
                                    {"tx_attr.msg_order", 2},
                                    {"tx_attr.comp_order", 2},
                                    {"rx_attr.msg_order", 2},
                                    {"rx_attr.comp_order", 2},
                                    {"tx_attr.op_flags", 2},
                                    {"rx_attr.op_flags", 2},
                                    {"ep_attr.mem_tag_format", 2}};
  constexpr std::string_view kPrefix = "hints.";
  const size_t at = text.find(kPrefix);
  if (at == std::string_view::npos) return 0;
  text.remove_prefix(at + kPrefix.size());
  for (const Kind &kind : kKinds) {
    if (text.starts_with(kind.attribute)) return kind.distance;
  }
  return 1;  // a limit
}

uint32_t Match::distance() const {
  uint32_t sum = 0;
  for (const Refusal &one : refusals) sum += one.distance;
  return sum;
}

const Refusal &Match::hardest() const {
  return *std::max_element(
      refusals.begin(), refusals.end(),
      [](const Refusal &a, const Refusal &b) { return a.distance < b.distance; });
}

bool narrow_info(uint32_t version, uint64_t flags, const fi_info *hints, fi_info &offer) {
  (void)flags;
  const uint64_t caps = returned_caps(hints, offer);
  offer.domain_attr->caps = returned_domain_caps(hints, offer);
  const fi_tx_attr tx_offer = *offer.tx_attr;
  const fi_rx_attr rx_offer = *offer.rx_attr;
  offer.caps = caps;
  // A provider may restrict its halves further; what it left 0 follows from the whole.
  offer.tx_attr->caps = tx_part(caps) & (tx_offer.caps != 0 ? tx_offer.caps : ~0ULL);
  offer.rx_attr->caps = rx_part(caps) & (rx_offer.caps != 0 ? rx_offer.caps : ~0ULL);
  // An offer lists the flags that can be defaults; none is one unless it is asked for.
  offer.tx_attr->op_flags = 0;
  offer.rx_attr->op_flags = 0;
  narrow_mr_mode(version, hints, offer, caps);
  if ((offer.mode & FI_MSG_PREFIX) == 0) offer.ep_attr->msg_prefix_size = 0;
  offer.fabric_attr->api_version = version;
  if (FI_VERSION_LT(version, kMrBits)) {
    offer.ep_attr->auth_key_size = 0;
    offer.domain_attr->auth_key_size = 0;
  }
  const size_t ep_key_limit = offer.ep_attr->auth_key_size;
  const size_t domain_key_limit = offer.domain_attr->auth_key_size;
  // A length without a key is only a limit, and would be read as one by fi_endpoint().
  if (offer.ep_attr->auth_key == nullptr) offer.ep_attr->auth_key_size = 0;
  if (offer.domain_attr->auth_key == nullptr && domain_key_limit != FI_AV_AUTH_KEY)
    offer.domain_attr->auth_key_size = 0;
  if (hints == nullptr) return true;

  if (hints->handle != nullptr &&
      (hints->handle->fclass == FI_CLASS_PEP || offer.handle == nullptr))
    offer.handle = hints->handle;

  if (hints->tx_attr != nullptr) {
    const fi_tx_attr &want = *hints->tx_attr;
    if (want.caps != 0)
      offer.tx_attr->caps =
          tx_part(with_modifiers(want.caps, offer.caps)) | (offer.tx_attr->caps & kFreeSecondary);
    offer.tx_attr->op_flags = want.op_flags;
    take_if_set(offer.tx_attr->msg_order, want.msg_order);
    take_if_set(offer.tx_attr->inject_size, want.inject_size);
    take_if_set(offer.tx_attr->size, want.size);
  }
  if (hints->rx_attr != nullptr) {
    const fi_rx_attr &want = *hints->rx_attr;
    if (want.caps != 0)
      offer.rx_attr->caps =
          rx_part(with_modifiers(want.caps, offer.caps)) | (offer.rx_attr->caps & kFreeSecondary);
    offer.rx_attr->op_flags = want.op_flags;
    take_if_set(offer.rx_attr->msg_order, want.msg_order);
    take_if_set(offer.rx_attr->size, want.size);
  }
  if (hints->ep_attr != nullptr) {
    const fi_ep_attr &want = *hints->ep_attr;
    take_if_set(offer.ep_attr->tx_ctx_cnt, want.tx_ctx_cnt);
    take_if_set(offer.ep_attr->rx_ctx_cnt, want.rx_ctx_cnt);
    if (want.mem_tag_format != 0 && offer.ep_attr->mem_tag_format == FI_TAG_BITS)
      offer.ep_attr->mem_tag_format = want.mem_tag_format;
    if (ep_key_limit != 0 && !take_key(offer.ep_attr->auth_key, offer.ep_attr->auth_key_size,
                                       want.auth_key, want.auth_key_size))
      return false;
  }
  if (hints->domain_attr != nullptr) {
    const fi_domain_attr &want = *hints->domain_attr;
    take_if_set(offer.domain_attr->threading, want.threading);
    take_if_set(offer.domain_attr->control_progress, want.control_progress);
    take_if_set(offer.domain_attr->data_progress, want.data_progress);
    take_if_set(offer.domain_attr->av_type, want.av_type);
    if (want.domain != nullptr) offer.domain_attr->domain = want.domain;
    if (want.auth_key_size == FI_AV_AUTH_KEY && FI_VERSION_GE(version, kMrBits)) {
      offer.domain_attr->auth_key_size = FI_AV_AUTH_KEY;
    } else if (domain_key_limit != 0 &&
               !take_key(offer.domain_attr->auth_key, offer.domain_attr->auth_key_size,
                         want.auth_key, want.auth_key_size)) {
      return false;
    }
  }
  if (hints->fabric_attr != nullptr && hints->fabric_attr->fabric != nullptr)
    offer.fabric_attr->fabric = hints->fabric_attr->fabric;
  return true;
}

}  // namespace weft
