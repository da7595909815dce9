// SPDX-License-Identifier: BSD-2-Clause
// An endpoint's life: opening, its PID and portals, progress, closing.
#include <poll.h>
#include <weft/sdk/addresses/auth.h>
#include <weft/sdk/objects/alias.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "plugins/cxi/endpoint.h"
#include "plugins/cxi/info.h"
#include "plugins/cxi/region.h"

namespace weft::cxi {
namespace {

constexpr uint64_t kLingerNs = 1'000'000'000;

bool is_rnr(const fi_info &info) {
  return info.ep_attr->protocol == FI_PROTO_CXI_RNR;
}

CxiEndpoint::Path path_of(const fi_info &info) {
  uint32_t tclass = info.tx_attr != nullptr ? info.tx_attr->tclass : uint32_t(FI_TC_UNSPEC);
  if (tclass == FI_TC_UNSPEC) tclass = info.domain_attr->tclass;
  return {sdk::order_of(info), traffic_of(tclass).value_or(TrafficClass::kBestEffort)};
}

Protocol protocol_of(const fi_info &info, const Domain &domain) {
  if (!is_rnr(info)) return {};
  return domain.has_vector_keys() ? Protocol::rnr_of_vnis() : Protocol::rnr(domain.vni());
}

bool wants_sources(const fi_info &info) {
  return info.caps & (FI_SOURCE | FI_SOURCE_ERR | FI_DIRECTED_RECV);
}

}  // namespace

CxiEndpoint::CxiEndpoint(Domain &domain, const fi_info &info, Pid pid, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      RdmEndpoint(domain.shared(), *this, info,
                  {.tx_size = domain.settings().tx_size,
                   .rx_size = domain.settings().rx_size,
                   .inject_size = is_rnr(info) ? 0 : kInjectSize,
                   .max_msg_size = kMaxMessageSize,
                   .atomic_size = kAtomicSize}),
      domain_(domain),
      addr_format_(info.addr_format == FI_ADDR_OPX ? uint32_t(FI_ADDR_CXI) : info.addr_format),
      path_(path_of(info)),
      protocol_(protocol_of(info, domain)),
      wanted_pid_(pid),
      sources_(wants_sources(info), domain.device().facts()),
      transmit_(ports_, domain.engine(), tx(), domain.settings(), domain.counters(),
                limits().tx_size, protocol_.is_rnr),
      inbox_(ports_, receiver(), domain.engine(), sources_, domain.settings(), domain.counters(),
             protocol_, domain.instance()),
      control_(ports_, domain.engine(), domain.settings(), transmit_, inbox_),
      collectives_(*this, ports_, domain.engine(), tx(), domain.settings(), domain.counters()) {
  sdk::fill_tables(*this);
  transmit_.set_partners(control_, domain.deferred());
  inbox_.set_control(control_);
  ports_.lni = &domain.lni();
  ports_.all = domain.all_memory();
  ports_.devices = domain.devices();
  ports_.nid = domain.device().facts().nid;
  ports_.counts_successes_alone = domain.device().facts().counts_successes_alone;
  ports_.profile = {.vni = domain.vni(), .traffic = path_.traffic};
}

// Of an endpoint with the keys of its address vector.
Result<void> CxiEndpoint::check_own_key(const fi_info &info) {
  const fi_ep_attr &ep = *info.ep_attr;
  if (ep.auth_key == nullptr && (ep.auth_key_size == 0 || ep.auth_key_size == FI_AV_AUTH_KEY))
    return {};
  return fail(
      FI_EINVAL,
      "fi_endpoint: ep_attr.auth_key: the domain has FI_AV_AUTH_KEY, so an endpoint has the "
      "keys of its address vector (fi_av_insert_auth_key); make it NULL");
}

Result<CxiEndpoint *> CxiEndpoint::open(Domain &domain, const fi_info &info, void *context) {
  if (info.ep_attr->type != FI_EP_RDM && info.ep_attr->type != FI_EP_UNSPEC)
    return fail(FI_ENOSYS, "fi_endpoint: cxi has endpoints of the type FI_EP_RDM");
  if (info.ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT ||
      info.ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT)
    return fail(FI_ENOSYS, "fi_endpoint: cxi has no shared contexts");
  if (info.tx_attr != nullptr && info.tx_attr->size > kMaxTxSize)
    return fail(FI_EINVAL, "fi_endpoint: a transmit queue of %zu: at most %zu", info.tx_attr->size,
                kMaxTxSize);
  if (info.rx_attr != nullptr && info.rx_attr->size > kMaxRxSize)
    return fail(FI_EINVAL, "fi_endpoint: a receive queue of %zu: at most %zu", info.rx_attr->size,
                kMaxRxSize);
  if (domain.has_vector_keys()) {
    WEFT_CHECK(check_own_key(info));
    if (info.caps & kOneVniCaps)
      return fail(FI_EINVAL,
                  "fi_endpoint: with FI_AV_AUTH_KEY cxi has no FI_DIRECTED_RECV and no "
                  "FI_COLLECTIVE: pass an info of fi_getinfo with that auth_key_size");
  } else if (sdk::has_auth_keys(domain.shared().api_version)) {
    WEFT_TRY(const auto key,
             auth_key_of("ep_attr", info.ep_attr->auth_key, info.ep_attr->auth_key_size));
    if (key && *key != domain.key())
      return fail(FI_EINVAL,
                  "fi_endpoint: ep_attr.auth_key is service %u, VNI %u, and the domain has service "
                  "%u, VNI %u: open a domain with that key",
                  key->service, key->vni, domain.key().service, domain.key().vni);
  }
  Pid pid = kAnyPid;
  if (info.src_addr != nullptr) {
    WEFT_TRY(const sdk::Address address,
             sdk::read_address(FI_ADDR_CXI, info.src_addr, info.src_addrlen));
    const Peer own = peer_of(address);
    if (own.nid != 0 && own.nid != domain.device().facts().nid)
      return fail(FI_EINVAL, "fi_endpoint: src_addr %s is of another NIC than %s",
                  address.to_string().c_str(), domain.device().facts().name.c_str());
    pid = own.pid;
  }
  std::unique_ptr<CxiEndpoint, void (*)(CxiEndpoint *)> endpoint(
      new CxiEndpoint(domain, info, pid, context), [](CxiEndpoint *e) { delete e; });
  WEFT_CHECK(endpoint->publish(domain.base()));
  domain.shared().children.fetch_add(1);
  const sdk::Guard guard(domain.engine().lock());
  domain.add(*endpoint);
  return endpoint.release();
}

// A counter of what peers do may come late: from now on the regions tell of it.
int CxiEndpoint::bind(struct fid *fid, uint64_t flags) {
  const int rc = bind_object(fid, flags);
  if (rc != 0 || fid->fclass != FI_CLASS_CNTR) return rc;
  const sdk::Guard guard(lock());
  for (Region *const region : regions_) region->refresh();
  for (Region *const window : windows_) window->refresh();
  return 0;
}

Result<void> CxiEndpoint::open_window(uint64_t key) {
  const auto found = std::ranges::find(windows_, key, &Region::key);
  if (found != windows_.end()) return {};
  WEFT_TRY(Region *const window, Region::open_window(domain_, *this, key));
  windows_.push_back(window);
  return {};
}

int CxiEndpoint::control(int command, void *arg) {
  if (command == FI_ALIAS) return sdk::Alias<CxiEndpoint>::open(*this, arg);
  if (command == FI_SET_VAL) return set_value(static_cast<const fi_fid_var *>(arg));
  if (command != FI_ENABLE) return control_flags(command, arg, kSendFlags);
  const sdk::Guard guard(lock());
  const auto done = enable();
  if (done) return 0;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
  return -done.error().code;
}

int CxiEndpoint::set_value(Path &path, const fi_fid_var *var) {
  if (var == nullptr || var->val == nullptr) return -FI_EINVAL;
  if (var->name == FI_OPT_CXI_SET_TCLASS) {
    const auto traffic = traffic_of(*static_cast<const uint32_t *>(var->val));
    if (!traffic) return -FI_EINVAL;
    const sdk::Guard guard(lock());
    if (!transmit_.allows({ports_.profile.vni, *traffic, ProfileType::kDefault})) return -FI_EINVAL;
    path.traffic = *traffic;
    return 0;
  }
  if (var->name == FI_OPT_CXI_SET_MSG_ORDER) {
    const uint64_t order = *static_cast<const uint64_t *>(var->val);
    if (order & ~kOrder) return -FI_EINVAL;
    const sdk::Guard guard(lock());
    path.order = order;
    return 0;
  }
  return set_value(var);
}

int CxiEndpoint::set_value(const fi_fid_var *var) {
  if (var == nullptr || var->val == nullptr) return -FI_EINVAL;
  if (var->name != FI_OPT_CXI_SET_RNR_MAX_RETRY_TIME) return -FI_ENOSYS;
  if (!protocol_.is_rnr) return -FI_EINVAL;
  const sdk::Guard guard(lock());
  transmit_.set_retry_time(*static_cast<const uint64_t *>(var->val) * 1000);
  return 0;
}

// The options of FI_HMEM, and those of all endpoints.
int CxiEndpoint::getopt(int level, int name, void *value, size_t *length) {
  if (level == FI_OPT_ENDPOINT && domain_.devices() != nullptr) {
    const sdk::Guard guard(lock());
    const int rc = hmem_options_.get(&domain_.devices()->hmem(), name, value, length);
    if (rc != -FI_ENOPROTOOPT) return rc;
  }
  return RdmEndpoint::getopt(level, name, value, length);
}

int CxiEndpoint::setopt(int level, int name, const void *value, size_t length) {
  if (level == FI_OPT_ENDPOINT && domain_.devices() != nullptr) {
    const sdk::Guard guard(lock());
    const int rc = hmem_options_.set(&domain_.devices()->hmem(), name, value, length);
    if (rc != -FI_ENOPROTOOPT) return rc;
  }
  return RdmEndpoint::setopt(level, name, value, length);
}

// ---- the PID ----

// Whichever comes first, fi_getname or fi_enable, takes the PID.
Result<void> CxiEndpoint::claim_pid() {
  if (ports_.has_pid()) return {};
  if (!domain_.has_vector_keys()) return ports_.claim({ports_.profile.vni}, wanted_pid_);
  WEFT_TRY(const std::vector<Vni> vnis, hold_keys());
  ports_.lni = &domain_.lni();  // a key may have changed its service
  ports_.all = domain_.all_memory();
  ports_.profile.vni = vnis.front();
  return ports_.claim(vnis, wanted_pid_);
}

// fi_enable: those of now are the endpoint's for its life (fi_av.3).
Result<std::vector<Vni>> CxiEndpoint::hold_keys() {
  std::vector<Vni> vnis;
  for (const sdk::AvKey &key : av()->keys()) {
    if (key.bytes.empty()) continue;
    vnis.push_back(VectorKeys::vni_of(key.bytes));
    keys_.push_back(key.bytes);
  }
  if (vnis.empty())
    return fail(FI_ENOKEY,
                "fi_enable: the endpoint's address vector has no key: call fi_av_insert_auth_key "
                "before");
  av()->hold_keys();
  return vnis;
}

void CxiEndpoint::release_keys() {
  for (const sdk::AuthKey &key : std::exchange(keys_, {})) av()->release_key(key);
}

int CxiEndpoint::getname(void *addr, size_t *len) {
  const sdk::Guard guard(lock());
  if (domain_.has_vector_keys() && !enabled()) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL,
              "fi_getname: an endpoint with the keys of its address vector has its address from "
              "fi_enable on");
    return -FI_EOPBADSTATE;
  }
  if (const auto claimed = claim_pid(); !claimed) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_getname: %s", claimed.error().text.c_str());
    return -claimed.error().code;
  }
  return sdk::write_address(address_of({ports_.nid, ports_.pid()}, domain_.device().facts().host),
                            addr_format_, addr, len);
}

