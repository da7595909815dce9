// SPDX-License-Identifier: BSD-2-Clause
// FI_BUFFERED_RECV in the stateful fuzz target: the application is told of messages, and claims or
// discards each.
#include <algorithm>
#include <utility>

#include "plugins/tcp/fuzz/application.h"
#include "plugins/tcp/fuzz/bytes.h"

namespace weft::tcp::fuzz {

void Endpoint::noticed(const fi_cq_tagged_entry &e, fi_addr_t source) {
  if (ep == nullptr) return;  // its memory has gone with the endpoint
  weft::fuzz::Notice &n = notices_.add(e, source, buffered.min);
  n.who = names;
  FUZZ_CHECK(n.more == (n.length > buffered.limit));
  if (n.tagged) {
    const auto tag = receives->ops.find(reinterpret_cast<uintptr_t>(n.context->context));
    FUZZ_CHECK(tag != receives->ops.end(), "a notice without a tag");
    const Posted &op = *tag->second;
    FUZZ_CHECK(op.kind == Posted::kRecv && op.tagged && !op.told);
    FUZZ_CHECK(((n.tag ^ op.tag) & ~op.ignore) == 0);
    FUZZ_CHECK(bytes_are(op, 0, op.length, IsByte{Memory::kCanary}), "a tag's buffer was used");
    end(receives->ops, tag->first);
  } else {
    FUZZ_CHECK(n.context->ep == ep);
  }
  check_sender(n.flags, n.data, source);
  Message *const message = friends_message(n.tagged, n.flags, n.data, n.tag, source);
  if (message == nullptr) return;
  FUZZ_CHECK(!std::exchange(message->told, true), "a message came twice");
  FUZZ_CHECK(message->length == n.length);
  for (size_t i = 0; i < n.bytes.size(); ++i)
    FUZZ_CHECK(n.bytes[i] == IsPattern{uint32_t(n.data)}(i), "a message of the friend was changed");
  if (n.tagged || !strict) return;
  const auto id = int64_t(uint32_t(n.data));
  FUZZ_CHECK(std::exchange(last_told_, id) < id, "a message overtook another");
}

bool Endpoint::settle_told(size_t which, size_t length, bool drop, bool pieces) {
  if (notices_.empty()) return false;
  weft::fuzz::Notice n = notices_.take(which);
  uintptr_t number = 0;
  Posted &op = add(receives->ops, Posted::kRecv, number);
  op.tagged = n.tagged;
  op.tag = n.tag;
  op.told = true;
  op.told_length = n.length;
  op.first = n.bytes;
  op.source = n.source;
  op.names = n.who;
  for (size_t part : {pieces ? length / 3 : length, pieces ? length - length / 3 : 0}) {
    if (part == 0 && !op.parts.empty()) continue;
    op.parts.emplace_back(part);
    op.iov.push_back({op.parts.back().bytes.get(), part});
    op.length += part;
  }
  void *const before = std::exchange(n.context->context, as_context(number));
  const uint64_t flags = drop ? FI_DISCARD : FI_CLAIM | FI_COMPLETION;
  const iovec *const iov = drop ? nullptr : op.iov.data();
  const size_t count = drop ? 0 : op.iov.size();
  ssize_t rc;
  if (n.tagged) {
    fi_msg_tagged msg{};
    msg.msg_iov = iov;
    msg.iov_count = count;
    msg.addr = FI_ADDR_UNSPEC;
    msg.tag = n.tag;
    msg.context = n.context;
    rc = fi_trecvmsg(receiver(), &msg, flags);
  } else {
    fi_msg msg{};
    msg.msg_iov = iov;
    msg.iov_count = count;
    msg.addr = FI_ADDR_UNSPEC;
    msg.context = n.context;
    rc = fi_recvmsg(receiver(), &msg, flags);
  }
  if (rc == 0 && !drop) return true;
  end(receives->ops, number);
  if (rc == 0) {
    if (Message *message = friends_message(n.tagged, n.flags, n.data, n.tag, n.source))
      message->arrived = true;
    return true;
  }
  FUZZ_CHECK(rc == -FI_EAGAIN, "a message could not be claimed or discarded");
  n.context->context = before;
  notices_.put_back(std::move(n));
  return false;
}

void Endpoint::settle_all_told() {
  for (size_t i = notices_.size(); i != 0; --i)
    settle_told(0, size_t(1) << 14, i % 4 == 0, i % 2 == 0);
}

// A claim completed with `length` bytes.
void Endpoint::check_claim(const Posted &op, uint64_t flags, size_t length, fi_addr_t source) {
  FUZZ_CHECK(flags & FI_CLAIM);
  FUZZ_CHECK(length == std::min(op.told_length, op.length));
  // The address of a stranger may have been inserted or removed before the rest came.
  const bool may_be_renamed = op.told_length > op.first.size() && op.names != names &&
                              source != other_addr && op.source != other_addr;
  FUZZ_CHECK(source == op.source || may_be_renamed,
             "a message is claimed from another than was told");
  const auto told = [&op](size_t i) { return op.first[i]; };
  FUZZ_CHECK(bytes_are(op, 0, std::min(length, op.first.size()), told));
}

}  // namespace weft::tcp::fuzz
