// SPDX-License-Identifier: BSD-2-Clause
// What a process does for others of its user: tells its objects, hangs hooks on them, takes them
// off. Requests and answers are JSON objects.
//
// Example:
//    std::string attach(weft::Controller &controller) {
//      // {"ok": true, "objects": [3]}, or {"ok": false, "error": "no hook \\"trase\\": ..."}
//      return controller.answer(R"({"do": "attach", "hook": "trace", "params": {"size": "4M"}})");
//    }
//
//   {"do": "hello"}    {"ok", "pid", "program", "version"}
//   {"do": "objects"}  {"ok", "objects": [...]}     as weft/diagnosis.h says
//   {"do": "attach", "hook": NAME, "at": ELEMENT, "object": ID, "params": {KEY: TEXT}}
//   {"do": "detach", "hook": NAME, "at": ELEMENT, "object": ID}
//       {"ok", "objects": [ids of the objects on which, and beneath which, it was done]}
//
// Without "at" and "object" all fabrics that the application opened are meant; "at" names the
// element of a stack whose fabrics are ("tcp" beneath rxm). What is opened later from a fabric that
// has a hook comes under it; a fabric that is opened later does not.
//
// Nothing here trusts the text: it may come from any program of the user.
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

  // Never throws but for want of memory.
  std::string answer(std::string_view request);

 private:
  Front &front_;
  ObjectTable &objects_;
};

// The live objects: the answer of weft_diagnosis_ops.objects.
std::string objects_json(const ObjectTable &objects);

}  // namespace weft

#endif
