// SPDX-License-Identifier: BSD-2-Clause
// Addresses in text (FI_ADDR_STR), of which an array is one of pointers (fi_av.3).
//
// Example:
//     fi_addr_t insert_peer(fid_av *av, const std::string &name) {  // what fi_getname gave
//       fi_addr_t to = FI_ADDR_NOTAVAIL;
//       must(insert_address(av, name, &to) == 1 ? 0 : -FI_EINVAL);
//       return to;
//     }
//
// Not for what is in a text.
#ifndef WEFT_TESTS_CONFORMANCE_TEXT_ADDRESSES_H
#define WEFT_TESTS_CONFORMANCE_TEXT_ADDRESSES_H

#include <string>
#include <vector>

#include "tests/conformance/common.h"

namespace weft::conformance {

// Whether the addresses under test are such.
bool has_text_addresses();

// fi_av_insert of addresses that are all in text, or none; and of one.
int insert_addresses(fid_av *av, const std::vector<std::string> &addresses, fi_addr_t *to,
                     uint64_t flags = 0, void *context = nullptr);
int insert_address(fid_av *av, const std::string &address, fi_addr_t *to, uint64_t flags = 0,
                   void *context = nullptr);

}  // namespace weft::conformance

#endif
