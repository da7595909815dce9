// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/fuzz/node.h"

#include <cstring>

#include "core/base/info.h"
#include "plugins/cxi/fabric.h"
#include "plugins/cxi/sources.h"
#include "tests/fuzz/core_services.h"

namespace weft::cxi::fuzz {

Settings small_settings() {
  Settings s;
  s.rdzv_threshold = 192;
  s.rdzv_get_min = 0;
  s.rdzv_eager_size = 64;
  s.oflow_buf_size = s.req_buf_size = 4096;
  s.oflow_buf_min_posted = s.req_buf_min_posted = s.oflow_buf_max_cached = 2;
  return s;
}

Node::Node(Network &network, Nid nid, const Settings &settings, const NodeOptions &options) {
  instance_.magic = WEFT_INSTANCE_MAGIC;
  instance_.struct_size = sizeof instance_;
  instance_.core = &weft::fuzz::kFuzzCore;
  instance_.stack = "cxi";
  info_ = alloc_info();
  info_->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ | FI_WRITE |
                FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV |
                FI_RMA_EVENT;
  info_->addr_format = FI_ADDR_CXI;
  info_->ep_attr->type = FI_EP_RDM;
  info_->ep_attr->protocol = options.protocol;
  info_->tx_attr->size = info_->rx_attr->size = options.size;
  info_->domain_attr->threading = FI_THREAD_SAFE;
  info_->domain_attr->data_progress = info_->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  info_->domain_attr->resource_mgmt = FI_RM_ENABLED;
  info_->domain_attr->mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  info_->domain_attr->name = strdup(nid == kTarget ? "cxi0" : "cxi1");
  fi_fabric_attr attr{};
  attr.api_version = FI_VERSION(2, 6);
  fabric_ = Fabric::open(&instance_, settings, attr, nullptr, std::make_shared<Nics>(network),
                         std::make_shared<sdk::HmemSource>(settings.hmem))
                .value();
  succeed(fi_domain(fabric_, info_, &domain, nullptr));
  fi_av_attr av_attr{};
  av_attr.type = FI_AV_TABLE;
  succeed(fi_av_open(domain, &av_attr, &av_, nullptr));
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  cq_attr.size = 64;
  succeed(fi_cq_open(domain, &cq_attr, &cq_, nullptr));
  succeed(fi_endpoint(domain, info_, &ep, nullptr));
  succeed(fi_ep_bind(ep, &cq_->fid, FI_TRANSMIT | FI_RECV));
  succeed(fi_ep_bind(ep, &av_->fid, 0));
  succeed(fi_enable(ep));
}

Node::~Node() {
  succeed(fi_close(&ep->fid));
  succeed(fi_close(&cq_->fid));
  succeed(fi_close(&av_->fid));
  succeed(fi_close(&domain->fid));
  succeed(fi_close(&fabric_->fid));
  free_info(info_);
}

Peer Node::name() const {
  alignas(8) unsigned char bytes[8];
  size_t size = sizeof bytes;
  succeed(fi_getname(&ep->fid, bytes, &size));
  return peer_of(sdk::Address::of(FI_ADDR_CXI, bytes, size)).in(kVni);
}

fi_addr_t Node::insert(const Peer &peer) {
  const sdk::Address address = address_of(peer.in(0));
  fi_addr_t inserted = FI_ADDR_NOTAVAIL;
  FUZZ_CHECK(fi_av_insert(av_, address.data(), 1, &inserted, 0, nullptr) == 1, "fi_av_insert");
  return inserted;
}

fid_mr *Node::open_region(void *memory, size_t length, uint64_t access) {
  fid_mr *region = nullptr;
  succeed(fi_mr_reg(domain, memory, length, access, 0, 0, 0, &region, nullptr));
  succeed(fi_mr_bind(region, &ep->fid, 0));
  if (fi_mr_enable(region) == 0) return region;
  succeed(fi_close(&region->fid));  // the NIC has no list entry left
  return nullptr;
}

std::optional<Completion> Node::poll() {
  fi_cq_tagged_entry entry{};
  fi_addr_t source = FI_ADDR_UNSPEC;
  const ssize_t rc = fi_cq_readfrom(cq_, &entry, 1, &source);
  if (rc == 1)
    return Completion{.context = entry.op_context,
                      .flags = entry.flags,
                      .length = entry.len,
                      .buf = static_cast<const uint8_t *>(entry.buf),
                      .source = source};
  if (rc == -FI_EAGAIN) return std::nullopt;
  FUZZ_CHECK(rc == -FI_EAVAIL, "fi_cq_readfrom");
  fi_cq_err_entry error{};
  FUZZ_CHECK(fi_cq_readerr(cq_, &error, 0) == 1, "fi_cq_readerr");
  return Completion{.context = error.op_context,
                    .flags = error.flags,
                    .length = error.len,
                    .buf = static_cast<const uint8_t *>(error.buf),
                    .err = error.err,
                    .prov_errno = error.prov_errno};
}

}  // namespace weft::cxi::fuzz
