// SPDX-License-Identifier: BSD-2-Clause
// A plugin file for the tests of the front: the toys of core/stack as units that a loader finds.
//   tcp     MSG over two networks: eth0 10.0.0.2, docker0 172.17.0.1
//   udp     DGRAM over the same
//   verbs   needs a device that is nowhere
//   broken  cannot be created
//   rxm     a layer that makes RDM of MSG
//   link    a layer over two to three providers
//   trace, profile   hooks
#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdlib>

#include "core/stack/toys.h"

namespace {

using namespace weft;

void add_domain(fi_info &info, const char *domain, const char *fabric, const char *address) {
  std::free(info.domain_attr->name);
  std::free(info.fabric_attr->name);
  info.domain_attr->name = strdup(domain);
  info.fabric_attr->name = strdup(fabric);
  auto *in = static_cast<sockaddr_in *>(std::calloc(1, sizeof(sockaddr_in)));
  in->sin_family = AF_INET;
  inet_pton(AF_INET, address, &in->sin_addr);
  info.addr_format = FI_SOCKADDR_IN;
  info.src_addr = in;
  info.src_addrlen = sizeof *in;
}

toys::Plugin state_of_units;

// The units of one file share one state.
int32_t init(const weft_offer *, void **state, weft_error *) {
  state_of_units.offers = [](const toys::Plugin::Add &add, const fi_info *) {
    add_domain(add(FI_EP_MSG), "eth0", "10.0.0.0/24", "10.0.0.2");
    add_domain(add(FI_EP_MSG), "docker0", "172.17.0.0/16", "172.17.0.1");
    add_domain(add(FI_EP_MSG), "eth0", "10.0.0.0/24", "10.0.0.2");  // twice: the core tells it once
  };
  *state = &state_of_units;
  return 0;
}

const weft_provider_unit kBroken = {
    sizeof kBroken, 0, [](const weft_instance *, weft_provider *, weft_error *why) -> int32_t {
      std::snprintf(why->text, sizeof why->text, "the adapter is on fire");
      return -FI_EIO;
    }};

const weft_unit *const *units() {
  static const weft_unit tcp = toys::provider("tcp");
  static const weft_unit udp = [] {
    weft_unit unit = toys::provider("udp");
    unit.offers_ep = WEFT_EP_BIT(FI_EP_DGRAM);
    unit.rank = 400;
    return unit;
  }();
  static const char *const devices[] = {"path:/nonexistent/uverbs*"};
  static const weft_unit verbs = [] {
    weft_unit unit = toys::provider("verbs");
    unit.rank = 900;
    unit.devices = devices;
    unit.device_count = 1;
    return unit;
  }();
  static const weft_unit broken = [] {
    weft_unit unit = toys::provider("broken");
    unit.rank = 100;
    unit.maturity = WEFT_MATURITY_EXPERIMENTAL;
    unit.provider = &kBroken;
    return unit;
  }();
  static const weft_unit rxm = toys::layer();
  static const weft_unit link = [] {
    weft_unit unit = toys::fork("link", 2, 3);
    unit.needs_ep |= WEFT_EP_BIT(FI_EP_DGRAM);
    return unit;
  }();
  static const weft_unit *const all[] = {
      &tcp, &udp, &verbs, &broken, &rxm, &link, toys::Trace::unit(), toys::Profile::unit()};
  return all;
}

}  // namespace

extern "C" WEFT_EXPORT const weft_plugin_desc *weft_plugin_query(const weft_offer *, weft_error *) {
  static const weft_plugin_desc desc = [] {
    weft_plugin_desc made{};
    made.magic = WEFT_DESC_MAGIC;
    made.struct_size = sizeof made;
    made.abi_major = WEFT_ABI_MAJOR;
    made.abi_minor = WEFT_ABI_MINOR;
    made.name = "toys";
    made.vendor = "weft";
    made.version = "1.0";
    made.license = "BSD-2-Clause";
    made.units = units();
    made.unit_count = 8;
    made.init = init;
    return made;
  }();
  return &desc;
}