int CxiEndpoint::setname(void *addr, size_t len) {
  const auto address = sdk::read_address(addr_format_, addr, len);
  if (!address) return -address.error().code;
  const Peer own = peer_of(*address);
  if (own.nid != 0 && own.nid != ports_.nid) return -FI_EADDRNOTAVAIL;
  const sdk::Guard guard(lock());
  if (enabled()) return -FI_EOPBADSTATE;
  ports_.endpoints.clear();
  wanted_pid_ = own.pid;
  return 0;
}

// ---- enabling ----

Result<void> CxiEndpoint::enable() {
  if (enabled()) return {};
  WEFT_CHECK(check_bindings());
  if (auto claimed = claim_pid(); !claimed) {
    release_keys();
    return claimed;
  }
  sources_.set_av(av());
  if (auto opened = open_portals(); !opened) {
    close_portals();
    return opened;
  }
  av()->add_user(*this, true);
  name_ourselves(sources_.rank_of_peer(ports_.self(), 0));
  set_enabled();
  domain_.engine().add_poller(*this);
  for (Region *const region : regions_)
    if (auto linked = region->link(); !linked) {
      WEFT_WARN(instance(), FI_LOG_MR, "fi_enable: %s", linked.error().text.c_str());
      region->unlink();
    }
  return {};
}

