#include "plan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "statuses.h"

enum { MAX_RULES = 64, EXIT_MISSPELT = 64 };

struct mx_settings mx_settings = {
    .devices = 1,
    .device_bytes = (size_t)16 << 30,
    .reserve_bytes = (size_t)1 << 47,
    .registered_bytes = (size_t)32 << 30,
};

/* One statement FUNCTION#WHEN=ACTION. */
struct rule {
  enum mx_function function;
  unsigned first, last; /* calls concerned, both included */
  unsigned one_in;      /* of those, one in so many, drawn by the seed */
  struct mx_fault fault;
};

static struct rule rules[MAX_RULES];
static size_t rule_count;

static void __attribute__((noreturn, format(printf, 2, 3))) misspelt(const char *statement, const char *format, ...) {
  va_list values;
  va_start(values, format);
  fprintf(stderr, "mx-fakes: MX_FAKES: '%s': ", statement);
  vfprintf(stderr, format, values);
  fputc('\n', stderr);
  va_end(values);
  _exit(EXIT_MISSPELT);
}

static size_t number(const char *statement, const char *text) {
  char *end = NULL;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || errno) misspelt(statement, "'%s' is no number", text);
  return (size_t)value;
}

/* The place of text among words separated by bars. */
static int choice(const char *statement, const char *text, const char *words) {
  int place = 0;
  for (const char *word = words; word; place++) {
    const char *bar = strchr(word, '|');
    size_t length = bar ? (size_t)(bar - word) : strlen(word);
    if (strlen(text) == length && !strncmp(text, word, length)) return place;
    word = bar ? bar + 1 : NULL;
  }
  misspelt(statement, "'%s' is none of %s", text, words);
}

static void read_setting(const char *statement, const char *name, const char *value) {
  struct mx_settings *set = &mx_settings;
  const struct { const char *name; size_t *target; } numbers[] = {
      {"devices", &set->devices},           {"device-bytes", &set->device_bytes},         {"async-ms", &set->async_ms},
      {"reserve-bytes", &set->reserve_bytes}, {"registered-bytes", &set->registered_bytes}, {"seed", &set->seed},
  };
  for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++)
    if (!strcmp(name, numbers[at].name)) {
      *numbers[at].target = number(statement, value);
      if (set->devices > 16) misspelt(statement, "at most 16 devices");
      return;
    }
  if (!strcmp(name, "fabric")) set->fabric = choice(statement, value, "not-supported|not-permitted|supported");
  else if (!strcmp(name, "dmabuf")) set->dmabuf = choice(statement, value, "one-handle|any|none|holes");
  else if (!strcmp(name, "gds")) set->gds = choice(statement, value, "direct|compat|refused");
  else misspelt(statement, "there is no setting '%s', and a fault is written FUNCTION#WHEN=ACTION", name);
}

/* WHEN: N, N+, N-M, *, or 1/K. */
static void read_when(const char *statement, char *when, struct rule *rule) {
  char *mark = strpbrk(when, "+-/");
  rule->one_in = 1;
  if (!strcmp(when, "*")) {
    rule->first = 1, rule->last = UINT32_MAX;
  } else if (!mark) {
    rule->first = rule->last = (unsigned)number(statement, when);
  } else {
    char kind = *mark;
    *mark = 0;
    rule->first = (unsigned)number(statement, when);
    if (kind == '+' && mark[1]) misspelt(statement, "nothing stands behind N+");
    rule->last = kind == '-' ? (unsigned)number(statement, mark + 1) : UINT32_MAX;
    if (kind == '/') {
      if (rule->first != 1) misspelt(statement, "a chance is written 1/K");
      rule->one_in = (unsigned)number(statement, mark + 1);
    }
  }
  if (!rule->first || !rule->one_in || rule->last < rule->first) misspelt(statement, "calls are counted from 1");
}

/* ACTION: a status by name or number, short:BYTES, block:MS, or hang. */
static void read_action(const char *statement, const char *action, struct rule *rule) {
  enum mx_family family = mx_family_of(rule->function);
  struct mx_fault *fault = &rule->fault;
  if (!strcmp(action, "hang")) {
    fault->hang = true;
  } else if (!strncmp(action, "block:", 6)) {
    fault->block_ms = number(statement, action + 6);
  } else if (!strncmp(action, "short:", 6)) {
    if (rule->function != F_cuFileRead && rule->function != F_cuFileWrite) misspelt(statement, "only cuFileRead and cuFileWrite can come short");
    fault->shortened = true;
    fault->short_bytes = number(statement, action + 6);
  } else {
    const struct mx_status *status = mx_status_named(family, action);
    char *end = NULL;
    long value = strtol(action, &end, 10);
    if (!status && (!*action || *end)) misspelt(statement, "'%s' is no status of %s", action, mx_function_name(rule->function));
    if (!status && !mx_status_of(family, value)) misspelt(statement, "%ld is no status of %s", value, mx_function_name(rule->function));
    fault->fails = true;
    fault->status = status ? status->value : value;
  }
}

static void read_statement(const char *statement) {
  char copy[256];
  if (strlen(statement) >= sizeof copy) misspelt(statement, "too long");
  strcpy(copy, statement);
  char *equals = strchr(copy, '='), *hash = strchr(copy, '#');
  if (!equals) misspelt(statement, "write NAME=VALUE or FUNCTION#WHEN=ACTION");
  *equals = 0;
  if (!hash || hash > equals) {
    read_setting(statement, copy, equals + 1);
    return;
  }
  *hash = 0;
  if (rule_count == MAX_RULES) misspelt(statement, "more than %d faults", MAX_RULES);
  struct rule *rule = &rules[rule_count++];
  rule->function = mx_function_named(copy);
  if (rule->function == MX_FUNCTIONS) misspelt(statement, "there is no function '%s'", copy);
  read_when(statement, hash + 1, rule);
  read_action(statement, equals + 1, rule);
}

__attribute__((constructor(101))) static void read_plan(void) {
  const char *text = getenv("MX_FAKES");
  if (!text) return;
  char *copy = strdup(text), *rest = NULL;
  for (char *word = strtok_r(copy, "; \n\t", &rest); word; word = strtok_r(NULL, "; \n\t", &rest)) read_statement(word);
  free(copy);
}

/* The same for the same seed, function and call, in whatever order threads come. */
static bool drawn(enum mx_function function, unsigned n, unsigned one_in) {
  uint64_t x = mx_settings.seed * 0x9e3779b97f4a7c15u + ((uint64_t)function << 32 | n);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (x ^ (x >> 31)) % one_in == 0;
}

struct mx_fault mx_planned(enum mx_function function, unsigned n) {
  struct mx_fault all = {0};
  for (size_t at = 0; at < rule_count; at++) {
    const struct rule *rule = &rules[at];
    if (rule->function != function || n < rule->first || n > rule->last || !drawn(function, n, rule->one_in)) continue;
    all.hang |= rule->fault.hang;
    all.block_ms += rule->fault.block_ms;
    if (rule->fault.shortened) all.shortened = true, all.short_bytes = rule->fault.short_bytes;
    if (rule->fault.fails) all.fails = true, all.status = rule->fault.status;
  }
  return all;
}
