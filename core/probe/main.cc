// SPDX-License-Identifier: BSD-2-Clause
// weft-probe: runs a plugin's code in a process where it can do no harm.
//
//   weft-probe --manifest tcp.so --output plugins.d/tcp.yaml
//       writes the manifest from the descriptor
//   weft-probe --refresh /usr/lib/weft
//       probes a folder's plugins and writes its plugins.idx
//   weft-probe --check tcp.so --quarantine ~/.cache/weft/quarantine
//       probes a plugin now, remembers the verdict and prints it as JSON
//   weft-probe --list ~/.cache/weft/quarantine
//       prints the remembered verdicts as JSON
//   weft-probe --forget tcp.so --quarantine ~/.cache/weft/quarantine
//       forgets the verdict on a file
//   weft-probe --probe tcp.so
//       the child of a probe; its report goes to descriptor 3
#include <absl/strings/numbers.h>
#include <absl/strings/str_format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/render.h"
#include "core/loader/descriptor.h"
#include "core/loader/discovery.h"
#include "core/loader/loader.h"
#include "core/loader/manifest_writer.h"
#include "core/loader/open_library.h"
#include "core/loader/probe.h"
#include "core/loader/verdict_cache.h"
#include "core/probe/child.h"
#include "core/probe/record_json.h"
#include "core/probe/services.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char *kUsage =
    "usage: weft-probe --manifest FILE.so --output FILE.yaml\n"
    "       weft-probe --refresh FOLDER [--reader FILE.so]\n"
    "       weft-probe --check FILE.so [--budget MILLISECONDS] [--quarantine LIST]\n"
    "       weft-probe --list LIST\n"
    "       weft-probe --forget FILE.so --quarantine LIST\n"
    "       weft-probe --probe FILE.so\n"
    "Writes a plugin's manifest or the index of a folder of plugins; probes a plugin in a process "
    "of its own and prints the verdict as JSON; prints or forgets remembered verdicts. --probe is "
    "the process of such a probe, for the loader.\n";

int complain(const std::string &file, const Rejection &rejection) {
  absl::FPrintF(stderr, "weft-probe: %s: %s: %s\n", file, rejection.cause, rejection.remedy);
  return 1;
}

int complain(const Error &error) {
  absl::FPrintF(stderr, "weft-probe: %s\n", error.text);
  return 1;
}

int write_manifest(const std::string &file, const std::string &output) {
  const fs::path library = fs::absolute(file).lexically_normal();
  const fs::path folder = fs::absolute(output).lexically_normal().parent_path();
  const Checked<OpenPlugin> plugin = open_plugin(library);
  if (!plugin) return complain(file, plugin.error());
  const weft_offer offer = make_offer(&probe_services());
  const Answer answer = ask(*plugin, offer);
  const Checked<PluginRecord> record = check_descriptor(answer.desc, answer.why);
  if (!record) return complain(file, record.error());
  const std::string yaml = manifest_yaml(*record, library.lexically_relative(folder));
  if (Result<void> done = write_atomically(output, yaml); !done) return complain(done.error());
  return 0;
}

std::string own_program() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

int refresh(const std::string &folder, const std::string &reader) {
  LoaderOptions options;
  options.probe_program = own_program();
  options.reader_library =
      !reader.empty() ? reader
                      : (fs::path(options.probe_program).parent_path() / "weft-config.so").string();
  options.library_folder = fs::path(options.probe_program).parent_path().parent_path();
  options.probe_budget = std::chrono::seconds(10);  // only an installation waits for it
  const Result<RefreshReport> report = Loader::refresh(options, folder);
  if (!report) return complain(report.error());
  for (const Decision &trouble : report->troubles.decisions())
    absl::FPrintF(stderr, "weft-probe: %s: %s: %s: %s\n", text_of(trouble.rule),
                  std::string(stage_name(trouble.stage)), reason_of(trouble),
                  text_of(trouble.remedy));
  absl::PrintF("weft-probe: %zu plugins in %s/plugins.idx\n", report->plugins, folder);
  return 0;
}

void print(const std::string &text) {
  absl::PrintF("%s\n", text);
}

int check(const std::string &file, const std::string &budget, const std::string &list) {
  ProbeOptions options{.program = own_program()};
  if (!budget.empty()) {
    int ms = 0;
    if (!absl::SimpleAtoi(budget, &ms) || ms < 1 || ms > 600000) {
      absl::FPrintF(stderr, "weft-probe: --budget %s: give milliseconds, 1 to 600000\n", budget);
      return 2;
    }
    options.budget = std::chrono::milliseconds(ms);
  }
  const PluginRecord record = probe_in_child(options, tidy_path(file));
  print(record_json(record));
  if (!list.empty() && record.verdict != Verdict::kUnprobed) {
    VerdictCache cache(list, {});
    // The verdict holds even where it cannot be remembered.
    if (Result<void> done = cache.remember(record); !done) (void)complain(done.error());
  }
  return record.verdict == Verdict::kOk ? 0 : 1;
}

int forget(const std::string &file, const std::string &list) {
  VerdictCache cache(list, {});
  if (Result<void> done = cache.forget(tidy_path(file)); !done) return complain(done.error());
  return 0;
}

int run(const std::vector<std::string> &args) {
  if (args.size() == 4 && args[0] == "--manifest" && args[2] == "--output")
    return write_manifest(args[1], args[3]);
  if (args.size() == 2 && args[0] == "--refresh") return refresh(args[1], "");
  if (args.size() == 4 && args[0] == "--refresh" && args[2] == "--reader")
    return refresh(args[1], args[3]);
  if (args.size() == 2 && args[0] == "--list") {
    VerdictCache cache(args[1], {});
    print(records_json(cache.all()));
    return 0;
  }
  if (args.size() == 4 && args[0] == "--forget" && args[2] == "--quarantine")
    return forget(args[1], args[3]);
  if (args.size() >= 2 && args.size() % 2 == 0 && args[0] == "--check") {
    std::string budget, list;
    bool known = true;
    for (size_t i = 2; i < args.size(); i += 2) {
      if (args[i] == "--budget")
        budget = args[i + 1];
      else if (args[i] == "--quarantine")
        list = args[i + 1];
      else
        known = false;
    }
    if (known) return check(args[1], budget, list);
  }
  if (args.size() == 2 && args[0] == "--probe") return probe_here(args[1], kProbeReportFd);
  const bool help = args.size() == 1 && args[0] == "--help";
  std::fputs(kUsage, help ? stdout : stderr);
  return help ? 0 : 2;
}

}  // namespace
}  // namespace weft

int main(int argc, char **argv) {
  const int status = weft::run({argv + 1, argv + argc});
  std::fflush(nullptr);
  _exit(status);  // without the plugin's destructors and atexit handlers
}
