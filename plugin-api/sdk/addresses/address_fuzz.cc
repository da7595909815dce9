// SPDX-License-Identifier: BSD-2-Clause
// Text from users and peers that becomes an address or an interface filter.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

#include "weft/sdk/addresses/address.h"
#include "weft/sdk/addresses/host_name.h"
#include "weft/sdk/ip/interfaces.h"
#include "weft/sdk/ip/sock_addr.h"

namespace {

void require(bool condition, const char *what) {
  if (condition) return;
  std::fprintf(stderr, "address_fuzz: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace weft::sdk;
  const std::string_view text(reinterpret_cast<const char *>(data), size);

  if (const auto address = read_address(FI_ADDR_STR, data, size)) {
    const std::string again = format_address_string(*address);
    const auto same = read_address(FI_ADDR_STR, again.c_str());
    require(same.has_value() && *same == *address, "formatting an address changes it");
  }
  if (const auto ip = SockAddr::from_ip(text, 7)) {
    const auto same = SockAddr::from_ip(ip->ip(), 7);
    require(same.has_value() && *same == *ip, "printing an address changes it");
  }
  for (const uint32_t format :
       std::initializer_list<uint32_t>{FI_SOCKADDR, FI_SOCKADDR_IP, FI_SOCKADDR_IN, FI_SOCKADDR_IN6,
                                       FI_SOCKADDR_IB, FI_ADDR_IB_UD, FI_ADDR_CXI, kHostName}) {
    const auto address = read_address(format, data, size);
    if (!address) {
      require(!address.error().text.empty(), "an address is refused without a reason");
      continue;
    }
    require(address->size() <= size, "an address is longer than its bytes");
    require(!address->to_string().empty(), "an address has no text");
    const auto again = read_address(address->format(), address->data(), address->size());
    require(again.has_value() && *again == *address && again->hash() == address->hash(),
            "writing an address changes it");
    const auto text = read_address(FI_ADDR_STR, format_address_string(*address).c_str());
    require(text.has_value() && *text == *address, "the text of an address is another address");
    if (address->has_port()) {
      const auto moved = address->with_port(uint16_t(address->port() + 1));
      require(moved.has_value() && *moved != *address && moved->host().size() != 0 &&
                  moved->same_prefix(*address, unsigned(8 * moved->host().size())),
              "another port makes another host");
    }
  }
  const std::vector<std::string> patterns{std::string(text)};
  if (const auto filter = InterfaceFilter::parse(patterns)) {
    Interface eth0;
    eth0.name = "eth0";
    eth0.address = SockAddr::loopback(AF_INET);
    eth0.up = eth0.running = true;
    const InterfaceRanking ranking = rank_interfaces({&eth0, 1}, *filter);
    require(ranking.used.size() + ranking.left_out.size() == 1, "an interface got lost");
    require(ranking.used.empty() != ranking.nothing.empty(),
            "nothing is used, and nobody says why");
  }
  return 0;
}
