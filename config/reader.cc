// SPDX-License-Identifier: BSD-2-Clause
// The C table of weft/config.h. A policy leaves as its C++ type (config/policy.h), a manifest as a
// C view of the model that owns it. No exception leaves here.
#include <rdma/fi_errno.h>
#include <weft/config.h>

#include <memory>
#include <string>
#include <vector>

#include "config/manifest.h"
#include "config/parse_policy.h"

namespace weft::config {

namespace {

const char *c_str(const std::optional<std::string> &text) {
  return text ? text->c_str() : nullptr;
}

// Model and view in one object: the view points into the model, so neither is copied or moved.
class OwnedManifest : public weft_manifest {
 public:
  explicit OwnedManifest(Manifest model) : weft_manifest{}, model_(std::move(model)) {
    struct_size = sizeof(weft_manifest);
    abi_major = model_.abi_major;
    abi_minor = model_.abi_minor;
    min_core_minor = model_.min_core_minor;
    name = model_.name.c_str();
    vendor = model_.vendor.c_str();
    version = model_.version.c_str();
    license = model_.license.c_str();
    support = c_str(model_.support);
    library = model_.library.c_str();
    arch = model_.arch.c_str();
    for (const ManifestUnit &unit : model_.units) {
      std::vector<const char *> &devices = devices_.emplace_back();
      for (const std::string &device : unit.devices) devices.push_back(device.c_str());
      std::vector<weft_param> &params = params_.emplace_back();
      for (const ManifestParam &param : unit.params)
        params.push_back({sizeof(weft_param), param.type, param.name.c_str(),
                          c_str(param.default_value), param.help.c_str(), param.minimum,
                          param.maximum});
      weft_manifest_unit out{};
      out.kind = unit.kind;
      out.needs_ep = unit.needs_ep;
      out.inner_min = unit.inner_min;
      out.inner_max = unit.inner_max;
      out.offers_ep = unit.offers_ep;
      out.maturity = unit.maturity;
      out.security = unit.security;
      out.version = unit.version;
      out.rank = unit.rank;
      out.name = unit.name.c_str();
      out.ofi_name = c_str(unit.ofi_name);
      out.summary = unit.summary.c_str();
      out.device_remedy = unit.device_remedy.c_str();
      out.devices = devices.data();
      out.device_count = devices.size();
      out.params = params.data();
      out.param_count = params.size();
      units_.push_back(out);
    }
    units = units_.data();
    unit_count = units_.size();
  }
  OwnedManifest(const OwnedManifest &) = delete;
  OwnedManifest &operator=(const OwnedManifest &) = delete;

 private:
  const Manifest model_;
  std::vector<std::vector<const char *>> devices_;
  std::vector<std::vector<weft_param>> params_;
  std::vector<weft_manifest_unit> units_;
};

void tell(const char *path, weft_diag_fn diag, void *arg, const char *text) noexcept {
  const weft_where where{path, 0, 0};
  if (diag != nullptr) diag(arg, WEFT_DIAG_ERROR, &where, text);
}

template <class Owned, class View, class Parse>
int32_t read(Parse parse, const char *path, const char *text, size_t size, weft_diag_fn diag,
             void *arg, View **out) noexcept {
  if (path == nullptr) path = "";
  if (out == nullptr || (text == nullptr && size != 0)) {
    tell(path, diag, arg, "the reader was called without text or without a place for the result");
    return -FI_EINVAL;
  }
  *out = nullptr;
  try {
    Diagnostics diagnostics;
    auto model = parse(std::string_view(text, size), diagnostics);
    std::unique_ptr<Owned> owned;
    if (model) owned.reset(new Owned{std::move(*model)});
    diagnostics.deliver(path, diag, arg);
    if (!owned) return -FI_EINVAL;
    *out = owned.release();
    return diagnostics.has_errors() ? -FI_EINVAL : 0;
  } catch (const std::bad_alloc &) {
    tell(path, diag, arg, "out of memory while reading the file");
  } catch (const std::exception &e) {
    tell(path, diag, arg, e.what());
  } catch (...) {
    tell(path, diag, arg, "an unknown failure of the YAML reader");
  }
  return -FI_EINVAL;
}

int32_t read_policy(const char *path, const char *text, size_t size, weft_diag_fn diag, void *arg,
                    weft_policy **out) {
  const auto parse = [path](std::string_view file, Diagnostics &diagnostics) {
    return parse_policy(path != nullptr ? path : "", file, diagnostics);
  };
  return read<weft_policy>(parse, path, text, size, diag, arg, out);
}
void free_policy(weft_policy *policy) {
  delete policy;
}

int32_t read_manifest(const char *path, const char *text, size_t size, weft_diag_fn diag, void *arg,
                      weft_manifest **out) {
  return read<OwnedManifest>(parse_manifest, path, text, size, diag, arg, out);
}
void free_manifest(weft_manifest *manifest) {
  delete static_cast<OwnedManifest *>(manifest);
}

constexpr weft_config_reader kReader = {
    WEFT_CONFIG_VERSION, sizeof(weft_config_reader), read_policy, free_policy, read_manifest,
    free_manifest,       sizeof(weft_policy),
};

}  // namespace

}  // namespace weft::config

extern "C" WEFT_EXPORT const weft_config_reader *weft_config_query(void) {
  return &weft::config::kReader;
}
