// SPDX-License-Identifier: BSD-2-Clause
#include "fabric.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

namespace weft::bench {

namespace {

static_assert(sizeof(Slot::context) == sizeof(fi_context2));

void Must(const char *call, int64_t rc) {
  if (rc == 0) return;
  Fail("%s: %s (%lld)", call, fi_strerror(static_cast<int>(-rc)), static_cast<long long>(rc));
}

std::string ToHex(const void *data, size_t size) {
  static const char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    const auto byte = static_cast<const uint8_t *>(data)[i];
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string FromHex(const std::string &text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(strtoul(text.substr(i, 2).c_str(), nullptr, 16));
  }
  return bytes;
}

// The format travels with the bytes: "FORMAT:HEX".
std::string PackAddress(uint32_t format, const void *data, size_t size) {
  return std::to_string(format) + ":" + ToHex(data, size);
}

std::string UnpackAddress(const std::string &packed, uint32_t *format) {
  const size_t colon = packed.find(':');
  if (colon == std::string::npos) Fail("the peer sent no usable fabric address");
  *format = static_cast<uint32_t>(strtoul(packed.c_str(), nullptr, 10));
  return FromHex(packed.substr(colon + 1));
}

std::string NameOf(fid_t fid) {
  std::string name(256, '\0');
  size_t length = name.size();
  Must("fi_getname", fi_getname(fid, name.data(), &length));
  name.resize(length);
  return name;
}

}  // namespace

Library LoadedLibrary() {
  Library library;
  // By name rather than &fi_getinfo, which in an executable may be the address of a PLT entry.
  void *symbol = dlsym(RTLD_DEFAULT, "fi_getinfo");
  Dl_info where = {};
  if (symbol != nullptr && dladdr(symbol, &where) != 0 && where.dli_fname != nullptr) {
    char *real = realpath(where.dli_fname, nullptr);
    library.path = real != nullptr ? real : where.dli_fname;
    free(real);
  }
  const uint32_t version = fi_version();
  library.version = std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
  return library;
}

// --- FabricNode ---------------------------------------------------------------------------------

Info FabricNode::Hints() const {
  Info hints(fi_allocinfo());
  if (!hints) Fail("fi_allocinfo: out of memory");
  hints->ep_attr->type = options_.rdm ? FI_EP_RDM : FI_EP_MSG;
  hints->caps = (options_.tagged ? FI_TAGGED : FI_MSG) | (options_.rma ? FI_RMA | FI_MSG : 0);
  // Modes that the benchmark honours: every operation brings a context of its own.
  hints->mode = FI_CONTEXT | FI_CONTEXT2 | (options_.rma ? FI_RX_CQ_DATA : 0);
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  // One thread that spins on the queues: the library may leave out locks and progress threads.
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->tx_attr->msg_order = FI_ORDER_SAS | (options_.rma ? FI_ORDER_WAW : 0);
  hints->rx_attr->msg_order = hints->tx_attr->msg_order;
  hints->fabric_attr->prov_name = strdup(options_.provider.c_str());
  if (!options_.domain.empty()) hints->domain_attr->name = strdup(options_.domain.c_str());
  return hints;
}

void FabricNode::OpenFabric(fi_info *info) {
  info_.reset(info);
  fid_fabric *fabric = nullptr;
  Must("fi_fabric", fi_fabric(info->fabric_attr, &fabric, nullptr));
  fabric_.reset(fabric);
  fi_eq_attr attr = {};
  attr.size = 1024;
  attr.wait_obj = FI_WAIT_NONE;
  fid_eq *eq = nullptr;
  Must("fi_eq_open", fi_eq_open(fabric, &attr, &eq, nullptr));
  eq_.reset(eq);
}

std::string FabricNode::Listen(const std::string &host) {
  Info hints = Hints();
  fi_info *found = nullptr;
  const int rc =
      fi_getinfo(FI_VERSION(1, 17), host.c_str(), nullptr, FI_SOURCE, hints.get(), &found);
  if (rc != 0) {
    Fail("fi_getinfo: %s: no %s endpoint of provider '%s' at %s", fi_strerror(-rc),
         options_.rdm ? "FI_EP_RDM" : "FI_EP_MSG", options_.provider.c_str(), host.c_str());
  }
  OpenFabric(found);
  if (options_.rdm) return "";
  fid_pep *pep = nullptr;
  Must("fi_passive_ep", fi_passive_ep(fabric_.get(), found, &pep, nullptr));
  pep_.reset(pep);
  Must("fi_pep_bind", fi_pep_bind(pep, &eq_->fid, 0));
  Must("fi_listen", fi_listen(pep));
  const std::string name = NameOf(&pep->fid);
  return PackAddress(found->addr_format, name.data(), name.size());
}

void FabricNode::Resolve(const std::string &address) {
  Info hints = Hints();
  uint32_t format = 0;
  const std::string bytes = UnpackAddress(address, &format);
  hints->addr_format = format;
  hints->dest_addr = malloc(bytes.size());
  memcpy(hints->dest_addr, bytes.data(), bytes.size());
  hints->dest_addrlen = bytes.size();
  fi_info *found = nullptr;
  const int rc = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &found);
  if (rc != 0) {
    Fail("fi_getinfo: %s: no %s endpoint of provider '%s' leads to the server", fi_strerror(-rc),
         options_.rdm ? "FI_EP_RDM" : "FI_EP_MSG", options_.provider.c_str());
  }
  OpenFabric(found);
}

