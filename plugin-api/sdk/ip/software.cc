// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/ip/software.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/progress/progress.h>

namespace weft::sdk {
namespace {

constexpr size_t kManyObjects = 1 << 20;  // as many as memory and descriptors allow

}  // namespace

Result<void> fill_software_info(fi_info &info, const IpPath &path, const GetinfoQuery &query,
                                const SoftwareOffer &offer) {
  // Connected endpoints have no address vectors.
  const uint64_t vectors = offer.type == FI_EP_MSG ? 0 : uint64_t(FI_SHARED_AV);
  info.caps = offer.transmit_caps | offer.receive_caps | FI_LOCAL_COMM | FI_REMOTE_COMM | vectors;
  info.tx_attr->caps = offer.transmit_caps;
  info.rx_attr->caps = offer.receive_caps;
  WEFT_CHECK(set_path(info, path, query.hints));
  WEFT_TRY(info.tx_attr->tclass, offered_class("tx_attr.tclass", tx_hints(query.hints).tclass));

  info.ep_attr->type = offer.type;
  info.ep_attr->tx_ctx_cnt = 1;
  info.ep_attr->rx_ctx_cnt = 1;

  WEFT_CHECK(set_string(info.domain_attr->name, path.domain));
  fill_software_domain(*info.domain_attr, query, offer.mr_mode);
  if (query.hints != nullptr && query.hints->domain_attr != nullptr) {
    WEFT_TRY(info.domain_attr->tclass,
             offered_class("domain_attr.tclass", query.hints->domain_attr->tclass));
  }
  info.domain_attr->caps |= (offer.receive_caps & (FI_AV_USER_ID | FI_PEER)) | vectors;

  WEFT_CHECK(set_string(info.fabric_attr->name, path.fabric));
  info.fabric_attr->prov_version = offer.version;
  info.fabric_attr->api_version = query.api_version;
  return {};
}

void fill_software_domain(fi_domain_attr &domain, const GetinfoQuery &query, int mr_mode) {
  const fi_domain_attr none{};
  const fi_domain_attr &wanted = query.hints != nullptr && query.hints->domain_attr != nullptr
                                     ? *query.hints->domain_attr
                                     : none;
  domain.caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
  domain.threading = FI_THREAD_SAFE;
  domain.control_progress = offered_progress(wanted.control_progress);
  domain.data_progress = offered_progress(wanted.data_progress);
  domain.resource_mgmt = FI_RM_ENABLED;
  domain.av_type = FI_AV_UNSPEC;  // either
  // The old words for all of the bits mean something by themselves.
  domain.mr_mode = wanted.mr_mode == FI_MR_BASIC || wanted.mr_mode == FI_MR_SCALABLE
                       ? wanted.mr_mode
                       : wanted.mr_mode & mr_mode;
  domain.mr_key_size = sizeof(uint64_t);
  domain.mr_iov_limit = 1;
  domain.mr_cnt = SIZE_MAX;
  domain.cq_cnt = kManyObjects;
  domain.ep_cnt = kManyObjects;
  domain.tx_ctx_cnt = kManyObjects;
  domain.rx_ctx_cnt = kManyObjects;
  domain.cntr_cnt = kManyObjects;
  domain.max_ep_tx_ctx = 1;
  domain.max_ep_rx_ctx = 1;
  domain.max_cntr_value = UINT64_MAX;
  domain.max_err_cntr_value = UINT64_MAX;
}

}  // namespace weft::sdk
