/* SPDX-License-Identifier: BSD-2-Clause */
/* One plugin file per CASE_..., each wrong in one way; CASE_good is right in all. Plain C over
 * plugin.h, without the SDK, since the SDK would not let most of these be written. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/plugin.h>

#ifndef UNIT_NAME
#define UNIT_NAME "hostile"
#endif
#define UNUSED __attribute__((unused))

/* ---- what getinfo and its like do ---- */

/* Whether this process only tries plugins out. */
static int UNUSED is_probe(void) {
  char name[32] = "";
  FILE *file = fopen("/proc/self/comm", "r");
  if (file != NULL && fgets(name, sizeof name, file) == NULL) name[0] = 0;
  if (file != NULL) fclose(file);
  return strncmp(name, "weft-probe", 10) == 0;
}

static void UNUSED hang(void) {
  for (;;) pause();
}

#if defined(CASE_getinfo_throws)
int32_t throwing_getinfo(void *self, uint32_t version, const char *node, const char *service,
                         uint64_t flags, const struct fi_info *hints, struct fi_info **info,
                         weft_error *why); /* throws.cc */
#define do_getinfo throwing_getinfo
#else
static const weft_core_services *core;
static int32_t do_getinfo(void *self, uint32_t version, const char *node, const char *service,
                          uint64_t flags, const struct fi_info *hints, struct fi_info **info,
                          weft_error *why) {
  (void)self, (void)version, (void)node, (void)service, (void)flags, (void)hints, (void)info;
#if defined(CASE_getinfo_hangs) || defined(CASE_layer_hangs)
  hang();
#elif defined(CASE_getinfo_crashes)
  raise(SIGSEGV);
#elif defined(CASE_getinfo_exits)
  _exit(0);
#elif defined(CASE_getinfo_signal)
  signal(SIGTERM, SIG_IGN);
#elif defined(CASE_getinfo_lies) /* an offer that nobody can read */
  *info = core->info_alloc();
  (*info)->domain_attr->name = (char *)(uintptr_t)64;
  (*info)->domain_attr->threading = FI_THREAD_SAFE;
  return 0;
#elif defined(CASE_later_hangs)
  if (!is_probe()) hang();
#elif defined(CASE_later_crashes)
  if (!is_probe()) raise(SIGSEGV);
#elif defined(CASE_later_exits)
  if (!is_probe()) _exit(0);
#endif
  snprintf(why->text, sizeof why->text, "the hostile plugin offers nothing");
  return -FI_ENODATA;
}
#endif
static int32_t fabric(void *self, struct fi_fabric_attr *attr, struct fid_fabric **opened,
                      void *context, weft_error *why) {
  (void)self, (void)attr, (void)opened, (void)context;
  snprintf(why->text, sizeof why->text, "the hostile plugin provides nothing");
  return -FI_ENODATA;
}
static void destroy(void *self) {
  (void)self;
}
static const weft_provider_ops provider_ops = {.struct_size = sizeof provider_ops,
                                               .getinfo = do_getinfo,
                                               .fabric = fabric,
                                               .destroy = destroy};

static int32_t create(const weft_instance *instance, weft_provider *provider, weft_error *why) {
  (void)instance, (void)why;
#if defined(CASE_create_crashes)
  raise(SIGSEGV);
#endif
#if !defined(CASE_getinfo_throws)
  core = instance->core;
#endif
  provider->ops = &provider_ops;
  return 0;
}

static const weft_param param = {
    .struct_size = sizeof param,
    .type = WEFT_TYPE_SIZE,
    .name = "appetite",
    .default_value = "16K",
    .help = "bytes to swallow at once",
    .maximum = 1 << 20,
};
static const weft_param *const params[] = {&param};
static const weft_provider_unit provider_unit UNUSED = {.struct_size = sizeof provider_unit,
                                                        .create = create};

#if defined(CASE_layer_of_none) || defined(CASE_layer_hangs)
static int32_t wrap(const weft_instance *instance, const weft_provider *inner, uint32_t inner_count,
                    weft_provider *provider, weft_error *why) {
  (void)inner, (void)inner_count;
  return create(instance, provider, why);
}
static const weft_layer_unit layer_unit = {.struct_size = sizeof layer_unit, .wrap = wrap};
#endif

#if defined(CASE_unterminated_name)
static const char unit_name[300] = {[0 ... 299] = 'a'};
#else
static const char unit_name[] UNUSED = UNIT_NAME;
#endif

static const weft_unit unit = {
    .magic = WEFT_UNIT_MAGIC,
    .struct_size = sizeof unit,
#if defined(CASE_unit_kind)
    .kind = 7,
#elif defined(CASE_layer_of_none) /* it does not say how many providers it takes */
    .kind = WEFT_KIND_LAYER,
    .needs_ep = WEFT_EP_BIT(FI_EP_MSG),
    .layer = &layer_unit,
#elif defined(CASE_layer_hangs)
    .kind = WEFT_KIND_LAYER,
    .needs_ep = WEFT_EP_BIT(FI_EP_MSG),
    .inner_min = 1,
    .inner_max = 1,
    .layer = &layer_unit,
#else
    .kind = WEFT_KIND_PROVIDER,
#endif
    .version = 1 << 16,
#if defined(CASE_unit_unknown_cap)
    .caps = UINT64_C(1) << 33,
#endif
#if defined(CASE_bad_pointer)
    .name = (const char *)(uintptr_t)64,
#else
    .name = unit_name,
#endif
    .summary = "swallows what it gets",
    .offers_ep = WEFT_EP_BIT(FI_EP_MSG),
    .rank = 900,
    .maturity = WEFT_MATURITY_STABLE,
    .security = WEFT_SECURITY_ROBUST,
    .params = params,
    .param_count = 1,
#if !defined(CASE_no_table) && !defined(CASE_layer_of_none) && !defined(CASE_layer_hangs)
    .provider = &provider_unit,
#endif
};

