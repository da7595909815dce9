// SPDX-License-Identifier: BSD-2-Clause
// Toy units for the tests of stacks and of selection: a provider, a layer, a layer over several
// providers and hooks, written as plain tables, in memory only.
//
// Example (statements):
//    toys::Plugin plugin;  // what its units were asked, and what they answer
//    plugin.offers = [](const toys::Plugin::Add &add, const fi_info *) { add(FI_EP_MSG); };
//    LoadedUnit tcp = toys::loaded(toys::provider(), plugin);
//
// The endpoints do nothing but count: send() answers 1000 + the number of calls so far, through as
// many layers as there are. The layer over several (fork) sends on each of them. Not an example for
// plugin authors: those use weft/sdk/.
#ifndef WEFT_CORE_STACK_TOYS_H
#define WEFT_CORE_STACK_TOYS_H

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/plugin.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/info.h"
#include "core/stack/object_table.h"
#include "core/stack/stack.h"

namespace weft::toys {

// ---- the core's side ----

// Services over one table. The C functions have no argument for it, so there is one at a time.
inline ObjectTable *&current_table() {
  static ObjectTable *table = nullptr;
  return table;
}
inline std::vector<std::string> &logged() {
  static std::vector<std::string> lines;
  return lines;
}

inline weft_core_services services() {
  weft_core_services core{};
  core.struct_size = sizeof core;
  core.info_alloc = [] { return alloc_info(); };
  core.info_dup = [](const struct fi_info *info) { return dup_info(info); };
  core.info_free = [](struct fi_info *info) { free_info(info); };
  core.log_enabled = [](const weft_instance *, int32_t, int32_t) { return 1; };
  core.log = [](const weft_instance *, int32_t, int32_t, const char *, int32_t, const char *text) {
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    logged().emplace_back(text);
  };
  core.object_opened = [](struct fid *fid, struct fid *parent, weft_error *why) {
    return current_table()->opened(fid, parent, why);
  };
  core.object_closing = [](struct fid *fid) { current_table()->closing(fid); };
  return core;
}

// ---- what a test sees of the toys ----

struct Plugin {
  // Adds offers to an answer. Each is a complete fi_info with small limits, which a test may
  // change.
  using Add = std::function<struct fi_info &(enum fi_ep_type type)>;
  std::function<void(const Add &add, const struct fi_info *hints)> offers =
      [](const Add &add, const struct fi_info *) { add(FI_EP_MSG); };
  int create_rc = 0;
  int getinfo_rc = 0;
  std::vector<std::string> events;  // "create tcp", "destroy tcp", ...
  std::vector<std::string> places;  // "tcp 1 tcp;ofi_rxm": place and stack of each created instance
  std::vector<std::string> params;  // "name=text@origin" as the last created instance saw them
};

// ---- objects ----

template <class Fid>
struct Object {
  weft_fid_header header{};
  Fid fid{};
  const weft_instance *instance = nullptr;
  struct fid *below = nullptr;       // the object of the element beneath
  std::vector<struct fid *> beside;  // a fork: those of the other elements beneath
  std::atomic<uint64_t> calls{0};

  static Object *from(const void *at) {
    return reinterpret_cast<Object *>(const_cast<char *>(static_cast<const char *>(at)) -
                                      offsetof(Object, fid));
  }
};
using Fabric = Object<fid_fabric>;
using Domain = Object<fid_domain>;
using Ep = Object<fid_ep>;

template <class T>
int32_t publish(T *object, size_t fclass, const weft_instance *instance, struct fid *parent,
                void *context) {
  object->header.magic = WEFT_FID_MAGIC;
  object->header.struct_size = sizeof object->header;
  object->header.instance = instance;
  object->instance = instance;
  object->fid.fid.fclass = fclass;
  object->fid.fid.context = context;
  weft_error why{};
  return instance->core->object_opened(&object->fid.fid, parent, &why);
}

template <class T>
struct fi_ops *fid_ops() {
  static struct fi_ops ops = [] {
    struct fi_ops table {};
    table.size = sizeof table;
    table.close = [](struct fid *fid) -> int {
      T *object = T::from(fid);
      for (struct fid *other : object->beside) fi_close(other);
      if (object->below != nullptr) fi_close(object->below);
      object->instance->core->object_closing(fid);
      delete object;
      return 0;
    };
    return table;  // the rest is missing: nothing may call it
  }();
  return &ops;
}

inline ssize_t toy_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t to,
                        void *context) {
  Ep *ep = Ep::from(fid);
  const uint64_t calls = ep->calls.fetch_add(1, std::memory_order_relaxed) + 1;
  if (ep->below == nullptr) return static_cast<ssize_t>(1000 + calls);
  const auto pass_on = [&](struct fid *fid_below) {
    auto *below = reinterpret_cast<struct fid_ep *>(fid_below);
    struct fi_ops_msg *msg = __atomic_load_n(&below->msg, __ATOMIC_ACQUIRE);
    return msg->send(below, buf, len, desc, to, context);
  };
  for (struct fid *other : ep->beside) pass_on(other);
  return pass_on(ep->below);
}

