// SPDX-License-Identifier: BSD-2-Clause
// Runs a call, out of which no std::exception comes: its caller gets an error instead.
//
// Example (statements):
//    const int ret = weft::guarded([] { return 0; },
//                                  [](int error, const char *) { return -error; });
//
// What is thrown in the core is nearly always std::bad_alloc; the rest (a thread that cannot start,
// a file system that cannot be read) comes from the standard library. Not for code that a plugin
// brings: that stays behind the C ABI, and the SDK's thunks catch there.
#ifndef WEFT_CORE_BASE_GUARDED_CALL_H
#define WEFT_CORE_BASE_GUARDED_CALL_H

#include <rdma/fi_errno.h>

#include <exception>
#include <new>

namespace weft {

// `failed` makes the result of an errno (FI_ENOMEM where there was no memory, else FI_EOTHER) and a
// text.
template <class Call, class Failed>
auto guarded(Call call, Failed failed) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc &) {
    return failed(FI_ENOMEM, "no memory");
  } catch (const std::exception &error) {
    return failed(FI_EOTHER, error.what());
  }
}

}  // namespace weft

#endif
