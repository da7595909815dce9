// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/forms.h"

#include <weft/sdk/memory/iov.h>

#include <cstring>

#include "plugins/rxm/protocol/operation_table.h"

namespace weft::rxm {

// Whether the payload is in memory of a device: it is copied once for a rendezvous, and once more
// in small pieces for segments.
bool Forms::is_devices(const TxOp &op) const {
  return settings_.hmem != nullptr && op.count != 0 &&
         settings_.hmem->find(op.iov[0].iov_base, op.iov[0].iov_len);
}

void Forms::choose_long(TxOp &op) const {
  if (op.length <= settings_.sar_limit && settings_.eager_limit <= UINT16_MAX && !is_devices(op)) {
    op.form = TxOp::Form::kSegments;
    make_header(op, PacketType::kSegment);
  } else {
    op.form = TxOp::Form::kRendezvous;
    make_header(op, PacketType::kRendezvous);
  }
  op.header.message = OperationTable::id_of(op);
}

bool Forms::own_data(TxOp &op) const {
  uint8_t *to = op.bytes;
  // A rendezvous stores its vectors in op.bytes.
  if (op.form == TxOp::Form::kRendezvous || op.length > sizeof op.bytes) {
    op.bounce = std::make_unique_for_overwrite<uint8_t[]>(op.length);
    to = op.bounce.get();
  }
  if (!sdk::hmem_gather(settings_.hmem, to, op.iov, op.count, 0, op.length)) return false;
  op.iov[0] = {to, size_t(op.length)};
  op.desc[0] = nullptr;
  op.count = 1;
  op.inject = false;
  return true;
}

// Makes a rendezvous of a message. A rendezvous stores its vectors in op.bytes.
void Forms::announce(TxOp &op) {
  if (op.count == 1 && op.iov[0].iov_base == op.bytes) {
    op.bounce = std::make_unique_for_overwrite<uint8_t[]>(op.length);
    std::memcpy(op.bounce.get(), op.bytes, op.length);
    op.iov[0].iov_base = op.bounce.get();
  }
  op.form = TxOp::Form::kRendezvous;
  make_header(op, PacketType::kRendezvous);
  op.header.message = OperationTable::id_of(op);
}

}  // namespace weft::rxm
