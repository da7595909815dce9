// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/stack.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/base/info.h"
#include "core/match/match.h"
#include "core/stack/opening_check.h"

namespace weft {
namespace {

Error said_by(std::string_view unit, int32_t rc, const weft_error &why, const char *call) {
  Error error = from_c(rc < 0 ? rc : -FI_EOTHER, why);
  if (error.text.empty())
    error.text = std::string(call) + " returned " + std::to_string(rc) + " without a reason";
  error.text = std::string(unit) + ": " + error.text;
  return error;
}

weft_error no_error() {
  weft_error why{};
  why.struct_size = sizeof why;
  return why;
}

// A member of a plugin's struct; null if the struct ends before it.
template <class Struct, class Member>
bool has(const Struct *ops, Member Struct::*member) {
  const auto *at = reinterpret_cast<const char *>(&(ops->*member));
  const size_t end = static_cast<size_t>(at - reinterpret_cast<const char *>(ops)) + sizeof(Member);
  return ops->struct_size >= end && ops->*member != nullptr;
}

std::string library_of(const LoadedUnit &unit) {
  return unit.info != nullptr ? unit.info->library : std::string();
}

// How many elements a chain and its branches have.
uint32_t size_of(const std::vector<PlanElement> &chain) {
  auto size = static_cast<uint32_t>(chain.size());
  for (const PlanElement &element : chain)
    for (const std::vector<PlanElement> &branch : element.branches) size += size_of(branch);
  return size;
}

std::vector<ElementKind> kinds_of(const std::vector<PlanElement> &chain) {
  std::vector<ElementKind> kinds;
  for (const PlanElement &element : chain) {
    const weft_unit &unit = *element.unit.unit;
    ElementKind &kind = kinds.emplace_back(ElementKind{
        unit.name, unit.kind, unit.needs_ep, unit.offers_ep, unit.inner_min, unit.inner_max});
    for (const std::vector<PlanElement> &branch : element.branches)
      kind.branches.push_back(kinds_of(branch));
  }
  return kinds;
}

}  // namespace

// One provider or layer. The layer above sees it as a weft_provider, whose answers are filtered by
// that layer's hints.
struct Stack::Element {
  std::unique_ptr<Instance> instance;
  std::string library;  // of its plugin; empty: unknown
  std::vector<std::shared_ptr<Hook>> hooks;
  weft_provider provider{};  // from create or wrap
  bool created = false;
  std::string stack;  // up to and including this element: "tcp"
  uint32_t prov_version = 0;
  uint32_t replaced_protocol = 0;
  size_t branch = 0;  // its number among the providers beneath a layer; 0: it is the only one
  std::vector<Element *> inner;        // beneath it
  std::vector<weft_provider> beneath;  // the same, as the layer sees them
  Stack *owner = nullptr;
  ObjectTable *objects = nullptr;
  OpeningCheck openings;

  const char *name() const { return instance->unit().name; }

  // A call into the unit, until the result is dropped.
  PluginCalls::Inside enter(const char *call) const {
    return {owner->calls_.get(), name(), library, call};
  }

  // Makes the instance and the provider, in place of what was made before.
  Result<void> make(InstanceSpec spec) {
    destroy();
    WEFT_TRY(instance, Instance::create(std::move(spec)));
    const weft_unit &unit = instance->unit();
    const bool is_provider = unit.kind == WEFT_KIND_PROVIDER;
    const char *call = is_provider ? "create" : "wrap";
    const auto inside = enter(call);
    weft_error why = no_error();
    int32_t rc = -FI_EINVAL;
    if (is_provider && unit.provider != nullptr &&
        has(unit.provider, &weft_provider_unit::create)) {
      rc = unit.provider->create(instance->c(), &provider, &why);
    } else if (unit.kind == WEFT_KIND_LAYER && unit.layer != nullptr &&
               has(unit.layer, &weft_layer_unit::wrap)) {
      rc = unit.layer->wrap(instance->c(), beneath.data(), static_cast<uint32_t>(beneath.size()),
                            &provider, &why);
    } else {
      return fail(FI_EINVAL, "%s has no %s() (a fault of the plugin)", unit.name, call);
    }
    if (rc != 0) return tl::unexpected<Error>(said_by(unit.name, rc, why, call));
    const weft_provider_ops *ops = provider.ops;
    if (ops == nullptr || !has(ops, &weft_provider_ops::getinfo) ||
        !has(ops, &weft_provider_ops::fabric))
      return fail(FI_EINVAL,
                  "%s: %s() gave a provider without getinfo or fabric (a fault of the plugin)",
                  unit.name, call);
    created = true;
    return {};
  }

  // The error as the layer above gets it.
  Error told(Error error) const {
    if (branch != 0)
      error.text = "branch " + std::to_string(branch) + " (" + stack + "): " + error.text;
    return error;
  }

