// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/library.h"

#include <absl/strings/str_cat.h>
#include <dlfcn.h>
#include <rdma/fi_ext.h>

#include <cstdlib>
#include <filesystem>

#include "tools/names.h"

namespace weft::cli {
namespace fs = std::filesystem;

namespace {

std::string path_of_libfabric() {
  Dl_info found{};
  // By name: the address of a function that an executable calls may be that of a PLT entry.
  void *symbol = dlsym(RTLD_DEFAULT, "fi_version");
  if (symbol == nullptr || dladdr(symbol, &found) == 0 || found.dli_fname == nullptr) return {};
  std::error_code error;
  const fs::path path = fs::canonical(found.dli_fname, error);
  return error ? std::string(found.dli_fname) : path.string();
}

// What a call said in words, if it failed; `text` is freed.
Result<void> succeeded(int ret, char *text) {
  const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
  if (ret == 0) return {};
  return tl::unexpected<Error>(Error{-ret, text != nullptr ? text : fi_strerror(-ret)});
}

}  // namespace

void Library::Close::operator()(struct fid *object) const {
  fi_close(object);
}

Result<Library> Library::open() {
  Library library;
  library.path_ = path_of_libfabric();
  const auto not_weft = [&](int ret) {
    return fail(FI_ENOSYS,
                "%s is a libfabric %s that is not weft's (fi_open: %s): it cannot be asked. Put "
                "weft's folder first in LD_LIBRARY_PATH, or unset that",
                library.path_.c_str(), tools::version_text(fi_version()).c_str(),
                fi_strerror(-ret));
  };
  struct fid *object = nullptr;
  if (const int ret =
          fi_open(tools::api_version(), WEFT_DIAGNOSIS, nullptr, 0, 0, &object, nullptr);
      ret != 0)
    return not_weft(ret);
  library.object_.reset(object);
  void *ops = nullptr;
  if (const int ret = fi_open_ops(object, WEFT_DIAGNOSIS_OPS, 0, &ops, nullptr); ret != 0)
    return not_weft(ret);
  library.ops_ = static_cast<weft_diagnosis_ops *>(ops);
  return library;
}

std::string Library::plugin_folder() const {
  return (fs::path(path_).parent_path() / "weft").string();
}

std::string Library::probe_program() const {
  return absl::StrCat(plugin_folder(), "/weft-probe");
}

Result<Json> Library::parsed(const char *question, int ret, char *text) const {
  const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
  if (ret != 0)
    return tl::unexpected<Error>(Error{-ret, text != nullptr ? text : fi_strerror(-ret)});
  Json answer = Json::parse(text != nullptr ? text : "", nullptr, false);
  if (answer.is_discarded())
    return fail(FI_EOTHER, "%s answered '%s' with no JSON: reinstall weft", path_.c_str(),
                question);
  return answer;
}

// An older library has fewer members: one that it lacks must not be read.
#define WEFT_NEED(member)                                                       \
  if (offsetof(weft_diagnosis_ops, member) + sizeof(ops_->member) > ops_->size) \
  return fail(FI_ENOSYS, "%s is too old to know '" #member "': update weft", path_.c_str())
#define WEFT_ASK(member, ...)                               \
  WEFT_NEED(member);                                        \
  char *text = nullptr;                                     \
  const int ret = ops_->member(object_.get(), __VA_ARGS__); \
  return parsed(#member, ret, text)

Result<Json> Library::why(const std::string &name) const {
  WEFT_ASK(why, name.c_str(), &text);
}
Result<Json> Library::explain(const std::string &stack) const {
  WEFT_ASK(explain, stack.c_str(), &text);
}
Result<Json> Library::plugins() const {
  WEFT_ASK(plugins, &text);
}
Result<Json> Library::config() const {
  WEFT_ASK(config, &text);
}
Result<Json> Library::objects() const {
  WEFT_ASK(objects, &text);
}

Result<void> Library::attach_hook(struct fid &root, const std::string &hook) const {
  WEFT_NEED(attach_hook);
  char *text = nullptr;
  return succeeded(ops_->attach_hook(object_.get(), &root, hook.c_str(), &text), text);
}
Result<void> Library::detach_hook(struct fid &root, const std::string &hook) const {
  WEFT_NEED(detach_hook);
  char *text = nullptr;
  return succeeded(ops_->detach_hook(object_.get(), &root, hook.c_str(), &text), text);
}

// An older library has neither: then a plugin that hangs is not named.
void Library::watch(Step step, void *arg) const {
  if (offsetof(weft_diagnosis_ops, watch) + sizeof(ops_->watch) <= ops_->size)
    ops_->watch(object_.get(), step, arg);
}
void Library::refuse(const std::string &library, const std::string &why,
                     const std::string &remedy) const {
  if (offsetof(weft_diagnosis_ops, refuse) + sizeof(ops_->refuse) <= ops_->size)
    ops_->refuse(object_.get(), library.c_str(), why.c_str(), remedy.c_str());
}
Result<void> Library::suppose(const char *what, const std::string &name,
                              const std::string &value) const {
  WEFT_NEED(suppose);
  char *text = nullptr;
  const int ret = ops_->suppose(object_.get(), what, name.c_str(), value.c_str(), &text);
  return succeeded(ret, text);
}

#undef WEFT_ASK
#undef WEFT_NEED

}  // namespace weft::cli
