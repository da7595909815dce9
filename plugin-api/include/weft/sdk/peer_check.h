// SPDX-License-Identifier: BSD-2-Clause
// Which peers a domain lets into its address vectors. A domain that cannot speak to everybody whose
// address it can read says so in its control().
//
// Example:
//    #include <rdma/fi_errno.h>
//    #include <weft/sdk/address.h>
//    // The control() of a domain that reaches PIDs below 100 only.
//    inline int control(int command, void *arg) {
//      if (command != WEFT_CHECK_PEER) return -FI_ENOSYS;
//      const auto *const peer = static_cast<const weft::sdk::Address *>(arg);
//      return static_cast<const unsigned char *>(peer->data())[0] < 100 ? 0 : -FI_EHOSTUNREACH;
//    }
//
// fi_av_insert refuses the address with that error, so the application hears of it before it sends.
// The domain logs why. Not for bytes that are no address: the formats see to those.
#ifndef WEFT_SDK_PEER_CHECK_H
#define WEFT_SDK_PEER_CHECK_H

// fi_control of a domain, with the engine's lock held. `arg`: const sdk::Address *. 0: it may be
// inserted. -FI_ENOSYS: so may all.
#define WEFT_CHECK_PEER (-0x77656679)

#endif
