// SPDX-License-Identifier: BSD-2-Clause
#include <weft/plugin.h>

#include <stdexcept>

extern "C" int32_t throwing_getinfo(void *, uint32_t, const char *, const char *, uint64_t,
                                    const struct fi_info *, struct fi_info **, weft_error *) {
  throw std::runtime_error("the frob engine stalled");
}

extern "C" int32_t throwing_init(const weft_offer *, void **, weft_error *) {
  throw std::runtime_error("the frob engine exploded");
}
