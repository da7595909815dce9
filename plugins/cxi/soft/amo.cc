// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/amo.h"

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <weft/sdk/transfers/atomic.h>

#include <cstring>

namespace weft::cxi {
namespace {

int datatype_of(AmoType type) {
  switch (type) {
    case AmoType::kInt8:
      return FI_INT8;
    case AmoType::kUint8:
      return FI_UINT8;
    case AmoType::kInt16:
      return FI_INT16;
    case AmoType::kUint16:
      return FI_UINT16;
    case AmoType::kInt32:
      return FI_INT32;
    case AmoType::kUint32:
      return FI_UINT32;
    case AmoType::kInt64:
      return FI_INT64;
    case AmoType::kUint64:
      return FI_UINT64;
    case AmoType::kFloat:
      return FI_FLOAT;
    case AmoType::kFloatComplex:
      return FI_FLOAT_COMPLEX;
    case AmoType::kDouble:
      return FI_DOUBLE;
    case AmoType::kDoubleComplex:
      return FI_DOUBLE_COMPLEX;
    case AmoType::kUint128:
      return FI_UINT128;
  }
  return -1;
}

// -1: there is no such operation.
int op_of(const Packet &packet) {
  switch (packet.amo_op) {
    case AmoOp::kMin:
      return FI_MIN;
    case AmoOp::kMax:
      return FI_MAX;
    case AmoOp::kSum:
      return FI_SUM;
    case AmoOp::kLor:
      return FI_LOR;
    case AmoOp::kLand:
      return FI_LAND;
    case AmoOp::kBor:
      return FI_BOR;
    case AmoOp::kBand:
      return FI_BAND;
    case AmoOp::kLxor:
      return FI_LXOR;
    case AmoOp::kBxor:
      return FI_BXOR;
    case AmoOp::kSwap:
      return FI_ATOMIC_WRITE;
    case AmoOp::kAxor:
      return FI_MSWAP;
    case AmoOp::kCswap:
      break;
  }
  if (packet.amo_op != AmoOp::kCswap) return -1;
  switch (packet.cswap) {
    case Cswap::kEq:
      return FI_CSWAP;
    case Cswap::kNe:
      return FI_CSWAP_NE;
    case Cswap::kLe:
      return FI_CSWAP_LE;
    case Cswap::kLt:
      return FI_CSWAP_LT;
    case Cswap::kGe:
      return FI_CSWAP_GE;
    case Cswap::kGt:
      return FI_CSWAP_GT;
  }
  return -1;
}

}  // namespace

size_t amo_size(AmoType type) {
  const int datatype = datatype_of(type);
  return datatype < 0 ? 0 : sdk::datatype_size(datatype);
}

Rc execute_amo(const Packet &packet, void *target, uint64_t fetched[2]) {
  const int datatype = datatype_of(packet.amo_type), op = op_of(packet);
  const size_t size = amo_size(packet.amo_type);
  const bool compares = op >= FI_CSWAP && op <= FI_MSWAP;
  const auto kind = compares ? sdk::AtomicKind::kCompare : sdk::AtomicKind::kFetch;
  if (op < 0 || size == 0 || !sdk::atomic_valid(kind, op, datatype)) return Rc::kAmoInvalOp;
  if (packet.pcie && (packet.amo_op != AmoOp::kSum || size < 4 || size > 8)) return Rc::kAmoInvalOp;
  if (reinterpret_cast<uintptr_t>(target) % size != 0) return Rc::kAmoAlign;
  fetched[0] = fetched[1] = 0;
  // The second operand: what the target is compared with, or the mask.
  sdk::atomic_execute(kind, op, datatype, target, packet.bytes, packet.operand2, fetched, 1);
  return Rc::kOk;
}

}  // namespace weft::cxi
