// SPDX-License-Identifier: BSD-2-Clause
// The groups of an endpoint: joining them, their packets, and what has ended.
#include "plugins/cxi/collectives.h"

#include <rdma/fi_cxi_ext.h>
#include <rdma/fi_eq.h>
#include <sys/random.h>
#include <unistd.h>
#include <weft/sdk/objects/ops.h>

#include <algorithm>
#include <new>
#include <utility>

#include "plugins/cxi/bits.h"
#include "plugins/cxi/device_memory.h"
#include "plugins/cxi/endpoint.h"
#include "plugins/cxi/nic/return_codes.h"
#include "plugins/cxi/transmit.h"

namespace weft::cxi {
namespace {

constexpr size_t kPackets = 256;            // under way, before one has to wait
constexpr size_t kArrivals = 1024;          // places for events of packets that come
constexpr size_t kPacketBuffer = 64 << 10;  // bytes of each of the two buffers for them

uint32_t random_incarnation() {
  uint32_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) != ssize_t(sizeof number))
    number = uint32_t(sdk::now_ns()) ^ uint32_t(::getpid());
  return number != 0 ? number : 1;
}

struct Told {
  int err, prov_errno;
};

Told told(Failure failure) {
  switch (failure) {
    case Failure::kFloatOverflow:
      return {FI_EOVERFLOW, FI_CXI_ERRNO_RED_FLT_OVERFLOW};
    case Failure::kFloatInvalid:
      return {FI_EINVAL, FI_CXI_ERRNO_RED_FLT_INVALID};
    case Failure::kIntOverflow:
      return {FI_EOVERFLOW, FI_CXI_ERRNO_RED_INT_OVERFLOW};
    case Failure::kMismatch:
      return {FI_EINVAL, FI_CXI_ERRNO_RED_OP_MISMATCH};
    case Failure::kGone:
      return {FI_ENOTCONN, FI_CXI_ERRNO_RED_MC_FAILURE};
    case Failure::kTimeout:
      return {FI_ETIMEDOUT, FI_CXI_ERRNO_RED_OTHER};
    case Failure::kCanceled:
      return {FI_ECANCELED, FI_CXI_ERRNO_RED_OTHER};
    default:
      return {FI_EIO, FI_CXI_ERRNO_RED_OTHER};
  }
}

Told told_of_join(Failure failure) {
  switch (failure) {
    case Failure::kGone:
      return {FI_ENOTCONN, FI_CXI_ERRNO_JOIN_FAIL_RDMA};
    case Failure::kManagerFailed:
      return {FI_ECONNREFUSED, FI_CXI_ERRNO_JOIN_CURL_FAILED};
    case Failure::kManagerLate:
      return {FI_ETIMEDOUT, FI_CXI_ERRNO_JOIN_CURL_TIMEOUT};
    case Failure::kManagerRefused:
      return {FI_EACCES, FI_CXI_ERRNO_JOIN_SERVER_ERR};
    case Failure::kAddressInUse:
      return {FI_EADDRINUSE, FI_CXI_ERRNO_JOIN_MCAST_INUSE};
    case Failure::kAddressInvalid:
      return {FI_EADDRNOTAVAIL, FI_CXI_ERRNO_JOIN_MCAST_INVALID};
    case Failure::kTreeRootInvalid:
      return {FI_EADDRNOTAVAIL, FI_CXI_ERRNO_JOIN_HWROOT_INVALID};
    default:
      return {told(failure).err, FI_CXI_ERRNO_JOIN_OTHER};
  }
}

}  // namespace

// ---- a group as applications know it ----

CollectiveGroup::CollectiveGroup(CxiEndpoint &endpoint, std::vector<fi_addr_t> members,
                                 bool by_rank, void *context)
    : Object(endpoint.instance(), FI_CLASS_MC, context),
      endpoint(endpoint),
      members(std::move(members)),
      by_rank(by_rank) {
  sdk::fill_tables(*this);
}

std::optional<uint32_t> CollectiveGroup::rank_of(fi_addr_t member) const {
  const bool is_rank = member < members.size() && (by_rank || members[member] == member);
  if (is_rank) return uint32_t(member);
  const auto found = std::ranges::find(members, member);
  if (by_rank || found == members.end()) return std::nullopt;
  return uint32_t(found - members.begin());
}

