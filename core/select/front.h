// SPDX-License-Identifier: BSD-2-Clause
// Front: everything behind fi_getinfo() and fi_fabric(). It joins policy, loader and stacks,
// filters their offers by the hints, ranks them, and records why.
//
// Example:
//     #include "core/base/info.h"
//
//     // Why the host cannot be reached over tcp; "" if it can.
//     inline std::string why_not(ObjectTable &objects, const weft_core_services &services,
//                                const fi_info &hints) {
//       FrontOptions options;
//       options.environment = {{"FI_PROVIDER", "tcp"}};
//       options.library_folder = "/usr/lib/x86_64-linux-gnu";
//       options.objects = &objects;
//       options.services = services;
//       Front front(std::move(options));
//       fi_info *info = nullptr;
//       if (front.getinfo(FI_VERSION(2, 6), "host", "7471", 0, &hints, &info) != 0)
//         return front.why_json("tcp").value_or("");
//       free_info(info);
//       return "";
//     }
//
// One per process for the exported functions (core/api/process.h owns it); a test makes its own
// over a temporary folder. The constructor does nothing: the first call that needs files and
// plugins reads them. All methods are thread-safe. No exception leaves it. Old ABIs are not handled
// here: every fi_info has the newest layout.
#ifndef WEFT_CORE_SELECT_FRONT_H
#define WEFT_CORE_SELECT_FRONT_H

#include <rdma/fabric.h>
#include <weft/plugin.h>
#include <weft/result.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/plugin_calls.h"
#include "core/loader/loader.h"
#include "core/stack/object_table.h"
#include "core/stack/params.h"

namespace weft {

// All input from outside. The front reads nothing else: no getenv(), no fixed paths.
struct FrontOptions {
  std::map<std::string, std::string> environment;  // FI_*, HOME, XDG_*; empty where `secure`
  std::string library_folder;  // where libfabric.so.1 lies: plugins, reader and probe are found
                               // relative to it
  // Put before /usr/share/weft, /etc/weft and /var/cache/weft; empty but in tests.
  std::string system_root;
  bool secure = false;                  // AT_SECURE: only system files count
  ObjectTable *objects = nullptr;       // outlives the front
  std::function<size_t()> own_threads;  // those that the library itself started; optional
  weft_core_services services{};        // for plugins; the functions must know `objects`
  // The one line that a person must see even where logging is off ("FI_PROVIDER=tpc: no provider
  // ...").
  std::function<void(std::string_view line)> notice;
  // Gets each fi_getinfo() and fi_fabric() as a line of JSON (call_record.h); empty: nobody
  // listens.
  std::function<void(std::string_view line)> record;
};

// A parameter that a unit declares, for fi_getparams() and `weft config`.
struct FrontParam {
  std::string variable;  // "FI_TCP_IFACE"
  fi_param_type type = FI_PARAM_STRING;
  std::string help;
  bool is_set = false;
  std::string value;   // text, if set
  std::string origin;  // where, if set
};

class Front {
 public:
  explicit Front(FrontOptions options);
  ~Front();
  Front(const Front &) = delete;
  Front &operator=(const Front &) = delete;

  // As fi_getinfo(3), all filters and flags (FI_PROV_ATTR_ONLY, fabric_attr->prov_name, ...)
  // included. `hints` was checked for nothing. *out is a list for free_info() of core/base/info.h.
  // 0 or -FI_E...
  int getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
              const struct fi_info *hints, struct fi_info **out) noexcept;

  // As fi_fabric(3) and fi_fabric2: `info` is NULL for the former, `attr` is never NULL.
  int fabric(struct fi_fabric_attr *attr, const struct fi_info *info, uint64_t flags,
             struct fid_fabric **fabric, void *context) noexcept;

  // Hangs the hook unit `hook` on live objects and their children, in place; takes it off again.
  // All or none where an object refuses; one that was closed meanwhile or has the hook already does
  // not count, unless all did. `settings` are stronger than the policy's.
  Result<void> attach_hook(std::span<struct fid *const> roots, std::string_view hook,
                           std::vector<Setting> settings = {});
  Result<void> detach_hook(std::span<struct fid *const> roots, std::string_view hook);

  // For a process that asks in place of another one, so that a plugin that hangs or crashes harms
  // only the asking one: tells each call into a plugin (PluginCalls), and refuses a file, before
  // anything is asked.
  void listen(PluginCalls::Listener listener, void *arg);
  Result<void> refuse(RefusedFile file);
  // Before anything is asked: answers as for a machine that is not quite this one
  // (weft_diagnosis_ops::suppose).
  Result<void> suppose(std::string_view what, const std::string &name, const std::string &value);

  // Whether the policy lets other processes of the user attach hooks (`control`).
  bool control_allowed();

  // Diagnosis, as JSON text (docs: weft/diagnosis.h).
  Result<std::string> why_json(
      std::string_view name);  // decisions on one candidate; "": of the last getinfo
  Result<std::string> explain_json(
      std::string_view stack);         // what the units of a stack found here; "": the best
  Result<std::string> plugins_json();  // every plugin and unit known, and the troubles
  Result<std::string> config_json();   // the merged policy with the origin of every value

  // Every parameter of every known unit.
  std::vector<FrontParam> params();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft

#endif
