// SPDX-License-Identifier: BSD-2-Clause
// The subcommands of weft plugin. plugin.cc adds them to the command line.
//
// Example:
//     Result<int> check(const std::string &file) {
//       return check_plugin({.file = file, .budget = "2000"});
//     }
//
// weft-probe runs the code of a plugin. Of this program only the process of a trial does.
#ifndef WEFT_TOOLS_WEFT_PLUGIN_H
#define WEFT_TOOLS_WEFT_PLUGIN_H

#include <weft/result.h>

#include <chrono>
#include <string>
#include <vector>

#include "tools/weft/text.h"

namespace weft::cli {

struct PluginOptions {
  bool json = false;
  bool verbose = false;    // list
  std::string file;        // check, test
  std::string budget;      // check, test: milliseconds, as text
  std::string folder;      // refresh: empty: all folders; new: empty: as the plugin is named
  std::string clear;       // quarantine: the file to take out
  std::string kind;        // new: provider, layer, hook
  std::string name;        // new: the unit
  std::string vendor;      // new: empty: "the authors of ..."
  std::string templates;   // new: empty: those of the installed SDK
  std::string json_file;   // test: "-": stdout
  std::string junit_file;  // test: "-": stdout
  std::string over;        // test: the provider beneath a layer or a hook
};

// What `weft plugin check` finds.
struct FileCheck {
  std::string check, finding, remedy;
  bool good = true;
};
struct PluginCheck {
  std::vector<FileCheck> findings;
  Json record;  // what weft-probe says of the plugin
  bool good = false;
};
Result<PluginCheck> check_plugin_file(const std::string &file, const std::string &budget);

// The results are exit statuses.
Result<int> list_plugins(const PluginOptions &options);
Result<int> check_plugin(const PluginOptions &options);
Result<int> refresh_plugins(const PluginOptions &options);
Result<int> quarantine_plugins(const PluginOptions &options);
Result<int> new_plugin(const PluginOptions &options);
Result<int> test_plugin(const PluginOptions &options);

// A trial of test_plugin(), in a process of its own: the program itself, with these arguments, of
// which the first is kTrialWord.
inline constexpr const char *kTrialWord = "plugin-trial";
int run_plugin_trial(int argc, char **argv);

// Time limit for a run of weft-probe. Longer than any budget that weft-probe accepts.
inline constexpr std::chrono::minutes kProbeLimit{11};

// The absolute path, without ".", ".." and a slash at the end.
std::string tidy_path(const std::string &path);

}  // namespace weft::cli

#endif
