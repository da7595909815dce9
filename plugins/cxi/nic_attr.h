// SPDX-License-Identifier: BSD-2-Clause
// What an fi_info says of its NIC (fi_nic.3), with the attributes that only cxi has: struct
// cxip_nic_attr of rdma/fi_cxi_ext.h.
//
// Example:
//    // All infos of a list are of one NIC.
//    inline Result<void> tell(sdk::InfoList &list, const DeviceFacts &facts,
//                             const std::shared_ptr<Devices> &devices) {
//      for (fi_info *info = list.front(); info != nullptr; info = info->next)
//        WEFT_CHECK(put_nic(*info, facts, devices, 10));
//      return {};
//    }
//
// It is of a kind of its own: it copies and frees itself, and knows FI_OPT_CXI_NIC_REFRESH_ATTR.
#ifndef WEFT_PLUGINS_CXI_NIC_ATTR_H
#define WEFT_PLUGINS_CXI_NIC_ATTR_H

#include <weft/sdk/unit/info_list.h>

#include <memory>

#include "plugins/cxi/nic/device.h"

namespace weft::cxi {

// `devices` are asked again when the attributes are read anew.
Result<void> put_nic(fi_info &info, const DeviceFacts &facts,
                     const std::shared_ptr<Devices> &devices, Vni default_vni);

}  // namespace weft::cxi

#endif
