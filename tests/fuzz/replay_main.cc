// SPDX-License-Identifier: BSD-2-Clause
// Runs a fuzz target once over every file of the folders (or files) given, for builds without
// libFuzzer: the corpus is then an ordinary test. It searches for nothing new.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace {

bool replay(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) {
    std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
    return false;
  }
  // An array of just this size, so that a sanitizer sees a read past its end.
  const std::vector<uint8_t> input(bytes.begin(), bytes.end());
  std::printf("%s (%zu bytes)\n", path.c_str(), input.size());
  std::fflush(stdout);  // after a crash the last line names the file
  LLVMFuzzerTestOneInput(input.data(), input.size());
  return true;
}

}  // namespace

int main(int argc, char **argv) {
  size_t count = 0;
  try {
    for (int i = 1; i < argc; ++i) {
      if (!std::filesystem::is_directory(argv[i])) {
        if (!replay(argv[i])) return 1;
        ++count;
        continue;
      }
      for (const auto &entry : std::filesystem::recursive_directory_iterator(argv[i])) {
        if (!entry.is_regular_file()) continue;
        if (!replay(entry.path())) return 1;
        ++count;
      }
    }
  } catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  if (count == 0) {
    std::fprintf(stderr, "usage: %s FOLDER|FILE...: no input was found\n", argv[0]);
    return 1;
  }
  std::printf("%zu inputs\n", count);
  return 0;
}
