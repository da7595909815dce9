// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/amo.h"

#include <rdma/fi_atomic.h>

namespace weft::cxi {
namespace {

std::optional<AmoType> type_of(int datatype) {
  switch (datatype) {
    case FI_INT8:
      return AmoType::kInt8;
    case FI_UINT8:
      return AmoType::kUint8;
    case FI_INT16:
      return AmoType::kInt16;
    case FI_UINT16:
      return AmoType::kUint16;
    case FI_INT32:
      return AmoType::kInt32;
    case FI_UINT32:
      return AmoType::kUint32;
    case FI_INT64:
      return AmoType::kInt64;
    case FI_UINT64:
      return AmoType::kUint64;
    case FI_FLOAT:
      return AmoType::kFloat;
    case FI_DOUBLE:
      return AmoType::kDouble;
    case FI_FLOAT_COMPLEX:
      return AmoType::kFloatComplex;
    case FI_DOUBLE_COMPLEX:
      return AmoType::kDoubleComplex;
    case FI_INT128:
    case FI_UINT128:
      return AmoType::kUint128;
    default:
      return std::nullopt;
  }
}

AmoType bytes_of(size_t size) {
  switch (size) {
    case 1:
      return AmoType::kUint8;
    case 2:
      return AmoType::kUint16;
    case 4:
      return AmoType::kUint32;
    case 8:
      return AmoType::kUint64;
    default:
      return AmoType::kUint128;
  }
}

bool is_integer(int datatype) {
  return datatype >= FI_INT8 && datatype <= FI_UINT64;
}
bool is_complex(int datatype) {
  return datatype == FI_FLOAT_COMPLEX || datatype == FI_DOUBLE_COMPLEX;
}
bool is_wide(int datatype) {
  return datatype == FI_INT128 || datatype == FI_UINT128;
}

std::optional<AmoOp> simple(int op, int datatype) {
  switch (op) {
    case FI_MIN:
      return is_complex(datatype) ? std::nullopt : std::optional(AmoOp::kMin);
    case FI_MAX:
      return is_complex(datatype) ? std::nullopt : std::optional(AmoOp::kMax);
    case FI_SUM:
      return AmoOp::kSum;
    default:
      break;
  }
  if (!is_integer(datatype)) return std::nullopt;
  switch (op) {
    case FI_LOR:
      return AmoOp::kLor;
    case FI_LAND:
      return AmoOp::kLand;
    case FI_LXOR:
      return AmoOp::kLxor;
    case FI_BOR:
      return AmoOp::kBor;
    case FI_BAND:
      return AmoOp::kBand;
    case FI_BXOR:
      return AmoOp::kBxor;
    default:
      return std::nullopt;
  }
}

std::optional<Cswap> compare(int op) {
  switch (op) {
    case FI_CSWAP:
      return Cswap::kEq;
    case FI_CSWAP_NE:
      return Cswap::kNe;
    case FI_CSWAP_LE:
      return Cswap::kLe;
    case FI_CSWAP_LT:
      return Cswap::kLt;
    case FI_CSWAP_GE:
      return Cswap::kGe;
    case FI_CSWAP_GT:
      return Cswap::kGt;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<Amo> amo_of(sdk::AtomicKind kind, int op, int datatype) {
  const auto type = type_of(datatype);
  if (!type) return std::nullopt;
  Amo amo{.type = *type, .size = sdk::datatype_size(datatype)};
  if (kind == sdk::AtomicKind::kCompare) {
    if (op == FI_MSWAP && is_integer(datatype)) {
      amo.op = AmoOp::kAxor;
      return amo;
    }
    const auto cswap = compare(op);
    const bool orders = op != FI_CSWAP && op != FI_CSWAP_NE;
    if (!cswap || (orders && is_complex(datatype)) || (is_wide(datatype) && op != FI_CSWAP))
      return std::nullopt;
    amo.op = AmoOp::kCswap;
    amo.cswap = *cswap;
    return amo;
  }
  if (is_wide(datatype)) return std::nullopt;
  if (op == FI_ATOMIC_WRITE) {
    amo.op = AmoOp::kCswap;
    amo.cswap = Cswap::kNe;
    amo.type = bytes_of(amo.size);
    amo.is_write = true;
    return amo;
  }
  if (op == FI_ATOMIC_READ) {
    if (kind != sdk::AtomicKind::kFetch) return std::nullopt;
    // A swap of zero for zero: a sum would change the sign of a zero.
    amo.op = AmoOp::kCswap;
    amo.type = bytes_of(amo.size);
    amo.has_no_operand = true;
    return amo;
  }
  const auto known = simple(op, datatype);
  if (!known) return std::nullopt;
  amo.op = *known;
  return amo;
}

}  // namespace weft::cxi
