// SPDX-License-Identifier: BSD-2-Clause
// The C table of weft/config.h: turns the C++ models into views, and owns what the views point
// into. No exception leaves here.
#include <rdma/fi_errno.h>
#include <weft/config.h>

#include <memory>
#include <string>
#include <vector>

#include "config/manifest.h"
#include "config/policy.h"

namespace weft::config {

namespace {

const char *c_str(const std::optional<std::string> &text) {
  return text ? text->c_str() : nullptr;
}

// Model and view in one object: the view points into the model, so neither is ever copied or moved.
class OwnedPolicy : public weft_policy {
 public:
  OwnedPolicy(Policy model, const char *path)
      : weft_policy{}, model_(std::move(model)), path_(path == nullptr ? "" : path) {
    struct_size = sizeof(weft_policy);
    if (model_.enable) {
      has_enable = 1;
      names(*model_.enable, enable_, enable, enable_count);
    }
    names(model_.disable, disable_, disable, disable_count);
    if (model_.use) {
      has_use = 1;
      use_where = at(model_.use->where);
      names(model_.use->value, use_, use, use_count);
    }
    names(model_.plugin_path, plugin_path_, plugin_path, plugin_path_count);
    names(model_.final_keys, final_keys_, final_keys, final_key_count);
    for (const RankRule &rule : model_.ranks) {
      weft_rank_rule out{};
      out.provider = c_str(rule.provider);
      out.netdev = c_str(rule.netdev);
      out.subnet = c_str(rule.subnet);
      out.ep_type = c_str(rule.ep_type);
      out.hostname = c_str(rule.hostname);
      out.executable = c_str(rule.executable);
      out.has_rank = rule.rank ? 1 : 0;
      out.rank = rule.rank.value_or(0);
      out.has_enable = rule.enable ? 1 : 0;
      out.enable = rule.enable.value_or(false) ? 1 : 0;
      out.where = at(rule.where);
      ranks_.push_back(out);
    }
    ranks = ranks_.data();
    rank_count = ranks_.size();
    stacks_of(model_.stacks);
    params_ = settings(model_.params, false);
    params = params_.data();
    param_count = params_.size();
    if (model_.unprobed_allow) {
      has_unprobed = 1;
      unprobed_allow = model_.unprobed_allow->value ? 1 : 0;
      unprobed_where = at(model_.unprobed_allow->where);
    }
    if (model_.control) {
      has_control = 1;
      control_allow = model_.control->value ? 1 : 0;
      control_where = at(model_.control->where);
    }
    if (model_.probe_budget_ms) {
      has_probe_budget_ms = 1;
      probe_budget_ms = model_.probe_budget_ms->value;
      probe_budget_where = at(model_.probe_budget_ms->where);
    }
  }
  OwnedPolicy(const OwnedPolicy &) = delete;
  OwnedPolicy &operator=(const OwnedPolicy &) = delete;

 private:
  weft_where at(Where where) const { return {path_.c_str(), where.line, where.column}; }

  void names(const std::vector<Name> &from, std::vector<weft_name> &to, const weft_name *&view,
             size_t &count) {
    for (const Name &name : from) to.push_back({name.text.c_str(), at(name.where)});
    view = to.data();
    count = to.size();
  }

  std::vector<weft_setting> settings(const std::vector<Setting> &from, bool in_stack) const {
    std::vector<weft_setting> to;
    for (const Setting &s : from)
      to.push_back(
          {in_stack ? nullptr : s.unit.c_str(), s.key.c_str(), s.value.c_str(), at(s.where)});
    return to;
  }

  void stacks_of(const std::vector<Stack> &from) {
    for (const Stack &stack : from) {
      std::vector<weft_stack_element> &elements = elements_.emplace_back();
      for (const StackElement &element : stack.elements) {
        const std::vector<weft_setting> &own =
            element_params_.emplace_back(settings(element.params, true));
        weft_stack_element out{};
        out.kind = element.kind;
        out.skip_if_unavailable = element.skip_if_unavailable ? 1 : 0;
        out.name = element.name.c_str();
        out.params =
            own.data();  // stays when the outer vector grows: that moves `own`, not its array
        out.param_count = own.size();
        out.where = at(element.where);
        elements.push_back(out);
      }
      stacks_.push_back({stack.name.c_str(), elements.data(), elements.size(), at(stack.where)});
    }
    stacks = stacks_.data();
    stack_count = stacks_.size();
  }

  const Policy model_;
  const std::string path_;
  std::vector<weft_name> enable_, disable_, use_, plugin_path_, final_keys_;
  std::vector<weft_rank_rule> ranks_;
  std::vector<weft_setting> params_;
  std::vector<std::vector<weft_setting>> element_params_;
  std::vector<std::vector<weft_stack_element>> elements_;
  std::vector<weft_stack> stacks_;
};

class OwnedManifest : public weft_manifest {
 public:
  OwnedManifest(Manifest model, const char * /*path*/) : weft_manifest{}, model_(std::move(model)) {
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
      out.offers_ep = unit.offers_ep;
      out.maturity = unit.maturity;
      out.security = unit.security;
      out.version = unit.version;
      out.rank = unit.rank;
      out.name = unit.name.c_str();
      out.ofi_name = c_str(unit.ofi_name);
      out.summary = unit.summary.c_str();
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
    if (model) owned = std::make_unique<Owned>(std::move(*model), path);
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
  return read<OwnedPolicy>(parse_policy_in_part, path, text, size, diag, arg, out);
}
void free_policy(weft_policy *policy) {
  delete static_cast<OwnedPolicy *>(policy);
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
    free_manifest,
};

}  // namespace

}  // namespace weft::config

extern "C" WEFT_EXPORT const weft_config_reader *weft_config_query(void) {
  return &weft::config::kReader;
}
