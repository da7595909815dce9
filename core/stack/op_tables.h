// SPDX-License-Identifier: BSD-2-Clause
// Op tables as data: where each class of object keeps them, how to complete a short one, how to lay
// a hook's ops over one.
//
// Example:
//    #include <vector>
//    // Lays a hook's ops over each table of an object. The copies must live as long as the object.
//    bool overlay_all(struct fid &fid, const weft_op_tables &hook,
//                     std::vector<TableCopy> &copies) {
//      for (const TablePlace &place : places_of(fid.fclass)) {
//        TableCopy full = complete(place.table, load_table(&fid, place));  // missing: -FI_ENOSYS
//        if (full == nullptr) return false;
//        if (const void *ops = table_in(hook, place.table)) overlay(full.get(), ops);
//        store_table(&fid, place, full.get());  // other threads may be calling
//        copies.push_back(std::move(full));
//      }
//      return true;
//    }
//
// A table is a size followed by function pointers. Pointers to tables of all types are void
// pointers here. Not for making objects: plugins do that (weft/sdk/objects/ops.h).
#ifndef WEFT_CORE_STACK_OP_TABLES_H
#define WEFT_CORE_STACK_OP_TABLES_H

#include <weft/plugin.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

namespace weft {

// The members of weft_op_tables, in their order.
enum class Table : uint8_t {
  kFid,
  kFabric,
  kDomain,
  kMr,
  kEp,
  kCm,
  kMsg,
  kRma,
  kTagged,
  kAtomic,
  kCollective,
  kCq,
  kEq,
  kCntr,
  kAv,
  kWait,
  kPoll,
};
inline constexpr size_t kTableCount = 17;

struct TablePlace {
  Table table;
  uint16_t offset;  // of the pointer, from the struct fid
};

// The tables that objects of this class have. Always at least that of struct fid.
std::span<const TablePlace> places_of(size_t fclass);

// The table at a place of an object. Other threads may load and store it at the same time.
const void *load_table(const struct fid *fid, const TablePlace &place);
void store_table(struct fid *fid, const TablePlace &place, const void *table);

// A member of a weft_op_tables; null also if the writer's struct ends before it. Other threads may
// call through the link that publish_table_in() changes.
const void *table_in(const weft_op_tables &tables, Table table);
void publish_table_in(weft_op_tables &tables, Table table, const void *value);

struct FreeTable {
  void operator()(void *table) const { std::free(table); }
};
using TableCopy = std::unique_ptr<void, FreeTable>;

// Whether every op that this library knows is there.
bool is_complete(Table table, const void *ops);

// A copy with every missing op filled by one that answers -FI_ENOSYS. `ops` may be null. Null: no
// memory.
TableCopy complete(Table table, const void *ops);

// Replaces the ops of `copy` that `hook` has.
void overlay(void *copy, const void *hook);

}  // namespace weft

#endif
