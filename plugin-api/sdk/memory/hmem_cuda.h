// SPDX-License-Identifier: BSD-2-Clause
// Memory of CUDA devices, by the driver's library, which is opened at run time (CUDA Driver API).
//
// Example (statements):
//    const auto cuda = open_cuda("libcuda.so.1");
//    const bool has_device = cuda.has_value();
//
// Each copy is on a stream of weft's own, so kernels of the application do not delay it. Not for
// kernels, nor for memory of another process.
#ifndef WEFT_PLUGIN_API_SDK_MEMORY_HMEM_CUDA_H
#define WEFT_PLUGIN_API_SDK_MEMORY_HMEM_CUDA_H

#include <weft/sdk/memory/hmem.h>

#include <memory>
#include <string>

namespace weft::sdk {

// FI_ENODATA: there is no library, or no device. FI_ENOSYS: the library lacks a function.
Result<std::unique_ptr<HmemIface>> open_cuda(const std::string &library);

}  // namespace weft::sdk

#endif
