// SPDX-License-Identifier: BSD-2-Clause
// The client of core/control: asks running processes of this user about their objects and hooks.
//
// Example:
//     #include <thread>
//     Result<void> trace_for(pid_t pid, std::chrono::seconds time) {
//       WEFT_TRY(const Control control, Control::connect(pid));
//       WEFT_CHECK(control.attach("trace", {{"size", "4M"}}));
//       std::this_thread::sleep_for(time);
//       WEFT_CHECK(control.detach("trace"));
//       return {};
//     }
//
// Each call makes a connection of its own and waits up to `patience` to send and to receive. For
// the libfabric of this process there is tools/weft/library.h.
#ifndef WEFT_TOOLS_WEFT_CONTROL_H
#define WEFT_TOOLS_WEFT_CONTROL_H

#include <absl/time/time.h>
#include <sys/types.h>
#include <weft/result.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::cli {

// A place in a process. Empty: every fabric that the application opened.
struct HookPlace {
  std::string element;             // "tcp": the fabrics of this element of a stack, inner ones too
  std::optional<uint64_t> object;  // this object, and the objects opened from it
};

class Control {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  // Checks that the process answers. Errors: there is no such process, it belongs to another user,
  // it does not listen (no fabric open, control denied, not on weft), it does not answer.
  static Result<Control> connect(pid_t pid, absl::Duration patience = kPatience);

  pid_t pid() const { return pid_; }
  const std::string &program() const { return program_; }

  // The live objects, in the format of weft/diagnosis.h.
  Result<nlohmann::ordered_json> objects() const;
  // What its plugins count: the array "fabrics" of core/control/requests.h.
  Result<nlohmann::ordered_json> counters() const;
  // Both return the ids of the objects that they changed.
  Result<std::vector<uint64_t>> attach(
      const std::string &hook, const std::vector<std::pair<std::string, std::string>> &params,
      const HookPlace &place = {}) const;
  Result<std::vector<uint64_t>> detach(const std::string &hook, const HookPlace &place = {}) const;

 private:
  Control(pid_t pid, absl::Duration patience) : pid_(pid), patience_(patience) {}
  Result<nlohmann::ordered_json> ask(const nlohmann::ordered_json &request) const;
  Result<std::vector<uint64_t>> ask_about_hook(nlohmann::ordered_json request,
                                               const std::string &hook,
                                               const HookPlace &place) const;

  pid_t pid_;
  absl::Duration patience_;
  std::string program_;
};

struct ControlProcess {
  pid_t pid = 0;
  std::string program;
};

// The processes of this user that listen, by pid. Removes the sockets of dead processes.
Result<std::vector<ControlProcess>> control_processes();
// The same, to ask them more.
Result<std::vector<Control>> listening_processes(absl::Duration patience = Control::kPatience);

}  // namespace weft::cli

#endif
