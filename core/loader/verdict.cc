// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/verdict.h"

#include <string>
#include <utility>

#include "core/loader/side_effects.h"

namespace weft {
namespace {

// Who may write to a file and its folders is looked at each time before the file is used, and may
// change without the file.
bool is_about_trust(const PluginRecord &record) {
  return record.verdict == Verdict::kRejected && record.rejection.stage == Stage::kTrust;
}

Checked<void> as_rejection(const PluginRecord &record) {
  if (record.verdict != Verdict::kRejected && record.verdict != Verdict::kQuarantined) return {};
  Rejection rejection = record.rejection;
  if (record.verdict == Verdict::kQuarantined) rejection.cause = "quarantined: " + rejection.cause;
  return tl::unexpected<Rejection>(std::move(rejection));
}

Checked<void> adopt(PluginRecord &record, PluginRecord from) {
  from.manifest = record.manifest;
  from.manifest_stamp = record.manifest_stamp;
  if (record.name.empty()) {
    record = std::move(from);
  } else {
    record.verdict = from.verdict;
    record.rejection = from.rejection;
  }
  return as_rejection(record);
}

}  // namespace

ProbeOptions probe_options(const LoaderOptions &options) {
  return {
      .program = options.probe_program, .budget = options.probe_budget, .secure = options.secure};
}

Checked<void> Verdicts::recall(PluginRecord &record, const PluginRecord **due) {
  if (is_about_trust(record)) record.verdict = Verdict::kUnprobed;
  // The quarantine list is stronger than an index that was written before.
  const PluginRecord *known = cache_.find(record.library, record.library_stamp);
  for (const RefusedFile &file : options_.refused) {
    if (file.library != record.library) continue;
    PluginRecord refused = known != nullptr ? *known : record;
    refused.verdict = Verdict::kRejected;
    refused.rejection = {file.stage, file.cause, file.remedy};
    return adopt(record, std::move(refused));
  }
  if (known != nullptr && is_about_trust(*known)) known = nullptr;
  if (known != nullptr && cache_.is_due(*known)) {
    record.verdict = Verdict::kUnprobed;
    if (due != nullptr) *due = known;
    return {};
  }
  if (known != nullptr &&
      (known->verdict == Verdict::kQuarantined || record.verdict == Verdict::kUnprobed ||
       record.verdict == Verdict::kRejected))
    return adopt(record, *known);
  return as_rejection(record);
}

size_t Verdicts::foreign_threads() const {
  const size_t all = count_threads();
  const size_t own = options_.own_threads ? options_.own_threads() : 0;
  return own < all ? all - own : 1;
}

Checked<void> Verdicts::settle(PluginRecord &record) {
  const PluginRecord *due = nullptr;
  if (Checked<void> verdict = recall(record, &due); !verdict || record.verdict == Verdict::kOk)
    return verdict;
  std::string why_not;
  const size_t threads = foreign_threads();
  if (options_.probe_program.empty()) {
    why_not = "there is no weft-probe";
  } else if (threads > 1) {
    why_not = "this process has " + std::to_string(threads) + " threads and must not fork";
  } else {
    PluginRecord probed = probe_in_child(probe_options(options_), record.library);
    if (probed.verdict != Verdict::kUnprobed) {
      // A library that cannot be linked today may be tomorrow, when what it needs was installed:
      // this verdict is not kept. Where the cache cannot be written, each process probes.
      if (!(probed.verdict == Verdict::kRejected && probed.rejection.stage == Stage::kDlopen))
        (void)cache_.remember_unless_quarantined(probed);
      // Somebody may have put it on the quarantine list meanwhile.
      const PluginRecord *known = cache_.find(record.library, record.library_stamp);
      if (cache_.holds(known)) return adopt(record, *known);
      return adopt(record, std::move(probed));
    }
    why_not = probed.rejection.cause;
  }
  // What failed in a child is not tried in this process.
  if (due != nullptr) return as_rejection(*due);
  if (options_.unprobed_allow) return {};
  return with_remedy(
      reject(Stage::kTrust, "never probed, and %s; the policy denies unprobed plugins",
             why_not.c_str()),
      "run `weft plugin check %s`, or `weft plugin refresh` of its folder", record.library.c_str());
}

void Verdicts::remember_misbehaviour(const PluginRecord &record, const Rejection &rejection) {
  if (!rejection.misbehaved) return;
  PluginRecord bad = record;
  bad.verdict = Verdict::kQuarantined;
  bad.rejection = rejection;
  (void)cache_.remember_unless_quarantined(std::move(bad));
}

}  // namespace weft
