// SPDX-License-Identifier: BSD-2-Clause
// idle1 ... idle8: hooks on every endpoint that intercept no op of its data path. weft-hook-bench
// shows that they cost nothing.
#include <weft/sdk/unit.h>

namespace {

using namespace weft::sdk;

template <int kNumber>
constexpr const char *kName = nullptr;
#define NAME(number) \
  template <>        \
  constexpr const char *kName<number> = "idle" #number
NAME(1);
NAME(2);
NAME(3);
NAME(4);
NAME(5);
NAME(6);
NAME(7);
NAME(8);
#undef NAME

template <int kNumber>
class Idle {
 public:
  static constexpr UnitInfo info{.name = kName<kNumber>,
                                 .summary = "hangs on endpoints and intercepts no transfer",
                                 .version = FI_VERSION(1, 0),
                                 .security = WEFT_SECURITY_NO_NETWORK};
  int reject(const weft_hook_link &link, fid_pep *pep, struct fid *handle, const void *param,
             size_t size) {
    return link.next.cm->reject(pep, handle, param, size);
  }
};
constexpr PluginInfo kPlugin{
    .name = "idle-hooks", .vendor = "weft", .version = "1.0.0", .license = "BSD-2-Clause"};
}  // namespace

WEFT_PLUGIN(kPlugin, Idle<1>, Idle<2>, Idle<3>, Idle<4>, Idle<5>, Idle<6>, Idle<7>, Idle<8>)
