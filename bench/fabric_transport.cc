// SPDX-License-Identifier: BSD-2-Clause
#include "fabric_transport.h"

#include <algorithm>
#include <utility>

namespace weft::bench {

static_assert(sizeof(Slot::context) == sizeof(fi_context2));

std::string FabricTransport::listen(const std::string &host) {
  const std::string address = node_.listen(host);
  if (!node_.options().rdm) return address;
  use(node_.open_endpoint(node_.info()));
  return own_address(&ep_->fid, node_.info()->addr_format);
}

void FabricTransport::accept() {
  use(node_.accept());
}

std::string FabricTransport::connect(const std::string &address) {
  node_.resolve(address);
  if (node_.options().rdm) {
    use(node_.open_endpoint(node_.info()));
    add_peer(address);
    return own_address(&ep_->fid, node_.info()->addr_format);
  }
  use(node_.connect());
  return "";
}

void FabricTransport::use(Fid<fid_ep> ep) {
  ep_storage_ = std::move(ep);
  ep_ = ep_storage_.get();
  cq_ = node_.cq();
  rx_cq_ = node_.rx_cq();
  tagged_ = node_.options().tagged;
  sleeps_ = node_.options().wait_fd;
  counts_ = node_.options().counters;
  if (!node_.options().multi_recv) return;
  const size_t least = 64 << 10;
  must("fi_setopt(FI_OPT_MIN_MULTI_RECV)",
       fi_setopt(&ep_->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
  multi_.resize(2 * kMultiSize);
}

void FabricTransport::post_multi(char *buffer) {
  const iovec iov = {buffer, kMultiSize};
  fi_msg message = {};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = peer_;
  message.context = &multi_context_[buffer != multi_.data()];
  retry("fi_recvmsg", [&] { return fi_recvmsg(ep_, &message, FI_MULTI_RECV | FI_COMPLETION); });
}

void FabricTransport::add_peer(const std::string &address) {
  uint32_t format = 0;
  const std::string bytes = unpack_address(address, &format);
  if (fi_av_insert(node_.av(), bytes.data(), 1, &peer_, 0, nullptr) != 1) {
    fail("fi_av_insert refused the peer's address");
  }
}

uint32_t FabricTransport::max_window() const {
  // One place is left for an acknowledgement.
  const size_t limit = std::min(node_.info()->tx_attr->size, node_.info()->rx_attr->size);
  return limit > 1 ? static_cast<uint32_t>(std::min<size_t>(limit - 1, 1024)) : 1;
}

void FabricTransport::begin(Arena &arena, const Spec &spec) {
  received_ = 0;
  remote_writes_ = 0;
  check_ = spec.check;
  inject_ = spec.inject;
  if (counts_ && (is_write(spec.test) || is_read(spec.test))) fail("--counters is for messages");
  if (!multi_.empty()) {
    if (spec.check) fail("--check goes without --multi-recv");
    if (spec.size > kMultiSize / 64) fail("--multi-recv is for messages of at most 64 KiB");
    if (!multi_posted_) {
      post_multi(multi_.data());
      post_multi(multi_.data() + kMultiSize);
    }
    multi_posted_ = true;
  }
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
  must("fi_mr_reg", fi_mr_reg(node_.domain(), arena.base(), arena.length(), access, 0, next_key_++,
                              0, &mr, nullptr));
  mr_.reset(mr);
  if ((mr_mode & FI_MR_ENDPOINT) != 0) {
    must("fi_mr_bind", fi_mr_bind(mr, &ep_->fid, 0));
    must("fi_mr_enable", fi_mr_enable(mr));
  }
  registered_ = &arena;
  void *desc = local ? fi_mr_desc(mr) : nullptr;
  arena.for_each([](Slot &slot, void *value) { slot.desc = value; }, desc);
}

uint64_t FabricTransport::rma_address(const Arena &arena) const {
  const bool virtual_address =
      (static_cast<uint64_t>(node_.info()->domain_attr->mr_mode) & FI_MR_VIRT_ADDR) != 0;
  return virtual_address ? reinterpret_cast<uintptr_t>(arena.base()) : 0;
}

template <class Post>
void FabricTransport::retry(const char *call, Post post) {
  uint32_t polls = 0;
  for (;;) {
    const ssize_t rc = post();
    if (__builtin_expect(rc == 0, 1)) return;
    if (rc != -FI_EAGAIN) {
      watch_->blame_peer();
      must(call, rc);
    }
    progress();
    if (++polls == 8192) {
      polls = 0;
      slow_check();
    }
  }
}

void FabricTransport::post_receive(Slot &slot, size_t size) {
  slot.busy = true;
  slot.expected = static_cast<uint32_t>(size);
  if (!multi_.empty()) return;
  if (counts_) receiving_.push_back(&slot);
  if (tagged_) {
    retry("fi_trecv",
          [&] { return fi_trecv(ep_, slot.data, size, slot.desc, peer_, kTag, 0, slot.context); });
  } else {
    retry("fi_recv", [&] { return fi_recv(ep_, slot.data, size, slot.desc, peer_, slot.context); });
  }
}

void FabricTransport::send(Slot &slot, size_t size, bool more) {
  const bool injects = inject_ && size <= inject_limit_;
  if (counts_) sending_.push_back(injects ? nullptr : &slot);
  if (injects) {
    if (tagged_) {
      retry("fi_tinject", [&] { return fi_tinject(ep_, slot.data, size, peer_, kTag); });
    } else {
      retry("fi_inject", [&] { return fi_inject(ep_, slot.data, size, peer_); });
    }
    return;
  }
  slot.busy = true;
  if (more) {
    const iovec iov = {slot.data, size};
    void *desc = slot.desc;
    const uint64_t flags = node_.options().level | (counts_ ? 0 : FI_COMPLETION);
    if (tagged_) {
      fi_msg_tagged message = {};
      message.msg_iov = &iov;
      message.desc = &desc;
      message.iov_count = 1;
      message.addr = peer_;
      message.tag = kTag;
      message.context = slot.context;
      retry("fi_tsendmsg", [&] { return fi_tsendmsg(ep_, &message, FI_MORE | flags); });
    } else {
      fi_msg message = {};
      message.msg_iov = &iov;
      message.desc = &desc;
      message.iov_count = 1;
      message.addr = peer_;
      message.context = slot.context;
      retry("fi_sendmsg", [&] { return fi_sendmsg(ep_, &message, FI_MORE | flags); });
    }
  } else if (tagged_) {
    retry("fi_tsend",
          [&] { return fi_tsend(ep_, slot.data, size, slot.desc, peer_, kTag, slot.context); });
  } else {
    retry("fi_send", [&] { return fi_send(ep_, slot.data, size, slot.desc, peer_, slot.context); });
  }
}

void FabricTransport::write(Slot &slot, size_t size, const Slot &target, const Arena &arena,
                            bool announce) {
  const uint64_t address = peer_address_ + static_cast<uint64_t>(target.data - arena.base());
  slot.busy = true;
  if (announce) {
    retry("fi_writedata", [&] {
      return fi_writedata(ep_, slot.data, size, slot.desc, 1, peer_, address, peer_key_,
                          slot.context);
    });
  } else {
    retry("fi_write", [&] {
      return fi_write(ep_, slot.data, size, slot.desc, peer_, address, peer_key_, slot.context);
    });
  }
}

void FabricTransport::read(Slot &slot, size_t size, const Slot &source, const Arena &arena) {
  const uint64_t address = peer_address_ + static_cast<uint64_t>(source.data - arena.base());
  slot.busy = true;
  retry("fi_read", [&] {
    return fi_read(ep_, slot.data, size, slot.desc, peer_, address, peer_key_, slot.context);
  });
}

void FabricTransport::expect_remote_writes(uint64_t count) {
  extra_receives_ = 0;
  if (!writes_consume_receives_) return;
  // FI_RX_CQ_DATA: every announced write consumes a posted receive.
  const uint64_t now = std::min<uint64_t>(count, 64);
  for (uint64_t i = 0; i < now; ++i) {
    retry("fi_recv", [&] { return fi_recv(ep_, nullptr, 0, nullptr, peer_, &extra_context_[i]); });
  }
  extra_receives_ = count - now;
}

int FabricTransport::reap(fid_cq *cq) {
  fi_cq_data_entry entries[16];
  const ssize_t n = fi_cq_read(cq, entries, 16);
  if (n <= 0) {
    if (__builtin_expect(n != -FI_EAGAIN, 0)) completion_error(cq, n);
    return 0;
  }
  for (ssize_t i = 0; i < n; ++i) {
    const fi_cq_data_entry &entry = entries[i];
    // Only announced writes carry data here; no message does.
    if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
      ++remote_writes_;
      if (extra_receives_ > 0) {
        --extra_receives_;
        retry("fi_recv",
              [&] { return fi_recv(ep_, nullptr, 0, nullptr, peer_, entry.op_context); });
      }
      continue;
    }
    const auto *const context = static_cast<const fi_context2 *>(entry.op_context);
    if (context == &multi_context_[0] || context == &multi_context_[1]) {
      received_ += (entry.flags & FI_RECV) != 0;
      if ((entry.flags & FI_MULTI_RECV) != 0)
        post_multi(multi_.data() + (context - multi_context_) * kMultiSize);
      continue;
    }
    Slot *slot = static_cast<Slot *>(entry.op_context);
    slot->busy = false;
    if (slot->receive) {
      ++received_;
      if (check_ && entry.len != slot->expected) {
        fail("data check: a message of %d bytes arrived where %u were sent", entry.len,
             slot->expected);
      }
    }
  }
  return static_cast<int>(n);
}

int FabricTransport::count() {
  const uint64_t sent = fi_cntr_read(node_.sent()), arrived = fi_cntr_read(node_.arrived());
  const uint64_t n = sent - sent_count_ + arrived - arrived_count_;
  for (; sent_count_ != sent; ++sent_count_) {
    if (sending_.front() != nullptr) sending_.front()->busy = false;
    sending_.pop_front();
  }
  for (; arrived_count_ != arrived; ++arrived_count_, ++received_) {
    receiving_.front()->busy = false;
    receiving_.pop_front();
  }
  return static_cast<int>(n);
}

void FabricTransport::completion_error(fid_cq *cq, ssize_t rc) {
  if (rc != -FI_EAVAIL) fail("fi_cq_read: %s", fi_strerror(static_cast<int>(-rc)));
  fi_cq_err_entry error = {};
  const ssize_t n = fi_cq_readerr(cq, &error, 0);
  if (n < 0) fail("fi_cq_readerr: %s", fi_strerror(static_cast<int>(-n)));
  char text[256] = "";
  const char *detail = fi_cq_strerror(cq, error.prov_errno, error.err_data, text, sizeof text);
  watch_->blame_peer();
  fail("an operation failed: %s (provider: %s)", fi_strerror(error.err),
       detail != nullptr ? detail : "no detail");
}

}  // namespace weft::bench
