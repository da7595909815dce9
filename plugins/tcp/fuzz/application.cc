// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/fuzz/application.h"

#include <algorithm>
#include <cstring>

#include "plugins/tcp/fuzz/actors.h"
#include "plugins/tcp/fuzz/bytes.h"

namespace weft::tcp::fuzz {
namespace {

uintptr_t next_context = 1;

}  // namespace

Posted &Endpoint::add(PostedOps &to, Posted::Kind kind, uintptr_t &context) {
  context = next_context++;
  auto &op = to[context];
  op = std::make_unique<Posted>();
  op->kind = kind;
  return *op;
}

void Endpoint::end(PostedOps &from, uintptr_t context) {
  from.erase(context);
}

void Endpoint::post_recv(Input &in) {
  const uint8_t how = in.u8();
  uintptr_t context;
  Posted &op = add(receives->ops, Posted::kRecv, context);
  op.tagged = unconnected && how & 1;
  op.multi = (how & 6) == 6 && !op.tagged;
  size_t count = how >> 3 & 3;  // 0 to 3 vectors, and one more
  if ((how & 0x60) == 0x60) ++count;
  if (op.multi && how & 0x80) count = 1;
  for (size_t i = 0; i < count; ++i) {
    op.parts.emplace_back(in.length());
    op.iov.push_back({op.parts.back().bytes.get(), op.parts.back().size});
    op.length += op.parts.back().size;
  }
  ssize_t rc;
  if (op.tagged) {
    op.tag = in.u8() & 7;
    op.ignore = how & 0x80 ? ~UINT64_C(0) : 0;
    fi_msg_tagged msg{};
    msg.msg_iov = op.iov.data();
    msg.iov_count = op.iov.size();
    msg.addr = how & 0x40 ? other_addr : FI_ADDR_UNSPEC;
    msg.tag = op.tag;
    msg.ignore = op.ignore;
    msg.context = as_context(context);
    rc = fi_trecvmsg(receiver(), &msg, FI_COMPLETION);
  } else {
    fi_msg msg{};
    msg.msg_iov = op.iov.data();
    msg.iov_count = op.iov.size();
    msg.addr = FI_ADDR_UNSPEC;
    msg.context = as_context(context);
    rc = fi_recvmsg(receiver(), &msg, FI_COMPLETION | (op.multi ? FI_MULTI_RECV : 0));
  }
  if (rc != 0) end(receives->ops, context);
}

void Endpoint::post_any() {
  for (bool tagged : {false, true}) {
    if (tagged && !unconnected) continue;
    const auto waiting = std::ranges::count_if(
        receives->ops, [tagged](const auto &o) { return o.second->tagged == tagged; });
    if (waiting > 4) continue;
    uintptr_t context;
    Posted &op = add(receives->ops, Posted::kRecv, context);
    op.tagged = tagged;
    op.parts.emplace_back(1 << 14);
    op.iov.push_back({op.parts.back().bytes.get(), op.parts.back().size});
    op.length = op.parts.back().size;
    op.ignore = ~UINT64_C(0);
    const ssize_t rc = tagged ? fi_trecv(receiver(), op.iov[0].iov_base, op.length, nullptr,
                                         FI_ADDR_UNSPEC, 0, op.ignore, as_context(context))
                              : fi_recv(receiver(), op.iov[0].iov_base, op.length, nullptr,
                                        FI_ADDR_UNSPEC, as_context(context));
    if (rc != 0) end(receives->ops, context);
  }
}

// FI_PEEK, with or without FI_CLAIM or FI_DISCARD.
void Endpoint::look(Input &in) {
  if (!unconnected) return;
  const uint8_t how = in.u8();
  uintptr_t context;
  Posted &op = add(receives->ops, Posted::kLook, context);
  op.tagged = how & 1;
  uint64_t flags = FI_PEEK | FI_COMPLETION;
  if (how & 2) flags |= how & 4 ? FI_CLAIM : FI_DISCARD;
  op.discards = flags & FI_DISCARD;
  op.slot = flags & FI_CLAIM ? 1 : 0;
  op.tag = how >> 3 & 7;
  op.ignore = how & 0x40 ? ~UINT64_C(0) : 0;
  ssize_t rc;
  if (op.tagged) {
    fi_msg_tagged msg{};
    msg.addr = FI_ADDR_UNSPEC;
    msg.tag = op.tag;
    msg.ignore = op.ignore;
    msg.context = as_context(context);
    rc = fi_trecvmsg(receiver(), &msg, flags);
  } else {
    fi_msg msg{};
    msg.addr = FI_ADDR_UNSPEC;
    msg.context = as_context(context);
    rc = fi_recvmsg(receiver(), &msg, flags);
  }
  if (rc != 0) end(receives->ops, context);
}

void Endpoint::take_claims() {
  for (size_t i = 0; i < claims.size(); ++i) {
    const uintptr_t context = claims[i];
    auto &op = receives->ops[context];
    if (op != nullptr) continue;
    op = std::make_unique<Posted>();
    op->kind = Posted::kRecv;
    op->tagged = claim_kinds[i] != 0;
    op->ignore = ~UINT64_C(0);
    op->parts.emplace_back(1 << 14);
    op->iov.push_back({op->parts.back().bytes.get(), op->parts.back().size});
    op->length = op->parts.back().size;
    ssize_t rc;
    if (op->tagged) {
      fi_msg_tagged msg{};
      msg.msg_iov = op->iov.data();
      msg.iov_count = 1;
      msg.addr = FI_ADDR_UNSPEC;
      msg.context = as_context(context);
      rc = fi_trecvmsg(receiver(), &msg, FI_CLAIM | FI_COMPLETION);
    } else {
      fi_msg msg{};
      msg.msg_iov = op->iov.data();
      msg.iov_count = 1;
      msg.addr = FI_ADDR_UNSPEC;
      msg.context = as_context(context);
      rc = fi_recvmsg(receiver(), &msg, FI_CLAIM | FI_COMPLETION);
    }
    if (rc != 0) {
      end(receives->ops, context);
      continue;
    }
    claims.erase(claims.begin() + ptrdiff_t(i));
    claim_kinds.erase(claim_kinds.begin() + ptrdiff_t(i));
    --i;
  }
}

void Endpoint::send(Input &in, bool to_friend, fi_addr_t to, uint64_t mark) {
  const uint8_t how = in.u8();
  size_t length = in.length();
  const bool tagged = unconnected && how & 1;
  const bool inject = (how & 6) == 6;
  if (inject) length = std::min<size_t>(length, 128);
  if (to_friend && friendship->messages.size() > 4000) return;
  uintptr_t context;
  Posted &op = add(ops, Posted::kSend, context);
  op.tagged = tagged;
  op.tag = in.u8() & 7;
  op.to_friend = to_friend;
  if (friendship != nullptr) {
    op.life = friendship->life;
    op.promised = !friendship->loose();
  }
  op.length = length;
  op.id = to_friend ? uint32_t(friendship->messages.size()) : 0;
  for (size_t from = 0; from < length;) {
    const bool last = op.parts.size() == 3 || !(how & 0x20);
    const size_t n = last ? length - from : (length - from + 1) / 2;
    op.parts.emplace_back(n);
    fill(op.parts.back(), op.id, from);
    op.iov.push_back({op.parts.back().bytes.get(), n});
    from += n;
  }
  uint64_t flags = FI_COMPLETION | (inject ? FI_INJECT : 0);
  if (how & 8) flags |= FI_DELIVERY_COMPLETE;
  if (how & 0x10) flags |= FI_MORE;
  if (how & 0x40) flags |= FI_FENCE;
  // Messages between friends are recognized by their data.
  if (to_friend || mark != 0 || how & 0x80) flags |= FI_REMOTE_CQ_DATA;
  const uint64_t data = mark != 0 ? mark : kFriendly | op.id;
  if (to_friend)
    friendship->messages.push_back(
        {this, other, length, tagged, op.tag, friendship->life, op.promised});
  ssize_t rc;
  if (tagged) {
    fi_msg_tagged msg{};
    msg.msg_iov = op.iov.data();
    msg.iov_count = op.iov.size();
    msg.addr = to;
    msg.tag = op.tag;
    msg.context = as_context(context);
    msg.data = data;
    rc = fi_tsendmsg(ep, &msg, flags);
  } else {
    fi_msg msg{};
    msg.msg_iov = op.iov.data();
    msg.iov_count = op.iov.size();
    msg.addr = to;
    msg.context = as_context(context);
    msg.data = data;
    rc = fi_sendmsg(ep, &msg, flags);
  }
  if (rc == 0) {
    if (inject) {
      op.parts.clear();  // the buffer belongs to the application again
    }
    return;
  }
  if (to_friend) friendship->messages.pop_back();
  end(ops, context);
}

// Reads of the first half of a region, which is never written, and writes to slots of the second.
void Endpoint::access(Input &in, bool to_friend, fi_addr_t to, uint64_t address, uint64_t key) {
  const uint8_t how = in.u8();
  const bool write = how & 1;
  uintptr_t context;
  Posted &op = add(ops, write ? Posted::kWrite : Posted::kRead, context);
  op.to_friend = to_friend;
  if (friendship != nullptr) {
    op.life = friendship->life;
    op.promised = !friendship->loose();
  }
  op.deep = how & 8;
  const size_t half = 2048, slots = 8, slot_size = half / slots;
  op.slot = how >> 5;
  op.length = std::min(in.length(), write ? slot_size : half);
  op.id = uint32_t(context);
  op.parts.emplace_back(op.length);
  op.iov.push_back({op.parts.back().bytes.get(), op.length});
  if (write) fill(op.parts[0], op.id, 0);
  const uint64_t at = write ? half + op.slot * slot_size : 0;
  const fi_rma_iov remote{address + at, op.length, key};
  fi_msg_rma msg{};
  msg.msg_iov = op.iov.data();
  msg.iov_count = 1;
  msg.addr = to;
  msg.rma_iov = &remote;
  msg.rma_iov_count = 1;
  msg.context = as_context(context);
  uint64_t flags = FI_COMPLETION;
  if (write && how & 2) flags |= FI_REMOTE_CQ_DATA;
  if (write && op.deep) flags |= FI_DELIVERY_COMPLETE;
  if (how & 4) flags |= FI_MORE;
  const ssize_t rc = write ? fi_writemsg(ep, &msg, flags) : fi_readmsg(ep, &msg, flags);
  if (rc != 0) return end(ops, context);
  if (write && to_friend) target->writers[op.slot] = op.id;
}

void Endpoint::cancel(uintptr_t context) {
  // 0: its completion will have FI_ECANCELED. Otherwise the operation goes on unchanged.
  fi_cancel(&receiver()->fid, as_context(context));
}

void Endpoint::cancel_all() {
  std::vector<uintptr_t> contexts;
  for (const auto &[context, op] : receives->ops)
    if (op->kind == Posted::kRecv) contexts.push_back(context);
  for (uintptr_t context : contexts) cancel(context);
}

void Endpoint::received(Posted &op, uint64_t flags, size_t length, void *buf, uint64_t data,
                        uint64_t tag, fi_addr_t source, bool truncated) {
  FUZZ_CHECK(flags & FI_RECV);
  FUZZ_CHECK(bool(flags & FI_TAGGED) == op.tagged);
  FUZZ_CHECK(length <= op.length);
  if (op.tagged) FUZZ_CHECK(((tag ^ op.tag) & ~op.ignore) == 0);
  size_t from = 0;
  if (op.multi) {
    FUZZ_CHECK(!op.iov.empty() || length == 0);
    if (!op.iov.empty()) {
      const auto *base = static_cast<uint8_t *>(op.iov[0].iov_base);
      FUZZ_CHECK(buf >= base && static_cast<uint8_t *>(buf) + length <= base + op.length);
      from = size_t(static_cast<uint8_t *>(buf) - base);
      // It overlaps no other message.
      for (const auto &[at, n] : op.used)
        FUZZ_CHECK(length == 0 || n == 0 || from + length <= at || at + n <= from);
      op.used[from] = std::max(op.used[from], length);
    }
  } else if (!truncated) {
    FUZZ_CHECK(bytes_are(op, length, op.length, IsByte{Memory::kCanary}));
  }
  if (op.told) check_claim(op, flags, length, source);
  if (!op.told) check_sender(flags, data, source);
  Message *const found = friends_message(op.tagged, flags, data, tag, source);
  if (found == nullptr) return;
  const auto id = uint32_t(data);
  Message &message = *found;
  FUZZ_CHECK(message.told == op.told);
  message.arrived = true;
  FUZZ_CHECK(truncated ? length < message.length : length == message.length);
  FUZZ_CHECK(bytes_are(op, from, from + length, IsPattern{id}));
}

// Who may have sent a message that is reported with this source.
void Endpoint::check_sender(uint64_t flags, uint64_t data, fi_addr_t source) const {
  if (!unconnected || friendship == nullptr || !friendship->may_meet) return;
  const uint64_t mark = flags & FI_REMOTE_CQ_DATA ? data >> 32 << 32 : 0;
  const bool is_friends = source == other_addr;
  FUZZ_CHECK(is_friends || !friendship->keyed, "a message of a process without the key");
  if (mark == kStolen) ++thief_tally().told;
  if (mark == kRelayed) ++relay_tally().told;
  if (!is_friends) return;
  if (mark == kRelayed) {
    FUZZ_CHECK((data & 1) != number, "a message of this process under the friend's name");
  } else if (mark == kStolen) {
    FUZZ_CHECK(friendship->loose() || uint32_t(data) < friendship->old_stolen,
               "a message of the thief under the friend's name");
  } else {
    FUZZ_CHECK(mark == kFriendly, "a message of nobody under the friend's name");
  }
}

// The message of the friend, which has not arrived yet and must arrive. Null: it is another's, or
// nothing is known of it.
Message *Endpoint::friends_message(bool tagged, uint64_t flags, uint64_t data, uint64_t tag,
                                   fi_addr_t source) {
  const bool is_friends = unconnected ? other != nullptr && source == other_addr : other != nullptr;
  if (!is_friends || friendship->excused) return nullptr;
  if (friendship->life != 0 && (!(flags & FI_REMOTE_CQ_DATA) || data >> 32 != kFriendly >> 32))
    return nullptr;  // check_sender() has looked at it
  FUZZ_CHECK(flags & FI_REMOTE_CQ_DATA && data >> 32 == kFriendly >> 32);
  const auto id = uint32_t(data);
  FUZZ_CHECK(id < friendship->messages.size());
  Message &message = friendship->messages[id];
  if (message.life != friendship->life) return nullptr;
  FUZZ_CHECK(message.to == this && !message.arrived && message.tagged == tagged);
  if (tagged) FUZZ_CHECK(message.tag == tag);
  friendship->meet();
  return friendship->promises(message) ? &message : nullptr;
}

Posted &Endpoint::receive_of(uintptr_t context) {
  if (const auto found = receives->ops.find(context); found != receives->ops.end())
    return *found->second;
  const auto found = receives->given_back.find(context);
  FUZZ_CHECK(found != receives->given_back.end() && found->second->teller != this);
  return *found->second;
}

void Endpoint::end_receive(uintptr_t context) {
  const auto found = receives->ops.find(context);
  FUZZ_CHECK(found != receives->ops.end());  // a buffer is given back once
  if (found->second->multi && receives->context != nullptr) {
    found->second->teller = this;
    receives->given_back.emplace(context, std::move(found->second));
  }
  receives->ops.erase(found);
}

void Endpoint::completed(const fi_cq_tagged_entry &e, fi_addr_t source) {
  const auto context = reinterpret_cast<uintptr_t>(e.op_context);
  if (context == 0) {
    FUZZ_CHECK(e.flags & FI_REMOTE_WRITE && e.flags & FI_REMOTE_CQ_DATA);
    return;
  }
  if (gone_.contains(context)) return;
  if (const auto found = ops.find(context); found != ops.end()) {
    Posted &op = *found->second;
    const bool checked = op.to_friend && checks(op);
    if (op.kind == Posted::kSend && op.to_friend) {
      FUZZ_CHECK(e.flags & FI_SEND);
      friendship->messages[op.id].ended = true;
    } else if (op.kind == Posted::kRead && checked) {
      FUZZ_CHECK(bytes_are(op, 0, op.length, IsByte{Memory::kCanary - 1}));
    } else if (op.kind == Posted::kWrite && checked && op.deep &&
               target->writers[op.slot] == op.id) {
      for (size_t i = 0; i < op.length; ++i)
        FUZZ_CHECK(target->memory.bytes[2048 + op.slot * 256 + i] == IsPattern{op.id}(i));
    }
    return end(ops, context);
  }
  if (buffered.on && !receives->ops.contains(context)) return noticed(e, source);
  Posted &op = receive_of(context);
  if (op.kind == Posted::kLook) {
    if (op.discards && unconnected && other != nullptr && source == other_addr &&
        !friendship->excused && (friendship->life == 0 || e.data >> 32 == kFriendly >> 32)) {
      const auto id = uint32_t(e.data);
      FUZZ_CHECK(id < friendship->messages.size());
      Message &message = friendship->messages[id];
      FUZZ_CHECK(!friendship->promises(message) || !message.arrived);
      message.arrived = true;
    }
    if (op.slot == 1) {
      claims.push_back(context);
      claim_kinds.push_back(op.tagged);
    }
    return end(receives->ops, context);
  }
  if (op.multi && e.flags == FI_MULTI_RECV) return end_receive(context);
  received(op, e.flags, e.len, e.buf, e.data, e.tag, source, false);
  if (!op.multi || e.flags & FI_MULTI_RECV) end_receive(context);
}

void Endpoint::failed(const fi_cq_err_entry &e) {
  const auto context = reinterpret_cast<uintptr_t>(e.op_context);
  FUZZ_CHECK(e.err > 0);
  if (context == 0) {  // the endpoint's: the call was injected, or had completed (fi_cq.3)
    FUZZ_CHECK(e.flags & (FI_SEND | FI_WRITE));
    return;
  }
  if (gone_.contains(context)) return;
  if (const auto found = ops.find(context); found != ops.end()) {
    Posted &op = *found->second;
    if (op.to_friend && checks(op) && strict) {
      std::fprintf(stderr, "an operation with the friend fails: %d\n", e.err);
      std::abort();
    }
    if (op.to_friend && op.kind == Posted::kSend) friendship->messages[op.id].ended = true;
    return end(ops, context);
  }
  Posted &op = receive_of(context);
  if (op.kind == Posted::kLook) return end(receives->ops, context);
  if (e.err == FI_ETRUNC) {
    FUZZ_CHECK(e.olen != 0);
    received(op, e.flags, e.len, e.buf, e.data, e.tag, e.src_addr, true);
  } else if (e.err != FI_ECANCELED && unconnected && other != nullptr && e.src_addr == other_addr &&
             !friendship->excused && friendship->life == 0 && strict) {
    std::fprintf(stderr, "a message of the friend fails: %d\n", e.err);
    std::abort();
  }
  if (!op.multi || e.flags & FI_MULTI_RECV) end_receive(context);
}

bool Endpoint::drain(int calls) {
  bool any = false;
  for (int i = 0; i < calls; ++i) {
    fi_cq_tagged_entry entries[64];
    fi_addr_t sources[64];
    std::fill(std::begin(sources), std::end(sources), FI_ADDR_NOTAVAIL);
    const ssize_t n = fi_cq_readfrom(cq, entries, std::size(entries), sources);
    if (n == -FI_EAGAIN) return any;
    any = true;
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      FUZZ_CHECK(fi_cq_readerr(cq, &error, 0) == 1);
      failed(error);
      continue;
    }
    FUZZ_CHECK(n > 0);
    for (ssize_t k = 0; k < n; ++k) completed(entries[k], sources[k]);
  }
  return any;
}

void Endpoint::close() {
  if (ep == nullptr) return;
  if (friendship != nullptr) friendship->part();
  FUZZ_CHECK(fi_close(&ep->fid) == 0);
  ep = nullptr;
  for (const auto &[context, op] : ops) gone_.insert(context);
  ops.clear();
  if (receives->context == nullptr) {
    for (const auto &[context, op] : receives->ops) gone_.insert(context);
    receives->ops.clear();
  }
  claims.clear();
  claim_kinds.clear();
  notices_.clear();
  // Earlier completions are still there, and no later ones come.
  while (drain(1)) {
  }
  gone_.clear();
}

size_t Endpoint::outstanding_with_friend() const {
  return size_t(std::ranges::count_if(ops, [](const auto &o) { return o.second->to_friend; }));
}

}  // namespace weft::tcp::fuzz
