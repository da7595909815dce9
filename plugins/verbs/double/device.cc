// SPDX-License-Identifier: BSD-2-Clause
// Devices: the list, opening, what they report, and asynchronous events.
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>

#include "plugins/verbs/double/objects.h"
#include "plugins/verbs/double/waiting.h"

#undef ibv_query_port

namespace weft::verbs_double {

namespace {

constexpr uint64_t kGuid = 0x0200'64ff'fe00'0000;  // of a locally administered address
constexpr uint64_t kLinkLocal = 0xfe80'0000'0000'0000;
constexpr uint16_t kDefaultPkey = 0xffff;

__be64 guid_of(const Adapter &adapter) {
  return htobe64(kGuid + static_cast<uint64_t>(adapter.index) + 1);
}

Adapter &adapter_of(ibv_device *device) {
  World *world = World::current();
  for (const std::unique_ptr<Adapter> &adapter : world->adapters) {
    if (&adapter->ibv == device) return *adapter;
  }
  std::fprintf(stderr, "verbs_double: %p is no device of this network\n",
               static_cast<void *>(device));
  std::abort();
}

void raise_event(Context &context, const ibv_async_event &event) {
  context.async.push(event);
}

int query_port(ibv_context *ibv, uint8_t port, ibv_port_attr *attr, size_t size) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_query_port);
  if (entry.error() != 0) return entry.error();
  if (port != 1) return EINVAL;
  const DeviceOptions &options = context.adapter.options;
  ibv_port_attr result = {};
  result.state = context.adapter.port;
  result.max_mtu = IBV_MTU_4096;
  result.active_mtu = options.mtu;
  result.gid_tbl_len = static_cast<int>(context.adapter.gids.size());
  result.port_cap_flags = IBV_PORT_CM_SUP | (options.infiniband ? 0 : IBV_PORT_IP_BASED_GIDS);
  result.max_msg_sz = options.limits.max_msg_size;
  result.pkey_tbl_len = 1;
  result.lid = options.infiniband ? context.adapter.lid : 0;
  result.sm_lid = options.infiniband ? 1 : 0;
  result.max_vl_num = 1;
  result.active_width = 2;  // 4x
  result.active_speed = 32;
  result.phys_state = context.adapter.port == IBV_PORT_ACTIVE ? 5 : 3;
  result.link_layer = options.infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  std::memcpy(attr, &result, std::min(size, sizeof result));
  return 0;
}

ibv_device_attr attributes_of(const Adapter &adapter) {
  const Limits &limits = adapter.options.limits;
  const Features &features = adapter.options.features;
  ibv_device_attr attr = {};
  std::snprintf(attr.fw_ver, sizeof attr.fw_ver, "1.0");
  attr.node_guid = attr.sys_image_guid = guid_of(adapter);
  attr.max_mr_size = limits.max_mr_size;
  attr.page_size_cap = 0xfffff000;
  attr.vendor_id = 0xffffff;
  attr.vendor_part_id = 1;
  attr.hw_ver = 1;
  attr.max_qp = limits.max_qp;
  attr.max_qp_wr = limits.max_qp_wr;
  attr.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID |
                          IBV_DEVICE_PORT_ACTIVE_EVENT |
                          (features.xrc ? static_cast<unsigned>(IBV_DEVICE_XRC) : 0U);
  attr.max_sge = limits.max_sge;
  attr.max_sge_rd = limits.max_sge_rd;
  attr.max_cq = limits.max_cq;
  attr.max_cqe = limits.max_cqe;
  attr.max_mr = limits.max_mr;
  attr.max_pd = limits.max_pd;
  attr.max_qp_rd_atom = attr.max_qp_init_rd_atom = limits.max_rd_atom;
  attr.max_res_rd_atom = limits.max_rd_atom * limits.max_qp;
  attr.atomic_cap = features.atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  attr.max_mcast_grp = features.multicast ? limits.max_mcast_grp : 0;
  attr.max_mcast_qp_attach = features.multicast ? limits.max_mcast_qp_attach : 0;
  attr.max_total_mcast_qp_attach = attr.max_mcast_grp * attr.max_mcast_qp_attach;
  attr.max_ah = limits.max_ah;
  attr.max_srq = features.srq ? limits.max_srq : 0;
  attr.max_srq_wr = features.srq ? limits.max_srq_wr : 0;
  attr.max_srq_sge = features.srq ? limits.max_srq_sge : 0;
  attr.max_pkeys = 1;
  attr.local_ca_ack_delay = 15;
  attr.phys_port_cnt = 1;
  return attr;
}

