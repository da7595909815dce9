// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/objects/scalable.h>

#include <weft/sdk/addresses/av.h>
#include <weft/sdk/objects/endpoint.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/options.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <utility>

namespace weft::sdk {

namespace {

constexpr uint64_t kMessages = FI_MSG | FI_TAGGED, kMemory = FI_RMA | FI_ATOMIC;
constexpr uint64_t kTransmits = FI_SEND | FI_READ | FI_WRITE;
constexpr uint64_t kReceives = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV |
                               FI_DIRECTED_RECV | FI_SOURCE | FI_SOURCE_ERR | FI_RMA_EVENT |
                               FI_VARIABLE_MSG;
constexpr int kTries = 256;

// `caps` of one direction: `mine` of those of the endpoint, where a kind of transfer without a
// direction means both.
uint64_t one_side(uint64_t caps, uint64_t mine, uint64_t message, uint64_t memory) {
  uint64_t directions = caps & (message | memory);
  if ((caps & kMessages) != 0 && (caps & (FI_SEND | FI_RECV)) == 0) directions |= message;
  if ((caps & kMemory) != 0 &&
      (caps & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)) == 0)
    directions |= memory;
  uint64_t result = (caps & ~(kTransmits | kReceives | FI_TRIGGER)) | (caps & mine) | directions;
  // A kind without a direction would mean both again.
  if ((directions & message) == 0) result &= ~kMessages;
  if ((directions & memory) == 0) result &= ~kMemory;
  return result;
}

Result<void> at_most(const char *call, const char *what, uint64_t asked, uint64_t offered) {
  if (asked <= offered) return {};
  return fail(FI_EINVAL, "%s: %s is %llu; the endpoint has %llu", call, what,
              (unsigned long long)asked, (unsigned long long)offered);
}

Result<void> subset(const char *call, const char *what, uint64_t asked, uint64_t offered) {
  if ((asked & ~offered) == 0) return {};
  return fail(FI_EINVAL, "%s: %s has %#llx, which the scalable endpoint has not", call, what,
              (unsigned long long)(asked & ~offered));
}

void take_if_set(auto &member, auto value) {
  if (value != 0) member = value;
}

}  // namespace

// ---- lanes ----

void Lanes::give(const LaneMaker::Made &lane) {
  const std::lock_guard guard(mutex_);
  idle_.push_back(lane);
}

LaneMaker::Made Lanes::take() {
  const std::lock_guard guard(mutex_);
  if (idle_.empty()) return {};
  const LaneMaker::Made lane = idle_.back();
  idle_.pop_back();
  return lane;
}

void Lanes::close() {
  const std::lock_guard guard(mutex_);
  for (const LaneMaker::Made &lane : idle_) fi_close(&lane.domain->fid);
  idle_.clear();
}

struct ScalableEndpoint::Part {
  LaneMaker::Made made;
  Av *view = nullptr;
};

struct ScalableEndpoint::Context {
  Part *part = nullptr;
  fid_ep *ep = nullptr;  // valid until the application closes it
  Lane lane;
  bool given = false;  // the application has, or had, the endpoint

  // Ours, or the application's.
  fid_ep *endpoint() {
    if (given && !lane.open.load()) ep = nullptr;
    return ep;
  }
};

// ---- life ----

ScalableEndpoint::ScalableEndpoint(DomainContext &domain, Lanes &lanes, Maker maker, InfoList info,
                                   void *context)
    : Object(domain.instance, FI_CLASS_SEP, context),
      domain_(domain),
      lanes_(lanes),
      maker_(std::move(maker)),
      info_(std::move(info)),
      number_(next_endpoint_number()),
      receives_(std::max<size_t>(this->info().ep_attr->rx_ctx_cnt, 1)) {
  fill_tables(*this);
}

ScalableEndpoint::~ScalableEndpoint() {
  for (const auto &part : parts_) {
    if (part->view != nullptr) part->view->close_view();
    part->made.shared->lane = nullptr;
    lanes_.give(part->made);
  }
  if (av_ != nullptr) av_->users.fetch_sub(1);
}

