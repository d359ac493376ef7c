/*
 * without-io-uring all|enter ERRNO COMMAND [ARGUMENT...]: runs a command in which io_uring_setup, io_uring_enter and io_uring_register, or
 * io_uring_enter alone, fail with ERRNO (EPERM, ENOSYS, EOPNOTSUPP), as the seccomp profiles of containers make them. Exits with 125 when
 * that cannot be arranged.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int errno_of(const char *name) {
  if (!strcmp(name, "EPERM")) return EPERM;
  if (!strcmp(name, "ENOSYS")) return ENOSYS;
  if (!strcmp(name, "EOPNOTSUPP")) return EOPNOTSUPP;
  return 0;
}

int main(int count, char **words) {
  int error = count >= 4 ? errno_of(words[2]) : 0;
  int only_enter = count >= 4 && !strcmp(words[1], "enter");
  if (error == 0 || (!only_enter && strcmp(words[1], "all"))) {
    fputs("usage: without-io-uring all|enter EPERM|ENOSYS|EOPNOTSUPP COMMAND [ARGUMENT...]\n", stderr);
    return 125;
  }
  /* The three calls have the same, adjacent numbers on every architecture that Linux added them to. */
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, only_enter ? __NR_io_uring_enter : __NR_io_uring_setup, 0, 2),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, only_enter ? __NR_io_uring_enter : __NR_io_uring_register, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {.len = sizeof code / sizeof code[0], .filter = code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    perror("without-io-uring: seccomp");
    return 125;
  }
  execvp(words[3], words + 3);
  perror(words[3]);
  return 125;
}
