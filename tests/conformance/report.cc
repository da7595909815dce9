// SPDX-License-Identifier: BSD-2-Clause
// What fi_getinfo and fi_query_atomic say of one stack, as lines "kind name yes|no" or
// "limit name number", for tests/conformance/support. Usage: report PROVIDERS msg|rdm|dgram, with
// the variables of common.h that say where the stack is (WEFT_TEST_NODE, WEFT_TEST_DEVICES).
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "tests/conformance/common.h"

namespace {

std::string providers;
enum fi_ep_type type;

// The stack's first entry for these hints; the caller frees it.
fi_info *find(uint64_t caps, const std::function<void(fi_info &)> &change = {}) {
  fi_info *hints = fi_allocinfo(), *list = nullptr, *found = nullptr;
  if (hints == nullptr) return nullptr;
  hints->caps = caps;
  hints->ep_attr->type = type;
  hints->fabric_attr->prov_name = strdup(providers.c_str());
  const weft::conformance::Demands &demanded = weft::conformance::demands(type);
  hints->mode = demanded.mode;
  hints->domain_attr->mr_mode = demanded.mr_mode | FI_MR_HMEM;
  if (change) change(*hints);
  const char *const node = weft::conformance::test_node();
  if (fi_getinfo(FI_VERSION(1, 17), node, nullptr, FI_SOURCE, hints, &list) == 0) {
    for (const fi_info *info = list; info != nullptr && found == nullptr; info = info->next)
      if (info->fabric_attr->prov_name == providers) found = fi_dupinfo(info);
    fi_freeinfo(list);
  }
  fi_freeinfo(hints);
  return found;
}

void say(const char *kind, const std::string &name, bool yes) {
  std::printf("%s %s %s\n", kind, name.c_str(), yes ? "yes" : "no");
}

void probe(const char *kind, const std::string &name, uint64_t caps,
           const std::function<bool(const fi_info &)> &granted,
           const std::function<void(fi_info &)> &change = {}) {
  fi_info *info = find(caps, change);
  say(kind, name, info != nullptr && granted(*info));
  if (info != nullptr) fi_freeinfo(info);
}

template <class T>
std::string text(T value, enum fi_type as) {
  return fi_tostr(&value, as);
}

void report_atomics() {
  fi_info *info = find(FI_MSG | FI_ATOMIC);
  if (info == nullptr) return;
  fid_fabric *fabric = nullptr;
  fid_domain *domain = nullptr;
  if (fi_fabric(info->fabric_attr, &fabric, nullptr) == 0 &&
      fi_domain(fabric, info, &domain, nullptr) == 0) {
    for (int op = FI_MIN; op <= FI_MSWAP; ++op) {
      std::string types;
      for (int i = FI_INT8; i <= FI_UINT128; ++i) {
        const auto datatype = static_cast<enum fi_datatype>(i);
        fi_atomic_attr attr{};
        bool valid = false;
        for (uint64_t flags : {0ULL, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC})
          valid |=
              fi_query_atomic(domain, datatype, static_cast<enum fi_op>(op), &attr, flags) == 0;
        if (valid) types += (types.empty() ? "" : ",") + text(datatype, FI_TYPE_ATOMIC_TYPE);
      }
      std::printf("atomic %s %s\n", text(static_cast<enum fi_op>(op), FI_TYPE_ATOMIC_OP).c_str(),
                  types.empty() ? "no" : types.c_str());
    }
  }
  if (domain != nullptr) fi_close(&domain->fid);
  if (fabric != nullptr) fi_close(&fabric->fid);
  fi_freeinfo(info);
}

}  // namespace

