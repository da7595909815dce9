// SPDX-License-Identifier: BSD-2-Clause
// The parts that the files of this folder share. capabilities.cc knows which bits mean what,
// memory_modes.cc has mr_mode, addresses.cc addresses, match.cc the other attributes, narrow.cc the
// answer. Not for other folders: those include match.h.
#ifndef WEFT_CORE_MATCH_PARTS_H
#define WEFT_CORE_MATCH_PARTS_H

#include <rdma/fabric.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/base/info.h"
#include "core/base/tostr.h"
#include "core/match/match.h"

namespace weft::matching {

// Collects what does not fit. The names of fields are those of the C API.
class Check {
 public:
  void reject(Refusal refusal) { refusals_.push_back(std::move(refusal)); }
  std::vector<Refusal> take() { return std::move(refusals_); }

  void at_most(Attribute field, uint64_t wanted, uint64_t offered) {
    if (wanted == 0 || wanted <= offered) return;
    reject({field, Misfit::kAbove, std::to_string(wanted), std::to_string(offered)});
  }
  // The same where an offer of 0 states no limit.
  void at_most_if_stated(Attribute field, uint64_t wanted, uint64_t offered) {
    if (offered != 0) at_most(field, wanted, offered);
  }
  void subset(Attribute field, uint64_t wanted, uint64_t offered, fi_type type) {
    if ((wanted & ~offered) == 0) return;
    reject({field, Misfit::kLacking, text(wanted & ~offered, type), text(offered, type)});
  }
  // The application must do what the provider needs.
  void requires_bits(Attribute field, uint64_t ready, uint64_t required, fi_type type) {
    if ((required & ~ready) != 0) lacks(field, text(required & ~ready, type));
  }
  void lacks(Attribute field, std::string required) {
    reject({field, Misfit::kRequired, {}, std::move(required)});
  }
  template <class Value>
  void differs(Attribute field, Value wanted, Value offered, fi_type type) {
    differs(field, text(wanted, type), text(offered, type));
  }
  void differs(Attribute field, std::string wanted, std::string offered) {
    reject({field, Misfit::kOther, std::move(wanted), std::move(offered)});
  }
  void name(Attribute field, const char *wanted, const char *offered) {
    if (wanted == nullptr || (offered != nullptr && std::strcmp(wanted, offered) == 0)) return;
    differs(field, "\"" + std::string(wanted) + "\"",
            offered == nullptr ? "none" : "\"" + std::string(offered) + "\"");
  }
  void absent(Attribute field, std::string wanted) {
    reject({field, Misfit::kNone, std::move(wanted)});
  }
  // `words` follow the name of the attribute.
  void says(Attribute field, std::string words) {
    reject({.attribute = field, .words = std::move(words)});
  }
  static std::string hex(uint64_t value) {
    char buffer[24];
    std::snprintf(buffer, sizeof buffer, "0x%" PRIx64, value);
    return buffer;
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

// ---- capabilities.cc ----

constexpr uint64_t kMessageModifiers = FI_SEND | FI_RECV;
constexpr uint64_t kMemoryModifiers = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

// Secondary capabilities that are returned without being asked for, because they cost nothing.
// Source addresses, remote events, fences and triggers cost something in each operation, so they
// are returned only if asked for.
constexpr uint64_t kFreeSecondary =
    FI_MULTI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SHARED_AV | FI_RMA_PMEM;

constexpr uint64_t kTxCaps = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_READ | FI_WRITE |
                             FI_SEND | FI_HMEM | FI_TRIGGER | FI_FENCE | FI_MULTICAST |
                             FI_RMA_PMEM | FI_NAMED_RX_CTX | FI_COLLECTIVE;
constexpr uint64_t kRxCaps =
    FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RECV | FI_HMEM |
    FI_TRIGGER | FI_RMA_PMEM | FI_DIRECTED_RECV | FI_TAGGED_DIRECTED_RECV | FI_EXACT_DIRECTED_RECV |
    FI_MULTI_RECV | FI_TAGGED_MULTI_RECV | FI_SOURCE | FI_RMA_EVENT | FI_SOURCE_ERR | FI_COLLECTIVE;

// Adds the modifiers that a primary capability implies, as far as they are offered.
uint64_t with_modifiers(uint64_t caps, uint64_t offered);
// The part of capabilities that a transmit context has, and that of a receive context.
uint64_t tx_part(uint64_t caps);
uint64_t rx_part(uint64_t caps);
// All that the application asked for; 0: it did not say.
uint64_t wanted_caps(const fi_info *hints);
// The capabilities that an accepted offer returns, for the endpoint and for the domain.
uint64_t returned_caps(const fi_info *hints, const fi_info &offer);
uint64_t returned_domain_caps(const fi_info *hints, const fi_info &offer);
// Whether peers reach memory of an endpoint with these capabilities.
bool is_target(uint64_t caps);

// ---- memory_modes.cc ----

// The API version in which mr_mode became a set of requirements.
constexpr uint32_t kMrBits = FI_VERSION(1, 5);

void check_mr_mode(Check &check, uint32_t version, const fi_info *hints, const fi_info &offer);
void narrow_mr_mode(uint32_t version, const fi_info *hints, fi_info &offer, uint64_t caps);

// ---- addresses.cc ----

void check_addresses(Check &check, uint64_t flags, const fi_info &hints, const fi_info &offer);

}  // namespace weft::matching

#endif
