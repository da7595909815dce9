// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/run_plugin.h"

#include <deque>
#include <mutex>
#include <utility>

#include "core/loader/descriptor.h"
#include "core/loader/initialize.h"
#include "core/loader/open_library.h"
#include "core/loader/side_effects.h"

namespace weft {
namespace {

// `before` was read before the plugin's code ran. A reading costs one system call per signal, so
// there is only one before and one after each step.
Checked<void> check_signals(const SignalTable &before, const std::string &library, Stage stage,
                            const char *what) {
  const SignalTable now = SignalTable::read();
  if (now.difference(before).empty()) return {};
  // Another thread of the application may have installed a handler of its own meanwhile.
  const std::string blame = count_threads() > 1 ? library : std::string();
  const std::string difference = now.difference(before, blame);
  if (difference.empty()) return {};
  before.restore(now, blame);
  return tl::unexpected<Rejection>(
      Rejection{stage, what + (" " + difference) + "; it was put back", kAskVendor, true});
}

struct CoreOffer {
  weft_core_services services;
  weft_offer offer;
};

}  // namespace

Checked<void> describe_plugin(const std::string &library, const weft_offer &offer,
                              RunningPlugin &plugin) {
  if (plugin.desc != nullptr) return {};
  const SignalTable before = SignalTable::read();
  const Checked<OpenPlugin> opened = open_plugin(library);
  const Answer answer = opened ? ask(*opened, offer) : Answer{};
  if (auto signals =
          check_signals(before, library, Stage::kDlopen, "its constructors or " WEFT_QUERY_SYMBOL);
      !signals)
    return signals;
  if (!opened) return tl::unexpected<Rejection>(opened.error());
  if (answer.threw)
    return tl::unexpected<Rejection>(
        Rejection{Stage::kNegotiate, "an exception left " WEFT_QUERY_SYMBOL, kAskVendor, true});
  Checked<PluginRecord> described = check_descriptor(answer.desc, answer.why);
  if (!described) return tl::unexpected<Rejection>(described.error());
  plugin.described = *std::move(described);
  plugin.desc = answer.desc;
  return {};
}

Checked<void> init_plugin(const std::string &library, const weft_offer &offer,
                          std::optional<std::chrono::milliseconds> budget, RunningPlugin &plugin) {
  if (plugin.desc->init == nullptr) return {};
  const SignalTable before = SignalTable::read();
  Checked<void> done = budget ? initialize_within(*budget, *plugin.desc, offer, plugin.state)
                              : initialize(*plugin.desc, offer, plugin.state);
  if (auto signals = check_signals(before, library, Stage::kInit, "init()"); !signals)
    return signals;
  return done;
}

const weft_offer &immortal_offer(const weft_core_services &services) {
  static std::mutex mutex;
  static auto &offers = *new std::deque<CoreOffer>;
  const std::lock_guard lock(mutex);
  CoreOffer &made = offers.emplace_back();
  made.services = services;
  made.offer = make_offer(&made.services);
  return made.offer;
}

}  // namespace weft