int query_device_ex(ibv_context *ibv, const ibv_query_device_ex_input *, ibv_device_attr_ex *attr,
                    size_t size) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_query_device_ex);
  if (entry.error() != 0) return entry.error();
  ibv_device_attr_ex result = {};
  result.orig_attr = attributes_of(context.adapter);
  result.device_cap_flags_ex = result.orig_attr.device_cap_flags;
  result.phys_port_cnt_ex = 1;
  std::memcpy(attr, &result, std::min(size, sizeof result));
  return 0;
}

}  // namespace

Adapter::Adapter(World &the_world, const DeviceOptions &given, int position)
    : world(the_world),
      options(given),
      device(*this),
      index(position),
      lid(static_cast<uint16_t>(position + 1)) {
  ibv.node_type = options.iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
  ibv.transport_type = options.iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
  if (options.iwarp) {
    options.features.atomics = options.features.xrc = options.features.multicast = false;
    options.limits.max_sge_rd = 1;
  }
  const std::string uverbs = "uverbs" + std::to_string(index);
  const std::string path =
      options.sysfs_path.empty() ? "/sys/class/infiniband/" + options.name : options.sysfs_path;
  std::snprintf(ibv.name, sizeof ibv.name, "%s", options.name.c_str());
  std::snprintf(ibv.dev_name, sizeof ibv.dev_name, "%s", uverbs.c_str());
  std::snprintf(ibv.dev_path, sizeof ibv.dev_path, "/sys/class/infiniband_verbs/%s",
                uverbs.c_str());
  std::snprintf(ibv.ibdev_path, sizeof ibv.ibdev_path, "%s", path.c_str());

  ibv_gid_entry first = {};
  first.gid.global.subnet_prefix = htobe64(kLinkLocal);
  first.gid.global.interface_id = guid_of(*this);
  first.port_num = 1;
  first.gid_type = options.infiniband ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2;
  gids.push_back(first);
  for (const std::string &text : options.addresses) {
    addresses.push_back(SocketAddress::parse(text));
    if (options.infiniband) continue;
    ibv_gid_entry entry = first;
    entry.gid = addresses.back().gid();
    entry.gid_index = static_cast<uint32_t>(gids.size());
    gids.push_back(entry);
  }
}

Adapter::~Adapter() = default;

bool Adapter::has(const SocketAddress &address) const {
  if (address.family() == AF_IB) {
    const ibv_gid wanted = address.gid();
    return options.infiniband && std::memcmp(wanted.raw, gids[0].gid.raw, sizeof wanted.raw) == 0;
  }
  return std::any_of(addresses.begin(), addresses.end(),
                     [&](const SocketAddress &mine) { return mine.same_host(address); });
}

