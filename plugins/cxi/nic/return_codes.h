// SPDX-License-Identifier: BSD-2-Clause
// What a NIC answers, in libfabric's terms: the one table of errnos and texts of return codes.
//
// Example:
//    // What to do with a message that was refused.
//    inline bool may_go_again(Rc rc) { return errno_of(rc) != 0 && !is_gone(rc); }
//
// The errnos are those of fi_cxi.7, "CQ Error Event Errno": FI_EHOSTUNREACH where the NIC is not
// reached, FI_ENOTCONN where it is and there is no endpoint, and FI_EIO for the rest, such as
// memory that a peer does not open to us. Not for what collective operations fail with
// (collectives.cc), nor for messages that are cut (FI_ETRUNC): for the NIC all is well with those.
#ifndef WEFT_PLUGINS_CXI_NIC_RETURN_CODES_H
#define WEFT_PLUGINS_CXI_NIC_RETURN_CODES_H

#include "plugins/cxi/nic/words.h"

namespace weft::cxi {

int errno_of(Rc rc);         // FI_E..., 0 of kOk
bool is_gone(Rc rc);         // there is nobody at the address, as far as the network can say
const char *text_of(Rc rc);  // for fi_cq_strerror; null: it is no return code

}  // namespace weft::cxi

#endif
