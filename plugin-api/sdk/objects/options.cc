// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_errno.h>
#include <weft/sdk/objects/options.h>

#include <cstring>

namespace weft::sdk {

int get_option(size_t option, void *value, size_t *length) {
  if (value == nullptr || length == nullptr) return -FI_EINVAL;
  const bool fits = *length >= sizeof option;
  *length = sizeof option;
  if (!fits) return -FI_ETOOSMALL;
  std::memcpy(value, &option, sizeof option);
  return 0;
}

int set_option(size_t &option, const void *value, size_t length) {
  if (value == nullptr || length != sizeof option) return -FI_EINVAL;
  std::memcpy(&option, value, sizeof option);
  return 0;
}

int control_op_flags(int command, void *arg, uint64_t tx_known, uint64_t *tx, uint64_t *rx,
                     uint64_t rx_known) {
  if (command != FI_GETOPSFLAG && command != FI_SETOPSFLAG) return -FI_ENOSYS;
  if (arg == nullptr) return -FI_EINVAL;
  auto *flags = static_cast<uint64_t *>(arg);
  const uint64_t side = *flags & (FI_TRANSMIT | FI_RECV);
  if (side != FI_TRANSMIT && side != FI_RECV) return -FI_EINVAL;
  uint64_t *mine = side == FI_TRANSMIT ? tx : rx;
  if (mine == nullptr) return -FI_EINVAL;
  if (command == FI_GETOPSFLAG) {
    *flags = *mine;
    return 0;
  }
  const uint64_t wanted = *flags & ~side;
  if (wanted & ~(side == FI_TRANSMIT ? tx_known : rx_known)) return -FI_EBADFLAGS;
  *mine = wanted;
  return 0;
}

}  // namespace weft::sdk
