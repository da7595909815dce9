// SPDX-License-Identifier: BSD-2-Clause
// A command that is run under observation: a folder of its own for what its processes write down,
// and the wait for its end.
//
//   WEFT_TRY(const std::unique_ptr<RunFolder> folder, RunFolder::create("why"));
//   WEFT_TRY(const int status, run_command({"fi_info", "-l"}, [&] { setenv("WEFT_WHY", ...); }));
//   for (const std::string &file : folder->files()) ...
//
// Not for commands whose output is wanted: child.h.
#ifndef WEFT_TOOLS_WEFT_RECORDED_H
#define WEFT_TOOLS_WEFT_RECORDED_H

#include <weft/result.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace weft::cli {

// In the runtime folder of this user; removed with what is in it.
class RunFolder {
 public:
  static Result<std::unique_ptr<RunFolder>> create(const std::string &name);
  ~RunFolder();
  RunFolder(const RunFolder &) = delete;
  RunFolder &operator=(const RunFolder &) = delete;
  const std::string &path() const { return path_; }
  std::vector<std::string> files() const;  // those directly in it, by name

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Runs a command with our terminal and our descriptors and waits for it. Ctrl-C is for the command:
// what it left is shown all the same. `prepare` is called in the child, before the command. The
// result is an exit status, 128 + N for signal N; 127: there is no such command, which was said.
Result<int> run_command(const std::vector<std::string> &command,
                        const std::function<void()> &prepare);

}  // namespace weft::cli

#endif
