// SPDX-License-Identifier: BSD-2-Clause
// Any text that a program may write to the control socket. Every answer is a JSON object that says
// whether the request was carried out.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/control/requests.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static weft::ObjectTable objects;
  static weft::Front front({});
  weft::Controller controller(front, objects);
  const std::string answer = controller.answer({reinterpret_cast<const char *>(data), size});
  const nlohmann::json read = nlohmann::json::parse(answer, nullptr, false);
  if (!read.is_object() || !read["ok"].is_boolean()) std::abort();
  if (!read["ok"].get<bool>() && read["error"].get<std::string>().empty()) std::abort();
  return 0;
}