Result<ScalableEndpoint *> ScalableEndpoint::open(DomainContext &domain, Lanes &lanes, Maker maker,
                                                  const fi_info &info, void *context) {
  if (info.ep_attr == nullptr || info.ep_attr->type != FI_EP_RDM)
    return fail(FI_ENOSYS, "fi_scalable_ep: scalable endpoints are FI_EP_RDM");
  for (const auto &[name, count] : {std::pair("tx_ctx_cnt", info.ep_attr->tx_ctx_cnt),
                                    std::pair("rx_ctx_cnt", info.ep_attr->rx_ctx_cnt)}) {
    if (count == FI_SHARED_CONTEXT)
      return fail(FI_ENOSYS,
                  "fi_scalable_ep: ep_attr.%s is FI_SHARED_CONTEXT: shared contexts are for "
                  "fi_endpoint",
                  name);
    if (count > kMaxContexts)
      return fail(FI_EINVAL, "fi_scalable_ep: ep_attr.%s is %zu: at most %zu", name, count,
                  kMaxContexts);
  }
  InfoList own(domain.instance->core);
  WEFT_CHECK(own.add_copy(&info));
  std::unique_ptr<ScalableEndpoint, void (*)(ScalableEndpoint *)> made(
      new ScalableEndpoint(domain, lanes, std::move(maker), std::move(own), context),
      [](ScalableEndpoint *object) { delete object; });
  if (info.src_addr != nullptr) {
    WEFT_TRY(made->local_, read_address(info.addr_format, info.src_addr, info.src_addrlen));
  }
  WEFT_CHECK(made->publish(domain.fid));
  domain.children.fetch_add(1);
  return made.release();
}

// Of a context that is not open: ours, if there is one.
void ScalableEndpoint::close_endpoint(Context &context) {
  if (fid_ep *const ep = context.endpoint()) fi_close(&ep->fid);
  context.ep = nullptr;
}

void ScalableEndpoint::close_copies() {
  for (const auto &part : parts_) fi_close(&part->made.domain->fid);
}

int ScalableEndpoint::close() {
  {
    const std::lock_guard guard(mutex_);
    for (const auto &context : contexts_)
      if (context->lane.open.load()) return -FI_EBUSY;
    for (const auto &context : contexts_) close_endpoint(*context);
  }
  retire();
  DomainContext &domain = domain_;
  delete this;
  domain.children.fetch_sub(1);
  return 0;
}

// ---- contexts ----

Result<ScalableEndpoint::Part *> ScalableEndpoint::part(size_t index) {
  if (index < parts_.size()) return parts_[index].get();
  auto fresh = std::make_unique<Part>();
  fresh->made = lanes_.take();
  if (fresh->made.domain == nullptr) {
    WEFT_TRY(fresh->made, maker_->make_domain(info()));
  }
  parts_.push_back(std::move(fresh));
  return parts_.back().get();
}

Result<void> ScalableEndpoint::make_contexts() {
  const size_t count = receives_ + std::max<size_t>(info().ep_attr->tx_ctx_cnt, 1);
  while (contexts_.size() < count) {
    auto context = std::make_unique<Context>();
    const size_t place = contexts_.size();
    const bool receives = place < receives_;
    context->lane.fclass = receives ? FI_CLASS_RX_CTX : FI_CLASS_TX_CTX;
    context->lane.parent = base();
    context->lane.number = number_;
    context->lane.place = uint8_t(place);
    context->lane.last_place = uint8_t(count - 1);
    if (place == 0) context->lane.closed = first_closed;
    WEFT_TRY(context->part, part(receives ? place : place - receives_));
    WEFT_CHECK(make_own(*context));
    contexts_.push_back(std::move(context));
  }
  return {};
}

// What a plain endpoint is opened with that does the work of the context.
Result<InfoList> ScalableEndpoint::info_of(const Context &context) const {
  InfoList list(domain_.instance->core);
  WEFT_TRY(fi_info *const plain, list.add_copy(&info()));
  plain->ep_attr->tx_ctx_cnt = plain->ep_attr->rx_ctx_cnt = 1;
  const bool receives = context.lane.fclass == FI_CLASS_RX_CTX;
  plain->caps = receives
                    ? one_side(plain->caps, kReceives, FI_RECV, FI_REMOTE_READ | FI_REMOTE_WRITE)
                    : one_side(plain->caps, kTransmits, FI_SEND, FI_READ | FI_WRITE);
  return list;
}

// One that holds the context's port until the application opens the context.
Result<void> ScalableEndpoint::make_own(Context &context) {
  WEFT_TRY(const InfoList plain, info_of(context));
  return make_endpoint(context, *plain.front());
}

Result<void> ScalableEndpoint::make_endpoint(Context &context, const fi_info &info) {
  context.given = false;
  context.part->made.shared->lane = &context.lane;
  WEFT_TRY(context.ep, maker_->make_endpoint(context.part->made, info));
  return {};
}

