// SPDX-License-Identifier: BSD-2-Clause
// A temporary folder for tests, with what the tests of the loader put into one.
//
// Example (statements):
//    weft::TestFolder folder;
//    folder.write("plugins.d/toy.yaml", "name: toy");
//    folder.copy("/build/toy.so", "toy.so");
//
// Only for tests.
#ifndef WEFT_CORE_LOADER_TEST_FOLDER_H
#define WEFT_CORE_LOADER_TEST_FOLDER_H

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace weft {

class TestFolder {
 public:
  TestFolder() {
    std::string name = std::filesystem::temp_directory_path() / "weft-test-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TestFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TestFolder(const TestFolder &) = delete;
  TestFolder &operator=(const TestFolder &) = delete;

  const std::string &path() const { return path_; }
  std::string at(std::string_view name) const { return path_ + "/" + std::string(name); }

  std::string write(std::string_view name, std::string_view content) const {
    const std::string path = at(name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    unlink(path.c_str());  // never into a file that may be mapped as a library
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
    chmod(path.c_str(), 0644);
    return path;
  }
  std::string copy(const std::string &from, std::string_view name) const {
    return write(name, read(from));
  }
  static std::string read(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

 private:
  std::string path_;
};

}  // namespace weft

#endif
