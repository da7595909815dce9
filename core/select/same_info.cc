// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/same_info.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstring>
#include <string>

#include "core/base/info.h"
#include "core/base/tostr.h"
#include "core/match/match.h"

namespace weft {
namespace {

bool same_text(const char *a, const char *b) {
  return a == nullptr || b == nullptr ? a == b : std::strcmp(a, b) == 0;
}

bool same_bytes(const void *a, size_t a_size, const void *b, size_t b_size) {
  if (a == nullptr || b == nullptr) return a == b;
  return a_size == b_size && std::memcmp(a, b, a_size) == 0;
}

}  // namespace

bool same_info(const fi_info &a, const fi_info &b) {
  if (a.caps != b.caps || ep_type_of(*a.ep_attr) != ep_type_of(*b.ep_attr) ||
      a.ep_attr->protocol != b.ep_attr->protocol || a.addr_format != b.addr_format ||
      !same_text(a.fabric_attr->prov_name, b.fabric_attr->prov_name) ||
      !same_text(a.fabric_attr->name, b.fabric_attr->name) ||
      !same_text(a.domain_attr->name, b.domain_attr->name) ||
      !same_bytes(a.src_addr, a.src_addrlen, b.src_addr, b.src_addrlen) ||
      !same_bytes(a.dest_addr, a.dest_addrlen, b.dest_addr, b.dest_addrlen))
    return false;
  // The text has every member. It is made only if the main members are equal.
  std::string texts[2];
  for (size_t i = 0; i < 2; ++i) {
    texts[i].resize(16384);
    to_text(i == 0 ? &a : &b, FI_TYPE_INFO, texts[i].data(), texts[i].size());
  }
  return std::strcmp(texts[0].c_str(), texts[1].c_str()) == 0;
}

bool covers(const fi_info *hints, const fi_info &near, const fi_info &plain) {
  return (plain.caps & ~near.caps & ~unasked_caps(hints)) == 0 &&
         near.addr_format == plain.addr_format &&
         ep_type_of(*near.ep_attr) == ep_type_of(*plain.ep_attr) &&
         near.ep_attr->protocol == plain.ep_attr->protocol &&
         same_text(near.fabric_attr->prov_name, plain.fabric_attr->prov_name) &&
         same_text(near.fabric_attr->name, plain.fabric_attr->name) &&
         same_text(near.domain_attr->name, plain.domain_attr->name) &&
         same_bytes(near.src_addr, near.src_addrlen, plain.src_addr, plain.src_addrlen) &&
         same_bytes(near.dest_addr, near.dest_addrlen, plain.dest_addr, plain.dest_addrlen);
}

}  // namespace weft