Result<void> ScalableEndpoint::take_port(Context &context, const Address &first) {
  const unsigned port = first.port() + context.lane.place;
  if (first.port() != 0 && port > UINT16_MAX) return fail(FI_EADDRINUSE, "port %u is none", port);
  WEFT_TRY(const Address address, first.with_port(uint16_t(first.port() != 0 ? port : 0)));
  char bytes[256];
  size_t length = sizeof bytes;
  if (const int rc = write_address(address, info().addr_format, bytes, &length); rc != 0)
    return fail(-rc, "an address has no room");
  if (const int rc = fi_setname(&context.ep->fid, bytes, length); rc != 0)
    return fail(-rc, "%s cannot be a context's", address.to_string().c_str());
  length = sizeof bytes;
  if (const int rc = fi_getname(&context.ep->fid, bytes, &length); rc != 0)
    return fail(-rc, "%s is not free", address.to_string().c_str());
  if (context.lane.place != 0) return {};
  WEFT_TRY(local_, read_address(info().addr_format, bytes, length));
  return {};
}

// A row of ports: from that of `first` on, which may be 0: any. Where the application named the
// first one and a later one is not free, another row will do, of which peers learn by fi_getname.
// An error with FI_EADDRINUSE names the port that is not free.
Result<void> ScalableEndpoint::take_ports() {
  if (has_ports_) return {};
  WEFT_CHECK(make_contexts());
  for (const auto &context : contexts_)
    if (context->endpoint() == nullptr) WEFT_CHECK(make_own(*context));
  Address first = local_;
  if (first.size() == 0) {
    char bytes[256];
    size_t length = sizeof bytes;
    if (const int rc = fi_getname(&contexts_[0]->ep->fid, bytes, &length); rc != 0)
      return fail(-rc, "fi_scalable_ep: the endpoint got no address");
    WEFT_TRY(first, read_address(info().addr_format, bytes, length));
    WEFT_TRY(first, first.with_port(0));
  }
  const Address named = first;
  for (int i = 0; i < kTries; ++i) {
    Result<void> done;
    for (const auto &context : contexts_) {
      done = take_port(*context, context->lane.place == 0 ? first : local_);
      if (done) continue;
      const bool own = i == 0 && named.port() != 0 && context->lane.place == 0;
      if (own || done.error().code != FI_EADDRINUSE)
        return fail(done.error().code, "fi_scalable_ep: %zu ports in a row are needed, and %s",
                    contexts_.size(), done.error().text.c_str());
      // Behind the one that is in the way; where many are, another place that the system chooses.
      const unsigned next = local_.port() + context->lane.place + 1u;
      const bool goes_on = i % 4 != 3 && next + contexts_.size() <= UINT16_MAX;
      WEFT_TRY(first, first.with_port(uint16_t(goes_on ? next : 0)));
      break;
    }
    if (!done) continue;
    has_ports_ = true;
    if (i != 0 && named.port() != 0)
      WEFT_WARN(
          instance(), FI_LOG_EP_CTRL,
          "fi_scalable_ep: %zu ports in a row are needed, and not all from %s on are free: the "
          "endpoint is at %s, of which peers learn by fi_getname",
          contexts_.size(), named.to_string().c_str(), local_.to_string().c_str());
    return {};
  }
  return fail(FI_EADDRINUSE, "fi_scalable_ep: no %zu free ports in a row were found",
              contexts_.size());
}

// Peers ask the first context which contexts there are, also while the application has closed it.
void ScalableEndpoint::first_closed(const Lane &lane) {
  ScalableEndpoint &self = *from(lane.parent);
  const std::lock_guard guard(self.mutex_);
  Context &first = *self.contexts_[0];
  Result<void> held = self.make_own(first);
  if (held) held = self.take_port(first, self.local_);
  lane.open.store(false);
  if (held) return;
  close_endpoint(first);
  WEFT_WARN(self.instance(), FI_LOG_EP_CTRL,
            "fi_close: nobody tells peers which contexts the endpoint has until its first one is "
            "opened again: %s",
            held.error().text.c_str());
}

Result<void> ScalableEndpoint::open_view(Part &part) {
  if (part.view == nullptr) {
    WEFT_TRY(part.view, Av::open_view(*part.made.shared, *av_));
  }
  return {};
}

