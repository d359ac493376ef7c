/* Numbers and names for every function that the stand-ins export, one list for each library. */
#ifndef MX_FAKES_FUNCTIONS_H
#define MX_FAKES_FUNCTIONS_H

enum mx_function {
#define F(name) F_##name,
#define T(name) F_##name,
#include "../cuda/functions.def"
#include "../cudart/functions.def"
#include "../cufile/functions.def"
#include "../nixl/functions.def"
#undef F
#undef T
  MX_FUNCTIONS
};

/* The library that a function or a status name belongs to. */
enum mx_family { MX_CUDA, MX_CUDART, MX_CUFILE, MX_NIXL };

const char *mx_function_name(enum mx_function function);
enum mx_family mx_family_of(enum mx_function function);

/* The function of this name, or MX_FUNCTIONS. */
enum mx_function mx_function_named(const char *name);

#endif
