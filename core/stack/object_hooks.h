// SPDX-License-Identifier: BSD-2-Clause
// The hooks on one live object: their links, and the op tables that were made for them.
//
// Example:
//    bool hang(fid &fid, weft::ObjectHooks &hooks, const std::shared_ptr<weft::Hook> &hook) {
//      std::string why;
//      if (!hooks.put_on(&fid, 17, hook, why)) return false;  // 17: the object, in the log
//      return hooks.has(hook->slot());  // false: the hook does not want this object
//    }
//
// Other threads may be in calls on the object all the time. What such a thread may still be reading
// (links, tables) is kept until the object closes, and is used again if the same hook comes back.
// An object without a hook has a null pointer here.
//
// Knows neither parents nor stacks: ObjectTable says which hook comes to which object, and calls
// for one object only from one thread at a time.
#ifndef WEFT_CORE_STACK_OBJECT_HOOKS_H
#define WEFT_CORE_STACK_OBJECT_HOOKS_H

#include <weft/plugin.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/stack/hook.h"

namespace weft {

inline weft_fid_header *header_of(struct fid *fid) {
  return reinterpret_cast<weft_fid_header *>(fid) - 1;
}

class ObjectHooks {
 public:
  ObjectHooks();
  ~ObjectHooks();
  ObjectHooks(const ObjectHooks &) = delete;
  ObjectHooks &operator=(const ObjectHooks &) = delete;

  // No hook ever came here.
  bool untouched() const { return state_ == nullptr; }
  bool has(uint32_t slot) const;
  std::vector<std::string> names() const;             // outermost first
  std::vector<std::shared_ptr<Hook>> active() const;  // likewise

  // Puts one more hook on the object, outside all others. False if the hook failed: `text` and the
  // log say why (an empty text: no memory), and the object goes on without it. True also where the
  // hook does not want this object.
  bool put_on(struct fid *fid, uint64_t id, const std::shared_ptr<Hook> &hook,
              std::string &text) noexcept;
  // False: no memory, and the hook is still on.
  bool take_off(struct fid *fid, const Hook &hook);
  // The object closes: restores the plugin's tables and releases what the hooks keep for it.
  void close(struct fid *fid);

 private:
  struct State;
  bool try_put_on(struct fid *fid, const std::shared_ptr<Hook> &hook, std::string &text);
  std::unique_ptr<State> state_;
};

}  // namespace weft

#endif
