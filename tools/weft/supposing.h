// SPDX-License-Identifier: BSD-2-Clause
// The options of commands that answer as for another machine: with a file of the policy that is not
// installed, on another host, for another program.
//
// Example:
//     #include "tools/weft/command.h"
//     void add_files(CLI::App &app, Action &action, SupposingOptions &supposing) {
//       CLI::App *command = app.add_subcommand("files", "The files that count");
//       add_file_option(*command, supposing);
//       command->callback([&action] {
//         action = []() -> Result<int> {
//           WEFT_TRY(const Library library, Library::open());
//           WEFT_TRY(const Json config, library.config());
//           print_json(config["files"]);
//           return kExitOk;
//         };
//       });
//     }
//
// main() tells the library what is supposed, in the child that asks it (supervise.h). Not for
// commands that ask by children of their own: those pass the options on.
#ifndef WEFT_TOOLS_WEFT_SUPPOSING_H
#define WEFT_TOOLS_WEFT_SUPPOSING_H

#include <weft/result.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/weft/library.h"

namespace weft::cli {

struct SupposingOptions {
  std::string file, as_file;  // empty: the installed files; and the place of `file`
  std::string host, executable;
  std::vector<std::string> netdevs;  // "eth0=ib0"
};

// For CLI11: "" is no file, and not the same as none ("$FILE" of a script).
std::string check_not_empty(const std::string &path);

// FILE and --as-file.
void add_file_option(CLI::App &command, SupposingOptions &options);
void add_place_option(CLI::App &command, SupposingOptions &options);  // --as-file
// --host, --executable and --netdev.
void add_fact_options(CLI::App &command, SupposingOptions &options);

// The facts as words of a command line, for a child.
std::vector<std::string> fact_words(const SupposingOptions &options);

// Tells on stderr which names in --netdev no device of this machine has. They are no errors: a
// command may be written for many hosts.
void warn_of_absent_devices(const char *command, const SupposingOptions &options);

std::string absolute_path(const std::string &path);
// The place of a file: `as_file`, or where it is if a configuration is read there, or its name in
// /etc/weft.
std::string installed_place(const Library &library, const std::string &file,
                            const std::string &as_file);
// An error unless it is a regular file that this user may read.
Result<void> check_readable(const std::string &file);

Result<void> suppose(const Library &library, const SupposingOptions &options);

}  // namespace weft::cli

#endif
