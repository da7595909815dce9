// SPDX-License-Identifier: BSD-2-Clause
//
// What travels on the control connection of weft-bench, beside commands and addresses.
//
// Example:
//     #include "bench/control.h"
//     Spec exchanged(Control &control, const Spec &spec) {
//       control.send(to_json(spec));
//       return spec_from_json(control.receive(10.0));  // throws if a value is out of its range
//     }
#ifndef WEFT_BENCH_CONTROL_JSON_H
#define WEFT_BENCH_CONTROL_JSON_H

#include <nlohmann/json.hpp>

#include "bench.h"
#include "fabric_node.h"
#include "memory.h"

namespace weft::bench {

inline constexpr int kProtocol = 1;  // Both sides must be the same program.

nlohmann::json to_json(const Spec &spec);
nlohmann::json to_json(const FabricOptions &options);
nlohmann::json to_json(const Library &library);
nlohmann::json to_json(const MemoryResult &result);
Spec spec_from_json(const nlohmann::json &j);
FabricOptions fabric_from_json(const nlohmann::json &j);

}  // namespace weft::bench

#endif  // WEFT_BENCH_CONTROL_JSON_H