  // Without a filter.
  Result<InfoPtr> all_offers(uint32_t version, const char *node, const char *service,
                             uint64_t flags, const fi_info *hints) {
    struct fi_info *list = nullptr;
    weft_error why = no_error();
    const auto inside = enter("getinfo");  // and while its answer is read
    const int32_t rc =
        provider.ops->getinfo(provider.self, version, node, service, flags, hints, &list, &why);
    InfoPtr offers(list);
    if (rc != 0) return tl::unexpected<Error>(said_by(name(), rc, why, "getinfo"));
    return offers;
  }

  // Whether an object may be opened with `info`.
  Result<void> check_info(uint32_t version, const fi_info &info) {
    return openings.check(version, info, replaced_protocol,
                          [&](const fi_info &hints, uint64_t flags) {
                            return all_offers(version, nullptr, nullptr, flags, &hints);
                          });
  }

  Result<std::vector<struct fi_info *>> getinfo(uint32_t version, const char *node,
                                                const char *service, uint64_t flags,
                                                const fi_info *hints, const Rejected &rejected) {
    WEFT_TRY(InfoPtr offers, all_offers(version, node, service, flags, hints));
    struct fi_info *list = offers.release();
    std::vector<struct fi_info *> fitting;
    while (list != nullptr) {
      struct fi_info *const offer = list;
      list = offer->next;
      offer->next = nullptr;
      if (Result<void> taken = take(version, flags, hints, *offer, rejected); !taken) {
        free_info(offer);
        for (struct fi_info *one : fitting) free_info(one);
        free_info(list);
        return tl::unexpected<Error>(taken.error());
      }
      if (offer->fabric_attr != nullptr && offer->fabric_attr->prov_name != nullptr) {
        fitting.push_back(offer);
      } else {
        free_info(offer);
      }
    }
    return fitting;
  }

  // An offer that fits gets its prov_name here. The others keep none.
  Result<void> take(uint32_t version, uint64_t flags, const fi_info *hints, struct fi_info &offer,
                    const Rejected &rejected) {
    if (offer.fabric_attr != nullptr) {
      std::free(offer.fabric_attr->prov_name);
      offer.fabric_attr->prov_name = nullptr;
      offer.fabric_attr->prov_version = prov_version;
    }
    const Match match = match_info(version, flags, hints, offer);
    if (!match.accepted) {
      if (rejected) rejected(offer, match);
      return {};
    }
    if (!narrow_info(version, flags, hints, offer) ||
        (offer.fabric_attr->prov_name = strdup(stack.c_str())) == nullptr)
      return fail(FI_ENOMEM, "%s: no memory for fi_info", name());
    return {};
  }

  static int32_t filtered_getinfo(void *self, uint32_t version, const char *node,
                                  const char *service, uint64_t flags, const struct fi_info *hints,
                                  struct fi_info **info, weft_error *why) {
    auto *element = static_cast<Element *>(self);
    try {
      // Only the nearest offer is reported: a list of all would hide it.
      std::optional<Match> nearest;
      auto fitting = element->getinfo(version, node, service, flags, hints,
                                      [&](const fi_info &, const Match &match) {
                                        if (!nearest || match.distance() < nearest->distance())
                                          nearest = match;
                                      });
      if (!fitting) return element->refuse(fitting.error(), why);
      if (fitting->empty())
        return element->refuse(
            {FI_ENODATA, std::string(element->name()) + ": " +
                             (nearest ? nearest->reason() : "it offers nothing")},
            why);
      struct fi_info **end = info;
      for (struct fi_info *one : *fitting) {
        *end = one;
        end = &one->next;
      }
      return 0;
    } catch (const std::bad_alloc &) {
      return to_c({FI_ENOMEM, "no memory"}, why);
    }
  }
  int32_t refuse(const Error &error, weft_error *why) const {
    const Error in_branch = told(error);
    if (branch != 0) owner->tell_branch_refused(in_branch.text);
    return to_c(in_branch, why);
  }

  static int32_t filtered_fabric(void *self, struct fi_fabric_attr *attr,
                                 struct fid_fabric **fabric, void *context, weft_error *why) {
    const auto *element = static_cast<const Element *>(self);
    if (element->branch == 0) return element->open_fabric(attr, fabric, context, why);
    weft_error inner = no_error();
    const int32_t rc = element->open_fabric(attr, fabric, context, &inner);
    if (rc == 0) return 0;
    try {
      return to_c(element->told(said_by(element->name(), rc, inner, "fabric")), why);
    } catch (const std::bad_alloc &) {
      return to_c({FI_ENOMEM, "no memory"}, why);
    }
  }

