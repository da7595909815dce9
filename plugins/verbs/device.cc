// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/device.h"

#include <endian.h>
#include <rdma/rdma_cma.h>
#include <weft/sdk/ip/interfaces.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "plugins/verbs/channel.h"

namespace weft::verbs {
namespace {

constexpr uint8_t kPort = 1;  // librdmacm shows each device; its first port is what we describe

template <class T, int (*kDestroy)(T *)>
struct Destroy {
  void operator()(T *object) const { kDestroy(object); }
};
using OwnedPd = std::unique_ptr<ibv_pd, Destroy<ibv_pd, ibv_dealloc_pd>>;
using OwnedCq = std::unique_ptr<ibv_cq, Destroy<ibv_cq, ibv_destroy_cq>>;
using OwnedQp = std::unique_ptr<ibv_qp, Destroy<ibv_qp, ibv_destroy_qp>>;
using OwnedId = std::unique_ptr<rdma_cm_id, Destroy<rdma_cm_id, rdma_destroy_id>>;
struct DestroyChannel {
  void operator()(rdma_event_channel *channel) const { rdma_destroy_event_channel(channel); }
};
using OwnedChannel = std::unique_ptr<rdma_event_channel, DestroyChannel>;

Transport transport_of(const ibv_context &verbs, const ibv_port_attr &port) {
  if (verbs.device->transport_type == IBV_TRANSPORT_IWARP) return Transport::kIwarp;
  return port.link_layer == IBV_LINK_LAYER_ETHERNET ? Transport::kRoce : Transport::kInfiniBand;
}

// How much a queue pair with all that endpoints ask for takes inline. Only trying tells. Nothing:
// there are no queue pairs of this type.
std::optional<size_t> probe_inline(ibv_context *verbs, const DeviceFacts &facts, const Sizes &sizes,
                                   ibv_qp_type type) {
  const OwnedPd pd(ibv_alloc_pd(verbs));
  const OwnedCq cq(ibv_create_cq(verbs, 1, nullptr, nullptr, 0));
  if (pd == nullptr || cq == nullptr) return {};
  for (size_t bytes = sizes.inline_size;; bytes /= 2) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq.get();
    init.qp_type = type;
    init.cap.max_send_wr = uint32_t(std::min(sizes.tx, facts.max_queue_entries));
    init.cap.max_recv_wr = uint32_t(std::min(sizes.rx, facts.max_queue_entries));
    init.cap.max_send_sge = uint32_t(std::min(sizes.tx_iov, facts.max_sges));
    init.cap.max_recv_sge = uint32_t(std::min(sizes.rx_iov, facts.max_sges));
    init.cap.max_inline_data = uint32_t(bytes);
    const OwnedQp qp(ibv_create_qp(pd.get(), &init));
    if (qp != nullptr) return bytes;
    if (bytes == 0) return {};
  }
}

// A device without dma-bufs says so before it looks at the descriptor.
bool probe_dmabuf(ibv_context *verbs) {
  const OwnedPd pd(ibv_alloc_pd(verbs));
  if (pd == nullptr) return false;
  constexpr size_t kPage = 4096;
  ibv_mr *const mr = ibv_reg_dmabuf_mr(pd.get(), 0, kPage, 0, -1, IBV_ACCESS_LOCAL_WRITE);
  if (mr == nullptr) return errno == EBADF;
  ibv_dereg_mr(mr);
  return true;
}

// Facts that stay the same while the device is there.
Result<DeviceFacts> read_device(ibv_context *verbs, const Sizes &sizes) {
  DeviceFacts facts;
  facts.name = ibv_get_device_name(verbs->device);
  ibv_device_attr_ex all{};
  if (const int error = ibv_query_device_ex(verbs, nullptr, &all); error != 0)
    return fail(error, "%s: ibv_query_device_ex: %s", facts.name.c_str(), strerror(error));
  const ibv_device_attr &a = all.orig_attr;
  const auto count = [](int n) { return size_t(std::max(n, 0)); };
  facts.firmware.assign(a.fw_ver, strnlen(a.fw_ver, sizeof a.fw_ver));
  facts.vendor = a.vendor_id;
  facts.part = a.vendor_part_id;
  facts.hardware_version = a.hw_ver;
  facts.max_queue_pairs = count(a.max_qp);
  facts.max_queue_entries = count(a.max_qp_wr);
  facts.max_sges = count(a.max_sge);
  facts.max_read_sges = a.max_sge_rd > 0 ? count(a.max_sge_rd) : facts.max_sges;
  facts.max_cqs = count(a.max_cq);
  facts.max_cq_entries = count(a.max_cqe);
  facts.max_regions = count(a.max_mr);
  facts.max_shared_queues = count(a.max_srq);
  facts.max_shared_entries = count(a.max_srq_wr);
  facts.max_shared_sges = count(a.max_srq_sge);
  facts.has_xrc = (a.device_cap_flags & IBV_DEVICE_XRC) != 0;
  facts.has_atomics = a.atomic_cap != IBV_ATOMIC_NONE;
  std::error_code error;
  namespace fs = std::filesystem;
  const fs::path sysfs = fs::path(verbs->device->ibdev_path) / "device";
  facts.pci = parse_pci(fs::canonical(sysfs, error).filename().string());
  facts.driver = fs::canonical(sysfs / "driver", error).filename().string();
  if (facts.driver.empty()) facts.driver = verbs->device->name;
  facts.max_inline = probe_inline(verbs, facts, sizes, IBV_QPT_RC).value_or(0);
  const auto datagram_inline = probe_inline(verbs, facts, sizes, IBV_QPT_UD);
  facts.has_datagrams = datagram_inline.has_value();
  facts.max_datagram_inline = datagram_inline.value_or(0);
  facts.has_dmabuf = probe_dmabuf(verbs);
  facts.has_multicast = facts.has_datagrams && a.max_mcast_grp > 0 && a.max_mcast_qp_attach > 0;
  return facts;
}

bool is_new(const std::vector<sdk::SockAddr> &all, const sdk::SockAddr &address) {
  return std::ranges::find(all, address) == all.end();
}

// The addresses in the GIDs of an Ethernet port.
void add_gid_addresses(ibv_context *verbs, std::vector<sdk::SockAddr> &out) {
  for (const ibv_gid_entry &entry : read_gids(verbs).value_or(std::vector<ibv_gid_entry>())) {
    if (entry.port_num != kPort || entry.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
    in6_addr ip;
    static_assert(sizeof ip == sizeof entry.gid.raw);
    std::memcpy(&ip, entry.gid.raw, sizeof ip);
    if (IN6_IS_ADDR_UNSPECIFIED(&ip) || IN6_IS_ADDR_LINKLOCAL(&ip)) continue;
    sockaddr_in v4{};
    sockaddr_in6 v6{};
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_addr, ip.s6_addr + 12, sizeof v4.sin_addr);
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = ip;
    const sdk::SockAddr address = IN6_IS_ADDR_V4MAPPED(&ip) ? sdk::SockAddr(v4) : sdk::SockAddr(v6);
    if (is_new(out, address)) out.push_back(address);
  }
}

// Facts that change: the port and its addresses.
Result<void> read_port(ibv_context *verbs, DeviceFacts &facts) {
  ibv_port_attr port{};
  if (const int error = ibv_query_port(verbs, kPort, &port); error != 0)
    return fail(error, "%s: ibv_query_port: %s", facts.name.c_str(), strerror(error));
  facts.port = kPort;
  facts.transport = transport_of(*verbs, port);
  facts.port_active = port.state == IBV_PORT_ACTIVE;
  facts.mtu = port.active_mtu >= IBV_MTU_256 ? size_t(128) << port.active_mtu : 0;
  facts.speed = link_speed(port.active_width, port.active_speed);
  facts.lid = port.lid;
  facts.max_message_size = port.max_msg_sz;
  ibv_gid gid{};
  if (ibv_query_gid(verbs, kPort, 0, &gid) == 0) {
    facts.gid_prefix = be64toh(gid.global.subnet_prefix);
    facts.gid_interface = be64toh(gid.global.interface_id);
  }
  facts.addresses.clear();
  if (facts.transport != Transport::kInfiniBand) add_gid_addresses(verbs, facts.addresses);
  return {};
}

// The device behind an address of this host; null: none, or no permission to ask.
const ibv_context *context_of(const sdk::SockAddr &address) {
  const OwnedChannel channel(rdma_create_event_channel());
  if (channel == nullptr) return nullptr;
  rdma_cm_id *made = nullptr;
  if (rdma_create_id(channel.get(), &made, nullptr, RDMA_PS_TCP) != 0) return nullptr;
  const OwnedId id(made);
  if (rdma_bind_addr(id.get(), const_cast<sockaddr *>(address.c())) != 0) return nullptr;
  return id->verbs;
}

}  // namespace

