// SPDX-License-Identifier: BSD-2-Clause
// The fixture of the loader's tests: a temporary plugin folder with the toy plugin (toy_plugin.c),
// and options for a Loader over it.
//
// Example:
//    class MyTest : public weft::LoaderTest {};
//    TEST_F(MyTest, FindsTheToy) {
//      install();
//      weft::Loader loader(options());
//      weft::expect_toy(loader, folder_.at("weft"));
//    }
//
// Only for tests.
#ifndef WEFT_CORE_LOADER_TEST_LOADER_H
#define WEFT_CORE_LOADER_TEST_LOADER_H

#include <gtest/gtest.h>

#include <string>

#include "core/loader/loader.h"
#include "core/loader/side_effects.h"
#include "core/loader/test_folder.h"

namespace weft {

// The file of the toy plugin. That of version 2 does not match the manifest of version 1.
std::string toy_plugin(int version = 1);

class LoaderTest : public testing::Test {
 protected:
  LoaderTest();
  ~LoaderTest() override;

  LoaderOptions options() const;
  // Options of a loader that can neither read YAML nor probe, so that everything comes from the
  // index.
  LoaderOptions index_only() const;
  // Options without a probe: the loader opens libraries in this process.
  LoaderOptions without_probe() const;
  // Options with a probe that takes longer than its budget.
  LoaderOptions with_slow_probe() const;

  void install() const;  // the toy plugin and its manifest
  RefreshReport refresh() const;
  std::string log() const { return TestFolder::read(log_); }  // the calls into the toy's code

  TestFolder folder_;
  const std::string log_ = folder_.at("log");
};

// Tests in which a child process probes have it: a process with threads must not fork.
#define NEEDS_PROBE() \
  if (count_threads() != 1) GTEST_SKIP() << "this build starts threads of its own; no probing"

// The loader has found all units of the toy in `folder`, with all that the toy says of them.
void expect_toy(const Loader &loader, const std::string &folder);

}  // namespace weft

#endif