void FabricNode::OpenDomain(fi_info *info) {
  if (domain_) return;
  fid_domain *domain = nullptr;
  Must("fi_domain", fi_domain(fabric_.get(), info, &domain, nullptr));
  domain_.reset(domain);
  fi_cq_attr attr = {};
  attr.format = FI_CQ_FORMAT_DATA;
  attr.wait_obj = FI_WAIT_NONE;
  attr.size = 4096;
  fid_cq *cq = nullptr;
  Must("fi_cq_open", fi_cq_open(domain, &attr, &cq, nullptr));
  cq_.reset(cq);
  if (options_.split_cq) {
    Must("fi_cq_open", fi_cq_open(domain, &attr, &cq, nullptr));
    rx_cq_.reset(cq);
  }
  if (!options_.rdm) return;
  fi_av_attr av_attr = {};
  av_attr.type =
      info->domain_attr->av_type == FI_AV_UNSPEC ? FI_AV_TABLE : info->domain_attr->av_type;
  av_attr.count = 1;
  fid_av *av = nullptr;
  Must("fi_av_open", fi_av_open(domain, &av_attr, &av, nullptr));
  av_.reset(av);
}

Fid<fid_ep> FabricNode::OpenEndpoint(fi_info *info) {
  OpenDomain(info);
  fid_ep *raw = nullptr;
  Must("fi_endpoint", fi_endpoint(domain_.get(), info, &raw, nullptr));
  Fid<fid_ep> ep(raw);
  if (options_.rdm) {
    Must("fi_ep_bind(av)", fi_ep_bind(raw, &av_->fid, 0));
  } else {
    Must("fi_ep_bind(eq)", fi_ep_bind(raw, &eq_->fid, 0));
  }
  if (rx_cq_) {
    Must("fi_ep_bind(tx cq)", fi_ep_bind(raw, &cq_->fid, FI_TRANSMIT));
    Must("fi_ep_bind(rx cq)", fi_ep_bind(raw, &rx_cq_->fid, FI_RECV));
  } else {
    Must("fi_ep_bind(cq)", fi_ep_bind(raw, &cq_->fid, FI_TRANSMIT | FI_RECV));
  }
  Must("fi_enable", fi_enable(raw));
  return ep;
}

