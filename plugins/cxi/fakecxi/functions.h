// SPDX-License-Identifier: BSD-2-Clause
// The double's functions for a program that is linked with them.
//
// Example:
//    inline std::shared_ptr<const Library> double_of_libcxi() {
//      return std::make_shared<Library>(fake_functions());
//    }
//
// Not for a plugin, which opens fakecxi.so.
#ifndef WEFT_PLUGINS_CXI_FAKECXI_FUNCTIONS_H
#define WEFT_PLUGINS_CXI_FAKECXI_FUNCTIONS_H

#include "plugins/cxi/libcxi/library.h"

namespace weft::cxi {

LibraryFunctions fake_functions();

}  // namespace weft::cxi

#endif