Context::Context(Adapter &the_adapter, bool is_of_cm)
    : verbs_context{},
      adapter(the_adapter),
      world(the_adapter.world),
      counted(the_adapter.world, is_of_cm ? "" : "ibv_context"),
      of_cm(is_of_cm) {
  sz = sizeof(verbs_context);
  verbs_context::query_port = verbs_double::query_port;
  verbs_context::query_device_ex = verbs_double::query_device_ex;
  if (adapter.options.features.srq) verbs_context::create_srq_ex = verbs_double::create_srq_ex;
  verbs_context::create_qp_ex = verbs_double::create_qp_ex;
  if (adapter.options.features.xrc) {
    verbs_context::open_qp = verbs_double::open_qp;
    verbs_context::get_srq_num = verbs_double::get_srq_num;
    verbs_context::open_xrcd = verbs_double::open_xrcd;
    verbs_context::close_xrcd = verbs_double::close_xrcd;
  }
  context.device = &adapter.ibv;
  context.ops.poll_cq = verbs_double::poll_cq;
  context.ops.req_notify_cq = verbs_double::req_notify_cq;
  context.ops.post_send = verbs_double::post_send;
  context.ops.post_recv = verbs_double::post_recv;
  context.ops.post_srq_recv = verbs_double::post_srq_recv;
  context.cmd_fd = -1;
  context.async_fd = async.fd();
  context.num_comp_vectors = 2;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  adapter.contexts.push_back(this);
}

Context::~Context() {
  std::erase(adapter.contexts, this);
}

void raise(Context &context, ibv_event_type type, ibv_qp *qp) {
  ibv_async_event event = {};
  event.event_type = type;
  event.element.qp = qp;
  raise_event(context, event);
}

void raise(Context &context, ibv_event_type type, ibv_cq *cq) {
  ibv_async_event event = {};
  event.event_type = type;
  event.element.cq = cq;
  raise_event(context, event);
}

void raise(Context &context, ibv_event_type type, ibv_srq *srq) {
  ibv_async_event event = {};
  event.event_type = type;
  event.element.srq = srq;
  raise_event(context, event);
}

void raise_for_port(Adapter &adapter, ibv_event_type type) {
  for (Context *context : adapter.contexts) {
    ibv_async_event event = {};
    event.event_type = type;
    event.element.port_num = type == IBV_EVENT_DEVICE_FATAL ? 0 : 1;
    raise_event(*context, event);
  }
}

}  // namespace weft::verbs_double

using namespace weft::verbs_double;

extern "C" {

ibv_device **ibv_get_device_list(int *count) {
  if (count != nullptr) *count = 0;
  World *world = World::current();
  std::vector<ibv_device *> devices;
  if (world != nullptr) {
    const Entry entry(*world, Call::k_ibv_get_device_list);
    if (entry.error() != 0) return no_object(entry.error());
    for (const std::unique_ptr<Adapter> &adapter : world->adapters) {
      if (!adapter->removed) devices.push_back(&adapter->ibv);
    }
  }
  auto **list = new ibv_device *[devices.size() + 1]();
  std::copy(devices.begin(), devices.end(), list);
  if (count != nullptr) *count = static_cast<int>(devices.size());
  return list;
}

void ibv_free_device_list(ibv_device **list) {
  delete[] list;
}

const char *ibv_get_device_name(ibv_device *device) {
  return device->name;
}

int ibv_get_device_index(ibv_device *device) {
  return adapter_of(device).index;
}

__be64 ibv_get_device_guid(ibv_device *device) {
  return guid_of(adapter_of(device));
}

ibv_context *ibv_open_device(ibv_device *device) {
  Adapter &adapter = adapter_of(device);
  const Entry entry(adapter.world, Call::k_ibv_open_device);
  if (entry.error() != 0) return no_object(entry.error());
  if (adapter.removed) return no_object(ENODEV);
  auto context = std::make_unique<Context>(adapter, /*is_of_cm=*/false);
  if (context->async.fd() < 0) return no_object(EMFILE);
  return context.release()->ibv();
}

int ibv_close_device(ibv_context *ibv) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_close_device);
  if (entry.error() != 0) return failed(entry.error());
  if (context.of_cm) {
    context.world.complain("ibv_close_device: this is the context of librdmacm");
    return failed(EINVAL);
  }
  delete &context;
  return 0;
}