uint32_t FabricNode::WaitEvent(const char *what, fi_eq_cm_entry *entry) {
  // Some providers drive a connection from the completion queue's progress as well.
  for (uint32_t polls = 0;; ++polls) {
    uint32_t event = 0;
    const ssize_t rc = fi_eq_read(eq_.get(), &event, entry, sizeof *entry, 0);
    if (rc >= 0) return event;
    if (rc == -FI_EAVAIL) {
      fi_eq_err_entry error = {};
      fi_eq_readerr(eq_.get(), &error, 0);
      watch_->BlamePeer();
      Fail("%s failed: %s", what, fi_strerror(error.err));
    }
    if (rc != -FI_EAGAIN) Must("fi_eq_read", rc);
    if (cq_) fi_cq_read(cq_.get(), nullptr, 0);
    if (polls % 256 == 255) watch_->Check();
  }
}

Fid<fid_ep> FabricNode::Accept() {
  fi_eq_cm_entry entry = {};
  uint32_t event = WaitEvent("waiting for a connection request", &entry);
  if (event != FI_CONNREQ) Fail("expected FI_CONNREQ, got event %u", event);
  Info request(entry.info);
  Fid<fid_ep> ep = OpenEndpoint(request.get());
  Must("fi_accept", fi_accept(ep.get(), nullptr, 0));
  event = WaitEvent("accepting the connection", &entry);
  if (event != FI_CONNECTED) Fail("expected FI_CONNECTED, got event %u", event);
  return ep;
}

Fid<fid_ep> FabricNode::Connect() {
  Fid<fid_ep> ep = OpenEndpoint(info_.get());
  Must("fi_connect", fi_connect(ep.get(), info_->dest_addr, nullptr, 0));
  fi_eq_cm_entry entry = {};
  const uint32_t event = WaitEvent("connecting", &entry);
  if (event != FI_CONNECTED) Fail("expected FI_CONNECTED, got event %u", event);
  return ep;
}

void FabricNode::CheckEvents() {
  if (!eq_) return;
  fi_eq_cm_entry entry = {};
  uint32_t event = 0;
  const ssize_t rc = fi_eq_read(eq_.get(), &event, &entry, sizeof entry, 0);
  if (rc == -FI_EAGAIN) return;
  if (rc == -FI_EAVAIL) {
    fi_eq_err_entry error = {};
    fi_eq_readerr(eq_.get(), &error, 0);
    watch_->BlamePeer();
    Fail("the connection failed: %s", fi_strerror(error.err));
  }
  if (rc < 0) Must("fi_eq_read", rc);
  if (event == FI_SHUTDOWN) {
    watch_->BlamePeer();
    Fail("the peer shut the fabric connection down (FI_SHUTDOWN)");
  }
}

// --- FabricTransport ----------------------------------------------------------------------------

std::string FabricTransport::Listen(const std::string &host) {
  const std::string address = node_.Listen(host);
  if (!node_.options().rdm) return address;
  OpenRdmEndpoint();
  return OwnAddress();
}

void FabricTransport::Accept() {
  ep_storage_ = node_.Accept();
  ep_ = ep_storage_.get();
  cq_ = node_.cq();
  rx_cq_ = node_.rx_cq();
  tagged_ = node_.options().tagged;
}

std::string FabricTransport::Connect(const std::string &address) {
  node_.Resolve(address);
  if (node_.options().rdm) {
    OpenRdmEndpoint();
    AddPeer(address);
    return OwnAddress();
  }
  ep_storage_ = node_.Connect();
  ep_ = ep_storage_.get();
  cq_ = node_.cq();
  rx_cq_ = node_.rx_cq();
  tagged_ = node_.options().tagged;
  return "";
}

void FabricTransport::OpenRdmEndpoint() {
  ep_storage_ = node_.OpenEndpoint(node_.info());
  ep_ = ep_storage_.get();
  cq_ = node_.cq();
  rx_cq_ = node_.rx_cq();
  tagged_ = node_.options().tagged;
}

std::string FabricTransport::OwnAddress() {
  const std::string name = NameOf(&ep_->fid);
  return PackAddress(node_.info()->addr_format, name.data(), name.size());
}

void FabricTransport::AddPeer(const std::string &address) {
  uint32_t format = 0;
  const std::string bytes = UnpackAddress(address, &format);
  if (fi_av_insert(node_.av(), bytes.data(), 1, &peer_, 0, nullptr) != 1) {
    Fail("fi_av_insert refused the peer's address");
  }
}