int CollectiveGroup::close() {
  retire();
  {
    const sdk::Guard guard(endpoint.lock());
    endpoint.collectives().leave(*this);
    endpoint.eq()->forget(base());
  }
  delete this;
  return 0;
}

// ---- opening ----

Collectives::Collectives(CxiEndpoint &endpoint, const Ports &ports, sdk::Engine &engine,
                         sdk::TxContext &tx, const Settings &settings, Counters &counters)
    : endpoint_(endpoint),
      ports_(ports),
      engine_(engine),
      tx_(tx),
      settings_(settings),
      counters_(counters) {}

Collectives::~Collectives() = default;

Result<void> Collectives::open() {
  WEFT_TRY(events_, ports_.lni->event_queue(
                        {.places = kArrivals + kPackets, .reserved = kPackets, .waits = true}));
  WEFT_TRY(queue_, ports_.lni->transmit_queue(kPackets, ports_.profile));
  WEFT_TRY(portal_, ports_.lni->portal({.is_matching = true, .no_rendezvous = true}, *events_));
  WEFT_CHECK(ports_.map(*portal_, kCollectiveIndex));
  buffers_ = std::make_unique<Buffers>(ports_, BufferOptions{.list = List::kPriority,
                                                             .size = kPacketBuffer,
                                                             .linked = 2,
                                                             .longest = GroupPacket::kSize});
  portal_->set_state(PortalState::kEnabled, kIgnoreDrops);
  if (!buffers_->link(*portal_))
    return fail(FI_ENOMEM, "no memory for packets of collective operations");
  protocol_ = std::make_unique<Groups>(
      random_incarnation(),
      GroupLimits{.timeout = settings_.coll_timeout_ns, .limit = settings_.coll_limit_ns});
  return {};
}

void Collectives::close() {
  engine_.set_deadline(*this, 0);
  portal_.reset();
  queue_.reset();
  events_.reset();
  protocol_.reset();
  buffers_.reset();
  if (manager_ != nullptr) manager_->leave();
  messages_.clear();
}

void Collectives::wait_for_manager() {
  manager_.reset();
}

// ---- joining ----

Result<fid_mc *> Collectives::join(sdk::Av &av, const fi_collective_addr &address, void *context) {
  WEFT_TRY(sdk::AvSet *const set, sdk::AvSet::find(av, address.set));
  fi_addr_t of_set = FI_ADDR_NOTAVAIL;
  set->addr(&of_set);
  if (address.coll_addr != FI_ADDR_NOTAVAIL && address.coll_addr != of_set)
    return fail(FI_EINVAL,
                "coll_addr is 0x%llx: cxi takes FI_ADDR_NOTAVAIL, or what fi_av_set_addr says of "
                "the set",
                (unsigned long long)address.coll_addr);
  constexpr uint64_t kOffered =
      FI_BARRIER_SET | FI_BROADCAST_SET | FI_REDUCE_SET | FI_ALLREDUCE_SET;
  if (set->flags() & ~kOffered)
    return fail(FI_EOPNOTSUPP,
                "the set is for collectives that cxi does not have: it has barriers, broadcasts, "
                "reductions and reductions to all");
  bool by_rank = false;
  WEFT_TRY(GroupPlace place, place_of(av, *set, by_rank));
  if (place.asks) WEFT_CHECK(open_manager());
  auto *const group =
      new (std::nothrow) CollectiveGroup(endpoint_, set->members(), by_rank, context);
  if (group == nullptr) return fail(FI_ENOMEM, "no memory for a group");
  std::unique_ptr<CollectiveGroup, void (*)(CollectiveGroup *)> owner(
      group, [](CollectiveGroup *one) { one->discard(); });
  WEFT_CHECK(group->publish(endpoint_.base()));
  owner.release();
  group->id = protocol_->join(sdk::now_ns(), std::move(place)).id();
  group->c()->fi_addr = kGroupBase + (group->id & UINT32_MAX);
  groups_[group->id] = group;
  look();
  return group->c();
}

