// SPDX-License-Identifier: BSD-2-Clause
// The variables that stock libfabric's providers read.
//
// Example (statements):
//     const bool known = is_stock_variable("FI_OFI_RXM_DATA_AUTO_PROGRESS");  // true
//     const bool slip = is_stock_variable("FI_OFI_RXM_DATA_AUTO_PROGRES");    // false
//
// Programs and job scripts set them for any libfabric. So it is no mistake if a variable here is no
// parameter of a weft unit. The descriptors of the units list the parameters that exist.
#ifndef WEFT_CORE_SELECT_STOCK_VARIABLES_H
#define WEFT_CORE_SELECT_STOCK_VARIABLES_H

#include <string_view>

namespace weft {

bool is_stock_variable(std::string_view variable);

}  // namespace weft

#endif
