// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/layers/layer_endpoint.h>

namespace weft::sdk {

Result<Address> local_address(const fi_info &info, const fi_info &inner) {
  if (info.ep_attr->type != FI_EP_RDM && info.ep_attr->type != FI_EP_UNSPEC)
    return fail(FI_EINVAL, "fi_endpoint: type %d: this layer has FI_EP_RDM",
                int(info.ep_attr->type));
  for (size_t size : {info.tx_attr != nullptr ? info.tx_attr->size : 0,
                      info.rx_attr != nullptr ? info.rx_attr->size : 0})
    if (size > kMaxQueueSize)
      return fail(FI_EINVAL, "fi_endpoint: a queue of %zu: at most %zu", size, kMaxQueueSize);
  const fi_info &from = info.src_addr != nullptr ? info : inner;
  if (from.src_addr == nullptr)
    return fail(FI_EINVAL, "fi_endpoint: there is no address to receive at: info->src_addr");
  return read_address(from.addr_format, from.src_addr, from.src_addrlen);
}

}  // namespace weft::sdk
