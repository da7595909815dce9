// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/why_command.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/printable.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "tools/weft/child.h"
#include "tools/weft/library.h"
#include "tools/weft/recorded.h"
#include "tools/weft/text.h"

namespace weft::cli {
namespace fs = std::filesystem;
namespace {

// ---- the record ----

// One object per program that ran: {"pid", ..., "calls": [...]}, in the order of their starts.
Json read_processes(const std::vector<std::string> &files) {
  std::vector<Json> processes;
  for (const std::string &path : files) {
    std::ifstream file(path);
    bool begun = false;
    for (std::string line; std::getline(file, line);) {
      Json one = Json::parse(line, nullptr, false);
      if (!one.is_object()) continue;  // the process was killed while it wrote
      if (text_of(one, "call") == "process") {
        one.erase("call");
        one["calls"] = Json::array();
        processes.push_back(std::move(one));
        begun = true;
      } else if (begun) {
        processes.back()["calls"].push_back(std::move(one));
      }
    }
  }
  std::stable_sort(processes.begin(), processes.end(), [](const Json &a, const Json &b) {
    const auto time = [](const Json &one) {
      const auto at = one.find("time");
      return at != one.end() && at->is_number() ? at->get<double>() : 0.0;
    };
    return time(a) < time(b);
  });
  Json list = Json::array();
  for (Json &one : processes) list.push_back(std::move(one));
  return list;
}

// ---- why there is no record ----

// The file of a command, as execvp() finds it; empty: there is none.
std::string find_program(const std::string &name) {
  if (name.find('/') != std::string::npos) return name;
  const char *path = std::getenv("PATH");
  for (const absl::string_view folder :
       absl::StrSplit(path != nullptr ? path : "/usr/bin:/bin", ':')) {
    const std::string file = absl::StrCat(folder.empty() ? "." : folder, "/", name);
    if (access(file.c_str(), X_OK) == 0 && !fs::is_directory(file)) return file;
  }
  return {};
}

// The dynamic linker that a program names; empty: the program is static or not an ELF file.
std::string interpreter_of(const std::string &file, bool &is_elf) {
  std::ifstream in(file, std::ios::binary);
  Elf64_Ehdr head{};
  in.read(reinterpret_cast<char *>(&head), sizeof head);
  is_elf = in.gcount() == sizeof head && std::memcmp(head.e_ident, ELFMAG, SELFMAG) == 0;
  if (!is_elf || head.e_ident[EI_CLASS] != ELFCLASS64) return {};
  for (unsigned i = 0; i < head.e_phnum && i < 256; ++i) {
    Elf64_Phdr part{};
    in.seekg(static_cast<std::streamoff>(head.e_phoff + uint64_t{i} * head.e_phentsize));
    in.read(reinterpret_cast<char *>(&part), sizeof part);
    if (in.gcount() != sizeof part) return {};
    if (part.p_type != PT_INTERP || part.p_filesz == 0 || part.p_filesz > 4096) continue;
    std::string name(part.p_filesz - 1, '\0');
    in.seekg(static_cast<std::streamoff>(part.p_offset));
    in.read(name.data(), static_cast<std::streamsize>(name.size()));
    return in ? name : std::string();
  }
  return {};
}

// Why a command left no record, as far as its file tells. Runs no code of the command.
std::string explain_nothing(const std::string &command, const std::string &library_path,
                            const std::string &ours) {
  const std::string file = find_program(command);
  if (file.empty()) return absl::StrCat("there is no program ", command);
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) return absl::StrCat(file, ": ", std::strerror(errno));
  if ((status.st_mode & (S_ISUID | S_ISGID)) != 0)
    return absl::StrCat(
        file, " runs with raised privileges: it heeds neither LD_LIBRARY_PATH nor WEFT_WHY");
  bool is_elf = false;
  const std::string interpreter = interpreter_of(file, is_elf);
  if (!is_elf)
    return absl::StrCat(file,
                        " is a script, and no program that it started asked this libfabric.so.1");
  if (interpreter.empty())
    return absl::StrCat(file, " is linked statically: if it has a libfabric, it is its own");
  const Result<ChildResult> listed = run_child(
      {interpreter, "--list", file}, {{"LD_LIBRARY_PATH", library_path}}, std::chrono::seconds(20));
  constexpr const char *kName = "libfabric.so.1 => ";
  const size_t at = listed ? listed->out.find(kName) : std::string::npos;
  if (at == std::string::npos)
    return absl::StrCat(
        file,
        " is not linked with libfabric, and nothing that it opened or started asked this "
        "libfabric.so.1");
  const size_t from = at + std::strlen(kName);
  const std::string found = listed->out.substr(from, listed->out.find_first_of(" \n", from) - from);
  std::error_code error;
  if (fs::equivalent(found, ours, error))
    return absl::StrCat(file, " ended before it asked anything");
  return absl::StrCat(file, " runs on another libfabric, ", found,
                      ", which its RPATH or LD_PRELOAD puts before ", ours);
}

// ---- printing ----

std::string number_of(const Json &json, const char *key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->dump() : "?";
}

std::string answer_text(const Json &answer) {
  std::string text = text_of(answer, "provider");
  if (const std::string stack = text_of(answer, "stack"); !stack.empty())
    absl::StrAppend(&text, " (", stack, ")");
  for (const char *key : {"endpoint", "domain", "source"}) {
    if (const std::string part = text_of(answer, key); !part.empty() && part != "FI_EP_UNSPEC")
      absl::StrAppend(&text, " ", part);
  }
  return text;
}

// "rxm > tcp"; of ["link", [["shm"], ["rxm", "tcp"]]]: "link > (shm | rxm > tcp)".
std::string stack_text(const Json &stack) {
  std::vector<std::string> parts;
  for (const Json &part : stack) {
    if (part.is_string()) parts.push_back(part.get<std::string>());
    if (!part.is_array()) continue;
    std::vector<std::string> branches;
    for (const Json &branch : part) branches.push_back(stack_text(branch));
    parts.push_back(absl::StrCat("(", absl::StrJoin(branches, " | "), ")"));
  }
  return absl::StrJoin(parts, " > ");
}

constexpr size_t kLabel = 8, kIndent = 4;

void print_getinfo(const Json &call, size_t number) {
  std::string head = absl::StrCat("fi_getinfo ", number, ", API ", text_of(call, "version"));
  for (const char *key : {"node", "service"}) {
    if (const std::string text = text_of(call, key); !text.empty())
      absl::StrAppend(&head, ", ", key, " ", text);
  }
  for (const std::string &flag : texts_of(call, "flags")) absl::StrAppend(&head, ", ", flag);
  const Json answers = call.value("answers", Json::array());
  const bool good = !answers.empty();
  const std::string result = good ? absl::StrCat(number_of(call, "answer_count"),
                                                 answers.size() == 1 ? " answer" : " answers")
                                  : text_of(call, "error");
  absl::PrintF("  %s: %s\n", printable(head),
               emphasized(result, good ? Emphasis::kGood : Emphasis::kBad).c_str());
  std::vector<std::string> hints;
  const Json set = call.value("hints", Json::object());
  for (const auto &[name, value] : set.items())
    hints.push_back(
        absl::StrCat(name, " ", value.is_string() ? value.get<std::string>() : value.dump()));
  print_field("hints", hints.empty() ? "none" : absl::StrJoin(hints, "; "), kLabel, kIndent);
  // Answers that look alike in a line are printed once.
  std::vector<std::string> shown;
  std::set<std::string> seen;
  for (const Json &answer : answers) {
    if (std::string text = answer_text(answer); seen.insert(text).second)
      shown.push_back(std::move(text));
  }
  constexpr size_t kMost = 6;
  for (size_t i = 0; i < std::min(shown.size(), kMost); ++i)
    print_field(i == 0 ? "answers" : "", shown[i], kLabel, kIndent);
  if (shown.size() > kMost)
    print_field("", absl::StrCat("and ", shown.size() - kMost, " more"), kLabel, kIndent);
  bool first = true;
  for (const Json &miss : call.value("misses", Json::array())) {
    print_field(first ? "misses" : "", text_of(miss, "text"), kLabel, kIndent);
    first = false;
  }
}

void print_process(const Json &process, const std::string &ours) {
  std::vector<std::string> words = texts_of(process, "arguments");
  if (words.empty()) words = {text_of(process, "program")};
  absl::PrintF("%s\n", emphasized(absl::StrCat("process ", number_of(process, "pid"), ": ",
                                               absl::StrJoin(words, " ")),
                                  Emphasis::kStrong));
  if (const std::string folder = text_of(process, "library_folder");
      !folder.empty() && folder != fs::path(ours).parent_path())
    print_field("library", folder, kLabel, 2);
  size_t number = 0;
  const Json *opened = nullptr;
  for (const Json &call : process["calls"]) {
    if (text_of(call, "call") == "getinfo") print_getinfo(call, ++number);
    if (text_of(call, "call") != "fabric") continue;
    if (text_of(call, "error").empty())
      opened = &call;
    else
      absl::PrintF("  fi_fabric: %s\n", emphasized(text_of(call, "error"), Emphasis::kBad));
  }
  if (opened != nullptr)
    absl::PrintF("  opened at last: %s on %s: application > %s > wire\n",
                 emphasized(text_of(*opened, "provider"), Emphasis::kGood),
                 printable(text_of(*opened, "fabric")),
                 printable(stack_text(array_of(*opened, "stack"))));
  else if (number > 0)
    absl::PrintF("  opened nothing\n");
}

void print_processes(const Json &processes, const std::string &ours) {
  size_t silent = 0;
  bool first = true;
  for (const Json &process : processes) {
    if (process["calls"].empty()) {
      ++silent;
      continue;
    }
    if (!first) absl::PrintF("\n");
    first = false;
    print_process(process, ours);
  }
  if (silent != 0)
    absl::PrintF("%s%d process%s loaded the library and asked it nothing\n", first ? "" : "\n",
                 silent, silent == 1 ? "" : "es");
}

}  // namespace

