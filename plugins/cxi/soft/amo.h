// SPDX-License-Identifier: BSD-2-Clause
// The atomic operations of a Cassini, on one element of the process's memory.
//
// Example:
//    inline Rc add(uint64_t &word, uint64_t value) {
//      Packet packet;
//      packet.op = Op::kAtomic;
//      packet.bytes = &value;
//      uint64_t old[2];
//      return execute_amo(packet, &word, old);  // AmoOp::kSum of AmoType::kUint64
//    }
//
// Not for which operations libfabric has: the provider knows.
#ifndef WEFT_PLUGINS_CXI_SOFT_AMO_H
#define WEFT_PLUGINS_CXI_SOFT_AMO_H

#include <cstddef>
#include <cstdint>

#include "plugins/cxi/soft/packet.h"

namespace weft::cxi {

size_t amo_size(AmoType type);  // bytes; 0: there is no such type

// `packet.bytes` is the operand. The old value goes to `fetched`, zeros behind it. kAmoInvalOp: not
// for this type; kAmoAlign: `target` is not aligned to the type.
Rc execute_amo(const Packet &packet, void *target, uint64_t fetched[2]);

}  // namespace weft::cxi

#endif
