/* One entry for each function that is forwarded unseen. All arguments stay where the caller put them. */
#ifndef __x86_64__
#error "the stand-in for libnixl_capi.so is written for x86-64"
#endif

    .text
    .set number, 0

#define T(name) .set number, number + 1;
#define F(name) \
    .globl name; \
    .type name, @function; \
name: \
    movl $number, %eax; \
    jmp forward; \
    .size name, . - name; \
    .set number, number + 1;
#include "functions.def"

/* eax: the function's place in functions.def. */
    .type forward, @function
forward:
    .cfi_startproc
    pushq %rdi
    pushq %rsi
    pushq %rdx
    pushq %rcx
    pushq %r8
    pushq %r9
    subq $8, %rsp
    .cfi_def_cfa_offset 64
    movl %eax, %edi
    call mx_nixl_forward
    movq %rdx, %r11
    addq $8, %rsp
    popq %r9
    popq %r8
    popq %rcx
    popq %rdx
    popq %rsi
    popq %rdi
    .cfi_def_cfa_offset 8
    testq %rax, %rax
    jz 1f
    jmp *%rax
1:  movq %r11, %rax
    ret
    .cfi_endproc
    .size forward, . - forward

    .section .note.GNU-stack, "", @progbits
