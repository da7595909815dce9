// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/promises/asked.h"

namespace weft::conformance::promises {

Alone::Alone(const Options &wanted) : Application(wanted) {
  const bool is_connected = options.type == FI_EP_MSG;
  const Info found = find_info(options, is_connected ? 0 : FI_SOURCE);
  open_fabric(found.get());
  if (!is_connected) {
    fi_av_attr attr{};
    attr.type =
        info->domain_attr->av_type == FI_AV_UNSPEC ? FI_AV_TABLE : info->domain_attr->av_type;
    must(fi_av_open(domain, &attr, av.out(), nullptr));
  }
  open_queues();
  must(fi_endpoint(domain, info.get(), ep.out(), this));
  bind_queues();
}

}  // namespace weft::conformance::promises