// The members of a set by rank, and which of them this endpoint is.
Result<GroupPlace> Collectives::place_of(sdk::Av &av, const sdk::AvSet &set, bool &by_rank) const {
  GroupPlace place;
  const size_t members = set.members().size();
  if (members == 0 || members > kMaxMembers)
    return fail(FI_EINVAL, "the set has %zu members: a group has 1 to %zu", members, kMaxMembers);
  place.peers.reserve(members);
  for (const fi_addr_t member : set.members()) {
    const auto known = av.address(av.index_of(member));
    if (!known)
      return fail(FI_EINVAL, "member %llu of the set is not in the address vector any more",
                  (unsigned long long)member);
    place.peers.push_back(peer_of(*known).in(0).key());
  }
  cxip_comm_key key{};
  const auto bytes = set.communication_key();
  if (!bytes.empty() && bytes.size() != sizeof key)
    return fail(FI_EINVAL, "the set's comm_key has %zu bytes: struct cxip_comm_key has %zu",
                bytes.size(), sizeof key);
  std::ranges::copy(bytes, reinterpret_cast<uint8_t *>(&key));
  switch (sdk::raw(key.keytype)) {
    case COMM_KEY_NONE:
      place.asks = !settings_.manager.url.empty() && members > 1;
      break;
    case COMM_KEY_UNICAST:
      place.root = key.ucast.hwroot_idx;
      break;
    case COMM_KEY_RANK:
      by_rank = true;
      place.root = key.rank.hwroot_idx;
      place.rank = key.rank.rank;
      // Whatever byte stands there.
      place.discards = *reinterpret_cast<const uint8_t *>(&key.rank.rx_discard) != 0;
      break;
    case COMM_KEY_MULTICAST:
      return fail(FI_EOPNOTSUPP,
                  "a set with COMM_KEY_MULTICAST: a NIC in software has no multicast, and there is "
                  "no fabric manager; leave the comm_key out, and members send to each other");
    default:
      return fail(FI_EINVAL, "the set's comm_key is of the unknown type %d", sdk::raw(key.keytype));
  }
  if (place.root >= members || place.rank >= members)
    return fail(FI_EINVAL, "the set's comm_key names member %u; the set has %zu",
                std::max(place.root, place.rank), members);
  place.membership = Groups::membership_of(place.peers, place.root, by_rank);
  const uint64_t own = Peer{ports_.nid, ports_.pid()}.key();
  if (!by_rank) {
    WEFT_CHECK(find_own_rank(place));
  } else if (std::ranges::any_of(place.peers, [&](uint64_t peer) { return peer != own; })) {
    return fail(FI_EINVAL, "a set with COMM_KEY_RANK has the endpoint's own address only");
  }
  return place;
}

Result<void> Collectives::find_own_rank(GroupPlace &place) const {
  const uint64_t own = Peer{ports_.nid, ports_.pid()}.key();
  const auto found = std::ranges::find(place.peers, own);
  if (found == place.peers.end())
    return fail(FI_EINVAL, "the endpoint's own address is not in the set");
  place.rank = uint32_t(found - place.peers.begin());
  std::vector<uint64_t> sorted = place.peers;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end())
    return fail(FI_EINVAL, "two members of the set have the same address");
  return {};
}

// Only a root asks, but the settings of all members must be good.
Result<void> Collectives::open_manager() {
  if (settings_.manager.job.empty() || settings_.manager.token.empty())
    return fail(FI_EINVAL,
                "FI_CXI_COLL_FABRIC_MGR_URL is set: so must be FI_CXI_COLL_JOB_ID and "
                "FI_CXI_COLL_MCAST_TOKEN, for the fabric manager");
  if (manager_ != nullptr) return {};
  WEFT_TRY(manager_, FabricManager::open(endpoint_.instance(), settings_.manager, engine_, *this));
  return {};
}

void Collectives::ask_manager(uint64_t id) {
  Group *const group = protocol_->find(id);
  if (group == nullptr) return;
  std::vector<Nid> members;
  for (const uint64_t peer : group->place().peers) members.push_back(Nid(peer >> kPidBits));
  manager_->ask(id, members, ports_.profile.vni);
}

