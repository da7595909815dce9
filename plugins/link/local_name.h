// SPDX-License-Identifier: BSD-2-Clause
// local_name: what an endpoint with an address of the network is called on its host (kHostName).
// Each process of the user can tell it from the address alone.
//
// Example:
//    inline bool is_same(const sdk::Address &one, const sdk::Address &other) {
//      return local_name(one) == local_name(other);
//    }
//
// It is no secret: who may answer to it is checked by the provider that listens under it.
#ifndef WEFT_PLUGINS_LINK_LOCAL_NAME_H
#define WEFT_PLUGINS_LINK_LOCAL_NAME_H

#include <weft/sdk/addresses/address.h>

namespace weft::link {

sdk::Address local_name(const sdk::Address &address);

}  // namespace weft::link

#endif
