// SPDX-License-Identifier: BSD-2-Clause
// Records of a shared address vector, as another process may have written them: each is refused, or
// is an address that is written as it was read.
#include "av_file.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "weft/sdk/addresses/host_name.h"

using weft::sdk::AvFile;
using weft::sdk::kHostName;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  for (AvFile::Record record; size >= sizeof record; size -= sizeof record) {
    std::memcpy(&record, data, sizeof record);
    data += sizeof record;
    for (const uint32_t native :
         std::initializer_list<uint32_t>{FI_SOCKADDR_IP, FI_SOCKADDR_IN, FI_SOCKADDR_IN6,
                                         FI_SOCKADDR_IB, FI_ADDR_IB_UD, FI_ADDR_CXI, kHostName}) {
      const auto parsed = AvFile::parse(record, native);
      if (!parsed) {
        if (parsed.error().text.empty()) std::abort();
        continue;
      }
      const auto again = AvFile::parse(AvFile::make_record(*parsed), native);
      if (!again || *again != *parsed) std::abort();
      if (*parsed && !(*parsed)->names_peer()) std::abort();
    }
  }
  return 0;
}