Devices::~Devices() {
  for (ibv_context **const list : lists_) rdma_free_devices(list);
}

Result<void> Devices::add(ibv_context *verbs, bool &added) {
  auto known = std::ranges::find(devices_, verbs, &Known::verbs);
  if (known == devices_.end()) {
    WEFT_TRY(DeviceFacts facts, read_device(verbs, sizes_));
    devices_.push_back({{verbs, std::move(facts)}});
    known = devices_.end() - 1;
    added = true;
  }
  WEFT_CHECK(read_port(verbs, known->facts));
  known->present = true;
  return {};
}

Result<void> Devices::refresh() {
  const std::lock_guard guard(mutex_);
  int count = 0;
  ibv_context **const list = rdma_get_devices(&count);
  if (list == nullptr)
    return fail(errno != 0 ? errno : FI_ENODEV,
                "verbs: rdma_get_devices: %s: is the kernel module rdma_ucm loaded?",
                strerror(errno));
  left_out_.clear();
  for (Known &known : devices_) known.present = false;
  bool is_new_list = false;
  for (int i = 0; i < count; ++i)
    if (auto added = add(list[i], is_new_list); !added) left_out_.push_back(added.error().text);
  if (is_new_list) {
    lists_.push_back(list);
  } else {
    rdma_free_devices(list);
  }
  auto interfaces = sdk::list_interfaces();
  if (!interfaces) return {};
  for (const sdk::Interface &interface : *interfaces) {
    if (!interface.up || interface.address.is_loopback()) continue;
    if (interface.address.is_link_local()) continue;
    const ibv_context *const verbs = context_of(interface.address);
    for (Known &device : devices_)
      if (verbs != nullptr && device.verbs == verbs &&
          is_new(device.facts.addresses, interface.address))
        device.facts.addresses.push_back(interface.address);
  }
  return {};
}

