// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/objects/ops.h"

#include <cstring>

namespace weft::sdk::ops_detail {

const char *copy_text(const char *text, char *buf, size_t len) noexcept {
  if (buf == nullptr || len == 0) return text;
  const size_t copied = strnlen(text, len - 1);
  std::memcpy(buf, text, copied);
  buf[copied] = '\0';
  return buf;
}

const char *copy_text(const char *text, char *buf, size_t *len) noexcept {
  const char *result = copy_text(text, buf, len != nullptr ? *len : 0);
  if (len != nullptr) *len = std::strlen(text) + 1;
  return result;
}

}  // namespace weft::sdk::ops_detail
