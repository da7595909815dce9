// SPDX-License-Identifier: BSD-2-Clause
#include "fabric_node.h"

#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <filesystem>
#include <utility>

namespace weft::bench {

Library loaded_library() {
  Library library;
  // By name: in an executable &fi_getinfo may be the address of a PLT entry.
  void *symbol = dlsym(RTLD_DEFAULT, "fi_getinfo");
  Dl_info where = {};
  if (symbol != nullptr && dladdr(symbol, &where) != 0 && where.dli_fname != nullptr) {
    std::error_code error;
    library.path = std::filesystem::canonical(where.dli_fname, error);
    if (error) library.path = where.dli_fname;
  }
  const uint32_t version = fi_version();
  library.version = absl::StrCat(FI_MAJOR(version), ".", FI_MINOR(version));
  return library;
}

void expect_library(const std::string &directory, const std::string &path) {
  if (directory.empty()) return;
  std::error_code error;
  const std::filesystem::path wanted = std::filesystem::canonical(directory, error);
  if (error || !absl::StartsWith(path, absl::StrCat(wanted.string(), "/"))) {
    fail("measuring %s, which is not in %s (is there a libfabric.so.1, is LD_LIBRARY_PATH set?)",
         path, directory);
  }
}

void call_failed(const char *call, int64_t rc) {
  fail("%s: %s (%d)", call, fi_strerror(static_cast<int>(-rc)), rc);
}

std::string own_address(fid_t endpoint, uint32_t format) {
  std::string name(256, '\0');
  size_t length = name.size();
  must("fi_getname", fi_getname(endpoint, name.data(), &length));
  name.resize(length);
  return absl::StrCat(format, ":", absl::BytesToHexString(name));
}

std::string unpack_address(const std::string &packed, uint32_t *format) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(packed, absl::MaxSplits(':', 1));
  if (!absl::SimpleAtoi(parts.first, format)) fail("the peer sent no usable fabric address");
  return absl::HexStringToBytes(parts.second);
}

// The flags that fi_send and its like have on this endpoint.
uint64_t FabricNode::op_flags() const {
  return options_.level | (options_.selective ? FI_COMPLETION : 0);
}

Info FabricNode::make_hints() const {
  Info hints(fi_allocinfo());
  if (!hints) fail("fi_allocinfo: out of memory");
  hints->ep_attr->type = options_.rdm ? FI_EP_RDM : FI_EP_MSG;
  hints->caps = (options_.tagged ? FI_TAGGED : FI_MSG) | (options_.rma ? FI_RMA | FI_MSG : 0) |
                (options_.multi_recv ? FI_MULTI_RECV : 0);
  hints->tx_attr->op_flags = op_flags();
  // The modes that the benchmark supports: every operation has a context of its own.
  hints->mode = FI_CONTEXT | FI_CONTEXT2 | (options_.rma ? FI_RX_CQ_DATA : 0);
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  // One thread that spins on the queues: the library may leave out locks and progress threads.
  hints->domain_attr->threading = options_.thread_safe ? FI_THREAD_SAFE : FI_THREAD_DOMAIN;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->tx_attr->msg_order = FI_ORDER_SAS | (options_.rma ? FI_ORDER_WAW : 0);
  hints->rx_attr->msg_order = hints->tx_attr->msg_order;
  hints->fabric_attr->prov_name = strdup(options_.provider.c_str());
  if (!options_.domain.empty()) hints->domain_attr->name = strdup(options_.domain.c_str());
  return hints;
}

void FabricNode::open_fabric(fi_info *info) {
  info_.reset(info);
  fid_fabric *fabric = nullptr;
  must("fi_fabric", fi_fabric(info->fabric_attr, &fabric, nullptr));
  fabric_.reset(fabric);
  fi_eq_attr attr = {};
  attr.size = 1024;
  attr.wait_obj = FI_WAIT_NONE;
  fid_eq *eq = nullptr;
  must("fi_eq_open", fi_eq_open(fabric, &attr, &eq, nullptr));
  eq_.reset(eq);
}

