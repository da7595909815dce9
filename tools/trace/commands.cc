// SPDX-License-Identifier: BSD-2-Clause
#include "tools/trace/commands.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weft/printable.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>

#include "tools/trace/convert.h"
#include "tools/trace/report.h"
#include "tools/trace/snapshot.h"
#include "tools/weft/control.h"
#include "tools/weft/recorded.h"
#include "tools/weft/text.h"

namespace weft::cli {
namespace {

using trace::Snapshot;

struct TraceOptions {
  std::vector<int> pids;
  std::vector<std::string> params;   // KEY=VALUE of the hook
  std::vector<std::string> command;  // to run
  std::vector<std::string> files;    // or process numbers
  std::string output, form = "perfetto", element;
  double seconds = 10;
  bool seconds_given = false;
  size_t slowest = 10;
  bool json = false, all = false;
};

Result<std::vector<std::pair<std::string, std::string>>> params_of(const TraceOptions &options) {
  std::vector<std::pair<std::string, std::string>> params;
  for (const std::string &text : options.params) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
      return fail(FI_EINVAL,
                  "'%s' is no parameter: write KEY=VALUE; `weft plugin list` and weft-trace(1) "
                  "have them",
                  text.c_str());
    params.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return params;
}

// The trace files of a process number; that of a living process first.
Result<std::vector<std::string>> files_of(int pid) {
  WEFT_TRY(const std::vector<std::string> files, trace::trace_files());
  std::vector<std::string> found;
  for (const std::string &path : files) {
    const Result<trace::FileHeader> header = trace::read_header(path);
    if (!header || header->pid != uint32_t(pid)) continue;
    found.insert(trace::is_alive(*header) ? found.begin() : found.end(), path);
  }
  if (found.empty())
    return fail(FI_ENODATA,
                "process %d has no trace: `weft trace ls` lists those that are there, `weft trace "
                "attach %d` begins one",
                pid, pid);
  return found;
}

bool is_number(const std::string &text) {
  return !text.empty() && text.size() < 10 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

// Reads the traces that the words name: files or process numbers.
Result<std::vector<Snapshot>> load(const std::vector<std::string> &words) {
  std::vector<Snapshot> processes;
  for (const std::string &word : words) {
    std::vector<std::string> paths{word};
    if (is_number(word) && access(word.c_str(), F_OK) != 0) {
      WEFT_TRY(paths, files_of(atoi(word.c_str())));
      paths.resize(1);
    }
    for (const std::string &path : paths) {
      WEFT_TRY(std::vector<Snapshot> more, trace::read_any(path));
      std::move(more.begin(), more.end(), std::back_inserter(processes));
    }
  }
  return processes;
}

std::string summary(const std::vector<Snapshot> &processes) {
  size_t records = 0, lost = 0;
  for (const Snapshot &process : processes) {
    lost += process.lost_records;
    for (const trace::ThreadInfo &thread : process.threads) {
      records += thread.records.size();
      lost += thread.overwritten() + thread.torn;
    }
  }
  return std::to_string(records) + " records of " + std::to_string(processes.size()) +
         (processes.size() == 1 ? " process" : " processes") +
         (lost > 0 ? ", " + std::to_string(lost) + " older ones lost (a larger size keeps more)"
                   : "");
}

// ---- record ----

// Waits until the time is over, the process ends, or SIGINT or SIGTERM comes. As long as this
// lives, the signals do nothing else: one that comes before the wait ends it at once, one that
// comes later is dropped.
class Patience {
 public:
  Patience() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals_, &before_);
    fd_ = signalfd(-1, &signals_, SFD_CLOEXEC);
  }
  ~Patience() {
    if (fd_ >= 0) close(fd_);
    const timespec now{};
    while (sigtimedwait(&signals_, nullptr, &now) > 0) continue;
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  Patience(const Patience &) = delete;
  Patience &operator=(const Patience &) = delete;

  void wait(pid_t pid, double seconds) const {
    const int process = int(syscall(SYS_pidfd_open, pid, 0));
    pollfd fds[] = {{fd_, POLLIN, 0}, {process, POLLIN, 0}};
    (void)poll(fds, 2, int(std::min(seconds * 1000, 2e9)));
    if (process >= 0) close(process);
  }

 private:
  sigset_t signals_, before_;
  int fd_ = -1;
};

Result<std::vector<Snapshot>> record_processes(const TraceOptions &options) {
  WEFT_TRY(const auto params, params_of(options));
  HookPlace place;
  place.element = options.element;
  std::vector<Control> attached;
  const auto detach_all = [&] {
    for (const Control &control : attached) {
      if (const auto done = control.detach("trace", place); !done && kill(control.pid(), 0) == 0)
        std::fprintf(stderr, "weft trace record: process %d: %s\n", int(control.pid()),
                     printable(done.error().text).c_str());
    }
  };
  const Patience patience;
  for (const int pid : options.pids) {
    Result<Control> control = Control::connect(pid);
    if (!control) {
      detach_all();
      return tl::unexpected<Error>(control.error());
    }
    if (auto done = control->attach("trace", params, place); !done) {
      detach_all();
      return tl::unexpected<Error>(done.error());
    }
    attached.push_back(*control);
  }
  std::fprintf(stderr, "weft trace record: recording %zu process%s for %g s; Ctrl-C ends it\n",
               attached.size(), attached.size() == 1 ? "" : "es", options.seconds);
  patience.wait(attached.front().pid(), options.seconds);
  // Reads before it detaches: a process that exits removes its file.
  std::vector<Snapshot> processes;
  Result<void> failed;
  for (const int pid : options.pids) {
    const auto files = files_of(pid);
    auto snapshot = files ? trace::read_process(files->front())
                          : Result<Snapshot>(tl::unexpected<Error>(files.error()));
    if (snapshot)
      processes.push_back(std::move(*snapshot));
    else if (failed)
      failed = tl::unexpected<Error>(snapshot.error());
  }
  detach_all();
  if (processes.empty()) return tl::unexpected<Error>(failed.error());
  if (!failed)
    std::fprintf(stderr, "weft trace record: %s\n", printable(failed.error().text).c_str());
  return processes;
}

// The environment of the command, with the hook outermost.
void set_environment(const std::string &folder,
                     const std::vector<std::pair<std::string, std::string>> &params) {
  const char *hooks = getenv("FI_HOOK");
  const std::string old = hooks != nullptr ? hooks : "";
  if ((";" + old + ";").find(";trace;") == std::string::npos)
    setenv("FI_HOOK", old.empty() ? "trace" : ("trace;" + old).c_str(), 1);
  setenv("FI_TRACE_DIRECTORY", folder.c_str(), 1);
  setenv("FI_TRACE_KEEP", "1", 1);
  setenv("FI_TRACE_SIZE", "16M", 0);
  for (const auto &[key, value] : params) {
    std::string name = "FI_TRACE_" + key;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return char(toupper(c)); });
    setenv(name.c_str(), value.c_str(), 1);
  }
}

