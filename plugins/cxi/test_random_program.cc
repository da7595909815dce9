// SPDX-License-Identifier: BSD-2-Clause
// RandomProgram: endpoints, messages, remote memory.
#include "plugins/cxi/test_random_program.h"

#include <rdma/fi_atomic.h>

#include <algorithm>
#include <utility>

namespace weft::conformance::rdm {
namespace {

constexpr size_t kSizes[] = {0,    1,    8,      64,     192,    193,    300,
                             2048, 5000, 17'000, 20'000, 70'000, 300'000};
constexpr uint64_t kTags = 3;
constexpr size_t kMost = 300'000;

}  // namespace

Options RandomProgram::options(size_t nic) {
  Options options;
  options.node = nic == 0 ? "cxi0" : "cxi1";
  options.caps |= FI_RMA | FI_ATOMIC | FI_TRIGGER | FI_MULTI_RECV | FI_COLLECTIVE;
  options.event_queue = true;
  options.service = std::to_string(++last_pid_);
  options.tx_size = options.rx_size = 16 << below(3);
  options.tx_cq.size = options.rx_cq.size = cq_size_;
  options.one_cq = coin();
  return options;
}

RandomProgram::RandomProgram(unsigned seed)
    : random_(seed), cq_size_(size_t{4} << below(7)), nics_(kNics) {
  for (size_t i = 0; i < kNics; ++i) {
    Nic &nic = nics_[i];
    nic.owner = std::make_unique<Node>(options(i));
    must(fi_cntr_open(nic.owner->domain, nullptr, nic.start.out(), nullptr));
    must(fi_cntr_open(nic.owner->domain, nullptr, nic.done.out(), nullptr));
  }
  for (int i = 0; i < 3; ++i) open_endpoint();
}

RandomProgram::~RandomProgram() {
  while (Endpoint *const endpoint = any()) close_endpoint(*endpoint);
  for (Nic &nic : nics_) {
    nic.start.reset();
    nic.done.reset();
    nic.owner.reset();
  }
}

void RandomProgram::run(size_t steps) {
  for (size_t i = 0; i < steps && !has_failed(); ++i) step();
  if (!has_failed()) drain();
}

RandomProgram::Endpoint *RandomProgram::any() {
  std::vector<Endpoint *> alive;
  for (const auto &one : endpoints_)
    if (one->is_alive()) alive.push_back(one.get());
  return alive.empty() ? nullptr : alive[below(alive.size())];
}

void RandomProgram::step() {
  Endpoint *const endpoint = any();
  if (endpoint == nullptr) return open_endpoint();
  const size_t which = below(100);
  if (which < 28) return send(false);
  if (which < 48) return receive(*endpoint, coin(), coin());
  if (which < 52) return receive_many(*endpoint);
  if (which < 56) return peek(*endpoint);
  if (which < 59) return cancel_one(*endpoint);
  if (which < 69) return access();
  if (which < 82) return read(*endpoint, 1 + below(20));
  step_rarely(which);
}

void RandomProgram::step_rarely(size_t which) {
  Endpoint &endpoint = *any();
  if (which < 83) return found_group();
  if (which < 86) return collective(endpoint);
  if (which < 87) return leave(endpoint);
  if (which < 90) return open_region(endpoint);
  if (which < 91 && !endpoint.regions.empty())
    return close_region(endpoint, below(endpoint.regions.size()));
  if (which < 93) return alias(endpoint);
  if (which < 95) return send(true);
  if (which < 96) return cancel_work(endpoint);
  if (which < 97) return must(fi_cntr_add(endpoint.nic->start, 1 + below(3)));
  if (which < 98) return open_endpoint();
  if (which < 99 && coin()) return close_endpoint(endpoint);
  for (const auto &one : endpoints_)
    if (one->is_alive()) read(*one, 100);
}

// ---- endpoints ----

void RandomProgram::open_endpoint() {
  const auto alive = std::ranges::count_if(endpoints_, [](auto &one) { return one->is_alive(); });
  if (size_t(alive) >= kMostEndpoints) return;
  auto endpoint = std::make_unique<Endpoint>();
  const size_t nic = below(kNics);
  endpoint->nic = &nics_[nic];
  try {
    endpoint->node =
        std::make_unique<Node>(options(nic), endpoint->nic->owner.get(), [&](Node &node) {
          node.eq = Handle<fid_eq>::lent(endpoint->nic->owner->eq);
          must(fi_ep_bind(node.ep, node.eq.fid(), 0));
        });
  } catch (const std::exception &error) {  // a NIC with few list entries
    EXPECT_NE(std::string(error.what()).find(error_text(-FI_ENOSPC)), std::string::npos)
        << error.what();
    return;
  }
  const std::string name = endpoint->node->name();
  for (size_t i = 0; i < kNics; ++i) endpoint->at[i] = nics_[i].owner->insert(name);
  endpoints_.push_back(std::move(endpoint));
}

// What is under way stays so. Its memory is the program's again when fi_close has returned.
void RandomProgram::close_endpoint(Endpoint &endpoint) {
  for (Member &member : endpoint.members) member.group->broken = true;
  endpoint.members.clear();
  endpoint.aliases.clear();
  while (coin() && !endpoint.regions.empty()) close_region(endpoint, 0);
  endpoint.node->ep.reset();
  for (auto &[context, operation] : endpoint.operations)
    if (operation->region) {
      operation->region->lanes[operation->lane] = {};
      if (operation->kind == Kind::kAtomic) operation->region->is_sum_known = false;
    }
  endpoint.to_claim.clear();
  endpoint.operations.clear();
  while (!endpoint.regions.empty()) close_region(endpoint, 0);
  endpoint.node.reset();
}

fid_ep *RandomProgram::through(Endpoint &endpoint) {
  const size_t which = below(endpoint.aliases.size() + 1);
  return which == 0 ? endpoint.node->ep.get() : endpoint.aliases[which - 1].get();
}

void RandomProgram::alias(Endpoint &endpoint) {
  if (coin() && !endpoint.aliases.empty()) return endpoint.aliases.pop_back();
  if (endpoint.aliases.size() == 2) return;
  endpoint.aliases.emplace_back();
  must(fi_ep_alias(endpoint.node->ep, endpoint.aliases.back().out(), FI_TRANSMIT));
}

RandomProgram::Operation *RandomProgram::add(Endpoint &endpoint, Kind kind, size_t bytes) {
  auto operation = std::make_unique<Operation>();
  operation->kind = kind;
  operation->endpoint = &endpoint;
  operation->bytes.resize(bytes);
  operation->iov = {operation->bytes.data(), bytes};
  Operation *const added = operation.get();
  endpoint.operations.emplace(added, std::move(operation));
  return added;
}

void RandomProgram::drop(Operation &operation) {
  if (operation.kind == Kind::kReceive && operation.is_any)
    --operation.endpoint->receives[operation.tagged];
  operation.endpoint->operations.erase(&operation);
}

// ---- messages ----

void RandomProgram::send(bool deferred) {
  Endpoint &from = *any(), &to = *any();
  const size_t size = kSizes[below(std::size(kSizes))];
  const bool injects = !deferred && size <= from.node->info->tx_attr->inject_size && below(4) == 0;
  constexpr uint64_t kLevels[] = {0, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE, FI_FENCE};
  const uint64_t flags = FI_REMOTE_CQ_DATA | FI_COMPLETION |
                         (injects ? uint64_t{FI_INJECT} : kLevels[below(deferred ? 1 : 4)]);
  const uint64_t number = last_message_ + 1;
  Operation &operation = *add(from, Kind::kSend, size);
  operation.bytes = pattern(size, unsigned(number));
  operation.iov = {operation.bytes.data(), size};
  operation.message = number;
  const bool tagged = coin();
  const uint64_t tag = below(kTags);
  fi_msg_tagged with_tag{};
  with_tag.msg_iov = &operation.iov;
  with_tag.iov_count = 1;
  with_tag.addr = to.at[size_t(from.nic - nics_.data())];
  with_tag.tag = tag;
  with_tag.context = &operation;
  with_tag.data = number;
  const fi_msg message{with_tag.msg_iov, nullptr,          1,
                       with_tag.addr,    with_tag.context, with_tag.data};
  messages_[number] = {&from, &to, size, tagged, tag, !deferred};
  ++last_message_;
  if (deferred) {
    operation.as_message = {from.node->ep, message, flags};
    operation.as_tagged = {from.node->ep, with_tag, flags};
    return start_deferred(operation, tagged ? FI_OP_TSEND : FI_OP_SEND,
                          tagged ? static_cast<void *>(&operation.as_tagged)
                                 : static_cast<void *>(&operation.as_message));
  }
  fid_ep *const ep = through(from);
  const ssize_t rc = tagged ? fi_tsendmsg(ep, &with_tag, flags) : fi_sendmsg(ep, &message, flags);
  if (rc == -FI_EAGAIN) {
    messages_.erase(number);
    return drop(operation);
  }
  must(rc);
  if (injects) std::vector<uint8_t>().swap(operation.bytes);
}

void RandomProgram::receive(Endpoint &endpoint, bool tagged, bool any_message) {
  const size_t size = any_message ? kMost : kSizes[3 + below(std::size(kSizes) - 3)];
  Operation &operation = *add(endpoint, Kind::kReceive, size);
  operation.tagged = tagged;
  operation.is_any = any_message;
  operation.tag = any_message ? 0 : below(kTags);
  operation.ignore = any_message ? 3 : 0;
  operation.order = ++last_receive_;
  fid_ep *const ep = endpoint.node->ep;
  const ssize_t rc =
      tagged ? fi_trecv(ep, operation.bytes.data(), size, nullptr, FI_ADDR_UNSPEC, operation.tag,
                        operation.ignore, &operation)
             : fi_recv(ep, operation.bytes.data(), size, nullptr, FI_ADDR_UNSPEC, &operation);
  if (any_message) ++endpoint.receives[tagged];
  if (rc == -FI_EAGAIN) return drop(operation);
  must(rc);
}

void RandomProgram::receive_many(Endpoint &endpoint) {
  Operation &operation = *add(endpoint, Kind::kMulti, 1000 << below(8));
  operation.order = ++last_receive_;
  fi_msg message{};
  message.msg_iov = &operation.iov;
  message.iov_count = 1;
  message.addr = FI_ADDR_UNSPEC;
  message.context = &operation;
  const ssize_t rc = fi_recvmsg(endpoint.node->ep, &message, FI_MULTI_RECV);
  if (rc == -FI_EAGAIN) return drop(operation);
  must(rc);
}

void RandomProgram::peek(Endpoint &endpoint) {
  constexpr uint64_t kLooks[] = {FI_PEEK, FI_PEEK | FI_CLAIM, FI_PEEK | FI_DISCARD};
  Operation &operation = *add(endpoint, Kind::kPeek, 0);
  operation.tagged = true;
  operation.flags = kLooks[below(3)];
  fi_msg_tagged message{};
  message.addr = FI_ADDR_UNSPEC;
  message.tag = below(kTags);
  message.ignore = coin() ? 3 : 0;
  message.context = &operation;
  const ssize_t rc = fi_trecvmsg(endpoint.node->ep, &message, operation.flags);
  if (rc == -FI_EAGAIN) return drop(operation);
  must(rc);
}

// There may be no room until completions are read.
void RandomProgram::claim(Endpoint &endpoint) {
  while (!endpoint.to_claim.empty()) {
    Operation &operation = *endpoint.to_claim.back();
    fi_msg_tagged message{};
    message.msg_iov = &operation.iov;
    message.iov_count = operation.flags & FI_DISCARD ? 0 : 1;
    message.addr = FI_ADDR_UNSPEC;
    message.ignore = operation.ignore;
    message.context = &operation;
    const ssize_t rc = fi_trecvmsg(endpoint.node->ep, &message, operation.flags);
    if (rc == -FI_EAGAIN) return;
    must(rc);
    endpoint.to_claim.pop_back();
  }
}

void RandomProgram::claim_later(Endpoint &endpoint, Operation &peeked, size_t size) {
  const bool discards = below(3) == 0;
  peeked.kind = Kind::kReceive;
  peeked.claims = true;
  peeked.order = ++last_receive_;
  peeked.ignore = 3;
  peeked.flags = FI_CLAIM | (discards ? uint64_t{FI_DISCARD} : 0);
  peeked.bytes.resize(discards ? 0 : size);
  peeked.iov = {peeked.bytes.data(), peeked.bytes.size()};
  endpoint.to_claim.push_back(&peeked);
}

void RandomProgram::cancel(Operation &operation) {
  operation.cancelled = true;
  const ssize_t rc = fi_cancel(&operation.endpoint->node->ep->fid, &operation);
  if (rc != -FI_ENOENT) must(rc);
}

void RandomProgram::cancel_one(Endpoint &endpoint) {
  for (auto &[context, operation] : endpoint.operations)
    if (operation->is_receive() && below(3) == 0) return cancel(*operation);
}

// All receives but those of any message.
void RandomProgram::cancel_some(Endpoint &endpoint) {
  for (auto &[context, operation] : endpoint.operations)
    if (operation->is_receive() && !operation->is_any && !operation->cancelled) cancel(*operation);
}

// ---- remote memory ----

void RandomProgram::open_region(Endpoint &endpoint) {
  if (endpoint.regions.size() == 3) return;
  auto region = std::make_shared<Region>();
  region->owner = &endpoint;
  region->memory.resize(8 + kLanes * kLane);
  const uint64_t key = ++last_key_;
  must(fi_mr_reg(endpoint.node->domain, region->memory.data(), region->memory.size(),
                 FI_REMOTE_READ | FI_REMOTE_WRITE, 0, coin() ? key % 100 : 100 + key, 0,
                 region->mr.out(), nullptr));
  must(fi_mr_bind(region->mr, endpoint.node->ep.fid(), 0));
  const int rc = fi_mr_enable(region->mr);
  if (rc == -FI_ENOSPC) return;  // a NIC with few list entries
  must(rc);
  endpoint.regions.push_back(std::move(region));
}

void RandomProgram::close_region(Endpoint &endpoint, size_t which) {
  const std::shared_ptr<Region> region = endpoint.regions[which];
  endpoint.regions.erase(endpoint.regions.begin() + ptrdiff_t(which));
  region->is_open = false;
  region->mr.reset();
  std::vector<uint8_t>().swap(region->memory);
}

void RandomProgram::access() {
  Endpoint &from = *any(), &to = *any();
  if (to.regions.empty()) return;
  const std::shared_ptr<Region> region = to.regions[below(to.regions.size())];
  const size_t lane = below(kLanes);
  const fi_addr_t address = to.at[size_t(from.nic - nics_.data())];
  const uint64_t key = fi_mr_key(region->mr), base = to.node->base_of(region->memory.data());
  fid_ep *const ep = through(from);
  ssize_t rc;
  const size_t which = below(3);
  if (which != 2 && region->lanes[lane].busy) return;
  Operation &operation = *add(from, Kind::kAtomic, which == 2 ? 8 : kLane);
  operation.region = region;
  operation.lane = lane;
  if (which == 2) {
    operation.bytes[0] = 1;
    rc = fi_atomic(ep, operation.bytes.data(), 1, nullptr, address, base, key, FI_UINT64, FI_SUM,
                   &operation);
  } else {
    operation.kind = which == 0 ? Kind::kWrite : Kind::kRead;
    if (which == 0) operation.bytes = pattern(1 + below(kLane), unsigned(random_()));
    operation.iov = {operation.bytes.data(), operation.bytes.size()};
    operation.target = {base + 8 + lane * kLane, operation.bytes.size(), key};
    operation.delivers = coin();
    const fi_msg_rma message{&operation.iov,    nullptr, 1,          address,
                             &operation.target, 1,       &operation, uint64_t{0}};
    const uint64_t flags =
        FI_COMPLETION | (operation.delivers ? uint64_t{FI_DELIVERY_COMPLETE} : 0);
    rc = which == 0 ? fi_writemsg(ep, &message, flags) : fi_readmsg(ep, &message, FI_COMPLETION);
  }
  if (rc == -FI_EAGAIN) return drop(operation);
  must(rc);
  if (which != 2) region->lanes[lane].busy = true;
}

}  // namespace weft::conformance::rdm
