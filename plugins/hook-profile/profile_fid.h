// SPDX-License-Identifier: BSD-2-Clause
// The object of fi_profile(3): it gives the program the counts of an endpoint or a domain.
//
// Example:
//    int open_ops(const weft_instance *instance, Registry &registry, const struct fid *of,
//                 void **ops) {
//      *ops = open_profile(instance, registry, of, nullptr);
//      return 0;
//    }
//
// Its variables are OPERATION_calls, _again, _errors and _bytes. Not for other processes: those
// read the segment (formats/profile.h).
#ifndef WEFT_PLUGINS_HOOK_PROFILE_PROFILE_FID_H
#define WEFT_PLUGINS_HOOK_PROFILE_PROFILE_FID_H

#include <rdma/fi_profile.h>
#include <weft/plugin.h>

#include "plugins/hook-profile/state.h"

namespace weft::profile {

// `of`: the endpoint or domain. The caller closes the result.
fid_profile *open_profile(const weft_instance *instance, Registry &registry, const struct fid *of,
                          void *context);

}  // namespace weft::profile

#endif
