// SPDX-License-Identifier: BSD-2-Clause
#include "tools/stats/live.h"

#include <weft/printable.h>

#include <cstdio>
#include <filesystem>
#include <limits>
#include <utility>

#include "tools/weft/control.h"

namespace weft::stats {
namespace {

using cli::Control;

Result<std::vector<Counted>> counted_by(const Control &control) {
  WEFT_TRY(const nlohmann::ordered_json fabrics, control.counters());
  // As in the segments: without its folder.
  const std::string program = std::filesystem::path(control.program()).filename().string();
  return counted_of(uint64_t(control.pid()), program, fabrics);
}

Result<std::vector<Counted>> counted_by(uint64_t pid) {
  if (pid > uint64_t(std::numeric_limits<pid_t>::max()))
    return fail(FI_ENOENT, "there is no process %llu", (unsigned long long)pid);
  WEFT_TRY(const Control control, Control::connect(pid_t(pid), kPatience));
  return counted_by(control);
}

}  // namespace

Result<Live> look(uint64_t pid) {
  Live live;
  Result<std::vector<Snapshot>> snapshots = snapshots_of(pid);
  if (pid != 0) {
    Result<std::vector<Counted>> counted = counted_by(pid);
    if (!snapshots && !counted) {
      if (snapshots.error().text == counted.error().text)
        return tl::unexpected<Error>(std::move(counted).error());
      return fail(counted.error().code, "%s; %s", counted.error().text.c_str(),
                  snapshots.error().text.c_str());
    }
    if (snapshots) live.snapshots = *std::move(snapshots);
    if (counted) live.counted = *std::move(counted);
    return live;
  }
  if (!snapshots) return tl::unexpected<Error>(std::move(snapshots).error());
  live.snapshots = *std::move(snapshots);
  WEFT_TRY(const std::vector<Control> controls, cli::listening_processes(kPatience));
  for (const Control &control : controls) {
    const Result<std::vector<Counted>> counted = counted_by(control);
    if (counted) {
      live.counted.insert(live.counted.end(), counted->begin(), counted->end());
    } else if (counted.error().code != FI_ENOENT) {  // the process may have just ended
      std::fprintf(stderr, "weft: %s\n", printable(counted.error().text).c_str());
    }
  }
  return live;
}

}  // namespace weft::stats