Result<void> CxiEndpoint::open_portals() {
  WEFT_CHECK(transmit_.open(true));
  WEFT_CHECK(control_.open(true, domain_.regions().match_events));
  if (caps() & FI_COLLECTIVE) WEFT_CHECK(collectives_.open());
  return inbox_.open(true, domain_.device().facts().max_list_entries);
}

void CxiEndpoint::close_portals() {
  inbox_.close();
  if (collectives_.is_open()) collectives_.close();
  control_.close();
  transmit_.close();
  ports_.endpoints.clear();
  release_keys();
}

// ---- progress ----

void CxiEndpoint::send_held_back() {
  if (!std::exchange(holds_back_, false)) return;
  transmit_.flush();
  domain_.device().push();
}

void CxiEndpoint::on_poll() {
  send_held_back();
  bool any = transmit_.read_events();
  any |= inbox_.read_events();
  any |= control_.read_events();
  if (collectives_.is_open()) any |= collectives_.read_events();
  if (any) domain_.device().push();  // what was answered
}

// In a call of the application.
void CxiEndpoint::make_progress() {
  transmit_.flush();
  domain_.poll_device();
  on_poll();
}

int CxiEndpoint::wait_fds(std::vector<int> &fds) {
  for (EventQueue *const events : {&transmit_.events(), &inbox_.events(), &control_.events()}) {
    if (events->wait_fd() < 0) return -FI_EMFILE;
    fds.push_back(events->wait_fd());
  }
  if (!collectives_.is_open()) return 0;
  if (collectives_.events().wait_fd() < 0) return -FI_EMFILE;
  fds.push_back(collectives_.events().wait_fd());
  return 0;
}