Result<int> why_command(const std::vector<std::string> &command, bool json) {
  WEFT_TRY(const Library library, Library::open());
  WEFT_TRY(const std::unique_ptr<RunFolder> folder, RunFolder::create("why"));
  // A folder with a link to the library alone: other libraries beside it must not come before those
  // that the program found so far.
  const std::string links = absl::StrCat(folder->path(), "/lib");
  std::error_code error;
  fs::create_directory(links, error);
  if (!error) fs::create_symlink(library.path(), absl::StrCat(links, "/libfabric.so.1"), error);
  if (error) return fail(error.value(), "%s: %s", links.c_str(), error.message().c_str());
  const char *old = std::getenv("LD_LIBRARY_PATH");
  const std::string path =
      absl::StrCat(links, old != nullptr && *old != '\0' ? ":" : "", absl::NullSafeStringView(old));

  WEFT_TRY(const int status, run_command(command, [&] {
             setenv("WEFT_WHY", folder->path().c_str(), 1);
             setenv("LD_LIBRARY_PATH", path.c_str(), 1);
             // Only this program's JSON goes to stdout.
             if (json) dup2(STDERR_FILENO, STDOUT_FILENO);
           }));
  const Json processes = read_processes(folder->files());
  const std::string note = processes.empty() && status != 127
                               ? absl::StrCat("nothing was recorded: ",
                                              explain_nothing(command[0], path, library.path()))
                               : std::string();
  if (json) {
    Json all = {{"command", command}, {"status", status}, {"processes", processes}};
    all["note"] = note.empty() ? Json(nullptr) : Json(note);
    print_json(all);
    return status;
  }
  print_processes(processes, library.path());
  if (!note.empty()) absl::FPrintF(stderr, "weft why: %s\n", printable(note));
  return status;
}

}  // namespace weft::cli
