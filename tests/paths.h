// SPDX-License-Identifier: BSD-2-Clause
// Where a test finds its files. Plugins and programs lie in the build tree, tables and documents in
// the source tree.
//
// Example (statements):
//    const std::string reader = weft::test::built("lib/weft/weft-config.so");
//    const std::string table = weft::test::source("tests/conformance/hints.txt");
//
// The paths are found at run time. A macro with an absolute path would make the object another one
// in each clone, and a compiler cache would never find it again. A test still names what it opens
// in its CMakeLists.txt (add_dependencies), so that it is built.
//
// Only for tests, whose programs lie in <build>/tests.
#ifndef WEFT_TESTS_PATHS_H
#define WEFT_TESTS_PATHS_H

#include <filesystem>
#include <string>
#include <string_view>

namespace weft::test {

// The absolute path of `below`, which is relative to the build tree of the running program.
inline std::string built(std::string_view below) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  return program.parent_path().parent_path() / below;
}

// The absolute path of `below`, which is relative to the source tree. It leads through the link
// <build>/source, which CMake makes (tests/CMakeLists.txt).
inline std::string source(std::string_view below) {
  return built("source/" + std::string(below));
}

}  // namespace weft::test

#endif
