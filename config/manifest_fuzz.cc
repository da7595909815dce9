// SPDX-License-Identifier: BSD-2-Clause
// Fuzz target: any bytes give a manifest or an error with a place; the view is complete
// and is freed.
#include <weft/config.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

extern "C" const weft_config_reader *weft_config_query(void);

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

size_t length(const char *text) {
  require(text != nullptr);
  return std::strlen(text);
}

void on_diagnostic(void *arg, uint32_t severity, const weft_where *where, const char *text) {
  require(where->line > 0 && where->column > 0 && length(text) > 0);
  if (severity == WEFT_DIAG_ERROR) ++*static_cast<size_t *>(arg);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const weft_config_reader *reader = weft_config_query();
  size_t errors = 0;
  weft_manifest *manifest = nullptr;
  const int32_t rc = reader->read_manifest("fuzz.yaml", reinterpret_cast<const char *>(data), size,
                                           on_diagnostic, &errors, &manifest);
  require((rc == 0) == (manifest != nullptr));
  require((rc == 0) == (errors == 0));
  if (manifest == nullptr) return 0;
  for (const char *text : {manifest->name, manifest->vendor, manifest->version, manifest->license,
                           manifest->library, manifest->arch})
    require(length(text) > 0);
  require(manifest->abi_major > 0);
  require(manifest->unit_count > 0 && manifest->unit_count <= WEFT_MAX_UNITS);
  for (size_t i = 0; i < manifest->unit_count; ++i) {
    const weft_manifest_unit &unit = manifest->units[i];
    require(unit.kind >= WEFT_KIND_PROVIDER && unit.kind <= WEFT_KIND_HOOK);
    require(length(unit.name) > 0);
    length(unit.summary);
    length(unit.device_remedy);
    for (size_t j = 0; j < unit.device_count; ++j) require(length(unit.devices[j]) > 2);
    for (size_t j = 0; j < unit.param_count; ++j) {
      const weft_param &param = unit.params[j];
      require(param.struct_size == sizeof param && length(param.name) > 0);
      length(param.help);
      require(param.type >= WEFT_TYPE_BOOL && param.type <= WEFT_TYPE_LIST);
      require(param.minimum <= param.maximum);
    }
  }
  reader->free_manifest(manifest);
  return 0;
}
