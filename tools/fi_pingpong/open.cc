// SPDX-License-Identifier: BSD-2-Clause
// Opens what this side needs: the interface, its objects and the buffers.
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>

#include "tools/fi_pingpong/ping_pong.h"
#include "tools/names.h"

namespace weft::pingpong {
namespace {

constexpr uint64_t kDefaultSizes[] = {64, 256, 1024, 4096, 65536, 1048576};
constexpr uint64_t kLargestPower = uint64_t{4} << 20;  // of -S all

}  // namespace

void PingPong::get_info(const std::string &peer_name, uint32_t format) {
  const Info hints(fi_allocinfo(), &fi_freeinfo);
  if (hints == nullptr) {
    throw std::bad_alloc();
  }
  hints->caps = options_.tagged ? FI_TAGGED : FI_MSG;
  hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX;
  hints->ep_attr->type = options_.type;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  if (options_.provider) {
    hints->fabric_attr->prov_name = strdup(options_.provider->c_str());
  }
  if (options_.domain) {
    hints->domain_attr->name = strdup(options_.domain->c_str());
  }
  if (!peer_name.empty()) {
    hints->addr_format = format;
    hints->dest_addr = std::malloc(peer_name.size());
    if (hints->dest_addr == nullptr) {
      throw std::bad_alloc();
    }
    std::memcpy(hints->dest_addr, peer_name.data(), peer_name.size());
    hints->dest_addrlen = peer_name.size();
  }
  fi_info *raw = nullptr;
  const int ret = fi_getinfo(tools::api_version(), nullptr, nullptr, 0, hints.get(), &raw);
  if (ret != 0) {
    fail(-ret,
         "fi_getinfo: %s: no interface for provider %s, endpoint type %s, domain %s%s; "
         "'fi_info' lists what there is",
         fi_strerror(-ret), options_.provider.value_or("(any)"),
         fi_tostr(&options_.type, FI_TYPE_EP_TYPE), options_.domain.value_or("(any)"),
         peer_name.empty() ? "" : " that reaches the server's address");
  }
  info_.reset(raw);
  debug("the first interface that fits:\n%s", verbose_output ? fi_tostr(raw, FI_TYPE_INFO) : "");
  choose_sizes();
}

void PingPong::choose_sizes() {
  const uint64_t limit = info_->ep_attr->max_msg_size;
  sizes_.clear();
  if (options_.size) {
    if (*options_.size > limit) {
      fail(EMSGSIZE,
           "-S %d is larger than the %d bytes that a message of provider %s "
           "can have",
           *options_.size, limit, info_->fabric_attr->prov_name);
    }
    sizes_.push_back(*options_.size);
    return;
  }
  if (options_.all_sizes) {
    // 0, every power of two, and the middle between each two of them.
    sizes_ = {0, 1};
    for (uint64_t power = 2; power <= kLargestPower; power *= 2) {
      sizes_.push_back(power);
      sizes_.push_back(power + power / 2);
    }
  } else {
    sizes_.assign(std::begin(kDefaultSizes), std::end(kDefaultSizes));
  }
  std::erase_if(sizes_, [limit](uint64_t size) { return size > limit; });
  if (sizes_.empty()) {
    fail(EMSGSIZE,
         "no default size fits into the %d bytes that a message of "
         "provider %s can have; give one with -S",
         limit, info_->fabric_attr->prov_name);
  }
}

void PingPong::open_fabric() {
  fid_fabric *fabric = nullptr;
  check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
  fabric_.reset(fabric);
  if (options_.type != FI_EP_MSG) {
    return;
  }
  fi_eq_attr attr = {};
  attr.wait_obj = FI_WAIT_UNSPEC;
  fid_eq *eq = nullptr;
  check(fi_eq_open(fabric_.get(), &attr, &eq, nullptr), "fi_eq_open");
  eq_.reset(eq);
}

void PingPong::open_passive_endpoint() {
  open_fabric();
  fid_pep *pep = nullptr;
  check(fi_passive_ep(fabric_.get(), info_.get(), &pep, nullptr), "fi_passive_ep");
  pep_.reset(pep);
  check(fi_pep_bind(pep, &eq_->fid, 0), "fi_pep_bind");
  check(fi_listen(pep), "fi_listen");
}

void PingPong::open_endpoint(fi_info *info) {
  if (fabric_ == nullptr) {
    open_fabric();
  }
  fid_domain *domain = nullptr;
  check(fi_domain(fabric_.get(), info, &domain, nullptr), "fi_domain");
  domain_.reset(domain);
  tx_cq_ = open_cq(info->tx_attr->size);
  rx_cq_ = open_cq(info->rx_attr->size);
  fid_ep *ep = nullptr;
  check(fi_endpoint(domain, info, &ep, nullptr), "fi_endpoint");
  ep_.reset(ep);
  if (options_.type == FI_EP_MSG) {
    check(fi_ep_bind(ep, &eq_->fid, 0), "fi_ep_bind of the event queue");
  } else {
    fi_av_attr attr = {};
    attr.type =
        info->domain_attr->av_type != FI_AV_UNSPEC ? info->domain_attr->av_type : FI_AV_TABLE;
    attr.count = 1;
    fid_av *av = nullptr;
    check(fi_av_open(domain, &attr, &av, nullptr), "fi_av_open");
    av_.reset(av);
    check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind of the address vector");
  }
  check(fi_ep_bind(ep, &tx_cq_->fid, FI_TRANSMIT), "fi_ep_bind of the transmit queue");
  check(fi_ep_bind(ep, &rx_cq_->fid, FI_RECV), "fi_ep_bind of the receive queue");
  inject_limit_ = info->tx_attr->inject_size;
  prefix_ = (info->mode & FI_MSG_PREFIX) != 0 ? info->ep_attr->msg_prefix_size : 0;
  check(fi_enable(ep), "fi_enable");
  allocate_buffers(*info);
  post_receive();
}

Owned<fid_cq> PingPong::open_cq(size_t size) const {
  fi_cq_attr attr = {};
  attr.format = FI_CQ_FORMAT_MSG;
  attr.wait_obj = FI_WAIT_NONE;
  attr.size = size;
  fid_cq *cq = nullptr;
  check(fi_cq_open(domain_.get(), &attr, &cq, nullptr), "fi_cq_open");
  return Owned<fid_cq>(cq);
}

void PingPong::allocate_buffers(const fi_info &info) {
  constexpr size_t kPage = 4096;
  const uint64_t payload = std::max<uint64_t>(sizes_.back(), sizeof(kFin));
  if (payload > (SIZE_MAX / 4)) {
    throw std::bad_alloc();
  }
  buffer_length_ = prefix_ + payload;
  const size_t pages = (buffer_length_ + kPage - 1) / kPage * kPage;
  char *memory = static_cast<char *>(std::aligned_alloc(kPage, 2 * pages));
  if (memory == nullptr) {
    fail(ENOMEM, "cannot allocate two buffers of %d bytes", pages);
  }
  memory_.reset(memory);
  std::memset(memory, 0, 2 * pages);
  tx_buffer_ = memory;
  rx_buffer_ = memory + pages;
  if ((info.domain_attr->mr_mode & FI_MR_LOCAL) == 0) {
    return;
  }
  fid_mr *mr = nullptr;
  check(fi_mr_reg(domain_.get(), memory, 2 * pages, FI_SEND | FI_RECV, 0, 1, 0, &mr, nullptr),
        "fi_mr_reg");
  mr_.reset(mr);
  if ((info.domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
    check(fi_mr_bind(mr, &ep_->fid, 0), "fi_mr_bind");
    check(fi_mr_enable(mr), "fi_mr_enable");
  }
  mr_desc_ = fi_mr_desc(mr);
}

}  // namespace weft::pingpong