  // A layer may pass on the objects of the provider beneath it. Then they are not known as its own,
  // and the hooks above it are put on the fabric, from which all other objects inherit them.
  int32_t open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context,
                      weft_error *why) const {
    const int32_t rc = provider.ops->fabric(provider.self, attr, fabric, context, why);
    if (rc != 0 || *fabric == nullptr || hooks.empty() ||
        objects->element_of(&(*fabric)->fid) == instance->c())
      return rc;
    for (auto hook = hooks.rbegin(); hook != hooks.rend(); ++hook) {
      if (Result<void> attached = objects->attach(&(*fabric)->fid, *hook); !attached) {
        fi_close(&(*fabric)->fid);
        *fabric = nullptr;
        return to_c(attached.error(), why);
      }
    }
    return 0;
  }
  static int32_t filtered_explain(void *self, void (*line)(void *, const char *), void *arg,
                                  weft_error *why) {
    const auto *element = static_cast<const Element *>(self);
    if (!has(element->provider.ops, &weft_provider_ops::explain)) return 0;
    return element->provider.ops->explain(element->provider.self, line, arg, why);
  }
  // The stack destroys what it made; a layer has nothing to destroy here.
  static void filtered_destroy(void *) {}

  void destroy() {
    if (created && has(provider.ops, &weft_provider_ops::destroy))
      provider.ops->destroy(provider.self);
    created = false;
  }
};

Stack::Stack(std::string name, const weft_core_services *services, ObjectTable *objects,
             std::shared_ptr<PluginCalls> calls, TellLine tell)
    : name_(std::move(name)),
      services_(services),
      objects_(objects),
      calls_(std::move(calls)),
      tell_(std::move(tell)) {}

Stack::~Stack() {
  while (!elements_.empty()) {
    Element &outermost = *elements_.back();
    outermost.hooks.clear();
    objects_->remove_element(outermost.instance->c());
    outermost.destroy();
    elements_.pop_back();
  }
}

Result<std::shared_ptr<Stack>> Stack::build(const StackPlan &plan,
                                            const weft_core_services *services,
                                            ObjectTable *objects) {
  objects->reap();
  WEFT_CHECK(check_order(kinds_of(plan.elements)));
  std::shared_ptr<Stack> stack(new Stack(plan.name, services, objects, plan.calls, plan.tell));
  WEFT_CHECK(stack->add_chain(plan.elements, 0));
  // A stack with its own name or version shows it to applications.
  Element &outermost = *stack->elements_.back();
  const std::string &shown = plan.prov_name.empty() ? plan.name : plan.prov_name;
  if (!shown.empty()) outermost.stack = shown;
  if (plan.version != 0) outermost.prov_version = plan.version;
  outermost.replaced_protocol = plan.protocol;
  for (const auto &element : stack->elements_)
    objects->add_element(element->instance->c(), element->hooks,
                         [one = element.get()](uint32_t version, const fi_info &info) {
                           return one->check_info(version, info);
                         });
  return stack;
}

Result<Stack::Element *> Stack::add_chain(const std::vector<PlanElement> &chain, uint32_t place) {
  std::vector<Element *> inner;
  uint32_t next = place + static_cast<uint32_t>(chain.size());
  for (const std::vector<PlanElement> &branch : chain.back().branches) {
    WEFT_TRY(Element *const outermost, add_chain(branch, next));
    inner.push_back(outermost);
    next += size_of(branch);
  }
  // The hooks of an element are made right after it, the innermost first.
  for (size_t i = chain.size(); i-- > 0;) {
    const uint32_t here = place + static_cast<uint32_t>(i);
    if (chain[i].unit.unit->kind == WEFT_KIND_HOOK) {
      WEFT_CHECK(add_hook(chain[i], here, *inner.front()));
      continue;
    }
    WEFT_TRY(Element *const added, add(chain[i], here, std::move(inner)));
    inner = {added};
  }
  return inner.front();
}

Result<void> Stack::add_hook(const PlanElement &planned, uint32_t place, Element &beneath) {
  const weft_unit &unit = *planned.unit.unit;
  std::shared_ptr<Hook> hook;
  WEFT_CHECK(with_usable_settings(
      unit, planned.settings,
      [&](const std::vector<Setting> &settings) -> Result<void> {
        const PluginCalls::Inside inside(calls_.get(), unit.name, library_of(planned.unit),
                                         "create");
        hook.reset();
        WEFT_TRY(hook, Hook::create({planned.unit, name_, place, settings, services_}));
        return {};
      },
      tell_));
  beneath.hooks.insert(beneath.hooks.begin(), std::move(hook));
  return {};
}

