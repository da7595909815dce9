// SPDX-License-Identifier: BSD-2-Clause
#include <weft/plugin.h>

#include <stdexcept>

extern "C" int32_t throwing_init(const weft_offer *, void **, weft_error *) {
  throw std::runtime_error("the frob engine exploded");
}