inline struct fi_ops_msg *msg_ops() {
  static struct fi_ops_msg ops = [] {
    struct fi_ops_msg table {};
    table.size = sizeof table;
    table.send = toy_send;  // recv and the others are missing
    return table;
  }();
  return &ops;
}

inline int open_ep(struct fid_domain *domain_fid, struct fi_info *info, struct fid_ep **out,
                   void *context) {
  Domain *domain = Domain::from(domain_fid);
  auto *ep = new Ep;
  ep->fid.fid.ops = fid_ops<Ep>();
  ep->fid.msg = msg_ops();
  const auto open_below = [&](struct fid *domain_below) {
    struct fid_ep *below = nullptr;
    fi_endpoint(reinterpret_cast<struct fid_domain *>(domain_below), info, &below, nullptr);
    return &below->fid;
  };
  if (domain->below != nullptr) ep->below = open_below(domain->below);
  for (struct fid *other : domain->beside) ep->beside.push_back(open_below(other));
  const int32_t rc = publish(ep, FI_CLASS_EP, domain->instance, &domain_fid->fid, context);
  if (rc != 0) {
    delete ep;
    return rc;
  }
  *out = &ep->fid;
  return 0;
}

inline int open_domain(struct fid_fabric *fabric_fid, struct fi_info *info, struct fid_domain **out,
                       void *context) {
  static struct fi_ops_domain ops = [] {
    struct fi_ops_domain table {};
    table.size = sizeof table;
    table.endpoint = open_ep;
    return table;
  }();
  Fabric *fabric = Fabric::from(fabric_fid);
  auto *domain = new Domain;
  domain->fid.fid.ops = fid_ops<Domain>();
  domain->fid.ops = &ops;
  const auto open_below = [&](struct fid *fabric_below) {
    struct fid_domain *below = nullptr;
    fi_domain(reinterpret_cast<struct fid_fabric *>(fabric_below), info, &below, nullptr);
    return &below->fid;
  };
  if (fabric->below != nullptr) domain->below = open_below(fabric->below);
  for (struct fid *other : fabric->beside) domain->beside.push_back(open_below(other));
  const int32_t rc = publish(domain, FI_CLASS_DOMAIN, fabric->instance, &fabric_fid->fid, context);
  if (rc != 0) {
    delete domain;
    return rc;
  }
  *out = &domain->fid;
  return 0;
}

inline int32_t open_fabric(const weft_instance *instance, const weft_provider *inner,
                           uint32_t count, struct fi_fabric_attr *attr, struct fid_fabric **out,
                           void *context, weft_error *why) {
  static struct fi_ops_fabric ops = [] {
    struct fi_ops_fabric table {};
    table.size = sizeof table;
    table.domain = open_domain;
    return table;
  }();
  auto *fabric = new Fabric;
  fabric->fid.fid.ops = fid_ops<Fabric>();
  fabric->fid.ops = &ops;
  for (uint32_t i = 0; i < count; ++i) {
    struct fid_fabric *below = nullptr;
    const int32_t rc = inner[i].ops->fabric(inner[i].self, attr, &below, nullptr, why);
    if (rc != 0) {
      for (struct fid *other : fabric->beside) fi_close(other);
      if (fabric->below != nullptr) fi_close(fabric->below);
      delete fabric;
      return rc;
    }
    if (i == 0)
      fabric->below = &below->fid;
    else
      fabric->beside.push_back(&below->fid);
  }
  const int32_t rc = publish(fabric, FI_CLASS_FABRIC, instance, nullptr, context);
  if (rc != 0) {
    delete fabric;
    return rc;
  }
  *out = &fabric->fid;
  return 0;
}

// ---- provider and layer ----

struct Self {
  const weft_instance *instance = nullptr;
  const weft_provider *inner = nullptr;  // layers: an array
  uint32_t inner_count = 0;
  Plugin &plugin() const { return *static_cast<Plugin *>(instance->plugin_state); }
};