static const weft_unit *const units[] = {
#if defined(CASE_null_unit)
    NULL,
#else
    &unit,
#endif
#if defined(CASE_duplicate_units)
    &unit,
#endif
};

/* ---- what init does ---- */

#if defined(CASE_init_fails)
static int32_t do_init(const weft_offer *offer, void **state, weft_error *why) {
  (void)offer, (void)state;
  snprintf(why->text, sizeof why->text, "no frob engine found");
  return -FI_ENODEV;
}
#elif defined(CASE_init_hangs)
static int32_t do_init(const weft_offer *offer, void **state, weft_error *why) {
  (void)offer, (void)state, (void)why;
  for (;;) pause();
  return 0;
}
#elif defined(CASE_init_aborts)
static int32_t do_init(const weft_offer *offer, void **state, weft_error *why) {
  (void)offer, (void)state, (void)why;
  abort();
}
#elif defined(CASE_init_exits)
static int32_t do_init(const weft_offer *offer, void **state, weft_error *why) {
  (void)offer, (void)state, (void)why;
  _exit(0);
}
#elif defined(CASE_init_throws)
int32_t throwing_init(const weft_offer *offer, void **state, weft_error *why); /* throws.cc */
#define do_init throwing_init
#elif defined(CASE_init_positive)
static int32_t do_init(const weft_offer *offer, void **state, weft_error *why) {
  (void)offer, (void)state, (void)why;
  return 5;
}
#elif defined(CASE_signal_handler)
static void handler(int number) {
  (void)number;
}
static int32_t do_init(const weft_offer *offer, void **state, weft_error *why) {
  (void)offer, (void)state, (void)why;
  signal(SIGTERM, handler);
  return 0;
}
#elif defined(CASE_leaves_thread)
static void *wait_forever(void *arg) {
  for (;;) pause();
  return arg;
}
static int32_t do_init(const weft_offer *offer, void **state, weft_error *why) {
  (void)offer, (void)state, (void)why;
  pthread_t thread;
  return -pthread_create(&thread, NULL, wait_forever, NULL);
}
#elif defined(CASE_leaves_file)
static int32_t do_init(const weft_offer *offer, void **state, weft_error *why) {
  (void)offer, (void)state, (void)why;
  return open("/dev/null", O_RDONLY) < 0 ? -FI_EIO : 0;
}
#elif defined(CASE_leaves_process)
static int32_t do_init(const weft_offer *offer, void **state, weft_error *why) {
  (void)offer, (void)state, (void)why;
  if (fork() == 0)
    for (;;) pause();
  return 0;
}
#else
static int32_t do_init(const weft_offer *offer, void **state, weft_error *why) {
  (void)offer, (void)why;
  *state = (void *)&unit;
  return 0;
}
#endif

/* ---- what constructors do ---- */

#if defined(CASE_ctor_aborts)
__attribute__((constructor)) static void constructor(void) {
  abort();
}
#elif defined(CASE_ctor_hangs)
__attribute__((constructor)) static void constructor(void) {
  for (;;) pause();
}
#elif defined(CASE_ctor_signal)
static void ctor_handler(int number) {
  (void)number;
}
__attribute__((constructor)) static void constructor(void) {
  signal(SIGSEGV, ctor_handler);
}
#endif

static const weft_plugin_desc desc UNUSED = {
#if defined(CASE_wrong_magic)
    .magic = 0xdeadbeef,
#else
    .magic = WEFT_DESC_MAGIC,
#endif
#if defined(CASE_short_struct)
    .struct_size = 40,
#else
    .struct_size = sizeof desc,
#endif
#if defined(CASE_major_new)
    .abi_major = WEFT_ABI_MAJOR + 1,
#else
    .abi_major = WEFT_ABI_MAJOR,
#endif
#if defined(CASE_minor_new)
    .abi_minor = WEFT_ABI_MINOR + 7,
    .min_core_minor = WEFT_ABI_MINOR + 7,
#else
    .abi_minor = WEFT_ABI_MINOR,
#endif
#if defined(CASE_unknown_cap)
    .caps = UINT64_C(1) << 40,
#endif
#if defined(CASE_required_cap)
    .required_core_caps = UINT64_C(1) << 5,
#endif
    .name = "hostile-package",
    .vendor = "Mallory",
    .version = "6.6.6",
    .license = "BSD-2-Clause",
    .units = units,
#if defined(CASE_huge_count)
    .unit_count = 1000000,
#else
    .unit_count = sizeof units / sizeof units[0],
#endif
    .init = do_init,
};

#if !defined(CASE_no_symbol) && !defined(CASE_symbol_elsewhere)
WEFT_EXPORT const weft_plugin_desc *weft_plugin_query(const weft_offer *offer, weft_error *why) {
  (void)offer, (void)why;
#if defined(CASE_declines)
  snprintf(why->text, sizeof why->text, "only for Thursdays");
  return NULL;
#elif defined(CASE_query_crashes)
  raise(SIGSEGV);
#endif
  return &desc;
}
#elif defined(CASE_symbol_elsewhere)
/* Linked against the good plugin: the dynamic linker finds the symbol there. */
WEFT_EXPORT const void *here(void) {
  return &desc;
}
#endif
