// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/control.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <absl/time/clock.h>
#include <absl/time/time.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <weft/abandoned.h>
#include <weft/printable.h>
#include <weft/runtime_dir.h>
#include <weft/sdk/progress/unique_fd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

Result<std::string> socket_of(pid_t pid) {
  WEFT_TRY(const std::string folder, runtime_directory());
  return absl::StrCat(folder, "/", pid, ".sock");
}

constexpr size_t kMaxAnswer = 256 << 20;

bool lives(pid_t pid) {
  return kill(pid, 0) == 0 || errno == EPERM;
}

// One request, one answer.
Result<std::string> round_trip(pid_t pid, absl::Duration most, const std::string &request) {
  WEFT_TRY(const std::string path, socket_of(pid));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return fail(FI_EINVAL, "%s is too long for a socket: set WEFT_RUNTIME_DIR, here and there",
                path.c_str());
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection < 0) return fail(errno, "socket: %s", std::strerror(errno));
  const absl::Cleanup close_connection = [connection] { close(connection); };
  const absl::Time end = absl::Now() + most;
  const timeval patience = absl::ToTimeval(most);
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(connection, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0) {
    const int code = errno;
    if (!lives(pid)) return fail(FI_ENOENT, "there is no process %d", int(pid));
    if (code == ENOENT || code == ECONNREFUSED)
      return fail(FI_ENOENT,
                  "process %d does not listen (%s): it has no fabric of weft open, `control` is "
                  "deny there, or it runs as another user or with another WEFT_RUNTIME_DIR",
                  int(pid), path.c_str());
    return fail(code, "process %d (%s): %s", int(pid), path.c_str(), std::strerror(code));
  }
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid())
    return fail(FI_EACCES, "%s is served by user %u, not by you", path.c_str(), unsigned(peer.uid));

  std::string_view left = request;
  while (!left.empty()) {
    const ssize_t put = send(connection, left.data(), left.size(), MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return fail(errno, "process %d does not listen any more", int(pid));
    left.remove_prefix(size_t(put));
  }
  shutdown(connection, SHUT_WR);
  std::string answer;
  char piece[16384];
  while (true) {
    const ssize_t got = recv(connection, piece, sizeof piece, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || absl::Now() > end)
      return fail(FI_ETIMEDOUT, "process %d did not answer within %d s: it may be stopped",
                  int(pid), int(absl::ToInt64Seconds(most)));
    if (got == 0) return answer;
    answer.append(piece, size_t(got));
    if (answer.size() > kMaxAnswer)
      return fail(FI_EPROTO, "process %d answered more than %zu bytes", int(pid), kMaxAnswer);
  }
}

Result<std::vector<uint64_t>> ids_of(const Json &answer) {
  std::vector<uint64_t> ids;
  const auto objects = answer.find("objects");
  if (objects != answer.end() && objects->is_array()) {
    for (const Json &id : *objects) {
      if (id.is_number_unsigned()) ids.push_back(id.get<uint64_t>());
    }
  }
  return ids;
}

}  // namespace

Result<Json> Control::ask(const Json &request) const {
  WEFT_TRY(
      const std::string text,
      round_trip(pid_, patience_, request.dump(-1, ' ', false, Json::error_handler_t::replace)));
  Json answer = Json::parse(text, nullptr, false);
  const auto ok = answer.is_object() ? answer.find("ok") : answer.end();
  if (!answer.is_object() || ok == answer.end() || !ok->is_boolean())
    return fail(FI_EPROTO, "process %d answered \"%s\", which is no answer of weft", int(pid_),
                printable(text.substr(0, 80)).c_str());
  if (*ok) return answer;
  const auto error = answer.find("error");
  return fail(FI_EOTHER, "process %d: %s", int(pid_),
              error != answer.end() && error->is_string()
                  ? error->get_ref<const std::string &>().c_str()
                  : "it says no, and not why");
}

Result<Control> Control::connect(pid_t pid, absl::Duration patience) {
  Control control(pid, patience);
  WEFT_TRY(const Json hello, control.ask({{"do", "hello"}}));
  control.program_ = hello.value("program", std::string());
  return control;
}

Result<Json> Control::objects() const {
  WEFT_TRY(const Json answer, ask({{"do", "objects"}}));
  return answer.value("objects", Json::array());
}

Result<Json> Control::counters() const {
  WEFT_TRY(const Json answer, ask({{"do", "counters"}}));
  return answer.value("fabrics", Json::array());
}

Result<std::vector<uint64_t>> Control::ask_about_hook(Json request, const std::string &hook,
                                                      const HookPlace &place) const {
  request["hook"] = hook;
  if (!place.element.empty()) request["at"] = place.element;
  if (place.object) request["object"] = *place.object;
  WEFT_TRY(const Json answer, ask(request));
  return ids_of(answer);
}

Result<std::vector<uint64_t>> Control::attach(
    const std::string &hook, const std::vector<std::pair<std::string, std::string>> &params,
    const HookPlace &place) const {
  Json request = {{"do", "attach"}};
  for (const auto &[key, value] : params) request["params"][key] = value;
  return ask_about_hook(std::move(request), hook, place);
}

Result<std::vector<uint64_t>> Control::detach(const std::string &hook,
                                              const HookPlace &place) const {
  return ask_about_hook({{"do", "detach"}}, hook, place);
}

Result<std::vector<Control>> listening_processes(absl::Duration patience) {
  WEFT_TRY(const std::string folder, runtime_directory());
  const sdk::UniqueFd folder_fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::vector<Control> found;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    absl::string_view number = name;
    pid_t pid = 0;
    if (!absl::ConsumeSuffix(&number, ".sock") || !absl::SimpleAtoi(number, &pid) || pid <= 0)
      continue;
    if (remove_abandoned_socket(folder_fd.get(), folder, name.c_str())) continue;
    if (Result<Control> control = Control::connect(pid, patience))
      found.push_back(*std::move(control));
  }
  if (error) return fail(error.value(), "%s: %s", folder.c_str(), error.message().c_str());
  std::sort(found.begin(), found.end(),
            [](const Control &a, const Control &b) { return a.pid() < b.pid(); });
  return found;
}

Result<std::vector<ControlProcess>> control_processes() {
  WEFT_TRY(const std::vector<Control> controls, listening_processes());
  std::vector<ControlProcess> found;
  for (const Control &control : controls) found.push_back({control.pid(), control.program()});
  return found;
}

}  // namespace weft::cli
