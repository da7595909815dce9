// SPDX-License-Identifier: BSD-2-Clause
// Forms: in which form a message goes (TxOp::Form), and its header. That depends on its length, on
// what its sender waits for, and on what the peer completes.
//
// Example:
//    // A message of `op.length` bytes that leaves through this connection.
//    inline void prepare(const Forms &forms, const Connection &c, TxOp &op) {
//      forms.choose(op, /*tagged=*/false, /*has_data=*/false, Tell::kNothing);
//      forms.suit(c, op);  // a stock peer may need another form
//    }
//
// Not for remote access, whose form is its own.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_FORMS_H
#define WEFT_PLUGINS_RXM_PROTOCOL_FORMS_H

#include "plugins/rxm/protocol/connection.h"
#include "plugins/rxm/protocol/operations.h"
#include "plugins/rxm/protocol/settings.h"

namespace weft::rxm {

class Forms {
 public:
  explicit Forms(const Settings &settings) : settings_(settings) {}
  Forms(const Forms &) = delete;
  Forms &operator=(const Forms &) = delete;

  // The form by length. `until`: the operation ends when the peer has told so much.
  void choose(TxOp &op, bool tagged, bool has_data, Tell until) const {
    op.tagged = tagged;
    op.has_data = has_data;
    op.until = until;
    if (op.length <= settings_.eager_limit) [[likely]] {
      op.form = TxOp::Form::kEager;  // and may go without a header
      return;
    }
    choose_long(op);
  }
  // Copies the data into the operation, so that the caller may reuse its memory. The carrier then
  // reports the end of the operation (op.inject is cleared). False: a device has failed.
  bool own_data(TxOp &op) const;
  // Another form, where this peer would not complete the message, or not tell of it.
  void suit(const Connection &c, TxOp &op) const {
    const bool waits = op.until != Tell::kNothing;
    if (op.length == 0 && c.level() == 0 && (waits || op.form == TxOp::Form::kRendezvous)) {
      // A stock receiver does not answer a rendezvous of 0 bytes. The one packet is the whole
      // message, so the carrier's delivery completion serves instead.
      op.form = TxOp::Form::kEager;
      op.until = Tell::kNothing;
      op.flags |= FI_DELIVERY_COMPLETE;
      return;
    }
    // Stock 1.17 does not complete a segmented message that was probed and claimed.
    const bool segments = op.form == TxOp::Form::kSegments;
    if ((segments && c.level() == 0) ||
        (waits && (segments || op.form == TxOp::Form::kEager) && c.level() < kLevelOfTelling))
      announce(op);
  }
  static void make_header(TxOp &op, PacketType type) {
    op.header = header_of(type, 0);
    op.header.op = uint8_t(op.tagged ? PacketOp::kTagged : PacketOp::kMessage);
    op.header.size = op.length;
    if (type != PacketType::kRendezvous && op.until != Tell::kNothing)
      op.header.flags = op.until == Tell::kMatched ? kFlagTellMatched : kFlagTellDelivered;
    if (op.has_data) {
      op.header.flags |= kFlagRemoteData;
      op.header.data = op.data;
    }
    if (op.tagged) op.header.tag = op.tag;
  }

 private:
  void choose_long(TxOp &op) const;
  bool is_devices(const TxOp &op) const;
  static void announce(TxOp &op);

  const Settings &settings_;
};

}  // namespace weft::rxm

#endif
