// SPDX-License-Identifier: BSD-2-Clause
// The XRC form of a shared receive context.
#include <weft/sdk/memory/iov.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "plugins/verbs/cq.h"
#include "plugins/verbs/shared_receive.h"
#include "plugins/verbs/xrc_domain.h"

namespace weft::verbs {

Result<void> SharedReceive::start_xrc(CompletionQueue &queue) {
  if (!is_xrc_)
    return fail(FI_EINVAL, "fi_enable: the shared receive context is not of a domain with XRC");
  if (queue_ == &queue) return {};
  if (queue_ != nullptr)
    return fail(
        FI_EINVAL,
        "fi_enable: the shared receive context reports to another completion queue: with XRC "
        "all endpoints of a context have one");
  const DeviceFacts &facts = domain_.device().facts;
  ibv_srq_init_attr_ex init{};
  init.attr.max_wr = uint32_t(size());
  init.attr.max_sge =
      uint32_t(std::min({domain_.settings().sizes.rx_iov, facts.max_shared_sges, sdk::kIovLimit}));
  init.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  init.srq_type = IBV_SRQT_XRC;
  init.pd = domain_.pd();
  init.xrcd = domain_.xrc()->c();
  init.cq = queue.c();
  ibv_srq *const srq = ibv_create_srq_ex(domain_.device().verbs, &init);
  if (srq == nullptr)
    return fail(errno, "fi_enable: ibv_create_srq_ex of %zu entries on %s: %s", size(),
                facts.name.c_str(), strerror(errno));
  if (const int error = ibv_get_srq_num(srq, &number_); error != 0) {
    ibv_destroy_srq(srq);
    return fail(error, "fi_enable: ibv_get_srq_num on %s: %s", facts.name.c_str(), strerror(error));
  }
  sdk::Guard guard(lock_);
  srq_ = srq;
  while (early_ != nullptr) {
    if (const ssize_t rc = post(*early_); rc != 0) {
      ibv_destroy_srq(srq);
      srq_ = nullptr;
      return fail(int(-rc), "fi_enable: ibv_post_srq_recv on %s: %s", facts.name.c_str(),
                  strerror(int(-rc)));
    }
    early_ = early_->next;
  }
  last_early_ = nullptr;
  queue_ = &queue;
  return {};
}

}  // namespace weft::verbs