inline struct fi_info *modest_info(const weft_core_services *core, enum fi_ep_type type) {
  struct fi_info *info = core->info_alloc();
  info->caps = FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ |
               FI_REMOTE_WRITE | FI_LOCAL_COMM | FI_REMOTE_COMM;
  info->ep_attr->type = type;
  info->ep_attr->max_msg_size = 1 << 20;
  info->tx_attr->size = 256;
  info->rx_attr->size = 256;
  info->domain_attr->threading = FI_THREAD_SAFE;
  info->domain_attr->name = strdup("eth0");
  info->fabric_attr->name = strdup("net0");
  return info;
}

// What the parameter "iface" says: "gone...": there is no such interface; "named": only who names
// the provider gets it.
inline int32_t judge_iface(const weft_instance *instance, uint64_t flags, weft_error *why) {
  const char *iface = instance->param_count > 1 ? instance->params[1].string_core : nullptr;
  if (iface == nullptr) return 0;
  if (std::strncmp(iface, "gone", 4) == 0) {
    std::snprintf(why->text, sizeof why->text, "the filter %s matches no interface", iface);
    return -FI_ENODEV;
  }
  if (std::strcmp(iface, "named") != 0 || (flags & WEFT_GETINFO_NAMED) != 0) return 0;
  std::snprintf(why->text, sizeof why->text, "nobody names it");
  return -FI_ENODATA;
}

inline int32_t provider_getinfo(void *self_arg, uint32_t, const char *, const char *,
                                uint64_t flags, const struct fi_info *hints, struct fi_info **out,
                                weft_error *why) {
  const Self &self = *static_cast<Self *>(self_arg);
  if (const int32_t rc = judge_iface(self.instance, flags, why); rc != 0) return rc;
  if (self.plugin().getinfo_rc != 0) {
    std::snprintf(why->text, sizeof why->text, "no interface is up");
    return self.plugin().getinfo_rc;
  }
  struct fi_info **end = out;
  *end = nullptr;
  const bool datagrams = self.instance->unit->offers_ep == WEFT_EP_BIT(FI_EP_DGRAM);
  self.plugin().offers(
      [&](enum fi_ep_type type) -> struct fi_info & {
        *end = modest_info(self.instance->core, datagrams ? FI_EP_DGRAM : type);
        struct fi_info &made = **end;
        end = &made.next;
        return made;
      },
      hints);
  return 0;
}

// Asks the provider beneath for FI_EP_MSG and offers the same as FI_EP_RDM.
inline int32_t layer_getinfo(void *self_arg, uint32_t version, const char *node,
                             const char *service, uint64_t flags, const struct fi_info *,
                             struct fi_info **out, weft_error *why) {
  const Self &self = *static_cast<Self *>(self_arg);
  struct fi_info *ask = self.instance->core->info_alloc();
  ask->ep_attr->type = FI_EP_MSG;
  ask->caps = FI_MSG | FI_RMA;
  const int32_t rc =
      self.inner->ops->getinfo(self.inner->self, version, node, service, flags, ask, out, why);
  self.instance->core->info_free(ask);
  if (rc != 0) return rc;
  for (struct fi_info *info = *out; info != nullptr; info = info->next)
    info->ep_attr->type = FI_EP_RDM;
  return 0;
}

// Asks all providers beneath for what the hints want, and offers all that they have, as FI_EP_RDM.
// Those that refuse are left out, unless all do.
inline int32_t fork_getinfo(void *self_arg, uint32_t version, const char *node, const char *service,
                            uint64_t flags, const struct fi_info *hints, struct fi_info **out,
                            weft_error *why) {
  const Self &self = *static_cast<Self *>(self_arg);
  struct fi_info *ask = self.instance->core->info_alloc();
  ask->caps = hints != nullptr && hints->caps != 0 ? hints->caps : FI_MSG | FI_RMA;
  if (hints != nullptr && hints->tx_attr != nullptr) ask->tx_attr->size = hints->tx_attr->size;
  int32_t rc = 0;
  struct fi_info **end = out;
  *end = nullptr;
  for (uint32_t i = 0; i < self.inner_count; ++i) {
    rc = self.inner[i].ops->getinfo(self.inner[i].self, version, node, service, flags, ask, end,
                                    why);
    if (rc != 0) *end = nullptr;
    for (; *end != nullptr; end = &(*end)->next) (*end)->ep_attr->type = FI_EP_RDM;
  }
  self.instance->core->info_free(ask);
  return *out != nullptr ? 0 : rc;
}

