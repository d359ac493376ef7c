/* Preloaded: ends the program by SIGSEGV before it begins. */
#include <signal.h>

__attribute__((constructor)) static void crash(void) { raise(SIGSEGV); }