Result<std::vector<Snapshot>> record_command(const TraceOptions &options, int &status) {
  WEFT_TRY(const auto params, params_of(options));
  WEFT_TRY(const std::unique_ptr<RunFolder> folder, RunFolder::create("record"));
  WEFT_TRY(status, run_command(options.command, [&] { set_environment(folder->path(), params); }));
  std::vector<Snapshot> processes;
  for (const std::string &path : folder->files()) {
    if (auto snapshot = trace::read_process(path))
      processes.push_back(std::move(*snapshot));
    else
      std::fprintf(stderr, "weft trace record: %s\n", printable(snapshot.error().text).c_str());
  }
  if (processes.empty())
    return fail(FI_ENODATA,
                "%s left no trace (status %d): does it open a fabric of weft's libfabric.so.1?",
                options.command[0].c_str(), status);
  return processes;
}

Result<int> record(const TraceOptions &options) {
  if (options.pids.empty() == options.command.empty())
    return fail(FI_EINVAL, "say -p PID for processes that run, or -- COMMAND for one to be run");
  if (!options.command.empty() && options.seconds_given)
    return fail(FI_EINVAL, "--for goes with -p: a command is recorded until it ends");
  if (!options.command.empty() && !options.element.empty())
    return fail(FI_EINVAL,
                "--at goes with -p: for a command, name hooks in a stack of a file (FI_CONFIG)");
  int status = kExitOk;
  WEFT_TRY(const std::vector<Snapshot> processes,
           options.command.empty() ? record_processes(options) : record_command(options, status));
  std::string output = options.output;
  if (output.empty()) output = "weft-" + std::to_string(processes.front().pid) + ".trace";
  WEFT_CHECK(trace::write_saved(output, processes, /*only_new=*/options.output.empty()));
  if (options.json) {
    Json pids = Json::array();
    for (const Snapshot &process : processes) pids.push_back(process.pid);
    print_json({{"file", output}, {"pids", pids}, {"status", status}});
  }
  std::fprintf(stderr, "weft trace record: %s: %s\n", output.c_str(), summary(processes).c_str());
  return status;
}