uint32_t FabricTransport::MaxWindow() const {
  // One place is kept for an acknowledgement.
  const size_t limit = std::min(node_.info()->tx_attr->size, node_.info()->rx_attr->size);
  return limit > 1 ? static_cast<uint32_t>(std::min<size_t>(limit - 1, 1024)) : 1;
}

void FabricTransport::Begin(Arena &arena, const Spec &spec) {
  received_ = 0;
  remote_writes_ = 0;
  check_ = spec.check;
  inject_ = spec.inject;
  inject_limit_ = node_.info()->tx_attr->inject_size;
  const uint64_t mr_mode = static_cast<uint64_t>(node_.info()->domain_attr->mr_mode);
  const bool local = (mr_mode & FI_MR_LOCAL) != 0;
  writes_consume_receives_ = (node_.info()->mode & FI_RX_CQ_DATA) != 0;
  if (!local && !node_.options().rma) return;
  if (registered_ == &arena && mr_) return;
  mr_.reset();
  uint64_t access = FI_SEND | FI_RECV;
  if (node_.options().rma) access |= FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  fid_mr *mr = nullptr;
  Must("fi_mr_reg", fi_mr_reg(node_.domain(), arena.base(), arena.length(), access, 0, next_key_++,
                              0, &mr, nullptr));
  mr_.reset(mr);
  if ((mr_mode & FI_MR_ENDPOINT) != 0) {
    Must("fi_mr_bind", fi_mr_bind(mr, &ep_->fid, 0));
    Must("fi_mr_enable", fi_mr_enable(mr));
  }
  registered_ = &arena;
  void *desc = local ? fi_mr_desc(mr) : nullptr;
  arena.ForEach([](Slot &slot, void *value) { slot.desc = value; }, desc);
}

uint64_t FabricTransport::RmaAddress(const Arena &arena) const {
  const bool virtual_address =
      (static_cast<uint64_t>(node_.info()->domain_attr->mr_mode) & FI_MR_VIRT_ADDR) != 0;
  return virtual_address ? reinterpret_cast<uintptr_t>(arena.base()) : 0;
}

template <class Post>
void FabricTransport::Retry(const char *call, Post post) {
  uint32_t polls = 0;
  for (;;) {
    const ssize_t rc = post();
    if (__builtin_expect(rc == 0, 1)) return;
    if (rc != -FI_EAGAIN) {
      watch_->BlamePeer();
      Must(call, rc);
    }
    Progress();
    if (++polls == 8192) {
      polls = 0;
      SlowCheck();
    }
  }
}

void FabricTransport::PostReceive(Slot &slot, size_t size) {
  slot.busy = true;
  slot.expected = static_cast<uint32_t>(size);
  if (tagged_) {
    Retry("fi_trecv",
          [&] { return fi_trecv(ep_, slot.data, size, slot.desc, peer_, kTag, 0, slot.context); });
  } else {
    Retry("fi_recv", [&] { return fi_recv(ep_, slot.data, size, slot.desc, peer_, slot.context); });
  }
}

void FabricTransport::Send(Slot &slot, size_t size, bool more) {
  if (inject_ && size <= inject_limit_) {
    if (tagged_) {
      Retry("fi_tinject", [&] { return fi_tinject(ep_, slot.data, size, peer_, kTag); });
    } else {
      Retry("fi_inject", [&] { return fi_inject(ep_, slot.data, size, peer_); });
    }
    return;
  }
  slot.busy = true;
  if (more) {
    const iovec iov = {slot.data, size};
    void *desc = slot.desc;
    if (tagged_) {
      fi_msg_tagged message = {};
      message.msg_iov = &iov;
      message.desc = &desc;
      message.iov_count = 1;
      message.addr = peer_;
      message.tag = kTag;
      message.context = slot.context;
      Retry("fi_tsendmsg", [&] { return fi_tsendmsg(ep_, &message, FI_MORE | FI_COMPLETION); });
    } else {
      fi_msg message = {};
      message.msg_iov = &iov;
      message.desc = &desc;
      message.iov_count = 1;
      message.addr = peer_;
      message.context = slot.context;
      Retry("fi_sendmsg", [&] { return fi_sendmsg(ep_, &message, FI_MORE | FI_COMPLETION); });
    }
  } else if (tagged_) {
    Retry("fi_tsend",
          [&] { return fi_tsend(ep_, slot.data, size, slot.desc, peer_, kTag, slot.context); });
  } else {
    Retry("fi_send", [&] { return fi_send(ep_, slot.data, size, slot.desc, peer_, slot.context); });
  }
}

