// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_atomic.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <cstring>

#include "tests/conformance/random_program.h"

namespace weft::conformance {

using Kind = RandomOperation::Kind;
using State = RandomSlot::State;

RandomSlot *RandomProgram::some_slot() {
  std::vector<Slot *> open;
  for (const auto &slot : model_.slots)
    if (slot->state == State::kOpen) open.push_back(slot.get());
  return open.empty() ? nullptr : open[below(open.size())];
}

// Operations toward a peer that was killed are legal, too.
RandomHost *RandomProgram::some_host(const Slot &slot) {
  if (slot.to != nullptr) return slot.life == slot.to->life ? slot.to : nullptr;
  Host &host = model_.hosts[below(2)];
  return host.process != nullptr ? &host : nullptr;
}

size_t RandomProgram::some_size(bool is_tagged) {
  const size_t inject = app_.info->tx_attr->inject_size, room = room_for_messages(*app_.info);
  const size_t sizes[] = {0,    1,    8,      inject - 1, inject, inject + 1, 1000,
                          4096, 4097, 16'383, 16'385,     room,   room - 1,   below(room + 1)};
  const size_t size = sizes[below(one_in(3) ? std::size(sizes) : 8)];
  const bool has_stamp = !is_tagged && type_ != FI_EP_MSG;
  return std::clamp(size, has_stamp ? kStampBytes : 0, room);
}

bool RandomProgram::may_send(const Slot &slot, const Host &host, bool is_tagged) {
  if (slot.echoes[host.index][is_tagged] >= window_) return false;
  // What finds no receive may be lost.
  return is_managed_ || slot.receives[0] > slot.echoes[0][0] + slot.echoes[1][0];
}

bool RandomProgram::send(Slot &slot, Host &host) {
  const bool is_tagged = has_tags_ && one_in(2);
  if (!may_send(slot, host, is_tagged)) return false;
  const Stamp stamp{.peer = host.index, .life = host.life, .slot = slot.number, .number = numbers_};
  const size_t size = some_size(is_tagged);
  auto operation = std::make_unique<Operation>();
  operation->slot = &slot;
  operation->peer = host.index;
  operation->life = host.life;
  operation->is_tagged = is_tagged;
  operation->bytes = message_of(stamp, size, is_tagged);
  bool injects = false;
  const ssize_t rc = call_send(slot, host, *operation, stamp.word(), injects);
  if (rc == -FI_EAGAIN) return false;
  if (rc != 0) {
    EXPECT_TRUE(model_.is_dead(host.index, host.life)) << "a send is refused: " << error_text(rc);
    return false;
  }
  ++numbers_;
  model_.sent(slot, {.stamp = stamp, .size = size, .is_tagged = is_tagged});
  if (injects) {
    ++slot.transmits;
    if (host.index == 1) ++slot.injected;
  } else {
    model_.started(std::move(operation));
  }
  return true;
}

ssize_t RandomProgram::call_send(Slot &slot, Host &host, Operation &operation, uint64_t tag,
                                 bool &injects) {
  const fi_tx_attr &attr = *app_.info->tx_attr;
  std::vector<uint8_t> &bytes = operation.bytes;
  const size_t size = bytes.size();
  const bool is_small = size <= attr.inject_size, is_tagged = operation.is_tagged;
  fid_ep *const ep = slot.ep;
  const int64_t n = int64_t(size), to = host.index;
  size_t parts = 1 + below(attr.iov_limit);
  if (one_in(3)) parts = attr.iov_limit;
  const std::vector<iovec> iov = cut(bytes, parts);
  switch (below(is_small ? 5 : 3)) {
    case 0:
      if (is_tagged)
        return calls_(
            "fi_tsend",
            [&] { return fi_tsend(ep, bytes.data(), size, nullptr, host.at, tag, &operation); }, n,
            to);
      return calls_(
          "fi_send", [&] { return fi_send(ep, bytes.data(), size, nullptr, host.at, &operation); },
          n, to);
    case 1:
      if (is_tagged)
        return calls_(
            "fi_tsendv",
            [&] {
              return fi_tsendv(ep, iov.data(), nullptr, iov.size(), host.at, tag, &operation);
            },
            n, to);
      return calls_(
          "fi_sendv",
          [&] { return fi_sendv(ep, iov.data(), nullptr, iov.size(), host.at, &operation); }, n,
          to);
    case 2: {
      uint64_t flags = FI_COMPLETION;
      if (one_in(3)) flags |= FI_TRANSMIT_COMPLETE;
      if (one_in(3) && has_delivery_) flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
      const bool copies = is_small && one_in(3);
      if (copies) flags |= FI_INJECT;
      ssize_t rc;
      if (is_tagged) {
        const fi_msg_tagged message{.msg_iov = iov.data(),
                                    .desc = nullptr,
                                    .iov_count = iov.size(),
                                    .addr = host.at,
                                    .tag = tag,
                                    .ignore = 0,
                                    .context = &operation,
                                    .data = 0};
        rc = calls_(
            "fi_tsendmsg", [&] { return fi_tsendmsg(ep, &message, flags); }, n, to);
      } else {
        const fi_msg message{.msg_iov = iov.data(),
                             .desc = nullptr,
                             .iov_count = iov.size(),
                             .addr = host.at,
                             .context = &operation,
                             .data = 0};
        rc = calls_(
            "fi_sendmsg", [&] { return fi_sendmsg(ep, &message, flags); }, n, to);
      }
      if (rc == 0 && copies) std::fill(bytes.begin(), bytes.end(), 0xdd);
      return rc;
    }
    default: {
      injects = true;
      ssize_t rc;
      if (is_tagged) {
        rc = calls_(
            "fi_tinject", [&] { return fi_tinject(ep, bytes.data(), size, host.at, tag); }, n, to);
      } else if (has_data_ && one_in(2)) {
        rc = calls_(
            "fi_injectdata", [&] { return fi_injectdata(ep, bytes.data(), size, 1, host.at); }, n,
            to);
      } else {
        rc = calls_(
            "fi_inject", [&] { return fi_inject(ep, bytes.data(), size, host.at); }, n, to);
      }
      std::fill(bytes.begin(), bytes.end(), 0xdd);  // the buffer is the program's again
      return rc;
    }
  }
}

// A cell of the peer's memory has one operation at a time, so what is in it is known.
bool RandomProgram::access(Slot &slot, Host &host) {
  if (!has_rma_) return false;
  std::vector<size_t> idle;
  for (size_t i = 0; i < host.cells.size(); ++i)
    if (!host.cells[i].is_busy && !host.cells[i].is_unknown) idle.push_back(i);
  if (idle.empty()) return false;
  auto operation = std::make_unique<Operation>();
  static constexpr Kind kKinds[] = {Kind::kWrite, Kind::kRead, Kind::kAdd, Kind::kFetchAdd};
  operation->kind = kKinds[below(has_atomics_ ? 4 : 2)];
  operation->slot = &slot;
  operation->peer = host.index;
  operation->life = host.life;
  operation->cell = idle[below(idle.size())];
  const bool is_atomic = operation->kind == Kind::kAdd || operation->kind == Kind::kFetchAdd;
  static constexpr size_t kSizes[] = {1, 8, 100, 4096, 16'384, kCellBytes};
  const size_t size = is_atomic ? sizeof(uint64_t) : kSizes[below(std::size(kSizes))];
  operation->at = is_atomic ? 0 : below(kCellBytes - size + 1);
  operation->operand = random_();
  operation->bytes = pattern(size, unsigned(operation->operand));
  const ssize_t rc =
      is_atomic ? call_atomic(slot, host, *operation) : call_access(slot, host, *operation);
  if (rc == -FI_EAGAIN) return false;
  if (rc != 0) {
    EXPECT_TRUE(model_.is_dead(host.index, host.life))
        << "a " << operation->name() << " is refused: " << error_text(rc);
    return false;
  }
  model_.started(std::move(operation));
  return true;
}

ssize_t RandomProgram::call_access(Slot &slot, Host &host, Operation &operation) {
  std::vector<uint8_t> &bytes = operation.bytes;
  const uint64_t from = host.where.base + operation.cell * kCellBytes + operation.at;
  const uint64_t key = host.where.key;
  const std::vector<iovec> iov =
      cut(bytes, 1 + below(std::min<size_t>(app_.info->tx_attr->iov_limit, bytes.size())));
  const fi_rma_iov place{from, bytes.size(), key};
  const fi_msg_rma message{.msg_iov = iov.data(),
                           .desc = nullptr,
                           .iov_count = iov.size(),
                           .addr = host.at,
                           .rma_iov = &place,
                           .rma_iov_count = 1,
                           .context = &operation,
                           .data = 0};
  const int64_t n = int64_t(bytes.size()), to = host.index;
  fid_ep *const ep = slot.ep;
  if (operation.kind == Kind::kWrite) {
    // What is written is there when the operation completes.
    const uint64_t flags = FI_COMPLETION | (has_delivery_ ? FI_DELIVERY_COMPLETE : 0);
    return calls_(
        "fi_writemsg", [&] { return fi_writemsg(ep, &message, flags); }, n, to);
  }
  if (one_in(2))
    return calls_(
        "fi_readmsg", [&] { return fi_readmsg(ep, &message, FI_COMPLETION); }, n, to);
  return calls_(
      "fi_read",
      [&] {
        return fi_read(ep, bytes.data(), bytes.size(), nullptr, host.at, from, key, &operation);
      },
      n, to);
}

ssize_t RandomProgram::call_atomic(Slot &slot, Host &host, Operation &operation) {
  const uint64_t from = host.where.base + operation.cell * kCellBytes, key = host.where.key;
  const fi_rma_ioc place{from, 1, key};
  fi_ioc one{&operation.operand, 1}, result{operation.bytes.data(), 1};
  const fi_msg_atomic message{.msg_iov = &one,
                              .desc = nullptr,
                              .iov_count = 1,
                              .addr = host.at,
                              .rma_iov = &place,
                              .rma_iov_count = 1,
                              .datatype = FI_UINT64,
                              .op = FI_SUM,
                              .context = &operation,
                              .data = 0};
  const uint64_t flags = FI_COMPLETION | (has_delivery_ ? FI_DELIVERY_COMPLETE : 0);
  fid_ep *const ep = slot.ep;
  const int64_t to = host.index;
  if (operation.kind == Kind::kAdd)
    return calls_(
        "fi_atomicmsg", [&] { return fi_atomicmsg(ep, &message, flags); }, 8, to);
  return calls_(
      "fi_fetch_atomicmsg",
      [&] { return fi_fetch_atomicmsg(ep, &message, &result, nullptr, 1, FI_COMPLETION); }, 8, to);
}

bool RandomProgram::receive(Slot &slot, bool is_tagged) {
  auto operation = std::make_unique<Operation>();
  operation->kind = Kind::kReceive;
  operation->slot = &slot;
  operation->is_tagged = is_tagged;
  operation->bytes.resize(room_for_messages(*app_.info));
  const size_t limit = app_.info->rx_attr->iov_limit;
  const std::vector<iovec> iov = cut(operation->bytes, one_in(2) ? limit : 1 + below(limit));
  fid_ep *const ep = slot.ep;
  constexpr uint64_t kAll = ~UINT64_C(0) >> (64 - Stamp::kBits);
  ssize_t rc;
  if (is_tagged) {
    rc = calls_(
        "fi_trecvv",
        [&] {
          return fi_trecvv(ep, iov.data(), nullptr, iov.size(), FI_ADDR_UNSPEC, 0, kAll,
                           operation.get());
        },
        slot.number);
  } else {
    rc = calls_(
        "fi_recvv",
        [&] {
          return fi_recvv(ep, iov.data(), nullptr, iov.size(), FI_ADDR_UNSPEC, operation.get());
        },
        slot.number);
  }
  if (rc == -FI_EAGAIN) return false;
  if (rc != 0) {
    EXPECT_TRUE(slot.to != nullptr && model_.is_dead(slot.to->index, slot.life))
        << "a receive is refused: " << error_text(rc);
    return false;
  }
  model_.started(std::move(operation));
  return true;
}

// One more than the limit, and sometimes the limit of another object.
void RandomProgram::refuse(Slot &slot, Host &host) {
  const fi_info &info = *app_.info;
  std::vector<uint8_t> bytes(std::max<size_t>(info.tx_attr->inject_size + 1, 4096));
  const std::vector<iovec> too_many = cut(bytes, info.tx_attr->iov_limit + 1);
  fid_ep *const ep = slot.ep;
  ssize_t rc = -FI_EOTHER;
  switch (below(4)) {
    case 0:
      rc = calls_("fi_inject beyond inject_size", [&] {
        return fi_inject(ep, bytes.data(), info.tx_attr->inject_size + 1, host.at);
      });
      break;
    case 1:
      rc = calls_("fi_sendv beyond iov_limit", [&] {
        return fi_sendv(ep, too_many.data(), nullptr, too_many.size(), host.at, &slot);
      });
      break;
    case 2: {
      const std::vector<iovec> receives = cut(bytes, info.rx_attr->iov_limit + 1);
      rc = calls_("fi_recvv beyond iov_limit", [&] {
        return fi_recvv(ep, receives.data(), nullptr, receives.size(), FI_ADDR_UNSPEC, &slot);
      });
      break;
    }
    default:
      if (info.ep_attr->max_msg_size > (size_t{1} << 20)) return;
      bytes.resize(info.ep_attr->max_msg_size + 1);
      rc = calls_("fi_send beyond max_msg_size",
                  [&] { return fi_send(ep, bytes.data(), bytes.size(), nullptr, host.at, &slot); });
  }
  EXPECT_LT(rc, 0) << "beyond a limit";
}

void RandomProgram::cancel() {
  Operation *const operation = model_.some_receive(below(1 << 16));
  if (operation == nullptr || !is_managed_) return;
  const ssize_t rc = calls_(
      "fi_cancel", [&] { return fi_cancel(operation->slot->ep.fid(), operation); },
      operation->slot->number);
  if (rc == 0) operation->is_canceled = true;
  EXPECT_TRUE(rc == 0 || rc == -FI_ENOENT || rc == -FI_EAGAIN) << error_text(rc);
}

}  // namespace weft::conformance