int ibv_query_device(ibv_context *ibv, ibv_device_attr *attr) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_query_device);
  if (entry.error() != 0) return entry.error();
  *attr = attributes_of(context.adapter);
  return 0;
}

int ibv_query_port(ibv_context *ibv, uint8_t port, _compat_ibv_port_attr *attr) {
  ibv_port_attr whole = {};
  const int error = query_port(ibv, port, &whole, sizeof whole);
  // The old struct ends before the fields that came later.
  if (error == 0) std::memcpy(attr, &whole, offsetof(ibv_port_attr, port_cap_flags2));
  return error;
}

int ibv_query_gid(ibv_context *ibv, uint8_t port, int index, ibv_gid *gid) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_query_gid);
  if (entry.error() != 0) return failed(entry.error());
  if (port != 1 || index < 0 || static_cast<size_t>(index) >= context.adapter.gids.size()) {
    return failed(EINVAL);
  }
  *gid = context.adapter.gids[static_cast<size_t>(index)].gid;
  return 0;
}

int _ibv_query_gid_ex(ibv_context *ibv, uint32_t port, uint32_t index, ibv_gid_entry *result,
                      uint32_t flags, size_t size) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_query_gid_ex);
  if (entry.error() != 0) return entry.error();
  if (port != 1 || flags != 0 || size < sizeof *result) return EINVAL;
  if (index >= context.adapter.gids.size()) return ENODATA;
  *result = context.adapter.gids[index];
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context *ibv, ibv_gid_entry *entries, size_t max, uint32_t flags,
                             size_t size) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_query_gid_table);
  if (entry.error() != 0) return -entry.error();
  if (flags != 0 || size < sizeof *entries) return -EINVAL;
  const size_t count = std::min(max, context.adapter.gids.size());
  std::copy_n(context.adapter.gids.begin(), count, entries);
  return static_cast<ssize_t>(count);
}

int ibv_query_pkey(ibv_context *ibv, uint8_t port, int index, __be16 *pkey) {
  const Entry entry(of(ibv).world, Call::k_ibv_query_pkey);
  if (entry.error() != 0) return failed(entry.error());
  if (port != 1 || index != 0) return failed(EINVAL);
  *pkey = htobe16(kDefaultPkey);
  return 0;
}

int ibv_get_pkey_index(ibv_context *ibv, uint8_t port, __be16 pkey) {
  const Entry entry(of(ibv).world, Call::k_ibv_get_pkey_index);
  if (entry.error() != 0) return failed(entry.error());
  if (port != 1 || be16toh(pkey) != kDefaultPkey) return failed(EINVAL);
  return 0;
}

int ibv_get_async_event(ibv_context *ibv, ibv_async_event *event) {
  Context &context = of(ibv);
  if (const Entry entry(context.world, Call::k_ibv_get_async_event); entry.error() != 0) {
    return failed(entry.error());
  }
  return wait_for_event(context.world, context.async, [&](const ibv_async_event &next) {
    *event = next;
    switch (next.event_type) {
      case IBV_EVENT_CQ_ERR:
        ++of(next.element.cq).async_taken;
        break;
      case IBV_EVENT_SRQ_ERR:
      case IBV_EVENT_SRQ_LIMIT_REACHED:
        ++of(next.element.srq).async_taken;
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_COMM_EST:
      case IBV_EVENT_SQ_DRAINED:
      case IBV_EVENT_QP_LAST_WQE_REACHED:
        ++of(next.element.qp).async_taken;
        break;
      default:
        break;
    }
  });
}

void ibv_ack_async_event(ibv_async_event *event) {
  World *world = World::current();
  if (world == nullptr) return;
  const Entry entry(*world);
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      ++event->element.cq->async_events_completed;
      break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      ++event->element.srq->events_completed;
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      ++event->element.qp->events_completed;
      break;
    default:
      break;
  }
  world->acknowledged.notify_all();
}

}  // extern "C"
