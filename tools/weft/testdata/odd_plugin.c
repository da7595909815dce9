/* SPDX-License-Identifier: BSD-2-Clause */
/* Plugins that `weft plugin check` must find fault with, by what is defined when this is compiled:
 *   EXTRA      exports a second symbol, needs one that nothing defines, and a library called
 * Protobuf ABORTS     ends the process when it is loaded */
#include <stdlib.h>
#include <weft/plugin.h>

#ifdef EXTRA
int defined_nowhere(void);
int looks_like_protobuf(void);
WEFT_EXPORT int an_extra_symbol(void) {
  return defined_nowhere() + looks_like_protobuf();
}
#endif

#ifdef ABORTS
__attribute__((constructor)) static void end(void) {
  abort();
}
#endif

WEFT_EXPORT const weft_plugin_desc *weft_plugin_query(const weft_offer *offer, weft_error *why) {
  (void)offer;
  (void)why;
  return NULL;
}