std::string FabricNode::listen(const std::string &host) {
  Info hints = make_hints();
  fi_info *found = nullptr;
  const int rc =
      fi_getinfo(FI_VERSION(1, 17), host.c_str(), nullptr, FI_SOURCE, hints.get(), &found);
  if (rc != 0) {
    fail("fi_getinfo: %s: no %s endpoint of provider '%s' at %s", fi_strerror(-rc),
         options_.rdm ? "FI_EP_RDM" : "FI_EP_MSG", options_.provider, host);
  }
  open_fabric(found);
  if (options_.rdm) return "";
  fid_pep *pep = nullptr;
  must("fi_passive_ep", fi_passive_ep(fabric_.get(), found, &pep, nullptr));
  pep_.reset(pep);
  must("fi_pep_bind", fi_pep_bind(pep, &eq_->fid, 0));
  must("fi_listen", fi_listen(pep));
  return own_address(&pep->fid, found->addr_format);
}

void FabricNode::resolve(const std::string &address) {
  Info hints = make_hints();
  uint32_t format = 0;
  const std::string bytes = unpack_address(address, &format);
  hints->addr_format = format;
  hints->dest_addr = malloc(bytes.size());
  memcpy(hints->dest_addr, bytes.data(), bytes.size());
  hints->dest_addrlen = bytes.size();
  fi_info *found = nullptr;
  const int rc = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &found);
  if (rc != 0) {
    fail("fi_getinfo: %s: no %s endpoint of provider '%s' leads to the server", fi_strerror(-rc),
         options_.rdm ? "FI_EP_RDM" : "FI_EP_MSG", options_.provider);
  }
  open_fabric(found);
}

void FabricNode::open_domain(fi_info *info) {
  if (domain_) return;
  fid_domain *domain = nullptr;
  must("fi_domain", fi_domain(fabric_.get(), info, &domain, nullptr));
  domain_.reset(domain);
  fi_cq_attr attr = {};
  attr.format = FI_CQ_FORMAT_DATA;
  attr.wait_obj = options_.wait_fd ? FI_WAIT_FD : FI_WAIT_NONE;
  attr.size = 4096;
  fid_cq *cq = nullptr;
  must("fi_cq_open", fi_cq_open(domain, &attr, &cq, nullptr));
  cq_.reset(cq);
  if (options_.split_cq) {
    must("fi_cq_open", fi_cq_open(domain, &attr, &cq, nullptr));
    rx_cq_.reset(cq);
  }
  if (options_.wait_fd) {
    for (fid_cq *queue : {cq_.get(), rx_cq_.get()}) {
      if (queue == nullptr) continue;
      pollfd polled = {.fd = -1, .events = POLLIN, .revents = 0};
      must("fi_control(FI_GETWAIT)", fi_control(&queue->fid, FI_GETWAIT, &polled.fd));
      waited_.push_back(&queue->fid);
      descriptors_.push_back(polled);
    }
  }
  if (options_.counters) {
    fi_cntr_attr cntr_attr = {};
    cntr_attr.events = FI_CNTR_EVENTS_COMP;
    cntr_attr.wait_obj = FI_WAIT_NONE;
    for (Fid<fid_cntr> *counter : {&sent_, &arrived_}) {
      fid_cntr *cntr = nullptr;
      must("fi_cntr_open", fi_cntr_open(domain, &cntr_attr, &cntr, nullptr));
      counter->reset(cntr);
    }
  }
  if (!options_.rdm) return;
  fi_av_attr av_attr = {};
  av_attr.type =
      info->domain_attr->av_type == FI_AV_UNSPEC ? FI_AV_TABLE : info->domain_attr->av_type;
  av_attr.count = 1;
  fid_av *av = nullptr;
  must("fi_av_open", fi_av_open(domain, &av_attr, &av, nullptr));
  av_.reset(av);
}

