/* A scenario is a function that calls a stand-in and checks each answer; the program runs the one that its argument names. */
#ifndef MX_FAKES_CHECK_H
#define MX_FAKES_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scenario {
  const char *name;
  void (*run)(void);
};

/* The value of an expression must be this. */
#define IS(expression, expected) \
  do { \
    long long got = (long long)(expression), wanted = (long long)(expected); \
    if (got != wanted) { \
      fprintf(stderr, "%s:%d: %s: %lld, not %lld\n", __FILE__, __LINE__, #expression, got, wanted); \
      exit(1); \
    } \
  } while (0)

#define OK(expression) IS(expression, 0)

static inline int run_scenario(const struct scenario *scenarios, int argc, char **argv) {
  for (const struct scenario *at = scenarios; argc > 1 && at->name; at++)
    if (!strcmp(at->name, argv[1])) {
      at->run();
      return 0;
    }
  fprintf(stderr, "no such scenario\n");
  return 2;
}

#endif
