// SPDX-License-Identifier: BSD-2-Clause
// Runs a command whose processes record something: a folder for the files of the record, and the
// wait for the end of the command.
//
// Example:
//     Result<size_t> processes_of(const std::vector<std::string> &command) {
//       WEFT_TRY(const std::unique_ptr<RunFolder> folder, RunFolder::create("why"));
//       WEFT_CHECK(run_command(command, [&] { setenv("WEFT_WHY", folder->path().c_str(), 1); }));
//       return folder->files().size();  // the folder and its files are removed now
//     }
//
// child.h runs commands whose output is wanted.
#ifndef WEFT_TOOLS_WEFT_RECORDED_H
#define WEFT_TOOLS_WEFT_RECORDED_H

#include <weft/result.h>
#include <weft/sdk/progress/unique_fd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft::cli {

// A folder in the runtime folder of this user. The destructor removes it with its files; if this
// process is killed, the next create() of the name does.
class RunFolder {
 public:
  static Result<std::unique_ptr<RunFolder>> create(const std::string &name);
  ~RunFolder();
  RunFolder(const RunFolder &) = delete;
  RunFolder &operator=(const RunFolder &) = delete;
  const std::string &path() const { return path_; }
  std::vector<std::string> files() const;  // the files directly in it, sorted by name

 private:
  RunFolder(std::string path, sdk::UniqueFd folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}
  std::string path_;
  sdk::UniqueFd folder_;  // locked
};

// Runs a command with the terminal and the descriptors of this process, and waits for it. Ctrl-C
// ends the command, not this process. `prepare` is called in the child, before the command starts.
// The result is an exit status, 128 + N for signal N; 127: there is no such command, and an error
// was printed.
Result<int> run_command(const std::vector<std::string> &command,
                        const std::function<void()> &prepare);

}  // namespace weft::cli

#endif
