/* SPDX-License-Identifier: BSD-2-Clause */
/* A plugin for the loader's tests: a provider, a layer and, with HOOKS, as many hooks. It writes
 * what happens to it into the file that WEFT_TOY_LOG names. Built as version 1 and 2, which differ
 * in a parameter. */
#include <stdio.h>
#include <stdlib.h>
#include <weft/plugin.h>

#ifndef TOY_VERSION
#define TOY_VERSION 1
#endif

static void note(const char *text) {
  const char *path = getenv("WEFT_TOY_LOG");
  FILE *file = path == NULL ? NULL : fopen(path, "a");
  if (file == NULL) return;
  fprintf(file, "%s\n", text);
  fclose(file);
}

static int32_t create(const weft_instance *instance, weft_provider *provider, weft_error *why) {
  (void)instance, (void)provider, (void)why;
  return -FI_ENOSYS;
}
static int32_t wrap(const weft_instance *instance, const weft_provider *inner, uint32_t inner_count,
                    weft_provider *provider, weft_error *why) {
  (void)instance, (void)inner, (void)inner_count, (void)provider, (void)why;
  return -FI_ENOSYS;
}
static int32_t create_hook(const weft_instance *instance, void **state, weft_error *why) {
  (void)instance, (void)state, (void)why;
  return 0;
}

static const weft_param size_param = {.struct_size = sizeof size_param,
                                      .type = WEFT_TYPE_SIZE,
                                      .name = TOY_VERSION == 1 ? "eager_size" : "eager_limit",
                                      .default_value = "16K",
                                      .help = "bytes that go at once; \"more\" costs a round trip",
                                      .maximum = 1 << 20};
static const weft_param list_param = {.struct_size = sizeof list_param,
                                      .type = WEFT_TYPE_LIST,
                                      .name = "interfaces",
                                      .help = "names or globs"};
static const weft_param *const params[] = {&size_param, &list_param};
static const char *const devices[] = {"path:/nonexistent/toy*", "netdev:*"};
static const char *const no_devices[] = {"path:/nonexistent/toy*"};

static const weft_provider_unit provider_table = {.struct_size = sizeof provider_table,
                                                  .create = create};
static const weft_layer_unit layer_table = {.struct_size = sizeof layer_table, .wrap = wrap};
static const weft_op_tables overlay = {.struct_size = sizeof overlay};
static const weft_hook_unit hook_table = {
    .struct_size = sizeof hook_table, .overlay = &overlay, .create = create_hook};

static const weft_unit provider = {
    .magic = WEFT_UNIT_MAGIC,
    .struct_size = sizeof provider,
    .kind = WEFT_KIND_PROVIDER,
    .version = (1u << 16) | 3,
    .caps = 1, /* of the low half: may be ignored */
    .name = "toy",
    .summary = "a provider that provides nothing: \"toy\" \\ \xc3\xa9",
    .offers_ep = WEFT_EP_BIT(FI_EP_MSG) | WEFT_EP_BIT(FI_EP_RDM),
    .rank = 500,
    .maturity = WEFT_MATURITY_BETA,
    .security = WEFT_SECURITY_ROBUST,
    .device_count = 2,
    .devices = devices,
    .params = params,
    .param_count = 2,
    .provider = &provider_table};
static const weft_unit layer = {.magic = WEFT_UNIT_MAGIC,
                                .struct_size = sizeof layer,
                                .kind = WEFT_KIND_LAYER,
                                .name = "toylayer",
                                .ofi_name = "ofi_toy",
                                .needs_ep = WEFT_EP_BIT(FI_EP_MSG),
                                .inner_min = 1,
                                .inner_max = 1,
                                .offers_ep = WEFT_EP_BIT(FI_EP_RDM),
                                .rank = 100,
                                .maturity = WEFT_MATURITY_STABLE,
                                .security = WEFT_SECURITY_TRUSTED_PEERS,
                                .layer = &layer_table};
static const weft_unit absent = {.magic = WEFT_UNIT_MAGIC,
                                 .struct_size = sizeof absent,
                                 .kind = WEFT_KIND_PROVIDER,
                                 .name = "absent",
                                 .rank = 700,
                                 .maturity = WEFT_MATURITY_EXPERIMENTAL,
                                 .security = WEFT_SECURITY_NO_NETWORK,
                                 .device_count = 1,
                                 .devices = no_devices,
                                 .provider = &provider_table,
                                 .device_remedy = "put a \"toy\" on the table"};
#define HOOK(N)                                                           \
  static const weft_unit hook##N = {.magic = WEFT_UNIT_MAGIC,             \
                                    .struct_size = sizeof hook##N,        \
                                    .kind = WEFT_KIND_HOOK,               \
                                    .name = "hook" #N,                    \
                                    .maturity = WEFT_MATURITY_STABLE,     \
                                    .security = WEFT_SECURITY_NO_NETWORK, \
                                    .hook = &hook_table};
HOOK(1)
HOOK(2)

static const weft_unit *const units[] = {&provider, &layer, &absent, &hook1, &hook2};

static int32_t init(const weft_offer *offer, void **state, weft_error *why) {
  (void)why;
  if (offer->core == NULL || offer->core->info_alloc == NULL) return -FI_EINVAL;
  note("init");
  *state = (void *)&provider;
  return 0;
}
static void fini(void *state) {
  note(state == &provider ? "fini" : "fini with a wrong state");
}

static const weft_plugin_desc desc = {.magic = WEFT_DESC_MAGIC,
                                      .struct_size = sizeof desc,
                                      .abi_major = WEFT_ABI_MAJOR,
                                      .abi_minor = WEFT_ABI_MINOR,
                                      .required_core_caps = WEFT_CORE_CAP_HOOKS,
                                      .name = "toybox",
                                      .vendor = "Toys & Co.",
                                      .version = "1.0",
                                      .license = "BSD-2-Clause",
                                      .support = "https://toys.example/help",
                                      .units = units,
                                      .unit_count = sizeof units / sizeof units[0],
                                      .init = init,
                                      .fini = fini};

WEFT_EXPORT const weft_plugin_desc *weft_plugin_query(const weft_offer *offer, weft_error *why) {
  if (offer->magic != WEFT_OFFER_MAGIC || offer->struct_size < sizeof *offer) {
    snprintf(why->text, sizeof why->text, "a bad offer");
    return NULL;
  }
  return &desc;
}
