// SPDX-License-Identifier: BSD-2-Clause
// Wrong calls of an application: each has to be answered by an error, and by no crash.
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "tools/weft/trial.h"

namespace weft::cli {
namespace {

constexpr const char *kCallRemedy =
    "check what the application passes (fi_endpoint.3, fi_cq.3 ...), or use the SDK's classes";

// An error if the call was accepted, or is to be repeated, which says nothing.
Result<void> refused(const char *call, long rc) {
  if (rc == -FI_EAGAIN)
    return fail(FI_EAGAIN, "%s returned -FI_EAGAIN, where an error is due", call);
  if (rc < 0) return {};
  return fail(FI_EINVAL, "%s returned %ld, where an error is due", call, rc);
}

// The same for a transfer, which may find no room yet.
Result<void> refused_at_last(TrialPair &pair, const char *call,
                             const std::function<ssize_t()> &transfer) {
  ssize_t rc = -FI_EAGAIN;
  WEFT_CHECK(pair.repeat(transfer, rc));
  return refused(call, rc);
}

// An error unless the call returned one of two values.
Result<void> returned(const char *call, long rc, long one, long other) {
  if (rc == one || rc == other) return {};
  return fail(FI_EINVAL, "%s returned %ld (%s), where %ld or %ld is due", call, rc,
              rc < 0 ? fi_strerror(int(-rc)) : "no error", one, other);
}

// Objects of which one was closed too early are not touched again.
void leave_open(TrialSide &side) {
  side.fabric = nullptr;
  side.domain = nullptr;
  side.eq = nullptr;
  side.cq = nullptr;
  side.av = nullptr;
  side.ep = nullptr;
}

Result<void> open_side(TrialSide &side, fi_info &info) {
  WEFT_CHECK(side.open_domain(info));
  return side.open_endpoint(info);
}

Result<std::string> close_wrongly(const TrialTask &, fi_info &info) {
  TrialSide side;
  WEFT_CHECK(open_side(side, info));
  WEFT_CHECK(checked("fi_enable", fi_enable(side.ep)));
  struct Row {
    const char *call;
    fid *object;
  };
  const Row rows[] = {
      {"fi_close of a fabric with a domain", &side.fabric->fid},
      {"fi_close of a domain with an endpoint", &side.domain->fid},
      {"fi_close of a completion queue with an endpoint", &side.cq->fid},
      {"fi_close of an address vector with an endpoint", side.av ? &side.av->fid : nullptr},
      {"fi_close of an event queue with an endpoint", side.eq ? &side.eq->fid : nullptr}};
  for (const Row &row : rows) {
    if (row.object == nullptr) continue;
    Result<void> verdict = refused(row.call, fi_close(row.object));
    if (!verdict) leave_open(side);
    WEFT_CHECK(verdict);
  }
  WEFT_CHECK(side.close());
  return std::string(type_name(info));
}

// The endpoint knows its peer, so that nothing but its state can be wrong.
Result<void> open_disabled(TrialPair &pair, fi_info &info) {
  WEFT_CHECK(open_side(pair.a, info));
  if (pair.a.av == nullptr) return {};
  WEFT_CHECK(open_side(pair.b, info));
  WEFT_CHECK(checked("fi_enable", fi_enable(pair.b.ep)));
  return insert_peer(pair.a, info, pair.b);
}

Result<std::string> use_disabled(const TrialTask &, fi_info &info) {
  TrialPair pair;
  WEFT_CHECK(open_disabled(pair, info));
  TrialSide &side = pair.a;
  WEFT_CHECK(prepare_memory(side, info, 1, FI_SEND | FI_RECV));
  uint8_t *const byte = side.bytes.data();
  void *const desc = side.mr != nullptr ? fi_mr_desc(side.mr) : nullptr;
  const fi_addr_t to = side.peer;
  const bool plain = (info.caps & FI_MSG) != 0, tagged = (info.caps & FI_TAGGED) != 0;
  fi_context2 sent{};
  // Receives may be posted early (fi_endpoint.3, fi_enable), if the provider likes it.
  if (plain) {
    (void)fi_recv(side.ep, byte, 1, desc, FI_ADDR_UNSPEC, &side.context);
    WEFT_CHECK(refused("fi_send", fi_send(side.ep, byte, 1, desc, to, &sent)));
    WEFT_CHECK(refused("fi_inject", fi_inject(side.ep, byte, 1, to)));
  }
  if (tagged) {
    WEFT_CHECK(refused("fi_tsend", fi_tsend(side.ep, byte, 1, desc, to, 1, &sent)));
  }
  WEFT_CHECK(pair.close());
  return std::string(type_name(info));
}

Result<std::string> enable_unbound(const TrialTask &, fi_info &info) {
  TrialSide side;
  WEFT_CHECK(side.open_domain(info));
  WEFT_CHECK(checked("fi_endpoint", fi_endpoint(side.domain, &info, &side.ep, nullptr)));
  WEFT_CHECK(refused("fi_enable without any queue", fi_enable(side.ep)));
  WEFT_CHECK(checked("fi_ep_bind", fi_ep_bind(side.ep, &side.cq->fid, FI_TRANSMIT | FI_RECV)));
  WEFT_CHECK(refused(side.av != nullptr ? "fi_enable without an address vector"
                                        : "fi_enable without an event queue",
                     fi_enable(side.ep)));
  WEFT_CHECK(side.close());
  return std::string(type_name(info));
}

Result<std::string> bind_wrongly(const TrialTask &, fi_info &info) {
  TrialSide side, other;
  WEFT_CHECK(side.open_domain(info));
  WEFT_CHECK(other.open_domain(info));
  WEFT_CHECK(checked("fi_endpoint", fi_endpoint(side.domain, &info, &side.ep, nullptr)));
  constexpr uint64_t kBoth = FI_TRANSMIT | FI_RECV, kNoSuchFlag = uint64_t{1} << 40;
  struct Row {
    const char *call;
    fid *object;
    uint64_t flags;
  };
  const Row rows[] = {
      {"fi_ep_bind of a domain", &side.domain->fid, 0},
      {"fi_ep_bind of the endpoint itself", &side.ep->fid, 0},
      {"fi_ep_bind of a completion queue with unknown flags", &side.cq->fid, kBoth | kNoSuchFlag},
      {"fi_ep_bind of a completion queue of another domain", &other.cq->fid, kBoth}};
  for (const Row &row : rows)
    WEFT_CHECK(refused(row.call, fi_ep_bind(side.ep, row.object, row.flags)));
  WEFT_CHECK(side.bind());
  WEFT_CHECK(checked("fi_enable", fi_enable(side.ep)));
  WEFT_CHECK(side.close());
  WEFT_CHECK(other.close());
  return std::string(type_name(info));
}

// What is opened although it should be refused stays open: the process ends soon.
Result<void> open_queues_wrongly(TrialSide &side) {
  fi_cq_attr cq_attr{};
  fid_cq *cq = nullptr;
  cq_attr.format = static_cast<fi_cq_format>(99);
  WEFT_CHECK(refused("fi_cq_open of format 99", fi_cq_open(side.domain, &cq_attr, &cq, nullptr)));
  cq_attr = {};
  cq_attr.wait_obj = static_cast<fi_wait_obj>(99);
  WEFT_CHECK(
      refused("fi_cq_open of wait object 99", fi_cq_open(side.domain, &cq_attr, &cq, nullptr)));
  fi_cntr_attr cntr_attr{};
  fid_cntr *cntr = nullptr;
  cntr_attr.events = static_cast<fi_cntr_events>(99);
  WEFT_CHECK(
      refused("fi_cntr_open of events 99", fi_cntr_open(side.domain, &cntr_attr, &cntr, nullptr)));
  if (side.av == nullptr) return {};
  fi_av_attr av_attr{};
  fid_av *av = nullptr;
  av_attr.type = static_cast<fi_av_type>(99);
  return refused("fi_av_open of type 99", fi_av_open(side.domain, &av_attr, &av, nullptr));
}

Result<std::string> open_wrongly(const TrialTask &, fi_info &info) {
  TrialSide side;
  WEFT_CHECK(side.open_domain(info));
  WEFT_CHECK(open_queues_wrongly(side));
  const InfoPointer changed(fi_dupinfo(&info));
  if (changed == nullptr) return fail(FI_ENOMEM, "fi_dupinfo: no memory");
  fid_ep *ep = nullptr;
  changed->tx_attr->inject_size = SIZE_MAX;
  WEFT_CHECK(refused("fi_endpoint with an inject_size that is not offered",
                     fi_endpoint(side.domain, changed.get(), &ep, nullptr)));
  changed->tx_attr->inject_size = info.tx_attr->inject_size;
  changed->ep_attr->type = static_cast<fi_ep_type>(99);
  WEFT_CHECK(
      refused("fi_endpoint of type 99", fi_endpoint(side.domain, changed.get(), &ep, nullptr)));
  WEFT_CHECK(side.close());
  return std::string(type_name(info));
}

Result<std::string> ask_wrongly(const TrialTask &, fi_info &info) {
  TrialSide side;
  WEFT_CHECK(open_side(side, info));
  constexpr int kUnknown = 99999;
  uint64_t value = 0;
  size_t size = sizeof value;
  void *ops = nullptr;
  fid *const ep = &side.ep->fid;
  WEFT_CHECK(refused("fi_getopt of an unknown level", fi_getopt(ep, kUnknown, 0, &value, &size)));
  WEFT_CHECK(refused("fi_getopt of an unknown option",
                     fi_getopt(ep, FI_OPT_ENDPOINT, kUnknown, &value, &size)));
  WEFT_CHECK(
      refused("fi_setopt of an unknown level", fi_setopt(ep, kUnknown, 0, &value, sizeof value)));
  WEFT_CHECK(refused("fi_setopt of an unknown option",
                     fi_setopt(ep, FI_OPT_ENDPOINT, kUnknown, &value, sizeof value)));
  WEFT_CHECK(refused("fi_control of an unknown command", fi_control(ep, kUnknown, &value)));
  for (fid *object : {&side.fabric->fid, &side.domain->fid, ep})
    WEFT_CHECK(refused("fi_open_ops of an unknown name",
                       fi_open_ops(object, "no-such-ops", 0, &ops, nullptr)));
  WEFT_CHECK(side.close());
  return std::string(type_name(info));
}

// A buffer of one byte: the length that is needed comes back, and no byte behind the first changes.
Result<void> check_short(const char *call, const std::vector<uint8_t> &buffer, size_t length) {
  if (length <= 1) return fail(FI_EINVAL, "%s did not set the length that it needs", call);
  const bool kept =
      std::all_of(buffer.begin() + 1, buffer.end(), [](uint8_t byte) { return byte == 0xa5; });
  if (!kept) return fail(FI_EINVAL, "%s wrote behind the end of the buffer", call);
  return {};
}

Result<std::string> name_into_short(const TrialTask &, fi_info &info) {
  TrialPair pair;
  WEFT_CHECK(pair.open(info));
  std::vector<uint8_t> buffer(512, 0xa5);
  size_t length = 1;
  fid *const named = pair.b.pep != nullptr ? &pair.b.pep->fid : &pair.b.ep->fid;
  WEFT_CHECK(refused("fi_getname into one byte", fi_getname(named, buffer.data(), &length)));
  WEFT_CHECK(check_short("fi_getname into one byte", buffer, length));
  if (pair.a.av != nullptr) {
    length = 1;
    (void)fi_av_lookup(pair.a.av, pair.a.peer, buffer.data(), &length);
    WEFT_CHECK(check_short("fi_av_lookup into one byte", buffer, length));
  }
  WEFT_CHECK(pair.close());
  return std::string(type_name(info));
}

Result<std::string> read_nothing(const TrialTask &, fi_info &info) {
  TrialSide side;
  WEFT_CHECK(open_side(side, info));
  WEFT_CHECK(checked("fi_enable", fi_enable(side.ep)));
  fi_cq_tagged_entry entry;
  fi_addr_t source = 0;
  fi_cq_err_entry error{};
  const long again = -FI_EAGAIN;
  WEFT_CHECK(returned("fi_cq_read", fi_cq_read(side.cq, &entry, 1), again, again));
  WEFT_CHECK(returned("fi_cq_read of no entry", fi_cq_read(side.cq, nullptr, 0), again, 0));
  WEFT_CHECK(returned("fi_cq_readfrom", fi_cq_readfrom(side.cq, &entry, 1, &source), again, again));
  WEFT_CHECK(returned("fi_cq_readerr", fi_cq_readerr(side.cq, &error, 0), again, 0));
  if (side.eq != nullptr) {
    uint32_t event = 0;
    char room[256];
    fi_eq_err_entry failure{};
    WEFT_CHECK(
        returned("fi_eq_read", fi_eq_read(side.eq, &event, room, sizeof room, 0), again, again));
    WEFT_CHECK(returned("fi_eq_readerr", fi_eq_readerr(side.eq, &failure, 0), again, 0));
  }
  if (fi_cancel(&side.ep->fid, &entry) > 0)
    return fail(FI_EINVAL, "fi_cancel returned more than 0");
  WEFT_CHECK(side.close());
  return std::string(type_name(info));
}

Result<std::string> exceed_sizes(const TrialTask &, fi_info &info) {
  constexpr size_t kMost = 1 << 20;  // bytes that are allocated for it
  if ((info.caps & FI_MSG) == 0) return std::string();
  TrialPair pair;
  WEFT_CHECK(pair.open(info));
  // Then both are connected, also where that waits for the first transfer.
  WEFT_CHECK(pair.transfer(pair.a, pair.b, 1, false));
  WEFT_CHECK(pair.transfer(pair.b, pair.a, 1, false));
  fid_ep *const ep = pair.a.ep;
  const fi_addr_t peer = pair.a.peer;
  const size_t sends = info.tx_attr->iov_limit + 1, receives = info.rx_attr->iov_limit + 1;
  std::vector<iovec> vectors(std::max(sends, receives), {pair.a.bytes.data(), 1});
  std::vector<void *> descs(vectors.size(), pair.a.mr ? fi_mr_desc(pair.a.mr) : nullptr);
  void *const context = &pair.a.context;
  WEFT_CHECK(refused_at_last(pair, "fi_sendv of more vectors than iov_limit", [&] {
    return fi_sendv(ep, vectors.data(), descs.data(), sends, peer, context);
  }));
  WEFT_CHECK(refused_at_last(pair, "fi_recvv of more vectors than iov_limit", [&] {
    return fi_recvv(ep, vectors.data(), descs.data(), receives, FI_ADDR_UNSPEC, context);
  }));
  const size_t inject = info.tx_attr->inject_size + 1, most = info.ep_attr->max_msg_size;
  std::vector<uint8_t> large(std::min(kMost, std::max(inject, std::min(most, kMost) + 1)));
  if (inject <= large.size())
    WEFT_CHECK(refused_at_last(pair, "fi_inject of more than inject_size",
                               [&] { return fi_inject(ep, large.data(), inject, peer); }));
  if (most < large.size() && (info.domain_attr->mr_mode & FI_MR_LOCAL) == 0)
    WEFT_CHECK(refused_at_last(pair, "fi_send of more than max_msg_size", [&] {
      return fi_send(ep, large.data(), most + 1, nullptr, peer, context);
    }));
  WEFT_CHECK(pair.close());
  return std::string(type_name(info));
}

Result<std::string> send_to_nobody(const TrialTask &, fi_info &info) {
  constexpr std::chrono::seconds kLimit{20};
  if ((info.caps & FI_MSG) == 0 || info.ep_attr->type == FI_EP_MSG) return std::string();
  TrialPair pair;
  WEFT_CHECK(pair.open(info));
  TrialSide &side = pair.a;
  WEFT_CHECK(prepare_memory(side, info, 1, FI_SEND | FI_RECV));
  const auto end = std::chrono::steady_clock::now() + kLimit;
  void *const desc = side.mr != nullptr ? fi_mr_desc(side.mr) : nullptr;
  ssize_t rc = -FI_EAGAIN;
  side.done = 0;
  while ((rc = fi_send(side.ep, side.bytes.data(), 1, desc, FI_ADDR_NOTAVAIL, &side.context)) ==
         -FI_EAGAIN) {
    WEFT_CHECK(side.progress());
    if (std::chrono::steady_clock::now() > end)
      return fail(FI_ETIMEDOUT, "fi_send to FI_ADDR_NOTAVAIL returns -FI_EAGAIN for ever");
  }
  // Accepted: then an error completion is due.
  for (bool failed = rc < 0; !failed;) {
    failed = !side.progress();
    if (side.done != 0) return fail(FI_EINVAL, "a send to FI_ADDR_NOTAVAIL succeeded");
    if (std::chrono::steady_clock::now() > end)
      return fail(FI_ETIMEDOUT, "a send to FI_ADDR_NOTAVAIL does not end");
  }
  WEFT_CHECK(pair.close());
  return std::string(type_name(info));
}

}  // namespace

Verdict try_wrong_order(const TrialTask &task) {
  return try_each(task, kCallRemedy, close_wrongly);
}
Verdict try_disabled(const TrialTask &task) {
  return try_each(task, kCallRemedy, use_disabled);
}
Verdict try_unbound(const TrialTask &task) {
  return try_each(task, kCallRemedy, enable_unbound);
}
Verdict try_wrong_binds(const TrialTask &task) {
  return try_each(task, kCallRemedy, bind_wrongly);
}
Verdict try_wrong_attributes(const TrialTask &task) {
  return try_each(task, kCallRemedy, open_wrongly);
}
Verdict try_wrong_options(const TrialTask &task) {
  return try_each(task, kCallRemedy, ask_wrongly);
}
Verdict try_short_buffers(const TrialTask &task) {
  return try_each(task, kCallRemedy, name_into_short);
}
Verdict try_empty_queue(const TrialTask &task) {
  return try_each(task, kCallRemedy, read_nothing);
}
Verdict try_wrong_sizes(const TrialTask &task) {
  return try_each(task, kCallRemedy, exceed_sizes);
}
Verdict try_wrong_peers(const TrialTask &task) {
  return try_each(task, kCallRemedy, send_to_nobody);
}

}  // namespace weft::cli
