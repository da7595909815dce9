// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/nic_attr.h"

#include <rdma/fi_cxi_ext.h>
#include <rdma/fi_errno.h>

#include <cinttypes>
#include <cstdio>
#include <new>
#include <string>

namespace weft::cxi {
namespace {

std::string hexadecimal(unsigned value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%x", value);
  return text;
}

// A fid_nic with all that it points to.
class NicAttr {
 public:
  NicAttr(const DeviceFacts &facts, std::weak_ptr<Devices> devices, Vni default_vni);
  NicAttr(const NicAttr &other) : NicAttr(other.facts_, other.devices_, other.prov_.default_vni) {}
  NicAttr &operator=(const NicAttr &) = delete;

  fid_nic *c() { return &c_; }
  // The C struct is the first member.
  static NicAttr &from(struct fid *fid) {
    return *reinterpret_cast<NicAttr *>(container_of(fid, fid_nic, fid));
  }
  int refresh();
  std::string text() const;

 private:
  void fill_link();

  fid_nic c_{};
  DeviceFacts facts_;
  const std::weak_ptr<Devices> devices_;
  std::string driver_, product_, version_, vendor_, address_, network_ = "HPC Ethernet";
  fi_device_attr device_{};
  fi_bus_attr bus_{};
  fi_link_attr link_{};
  cxip_nic_attr prov_;
};

int close_nic(struct fid *fid) {
  delete &NicAttr::from(fid);
  return 0;
}

int bind_nic(struct fid *, struct fid *, uint64_t) {
  return -FI_ENOSYS;
}

int control_nic(struct fid *fid, int command, void *arg) {
  if (command == FI_OPT_CXI_NIC_REFRESH_ATTR) return NicAttr::from(fid).refresh();
  if (command != FI_DUP) return -FI_ENOSYS;
  if (arg == nullptr) return -FI_EINVAL;
  auto *const copy = new (std::nothrow) NicAttr(NicAttr::from(fid));
  if (copy == nullptr) return -FI_ENOMEM;
  *static_cast<struct fid **>(arg) = &copy->c()->fid;
  return 0;
}

int open_nic_ops(struct fid *, const char *, uint64_t, void **, void *) {
  return -FI_ENOSYS;
}

int text_of_nic(const struct fid *fid, char *buffer, size_t length) {
  const NicAttr &nic = NicAttr::from(const_cast<struct fid *>(fid));
  if (length != 0) std::snprintf(buffer, length, "%s", nic.text().c_str());
  return 0;
}

int set_nic_ops(struct fid *, const char *, uint64_t, void *, void *) {
  return -FI_ENOSYS;
}

fi_ops nic_table = {.size = sizeof(fi_ops),
                    .close = close_nic,
                    .bind = bind_nic,
                    .control = control_nic,
                    .ops_open = open_nic_ops,
                    .tostr = text_of_nic,
                    .ops_set = set_nic_ops};

NicAttr::NicAttr(const DeviceFacts &facts, std::weak_ptr<Devices> devices, Vni default_vni)
    : facts_(facts),
      devices_(std::move(devices)),
      driver_(facts.is_software ? "software" : "cxi_core"),
      product_(facts.is_software ? "software NIC" : "Cassini"),
      address_(hexadecimal(facts.nid)),
      prov_{.version = FI_CXI_NIC_ATTR_VER,
            .addr = facts.nid,
            .default_rgroup_id = Service::kDefault,
            .default_vni = default_vni} {
  device_.name = facts_.name.data();
  device_.device_id = product_.data();
  device_.driver = driver_.data();
  if (facts_.revision != 0) {
    version_ = std::to_string(facts_.revision);
    device_.device_version = version_.data();
  }
  if (facts_.vendor != 0) {
    vendor_ = hexadecimal(facts_.vendor);
    device_.vendor_id = vendor_.data();
  }
  bus_.bus_type = facts_.bus ? FI_BUS_PCI : FI_BUS_UNKNOWN;
  if (const auto &place = facts_.bus)
    bus_.attr.pci = {.domain_id = place->domain,
                     .bus_id = place->bus,
                     .device_id = place->device,
                     .function_id = place->function};
  link_.address = address_.data();
  link_.network_type = network_.data();
  fill_link();
  c_.fid.fclass = FI_CLASS_NIC;
  c_.fid.ops = &nic_table;
  c_.device_attr = &device_;
  c_.bus_attr = &bus_;
  c_.link_attr = &link_;
  c_.prov_attr = &prov_;
}

void NicAttr::fill_link() {
  link_.mtu = facts_.mtu;
  link_.speed = facts_.speed;
  link_.state = facts_.link_up ? FI_LINK_UP : FI_LINK_DOWN;
}

// Only the link changes while a NIC is there.
int NicAttr::refresh() {
  const std::shared_ptr<Devices> devices = devices_.lock();
  if (devices == nullptr) return -FI_ENODEV;  // the library is at its end
  const auto now = devices->look_again(facts_.name);
  if (!now) return -now.error().code;
  facts_.mtu = now->mtu;
  facts_.speed = now->speed;
  facts_.link_up = now->link_up;
  fill_link();
  return 0;
}

std::string NicAttr::text() const {
  char text[256];
  std::snprintf(text, sizeof text, "nic: %s, %s at %s, mtu %zu, %" PRIu64 " bits/s, %s",
                facts_.name.c_str(), product_.c_str(), address_.c_str(), facts_.mtu, facts_.speed,
                facts_.link_up ? "up" : "down");
  return text;
}

}  // namespace

Result<void> put_nic(fi_info &info, const DeviceFacts &facts,
                     const std::shared_ptr<Devices> &devices, Vni default_vni) {
  auto *const nic = new (std::nothrow) NicAttr(facts, devices, default_vni);
  if (nic == nullptr) return fail(FI_ENOMEM, "no memory for a fid_nic");
  info.nic = nic->c();
  return {};
}

}  // namespace weft::cxi
