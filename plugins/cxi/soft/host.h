// SPDX-License-Identifier: BSD-2-Clause
// SoftHost: what the NICs in software call a host: the processes that share a folder, and with it
// the registries and the sockets of the NICs.
//
// Example:
//    // Whether an address was made on another host than this one.
//    inline bool is_foreign(const SoftHost &own, uint16_t mark) {
//      return mark != 0 && mark != own.mark();
//    }
//
// Two containers with one hostname, one machine-id and equal process numbers are two hosts, unless
// they share both the runtime folder and the PID namespace: then their processes reach each other.
// So its number is made of what the kernel says of that folder, of the PID namespace, and of this
// boot. Nothing of it is on a disk that could be copied. Not for addresses of hosts in a network.
#ifndef WEFT_PLUGINS_CXI_SOFT_HOST_H
#define WEFT_PLUGINS_CXI_SOFT_HOST_H

#include <weft/result.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "plugins/cxi/nic/words.h"

namespace weft::cxi {

class SoftHost {
 public:
  // What a host is told by.
  struct Facts {
    std::string_view boot;       // the kernel's number of this boot
    uint64_t pid_namespace = 0;  // inodes
    uint64_t folder_device = 0, folder = 0;
  };
  explicit SoftHost(const Facts &facts);
  // This process's. FI_EACCES and others: there is no runtime folder, or it cannot be written.
  static Result<SoftHost> own();

  // Where the processes meet: within the user's runtime folder (runtime_dir.h), as process numbers
  // mean something in one PID namespace only.
  const std::string &folder() const { return folder_; }
  Result<void> make_folder() const;

  // In addresses: it tells those that were made here from others. Never 0.
  uint16_t mark() const { return uint16_t(1 + (number_ >> 32) % UINT16_MAX); }
  // The address of a NIC that only this host reaches, and that it knows as 127.x.y.z.
  Nid nid_of(uint32_t local) const;
  bool operator==(const SoftHost &other) const { return number_ == other.number_; }

 private:
  uint64_t number_;
  std::string folder_;
};

}  // namespace weft::cxi

#endif
