/* A shared library that is not what it is named for. With ABORTS it ends the process that loads it, else it lacks every function. */
#include <stdlib.h>

#ifdef ABORTS
__attribute__((constructor)) static void end_the_process(void) { abort(); }
#endif

int mx_odd_library(void) { return 0; }
