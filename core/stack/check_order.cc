// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/check_order.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace weft {
namespace {

std::string ep_names(uint32_t bits) {
  std::string names;
  for (const auto &[type, name] : {std::pair(FI_EP_MSG, "FI_EP_MSG"),
                                   {FI_EP_RDM, "FI_EP_RDM"},
                                   {FI_EP_DGRAM, "FI_EP_DGRAM"}}) {
    if ((bits & WEFT_EP_BIT(type)) == 0) continue;
    if (!names.empty()) names += " or ";
    names += name;
  }
  return names.empty() ? "nothing" : names;
}

std::string count_text(uint32_t least, uint32_t most) {
  if (most == 1) return "one provider";
  if (least == most) return std::to_string(most) + " providers";
  return std::to_string(least) + " to " + std::to_string(most) + " providers";
}

// Goes through a chain and its branches from the wire up.
class OrderCheck {
 public:
  // The outermost provider or layer of a chain.
  Result<const ElementKind *> chain(const std::vector<ElementKind> &elements) {
    std::vector<const ElementKind *> beneath;  // of the next element
    std::vector<std::string_view> layers;      // beneath it
    std::vector<std::string_view> hooks;       // on the element last seen
    if (!elements.empty()) {
      WEFT_TRY(beneath, branches(elements.back()));
      layers.swap(layers_);
    }
    for (size_t i = elements.size(); i-- > 0;) {
      const ElementKind &element = elements[i];
      if (i + 1 != elements.size() && !element.branches.empty())
        return fail(FI_EINVAL, "%s stands beneath %s, which has branches",
                    elements[i + 1].name.c_str(), element.name.c_str());
      WEFT_CHECK(one(element, beneath, layers, hooks));
      if (element.kind == WEFT_KIND_HOOK) continue;
      hooks.clear();
      beneath = {&element};
    }
    if (beneath.empty()) return fail(FI_EINVAL, "the stack is empty: it needs a provider");
    layers_ = std::move(layers);
    return beneath.front();
  }

 private:
  static Result<void> one(const ElementKind &element,
                          const std::vector<const ElementKind *> &beneath,
                          std::vector<std::string_view> &layers,
                          std::vector<std::string_view> &hooks) {
    const char *name = element.name.c_str();
    switch (element.kind) {
      case WEFT_KIND_PROVIDER:
        if (!beneath.empty())
          return fail(FI_EINVAL,
                      "provider %s stands above %s: a stack has one provider, at the bottom", name,
                      beneath.front()->name.c_str());
        return {};
      case WEFT_KIND_LAYER:
        return layer(element, beneath, layers);
      case WEFT_KIND_HOOK:
        if (beneath.empty() || !element.branches.empty())
          return fail(FI_EINVAL,
                      "nothing beneath hook %s: a hook stands above the element that it watches",
                      name);
        if (std::find(hooks.begin(), hooks.end(), element.name) != hooks.end())
          return fail(FI_EINVAL, "hook %s twice on %s", name, beneath.front()->name.c_str());
        hooks.push_back(element.name);
        return {};
      default:
        return fail(FI_EINVAL, "%s is of unknown kind %u", name, element.kind);
    }
  }

  static Result<void> layer(const ElementKind &element,
                            const std::vector<const ElementKind *> &beneath,
                            std::vector<std::string_view> &layers) {
    const char *name = element.name.c_str();
    if (beneath.empty())
      return fail(FI_EINVAL, "nothing beneath layer %s: end the stack with a provider", name);
    if (std::find(layers.begin(), layers.end(), element.name) != layers.end())
      return fail(FI_EINVAL, "layer %s twice in one stack", name);
    const uint32_t least = std::max(element.inner_min, 1u);
    const uint32_t most = std::max(element.inner_max, least);
    if (beneath.size() < least || beneath.size() > most)
      return fail(FI_EINVAL, "layer %s takes %s beneath it, not %zu", name,
                  count_text(least, most).c_str(), beneath.size());
    for (const ElementKind *inner : beneath) {
      if (element.needs_ep != 0 && inner->offers_ep != 0 &&
          (element.needs_ep & inner->offers_ep) == 0)
        return fail(FI_EINVAL, "layer %s needs %s beneath it, %s offers %s", name,
                    ep_names(element.needs_ep).c_str(), inner->name.c_str(),
                    ep_names(inner->offers_ep).c_str());
    }
    layers.push_back(element.name);
    return {};
  }

  // The outermost element of each branch. `layers_` are then the layers of all branches.
  Result<std::vector<const ElementKind *>> branches(const ElementKind &element) {
    std::vector<const ElementKind *> heads;
    std::vector<std::string_view> layers;
    for (size_t i = 0; i < element.branches.size(); ++i) {
      Result<const ElementKind *> head = chain(element.branches[i]);
      if (!head)
        return fail(head.error().code, "branch %zu of %s: %s", i + 1, element.name.c_str(),
                    head.error().text.c_str());
      heads.push_back(*head);
      layers.insert(layers.end(), layers_.begin(), layers_.end());
    }
    layers_ = std::move(layers);
    return heads;
  }

  std::vector<std::string_view> layers_;  // of the chain or the branches last seen
};

}  // namespace

Result<void> check_order(const std::vector<ElementKind> &elements) {
  if (const auto outermost = OrderCheck().chain(elements); !outermost)
    return tl::unexpected<Error>(outermost.error());
  return {};
}

}  // namespace weft
