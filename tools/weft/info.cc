// SPDX-License-Identifier: BSD-2-Clause
// weft info: what a program would get from fi_getinfo() on this machine now.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <rdma/fabric.h>

#include <memory>

#include "tools/names.h"
#include "tools/weft/command.h"
#include "tools/weft/decisions.h"
#include "tools/weft/hints.h"
#include "tools/weft/library.h"
#include "tools/weft/offers.h"

namespace weft::cli {
namespace {

struct InfoOptions {
  HintOptions hints;
  bool json = false;
};

Json library_json(const Library &library) {
  return {{"path", library.path()},
          {"weft", WEFT_VERSION},
          {"version", std::string(absl::NullSafeStringView(fi_tostr("", FI_TYPE_VERSION)))},
          {"api", tools::version_text(fi_version())},
          {"plugins", library.plugin_folder()}};
}

Result<int> run(const InfoOptions &options) {
  WEFT_TRY(const Library library, Library::open());
  WEFT_TRY(const Offers found, ask(options.hints));
  const std::vector<Offer> offers = offers_of(found.list.get());
  const Result<Json> why = library.why("");
  const std::vector<Candidate> candidates = why ? by_candidate(*why) : std::vector<Candidate>();
  const std::string reason = why && !offers.empty() ? on_first_answer(*why).reason : "";

  if (options.json) {
    Json json = {{"library", library_json(library)}, {"offers", offers_json(offers)}};
    json["chosen"] = offers.empty() ? Json(nullptr) : offer_json(offers.front());
    if (!offers.empty()) json["chosen"]["reason"] = reason;
    json["error"] = found.ret == 0 ? Json(nullptr) : Json(fi_strerror(-found.ret));
    print_json(json);
    return offers.empty() ? kExitNo : kExitOk;
  }
  print_field("library",
              absl::StrCat(library.path(), " (weft " WEFT_VERSION ", libfabric API ",
                           tools::version_text(fi_version()), ")"),
              8);
  print_field("plugins", library.plugin_folder(), 8);
  if (offers.empty()) {
    print_field("chosen", absl::StrCat("nothing: ", fi_strerror(-found.ret)), 8);
    if (!candidates.empty()) {
      absl::PrintF("\n");
      print_candidates(candidates);
    }
    return kExitNo;
  }
  print_field("chosen", summary(offers.front()), 8);
  if (!reason.empty()) print_field("because", reason, 8);
  absl::PrintF("\nWhat fi_getinfo() gives, best first:\n");
  print_offers(offers);
  return kExitOk;
}

}  // namespace

void add_info(CLI::App &app, Action &action) {
  const auto options = std::make_shared<InfoOptions>();
  CLI::App *command = app.add_subcommand(
      "info", "What this machine gives a program now: stacks, interfaces, the chosen one");
  add_hint_options(*command, options->hints);
  command->add_flag("--json", options->json, "JSON instead of text");
  command->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace weft::cli