void Collectives::on_manager_answer(const FabricManager::Answer &answer) {
  const auto found = groups_.find(answer.group);
  Failure failure = answer.failure;
  if (failure == Failure::kNone && found != groups_.end()) {
    const Group &group = *protocol_->find(answer.group);
    if (std::ranges::any_of(groups_,
                            [&](const auto &one) { return one.second->address == answer.address; }))
      failure = Failure::kAddressInUse;
    else if (std::ranges::none_of(group.place().peers, [&](uint64_t peer) {
               return Nid(peer >> kPidBits) == answer.root;
             }))
      failure = Failure::kTreeRootInvalid;
    else if (group.state() == Group::State::kJoining)
      found->second->address = answer.address;
  }
  if (failure != Failure::kNone) {
    protocol_->on_no_address(answer.group, failure);
  } else {
    protocol_->on_address(sdk::now_ns(), answer.group, answer.address);
  }
  const bool is_used = found != groups_.end() && found->second->address == answer.address;
  if (answer.failure == Failure::kNone && failure != Failure::kAddressInUse && !is_used)
    manager_->give_back(answer.address);
  look();
}

void Collectives::leave(CollectiveGroup &group) {
  if (group.address) manager_->give_back(*group.address);
  protocol_->leave(group.id);
  look();
  groups_.erase(group.id);
}

CollectiveGroup *Collectives::find(fi_addr_t address) const {
  if (groups_.empty() || address < kGroupBase) return nullptr;
  // All numbers have the same upper half.
  const uint64_t id = (groups_.begin()->first & ~uint64_t{UINT32_MAX}) | (address - kGroupBase);
  const auto found = groups_.find(id);
  return found != groups_.end() && found->second->c()->fi_addr == address ? found->second : nullptr;
}

// ---- what the groups have to say ----

void Collectives::look() {
  bool posted = false;
  for (;;) {
    protocol_->take_output(output_);
    if (output_.packets.empty() && output_.ended.empty() && output_.asking.empty()) break;
    for (const uint64_t group : output_.asking) ask_manager(group);
    for (const GroupOutput::Sent &sent : output_.packets) {
      if (spare_.empty()) spare_.emplace_back();
      messages_.splice(messages_.end(), spare_, spare_.begin());
      Message &message = messages_.back();
      message.self = std::prev(messages_.end());
      message.token = tokens_.add(message);
      message.peer = {.nid = Nid(sent.peer >> kPidBits), .pid = Pid(sent.peer & kAnyPid)};
      message.packet = sent.packet;
      message.bytes = sent.packet.bytes();
      counters_.collective_packets.add();
      post(message);
      posted = true;
    }
    for (GroupOutput::Ended &one : output_.ended) report(one);
  }
  if (posted) {
    queue_->flush();
    endpoint_.push();
  }
  schedule();
}

// False: it is memory of a device, which fails.
bool Collectives::put_result(void *to, const uint8_t *bytes, size_t count) const {
  sdk::HmemPlace place;
  if (ports_.devices != nullptr) place = ports_.devices->find(to, count, nullptr);
  return sdk::hmem_copy(to, place.or_null(), bytes, nullptr, count);
}

void Collectives::report(GroupOutput::Ended &one) {
  const auto found = groups_.find(one.group);
  if (found == groups_.end()) return;
  CollectiveGroup &group = *found->second;
  if (one.is_join) return report_join(group, one.result.failure);
  CollectiveGroup::Operation operation =
      std::exchange(group.operations[one.token % Group::kWindow], {});
  Partial &result = one.result;
  // What comes from others must not be longer than what there is room for.
  if (result.opcode != operation.opcode || result.bytes != operation.bytes)
    result.failure = std::max(result.failure, Failure::kMismatch);
  uint8_t bytes[kMaxOperand];
  if (result.failure < Failure::kMismatch) {
    result.write(bytes);  // may find a failure
    if (operation.result != nullptr && !put_result(operation.result, bytes, operation.bytes))
      result.failure = Failure::kOther;
  }
  if (result.failure != Failure::kNone) {
    counters_.collectives_failed.add();
    const Told why = told(result.failure);
    if (tx_.write != nullptr) tx_.write->add_error();
    if (tx_.cq != nullptr)
      tx_.cq->push_error({.context = operation.context,
                          .flags = FI_COLLECTIVE,
                          .len = operation.bytes,
                          .err = why.err,
                          .prov_errno = why.prov_errno});
    return;
  }
  counters_.collectives.add();
  if (tx_.write != nullptr) tx_.write->add_events(1, operation.bytes);
  if (operation.report && tx_.cq != nullptr)
    tx_.cq->push({.context = operation.context, .flags = FI_COLLECTIVE, .len = operation.bytes});
}

