// SPDX-License-Identifier: BSD-2-Clause
//
// What travels on the control connection of weft-bench, beside commands and addresses.
//
// Example:
//     #include "bench/control.h"
//     Spec Exchanged(Control &control, const Spec &spec) {
//       control.Send(ToJson(spec));
//       return SpecFromJson(control.Receive(10.0));  // throws if a value is out of its range
//     }
#ifndef WEFT_BENCH_CONTROL_JSON_H_
#define WEFT_BENCH_CONTROL_JSON_H_

#include <nlohmann/json.hpp>

#include "bench.h"
#include "fabric_node.h"
#include "memory.h"

namespace weft::bench {

inline constexpr int kProtocol = 1;  // Both sides must be the same program.

nlohmann::json ToJson(const Spec &spec);
nlohmann::json ToJson(const FabricOptions &options);
nlohmann::json ToJson(const Library &library);
nlohmann::json ToJson(const MemoryResult &result);
Spec SpecFromJson(const nlohmann::json &j);
FabricOptions FabricFromJson(const nlohmann::json &j);

}  // namespace weft::bench

#endif  // WEFT_BENCH_CONTROL_JSON_H_
