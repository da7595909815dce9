// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/fuzz/node.h"

#include <rdma/fi_cm.h>
#include <weft/sdk/transfers/buffered.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/base/info.h"
#include "plugins/tcp/domain.h"
#include "plugins/tcp/fabric.h"
#include "plugins/tcp/fuzz/sockets.h"
#include "plugins/tcp/passive_endpoint.h"
#include "tests/fuzz/core_services.h"

namespace weft::tcp::fuzz {

void Node::open(const Settings &settings, bool msg, bool wants_shared) {
  instance.magic = WEFT_INSTANCE_MAGIC;
  instance.struct_size = sizeof instance;
  instance.core = &weft::fuzz::kFuzzCore;
  instance.stack = "tcp";
  connected = msg;
  info = alloc_info();
  info->caps = FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ |
               FI_REMOTE_WRITE | FI_MULTI_RECV;
  if (!msg) info->caps |= FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV;
  if (buffered.on) {
    info->caps &= ~uint64_t(FI_MULTI_RECV);
    if (buffered.variable) {
      info->caps |= sdk::kVariableMsg;
    } else {
      info->mode |= sdk::kBufferedRecv;
    }
  }
  if (keyed) {
    static constexpr char kKey[] = "the friends' key";
    info->domain_attr->auth_key = static_cast<uint8_t *>(std::malloc(sizeof kKey));
    info->domain_attr->auth_key_size = sizeof kKey;
    std::memcpy(info->domain_attr->auth_key, kKey, sizeof kKey);
  }
  info->addr_format = FI_SOCKADDR_IN;
  const sockaddr_in at = address_of(host, 0);
  info->src_addr = std::malloc(sizeof at);
  info->src_addrlen = sizeof at;
  std::memcpy(info->src_addr, &at, sizeof at);
  info->ep_attr->type = msg ? FI_EP_MSG : FI_EP_RDM;
  if (wants_shared) info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  info->tx_attr->size = 16;
  info->rx_attr->size = 32;
  info->domain_attr->threading = FI_THREAD_SAFE;
  info->domain_attr->data_progress = info->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  info->domain_attr->resource_mgmt = FI_RM_ENABLED;
  info->domain_attr->mr_mode = FI_MR_PROV_KEY;
  fi_fabric_attr attr{};
  attr.api_version = buffered.on ? FI_VERSION(1, 21) : FI_VERSION(2, 6);  // 2.0 has no such mode
  fabric = Fabric::open(&instance, settings, attr, nullptr, nullptr).value();
  must(fi_domain(fabric, info, &domain, nullptr));
  if (wants_shared) {
    fi_rx_attr rx{};
    rx.size = 32;
    must(fi_srx_context(domain, &rx, &shared.context, nullptr));
  }
  if (msg) {
    fi_eq_attr eq_attr{};
    must(fi_eq_open(fabric, &eq_attr, &eq, nullptr));
  } else {
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    must(fi_av_open(domain, &av_attr, &av, nullptr));
  }
  region = make_region();
  open_region = make_region();
}

std::unique_ptr<Region> Node::make_region() {
  auto made = std::make_unique<Region>(4096);
  std::fill_n(made->memory.bytes.get(), 4096, uint8_t(Memory::kCanary - 1));
  must(fi_mr_reg(domain, made->memory.bytes.get(), 4096,
                 FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &made->mr,
                 nullptr));
  return made;
}

Endpoint &Node::make(const fi_info *from) {
  endpoints.push_back(std::make_unique<Endpoint>());
  Endpoint &e = *endpoints.back();
  e.domain = domain;
  e.unconnected = !connected;
  e.region = region.get();
  e.cq_size = cq_size;
  e.buffered = buffered;
  fi_cq_attr attr{};
  attr.format = FI_CQ_FORMAT_TAGGED;
  attr.size = cq_size;
  must(fi_cq_open(domain, &attr, &e.cq, nullptr));
  must(fi_endpoint(domain, const_cast<fi_info *>(from), &e.ep, nullptr));
  must(fi_ep_bind(e.ep, &e.cq->fid, FI_TRANSMIT | FI_RECV));
  if (av != nullptr) must(fi_ep_bind(e.ep, &av->fid, 0));
  if (eq != nullptr) must(fi_ep_bind(e.ep, &eq->fid, 0));
  if (shared.context != nullptr) {
    must(fi_ep_bind(e.ep, &shared.context->fid, 0));
    e.receives = &shared;
  }
  if (buffered.on) {
    const size_t none = 0;
    for (auto [option, bytes] : {std::pair{FI_OPT_BUFFERED_MIN, none},
                                 {FI_OPT_BUFFERED_LIMIT, buffered.limit},
                                 {FI_OPT_BUFFERED_MIN, buffered.min}})
      must(fi_setopt(&e.ep->fid, FI_OPT_ENDPOINT, option, &bytes, sizeof bytes));
  }
  must(fi_enable(e.ep));
  return e;
}

sockaddr_in Node::name(struct fid *fid) const {
  sockaddr_in in{};
  size_t size = sizeof in;
  must(fi_getname(fid, &in, &size));
  return in;
}

void Node::drain(int calls) {
  for (const auto &e : endpoints)
    if (e->cq != nullptr) e->drain(calls);
}

void Node::close() {
  for (const auto &e : endpoints) e->close();
  for (const auto &e : endpoints)
    if (e->cq != nullptr) must(fi_close(&e->cq->fid));
  if (shared.context != nullptr) must(fi_close(&shared.context->fid));
  if (pep != nullptr) must(fi_close(&pep->fid));
  region.reset();
  open_region.reset();
  if (av != nullptr) must(fi_close(&av->fid));
  must(fi_close(&domain->fid));
  if (eq != nullptr) must(fi_close(&eq->fid));
  must(fi_close(&fabric->fid));
  free_info(info);
}

}  // namespace weft::tcp::fuzz