Result<Stack::Element *> Stack::add(const PlanElement &planned, uint32_t place,
                                    std::vector<Element *> inner) {
  static const weft_provider_ops kFiltered = {
      sizeof(weft_provider_ops),  0,
      &Element::filtered_getinfo, &Element::filtered_fabric,
      &Element::filtered_explain, &Element::filtered_destroy};
  const weft_unit &unit = *planned.unit.unit;
  auto element = std::make_unique<Element>();
  element->prov_version = unit.version;
  element->library = library_of(planned.unit);
  element->owner = this;
  element->objects = objects_;
  std::vector<std::string> names;
  for (Element *one : inner) {
    names.push_back(one->stack);
    if (inner.size() > 1) one->branch = names.size();
    element->beneath.push_back({&kFiltered, one});
  }
  element->stack = prov_name_over(names, unit.ofi_name != nullptr ? unit.ofi_name : unit.name);
  element->inner = std::move(inner);

  WEFT_CHECK(with_usable_settings(
      unit, planned.settings,
      [&](const std::vector<Setting> &settings) {
        return element->make({planned.unit, name_, place, settings, services_});
      },
      tell_));
  elements_.push_back(std::move(element));
  return elements_.back().get();
}

Result<std::vector<struct fi_info *>> Stack::getinfo(uint32_t version, const char *node,
                                                     const char *service, uint64_t flags,
                                                     const fi_info *hints, const Rejected &rejected,
                                                     const BranchRefused &branch_refused) {
  const auto ask = [&] {
    return elements_.back()->getinfo(version, node, service, flags, hints, rejected);
  };
  const bool is_tree = std::any_of(elements_.begin(), elements_.end(),
                                   [](const auto &element) { return element->branch != 0; });
  if (!branch_refused || !is_tree) return ask();
  // The layers ask their branches in this thread.
  struct Registered {
    Registered(Stack &from, const BranchRefused &refused) : stack(from), asking(refused) {
      std::lock_guard lock(stack.asking_mutex_);
      stack.asking_.push_back({std::this_thread::get_id(), &asking});
    }
    ~Registered() {
      std::lock_guard lock(stack.asking_mutex_);
      std::erase_if(stack.asking_, [&](const Asking &one) { return one.refused == &asking; });
    }
    Stack &stack;
    const BranchRefused &asking;
  } registered(*this, branch_refused);
  return ask();
}

void Stack::tell_branch_refused(const std::string &why) {
  const BranchRefused *refused = nullptr;
  {
    std::lock_guard lock(asking_mutex_);
    for (const Asking &one : asking_)
      if (one.thread == std::this_thread::get_id()) refused = one.refused;
  }
  if (refused != nullptr) (*refused)(why);
}

Result<struct fid_fabric *> Stack::fabric(struct fi_fabric_attr *attr, void *context) {
  objects_->reap();
  const Element &outermost = *elements_.back();
  struct fid_fabric *fabric = nullptr;
  weft_error why = no_error();
  const int32_t rc = outermost.open_fabric(attr, &fabric, context, &why);
  if (rc != 0) return tl::unexpected<Error>(said_by(outermost.name(), rc, why, "fabric"));
  if (fabric == nullptr)
    return fail(FI_EOTHER, "%s: fabric() succeeded without a fabric (a fault of the plugin)",
                outermost.name());
  fabric->api_version = attr->api_version;
  objects_->own_fabric(&fabric->fid, attr->name != nullptr ? attr->name : "", shared_from_this());
  return fabric;
}

struct fid *Stack::open_fabric(std::string_view name) const {
  return objects_->find_fabric(this, name);
}

bool Stack::opened_as(const struct fid *fabric, std::string_view name) const {
  return objects_->is_fabric(fabric, this, name);
}

bool Stack::made(const struct fid *fid) const {
  return objects_->owner_of(fid) == this;
}

std::vector<Stack::Explanation> Stack::explain() {
  return explain_chain(elements_.back().get());
}

std::vector<Stack::Explanation> Stack::explain_chain(const Element *outermost) {
  std::vector<Explanation> all;
  for (const Element *element = outermost; element != nullptr;) {
    Explanation &explanation = all.emplace_back(Explanation{element->name(), {}});
    if (has(element->provider.ops, &weft_provider_ops::explain)) {
      weft_error why = no_error();
      const auto inside = element->enter("explain");
      const int32_t rc = element->provider.ops->explain(
          element->provider.self,
          [](void *arg, const char *text) {
            static_cast<Explanation *>(arg)->lines.emplace_back(text != nullptr ? text : "");
          },
          &explanation, &why);
      if (rc != 0) explanation.lines.push_back(said_by(element->name(), rc, why, "explain").text);
    }
    if (element->inner.size() > 1)
      for (const Element *branch : element->inner)
        explanation.branches.push_back(explain_chain(branch));
    element = element->inner.size() == 1 ? element->inner.front() : nullptr;
  }
  return all;
}

}  // namespace weft