Result<void> ScalableEndpoint::give_vector(Context &context) {
  if (av_ == nullptr || context.ep == nullptr) return {};
  Part &part = *context.part;
  WEFT_CHECK(open_view(part));
  const int rc = fi_ep_bind(context.ep, &part.view->c()->fid, 0);
  if (rc != 0) return fail(-rc, "fi_scalable_ep_bind: a context refuses the address vector");
  return {};
}

Result<fid_ep *> ScalableEndpoint::open_context(size_t place, const fi_info &info, bool fresh,
                                                void *context) {
  WEFT_CHECK(take_ports());
  Context &mine = *contexts_[place];
  if (mine.lane.open.load())
    return fail(FI_EBUSY, "context %zu is open already",
                place < receives_ ? place : place - receives_);
  Result<void> done;
  // The endpoint that took the port will do, unless it has other attributes.
  if (fresh || mine.given || mine.ep == nullptr) {
    close_endpoint(mine);
    WEFT_CHECK(make_endpoint(mine, info));
    done = take_port(mine, local_);
  }
  if (done) done = give_vector(mine);
  if (!done) {
    close_endpoint(mine);
    return tl::unexpected(done.error());
  }
  mine.ep->fid.context = context;
  mine.lane.open.store(true);
  mine.given = true;
  return mine.ep;
}

int ScalableEndpoint::opened(Result<fid_ep *> context, struct fid_ep **ep) {
  if (context) {
    *ep = *context;
    return 0;
  }
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", context.error().text.c_str());
  return -context.error().code;
}

int ScalableEndpoint::tx_ctx(int index, struct fi_tx_attr *attr, struct fid_ep **ep,
                             void *context) {
  if (ep == nullptr) return -FI_EINVAL;
  const std::lock_guard guard(mutex_);
  return opened(
      [&]() -> Result<fid_ep *> {
        const size_t count = std::max<size_t>(info().ep_attr->tx_ctx_cnt, 1);
        if (index < 0 || size_t(index) >= count)
          return fail(FI_EINVAL, "fi_tx_context: there is no context %d: the endpoint has %zu",
                      index, count);
        WEFT_CHECK(make_contexts());
        const size_t place = receives_ + size_t(index);
        WEFT_TRY(const InfoList list, info_of(*contexts_[place]));
        fi_info &plain = *list.front();
        fi_tx_attr &mine = *plain.tx_attr;
        if (attr != nullptr) {
          constexpr const char *kCall = "fi_tx_context";
          WEFT_CHECK(subset(kCall, "fi_tx_attr.caps", attr->caps, info().caps | kTransmits));
          WEFT_CHECK(subset(kCall, "fi_tx_attr.msg_order", attr->msg_order, mine.msg_order));
          WEFT_CHECK(at_most(kCall, "fi_tx_attr.inject_size", attr->inject_size, mine.inject_size));
          WEFT_CHECK(at_most(kCall, "fi_tx_attr.iov_limit", attr->iov_limit, mine.iov_limit));
          WEFT_CHECK(
              at_most(kCall, "fi_tx_attr.rma_iov_limit", attr->rma_iov_limit, mine.rma_iov_limit));
          if (attr->caps != 0)
            plain.caps = (plain.caps & ~(kMessages | kMemory | kTransmits)) |
                         one_side(attr->caps, kTransmits, FI_SEND, FI_READ | FI_WRITE);
          mine.op_flags = attr->op_flags;
          take_if_set(mine.msg_order, attr->msg_order);
          take_if_set(mine.size, attr->size);
          take_if_set(mine.tclass, attr->tclass);
        }
        WEFT_TRY(fid_ep *const made, open_context(place, plain, attr != nullptr, context));
        if (attr != nullptr) {
          *attr = mine;
          attr->caps = plain.caps;
        }
        return made;
      }(),
      ep);
}