int main(int argc, char **argv) {
  const std::string_view kind = argc == 3 ? argv[2] : "";
  if (kind != "msg" && kind != "rdm" && kind != "dgram") {
    std::fprintf(stderr, "usage: %s PROVIDERS msg|rdm|dgram\n", argv[0]);
    return 2;
  }
  providers = argv[1];
  setenv("WEFT_TEST_STACK", argv[1], 1);
  type = kind == "msg" ? FI_EP_MSG : kind == "rdm" ? FI_EP_RDM : FI_EP_DGRAM;
  fi_info *info = find(FI_MSG);
  say("stack", "offered", info != nullptr);
  if (info == nullptr) return 0;

  for (uint64_t caps :
       {FI_MSG,        FI_TAGGED,        FI_RMA,     FI_ATOMIC,     FI_COLLECTIVE, FI_MULTICAST,
        FI_MULTI_RECV, FI_DIRECTED_RECV, FI_SOURCE,  FI_SOURCE_ERR, FI_AV_USER_ID, FI_RMA_EVENT,
        FI_RMA_PMEM,   FI_NAMED_RX_CTX,  FI_TRIGGER, FI_FENCE,      FI_HMEM,       FI_SHARED_AV,
        FI_LOCAL_COMM, FI_REMOTE_COMM,   FI_PEER}) {
    uint64_t base = FI_MSG;
    if (caps == FI_SOURCE_ERR) base |= FI_SOURCE;
    if (caps & (FI_RMA_EVENT | FI_RMA_PMEM)) base |= FI_RMA;
    probe("capability", text(caps, FI_TYPE_CAPS), base | caps,
          [&](const fi_info &i) { return (i.caps & caps) == caps; });
  }
  // Of the API before 2.0, whose headers have the names.
  constexpr uint64_t kVariableMsg = 1ULL << 48, kBufferedRecv = 1ULL << 51;
  probe("capability", "FI_VARIABLE_MSG", FI_MSG | kVariableMsg,
        [](const fi_info &i) { return (i.caps & kVariableMsg) != 0; });
  probe(
      "capability", "FI_BUFFERED_RECV", FI_MSG,
      [](const fi_info &i) { return (i.mode & kBufferedRecv) != 0; },
      [](fi_info &h) { h.mode |= kBufferedRecv; });
  for (uint64_t level : {FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE,
                         FI_MATCH_COMPLETE, FI_COMMIT_COMPLETE})
    probe(
        "level", text(level, FI_TYPE_OP_FLAGS), FI_MSG, [](const fi_info &) { return true; },
        [&](fi_info &h) { h.tx_attr->op_flags = level; });
  for (auto progress : {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO})
    probe(
        "progress", text(progress, FI_TYPE_PROGRESS), FI_MSG,
        [&](const fi_info &i) { return i.domain_attr->data_progress == progress; },
        [&](fi_info &h) {
          h.domain_attr->data_progress = h.domain_attr->control_progress = progress;
        });
  for (auto threading : {FI_THREAD_SAFE, FI_THREAD_DOMAIN})
    probe(
        "threading", text(threading, FI_TYPE_THREADING), FI_MSG,
        [](const fi_info &) { return true; },
        [&](fi_info &h) { h.domain_attr->threading = threading; });
  for (auto av : {FI_AV_MAP, FI_AV_TABLE})
    if (type != FI_EP_MSG)
      probe(
          "av", text(av, FI_TYPE_AV_TYPE), FI_MSG, [](const fi_info &) { return true; },
          [&](fi_info &h) { h.domain_attr->av_type = av; });
  // Some are kept only for who asks. Those of atomics mean nothing without atomics.
  for (uint64_t order :
       {FI_ORDER_SAS, FI_ORDER_SAR, FI_ORDER_SAW, FI_ORDER_RAS, FI_ORDER_WAS, FI_ORDER_RMA_RAR,
        FI_ORDER_RMA_RAW, FI_ORDER_RMA_WAR, FI_ORDER_RMA_WAW, FI_ORDER_ATOMIC_RAR,
        FI_ORDER_ATOMIC_RAW, FI_ORDER_ATOMIC_WAR, FI_ORDER_ATOMIC_WAW}) {
    constexpr uint64_t kAtomics =
        FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
    uint64_t caps = type == FI_EP_DGRAM ? FI_MSG : FI_MSG | FI_RMA;
    if (order & kAtomics) caps |= FI_ATOMIC;
    probe(
        "order", text(order, FI_TYPE_MSG_ORDER), caps,
        [&](const fi_info &i) {
          return (i.tx_attr->msg_order & i.rx_attr->msg_order & order) != 0;
        },
        [&](fi_info &h) { h.tx_attr->msg_order = h.rx_attr->msg_order = order; });
  }
  const std::pair<const char *, size_t> limits[] = {
      {"inject_size", info->tx_attr->inject_size},
      {"tx_attr.size", info->tx_attr->size},
      {"rx_attr.size", info->rx_attr->size},
      {"tx_attr.iov_limit", info->tx_attr->iov_limit},
      {"rx_attr.iov_limit", info->rx_attr->iov_limit},
      {"rma_iov_limit", info->tx_attr->rma_iov_limit},
      {"max_msg_size", info->ep_attr->max_msg_size},
      {"cq_data_size", info->domain_attr->cq_data_size},
      {"mr_key_size", info->domain_attr->mr_key_size},
  };
  for (const auto &[name, value] : limits) std::printf("limit %s %zu\n", name, value);
  fi_freeinfo(info);
  report_atomics();
  return 0;
}
