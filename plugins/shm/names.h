// SPDX-License-Identifier: BSD-2-Clause
// Names of endpoints, and how a program asks for one by node, service and hints (fi_shm.7, Address
// Format).
//
// Example:
//    // What an endpoint is called that a program opened with this info, as process 17 of user 4.
//    inline Result<sdk::Address> first_name(const fi_info &info) {
//      WEFT_TRY(const WantedName wanted, wanted_name(info));
//      return wanted.name(/*user=*/4, /*number=*/0);
//    }
//
// Not for finding who has a name: host_socket.h.
#ifndef WEFT_PLUGINS_SHM_NAMES_H
#define WEFT_PLUGINS_SHM_NAMES_H

#include <weft/result.h>
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/unit/provider.h>

#include <cstdint>
#include <string>

namespace weft::shm {

// The name that an endpoint is to get.
struct WantedName {
  std::string text;       // without a prefix
  bool is_whole = false;  // else the user, the process and a number follow, so that it is unique

  Result<sdk::Address> name(unsigned user, unsigned number) const;
};

// By the info that an endpoint is opened with.
Result<WantedName> wanted_name(const fi_info &info);
// By what fi_setname got.
Result<WantedName> wanted_name(const void *address, size_t length);

// The texts of src_addr and dest_addr that fi_getinfo answers; empty: none.
struct AskedNames {
  std::string source, destination;
};
Result<AskedNames> asked_names(const sdk::GetinfoQuery &query);

}  // namespace weft::shm

#endif
