// SPDX-License-Identifier: BSD-2-Clause
// Stands in for core/stack until it is there.
#include "core/stack/object_table.h"
namespace weft {
struct ObjectTable::Impl {};
ObjectTable::ObjectTable() = default;
ObjectTable::~ObjectTable() = default;
int32_t ObjectTable::opened(struct fid *, struct fid *, weft_error *) {
  return 0;
}
void ObjectTable::closing(struct fid *) {}
std::vector<ObjectTable::Live> ObjectTable::list() const {
  return {};
}
}  // namespace weft
