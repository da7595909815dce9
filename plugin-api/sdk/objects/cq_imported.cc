// SPDX-License-Identifier: BSD-2-Clause
// Imported queues: what an owner gets, and the calls that it makes.
#include <weft/sdk/objects/cq.h>
#include <weft/sdk/objects/ops.h>

#include "peer.h"

namespace weft::sdk {

namespace {

bool write_to(fid_peer_cq *owner, const Completion &c) {
  return owner->owner_ops->write(owner, c.context, c.flags, c.len, c.buf, c.data, c.tag,
                                 c.src_addr) >= 0;
}

// `err_data` holds the data of the error for as long as the owner may look at it.
bool write_to(fid_peer_cq *owner, const CompletionError &error, std::string &err_data) {
  err_data = error.err_data;
  fi_cq_err_entry entry{};
  entry.op_context = error.context;
  entry.flags = error.flags;
  entry.len = error.len;
  entry.buf = error.buf;
  entry.data = error.data;
  entry.tag = error.tag;
  entry.olen = error.olen;
  entry.err = error.err;
  entry.prov_errno = error.prov_errno;
  entry.err_data = err_data.empty() ? nullptr : err_data.data();
  entry.err_data_size = err_data.size();
  entry.src_addr = error.src_addr;
  return owner->owner_ops->writeerr(owner, &entry) >= 0;
}

}  // namespace

bool Cq::tell(const Completion &completion) {
  return (head_ == tail_ || tell_waiting()) && write_to(owner_, completion);
}

bool Cq::tell(const CompletionError &error) {
  return tell_waiting() && write_to(owner_, error, last_err_data_);
}

// What the owner did not take before, the oldest first.
bool Cq::tell_waiting() {
  for (; head_ != tail_; ++head_) {
    const Completion &c = ring_[head_ & mask_];
    if (c.flags & kError) {
      if (!write_to(owner_, errors_.front(), last_err_data_)) return false;
      errors_.pop_front();
    } else if (!write_to(owner_, c)) {
      return false;
    }
  }
  return true;
}

ssize_t Cq::read_for_owner(const void *buf, size_t count) {
  if (buf != nullptr || count != 0) return -FI_ENOSYS;  // the entries are the owner's
  EngineGuard held(engine_);
  held.engine.flush();
  held.engine.progress();
  const bool was_full = full();
  tell_waiting();
  if (was_full && !full()) held.engine.flush();  // handlers may have waited for room
  return 0;
}

const fi_ops_cq *Cq::imported_ops() {
  static const fi_ops_cq table = [] {
    fi_ops_cq ops = *cq_ops<Cq>();
    const auto absent = []<class Op>(Op &op) { op = &ops_detail::ObjectOp<Cq, Op>::absent; };
    absent(ops.readfrom);
    absent(ops.readerr);
    absent(ops.sread);
    absent(ops.sreadfrom);
    absent(ops.signal);
    const auto read = [](Cq &cq, const void *buf, size_t count) {
      return cq.read_for_owner(buf, count);
    };
    ops.read = &ops_detail::ObjectOp<Cq, decltype(ops.read)>::template call<decltype(read)>;
    return ops;
  }();
  return &table;
}

}  // namespace weft::sdk