void Collectives::report_join(CollectiveGroup &group, Failure failure) {
  if (failure == Failure::kNone) {
    counters_.groups_joined.add();
    if (protocol_->find(group.id)->address()) counters_.groups_with_addresses.add();
    endpoint_.eq()->push(FI_JOIN_COMPLETE, group.base(), 0);
    return;
  }
  const Told why = told_of_join(failure);
  endpoint_.eq()->push_error({.fid = group.base(),
                              .context = group.context(),
                              .err = why.err,
                              .prov_errno = why.prov_errno});
}

// ---- packets ----

void Collectives::post(Message &message) {
  Transfer put;
  put.to = {message.peer.nid, message.peer.pid, kCollectiveIndex};
  put.inline_bytes = message.bytes.data();
  put.length = uint32_t(message.bytes.size());
  put.initiator = ports_.initiator;
  put.eq = events_.get();
  put.user_ptr = message.token;
  message.at = 0;
  if (queue_->post(put) != 0) message.at = sdk::now_ns() + settings_.fc_retry_ns + 1;
}

void Collectives::on_answer(Message &message, Rc rc) {
  if (rc == Rc::kOk) {
    protocol_->on_reached(message.packet);
  } else if (is_gone(rc)) {
    protocol_->on_lost(sdk::now_ns(), message.packet);
  } else {  // it has no place for the packet
    message.at = sdk::now_ns() + settings_.fc_retry_ns + 1;
    return;
  }
  tokens_.remove(message.token);
  spare_.splice(spare_.end(), messages_, message.self);
}

bool Collectives::read_events() {
  size_t taken = 0;
  while (taken != settings_.eq_ack_batch) {
    const Event *const place = events_->peek(taken);
    if (place == nullptr) break;
    const Event event = *place;
    ++taken;
    switch (event.type) {
      case EventType::kAck:
        if (Message *const message = tokens_.find(event.user_ptr)) on_answer(*message, event.rc);
        break;
      case EventType::kPut:
      case EventType::kAtomic:
        if (event.rc == Rc::kOk) on_arrived(event);
        break;
      case EventType::kLink:
        if (event.rc != Rc::kOk) on_refused(event);
        break;
      default:
        break;
    }
  }
  if (taken == 0) return false;
  events_->ack(taken);
  look();
  return true;
}

bool Collectives::linger() {
  post_again(sdk::now_ns());
  return read_events();
}

// Whatever a peer has put there takes room of a buffer, and a packet is what a member puts.
void Collectives::on_arrived(const Event &event) {
  const auto *const bytes = reinterpret_cast<const uint8_t *>(event.start);
  const bool is_put = event.type == EventType::kPut && !event.rendezvous;
  if (is_put && !is_logical(event.initiator))
    if (const auto packet = GroupPacket::parse({bytes, event.mlength}))
      protocol_->on_packet(sdk::now_ns(), Peer::of(event.initiator, 0).key(), *packet);
  const uint32_t taken = event.rendezvous ? event.rlength : event.mlength;
  if (event.auto_unlinked) buffers_->on_full(event.buffer_id, event.start + taken);
  buffers_->release(event.start, taken);
  // Without memory for another one senders try again, and so does the next packet.
  (void)buffers_->link(*portal_);
}

// The NIC has no list entry for a buffer now: senders try again, and so do we.
void Collectives::on_refused(const Event &event) {
  buffers_->on_refused(event.buffer_id);
  link_at_ = sdk::now_ns() + settings_.fc_retry_ns + 1;
}

void Collectives::post_again(uint64_t now) {
  bool posted = false;
  for (Message &message : messages_) {
    if (message.at == 0 || message.at > now) continue;
    post(message);
    posted = true;
  }
  if (posted) {
    queue_->flush();
    endpoint_.push();
  }
}

void Collectives::schedule() {
  uint64_t next = protocol_->deadline();
  if (link_at_ != 0 && (next == 0 || link_at_ < next)) next = link_at_;
  for (const Message &message : messages_)
    if (message.at != 0 && (next == 0 || message.at < next)) next = message.at;
  engine_.set_deadline(*this, next);
}

void Collectives::on_deadline() {
  const uint64_t now = sdk::now_ns();
  post_again(now);
  if (link_at_ != 0 && now >= link_at_) {
    link_at_ = 0;
    (void)buffers_->link(*portal_);
  }
  protocol_->on_time(now);
  look();
}

}  // namespace weft::cxi
