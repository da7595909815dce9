// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/trial.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tools/weft/library.h"

namespace weft::cli {
namespace {

constexpr const char *kGetinfoRemedy =
    "say in getinfo() what the objects can do: fi_getinfo.3, docs/writing-a-provider.md";
constexpr const char *kOpenRemedy =
    "offer only what can be opened; the log (FI_LOG_LEVEL=warn) "
    "says what was refused";
constexpr const char *kTransferRemedy =
    "see the log (FI_LOG_LEVEL=warn); `weft trace record` shows each call and completion";
constexpr const char *kHookRemedy =
    "use the SDK's objects: a hook needs the header in front of each fid, and object_opened()";

using Attempt = Result<std::string> (*)(const TrialTask &, fi_info &);

// ---- what is offered ----

// The unit's file, as this process has loaded it.
Result<std::string> library_of(const Library &library, const std::string &unit) {
  WEFT_TRY(const Json answer, library.plugins());
  for (const Json &plugin : array_of(answer, "plugins"))
    for (const Json &one : array_of(plugin, "units"))
      if (text_of(one, "name") == unit) return text_of(plugin, "library");
  return fail(FI_ENOENT, "weft knows no unit %s", unit.c_str());
}

Verdict try_loading(const TrialTask &task) {
  std::string why;
  const std::vector<InfoPointer> offers = offers_of(task.stack, why);
  const Result<Library> library = Library::open();
  if (!library) return went_wrong(library.error().text, "run it on weft");
  const Result<std::string> file = library_of(*library, task.unit);
  if (!file) return went_wrong(file.error().text, "see `weft plugin list`");
  std::error_code failed;
  if (!std::filesystem::equivalent(*file, task.library, failed))
    return went_wrong(absl::StrCat(task.unit, " is taken from ", *file, ", not from this file"),
                      "remove that file, or give this one's unit another name");
  if (offers.empty())
    return not_checked(absl::StrCat("fi_getinfo has no answer for ", task.stack, ": ", why));
  std::vector<std::string> types;
  for (const InfoPointer &offer : offers) types.push_back(type_name(*offer));
  return went_well(absl::StrCat(task.stack, " offers ", absl::StrJoin(types, ", ")));
}

// What is wrong with an answer by itself; null: nothing.
const char *fault_of(const fi_info &info) {
  const auto *tx = info.tx_attr;
  const auto *rx = info.rx_attr;
  const auto *ep = info.ep_attr;
  const auto *domain = info.domain_attr;
  const auto *fabric = info.fabric_attr;
  if (tx == nullptr || rx == nullptr || ep == nullptr || domain == nullptr || fabric == nullptr)
    return "an attribute structure is null";
  if (fabric->name == nullptr || *fabric->name == '\0') return "the fabric has no name";
  if (fabric->prov_name == nullptr) return "the provider has no name";
  if (domain->name == nullptr || *domain->name == '\0') return "the domain has no name";
  if (ep->max_msg_size == 0) return "max_msg_size is 0";
  if (tx->inject_size > ep->max_msg_size) return "inject_size is above max_msg_size";
  if (tx->size == 0 || rx->size == 0) return "a queue of operations has the size 0";
  if (tx->iov_limit == 0 || rx->iov_limit == 0) return "iov_limit is 0";
  if ((tx->caps & ~info.caps) != 0) return "tx_attr->caps has bits that caps lacks";
  if ((rx->caps & ~info.caps) != 0) return "rx_attr->caps has bits that caps lacks";
  if ((info.caps & (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC)) == 0)
    return "caps names no kind of transfer";
  if (domain->cq_cnt == 0 || domain->ep_cnt == 0) return "cq_cnt or ep_cnt is 0";
  if (domain->cq_data_size > sizeof(uint64_t)) return "cq_data_size is above 8";
  if ((info.caps & FI_RMA) != 0 && domain->mr_key_size == 0) return "FI_RMA, and mr_key_size is 0";
  if ((info.src_addr == nullptr) != (info.src_addrlen == 0))
    return "src_addr and src_addrlen do not fit";
  if (info.src_addr != nullptr && info.addr_format == FI_FORMAT_UNSPEC)
    return "src_addr has no format";
  return nullptr;
}

// fi_getinfo with this as hints; the number of answers, or the error.
int ask_again(const fi_info &hints) {
  fi_info *list = nullptr;
  const int rc = fi_getinfo(fi_version(), nullptr, nullptr, 0, &hints, &list);
  const InfoPointer all(list);
  int count = 0;
  for (const fi_info *one = list; one != nullptr; one = one->next) ++count;
  return rc != 0 ? rc : count;
}

// Whether an answer is offered again when it is asked for as such.
Result<void> is_offered_again(const fi_info &info) {
  const InfoPointer same(fi_dupinfo(&info));
  if (same == nullptr) return fail(FI_ENOMEM, "fi_dupinfo: no memory");
  if (const int count = ask_again(*same); count < 1)
    return fail(FI_ENODATA, "an answer, asked for as hints, has no answer: %s",
                fi_strerror(-count));
  const InfoPointer other(fi_dupinfo(&info));
  if (other == nullptr) return fail(FI_ENOMEM, "fi_dupinfo: no memory");
  free(other->domain_attr->name);
  other->domain_attr->name = strdup("no-such-domain");
  if (ask_again(*other) >= 0)
    return fail(FI_EINVAL, "a domain that is not there (\"no-such-domain\") has an answer");
  return {};
}

Verdict try_answers(const TrialTask &task) {
  const InfoPointer hints = trial_hints(task.stack);
  fi_info *list = nullptr;
  if (fi_getinfo(fi_version(), nullptr, nullptr, 0, hints.get(), &list) != 0)
    return not_checked("fi_getinfo has no answer");
  const InfoPointer all(list);
  int number = 0;
  for (const fi_info *info = list; info != nullptr; info = info->next) {
    ++number;
    if (const char *fault = fault_of(*info); fault != nullptr)
      return went_wrong(absl::StrCat("answer ", number, ": ", fault), kGetinfoRemedy);
    if (const Result<void> again = is_offered_again(*info); !again)
      return went_wrong(absl::StrCat("answer ", number, ": ", again.error().text), kGetinfoRemedy);
  }
  return went_well(absl::StrCat(number, " consistent, and offered again when asked for as such"));
}

// ---- what is open ----

Result<std::string> open_and_close(const TrialTask &, fi_info &info) {
  for (int round = 0; round < 2; ++round) {
    TrialSide side;
    WEFT_CHECK(side.open_domain(info));
    WEFT_CHECK(side.open_endpoint(info));
    WEFT_CHECK(checked("fi_enable", fi_enable(side.ep)));
    if (info.domain_attr->cntr_cnt != 0) {
      fi_cntr_attr attr{};
      fid_cntr *counter = nullptr;
      WEFT_CHECK(checked("fi_cntr_open", fi_cntr_open(side.domain, &attr, &counter, nullptr)));
      WEFT_CHECK(checked("fi_close of a counter", fi_close(&counter->fid)));
    }
    WEFT_CHECK(side.close());
  }
  return std::string(type_name(info));
}

Result<std::string> transfers(fi_info &info, bool tagged) {
  TrialPair pair;
  WEFT_CHECK(pair.open(info));
  constexpr size_t kLarge = 64 << 10;
  const size_t most = std::min(info.ep_attr->max_msg_size, kLarge);
  const size_t inject = std::min(info.tx_attr->inject_size, most);
  for (const size_t size : {size_t{1}, inject, std::min<size_t>(inject + 1, most), most}) {
    if (size == 0) continue;
    WEFT_CHECK(pair.transfer(pair.a, pair.b, size, tagged));
    WEFT_CHECK(pair.transfer(pair.b, pair.a, size, tagged));
  }
  WEFT_CHECK(pair.close());
  return absl::StrCat(type_name(info), " up to ", most, " bytes");
}

Result<std::string> messages(const TrialTask &, fi_info &info) {
  if ((info.caps & FI_MSG) == 0) return std::string();
  return transfers(info, false);
}
Result<std::string> tagged_messages(const TrialTask &, fi_info &info) {
  if ((info.caps & FI_TAGGED) == 0) return std::string();
  return transfers(info, true);
}
Result<std::string> remote_accesses(const TrialTask &, fi_info &info) {
  constexpr uint64_t kNeeded = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  if ((info.caps & FI_RMA) == 0 || (info.caps & kNeeded) != kNeeded) return std::string();
  TrialPair pair;
  WEFT_CHECK(pair.open(info));
  const size_t most = std::min<size_t>(info.ep_attr->max_msg_size, 64 << 10);
  WEFT_CHECK(pair.write_and_read(std::min<size_t>(most, 100)));
  WEFT_CHECK(pair.write_and_read(most));
  WEFT_CHECK(pair.close());
  return absl::StrCat(type_name(info), " up to ", most, " bytes");
}

Verdict try_opening(const TrialTask &task) {
  return try_each(task, kOpenRemedy, open_and_close);
}
Verdict try_messages(const TrialTask &task) {
  return try_each(task, kTransferRemedy, messages);
}
Verdict try_tagged(const TrialTask &task) {
  return try_each(task, kTransferRemedy, tagged_messages);
}
Verdict try_remote(const TrialTask &task) {
  return try_each(task, kTransferRemedy, remote_accesses);
}

// ---- hooks ----

// How many live objects have the hook.
Result<int> hooked_objects(const std::string &hook) {
  WEFT_TRY(const Library library, Library::open());
  WEFT_TRY(const Json objects, library.objects());
  int count = 0;
  for (const Json &object : objects)
    for (const std::string &name : texts_of(object, "hooks")) count += name == hook;
  return count;
}

// Something to do for a hook.
Result<void> one_exchange(TrialPair &pair, const fi_info &info) {
  const bool tagged = (info.caps & FI_MSG) == 0;
  if (tagged && (info.caps & FI_TAGGED) == 0) return {};
  WEFT_CHECK(pair.transfer(pair.a, pair.b, 100, tagged));
  return pair.transfer(pair.b, pair.a, 100, tagged);
}

Result<std::string> exchange_with_hook(const TrialTask &task, fi_info &info) {
  TrialPair pair;
  WEFT_CHECK(pair.open(info));
  for (const absl::string_view hook : absl::StrSplit(task.hook, ';')) {
    WEFT_TRY(const int count, hooked_objects(std::string(hook)));
    if (count == 0)
      return fail(FI_ENOENT, "the hook %s is on no object", std::string(hook).c_str());
  }
  WEFT_CHECK(one_exchange(pair, info));
  WEFT_CHECK(pair.close());
  return std::string(type_name(info));
}

Result<std::string> exchange_with_live_hook(const TrialTask &task, fi_info &info) {
  WEFT_TRY(const Library library, Library::open());
  TrialPair pair;
  WEFT_CHECK(pair.open(info));
  WEFT_CHECK(library.attach_hook(pair.a.fabric->fid, task.hook));
  WEFT_TRY(const int attached, hooked_objects(task.hook));
  if (attached == 0) return fail(FI_ENOENT, "the hook %s is on no object", task.hook.c_str());
  WEFT_CHECK(one_exchange(pair, info));
  WEFT_CHECK(library.detach_hook(pair.a.fabric->fid, task.hook));
  WEFT_TRY(const int left, hooked_objects(task.hook));
  if (left != 0) return fail(FI_EBUSY, "the hook %s is still there", task.hook.c_str());
  WEFT_CHECK(one_exchange(pair, info));
  WEFT_CHECK(pair.close());
  return std::string(type_name(info));
}

Verdict try_hook(const TrialTask &task) {
  return try_each(task, kHookRemedy, exchange_with_hook);
}
Verdict try_live_hook(const TrialTask &task) {
  return try_each(task, kHookRemedy, exchange_with_live_hook);
}

}  // namespace

InfoPointer trial_hints(const std::string &stack) {
  InfoPointer hints(fi_allocinfo());
  if (hints == nullptr) throw std::bad_alloc();
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->fabric_attr->prov_name = strdup(stack.c_str());
  return hints;
}

std::vector<InfoPointer> offers_of(const std::string &stack, std::string &why) {
  std::vector<InfoPointer> offers;
  for (const fi_ep_type type : {FI_EP_MSG, FI_EP_RDM, FI_EP_DGRAM}) {
    const InfoPointer hints = trial_hints(stack);
    hints->ep_attr->type = type;
    fi_info *list = nullptr;
    const int rc = fi_getinfo(fi_version(), nullptr, nullptr, 0, hints.get(), &list);
    const InfoPointer all(list);
    if (rc != 0)
      why = fi_strerror(-rc);
    else
      offers.emplace_back(fi_dupinfo(list));
  }
  return offers;
}

const char *type_name(const fi_info &info) {
  switch (info.ep_attr->type) {
    case FI_EP_MSG:
      return "msg";
    case FI_EP_RDM:
      return "rdm";
    case FI_EP_DGRAM:
      return "dgram";
    default:
      return "endpoint";
  }
}

Verdict try_each(const TrialTask &task, const char *remedy, Attempt attempt) {
  std::string why;
  std::vector<std::string> findings;
  const std::vector<InfoPointer> offers = offers_of(task.stack, why);
  if (offers.empty()) return not_checked(absl::StrCat("fi_getinfo has no answer: ", why));
  for (const InfoPointer &offer : offers) {
    const Result<std::string> finding = attempt(task, *offer);
    if (!finding)
      return went_wrong(absl::StrCat(type_name(*offer), ": ", finding.error().text), remedy);
    if (!finding->empty()) findings.push_back(*finding);
  }
  if (findings.empty()) return not_checked("not offered");
  return went_well(absl::StrJoin(findings, "; "));
}

const std::vector<TrialCase> &trial_cases() {
  static const std::vector<TrialCase> kCases = {
      {"loading", "weft takes the unit from this file", TrialGroup::kStack, try_loading},
      {"answers", "what fi_getinfo answers", TrialGroup::kStack, try_answers},
      {"opening", "each object opens and closes, twice", TrialGroup::kStack, try_opening},
      {"messages", "messages go both ways", TrialGroup::kStack, try_messages},
      {"tagged", "messages with tags go both ways", TrialGroup::kStack, try_tagged},
      {"remote", "remote writes and reads", TrialGroup::kStack, try_remote},
      {"wrong_order", "objects closed in the wrong order", TrialGroup::kCalls, try_wrong_order},
      {"disabled", "calls on an endpoint that is not enabled", TrialGroup::kCalls, try_disabled},
      {"unbound", "an endpoint without its queues", TrialGroup::kCalls, try_unbound},
      {"wrong_binds", "what cannot be bound", TrialGroup::kCalls, try_wrong_binds},
      {"wrong_attributes", "attributes that there are not", TrialGroup::kCalls,
       try_wrong_attributes},
      {"wrong_options", "options and commands that there are not", TrialGroup::kCalls,
       try_wrong_options},
      {"short_buffers", "an address into too small a buffer", TrialGroup::kCalls,
       try_short_buffers},
      {"empty_queue", "reads of an empty queue", TrialGroup::kCalls, try_empty_queue},
      {"wrong_sizes", "transfers beyond the limits", TrialGroup::kCalls, try_wrong_sizes},
      {"wrong_peers", "transfers to nobody", TrialGroup::kCalls, try_wrong_peers},
      {"hook", "messages go under the hook", TrialGroup::kHook, try_hook},
      {"live_hook", "the hook comes to live objects, and goes", TrialGroup::kLive, try_live_hook},
  };
  return kCases;
}

Verdict run_trial(const std::string &name, const TrialTask &task) {
  for (const TrialCase &one : trial_cases())
    if (one.name == name) return one.run(task);
  return not_checked("there is no such trial");
}

}  // namespace weft::cli
