// SPDX-License-Identifier: BSD-2-Clause
// The libfabric.so.1 that this program runs on: its path, and its answers to questions.
//
// Example:
//     Result<void> print_why(const std::string &name) {
//       WEFT_TRY(const Library library, Library::open());
//       std::puts(library.path().c_str());  // "/usr/lib/x86_64-linux-gnu/weft/libfabric.so.1.0.100"
//       WEFT_TRY(const Json decisions, library.why(name));
//       print_json(decisions);
//       return {};
//     }
//
// It uses the public API only, so every program on this library gets the same answers.
#ifndef WEFT_TOOLS_WEFT_LIBRARY_H
#define WEFT_TOOLS_WEFT_LIBRARY_H

#include <weft/diagnosis.h>
#include <weft/result.h>

#include <memory>
#include <string>

#include "tools/weft/text.h"

namespace weft::cli {

class Library {
 public:
  // An error if the libfabric that the loader found is not weft.
  static Result<Library> open();

  const std::string &path() const { return path_; }
  std::string plugin_folder() const;  // "<folder of the library>/weft"
  std::string probe_program() const;  // weft-probe, beside the plugins

  // weft/diagnosis.h describes the answers.
  Result<Json> why(const std::string &name) const;
  Result<Json> explain(const std::string &stack) const;
  Result<Json> plugins() const;
  Result<Json> config() const;
  Result<Json> objects() const;

  // A hook on live objects of this process: `root`, and what was and will be opened from it.
  Result<void> attach_hook(struct fid &root, const std::string &hook) const;
  Result<void> detach_hook(struct fid &root, const std::string &hook) const;

  // For a process that asks in place of another one (supervise.h).
  using Step = void (*)(void *arg, const char *unit, const char *library, const char *call);
  void watch(Step step, void *arg) const;
  void refuse(const std::string &library, const std::string &why, const std::string &remedy) const;
  // Answers as for another machine (weft_diagnosis_ops::suppose), before anything else is asked.
  Result<void> suppose(const char *what, const std::string &name, const std::string &value) const;

 private:
  struct Close {
    void operator()(struct fid *object) const;
  };
  Result<Json> parsed(const char *question, int ret, char *text) const;

  std::string path_;
  std::unique_ptr<struct fid, Close> object_;
  weft_diagnosis_ops *ops_ = nullptr;
};

}  // namespace weft::cli

#endif
