// SPDX-License-Identifier: BSD-2-Clause
// What a process does for other processes of its user: lists its objects and what its plugins
// count, attaches and detaches hooks. Requests and answers are JSON objects.
//
// Example:
//    std::string attach(weft::Controller &controller) {
//      // {"ok": true, "objects": [3]}, or {"ok": false, "error": "no hook \\"trase\\": ..."}
//      return controller.answer(R"({"do": "attach", "hook": "trace", "params": {"size": "4M"}})");
//    }
//
//   {"do": "hello"}    {"ok", "pid", "program", "version"}
//   {"do": "objects"}  {"ok", "objects": [...]}     as weft/diagnosis.h says
//   {"do": "counters"} {"ok", "fabrics": [{"id", "element", "hook", "stack", "name",
//                                          "counters": [{"name", "value", "what"}]}]}
//   {"do": "attach", "hook": NAME, "at": ELEMENT, "object": ID, "params": {KEY: TEXT}}
//   {"do": "detach", "hook": NAME, "at": ELEMENT, "object": ID}
//       {"ok", "objects": [ids of the objects on which, and beneath which, it was done]}
//
// Without "at" and "object" a request is for all fabrics that the application opened. "at" names an
// element of a stack (such as "tcp" beneath rxm), and the request is for its fabrics. Objects that
// are opened later from a fabric with a hook inherit it; fabrics that are opened later do not.
//
// The counters are those of each fabric, inner ones too, by its element and the whole stack
// (core/stack/counters.h). "hook" is empty or the hook that counted, "name" empty for inner ones.
//
// The text may come from any program of the user, so nothing here trusts it.
#ifndef WEFT_CORE_CONTROL_REQUESTS_H
#define WEFT_CORE_CONTROL_REQUESTS_H

#include <weft/result.h>

#include <string>
#include <string_view>

#include "core/select/front.h"
#include "core/stack/object_table.h"

namespace weft {

class Controller {
 public:
  Controller(Front &front, ObjectTable &objects) : front_(front), objects_(objects) {}

  // Throws only std::bad_alloc.
  std::string answer(std::string_view request);

 private:
  Front &front_;
  ObjectTable &objects_;
};

// The live objects: the answer of weft_diagnosis_ops.objects.
std::string objects_json(const ObjectTable &objects);

}  // namespace weft

#endif
