// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/objects/domain.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/objects/sets.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/opening.h>

#include <cstring>

namespace weft::sdk {
namespace {

// The fi_control() command by which a domain of the same provider is asked for its DomainCore.
constexpr int kGetDomain = -0x77656679;

// For the checks of contexts (opening.h), where the core makes them.
fi_info *copy_of(const fi_info *info, const weft_core_services &core) {
  return info != nullptr && checks_openings(core) ? core.info_dup(info) : nullptr;
}

}  // namespace

DomainSettings DomainSettings::of(const fi_info &info, uint32_t api_version, size_t default_cq_size,
                                  const MrTable::Mode &mr) {
  return {.api_version = api_version,
          .locked = needs_lock(info),
          .resource_management = info.domain_attr->resource_mgmt != FI_RM_DISABLED,
          .default_cq_size = default_cq_size,
          // As a capability of the domain (since 1.20) or of endpoints.
          .user_ids = ((info.caps | info.domain_attr->caps) & FI_AV_USER_ID) != 0,
          .hmem = ((info.caps | info.domain_attr->caps) & FI_HMEM) != 0,
          .mr = mr,
          .info = &info};
}

DomainCore::DomainCore(const weft_instance *instance, struct fid *fid,
                       const DomainSettings &settings, Memory &memory)
    : engine_(settings.locked),
      opened_with_(instance->core, copy_of(settings.info, *instance->core)),
      memory_(memory) {
  engine_.yield_after(Engine::reads_of_a_turn(instance));
  shared_.instance = instance;
  shared_.fid = fid;
  shared_.engine = &engine_;
  shared_.api_version = settings.api_version;
  shared_.resource_management = settings.resource_management;
  shared_.default_cq_size = settings.default_cq_size;
  shared_.user_ids = settings.user_ids;
  shared_.hmem = settings.hmem;
  shared_.deferred = &deferred_;
}

Result<void> DomainCore::join(DomainCore &origin) {
  shared_.origin = &origin.shared_;
  if (shared_.regions != nullptr) shared_.regions->borrow_from(*origin.shared_.regions);
  return {};
}

int DomainCore::cq_open(struct fi_cq_attr *attr, struct fid_cq **cq, void *context) {
  if (cq == nullptr) return -FI_EINVAL;
  return finish(shared_.instance, FI_LOG_CQ, Cq::open(shared_, attr, context), cq);
}

int DomainCore::cntr_open(struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context) {
  if (cntr == nullptr) return -FI_EINVAL;
  return finish(shared_.instance, FI_LOG_CNTR, Cntr::open(shared_, attr, context), cntr);
}

int DomainCore::poll_open(struct fi_poll_attr *attr, struct fid_poll **set) {
  if (set == nullptr) return -FI_EINVAL;
  return finish(shared_.instance, FI_LOG_DOMAIN, PollSet::open(shared_, attr), set);
}

int DomainCore::control(int command, void *arg) {
  switch (command) {
    case FI_MAP_RAW_MR:
      return MrTable::map_raw(static_cast<const struct fi_mr_map_raw *>(arg));
    case WEFT_JOIN_DOMAIN:
      return join_domain(static_cast<fid_domain *>(arg));
    case WEFT_READ_BY_LAYER:
      shared_.read_by_layer = true;
      engine().yield_after(0);
      return 0;
    case kGetDomain:
      if (arg == nullptr) return -FI_EINVAL;
      *static_cast<DomainCore **>(arg) = this;
      return 0;
    case FI_UNMAP_KEY:  // nothing was made
      return arg != nullptr ? 0 : -FI_EINVAL;
    default:
      return shared_.deferred != nullptr ? shared_.deferred->control(command, arg) : -FI_ENOSYS;
  }
}

// A layer made this domain to be beneath a lane of its own domain, whose inner domain is `origin`.
int DomainCore::join_domain(fid_domain *origin) {
  DomainCore *core = nullptr;
  if (origin == nullptr || header_of(&origin->fid)->instance != shared_.instance ||
      fi_control(&origin->fid, kGetDomain, &core) != 0 || core == this)
    return -FI_EINVAL;
  return join(*core) ? 0 : -FI_EINVAL;
}

int DomainCore::reg(const void *buf, size_t len, uint64_t access, uint64_t offset,
                    uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context) {
  const iovec iov{const_cast<void *>(buf), len};
  return regv(&iov, 1, access, offset, requested_key, flags, mr, context);
}

int DomainCore::regv(const struct iovec *iov, size_t count, uint64_t access, uint64_t offset,
                     uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context) {
  const fi_mr_attr attr{.mr_iov = iov,
                        .iov_count = count,
                        .access = access,
                        .offset = offset,
                        .requested_key = requested_key,
                        .context = context};
  return regattr(&attr, flags, mr);
}

int DomainCore::regattr(const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **mr) {
  if (attr == nullptr || mr == nullptr) return -FI_EINVAL;
  // The struct grew: the key with API 1.5, where memory is with 1.9, the rest with 2.0.
  const auto since = [this](uint32_t major, uint32_t minor) {
    return FI_VERSION_GE(shared_.api_version, FI_VERSION(major, minor));
  };
  fi_mr_attr whole{.mr_iov = attr->mr_iov,
                   .iov_count = attr->iov_count,
                   .access = attr->access,
                   .offset = attr->offset,
                   .requested_key = attr->requested_key,
                   .context = attr->context};
  if (since(1, 5)) {
    whole.auth_key_size = attr->auth_key_size;
    whole.auth_key = attr->auth_key;
  }
  if (shared_.hmem && since(1, 9)) {
    std::memcpy(&whole.iface, &attr->iface, sizeof whole.iface);  // it may be any number
    whole.device = attr->device;
    if (since(1, 20)) whole.hmem_data = attr->hmem_data;
  }
  if (since(2, 0)) {
    whole.page_size = attr->page_size;
    whole.base_mr = attr->base_mr;
    whole.sub_mr_cnt = attr->sub_mr_cnt;
  }
  if (hmem_ != nullptr && whole.iov_count == 1 && whole.mr_iov != nullptr) {
    if (const auto place = hmem_->check(whole, flags); !place) {
      WEFT_WARN(shared_.instance, FI_LOG_MR, "%s", place.error().text.c_str());
      return -place.error().code;
    }
    flags &= ~uint64_t(FI_HMEM_DEVICE_ONLY);
  }
  Result<fid_mr *> opened = memory_.open(whole, flags);
  if (!opened) {
    WEFT_WARN(shared_.instance, FI_LOG_MR, "%s", opened.error().text.c_str());
    return -opened.error().code;
  }
  *mr = *opened;
  if (memory_.eq != nullptr) memory_.eq->push(FI_MR_COMPLETE, &(*mr)->fid, (*mr)->key);
  return 0;
}

int DomainCore::bind_eq(struct fid *fid, uint64_t flags) {
  if (!Eq::is_mine(fid, FI_CLASS_EQ, shared_.instance)) return -FI_EINVAL;
  if (flags & ~FI_REG_MR) return -FI_EBADFLAGS;
  if (flags == 0) return 0;  // nothing else of a domain is asynchronous here
  if (memory_.eq != nullptr) return -FI_EBUSY;
  memory_.eq = Eq::from(fid);
  memory_.eq->users.fetch_add(1);
  return 0;
}

void DomainCore::unbind() {
  if (memory_.eq != nullptr) memory_.eq->users.fetch_sub(1);
  memory_.eq = nullptr;
}

}  // namespace weft::sdk