void FabricTransport::Write(Slot &slot, size_t size, const Slot &target, const Arena &arena,
                            bool announce) {
  const uint64_t address = peer_address_ + static_cast<uint64_t>(target.data - arena.base());
  slot.busy = true;
  if (announce) {
    Retry("fi_writedata", [&] {
      return fi_writedata(ep_, slot.data, size, slot.desc, 1, peer_, address, peer_key_,
                          slot.context);
    });
  } else {
    Retry("fi_write", [&] {
      return fi_write(ep_, slot.data, size, slot.desc, peer_, address, peer_key_, slot.context);
    });
  }
}

void FabricTransport::Read(Slot &slot, size_t size, const Slot &source, const Arena &arena) {
  const uint64_t address = peer_address_ + static_cast<uint64_t>(source.data - arena.base());
  slot.busy = true;
  Retry("fi_read", [&] {
    return fi_read(ep_, slot.data, size, slot.desc, peer_, address, peer_key_, slot.context);
  });
}

void FabricTransport::ExpectRemoteWrites(uint64_t count) {
  extra_receives_ = 0;
  if (!writes_consume_receives_) return;
  // FI_RX_CQ_DATA: every announced write takes a posted receive away.
  const uint64_t now = std::min<uint64_t>(count, 64);
  for (uint64_t i = 0; i < now; ++i) {
    Retry("fi_recv", [&] { return fi_recv(ep_, nullptr, 0, nullptr, peer_, &extra_context_[i]); });
  }
  extra_receives_ = count - now;
}

int FabricTransport::Reap(fid_cq *cq) {
  fi_cq_data_entry entries[16];
  const ssize_t n = fi_cq_read(cq, entries, 16);
  if (n <= 0) {
    if (__builtin_expect(n != -FI_EAGAIN, 0)) CompletionError(cq, n);
    return 0;
  }
  for (ssize_t i = 0; i < n; ++i) {
    const fi_cq_data_entry &entry = entries[i];
    // Only announced writes carry data here; no message does.
    if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
      ++remote_writes_;
      if (extra_receives_ > 0) {
        --extra_receives_;
        Retry("fi_recv",
              [&] { return fi_recv(ep_, nullptr, 0, nullptr, peer_, entry.op_context); });
      }
      continue;
    }
    Slot *slot = static_cast<Slot *>(entry.op_context);
    slot->busy = false;
    if (slot->receive) {
      ++received_;
      if (check_ && entry.len != slot->expected) {
        Fail("data check: a message of %zu bytes arrived where %u were sent", entry.len,
             slot->expected);
      }
    }
  }
  return static_cast<int>(n);
}

void FabricTransport::CompletionError(fid_cq *cq, ssize_t rc) {
  if (rc != -FI_EAVAIL) Fail("fi_cq_read: %s", fi_strerror(static_cast<int>(-rc)));
  fi_cq_err_entry error = {};
  const ssize_t n = fi_cq_readerr(cq, &error, 0);
  if (n < 0) Fail("fi_cq_readerr: %s", fi_strerror(static_cast<int>(-n)));
  char text[256] = "";
  const char *detail = fi_cq_strerror(cq, error.prov_errno, error.err_data, text, sizeof text);
  watch_->BlamePeer();
  Fail("an operation failed: %s (provider: %s)", fi_strerror(error.err),
       detail != nullptr ? detail : "no detail");
}

}  // namespace weft::bench
