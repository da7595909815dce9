// SPDX-License-Identifier: BSD-2-Clause
// Object: the base of everything that an application holds by a fid.
//
// Example:
//    #include <rdma/fi_eq.h>
//    class Cq final : public Object<Cq, fid_cq> {
//     public:
//      explicit Cq(const weft_instance *instance) : Object(instance, FI_CLASS_CQ, nullptr) {}
//    };
//    int bind(const weft_instance *instance, struct fid *fid) {
//      if (!Cq::is_mine(fid, FI_CLASS_CQ, instance)) return -FI_EINVAL;
//      Cq *cq = Cq::from(fid);  // back from the C struct
//      return cq->c()->ops != nullptr ? 0 : -FI_EINVAL;
//    }
//
// It lays the hidden header of the plugin ABI directly in front of the public struct
// (weft_fid_header in weft/plugin.h), so that hooks can be attached in place. Not for memory that
// no fid names. It has no virtual functions: header and fid stand at the start of the object.
#ifndef WEFT_SDK_OBJECTS_FID_H
#define WEFT_SDK_OBJECTS_FID_H

#include <rdma/fabric.h>
#include <weft/plugin.h>
#include <weft/result.h>
#include <weft/sdk/progress/fork_mark.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace weft::sdk {

inline weft_fid_header *header_of(const struct fid *fid) {
  return const_cast<weft_fid_header *>(reinterpret_cast<const weft_fid_header *>(fid)) - 1;
}

// The number that an application put into an enum of the C API: any number, also one that C++ does
// not allow to be read as the enum.
template <class Enum>
int raw(const Enum &value) {
  static_assert(std::is_enum_v<Enum> && sizeof(Enum) == sizeof(int));
  int number;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

// Whether an object of this element of a stack was opened from something else than `parent`.
inline bool has_other_parent(const struct fid *fid, const struct fid *parent) {
  const struct fid *const own = header_of(fid)->parent_core;
  return own != nullptr && own != parent;
}

template <class Derived, class Fid>
class Object {
 public:
  using FidType = Fid;

  Object(const weft_instance *instance, size_t fclass, void *context) {
    header_.magic = WEFT_FID_MAGIC;
    header_.struct_size = sizeof header_;
    header_.instance = instance;
    fid_.fid.fclass = fclass;
    fid_.fid.context = context;
  }
  Object(const Object &) = delete;
  Object &operator=(const Object &) = delete;

  Fid *c() { return &fid_; }
  struct fid *base() {
    return &fid_.fid;
  }
  void *context() const { return fid_.fid.context; }
  const weft_instance *instance() const { return header_.instance; }
  // This is a child after fork(), and the object is its parent's.
  bool is_inherited() const { return mark_.is_child(); }

  static Derived *from(Fid *fid) {
    static_assert(offsetof(Object, fid_) == sizeof(weft_fid_header));
    return static_cast<Derived *>(
        reinterpret_cast<Object *>(reinterpret_cast<char *>(fid) - sizeof(weft_fid_header)));
  }
  static Derived *from(struct fid *fid) requires(!std::is_same_v<Fid, struct fid>) {
    return from(reinterpret_cast<Fid *>(fid));
  }

  // Whether a fid that an application passed in is an object of this class made by this stack
  // element. Check this before you touch anything else of it.
  static bool is_mine(const struct fid *fid, size_t fclass, const weft_instance *instance) {
    return fid != nullptr && fid->fclass == fclass && header_of(fid)->magic == WEFT_FID_MAGIC &&
           header_of(fid)->instance == instance;
  }

  // Makes the object known to the core, which attaches hooks. Call it last, before the fid is given
  // out.
  Result<void> publish(struct fid *parent) {
    weft_error why{};
    why.struct_size = sizeof why;
    const int32_t rc = header_.instance->core->object_opened(base(), parent, &why);
    if (rc != 0) return tl::unexpected<Error>(from_c(rc, why));
    return {};
  }
  // The opposite of publish(). Call it in close, once that is certain to succeed and before the
  // memory goes.
  void retire() { header_.instance->core->object_closing(base()); }

 protected:
  ~Object() = default;

 private:
  weft_fid_header header_{};
  Fid fid_{};
  const ForkMark mark_;
};

}  // namespace weft::sdk

#endif