std::vector<DeviceFacts> Devices::facts() {
  const std::lock_guard guard(mutex_);
  std::vector<DeviceFacts> all;
  for (const Known &known : devices_)
    if (known.present) all.push_back(known.facts);
  return all;
}

std::vector<std::string> Devices::left_out() {
  const std::lock_guard guard(mutex_);
  return left_out_;
}

template <class Is>
std::optional<Device> Devices::find_if(Is is) {
  const std::lock_guard guard(mutex_);
  for (const Known &known : devices_)
    if (known.present && is(known)) return known;
  return {};
}

std::optional<Device> Devices::find(std::string_view name) {
  return find_if([&](const Device &device) { return device.facts.name == name; });
}

std::optional<Device> Devices::find(const ibv_context *verbs) {
  return find_if([&](const Device &device) { return device.verbs == verbs; });
}

Result<std::shared_ptr<sdk::MemoryMonitor>> Devices::memory_monitor() {
  const std::lock_guard guard(mutex_);
  if (auto known = monitor_.lock(); known != nullptr && known->here()) return known;
  WEFT_TRY(auto opened, sdk::MemoryMonitor::open());
  monitor_ = opened;
  return opened;
}

Result<std::vector<ibv_gid_entry>> read_gids(ibv_context *verbs) {
  constexpr size_t kMost = 1024;
  std::vector<ibv_gid_entry> gids(kMost);
  const ssize_t count = ibv_query_gid_table(verbs, gids.data(), gids.size(), 0);
  if (count < 0)
    return fail(int(-count), "ibv_query_gid_table on %s: %s", ibv_get_device_name(verbs->device),
                strerror(int(-count)));
  gids.resize(size_t(count));
  return gids;
}

Result<Route> find_route(const sdk::Address &source, const sdk::Address &dest, int timeout_ms) {
  const OwnedChannel channel(rdma_create_event_channel());
  rdma_cm_id *made = nullptr;
  if (channel == nullptr || rdma_create_id(channel.get(), &made, nullptr, RDMA_PS_TCP) != 0)
    return fail(errno, "verbs: rdma_create_id: %s", strerror(errno));
  const OwnedId id(made);
  sockaddr *const from = source.size() != 0 ? c_address(source) : nullptr;
  if (rdma_resolve_addr(id.get(), from, c_address(dest), timeout_ms) != 0)
    return fail(errno, "verbs: no RDMA device leads to %s: %s", dest.to_string().c_str(),
                strerror(errno));
  rdma_cm_event *event = nullptr;  // comes within the time that the kernel was given
  if (rdma_get_cm_event(channel.get(), &event) != 0)
    return fail(errno, "verbs: rdma_get_cm_event: %s", strerror(errno));
  const bool resolved = event->event == RDMA_CM_EVENT_ADDR_RESOLVED;
  const int status = event->status < 0 ? -event->status : event->status;
  rdma_ack_cm_event(event);
  if (!resolved || id->verbs == nullptr)
    return fail(status != 0 ? status : FI_EHOSTUNREACH, "verbs: no RDMA device leads to %s: %s",
                dest.to_string().c_str(), strerror(status != 0 ? status : FI_EHOSTUNREACH));
  WEFT_TRY(const sdk::Address used, local_address(*id).with_port(source.port()));
  return Route{id->verbs, used};
}

}  // namespace weft::verbs
