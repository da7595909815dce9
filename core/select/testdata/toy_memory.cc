// SPDX-License-Identifier: BSD-2-Clause
// A second plugin file for the tests of the front: shm, a provider of FI_EP_RDM. The toy link asks
// it, and leaves it out, as it offers nothing by itself.
#include "core/stack/toys.h"

namespace {

using namespace weft;

toys::Plugin state_of_memory;

int32_t init(const weft_offer *, void **state, weft_error *) {
  state_of_memory.offers = [](const toys::Plugin::Add &, const fi_info *) {};
  *state = &state_of_memory;
  return 0;
}

const weft_unit *const *units() {
  static const weft_unit shm = [] {
    weft_unit unit = toys::provider("shm");
    unit.offers_ep = WEFT_EP_BIT(FI_EP_RDM);
    return unit;
  }();
  static const weft_unit *const all[] = {&shm};
  return all;
}

}  // namespace

extern "C" WEFT_EXPORT const weft_plugin_desc *weft_plugin_query(const weft_offer *, weft_error *) {
  static const weft_plugin_desc desc = [] {
    weft_plugin_desc made{};
    made.magic = WEFT_DESC_MAGIC;
    made.struct_size = sizeof made;
    made.abi_major = WEFT_ABI_MAJOR;
    made.abi_minor = WEFT_ABI_MINOR;
    made.name = "memory";
    made.vendor = "weft";
    made.version = "1.0";
    made.license = "BSD-2-Clause";
    made.units = units();
    made.unit_count = 1;
    made.init = init;
    return made;
  }();
  return &desc;
}
