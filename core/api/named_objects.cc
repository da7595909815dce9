// SPDX-License-Identifier: BSD-2-Clause
#include "core/api/named_objects.h"

#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <weft/diagnosis.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string_view>

#include "core/api/no_ops.h"
#include "core/api/process.h"
#include "core/base/guarded_call.h"
#include "core/base/tostr.h"
#include "core/control/requests.h"

namespace weft {
namespace {

struct NamedObject {
  struct fid fid;
  Process *process;
};

Process &process_of(struct fid *fid) {
  return *container_of(fid, NamedObject, fid)->process;
}

int close_named(struct fid *fid) {
  delete container_of(fid, NamedObject, fid);
  return 0;
}

// ---- "logging" ----

int logging_bind(struct fid *fid, struct fid *source, uint64_t flags) {
  if (source == nullptr || source->fclass != FI_CLASS_LOG) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  return process_of(fid).log.import(container_of(source, struct fid_logging, fid));
}

fi_ops logging_ops = {
    .size = sizeof(fi_ops),
    .close = close_named,
    .bind = logging_bind,
    .control = no_control,
    .ops_open = no_ops_open,
    .tostr = plain_tostr,
    .ops_set = no_ops_set,
};

// ---- "weft" ----

// At the C boundary: a Result becomes a code and a malloc'ed text, an exception becomes an errno.
template <class F>
int answer(char **text, F ask) noexcept {
  if (text == nullptr) return -FI_EINVAL;
  *text = nullptr;
  return guarded(
      [&] {
        const Result<std::string> result = ask();
        *text = ::strdup(result ? result->c_str() : result.error().text.c_str());
        if (!result) return -result.error().code;
        return *text != nullptr ? 0 : -FI_ENOMEM;
      },
      [&](int error, const char *why) {
        if (error != FI_ENOMEM) *text = ::strdup(why);
        return -error;
      });
}

std::string or_empty(const char *text) {
  return text != nullptr ? text : "";
}

int diagnosis_why(struct fid *weft, const char *name, char **text) {
  return answer(text, [&] { return process_of(weft).front.why_json(or_empty(name)); });
}
int diagnosis_explain(struct fid *weft, const char *stack, char **text) {
  return answer(text, [&] { return process_of(weft).front.explain_json(or_empty(stack)); });
}
int diagnosis_plugins(struct fid *weft, char **text) {
  return answer(text, [&] { return process_of(weft).front.plugins_json(); });
}
int diagnosis_config(struct fid *weft, char **text) {
  return answer(text, [&] { return process_of(weft).front.config_json(); });
}

int diagnosis_objects(struct fid *weft, char **text) {
  return answer(text, [&] { return objects_json(process_of(weft).objects); });
}

// For calls that return only success or failure: the text is the reason of a failure.
template <class F>
int command(char **text, F run) noexcept {
  char *reason = nullptr;
  const int ret = answer(&reason, [&]() -> Result<std::string> {
    WEFT_CHECK(run());
    return std::string();
  });
  if (ret == 0 || text == nullptr) {
    std::free(reason);
    reason = nullptr;
  }
  if (text != nullptr) *text = reason;
  return ret;
}

Result<void> check_hook_arguments(const struct fid *root, const char *hook) {
  if (root == nullptr)
    return fail(FI_EINVAL, "no object given: pass the fid of a live fabric, domain or endpoint");
  if (hook == nullptr || *hook == '\0')
    return fail(FI_EINVAL, "no hook given: pass the name of a hook unit");
  return {};
}

int diagnosis_attach_hook(struct fid *weft, struct fid *root, const char *hook, char **text) {
  return command(text, [&]() -> Result<void> {
    WEFT_CHECK(check_hook_arguments(root, hook));
    return process_of(weft).front.attach_hook({&root, 1}, hook);
  });
}
int diagnosis_detach_hook(struct fid *weft, struct fid *root, const char *hook, char **text) {
  return command(text, [&]() -> Result<void> {
    WEFT_CHECK(check_hook_arguments(root, hook));
    return process_of(weft).front.detach_hook({&root, 1}, hook);
  });
}

int diagnosis_watch(struct fid *weft,
                    void (*step)(void *arg, const char *unit, const char *library,
                                 const char *call),
                    void *arg) {
  process_of(weft).front.listen(step, arg);
  return 0;
}
int diagnosis_refuse(struct fid *weft, const char *library, const char *why, const char *remedy) {
  return command(nullptr, [&] {
    return process_of(weft).front.refuse(
        {or_empty(library), Stage::kGetinfo, or_empty(why), or_empty(remedy)});
  });
}

int diagnosis_suppose(struct fid *weft, const char *what, const char *name, const char *value,
                      char **text) {
  return command(text, [&] {
    return process_of(weft).front.suppose(or_empty(what), or_empty(name), or_empty(value));
  });
}

weft_diagnosis_ops diagnosis_ops = {
    .size = sizeof(weft_diagnosis_ops),
    .why = diagnosis_why,
    .explain = diagnosis_explain,
    .plugins = diagnosis_plugins,
    .config = diagnosis_config,
    .objects = diagnosis_objects,
    .attach_hook = diagnosis_attach_hook,
    .detach_hook = diagnosis_detach_hook,
    .watch = diagnosis_watch,
    .refuse = diagnosis_refuse,
    .suppose = diagnosis_suppose,
};

int weft_ops_open(struct fid *, const char *name, uint64_t flags, void **ops, void *) {
  if (name == nullptr || ops == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (std::string_view(name) != WEFT_DIAGNOSIS_OPS) return -FI_ENOSYS;
  *ops = &diagnosis_ops;
  return 0;
}

fi_ops weft_ops = {
    .size = sizeof(fi_ops),
    .close = close_named,
    .bind = no_bind,
    .control = no_control,
    .ops_open = weft_ops_open,
    .tostr = plain_tostr,
    .ops_set = no_ops_set,
};

}  // namespace

int open_named(Process &process, uint32_t version, const char *name, const void *, size_t attr_len,
               uint64_t flags, struct fid **fid, void *context) noexcept {
  if (fid == nullptr) return -FI_EINVAL;
  *fid = nullptr;
  if (name == nullptr) return -FI_EINVAL;
  if (FI_VERSION_LT(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), version)) return -FI_ENOSYS;
  struct Known {
    std::string_view name;
    size_t fclass;
    fi_ops *ops;
  };
  static const Known kKnown[] = {{"logging", FI_CLASS_UNSPEC, &logging_ops},
                                 {WEFT_DIAGNOSIS, FI_CLASS_UNSPEC, &weft_ops}};
  for (const Known &known : kKnown) {
    if (known.name != name) continue;
    if (attr_len != 0) return -FI_EINVAL;  // neither has attributes
    if (flags != 0) return -FI_EBADFLAGS;
    auto *object = new (std::nothrow) NamedObject{{known.fclass, context, known.ops}, &process};
    if (object == nullptr) return -FI_ENOMEM;
    *fid = &object->fid;
    return 0;
  }
  // "mr_cache" among others: registration is explicit, there is no cache to open.
  return -FI_ENOSYS;
}

}  // namespace weft
