// SPDX-License-Identifier: BSD-2-Clause
// A datagram endpoint's op tables, its data path and its peers. Opening and closing are in
// datagram_life.cc.
#include "plugins/verbs/datagram_endpoint.h"

#include <arpa/inet.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include "plugins/verbs/endpoint.h"
#include "plugins/verbs/fabric.h"

namespace weft::verbs {
namespace {

sdk::EndpointLimits datagram_limits(const Domain &domain) {
  const DeviceFacts &facts = domain.device().facts;
  return {.tx_size = std::min(domain.settings().sizes.tx, facts.max_queue_entries),
          .rx_size = std::min(domain.settings().sizes.rx, facts.max_queue_entries),
          .inject_size = facts.max_datagram_inline,
          .max_msg_size = facts.mtu};
}

}  // namespace

DatagramEndpoint::DatagramEndpoint(Domain &domain, const fi_info &info, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      OwnLock(domain.locked()),
      EndpointCore(domain.shared(), sdk::PeerKind::kUnconnected, info, datagram_limits(domain),
                   &tx_, &rx_, &own_lock),
      WorkQueues(own_lock, limits().tx_size, limits().rx_size, tx_, rx_),
      domain_(domain),
      addr_format_(info.addr_format),
      tx_(info),
      rx_(info) {
  set_tables(*this);
}

void DatagramEndpoint::take_away(fid_ep &fid) {
  fid.rma = sdk::c_table(sdk::rma_ops<Nothing>());
  fid.atomic = sdk::c_table(sdk::atomic_ops<Nothing>());
  fid.tagged = sdk::c_table(sdk::tagged_ops<Nothing>());
}

// ---- transfers ----

// The prefix does not count (fi_endpoint.3, FI_MSG_PREFIX).
ssize_t DatagramEndpoint::check_length(uint64_t length, uint64_t flags) const {
  return length < kDatagramHeader ? -FI_EINVAL
                                  : EndpointCore::check_length(length - kDatagramHeader, flags);
}

ssize_t DatagramEndpoint::start(const sdk::SendRequest &r) {
  if (r.count == 0 || r.iov[0].iov_len < kDatagramHeader) return -FI_EINVAL;
  ssize_t rc;
  if (is_broken() && (rc = recover()) != 0) return rc;
  const Remote *const to = remote(r, rc);
  if (to == nullptr) return rc;
  iovec iov[sdk::kIovLimit];
  std::copy_n(r.iov, r.count, iov);
  iov[0] = {static_cast<char *>(iov[0].iov_base) + kDatagramHeader,
            iov[0].iov_len - kDatagramHeader};
  ibv_send_wr work;
  ibv_sge pieces[sdk::kIovLimit];
  work.opcode = IBV_WR_SEND;
  if (r.flags & FI_REMOTE_CQ_DATA) {
    work.opcode = IBV_WR_SEND_WITH_IMM;
    work.imm_data = htonl(uint32_t(r.data));
  }
  work.wr.ud.ah = to->handle;
  work.wr.ud.remote_qpn = to->queue_pair;
  work.wr.ud.remote_qkey = kQueueKey;
  rc = place(work, pieces, iov, r.desc, r.count, r.length - kDatagramHeader, true);
  if (rc != 0) return rc;
  return submit(work, {r.context, FI_SEND | FI_MSG, r.length, r.report}, r.flags);
}

ssize_t DatagramEndpoint::start(const sdk::RecvRequest &r) {
  // The header must lie in one piece: its bytes say who sent the datagram.
  if (r.count == 0 || r.iov == nullptr || r.iov[0].iov_len < kDatagramHeader) return -FI_EINVAL;
  if (is_broken())
    if (const ssize_t rc = recover(); rc != 0) return rc;
  return receive(r);
}

ssize_t DatagramEndpoint::rx_size_left() {
  sdk::Guard guard(own_lock);
  return enabled() ? ssize_t(receives_left()) : -FI_EOPBADSTATE;
}

ssize_t DatagramEndpoint::tx_size_left() {
  sdk::Guard guard(own_lock);
  return enabled() ? ssize_t(sends_left()) : -FI_EOPBADSTATE;
}

// ---- peers ----

const DatagramEndpoint::Remote *DatagramEndpoint::remote(const sdk::SendRequest &r, ssize_t &rc) {
  if (r.dest < remotes_end_ && !(r.flags & FI_MULTICAST))
    if (const Remote *const known = remotes_.at(uint32_t(r.dest))) return known;
  if (r.dest >= kGroupBase) return group_remote(r.dest, rc);
  rc = r.flags & FI_MULTICAST ? -FI_EINVAL : meet(r.dest);
  return rc == 0 ? remotes_.at(av()->index_of(r.dest)) : nullptr;
}

// The lock of the address vector comes before the endpoint's.
ssize_t DatagramEndpoint::meet(fi_addr_t dest) {
  own_lock.unlock();
  sdk::Guard guard(domain_.engine().lock());
  own_lock.lock();
  const uint32_t index = av()->index_of(dest);
  const auto address = av()->address(index);
  if (!address) return -FI_EINVAL;
  if (remotes_.at(index) != nullptr) return 0;
  const DatagramName name = DatagramName::of(*address);
  ibv_ah *const handle = make_handle(name);
  if (handle == nullptr) {
    const int error = errno;
    if (!explained_)
      WEFT_WARN(instance(), FI_LOG_EP_DATA, "a send to %s: ibv_create_ah on %s: %s",
                address->to_string().c_str(), domain_.device().facts.name.c_str(), strerror(error));
    explained_ = true;
    return error != 0 ? -error : -FI_EIO;
  }
  try {
    auto made = std::make_unique<Remote>(Remote{handle, name.queue_pair});
    remotes_.set(index, made.get());
    made.release();
  } catch (const std::bad_alloc &) {
    ibv_destroy_ah(handle);
    return -FI_ENOMEM;
  }
  remotes_end_ = std::max(remotes_end_, index + 1);
  return 0;
}

ibv_ah *DatagramEndpoint::make_handle(const DatagramName &name) {
  ibv_ah_attr attr{};
  attr.port_num = domain_.device().facts.port;
  attr.dlid = name.lid;
  attr.sl = name.service_level;
  if (name.has_gid()) {
    attr.is_global = 1;
    attr.grh.dgid = name.gid;
    attr.grh.sgid_index = source_gid_index(gids_, gid_index_, name.gid);
    attr.grh.hop_limit = kHopLimit;
  }
  destroy_retired(false);
  return ibv_create_ah(domain_.pd(), &attr);
}

void DatagramEndpoint::forget(uint32_t index) {
  const std::unique_ptr<Remote> gone(remotes_.at(index));
  if (gone == nullptr) return;
  remotes_.set(index, nullptr);
  retired_.push_back({gone->handle, newest_number()});
}

// The handles that no operation in flight needs any more, or all.
void DatagramEndpoint::destroy_retired(bool all) {
  std::erase_if(retired_, [&](const Retired &retired) {
    if (!all && !has_finished(retired.last)) return false;
    ibv_destroy_ah(retired.handle);
    return true;
  });
}

void DatagramEndpoint::on_av_removed(uint32_t index) {
  av_changes_.fetch_add(1, std::memory_order_release);
  sdk::Guard guard(own_lock);
  forget(index);
}

void DatagramEndpoint::on_av_inserted(uint32_t, const sdk::Address &) {
  av_changes_.fetch_add(1, std::memory_order_release);
}

fi_addr_t DatagramEndpoint::source_of(const ibv_wc &wc, const RecvOp &op) {
  const auto *const bytes = reinterpret_cast<const uint8_t *>(uintptr_t(op.pieces[0].addr));
  const auto sender = DatagramName::of_sender(wc, DatagramHeader(bytes, kDatagramHeader));
  if (!sender) return FI_ADDR_NOTAVAIL;
  const uint32_t changes = av_changes_.load(std::memory_order_acquire);
  if (changes == last_change_ && sender->queue_pair == last_queue_pair_ &&
      std::memcmp(&sender->gid, &last_gid_, sizeof last_gid_) == 0)
    return last_source_;
  sdk::Guard guard(domain_.engine().lock());
  const uint32_t index = av()->find(sender->address());
  last_change_ = changes;
  last_gid_ = sender->gid;
  last_queue_pair_ = sender->queue_pair;
  last_source_ = index != sdk::Av::kNone ? av()->reported(index) : FI_ADDR_NOTAVAIL;
  return last_source_;
}

}  // namespace weft::verbs