// ---- attach, detach ----

Result<int> attach(const TraceOptions &options) {
  WEFT_TRY(const auto params, params_of(options));
  WEFT_TRY(const Control control, Control::connect(options.pids.front()));
  HookPlace place;
  place.element = options.element;
  WEFT_TRY(const std::vector<uint64_t> objects, control.attach("trace", params, place));
  if (options.json)
    print_json({{"pid", int(control.pid())}, {"objects", objects}});
  else
    std::printf("process %d is traced; `weft trace report %d` shows it\n", int(control.pid()),
                int(control.pid()));
  return kExitOk;
}

Result<int> detach(const TraceOptions &options) {
  WEFT_TRY(const Control control, Control::connect(options.pids.front()));
  HookPlace place;
  place.element = options.element;
  WEFT_TRY(const std::vector<uint64_t> objects, control.detach("trace", place));
  if (options.json)
    print_json({{"pid", int(control.pid())}, {"objects", objects}});
  else
    std::printf("process %d is traced no more; what is recorded stays until it ends\n",
                int(control.pid()));
  return kExitOk;
}

// ---- ls, rm ----

Result<int> list(const TraceOptions &options) {
  WEFT_TRY(const std::vector<std::string> files, trace::trace_files());
  Json json = Json::array();
  Table table({"PID", "STATE", "RECORDS", "THREADS", "PROGRAM", "FILE"});
  for (const std::string &path : files) {
    const Result<Snapshot> process = trace::read_process(path);
    if (!process) {
      if (process.error().code == ENOENT) continue;  // its process has just ended
      json.push_back({{"file", path}, {"error", process.error().text}});
      table.add({"-", "unreadable", "-", "-", process.error().text, path}, Emphasis::kDoubtful);
      continue;
    }
    uint64_t records = 0;
    for (const trace::ThreadInfo &thread : process->threads) records += thread.records.size();
    const char *state = process->alive ? "alive" : process->ended ? "ended" : "dead";
    json.push_back({{"pid", process->pid},
                    {"state", state},
                    {"recording", trace::phase_name(process->phase)},
                    {"records", records},
                    {"threads", process->threads.size()},
                    {"program", process->program},
                    {"file", path}});
    table.add({std::to_string(process->pid), state, std::to_string(records),
               std::to_string(process->threads.size()), process->program, path},
              process->alive ? Emphasis::kGood : Emphasis::kNone);
  }
  if (options.json)
    print_json(json);
  else if (json.empty())
    std::printf("no process of yours is or was traced\n");
  else
    table.print();
  return kExitOk;
}

Result<int> remove(const TraceOptions &options) {
  WEFT_TRY(const std::vector<std::string> files, trace::trace_files());
  Json removed = Json::array();
  int status = kExitOk;
  for (const std::string &path : files) {
    const Result<trace::FileHeader> header = trace::read_header(path);
    const bool named = header && std::find(options.pids.begin(), options.pids.end(),
                                           int(header->pid)) != options.pids.end();
    if (!options.pids.empty() && !named) continue;
    if (header && trace::is_alive(*header)) {
      if (!named) continue;
      std::fprintf(stderr, "weft trace rm: process %u runs: `weft trace detach %u` first\n",
                   header->pid, header->pid);
      status = kExitNo;
      continue;
    }
    // Leaves files that are no traces, unless --all is given.
    if (!header && !options.all) continue;
    if (unlink(path.c_str()) != 0) {
      if (errno == ENOENT) continue;  // its process has just ended
      std::fprintf(stderr, "weft trace rm: %s: %s\n", printable(path).c_str(), strerror(errno));
      status = kExitNo;
      continue;
    }
    removed.push_back(path);
    if (!options.json) std::printf("removed %s\n", printable(path).c_str());
  }
  if (options.json) print_json(removed);
  if (removed.empty() && status == kExitOk && !options.json) std::printf("nothing to remove\n");
  return status;
}

// ---- convert, report ----

