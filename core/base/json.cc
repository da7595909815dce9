// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/json.h"

#include <nlohmann/json.hpp>

namespace weft {

std::string dump(const nlohmann::ordered_json &json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace weft