// Events that have to wait until the application reads its completions wake nobody.
bool CxiEndpoint::may_wait() {
  send_held_back();
  bool armed = control_.events().arm();
  if (collectives_.is_open()) armed &= collectives_.events().arm();
  if (!tx().is_full()) armed &= transmit_.events().arm();
  if (!receiver().is_full()) armed &= inbox_.events().arm();
  return armed;
}

// ---- the address vector ----

// `rank`: our index in symmetric vectors, or kNone.
void CxiEndpoint::name_ourselves(uint32_t rank) {
  const Peer self = ports_.self();
  rank_ = rank;
  ports_.sender = rank != sdk::Av::kNone ? self.initiator_as(rank) : self.initiator();
}

void CxiEndpoint::on_av_removed(uint32_t index) {
  if (index == rank_) name_ourselves(sources_.rank_of_peer(ports_.self(), index + 1));
  if (!sources_.wanted()) return;
  const auto address = av()->address(index);
  if (address) receiver().rename_source(index, sources_.on_removed(*address));
}

void CxiEndpoint::on_av_inserted(uint32_t index, const sdk::Address &address) {
  if (sources_.by_rank() && index < rank_ && peer_of(address) == ports_.self() && index <= kMaxRank)
    name_ourselves(index);
  if (const auto number = sources_.on_inserted(address)) receiver().rename_source(*number, index);
}

// Of a sender that is not in the address vector: its key, so that it can be inserted.
fi_addr_t CxiEndpoint::source_key(const sdk::Message &message) {
  const auto stranger = sources_.stranger_of(message.source);
  const std::vector<sdk::AvKey> &keys = av()->keys();
  for (uint32_t i = 0; i < keys.size() && stranger; ++i)
    if (VectorKeys::vni_of(keys[i].bytes) == stranger->vni) return av()->reported_key(i);
  return FI_ADDR_NOTAVAIL;
}

// ---- the end ----

ssize_t CxiEndpoint::cancel(void *context) {
  const sdk::Guard guard(lock());
  const ssize_t rc = receiver().cancel(context);
  if (rc != -FI_ENOENT || !enabled() || context == nullptr) return rc;
  if (inbox_.cancel(context) || transmit_.cancel(context)) return 0;
  return domain_.deferred().cancel(transmit_, context);
}

ssize_t CxiEndpoint::tx_size_left() {
  const sdk::Guard guard(lock());
  return enabled() ? ssize_t(transmit_.left()) : -FI_EOPBADSTATE;
}

// What was injected is still to arrive, and what members of groups wait for, but not for ever.
void CxiEndpoint::linger() {
  const uint64_t end = sdk::now_ns() + kLingerNs;
  const auto has_sent = [this] { return !collectives_.is_open() || collectives_.has_sent(); };
  while ((transmit_.injected() != 0 || !has_sent()) && sdk::now_ns() < end) {
    transmit_.flush();
    domain_.poll_device();
    bool any = transmit_.read_events();
    if (collectives_.is_open()) any |= collectives_.linger();
    if (any) continue;
    pollfd descriptor{domain_.device().wait_fd(), POLLIN, 0};
    ::poll(&descriptor, 1, 1);
  }
}

int CxiEndpoint::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  {
    const sdk::Guard guard(lock());
    if (collectives_.has_groups()) return -FI_EBUSY;
  }
  retire();
  if (feeds_eq()) eq()->remove_source(domain_.engine(), true);
  {
    const sdk::Guard guard(lock());
    detach();
    domain_.deferred().forget(transmit_);
    if (enabled()) {
      linger();
      domain_.deferred().abandon(transmit_);
      for (Region *const region : regions_) region->unlink();
      for (Region *const window : std::exchange(windows_, {})) window->close_window();
      receiver().visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &message) {
        receiver().forget(message);
        discard(message);
      });
      domain_.poll_device();
    }
    for (Region *const region : regions_) region->forget_endpoint();
    if (enabled()) domain_.engine().remove_poller(*this);
    domain_.remove(*this);
    close_portals();
    domain_.deferred().abandon(*this);
    release(enabled() ? this : nullptr);
  }
  collectives_.wait_for_manager();
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

}  // namespace weft::cxi