inline int32_t toy_fabric(void *self_arg, struct fi_fabric_attr *attr, struct fid_fabric **out,
                          void *context, weft_error *why) {
  const Self &self = *static_cast<Self *>(self_arg);
  return open_fabric(self.instance, self.inner, self.inner_count, attr, out, context, why);
}

inline int32_t toy_explain(void *self_arg, void (*line)(void *, const char *), void *arg,
                           weft_error *) {
  const Self &self = *static_cast<Self *>(self_arg);
  line(arg, self.inner != nullptr ? "a layer" : "eth0: up");
  return 0;
}

inline void toy_destroy(void *self_arg) {
  Self *self = static_cast<Self *>(self_arg);
  self->plugin().events.push_back(std::string("destroy ") + self->instance->unit->name);
  delete self;
}

inline int32_t start(const weft_instance *instance, const weft_provider *inner, uint32_t count,
                     const weft_provider_ops *ops, weft_provider *out, weft_error *why) {
  auto *self = new Self{instance, inner, count};
  Plugin &plugin = self->plugin();
  if (plugin.create_rc != 0) {
    std::snprintf(why->text, sizeof why->text, "the toy is broken");
    const int32_t rc = plugin.create_rc;
    delete self;
    return rc;
  }
  plugin.events.push_back(std::string("create ") + instance->unit->name);
  plugin.places.push_back(std::string(instance->unit->name) + " " +
                          std::to_string(instance->place) + " " + instance->stack);
  plugin.params.clear();
  for (uint32_t i = 0; i < instance->param_count; ++i) {
    const weft_value &value = instance->params[i];
    plugin.params.push_back(
        std::string(instance->unit->params[i]->name) + "=" +
        (value.string_core != nullptr ? value.string_core : std::to_string(value.number)) + "@" +
        value.origin_core);
  }
  *out = {ops, self};
  return 0;
}

inline weft_unit unit(uint32_t kind, const char *name, const char *ofi_name) {
  weft_unit made{};
  made.magic = WEFT_UNIT_MAGIC;
  made.struct_size = sizeof made;
  made.kind = kind;
  made.version = FI_VERSION(1, 0);
  made.name = name;
  made.ofi_name = ofi_name;
  made.summary = "a toy";
  made.rank = 500;
  made.maturity = WEFT_MATURITY_STABLE;
  made.security = WEFT_SECURITY_NO_NETWORK;
  return made;
}

inline const weft_param *const *params() {
  static const weft_param eager = {
      sizeof(weft_param), WEFT_TYPE_SIZE, "eager_size", "16K", "bytes sent eagerly", 1, 1 << 20};
  static const weft_param iface = {
      sizeof(weft_param), WEFT_TYPE_STRING, "iface", nullptr, "interface", 0, 0};
  static const weft_param *const all[] = {&eager, &iface};
  return all;
}

inline weft_unit provider(const char *name = "tcp") {
  static const weft_provider_ops ops = {sizeof ops, 0,           provider_getinfo,
                                        toy_fabric, toy_explain, toy_destroy};
  static const weft_provider_unit tables = {
      sizeof tables, 0, [](const weft_instance *instance, weft_provider *out, weft_error *why) {
        return start(instance, nullptr, 0, &ops, out, why);
      }};
  weft_unit made = unit(WEFT_KIND_PROVIDER, name, nullptr);
  made.offers_ep = WEFT_EP_BIT(FI_EP_MSG);
  made.params = params();
  made.param_count = 2;
  made.provider = &tables;
  return made;
}

inline weft_unit layer(const char *name = "rxm", const char *ofi_name = "ofi_rxm") {
  static const weft_provider_ops ops = {sizeof ops, 0,           layer_getinfo,
                                        toy_fabric, toy_explain, toy_destroy};
  static const weft_layer_unit tables = {
      sizeof tables, 0,
      [](const weft_instance *instance, const weft_provider *inner, uint32_t count,
         weft_provider *out,
         weft_error *why) { return start(instance, inner, count, &ops, out, why); }};
  weft_unit made = unit(WEFT_KIND_LAYER, name, ofi_name);
  made.needs_ep = WEFT_EP_BIT(FI_EP_MSG);
  made.inner_min = made.inner_max = 1;
  made.offers_ep = WEFT_EP_BIT(FI_EP_RDM);
  made.layer = &tables;
  return made;
}