Fid<fid_ep> FabricNode::open_endpoint(fi_info *info) {
  open_domain(info);
  info->tx_attr->op_flags = op_flags();
  fid_ep *raw = nullptr;
  must("fi_endpoint", fi_endpoint(domain_.get(), info, &raw, nullptr));
  Fid<fid_ep> ep(raw);
  if (options_.rdm) {
    must("fi_ep_bind(av)", fi_ep_bind(raw, &av_->fid, 0));
  } else {
    must("fi_ep_bind(eq)", fi_ep_bind(raw, &eq_->fid, 0));
  }
  const uint64_t asked = FI_SELECTIVE_COMPLETION;
  const uint64_t tx = FI_TRANSMIT | (options_.selective || options_.counters ? asked : 0);
  const uint64_t rx = FI_RECV | (options_.counters ? asked : 0);
  if (rx_cq_) {
    must("fi_ep_bind(tx cq)", fi_ep_bind(raw, &cq_->fid, tx));
    must("fi_ep_bind(rx cq)", fi_ep_bind(raw, &rx_cq_->fid, rx));
  } else if (options_.selective && !options_.counters) {
    must("fi_ep_bind(tx cq)", fi_ep_bind(raw, &cq_->fid, tx));
    must("fi_ep_bind(rx cq)", fi_ep_bind(raw, &cq_->fid, rx));
  } else {
    must("fi_ep_bind(cq)", fi_ep_bind(raw, &cq_->fid, tx | rx));
  }
  if (sent_) {
    must("fi_ep_bind(sent)", fi_ep_bind(raw, &sent_->fid, FI_SEND));
    must("fi_ep_bind(arrived)", fi_ep_bind(raw, &arrived_->fid, FI_RECV));
  }
  must("fi_enable", fi_enable(raw));
  return ep;
}

uint32_t FabricNode::wait_event(const char *what, fi_eq_cm_entry *entry) {
  // Some providers drive a connection from the completion queue's progress as well.
  for (uint32_t polls = 0;; ++polls) {
    uint32_t event = 0;
    const ssize_t rc = fi_eq_read(eq_.get(), &event, entry, sizeof *entry, 0);
    if (rc >= 0) return event;
    if (rc == -FI_EAVAIL) {
      fi_eq_err_entry error = {};
      fi_eq_readerr(eq_.get(), &error, 0);
      watch_->blame_peer();
      fail("%s failed: %s", what, fi_strerror(error.err));
    }
    if (rc != -FI_EAGAIN) must("fi_eq_read", rc);
    if (cq_) fi_cq_read(cq_.get(), nullptr, 0);
    if (polls % 256 == 255) watch_->check_call();
  }
}

Fid<fid_ep> FabricNode::accept() {
  fi_eq_cm_entry entry = {};
  uint32_t event = wait_event("waiting for a connection request", &entry);
  if (event != FI_CONNREQ) fail("expected FI_CONNREQ, got event %u", event);
  Info request(entry.info);
  Fid<fid_ep> ep = open_endpoint(request.get());
  must("fi_accept", fi_accept(ep.get(), nullptr, 0));
  event = wait_event("accepting the connection", &entry);
  if (event != FI_CONNECTED) fail("expected FI_CONNECTED, got event %u", event);
  return ep;
}

Fid<fid_ep> FabricNode::connect() {
  Fid<fid_ep> ep = open_endpoint(info_.get());
  must("fi_connect", fi_connect(ep.get(), info_->dest_addr, nullptr, 0));
  fi_eq_cm_entry entry = {};
  const uint32_t event = wait_event("connecting", &entry);
  if (event != FI_CONNECTED) fail("expected FI_CONNECTED, got event %u", event);
  return ep;
}

void FabricNode::sleep() {
  if (fi_trywait(fabric_.get(), waited_.data(), static_cast<int>(waited_.size())) != 0) return;
  poll(descriptors_.data(), descriptors_.size(), 100);
}

void FabricNode::check_events() {
  if (sent_ && (fi_cntr_readerr(sent_.get()) != 0 || fi_cntr_readerr(arrived_.get()) != 0)) {
    watch_->blame_peer();
    fail("an operation failed: a counter of errors says so");
  }
  if (!eq_) return;
  fi_eq_cm_entry entry = {};
  uint32_t event = 0;
  const ssize_t rc = fi_eq_read(eq_.get(), &event, &entry, sizeof entry, 0);
  if (rc == -FI_EAGAIN) return;
  if (rc == -FI_EAVAIL) {
    fi_eq_err_entry error = {};
    fi_eq_readerr(eq_.get(), &error, 0);
    watch_->blame_peer();
    fail("the connection failed: %s", fi_strerror(error.err));
  }
  if (rc < 0) must("fi_eq_read", rc);
  if (event == FI_SHUTDOWN) {
    watch_->blame_peer();
    fail("the peer shut the fabric connection down (FI_SHUTDOWN)");
  }
}

}  // namespace weft::bench
