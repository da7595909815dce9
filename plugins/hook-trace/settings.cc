// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/hook-trace/settings.h"

#include <rdma/fabric.h>

#include <charconv>
#include <string_view>

namespace weft::trace {
namespace {

struct Group {
  std::string_view name;
  Op first, last;
};
// By the order of WEFT_TRACE_OPS.
constexpr Group kGroups[] = {
    {"msg", Op::send, Op::recvmsg},          {"tagged", Op::tsend, Op::trecvmsg},
    {"rma", Op::read, Op::inject_writedata}, {"atomic", Op::atomic, Op::compare_atomicmsg},
    {"ep", Op::cancel, Op::rx_ctx},          {"cq", Op::cq_read, Op::completion_error},
    {"eq", Op::eq_read, Op::eq_write},       {"cntr", Op::cntr_read, Op::cntr_seterr},
    {"cm", Op::setname, Op::join},           {"open", Op::domain, Op::srx_ctx},
    {"life", Op::close, Op::control},        {"mr", Op::mr_reg, Op::mr_regattr},
    {"av", Op::av_insert, Op::av_remove},    {"wait", Op::wait, Op::poll},
};

struct Class {
  std::string_view name;
  size_t fclass;
};
constexpr Class kClasses[] = {
    {"fabric", FI_CLASS_FABRIC}, {"domain", FI_CLASS_DOMAIN},   {"ep", FI_CLASS_EP},
    {"sep", FI_CLASS_SEP},       {"rx_ctx", FI_CLASS_RX_CTX},   {"srx_ctx", FI_CLASS_SRX_CTX},
    {"tx_ctx", FI_CLASS_TX_CTX}, {"stx_ctx", FI_CLASS_STX_CTX}, {"pep", FI_CLASS_PEP},
    {"av", FI_CLASS_AV},         {"mr", FI_CLASS_MR},           {"eq", FI_CLASS_EQ},
    {"cq", FI_CLASS_CQ},         {"cntr", FI_CLASS_CNTR},       {"wait", FI_CLASS_WAIT},
    {"poll", FI_CLASS_POLL},
};

template <class Rows>
std::string names_of(const Rows &rows) {
  std::string text;
  for (const auto &row : rows) {
    if (!text.empty()) text += ' ';
    text += row.name;
  }
  return text;
}

}  // namespace

Result<OpMask> read_ops(const std::vector<std::string> &words) {
  OpMask mask;
  for (const std::string &word : words) {
    bool known = false;
    for (const Group &group : kGroups) {
      if (group.name != word) continue;
      known = true;
      for (size_t op = size_t(group.first); op <= size_t(group.last); ++op) mask.add(Op(op));
    }
    for (size_t op = 1; !known && op < kOpCount; ++op) {
      if (word != kOps[op].name) continue;
      known = true;
      mask.add(Op(op));
    }
    if (!known) {
      return fail(FI_EINVAL, "ops: \"%s\" is neither a group (%s) nor an operation such as tsend",
                  word.c_str(), names_of(kGroups).c_str());
    }
  }
  if (words.empty()) {
    for (size_t op = 0; op < kOpCount; ++op) mask.add(Op(op));
  }
  // Records of retries are always wanted: they belong to the posts.
  mask.add(Op::retries);
  return mask;
}

Result<uint64_t> read_classes(const std::vector<std::string> &words) {
  if (words.empty()) return ~uint64_t{0};
  uint64_t bits = 0;
  for (const std::string &word : words) {
    const uint64_t before = bits;
    for (const Class &one : kClasses) {
      if (one.name == word) bits |= uint64_t{1} << one.fclass;
    }
    if (bits == before && word != "") {
      bool repeated = false;
      for (const Class &one : kClasses) repeated |= one.name == word;
      if (!repeated)
        return fail(FI_EINVAL, "classes: no object is a \"%s\"; known: %s", word.c_str(),
                    names_of(kClasses).c_str());
    }
  }
  return bits;
}

Result<std::vector<uint32_t>> read_peers(const std::vector<std::string> &words) {
  std::vector<uint32_t> peers;
  for (const std::string &word : words) {
    uint32_t peer = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), peer);
    if (error != std::errc() || end != word.data() + word.size())
      return fail(FI_EINVAL, "peers: \"%s\" is no fi_addr_t: give numbers below 2^32",
                  word.c_str());
    peers.push_back(peer);
  }
  return peers;
}

}  // namespace weft::trace