// A layer over several providers.
inline weft_unit fork(const char *name = "link", uint32_t inner_min = 1, uint32_t inner_max = 4) {
  static const weft_provider_ops ops = {sizeof ops, 0,           fork_getinfo,
                                        toy_fabric, toy_explain, toy_destroy};
  static const weft_layer_unit tables = {
      sizeof tables, 0,
      [](const weft_instance *instance, const weft_provider *inner, uint32_t count,
         weft_provider *out,
         weft_error *why) { return start(instance, inner, count, &ops, out, why); }};
  weft_unit made = unit(WEFT_KIND_LAYER, name, nullptr);
  made.needs_ep = WEFT_EP_BIT(FI_EP_MSG) | WEFT_EP_BIT(FI_EP_RDM);
  made.inner_min = inner_min;
  made.inner_max = inner_max;
  made.offers_ep = WEFT_EP_BIT(FI_EP_RDM);
  made.layer = &tables;
  return made;
}

// ---- hooks ----

// Counts sends and forwards them. Several kinds exist, since a hook unit has one slot for the
// process.
template <int Kind>
struct Counter {
  static inline std::atomic<uint64_t> sends{0}, closes{0}, attached{0}, released{0};
  static inline int attach_rc = 0;
  static inline bool watch_close = false;
  static inline std::vector<std::string> events;
  static inline uint32_t slot = Kind;

  static weft_hook_link *link_of(struct fid *fid) {
    weft_fid_header *header = reinterpret_cast<weft_fid_header *>(fid) - 1;
    weft_hook_link **links = __atomic_load_n(&header->links_core, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&links[slot], __ATOMIC_ACQUIRE);
  }

  static ssize_t send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to,
                      void *context) {
    sends.fetch_add(1, std::memory_order_relaxed);
    weft_hook_link *link = link_of(&ep->fid);
    const struct fi_ops_msg *next = __atomic_load_n(&link->next.msg, __ATOMIC_ACQUIRE);
    return next->send(ep, buf, len, desc, to, context);
  }
  static int close(struct fid *fid) {
    closes.fetch_add(1, std::memory_order_relaxed);
    return link_of(fid)->next.fid->close(fid);
  }

  static const weft_unit *unit() {
    static struct fi_ops_msg msg = [] {
      struct fi_ops_msg table {};
      table.size = sizeof table;
      table.send = send;
      return table;
    }();
    static struct fi_ops fid = [] {
      struct fi_ops table {};
      table.size = sizeof table;
      table.close = close;
      return table;
    }();
    static weft_op_tables overlay = [] {
      weft_op_tables tables{};
      tables.struct_size = sizeof tables;
      tables.msg = &msg;
      return tables;
    }();
    overlay.fid = watch_close ? &fid : nullptr;
    static const weft_hook_unit tables = {
        sizeof tables,
        0,
        &overlay,
        [](const weft_instance *instance, void **state, weft_error *) {
          slot = instance->hook_slot;
          *state = nullptr;
          events.emplace_back("create");
          return 0;
        },
        [](void *) { events.emplace_back("destroy"); },
        [](void *, struct fid *fid, void **state, weft_error *why) -> int32_t {
          if (fid->fclass != FI_CLASS_EP) return 1;
          if (attach_rc != 0) {
            std::snprintf(why->text, sizeof why->text, "the toy hook refuses");
            return attach_rc;
          }
          attached.fetch_add(1);
          *state = new int(Kind);
          return 0;
        },
        [](void *, void *state) {
          released.fetch_add(1);
          delete static_cast<int *>(state);
        }};
    static const weft_unit made = [] {
      weft_unit one = toys::unit(WEFT_KIND_HOOK,
                                 Kind == 0   ? "trace"
                                 : Kind == 1 ? "profile"
                                             : "fault",
                                 nullptr);
      one.hook = &tables;
      return one;
    }();
    return &made;
  }

  static void reset() {
    sends = closes = attached = released = 0;
    attach_rc = 0;
    watch_close = false;
    events.clear();
    unit();
  }
  static LoadedUnit loaded() { return {unit(), nullptr, Kind, nullptr}; }
};
using Trace = Counter<0>;
using Profile = Counter<1>;
using Fault = Counter<2>;

inline LoadedUnit loaded(const weft_unit &unit, Plugin &plugin) {
  return {&unit, &plugin, 0, nullptr};
}

}  // namespace weft::toys

#endif
