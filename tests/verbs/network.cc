// SPDX-License-Identifier: BSD-2-Clause
#include "tests/verbs/network.h"

#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

namespace weft::conformance {
namespace {

using verbs_double::Device;
using verbs_double::DeviceOptions;
using verbs_double::Network;
using verbs_double::NetworkOptions;
using verbs_double::Progress;

NetworkOptions options() {
  NetworkOptions options;
  const char *const progress = std::getenv("WEFT_TEST_PROGRESS");
  if (progress == nullptr || std::string(progress) == "at_once") return options;
  if (std::string(progress) != "thread")
    throw std::runtime_error(std::string("WEFT_TEST_PROGRESS=") + progress);
  options.progress = Progress::kByThread;
  return options;
}

class Host {
 public:
  Host() : network(options()) {
    add({.name = "dbl0", .addresses = {kAddress, "fd99::1"}});
    add({.name = "dbl1", .addresses = {kOther}});
    add({.name = "plain",
         .addresses = {kPlain},
         .limits = {.max_inline = 0},
         .features = {.srq = false, .atomics = false}});
    add({.name = "small",
         .addresses = {kSmall},
         .limits = {.max_qp_wr = 16, .max_sge = 2, .max_cqe = 64, .max_srq_wr = 16}});
    add({.name = "mortal", .addresses = {kMortal}});
    add({.name = "narrow", .addresses = {kNarrow}, .mtu = IBV_MTU_1024});
  }
  Device &at(const std::string &address) { return *devices_.at(address); }

  Network network;

 private:
  void add(DeviceOptions options) {
    const char *const transport = std::getenv("WEFT_TEST_TRANSPORT");
    options.iwarp = transport != nullptr && std::string(transport) == "iwarp";
    options.features.reads_first = !options.iwarp;  // as siw of Linux 6.1
    devices_[options.addresses.front()] = &network.add(options);
  }
  std::map<std::string, Device *> devices_;
};

Host &host() {
  static Host host;
  return host;
}

}  // namespace

Network &network() {
  return host().network;
}
Device &device(const char *address) {
  return host().at(address);
}

std::string network_trouble() {
  static std::set<std::string> told;
  host().network.clear_faults();
  std::string trouble = host().network.open_objects();
  if (!trouble.empty()) trouble = "open: " + trouble + '\n';
  for (const std::string &complaint : host().network.complaints())
    if (told.insert(complaint).second) trouble += complaint + '\n';
  return trouble;
}

}  // namespace weft::conformance
