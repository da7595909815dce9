// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/open_library.h"

#include <dlfcn.h>
#include <link.h>

#define BOOST_DLL_USE_STD_FS
#include <boost/dll/shared_library.hpp>
#include <exception>
#include <system_error>

namespace weft {
namespace {

// dlsym() also looks into the libraries that the plugin depends on: a query function from there is
// not the plugin's.
bool defined_in(void *symbol, void *handle, std::string &owner) {
  Dl_info info{};
  void *map = nullptr;
  if (dladdr1(symbol, &info, &map, RTLD_DL_LINKMAP) == 0) return false;
  owner = info.dli_fname != nullptr ? info.dli_fname : "?";
  link_map *own = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &own) == 0 && own == map;
}

}  // namespace

Checked<OpenPlugin> open_plugin(const std::string &path) {
  using boost::dll::load_mode::type;
  const auto mode = static_cast<type>(boost::dll::load_mode::rtld_now |
                                      boost::dll::load_mode::rtld_local | RTLD_NODELETE);
  boost::dll::shared_library library;
  std::error_code error;
  std::string text;
  try {
    dlerror();  // forgets an earlier error
    library.load(path, error, mode);
    if (error)
      if (const char *words = dlerror()) text = words;
  } catch (const std::exception &e) {  // Boost, or a constructor of the plugin
    return with_remedy(reject(Stage::kDlopen, "an exception left dlopen: %s", e.what()),
                       kFaultyPlugin);
  } catch (...) {
    return with_remedy(reject(Stage::kDlopen, "an exception left a constructor of the library"),
                       kFaultyPlugin);
  }
  if (error)
    return with_remedy(
        reject(Stage::kDlopen, "%s", text.empty() ? error.message().c_str() : text.c_str()),
        "install the library that is missing or reinstall the plugin; `ldd %s` shows what it needs",
        path.c_str());

  void *handle = library.native();
  void *symbol = dlsym(handle, WEFT_QUERY_SYMBOL);
  if (symbol == nullptr) {
    const bool stock = dlsym(handle, "fi_prov_ini") != nullptr;
    return with_remedy(
        reject(Stage::kSymbol, "no symbol " WEFT_QUERY_SYMBOL "%s",
               stock ? "; it is a provider library of stock libfabric (fi_prov_ini)" : ""),
        stock ? "use the vendor's plugin for weft"
              : "the file is no weft plugin: move it elsewhere");
  }
  std::string owner;
  if (!defined_in(symbol, handle, owner))
    return with_remedy(
        reject(Stage::kSymbol,
               WEFT_QUERY_SYMBOL " is not defined by this file but by a library that it needs: %s",
               owner.c_str()),
        kFaultyPlugin);
  return OpenPlugin{reinterpret_cast<weft_plugin_query_fn>(symbol)};
}

Answer ask(const OpenPlugin &plugin, const weft_offer &offer) {
  Answer answer;
  answer.why.struct_size = sizeof answer.why;
  try {
    answer.desc = plugin.query(&offer, &answer.why);
  } catch (...) {
    answer.threw = true;
    answer.desc = nullptr;
    std::snprintf(answer.why.text, sizeof answer.why.text, "an exception left " WEFT_QUERY_SYMBOL);
  }
  return answer;
}

}  // namespace weft