int ScalableEndpoint::rx_ctx(int index, struct fi_rx_attr *attr, struct fid_ep **ep,
                             void *context) {
  if (ep == nullptr) return -FI_EINVAL;
  const std::lock_guard guard(mutex_);
  return opened(
      [&]() -> Result<fid_ep *> {
        if (index < 0 || size_t(index) >= receives_)
          return fail(FI_EINVAL, "fi_rx_context: there is no context %d: the endpoint has %zu",
                      index, receives_);
        WEFT_CHECK(make_contexts());
        WEFT_TRY(const InfoList list, info_of(*contexts_[size_t(index)]));
        fi_info &plain = *list.front();
        fi_rx_attr &mine = *plain.rx_attr;
        if (attr != nullptr) {
          constexpr const char *kCall = "fi_rx_context";
          WEFT_CHECK(subset(kCall, "fi_rx_attr.caps", attr->caps, info().caps | kReceives));
          WEFT_CHECK(subset(kCall, "fi_rx_attr.msg_order", attr->msg_order, mine.msg_order));
          WEFT_CHECK(at_most(kCall, "fi_rx_attr.iov_limit", attr->iov_limit, mine.iov_limit));
          if (attr->caps != 0)
            plain.caps = (plain.caps & ~(kMessages | kMemory | kReceives)) |
                         one_side(attr->caps, kReceives, FI_RECV, FI_REMOTE_READ | FI_REMOTE_WRITE);
          mine.op_flags = attr->op_flags;
          take_if_set(mine.msg_order, attr->msg_order);
          take_if_set(mine.size, attr->size);
        }
        WEFT_TRY(fid_ep *const made, open_context(size_t(index), plain, attr != nullptr, context));
        if (attr != nullptr) {
          *attr = mine;
          attr->caps = plain.caps;
        }
        return made;
      }(),
      ep);
}

// ---- the endpoint itself ----

int ScalableEndpoint::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  const std::lock_guard guard(mutex_);
  if (fid->fclass == FI_CLASS_MR) return 0;  // regions belong to the domain
  // Contexts report for themselves (fi_endpoint.3, fi_scalable_ep_bind).
  if (!Av::is_mine(fid, FI_CLASS_AV, instance())) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (enabled_) return -FI_EOPBADSTATE;
  if (av_ != nullptr) return -FI_EBUSY;
  Av *const av = Av::from(fid);
  if (&av->engine() != domain_.engine) return -FI_EDOMAIN;
  if (const auto done = bind_vector(*av); !done) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
    return -done.error().code;
  }
  return 0;
}

// All contexts that are open get it, or none.
Result<void> ScalableEndpoint::bind_vector(Av &av) {
  av_ = &av;
  Result<void> done;
  for (const auto &part : parts_)
    if (done) done = open_view(*part);
  if (!done) {
    for (const auto &part : parts_)
      if (Av *const view = std::exchange(part->view, nullptr)) view->close_view();
    av_ = nullptr;
    return done;
  }
  av.users.fetch_add(1);
  for (const auto &context : contexts_)
    if (context->lane.open.load()) WEFT_CHECK(give_vector(*context));
  return {};
}

int ScalableEndpoint::control(int command, void *arg) {
  if (command == kGetEndpointNumber && arg != nullptr) {
    *static_cast<EndpointNumber *>(arg) = {&domain_, number_};
    return 0;
  }
  if (command != FI_ENABLE) return -FI_ENOSYS;
  const std::lock_guard guard(mutex_);
  Result<void> done;
  if (av_ == nullptr)
    done = fail(FI_ENOAV,
                "fi_enable: a scalable endpoint needs an address vector: fi_scalable_ep_bind it "
                "first");
  if (done) done = take_ports();
  if (!done) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
    return -done.error().code;
  }
  enabled_ = true;
  return 0;
}

int ScalableEndpoint::setname(void *addr, size_t len) {
  auto address = read_address(info().addr_format, addr, len);
  if (!address) return -address.error().code;
  const std::lock_guard guard(mutex_);
  const bool in_use =
      std::ranges::any_of(contexts_, [](const auto &context) { return context->lane.open.load(); });
  if (enabled_ || in_use) return -FI_EOPBADSTATE;
  const Address before = std::exchange(local_, *address);
  // The new row may have ports of the old one.
  for (const auto &context : contexts_) close_endpoint(*context);
  has_ports_ = false;
  if (const auto done = take_ports(); !done) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_setname: %s", done.error().text.c_str());
    local_ = before;
    return -done.error().code;
  }
  return 0;
}

int ScalableEndpoint::getname(void *addr, size_t *len) {
  const std::lock_guard guard(mutex_);
  if (const auto done = take_ports(); !done) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
    return -done.error().code;
  }
  return write_address(local_, info().addr_format, addr, len);
}

int ScalableEndpoint::getopt(int level, int name, void *value, size_t *length) {
  const std::lock_guard guard(mutex_);
  if (const auto done = make_contexts(); !done) return -done.error().code;
  for (const auto &context : contexts_)
    if (fid_ep *const ep = context->endpoint())
      return fi_getopt(&ep->fid, level, name, value, length);
  return -FI_ENOPROTOOPT;
}

}  // namespace weft::sdk