Result<int> convert(const TraceOptions &options) {
  WEFT_TRY(const trace::Form form, trace::read_form(options.form));
  WEFT_TRY(const std::vector<Snapshot> processes, load(options.files));
  const trace::Timeline timeline = trace::build_timeline(processes);
  if (options.output.empty() || options.output == "-") {
    if (form == trace::Form::kPerfetto && isatty(STDOUT_FILENO) != 0)
      return fail(FI_EINVAL, "that is no text: give a file with -o");
    trace::write_trace(timeline, form, std::cout);
    std::cout.flush();
    if (!std::cout) return fail(FI_EIO, "standard output cannot be written");
    return kExitOk;
  }
  std::ofstream out(options.output, std::ios::binary | std::ios::trunc);
  trace::write_trace(timeline, form, out);
  out.close();
  if (!out) return fail(FI_EIO, "%s cannot be written", options.output.c_str());
  std::fprintf(stderr, "weft trace convert: %s: %s\n", options.output.c_str(),
               summary(processes).c_str());
  for (size_t p = 1; p < processes.size(); ++p) {
    std::fprintf(stderr, "weft trace convert: clock of process %u: %s, offset %lld ns\n",
                 processes[p].pid, timeline.offsets[p].how.c_str(),
                 static_cast<long long>(timeline.offsets[p].ns));
  }
  return kExitOk;
}

Result<int> report(const TraceOptions &options) {
  WEFT_TRY(const std::vector<Snapshot> processes, load(options.files));
  const trace::Timeline timeline = trace::build_timeline(processes);
  trace::ReportOptions wanted;
  wanted.slowest = options.slowest;
  const Json json = trace::make_report(timeline, wanted);
  if (options.json)
    print_json(json);
  else
    std::fputs(trace::to_text(json).c_str(), stdout);
  return kExitOk;
}

}  // namespace

void add_trace(CLI::App &app, Action &action) {
  app.require_subcommand(1);
  const auto options = std::make_shared<TraceOptions>();
  const auto subcommand = [&](const char *name, const char *help,
                              Result<int> (*run)(const TraceOptions &)) {
    CLI::App *sub = app.add_subcommand(name, help);
    sub->add_flag("--json", options->json, "JSON instead of text");
    sub->callback([&action, options, run] { action = [options, run] { return run(*options); }; });
    return sub;
  };
  const auto hook_options = [&](CLI::App *sub) {
    sub->add_option("--set", options->params,
                    "A parameter of the hook, KEY=VALUE: size, ops, start ...; weft-trace(1)")
        ->allow_extra_args(false);
    sub->add_option("--at", options->element,
                    "Only this element of the stacks, such as tcp; without, what the application "
                    "opened");
  };
  const auto one_pid = [&](CLI::App *sub) {
    sub->add_option("PID", options->pids, "The process; `weft hook ls` lists them")
        ->required()
        ->expected(1)
        ->check(CLI::Range(1, INT_MAX));
  };

  CLI::App *sub =
      subcommand("record", "Runs a command, or watches processes, and saves a trace", record);
  sub->add_option("-o,--output", options->output, "The saved trace; without, weft-PID.trace");
  sub->add_option("-p,--pid", options->pids, "A process that runs; may be repeated")
      ->check(CLI::Range(1, INT_MAX))
      ->allow_extra_args(false);
  sub->add_option_function<double>(
         "--for",
         [options](const double &seconds) {
           options->seconds = seconds;
           options->seconds_given = true;
         },
         "Seconds to watch it; without, 10")
      ->check(CLI::Range(0.001, 1e6));
  hook_options(sub);
  sub->add_option("COMMAND", options->command, "The command and its arguments, after --");
  sub = subcommand("attach", "Begins to trace a running process", attach);
  one_pid(sub);
  hook_options(sub);
  sub = subcommand("detach", "Ends that", detach);
  one_pid(sub);
  sub->add_option("--at", options->element, "As it was attached");
  subcommand("ls", "Lists the traces of running and of dead processes", list);
  sub = subcommand("convert", "Writes traces in a form that viewers open", convert);
  sub->add_option("TRACE", options->files, "Saved traces, or processes by number")->required();
  sub->add_option(
      "--to", options->form,
      "perfetto (ui.perfetto.dev), chrome (chrome://tracing) or csv; without, perfetto");
  sub->add_option("-o,--output", options->output, "The file; without, standard output");
  sub = subcommand("report", "Counts, latencies, waiting, and what never completed", report);
  sub->add_option("TRACE", options->files, "Saved traces, or processes by number")->required();
  sub->add_option("--slowest", options->slowest, "So many of the slowest; without, 10");
  sub = subcommand("rm", "Removes the traces of dead processes", remove);
  sub->add_option("PID", options->pids, "Only those of these processes");
  sub->add_flag("--all", options->all, "Also what can't be read");
}

}  // namespace weft::cli
